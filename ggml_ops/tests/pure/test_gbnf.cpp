// check_gbnf() accepts what llama.cpp can build and explains what is wrong with the rest, above all with grammars that
// would never terminate.

#include "grammar/gbnf.h"

#include "check.h"

#include <stdexcept>
#include <string>

using namespace dflash;

static std::string error(const std::string & grammar) {
    try {
        check_gbnf(grammar);
    } catch (const std::invalid_argument & e) {
        return e.what();
    }
    return "";
}

static bool refused(const std::string & grammar, const std::string & why) {
    const std::string said = error(grammar);
    if (said.find(why) == std::string::npos) {
        std::printf("%s: said '%s', not '%s'\n", grammar.substr(0, 80).c_str(), said.c_str(), why.c_str());
        return false;
    }
    return true;
}

static std::string repeated(const std::string & text, int n) {
    std::string all;
    for (int i = 0; i < n; ++i) {
        all += text;
    }
    return all;
}

// n rules, each of which is `body` with % for the next rule's name.
static std::string chain(int n, const std::string & body) {
    std::string grammar = "root ::= r0\n";
    for (int i = 0; i < n; ++i) {
        std::string line = "r" + std::to_string(i) + " ::= " + body + "\n";
        for (size_t at; (at = line.find('%')) != std::string::npos;) {
            line.replace(at, 1, "r" + std::to_string(i + 1));
        }
        grammar += line;
    }
    return grammar + "r" + std::to_string(n) + " ::= \"x\"\n";
}

int main() {
    // llama.cpp builds these
    CHECK(error("root ::= \"a\"") == "");
    CHECK(error("\r\n# a comment\r\nroot ::= \"a\" # another\r\n") == "");
    CHECK(error("root ::= (\"a\" |\n  \"b\")* [^\\]x-] . \"\\n\\\"\"{1,3}\nws ::= [ \\t\\n]*\n") == "");
    CHECK(error("root ::= <[3]> !<[4]> <think>") == "");
    CHECK(error("root ::= \"a\"{0} \"b\"{2,} \"c\"{0,2000}") == "");
    CHECK(error("root ::= | x\nx ::= \"y\"") == "");
    CHECK(error("root ::= ()  \"x\"") == "");
    // may be empty and repeated, as in llama.cpp's own tool grammars: no stack grows
    CHECK(error("root ::= (call? space)+\ncall ::= \"x\"\nspace ::= | \" \"") == "");
    CHECK(error("root ::= \"(\" root \")\" | \"a\"") == "");
    CHECK(error("root ::= item root | item\nitem ::= [a-z]") == "");
    CHECK(error(chain(500, "% | \"b\"")) == "");

    // it rejects these, here with the line
    CHECK(refused("", "'root' is missing"));
    CHECK(refused("start ::= \"a\"", "'root' is missing"));
    CHECK(refused("root ::= \"a\"\n\nb = \"c\"", "line 3: expected ::="));
    CHECK(refused("root ::= a\na ::= b", "line 2: rule 'b' is not defined"));
    CHECK(refused("root ::= \"a", "expected \""));
    CHECK(refused("root ::= \"a\\", "expected \""));
    CHECK(refused("root ::= [a", "expected ]"));
    CHECK(refused("root ::= (\"a\"", "expected ')'"));
    CHECK(refused("root ::= \"a\" ]", "unexpected ']'"));
    CHECK(refused("root ::= <x", "expected <token>"));
    CHECK(refused("root ::= !<" + std::string(60000, 'A') + ">", "longer than 1024 bytes"));
    CHECK(refused("root ::= *", "nothing before '*'"));
    CHECK(refused("root ::= \"\"*", "nothing before '*'"));
    CHECK(refused("root ::= \"a\"{", "expected a number"));
    CHECK(refused("root ::= \"a\"{1", "expected '}'"));
    CHECK(refused("root ::= \"a\"{1,x}", "expected a number"));
    CHECK(refused(std::string("root ::= \"a\0\"", 13), "NUL"));

    // these would not terminate
    CHECK(refused("root ::= \"a\"{2,1}", "asks for more than it allows"));
    CHECK(refused("root ::= \"a\"{2001}", "more than 2000 repetitions"));
    CHECK(refused("root ::= \"a\"{0,2001}", "more than 2000 repetitions"));
    CHECK(refused("root ::= \"a\"{1,99999999999999999999}", "more than 2000 repetitions"));
    const std::string tricky = "root ::= \"a \\\" b\" [^\\]x-] x-1{1,2} <tok> !<[3]> # b\nx-1 ::= root? \"]\"\n";
    CHECK(with_prefix(tricky, "p-") ==
          "p-root ::= \"a \\\" b\" [^\\]x-] p-x-1{1,2} <tok> !<[3]> # b\np-x-1 ::= p-root? \"]\"\n");
    CHECK(refused("root ::= \"" + repeated("a", 100000) + "\"{2000}", "expands to more than"));
    CHECK(refused("root ::= " + repeated("(", 300) + "\"a\"" + repeated(")", 300), "nested deeper"));
    CHECK(refused("root ::= root \"a\" | \"a\"", "left recursion"));
    CHECK(refused("root ::= y root \"b\" | \"c\"\ny ::= x x\nx ::= \"\" | \"a\"", "left recursion"));
    CHECK(refused("root ::= a b\na ::= \"x\"?\nb ::= root \"z\"", "line 3: rule 'b': left recursion"));
    CHECK(refused("root ::= (root \"b\")* \"c\"", "left recursion"));
    CHECK(refused(chain(60, "% | %"), "too many ways to begin"));
    CHECK(refused(chain(5000, "% | \"b\""), "too deeply"));
    std::string empty = chain(200000, "%");
    CHECK(refused(empty.replace(empty.rfind('x'), 1, ""), "too deeply"));   // at once: all may be empty, as the last is
    // at once: rules end one by one behind many that do not
    CHECK(error("root ::= c\nc ::= " + repeated("(root) | (\"x\") | ", 300000) + "\"x\"") == "");
    return TEST_RESULT;
}
