#include "budget/costs.h"

#include "base/files.h"
#include "base/json.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

namespace dflash {

// ---- measuring ----

// Of measuring, of new widths, and of the drafters' passes.
static constexpr double LIMIT_MS = 2000, WIDTHS_MS = 1500, DRAFTS_MS = 1000;

// Of the target pass between two drafter passes.
static int32_t rows_between(const pass_shapes & shapes) { return std::min(8, shapes.n_rows_max); }

// Widths that are measured on every machine: one would have to guess how wide passes compare with narrow ones. One row
// comes last, when the machine is warm.
static std::vector<int32_t> needed_widths(const pass_shapes & shapes) {
    return { std::min(16, shapes.n_rows_max), 4, 1 };
}

// Other widths of target passes, the most useful first. Those between them are known well enough from their neighbours
// until they run: every width would take seconds of a model's first start. 15: is a group of rows better filled?
static std::vector<int32_t> more_widths(int32_t n_slots, bool padded) {
    std::vector<int32_t> widths = { 2, 8, 3, 6, 12, 15, 32 };
    if (n_slots > 1 || padded) {   // on devices 64 rows may cost little more than 32
        widths.insert(widths.end(), { 64, 24, 48 });
    }
    return widths;
}

void pass_costs::measure(
    const timed_passes & passes, const pass_shapes & shapes, const std::function<double()> & elapsed_ms) {
    const auto until = [&](double ms) { return [&elapsed_ms, ms] { return elapsed_ms() < ms; }; };
    source           = "measured";
    rebuild_ms       = 0;
    drafts.assign(passes.drafts.size(), {});
    measure_verify(needed_widths(shapes), passes, shapes, [] { return true; });
    const timer in_time    = until(elapsed_ms() + DRAFTS_MS);
    double      between_ms = INFINITY;
    for (size_t drafter = 0; drafter < drafts.size(); ++drafter) {
        between_ms = std::min(between_ms, measure_draft(drafter, passes, shapes, in_time));
    }
    measure_verify(more_widths(shapes.n_slots, verify.padded()), passes, shapes, until(WIDTHS_MS));
    const int32_t between = rows_between(shapes);
    if (std::isfinite(between_ms) && !verify.has(between) && verify.width(between) == between) {
        verify.set(between, between_ms);
    }
    repeat_disturbed(passes, shapes, until(LIMIT_MS));
}

// Returns the shortest time of the target passes between the drafter's.
double pass_costs::measure_draft(
    size_t drafter, const timed_passes & passes, const pass_shapes & shapes, const timer & in_time) {
    const auto & pass       = passes.drafts[drafter];
    cost_curve & draft      = drafts[drafter];
    double       between_ms = INFINITY;
    const auto   between    = [&] { between_ms = std::min(between_ms, passes.verify(rows_between(shapes))); };
    for (int32_t n_slots = 1; n_slots <= shapes.n_slots; n_slots *= 2) {
        for (const int32_t wanted : { 16, 4, 8, 32, 64 }) {
            const int32_t length = std::min(wanted, shapes.max_lengths[drafter]), n_tokens = n_slots * length;
            const bool    is_needed = n_slots == 1 && (wanted == 16 || wanted == 4);
            if (draft.has(n_tokens) || (!is_needed && !in_time())) {
                continue;
            }
            pass(n_slots, length);
            between();
            const double first = pass(n_slots, length);
            between();
            draft.set(n_tokens, std::min(first, pass(n_slots, length)));
        }
    }
    return between_ms;
}

// A target pass as steps run it: after a drafter pass, unless it has one row, where the drafter rests.
static double verify_after_draft(const timed_passes & passes, const pass_shapes & shapes, int32_t rows) {
    if (rows > 1 && !passes.drafts.empty()) {
        passes.drafts[0](1, std::min(8, shapes.max_lengths[0]));
    }
    return passes.verify(rows);
}

void pass_costs::measure_verify(const std::vector<int32_t> & widths, const timed_passes & passes,
    const pass_shapes & shapes, const timer & in_time) {
    for (const int32_t rows : widths) {
        if (rows > shapes.n_rows_max || verify.has(rows) || verify.width(rows) != rows) {
            continue;
        }
        if (!in_time()) {
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

// A pass that took longer than a wider one was disturbed, or is slower for good. The widths that trees have most often
// count most. What cannot be is repeated even if there is no time left.
void pass_costs::repeat_disturbed(const timed_passes & passes, const pass_shapes & shapes, const timer & in_time) {
    const std::map<int32_t, double> points = verify.points();
    for (auto point = points.begin(); point != points.end(); ++point) {
        const auto [rows, ms] = *point;
        const auto wider      = std::next(point);
        const bool often      = rows == 1 || rows == 2 || rows == 4 || rows == 8 || rows == 16;
        const bool is_slow    = often || (wider != points.end() && ms > wider->second);
        if (in_time() ? is_slow : verify.doubtful(rows)) {
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
    const json j           = json::parse_no_throw({ std::istreambuf_iterator<char>(in), {} });
    const bool is_fixed    = std::getenv("DFLASH_FIXED_COSTS") != nullptr;
    cost_curve verify_read = is_fixed ? cost_curve() : cost_curve::of_target();   // tables stay as they are
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
    fixed  = is_fixed;
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
