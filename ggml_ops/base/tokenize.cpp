#include "base/tokenize.h"

#include "base/error.h"
#include "common/common.h"
#include "dflash.h"
#include "llama/access.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <pthread.h>
#endif

namespace dflash {

namespace {

// Bytes of stack per matched character: at most 400 were measured over the splitters of all vocabularies (x86-64).
constexpr size_t FRAME = 1024;
// Bytes of text for which any thread's stack suffices.
constexpr size_t SHORT = 1024;
// Bytes of text for which a separate stack is created: 1 GiB of address space, used only as far as one match reaches.
constexpr size_t MOST = 1 << 20;
// Longest run of spaces or digits, which take quadratic time: 15 ms.
constexpr size_t RUN = 512;

struct job {
    const std::function<void()> & f;
    std::exception_ptr            failure;
};

void run_job(void * data) {
    job & j = *static_cast<job *>(data);
    try {
        j.f();
    } catch (...) {
        j.failure = std::current_exception();
    }
}

#ifdef _WIN32

DWORD WINAPI thread_main(void * data) {
    run_job(data);
    return 0;
}

bool run_in_thread(size_t bytes, job & work) {
    const HANDLE thread = CreateThread(nullptr, bytes, thread_main, &work, STACK_SIZE_PARAM_IS_A_RESERVATION, nullptr);
    if (!thread) {
        return false;
    }
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
    return true;
}

#else

void * thread_main(void * data) {
    run_job(data);
    return nullptr;
}

bool run_in_thread(size_t bytes, job & work) {
    pthread_t      thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    const bool started = pthread_attr_setstacksize(&attributes, bytes) == 0 &&
                         pthread_create(&thread, &attributes, thread_main, &work) == 0;
    pthread_attr_destroy(&attributes);
    if (started) {
        pthread_join(thread, nullptr);
    }
    return started;
}

#endif

void run_on_stack(size_t bytes, const std::function<void()> & f) {
    job work = { f, nullptr };
    if (!run_in_thread(bytes, work)) {
        throw status_error(DFLASH_ERROR_MEMORY, "there is no memory to split a text of this length");
    }
    if (work.failure) {
        std::rethrow_exception(work.failure);
    }
}

// The length of the Unicode space or digit at `at`, 0 if there is neither.
size_t space_or_digit(const std::string & text, size_t at) {
    static const char * const wide[] = { "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004",
        "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000" };
    const unsigned char       c      = text[at];
    if (c < 0x80) {
        return std::isspace(c) || std::isdigit(c);
    }
    for (const char * space : wide) {
        const size_t size = std::strlen(space);
        if (text.compare(at, size, space) == 0) {
            return size;
        }
    }
    return 0;
}

void check_runs(const std::string & text) {
    size_t run = 0;
    for (size_t at = 0, size = 0; at < text.size(); at += std::max<size_t>(size, 1)) {
        size = space_or_digit(text, at);
        run  = size ? run + 1 : 0;
        refuse_if(run > RUN, "more than ", RUN,
            " spaces or digits in a row take "
            "this model's tokenizer for ever: send fewer, or tokens");
    }
}

}   // namespace

llama_tokens tokenize(const llama_vocab * vocab, const std::string & text, bool add_special, bool parse_special) {
    const splitter splits = text.size() <= RUN ? splitter::any_text : access_splitter(vocab);
    if (splits == splitter::quadratic) {
        check_runs(text);
    }
    if (splits == splitter::any_text || text.size() <= SHORT) {
        return common_tokenize(vocab, text, add_special, parse_special);
    }
    refuse_if(text.size() > MOST, "a text of ", text.size(),
        " bytes is too long for this model's tokenizer, which takes ", MOST, ": send it in parts, or as tokens");
    static std::mutex            one_at_a_time;   // one long text at a time: a fully used stack takes that much memory
    std::unique_lock<std::mutex> lock(one_at_a_time, std::defer_lock);
    if (text.size() > MOST / 16) {
        lock.lock();
    }
    llama_tokens tokens;
    run_on_stack(
        (1 << 20) + FRAME * text.size(), [&] { tokens = common_tokenize(vocab, text, add_special, parse_special); });
    return tokens;
}

}   // namespace dflash
