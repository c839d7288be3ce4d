#include "media/media_table.h"

#include "base/error.h"

#include <algorithm>

namespace dflash {

// With the mutex held.
int32_t media_table::number_of(const medium_key & key) {
    const auto [it, is_new] = numbers_.emplace(key, (int32_t) entries_.size());
    if (is_new) {
        entries_.push_back({ key, {} });
    }
    return it->second;
}

std::shared_ptr<medium> media_table::add(const medium_key & key, mtmd::input_chunk_ptr chunk, medium::reading how) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int32_t                     number = number_of(key);
    entry &                           e      = entries_[number];
    std::shared_ptr<medium>           used   = e.used.lock();
    if (!used) {
        e.used = used = std::make_shared<medium>(key, number, std::move(chunk), how);
    }
    return used;
}

int32_t media_table::number(const medium_key & key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return number_of(key);
}

std::shared_ptr<medium> media_table::find(int32_t token) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int32_t                     number = media_number(token);
    return number < (int32_t) entries_.size() ? entries_[number].used.lock() : nullptr;
}

bool media_table::knows(int32_t token) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_media(token) && media_number(token) < (int32_t) entries_.size();
}

medium_key media_table::key(int32_t token) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return entries_[media_number(token)].key;
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
            refuse_if(tokens[i] != spans.back().token, "tokens[", i, "] ends a medium of ", k.size.n_rows, " rows too early");
        }
    }
    return media_layout(std::move(spans));
}

}   // namespace dflash
