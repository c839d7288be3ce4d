#include "media/media_encoder.h"

#include "base/thread_priority.h"

#include <chrono>
#include <stdexcept>
#include <utility>

namespace dflash {

media_encoder::media_encoder(const dflash_engine_params & params, const llama_model * model, int32_t n_rows) :
    projector_(params, model, n_rows), thread_([this] { run(); }) {}

media_encoder::~media_encoder() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ends_ = true;
        queue_.clear();
    }
    projector_.cancel();
    changed_.notify_all();
    thread_.join();
}

void media_encoder::want(const std::shared_ptr<medium> & m) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (m->state != medium::progress::none) {
            return;
        }
        m->state = medium::progress::queued;
        queue_.push_back(m);
    }
    changed_.notify_all();
}

void media_encoder::add_reader(medium & m) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++m.n_readers;
}

void media_encoder::remove_reader(medium & m) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--m.n_readers > 0) {
        return;
    }
    if (&m == encoded_) {
        projector_.cancel();
    } else if (m.state != medium::progress::queued) {
        m.rows  = {};
        m.state = medium::progress::none;
    }
}

const float * media_encoder::rows(const medium & m) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (m.state == medium::progress::failed) {
        throw std::runtime_error(m.error);
    }
    return m.state == medium::progress::ready ? m.rows.data() : nullptr;
}

void media_encoder::wait(const medium & m, int32_t milliseconds) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(
        lock, std::chrono::milliseconds(milliseconds), [&] { return m.state != medium::progress::queued; });
}

void media_encoder::run() {
    lower_thread_priority();   // a step goes first
    for (;;) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
        if (ends_) {
            return;
        }
        const std::shared_ptr<medium> m = std::move(queue_.front());
        queue_.pop_front();
        if (m->n_readers == 0) {   // whoever asked has gone
            m->state = medium::progress::none;
            continue;
        }
        encoded_ = m.get();
        projector_.allow();
        lock.unlock();
        encode(m);
    }
}

void media_encoder::encode(const std::shared_ptr<medium> & m) {
    std::vector<float> rows;
    std::string        error;
    try {
        rows = projector_.encode(*m);
    } catch (const std::exception & e) {
        error = e.what();
    }
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        encoded_ = nullptr;
        if (m->n_readers == 0) {
            m->state = medium::progress::none;
        } else if (projector_.is_cancelled() && !ends_) {   // the last reader had gone, and then another one came
            queue_.push_front(m);
        } else {
            m->rows  = std::move(rows);
            m->error = error;
            m->state = error.empty() ? medium::progress::ready : medium::progress::failed;
        }
    }
    changed_.notify_all();
}

}   // namespace dflash
