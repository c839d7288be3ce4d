// Parts of tensors are read with few calls, and each gets its own bytes.

#include "llama/state_reads.h"

#include "check.h"

#include <numeric>

using namespace dflash;

namespace {

struct part {
    const std::vector<uint8_t> * tensor;
    uint8_t *                    ptr;
    size_t                       size, offset;
};

struct place {
    size_t tensor, offset, size;
};

std::vector<uint8_t> bytes_from(uint8_t first, size_t n) {
    std::vector<uint8_t> bytes(n);
    std::iota(bytes.begin(), bytes.end(), first);
    return bytes;
}

// Reads these places and compares them. Returns the number of calls.
int n_reads(const std::vector<place> & places, bool far = true) {
    const std::vector<uint8_t> tensors[] = { bytes_from(3, 6 << 20), bytes_from(100, 1 << 20) };
    size_t                     n_bytes   = 0;
    for (const place & p : places) {
        n_bytes += p.size;
    }
    std::vector<uint8_t> data(n_bytes), expected;
    std::vector<part>    parts;
    for (const place & p : places) {
        parts.push_back({ &tensors[p.tensor], data.data() + expected.size(), p.size, p.offset });
        const auto from = tensors[p.tensor].begin() + (ptrdiff_t) p.offset;
        expected.insert(expected.end(), from, from + (ptrdiff_t) p.size);
    }
    int        n   = 0;
    const auto get = [&](const std::vector<uint8_t> * tensor, void * to, size_t offset, size_t size) {
        CHECK(offset + size <= tensor->size());
        std::memcpy(to, tensor->data() + offset, size);
        ++n;
    };
    read_with_gaps(parts, get, [far](const std::vector<uint8_t> *) { return far; });
    CHECK(data == expected);
    return n;
}

}   // namespace

int main() {
    CHECK(n_reads({}) == 0);
    CHECK(n_reads({ { 0, 7, 100 } }) == 1);
    CHECK(n_reads({ { 0, 0, 100 }, { 0, 100, 50 }, { 0, 4000, 1 } }) == 1);
    CHECK(n_reads({ { 0, 0, 100 }, { 0, 100, 50 }, { 0, 4000, 1 } }, false) == 3);
    CHECK(n_reads({ { 0, 0, 100 }, { 1, 100, 50 }, { 1, 200, 50 }, { 0, 200, 9 } }) == 3);
    CHECK(n_reads({ { 0, 0, 100 }, { 0, MAX_GAPS + 550, 50 } }) == 1);
    CHECK(n_reads({ { 0, 0, 100 }, { 0, MAX_GAPS + 551, 50 } }) == 2);
    CHECK(n_reads({ { 0, 500, 100 }, { 0, 0, 100 }, { 0, 550, 100 } }) == 2);   // not in order
    CHECK(n_reads({ { 0, 0, 100 }, { 0, 50, 100 } }) == 2);                     // not apart
    CHECK(n_reads({ { 0, 0, MAX_SPAN }, { 0, MAX_SPAN + 1, 9 } }) == 2);        // large as it is
    CHECK(n_reads({ { 0, 1, 9 }, { 0, 20, MAX_SPAN - 19 }, { 0, 5 << 20, 9 } }) == 2);
    return TEST_RESULT;
}
