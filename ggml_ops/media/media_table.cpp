#include "media/media_table.h"

#include "base/error.h"

#include <algorithm>

namespace dflash {

int32_t media_table::number(const medium_key & key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [it, is_new] = numbers_.emplace(key, (int32_t) keys_.size());
    if (is_new) {
        keys_.push_back(key);
    }
    return it->second;
}

bool media_table::knows(int32_t token) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_media(token) && media_number(token) < (int32_t) keys_.size();
}

medium_key media_table::key(int32_t token) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return keys_[media_number(token)];
}

media_layout media_table::layout(const std::vector<int32_t> & tokens) const {
    std::vector<media_span> spans;
    for (size_t i = 0; i < tokens.size();) {
        if (tokens[i] >= 0) {
            ++i;
            continue;
        }
        refuse_if(!knows(tokens[i]), "tokens[", i, "] is ", tokens[i], ", which stands for no medium of this engine");
        const medium_key k = key(tokens[i]);
        spans.push_back({ (int32_t) i, tokens[i], k.size });
        const size_t end = std::min(tokens.size(), i + (size_t) k.size.n_rows);
        for (; i < end; ++i) {
            refuse_if(
                tokens[i] != spans.back().token, "tokens[", i, "] ends a medium of ", k.size.n_rows, " rows too early");
        }
    }
    return media_layout(std::move(spans));
}

}   // namespace dflash
