"""The mutants. Each is a fault that somebody might make in the core; those of one part stand together."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CACHE = (
    "tests/engine/test_shared_cache.py",
    "tests/engine/test_cut_back.py",
    "tests/engine/test_draft_histories.py",
    "tests/engine/test_slot_files.py",
)
TREES = ("tests/trees/test_cells.py", "tests/trees/test_target_rows.py")
SAMPLING = (
    "tests/engine/test_sampling.py",
    "tests/lossless/test_tokens.py",
    "tests/rpc/test_rpc.py -k equal_logits",
    "tests/lossless/test_probs.py",
    "tests/lossless/test_block_distribution.py",
)
DRAFTS = (
    "tests/engine/test_draft_histories.py",
    "tests/engine/test_anchor_layout.py",
    "tests/parity/test_drafter.py",
    "tests/parity/test_backbones.py",
)
BLOCKS = ("tests/engine/test_draft_histories.py", "tests/parity/test_drafter.py", "tests/parity/test_dspark.py")
SCHEDULER = ("tests/engine/test_scheduler.py", "tests/engine/test_pocket.py -k test_context")


def mutants_of(file: str, *changes: tuple[str, str], tests: tuple[str, ...]) -> list[Mutant]:
    """Of one file, with the same tests."""
    return [Mutant(file, before, after, tests) for before, after in changes]


ENGINE = [
    *mutants_of(
        "ggml_ops/cache/cache.cpp",
        ("while (!s.checkpoints.empty() && s.checkpoints.back().at > n) {", "while (false) {"),
        ("if (!all.empty() && s.n_past() - all.back().at < checkpoint_step_) {", "if (!all.empty()) {"),
        ("return (int32_t) path.size() == t.size() || target_memory().cut(id, s.position());", "return true;"),
        tests=("tests/lossless/test_tokens.py", *CACHE),
    ),
    *mutants_of(
        "ggml_ops/cache/prefix.cpp",
        (
            "return kept_tokens(reach(s), s.checkpoints, s.media.whole(common_tokens(s.tokens, prompt)));",
            "return kept_tokens(reach(s), s.checkpoints, s.media.whole(common_tokens(s.tokens, prompt) - 1));",
        ),
        ("= leader.reading() && leader.request_number == s.leader.request_number;", "= false;"),
        ("need = best.n_tokens + MIN_GAIN;", "need = best.n_tokens + 100 * MIN_GAIN;"),
        ("if (loses_much(entry, n_kept)) {", "if (false) {"),
        tests=CACHE,
    ),
    *mutants_of(
        "ggml_ops/cache/draft_memory.cpp",
        ("drafter_->context().share(from, to, n_past);", ";"),
        ("taps_.clear(id, end);", ";"),
        tests=("tests/lossless/test_tokens.py", "tests/rpc/test_rpc.py -k drafter_that_fails", *CACHE),
    ),
    *mutants_of(
        "ggml_ops/cache/pending_taps.cpp",
        ("while (to < n && path[to] == path[to - 1] + 1) {", "while (to < n) {"),
        tests=("native cache",),
    ),
    *mutants_of(
        "ggml_ops/target/memory.cpp",
        ("std::min(n_past, first + n_swa_ - 1)", "std::min(n_past, first + n_swa_ - 2)"),
        ("? n_past - 1 : reach(seq, n_past);", "? n_past - 2 : reach(seq, n_past);"),
        tests=CACHE,
    ),
    *mutants_of(
        "ggml_ops/engine/slot.h",
        ("{ return a->t_submit_us < b->t_submit_us; }", "{ return a->t_submit_us > b->t_submit_us; }"),
        tests=("tests/lossless/test_tokens.py", "tests/engine/test_pocket.py", *CACHE),
    ),
    *mutants_of(
        "ggml_ops/engine/step.cpp",
        (
            "} else if (s.n_past() + 1 >= limits_.n_ctx_slot) {   // with the anchor, as llama-server counts",
            "} else if (s.n_past() >= limits_.n_ctx_slot) {",
        ),
        (
            "if (!cache_.keep_path(s.id, s.drafts.tree, path, s.pass.open)) {",
            "if (!cache_.keep_path(s.id, s.drafts.tree, { 0 }, s.pass.open)) {",
        ),
        (
            "= std::max(wanted, whole ? needed_logits::whole_row : s.request.sampler->needs());",
            "= whole ? needed_logits::whole_row : s.request.sampler->needs();",
        ),
        tests=(
            "tests/lossless/test_tokens.py",
            "tests/engine/test_pocket.py",
            "tests/rpc/test_rpc.py -k suffices",
            *CACHE,
        ),
    ),
    *mutants_of(
        "ggml_ops/cache/sequence.cpp",
        ("kept = c.at <= n_common ? std::max(kept, c.at) : kept;", "kept = c.at <= n_common ? c.at : kept + 1;"),
        tests=("native host_cache",),
    ),
    *mutants_of(
        "ggml_ops/engine/slot.cpp",
        ("    block  = {};", "    ;"),
        ("if (n.prob > 0 && reached[n.parent]) {   // other nodes were never put to the test", "if (n.prob > 0) {"),
        ("stats.depth_accepted[d] += d <= n_accepted;", "stats.depth_accepted[d] += d < n_accepted;"),
        ("if (t.nodes[i].candidate < 0) {", "if (t.nodes[i].candidate <= 0) {"),
        tests=(
            "native slot",
            "native controller",
            "tests/lossless/test_drafts.py",
            "tests/engine/test_pocket.py",
            *CACHE,
        ),
    ),
    *mutants_of(
        "ggml_ops/budget/costs.cpp",
        ("verify.set(rows, best);", "verify.set(rows, first);"),
        ("verify.has(15) && verify.at(15) > 1.05 * verify.at(16)", "verify.has(15) && false"),
        tests=("native costs", "native tune"),
    ),
    *mutants_of(
        "ggml_ops/cache/host_cache.cpp",
        ("while (!entries_.empty() && bytes_ > limit_ - bytes) {", "while (!entries_.empty() && bytes_ > limit_) {"),
        ("it = gives(c, it->tokens) ? erase(it) : std::next(it);", "it = std::next(it);"),
        (
            "return std::min(common_prefix(text, prompt), (int32_t) prompt.size() - 1);",
            "return common_prefix(text, prompt);",
        ),
        ("if (n_kept > 0 && (!best.entry || value >= best.worth)) {", "if (n_kept > 0) {"),
        tests=("native host_cache",),
    ),
    *mutants_of(
        "ggml_ops/engine/controller.cpp",
        ("s.learned = last_learned_[s.request.greedy];", "s.learned = last_learned_[!s.request.greedy];"),
        (
            "return s.request.budget == 1 ? 0 : std::clamp(n_room, 0, DFLASH_MAX_NODES - 1);",
            "return std::clamp(n_room, 0, DFLASH_MAX_NODES - 1);",
        ),
        ("const int32_t n_cells = limits_.n_ctx_slot - s.n_past();", "const int32_t n_cells = limits_.n_ctx_slot;"),
        (
            "while (level > 1 && nodes_up_to(level) > max_nodes) {",
            "while (level > 0 && nodes_up_to(level) > max_nodes) {",
        ),
        ("t.nodes.resize(goes ? 1 : sizes[i]);", "t.nodes.resize(sizes[i]);"),
        tests=("native controller",),
    ),
]

DRAFT = [
    *mutants_of(
        "ggml_ops/base/tree.h",
        ("if (nodes[i].parent == parent && nodes[i].token == token) {", "if (nodes[i].token == token) {"),
        ("if (nodes[i].parent != i - 1) {", "if (nodes[i].parent > i - 1) {"),
        tests=("native tree",),
    ),
    *mutants_of(
        "ggml_ops/draft/tree_growth.cpp",
        ("return a > b || (std::isnan(b) && !std::isnan(a));", "return a > b;"),
        (": a.parent > b.parent;", ": a.parent < b.parent;"),
        ("next.value = std::min(next.probability * n.value, max_value);", "next.value = next.probability * n.value;"),
        ("if (n.depth >= limits_.depth || c.n_pushed >= limits_.max_children) {", "if (n.depth >= limits_.depth) {"),
        ("q = std::find_if_not(q, quoted_.end(), listed);", ";"),
        ("c = std::find_if_not(c, candidates_.end(), listed);", ";"),
        tests=("native tree",),
    ),
    *mutants_of(
        "ggml_ops/budget/cost_curve.cpp",
        ("ms = std::min(ms, 2.0 * (old + per_cell_ * cells));", ";"),
        ("trend_ += RATE * (std::min(1.0, seen.ms / seen.measured) - trend_);", ";"),
        (
            "const double f  = double(rows - lo->first) / (hi->first - lo->first);",
            "const double f  = double(hi->first - rows) / (hi->first - lo->first);",
        ),
        tests=("native choice", "native controller"),
    ),
    *mutants_of(
        "ggml_ops/budget/choice.cpp",
        (
            "const double ms   = fixed_ms + verify.at(rows, rows * n_attended) + (same ? 0.0 : previous.rebuild_ms);",
            "const double ms   = verify.at(rows, rows * n_attended) + (same ? 0.0 : previous.rebuild_ms);",
        ),
        ("m.values[n] += NEWEST * (values[i] - m.values[n]);", "m.values[n] = values[i];"),
        ("if (c->rate == 0 || c->rate >= nearly * top) {", "if (c->rate >= nearly * top) {"),
        ("? NEARLY_IF_LITTLE : NEARLY;", "? NEARLY : NEARLY;"),
        ("(is_trial_ ? promised : 0.5 * (accepted + promised));", "0.5 * (accepted + promised);"),
        ("std::min(loss_, LIMIT - CREDIT);", "std::min(loss_, LIMIT);"),
        ("} else if (loss_ < 0.5 * LIMIT) {", "} else {"),
        ("compare(t, std::log(c.known / current->known));", "compare(t, std::log(c.known));"),
        ("std::clamp(2 * length, MIN_REST, MAX_REST);", "std::clamp(length, MIN_REST, MAX_REST);"),
        tests=("native choice", "native controller"),
    ),
    *mutants_of(
        "ggml_ops/draft/calibration.cpp",
        ("d.accepted = 0.98 * d.accepted + accepted;", "d.accepted = d.accepted + accepted;"),
        (
            "return std::min((float) (of_bin(prob, first) * f), std::max(prob, MOST));",
            "return (float) (of_bin(prob, first) * f);",
        ),
        ("c.trials   = 0.99 * c.trials + 1;", "c.trials   = 0.99 * c.trials + accepted;"),
        tests=("native calibration",),
    ),
    *mutants_of(
        "ggml_ops/draft/lookup.cpp",
        ("const int32_t at = place + 1 + i % period,", "const int32_t at = place + i % period,"),
        tests=("native lookup",),
    ),
    *mutants_of(
        "ggml_ops/media/media_text.cpp",
        ("pos -= s.size.n_rows - s.size.n_pos;", "pos -= 0;"),
        ("return within && n < within->end() ? within->begin : n;", "return n;"),
        tests=("native media_text", "tests/media/test_drafts.py"),
    ),
    *mutants_of(
        "ggml_ops/draft/hash_chains.h",
        ("place - m >= oldest &&", "place - m > oldest &&"),
        tests=("native lookup",),
    ),
    *mutants_of(
        "ggml_ops/draft/quotation.cpp",
        ("e.prob  = std::min(e.prob, left);", "e.prob  = e.prob;"),
        ("} else if (e.prob > same->prob) {", "} else if (e.prob < same->prob) {"),
        ("other.source == n.source && other.token != n.token", "other.token != n.token"),
        ("at = quoted.after(at, tokens[i]);", "at = before.first;"),
        tests=("native quotation",),
    ),
    *mutants_of(
        "ggml_ops/draft/corpus.cpp",
        ("k < size() && tokens_[k] != NO_TOKEN; ++k)", "k < size(); ++k)"),
        ("longest = most > MIN_MATCH ? agreeing(last, most) : all;", "longest = all;"),
        tests=("native corpus",),
    ),
    *mutants_of(
        "ggml_ops/draft/earlier_answers.cpp",
        ("oldest = std::max(0, m.n_added - n_kept_);", "oldest = 0;"),
        ("memory & m = of_owner_[owner];", "memory & m = of_owner_[0];"),
        ("i < m.n_added && held(i) >= 0; ++i) {", "i < m.n_added && held(i) != NO_TOKEN; ++i) {"),
        tests=("native earlier_answers",),
    ),
    *mutants_of(
        "ggml_ops/draft/prediction.cpp",
        ("if (run_ >= CERTAIN) {", "if (run_ > CERTAIN) {"),
        ("if (length > longest && (near || length >= CERTAIN)) {", "if (length > longest) {"),
        ("n_met_ += !met_[i];", "n_met_ += 1;"),
        tests=("native prediction",),
    ),
    *mutants_of(
        "ggml_ops/draft/kv_ring.cpp",
        (
            "ggml_backend_tensor_get(tensor, to + offset * size, cell * size, n * size);",
            "ggml_backend_tensor_get(tensor, to, cell * size, n * size);",
        ),
        (
            "ggml_backend_tensor_set(tensor, from + (begin - copy.begin + offset) * size, cell * size, n * size);",
            "ggml_backend_tensor_set(tensor, from + (begin - copy.begin) * size, cell * size, n * size);",
        ),
        ("if ((!causal || i <= row) && std::abs(row - i) < window) {", "if (!causal || i <= row) {"),
        tests=("native kv_ring", "tests/parity/test_drafter.py"),
    ),
    *mutants_of(
        "ggml_ops/draft/selector.cpp",
        ("tokens->nb[1], tokens->nb[1] * n_pos, 0);", "tokens->nb[1], tokens->nb[1], 0);"),
        tests=BLOCKS,
    ),
    *mutants_of(
        "ggml_ops/draft/block_drafter.cpp",
        ("cells.push_back(kv_->block_cell(job.slot, i));", "cells.push_back(kv_->block_cell(jobs[0].slot, i));"),
        ("        next_ids += n_ids;", "        ;"),
        ("masked.push_back(tokens.back() == mask_token_ ? 1.0f : 0.0f);", "masked.push_back(1.0f);"),
        tests=DRAFTS,
    ),
    *mutants_of(
        "ggml_ops/draft/block_drafter.cpp",
        ("newest.push_back(i + 1 == job.n_inject ?", "newest.push_back(i == 0 ?"),
        tests=("tests/parity/test_lilicorr.py",),
    ),
    *mutants_of(
        "ggml_ops/draft/lilicorr.cpp",
        ("distances[query - key]", "distances[key - query]"),
        ("newest_->nb[1], slot * newest_->nb[1])", "newest_->nb[1], 0 * newest_->nb[1])"),
        tests=("tests/parity/test_lilicorr.py",),
    ),
    *mutants_of(
        "ggml_ops/draft/layers.cpp",
        ("(size_t) i * shape_.n_block_rows * q->nb[2]);", "(size_t) 0 * shape_.n_block_rows * q->nb[2]);"),
        tests=DRAFTS,
    ),
]

ACCEPT = [
    *mutants_of(
        "ggml_ops/accept/sample_and_match.h",
        ("            r.stopped = true;", "            ;"),
        ("at = t.child(at, token);", "at = t.child(0, token);"),
        tests=("native sample_and_match",),
    ),
    *mutants_of(
        "ggml_ops/accept/block_accept.cpp",
        ("reach = std::min(1.0, reach * drawn / chain.q(i));", "reach = std::min(1.0, drawn / chain.q(i));"),
        (
            "weights.push_back(std::max(reach * t.prob - q.at(t.token), 0.0));",
            "weights.push_back(std::max(t.prob - q.at(t.token), 0.0));",
        ),
        ("if (i == 0 || random.happens(reach)) {", "if (true) {"),
        ("w = in ? std::pow(w / best, 1 / shape.temperature) : 0;", "w = in ? w / best : 0;"),
        tests=("native block_accept",),
    ),
    *mutants_of(
        "ggml_ops/engine/verified_tree.cpp",
        ("probs_.push_back(n.prob);", "probs_.push_back(n.value);"),
        (": n.candidate >= 0 ? drafted_by", ": n.candidate > 0 ? drafted_by"),
        tests=("native verified_tree",),
    ),
    *mutants_of(
        "ggml_ops/accept/token_probs.cpp",
        ("n_top_.push_back((int32_t) kept);", "n_top_.push_back(n_top);"),
        ("values_.push_back((float) (logits[token] - log_sum));", "values_.push_back((float) logits[token]);"),
        tests=("native token_probs",),
    ),
    *mutants_of(
        "ggml_ops/accept/sampling.cpp",
        ("{ return a.logit == b.logit; };", "{ return a.logit == b.logit && a.id == b.id; };"),
        ("return constraints_.allows(token) ? token : sample_all(logits, true);", "return token;"),
        (
            "case COMMON_SAMPLER_TYPE_TOP_P: return p.top_p >= 1;",
            "case COMMON_SAMPLER_TYPE_TOP_P: return p.top_p >= 0.9;",
        ),
        ("case COMMON_SAMPLER_TYPE_MIN_P: s.min_p = p.min_p; break;", "case COMMON_SAMPLER_TYPE_MIN_P: break;"),
        tests=SAMPLING,
    ),
]

LLAMA = [
    *mutants_of(
        "ggml_ops/llama/kv_trees.cpp",
        (
            "tree.seen.push_back((parent < 0 ? 0 : tree.seen[parent]) | (uint64_t(1) << row));",
            "tree.seen.push_back((parent < 0 ? 0 : ~uint64_t(0)) | (uint64_t(1) << row));",
        ),
        ("} else if (!cells.is_empty(rows[i]) && cells.seq_has(rows[i], seq_id)) {", "} else if (false) {"),
        ("const bool can_move = on_host();", "const bool can_move = false;"),
        (
            "if (path[k] < 0 || path[k] >= (int32_t) parents.size() || parents[path[k]] != before) {",
            "if (path[k] < 0 || path[k] >= (int32_t) parents.size()) {",
        ),
        ("cells.pos_set(dst + i, cells.pos_get(src + i));", "cells.pos_set(dst + i, cells.pos_get(src));"),
        tests=("tests/trees/test_batch.py", *TREES),
    ),
    *mutants_of(
        "ggml_ops/llama/batch_trees.cpp",
        ("const bool adjacent = prev_[i] == i - 1;", "const bool adjacent = true;"),
        ("rows[i]         = p < 0 ? p : row_of[p];", "rows[i]         = p;"),
        tests=("tests/trees/test_batch.py", "tests/trees/test_refusals.py", *TREES),
    ),
    *mutants_of(
        "ggml_ops/llama/tap_store.cpp",
        (
            "row < (int32_t) pass_.size() && pass_[row] ? *pass_[row] : WASTE;",
            "row < (int32_t) pass_.size() - 1 && pass_[row] ? *pass_[row] : WASTE;",
        ),
        tests=("native tap_store", "tests/placement/test_bus.py"),
    ),
]

PYTHON = [
    *mutants_of(
        "dflash_local/scheduler.py",
        ("if len(self._generations) >= self.max_requests:", "if len(self._generations) > self.max_requests:"),
        ("return max(len(self._generations) - len(self._running), 0)", "return max(len(self._generations), 0)"),
        ("if job.id_slot is not None and job.id_slot not in self._idle:", "if False:"),
        ("if running.is_cut:", "if running.is_cut and not ended:"),
        ("truncated=update.state == SlotState.CONTEXT)", "truncated=False)"),
        ("self._waiting.remove(next(job for job in self._waiting if job.generation is generation))", "pass"),
        tests=SCHEDULER,
    ),
    *mutants_of(
        "dflash_local/running_request.py",
        ("return text, count", "return text, count - 1"),
        tests=SCHEDULER,
    ),
    *mutants_of(
        "dflash_local/text_stream.py",
        ("at, _, self.stopped_by = min(found)", "at, _, self.stopped_by = max(found)"),
        (
            "keep = max(stop.begun_by(text) for stop in self._stops)",
            "keep = min(stop.begun_by(text) for stop in self._stops)",
        ),
        ("n = self._borders[n - 1]", "n = 0"),
        tests=("tests/engine/test_text.py",),
    ),
    *mutants_of(
        "dflash_local/sampling.py",
        ("return seed % 2**32", "return seed % 2**31"),
        ("elif low <= value <= high and not 0 < value < least_positive:", "elif low <= value <= high:"),
        ("if isinstance(value, bool) or not isinstance(value, kinds):", "if not isinstance(value, kinds):"),
        tests=("tests/engine/test_sampling.py", "tests/engine/test_sampling_fields.py", "tests/server/test_fields.py"),
    ),
    *mutants_of(
        "convert/rope.py",
        (
            "low = max(dimension(self.yarn.beta_fast or 32.0), 0.0)",
            "low = max(dimension(self.yarn.beta_fast or 16.0), 0.0)",
        ),
        ("return min(max((turns - low) / (high - low), 0.0), 1.0)", "return max((turns - low) / (high - low), 0.0)"),
        (
            "return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0",
            "return 0.1 * mscale * math.log(factor) + 1",
        ),
        tests=("tests/convert/test_config.py", "tests/convert/test_conversion.py"),
    ),
    *mutants_of(
        "convert/requantize.py",
        ("return cls(tuple(sorted(set(tokens))), target)", "return cls(tuple(set(tokens)), target)"),
        ('_DRAFT_TABLES = {OUTPUT, "markov_w2.weight"}', "_DRAFT_TABLES = {OUTPUT}"),
        tests=("tests/convert/test_requantize.py", "tests/cli/test_quantize.py"),
    ),
]

MUTANTS = (*ENGINE, *DRAFT, *ACCEPT, *LLAMA, *PYTHON)
