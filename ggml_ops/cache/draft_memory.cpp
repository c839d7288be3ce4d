#include "cache/draft_memory.h"

#include <algorithm>
#include <cmath>

namespace dflash {

draft_memory::draft_memory(target & target, std::unique_ptr<dflash::drafter> drafter) :
    target_(target), drafter_(std::move(drafter)),
    taps_(target, (int32_t) target.params().n_slots, drafter_ ? drafter_->tap_size() : 0) {}

// ---- a drafter pass ----

draft_job draft_memory::job_of(const part & p) const {
    const tap_rows & taps = taps_.of(p.id);
    draft_job        job;
    job.slot     = p.id;
    job.taps     = taps.data.data();
    job.cells    = taps.cells.data();
    job.n_inject = taps.rows;
    job.pos      = taps.pos;
    job.denoise  = p.denoises;
    job.anchor   = p.anchor;
    job.tokens   = p.text ? p.text->data() + taps.pos : nullptr;
    return job;
}

bool draft_memory::run(const std::vector<part> & parts, int32_t length, std::vector<draft> & drafts) {
    std::vector<draft_job> jobs;
    for (const part & p : parts) {
        jobs.push_back(job_of(p));
    }
    try {
        drafter_->run(jobs, length, drafts);
    } catch (const std::exception & e) {
        // Drafting is an optimization: without it the answer is the same. Start the drafter's context afresh.
        failure_ = e.what();
        for (const part & p : parts) {
            const int32_t end = taps_.of(p.id).pos + taps_.of(p.id).rows;
            taps_.clear(p.id, end);
            drafter_->context().restart(p.id, end);   // it may hold rows that were never computed
        }
        return false;
    }
    for (const part & p : parts) {
        taps_.clear(p.id, drafter_->context().end(p.id));
    }
    return true;
}

void draft_memory::count_text(const std::vector<int32_t> & tokens, size_t first) {
    if (drafter_) {
        drafter_->count_text(tokens, first);
    }
}

void draft_memory::inject_all() {
    std::vector<part>  parts;
    std::vector<draft> drafts;
    for (int32_t id = 0; id < taps_.n_sequences(); ++id) {
        if (taps_.of(id).rows > 0) {
            parts.push_back({ id, false, -1 });
        }
    }
    if (!parts.empty()) {
        run(parts, 0, drafts);
    }
}

// There are enough cells when no sequence holds any (target::create_tap_store).
void draft_memory::free_tap_cells() {
    target_.end_pass();
    if (target_.taps() && target_.taps()->n_free() < target_.rows().n_rows() - target_.rows().n_padding()) {
        inject_all();
    }
}

// ---- with the target's memory ----

void draft_memory::forget(int32_t id) {
    taps_.clear(id, 0);
    if (drafter_) {
        drafter_->context().rewind(id, 0);
    }
}

void draft_memory::cut(int32_t id, int32_t n_past) {
    if (drafter_) {   // the taps go on where the drafter's context ends, and end with the text
        taps_.cut(id, n_past);
        drafter_->context().rewind(id, taps_.of(id).pos);
    }
}

void draft_memory::share(int32_t from, int32_t to, int32_t n_past) {
    taps_.copy(from, to);
    if (drafter_) {
        drafter_->context().put(to, drafter_->context().take(from, n_past));
    }
}

void draft_memory::copy_to(conversation & c, int32_t id) const {
    c.taps = taps_.on_host(id);
    if (drafter_) {
        c.ring = drafter_->context().take(id, (int32_t) c.tokens.size());
    }
}

// Where the tap store has no room for all taps, the drafter reads some at once.
void draft_memory::restore(int32_t id, const conversation & c) {
    if (drafter_) {
        drafter_->context().put(id, c.ring);
        taps_.restore(id, c.taps, [&] { inject_all(); });
    }
}

std::string draft_memory::refusal(const conversation & c) const {
    if (!drafter_) {
        return c.ring.bytes() == 0 && c.taps.data.empty() ? "" : "a drafter's context without a drafter";
    }
    // Where the drafter's context ends the taps begin, and they end with the text.
    if (c.taps.pos != c.ring.end || c.taps.pos + c.taps.rows != (int32_t) c.tokens.size()) {
        return "a drafter's context of another text";
    }
    if (c.taps.data.size() != (size_t) c.taps.rows * drafter_->tap_size()) {
        return "taps of another size";
    }
    if (!std::all_of(c.taps.data.begin(), c.taps.data.end(), [](float x) { return std::isfinite(x); })) {
        return "taps that are no numbers";
    }
    return drafter_->context().fits(c.ring) ? "" : "a drafter's context of another kind";
}

}   // namespace dflash
