#include "media/live_media.h"

namespace dflash {

std::shared_ptr<medium> live_media::add(const medium_key & key, mtmd::input_chunk_ptr chunk, medium::reading how) {
    const int32_t                     token = media_token(table_.number(key));
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = media_.begin(); it != media_.end();) {
        it = it->second.expired() ? media_.erase(it) : std::next(it);
    }
    std::weak_ptr<medium> & known = media_[token];
    std::shared_ptr<medium> m     = known.lock();
    if (!m) {
        known = m = std::make_shared<medium>(key, token, std::move(chunk), how);
    }
    return m;
}

std::shared_ptr<medium> live_media::find(int32_t token) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto                        known = media_.find(token);
    return known != media_.end() ? known->second.lock() : nullptr;
}

}   // namespace dflash
