// The projector, and a thread on which it encodes media, in the order in which they were asked for, while steps go on.

#pragma once

#include "media/projector.h"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace dflash {

class media_encoder {
  public:
    // Parameters and errors: as of projector's constructor.
    media_encoder(const dflash_engine_params & params, const llama_model * model, int32_t n_rows);
    ~media_encoder();

    const dflash::projector & projector() const { return projector_; }
    // Who computes when: the encoder or a step.
    encoder_turns & turns() { return projector_.turns(); }

    // Encodes it, unless that was done or is about to be. A request that will read it counts as its reader.
    void want(const std::shared_ptr<medium> & m);
    void add_reader(medium & m);
    // One of its readers has read it, or ended: without readers the rows are dropped, or not computed to their end.
    void remove_reader(medium & m);

    // Its rows if they are ready, else null. Throws std::runtime_error: it cannot be encoded.
    const float * rows(const medium & m) const;
    // Waits for them, for `milliseconds` at most.
    void wait(const medium & m, int32_t milliseconds);

  private:
    void run();
    void encode(const std::shared_ptr<medium> & m);

    dflash::projector                   projector_;
    mutable std::mutex                  mutex_;   // guards what follows, and the media's own state
    std::condition_variable             changed_;
    std::deque<std::shared_ptr<medium>> queue_;
    const medium *                      encoded_ = nullptr;   // now; null: none is
    bool                                ends_    = false;
    std::thread                         thread_;
};

}   // namespace dflash
