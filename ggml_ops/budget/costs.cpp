#include "budget/costs.h"

#include "base/files.h"
#include "base/json.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

namespace dflash {

// ---- measuring ----

static constexpr double LIMIT_MS = 2000, WIDTHS_MS = 1500;   // of measuring, and of measuring new widths

void pass_costs::measure(const timed_passes & passes, const pass_shapes & shapes, const stopwatch & since_start) {
    source = "measured";
    drafts.assign(passes.drafts.size(), {});
    for (size_t drafter = 0; drafter < drafts.size(); ++drafter) {
        measure_draft(drafter, passes, shapes, since_start);
    }
    measure_verify(passes, shapes, since_start);
    repeat_disturbed(passes, shapes, since_start);
}

void pass_costs::measure_draft(
    size_t drafter, const timed_passes & passes, const pass_shapes & shapes, const stopwatch & since_start) {
    const auto &  pass       = passes.drafts[drafter];
    cost_curve &  draft      = drafts[drafter];
    const int32_t other_rows = std::min(8, shapes.n_rows_max);   // of the target pass between two drafter passes
    for (int32_t n_slots = 1; n_slots <= shapes.n_slots; n_slots *= 2) {
        for (const int32_t wanted : { 16, 8, 4, 32, 64 }) {
            const int32_t length = std::min(wanted, shapes.max_lengths[drafter]), n_tokens = n_slots * length;
            if (draft.has(n_tokens) || (n_slots > 1 && since_start.ms() > LIMIT_MS / 2)) {
                continue;
            }
            pass(n_slots, length);
            passes.verify(other_rows);
            const double first = pass(n_slots, length);
            passes.verify(other_rows);
            draft.set(n_tokens, std::min(first, pass(n_slots, length)));
        }
    }
}

// Widths of target passes, the most useful first: slow machines measure only these. Those between them are known well
// enough from their neighbours until they run: every width would take seconds of a model's first start. 15: is a group
// of rows better filled?
static std::vector<int32_t> measured_widths(int32_t n_slots, bool padded) {
    std::vector<int32_t> widths = { 1, 2, 4, 8, 16, 3, 6, 12, 15, 32 };
    if (n_slots > 1 || padded) {   // on devices 64 rows may cost little more than 32
        widths.insert(widths.end(), { 64, 24, 48 });
    }
    return widths;
}

// A target pass as steps run it: after a drafter pass, unless it has one row, where the drafter rests.
static double verify_after_draft(const timed_passes & passes, const pass_shapes & shapes, int32_t rows) {
    if (rows > 1 && !passes.drafts.empty()) {
        passes.drafts[0](1, std::min(8, shapes.max_lengths[0]));
    }
    return passes.verify(rows);
}

void pass_costs::measure_verify(
    const timed_passes & passes, const pass_shapes & shapes, const stopwatch & since_start) {
    rebuild_ms = 0;
    for (const int32_t rows : measured_widths(shapes.n_slots, verify.padded())) {
        if (rows > shapes.n_rows_max || verify.has(rows) || verify.width(rows) != rows) {
            continue;
        }
        if (rows > 2 && since_start.ms() > WIDTHS_MS) {
            break;
        }
        const auto   time_again = [&] { return verify_after_draft(passes, shapes, rows); };
        const double first = passes.verify(rows), second = time_again(), best = std::min(second, time_again());
        verify.set(rows, best);
        if (rows == 1) {
            rebuild_ms = std::max(0.0, first - best);
        }
    }
}

// A pass that took longer than a wider one was disturbed, or is slower for good. One row came first, on a cold machine.
// The widths that trees have most often count most.
void pass_costs::repeat_disturbed(
    const timed_passes & passes, const pass_shapes & shapes, const stopwatch & since_start) {
    const std::map<int32_t, double> points = verify.points();
    for (auto point = points.begin(); point != points.end() && since_start.ms() < LIMIT_MS; ++point) {
        const auto [rows, ms] = *point;
        const auto wider      = std::next(point);
        const bool often      = rows == 1 || rows == 2 || rows == 4 || rows == 8 || rows == 16;
        if (often || (wider != points.end() && ms > wider->second)) {
            passes.verify(rows);   // it may have to make its graph again
            verify.set(rows, std::min(ms, verify_after_draft(passes, shapes, rows)));
        }
    }
}

bool pass_costs::padding_pays() const { return verify.has(15) && verify.at(15) > 1.05 * verify.at(16); }

// ---- on disk ----

static constexpr int32_t COST_FORMAT = 4;

static json curve_json(const cost_curve & curve) {
    json j = json::object();
    for (const auto & [rows, ms] : curve.points()) {
        j[std::to_string(rows)] = ms;
    }
    return j;
}

static bool read_curve(const json & j, cost_curve & curve) {
    if (!j.is_object()) {
        return false;
    }
    for (const auto & [key, value] : j.items()) {
        const long   rows = std::strtol(key.c_str(), nullptr, 10);
        const double ms   = value.is_number() ? value.get<double>() : -1;
        if (rows < 1 || rows > (1 << 20) || !(ms > 0) || !(ms < 1e9)) {
            return false;
        }
        curve.set((int32_t) rows, ms);
    }
    return true;
}

static bool read_curves(const json & list, std::vector<cost_curve> & curves) {
    if (!list.is_array() || list.size() != curves.size()) {
        return false;
    }
    for (size_t i = 0; i < curves.size(); ++i) {
        if (!read_curve(list.at(i), curves[i]) || curves[i].empty()) {
            return false;
        }
    }
    return true;
}

bool pass_costs::read(const std::string & path, size_t n_drafters) {
    std::ifstream in(file_path(path));
    if (path.empty() || !in) {
        return false;
    }
    const json              j = json::parse_no_throw({ std::istreambuf_iterator<char>(in), {} });
    cost_curve              verify_read;
    std::vector<cost_curve> drafts_read(n_drafters);
    if (!j.is_object() || j.value("format", json()) != COST_FORMAT ||
        !read_curve(j.value("verify_ms", json()), verify_read) ||
        !read_curves(j.value("drafts_ms", json()), drafts_read) || !j.value("rebuild_ms", json()).is_number() ||
        !j.value("cell_ms", json()).is_number() || verify_read.empty()) {
        return false;
    }
    verify_read.set_padded(verify.padded());
    verify     = std::move(verify_read);
    drafts     = std::move(drafts_read);
    rebuild_ms = std::clamp(j["rebuild_ms"].get<double>(), 0.0, 1e6);
    verify.set_per_cell(std::clamp(j["cell_ms"].get<double>(), 0.0, 1e3));
    source = "cache";
    fixed  = std::getenv("DFLASH_FIXED_COSTS");
    return true;
}

void pass_costs::write(const std::string & path) const {
    if (path.empty() || verify.empty() || std::string(source) == "none") {
        return;
    }
    json by_drafter = json::array();
    for (const cost_curve & draft : drafts) {
        by_drafter.push_back(curve_json(draft));
    }
    const json        j = { { "format", COST_FORMAT }, { "verify_ms", curve_json(verify) }, { "drafts_ms", by_drafter },
               { "rebuild_ms", rebuild_ms }, { "cell_ms", verify.per_cell() } };
    const auto        now  = std::chrono::steady_clock::now().time_since_epoch();
    const std::string part = path + "." + std::to_string(now.count()) + ".part";
    {
        std::ofstream out(file_path(part));
        out << j.dump(1) << "\n";
        if (!out) {
            remove_file(part);
            return;
        }
    }
    if (rename_file(part, path)) {
        remove_file(part);
    }
}

}   // namespace dflash
