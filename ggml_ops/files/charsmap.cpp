#include "files/charsmap.h"

#include <cstring>

namespace dflash {

namespace {

// An XOR-compressed compact double array, 32 bits per node.
class double_array {
  public:
    explicit double_array(const std::vector<uint8_t> & table) {
        uint32_t n_bytes = 0;
        if (table.size() < sizeof(n_bytes)) {
            return;
        }
        std::memcpy(&n_bytes, table.data(), sizeof(n_bytes));
        if (n_bytes >= table.size() - sizeof(n_bytes)) {
            return;
        }
        nodes_.resize(n_bytes / sizeof(uint32_t));
        std::memcpy(nodes_.data(), table.data() + sizeof(n_bytes), nodes_.size() * sizeof(uint32_t));
        texts_.assign(table.begin() + sizeof(n_bytes) + n_bytes, table.end());
    }

    bool is_sound() const {
        if (texts_.empty() || texts_.back() != 0) {
            return false;   // the last replacement is not terminated
        }
        if (nodes_.empty()) {
            return true;
        }
        std::vector<bool>     seen(nodes_.size());
        std::vector<uint32_t> todo = { base(0) };
        while (!todo.empty()) {
            const uint32_t parent = todo.back();
            todo.pop_back();
            for (uint32_t c = 1; c < 256; ++c) {
                const uint32_t child = parent ^ c;
                if (child >= nodes_.size()) {
                    return false;
                }
                if ((nodes_[child] & ((1U << 31) | 0xff)) != c || seen[child]) {
                    continue;
                }
                seen[child]         = true;
                const uint32_t next = child ^ base(child);
                if (is_leaf(child) && (next >= nodes_.size() || value(next) >= texts_.size())) {
                    return false;
                }
                todo.push_back(next);
            }
        }
        return true;
    }

  private:
    std::vector<uint32_t> nodes_;
    std::vector<uint8_t>  texts_;   // replacements, each zero-terminated

    uint32_t base(uint32_t i) const { return (nodes_[i] >> 10) << ((nodes_[i] & (1U << 9)) >> 6); }
    bool     is_leaf(uint32_t i) const { return ((nodes_[i] >> 8) & 1) != 0; }
    uint32_t value(uint32_t i) const { return nodes_[i] & ((1U << 31) - 1); }
};

}   // namespace

bool charsmap_is_sound(const std::vector<uint8_t> & table) { return double_array(table).is_sound(); }

}   // namespace dflash
