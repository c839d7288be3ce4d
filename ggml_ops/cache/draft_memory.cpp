#include "cache/draft_memory.h"

#include <algorithm>
#include <cmath>
#include <new>

namespace dflash {

draft_memory::draft_memory(target & target, std::unique_ptr<dflash::drafter> drafter) :
    target_(target), drafter_(std::move(drafter)), taps_(target, *drafter_) {}

// ---- a drafter pass ----

void draft_memory::replace_drafter(std::unique_ptr<dflash::drafter> next) {
    next->n_graphs_built += drafter_->n_graphs_built;
    next->n_graphs_reused += drafter_->n_graphs_reused;
    drafter_ = std::move(next);
}

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
    job.window   = p.window;
    job.tokens   = p.text ? p.text->data() + taps.pos : nullptr;
    if (drafter_->has_sections()) {
        job.rope        = taps.rope.data();
        job.anchor_rope = p.position;
    }
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
            begin_anew(p.id, taps_.of(p.id).pos + taps_.of(p.id).rows);
        }
        return false;
    }
    for (const part & p : parts) {
        taps_.clear(p.id, drafter_->context().end(p.id));
    }
    return true;
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
    if (taps_.store() && taps_.store()->n_free() < target_.rows().n_rows() - target_.rows().n_padding()) {
        inject_all();
    }
}

// ---- with the target's memory ----

// keep() adds the taps of n rows, perhaps in parts.
template <class Keep> void draft_memory::try_to_keep(int32_t id, int32_t n, Keep && keep) {
    const int32_t end = taps_.of(id).pos + taps_.of(id).rows + n;
    try {
        keep();
    } catch (const std::bad_alloc &) {
        begin_anew(id, end);
    }
}

void draft_memory::keep_taps(int32_t id, int32_t row, int32_t n) {
    try_to_keep(id, n, [&] { taps_.keep(id, row, n); });
}

void draft_memory::keep_taps(int32_t id, int32_t first_row, const std::vector<int32_t> & path) {
    try_to_keep(id, (int32_t) path.size(), [&] { taps_.keep(id, first_row, path); });
}

void draft_memory::forget(int32_t id) {
    taps_.clear(id, 0);
    drafter_->context().rewind(id, 0);
}

// The taps go on where the drafter's context ends, and end with the text.
void draft_memory::cut(int32_t id, int32_t n_past) {
    taps_.cut(id, n_past);
    drafter_->context().rewind(id, taps_.of(id).pos);
}

void draft_memory::share(int32_t from, int32_t to, int32_t n_past) {
    try {
        taps_.copy(from, to);
        drafter_->context().share(from, to, n_past);
    } catch (const std::bad_alloc &) {
        begin_anew(to, n_past);
    }
}

void draft_memory::bring_back(int32_t id) {
    try {
        drafter_->context().come_back(id);
    } catch (const std::bad_alloc &) {
        begin_anew(id, taps_.of(id).pos + taps_.of(id).rows);
    }
}

// Where a sequence's text ends its drafter knows nothing of it: its context may hold rows that were never computed.
void draft_memory::begin_anew(int32_t id, int32_t end) {
    taps_.clear(id, end);
    drafter_->context().restart(id, end);
}

draft_copy draft_memory::copy_of(int32_t id, int32_t n_tokens) const {
    return { drafter_->context().take(id, n_tokens), taps_.on_host(id) };
}

size_t draft_memory::copy_bytes(int32_t id) const {
    const tap_rows & taps = taps_.of(id);
    return drafter_->context().copy_bytes(id) + (size_t) taps.rows * drafter_->tap_size() * sizeof(float) +
           taps.rope.size() * sizeof(rope_position);
}

// Where the tap store has no room for all taps, the drafter reads some at once.
void draft_memory::restore(int32_t id, const draft_copy & copy) {
    if (!drafter_->context().has_sizes(copy.context)) {
        begin_anew(id, copy.taps.pos + copy.taps.rows);
        return;
    }
    try {
        drafter_->context().put(id, copy.context);
        taps_.restore(id, copy.taps, [&] { inject_all(); });
    } catch (const std::bad_alloc &) {
        begin_anew(id, copy.taps.pos + copy.taps.rows);
    }
}

std::string draft_memory::refusal(const draft_copy & copy, int32_t n_tokens) const {
    const tap_rows & taps = copy.taps;
    // Where the drafter's context ends the taps begin, and they end with the text.
    if (taps.pos != copy.context.end || taps.pos + taps.rows != n_tokens) {
        return "a drafter's context of another text";
    }
    if (taps.data.size() != (size_t) taps.rows * drafter_->tap_size()) {
        return "taps of another size";
    }
    if (taps.rope.size() != (drafter_->has_sections() ? (size_t) taps.rows : 0)) {
        return "taps without their positions";
    }
    if (!std::all_of(taps.data.begin(), taps.data.end(), [](float x) { return std::isfinite(x); })) {
        return "taps that are no numbers";
    }
    const draft_context & context = drafter_->context();
    const bool            comes   = context.has_sizes(copy.context);
    return !comes || context.fits(copy.context) ? "" : "a drafter's context of another kind";
}

}   // namespace dflash
