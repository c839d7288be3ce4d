#include "engine/sample_text.h"

#include "base/tokenize.h"

#include <algorithm>
#include <exception>

namespace dflash {

static const char * const TEXT =
    "The harbour was quiet before dawn, and only two of the older boats had put out to sea. Nobody had expected rain.\n"
    "def median(values: list[float]) -> float:\n"
    "    ordered = sorted(values)\n"
    "    middle = len(ordered) // 2\n"
    "    return ordered[middle] if len(ordered) % 2 else sum(ordered[middle - 1 : middle + 1]) / 2\n"
    "{\"name\": \"Ada\", \"year\": 1843, \"tags\": [\"engine\", \"notes\"], \"price\": 12.50, \"sold\": false}\n"
    "# Steps\n1. Preheat the oven to 180 degrees.\n2. Mix flour, sugar and butter; add three eggs.\n"
    "Die Prüfung war schwieriger als erwartet. ¿Dónde está la estación? Il a répondu sans hésiter.\n"
    "今天的天气很好。 Сегодня хорошая погода.\n"
    "What is the sum of 17 and 25? Let x = 17 + 25, so x = 42. Therefore, the answer is 42.\n"
    "for (int i = 0; i < n; ++i) { if (a[i] > best) { best = a[i]; } }\n"
    "Thank you for your message! I would suggest that we meet on Thursday, because Friday is a holiday.\n";

static std::vector<llama_token> bos(const llama_vocab * vocab) { return { std::max(0, llama_vocab_bos(vocab)) }; }

static std::vector<llama_token> tokens_of(const llama_vocab * vocab) {
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) {
        return bos(vocab);
    }
    try {
        std::vector<llama_token> tokens = tokenize(vocab, TEXT, false);
        return tokens.empty() ? bos(vocab) : tokens;
    } catch (const std::exception &) {
        return bos(vocab);   // a vocabulary that cannot spell the text
    }
}

sample_text::sample_text(const llama_vocab * vocab) : tokens_(tokens_of(vocab)) {}

llama_token sample_text::next() {
    const llama_token token = tokens_[at_];
    at_                     = (at_ + 1) % tokens_.size();
    return token;
}

}   // namespace dflash
