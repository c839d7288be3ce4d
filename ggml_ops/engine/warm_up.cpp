#include "engine/warm_up.h"

#include "base/stopwatch.h"
#include "engine/sample_text.h"

#include <algorithm>

namespace dflash {

// Milliseconds of a target pass over n_rows rows of the first sequence.
static double time_verify(target & target, sample_text & text, int32_t n_rows) {
    batch & rows = target.rows();
    rows.clear();
    for (int32_t i = 0; i < n_rows; ++i) {
        rows.add_row(0, text.next(), i, true);
    }
    if (target.memory().tape_rows() > 0 && n_rows > 1) {
        rows.set_root(0);
    }
    const stopwatch watch;
    target.process("warm-up");
    const double ms = watch.ms();
    target.memory().forget_all(false);
    return ms;
}

// Lets each of n_seqs sequences hold a token.
static void hold_tokens(target & target, sample_text & text, int32_t n_seqs) {
    target.rows().clear();
    for (int32_t i = 0; i < n_seqs; ++i) {
        target.rows().add_row(i, text.next(), 0, true);
    }
    target.process("warm-up");
}

// Milliseconds of a drafter pass that injects a few rows and denoises `length` tokens for each of n_seqs sequences.
static double time_draft(drafter & drafter, target & target, sample_text & text, int32_t n_seqs, int32_t length) {
    const int32_t               n_inject = drafter.reads_target() ? 1 : std::min(4, length);
    const std::vector<float>    taps((size_t) n_inject * drafter.tap_size());
    const std::vector<tap_cell> cells(n_inject, std::make_shared<const int32_t>(tap_store::ZEROS));
    std::vector<int32_t>        injected(n_inject);
    std::vector<draft_job>      jobs;
    std::generate(injected.begin(), injected.end(), [&] { return text.next(); });
    for (int32_t i = 0; i < n_seqs; ++i) {
        draft_job job;
        job.slot     = i;
        job.taps     = taps.data();
        job.cells    = cells.data();
        job.tokens   = injected.data();
        job.n_inject = n_inject;
        job.denoise  = true;
        job.whole    = true;
        job.anchor   = text.next();
        jobs.push_back(job);
    }
    if (drafter.reads_target()) {
        hold_tokens(target, text, n_seqs);
    }
    std::vector<draft> drafts;
    const stopwatch    watch;
    drafter.run(jobs, length, drafts);
    const double ms = watch.ms();
    for (int32_t i = 0; i < n_seqs; ++i) {
        drafter.context().rewind(i, 0);
    }
    target.memory().forget_all(false);
    return ms;
}

static pass_shapes shapes_of(
    const dflash_engine_params & params, const target & target, const draft_memories & drafts) {
    const pass_limits & limits = target.limits();
    const memory &      memory = target.memory();
    pass_shapes         shapes;
    shapes.n_slots = (int32_t) params.n_slots;
    for (int32_t i = 0; i < drafts.size(); ++i) {
        shapes.max_lengths.push_back(drafts[i].drafter().max_length());
    }
    shapes.n_rows_max = std::min({ limits.n_outputs, limits.n_ctx_slot,
        memory.tape_rows() > 0 ? memory.tape_rows()
        : memory.recurrent()   ? std::max(16, shapes.n_slots)
                               : DFLASH_MAX_NODES });
    return shapes;
}

void warm_up(const dflash_engine_params & params, const std::string & cost_cache, target & target,
    draft_memories & drafts, pass_costs & costs) {
    const pass_limits & limits = target.limits();
    const pass_shapes   shapes = shapes_of(params, target, drafts);
    sample_text         text(target.vocab());
    timed_passes        passes;
    passes.verify = [&](int32_t n_rows) { return time_verify(target, text, n_rows); };
    for (int32_t i = 0; i < drafts.size(); ++i) {
        passes.drafts.push_back([&drafter = drafts[i].drafter(), &target, &text](int32_t n_slots, int32_t length) {
            return time_draft(drafter, target, text, n_slots, length);
        });
    }
    if (target.logits()) {   // as greedy passes do; a pass on an RPC server is over when something of it has been read
        target.logits()->wanted = needed_logits::largest;
    }
    passes.verify(std::min(2, shapes.n_rows_max));   // first touch of the weights
    for (int32_t i = 0; i < drafts.size(); ++i) {
        passes.drafts[i](1, std::min(shapes.max_lengths[i], std::max(2, limits.n_draft_max + 1)));
    }
    if (params.warmup && !costs.read(cost_cache, passes.drafts.size())) {
        const stopwatch since_first;
        costs.measure(passes, shapes, [&] { return since_first.ms(); });
        costs.write(cost_cache);
    }
    // A recurrent target would keep a whole state for the padding rows.
    if (params.kv_unified && !target.memory().recurrent() && !costs.verify.padded() && costs.padding_pays()) {
        target.rows().set_padding_seq((int32_t) params.n_slots);
    }
    target.memory().forget_all(true);
}

}   // namespace dflash
