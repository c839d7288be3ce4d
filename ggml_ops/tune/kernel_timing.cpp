#include "tune/kernel_timing.h"

#include "base/abort_guard.h"
#include "base/backends.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "llama/devices.h"

#include "common/common.h"
#include "ggml-cpp.h"

#include <algorithm>
#include <cctype>
#include <random>

namespace dflash {

namespace {

constexpr int32_t SAMPLE_ROWS =
    64;   // distinct quantized rows of a weight; the rest repeat them, which does not affect a kernel's time
constexpr int32_t MAX_WEIGHTS   = 64;
constexpr int     MAX_TILE_ROWS = 65;   // one more than the CPU's kernels compute at once
constexpr size_t  MIN_REPEATS = 3, MAX_REPEATS = 25;

// The CPU's counts before any change.
const std::vector<int> & own_tile_rows(int (*rows)(ggml_type)) {
    static const std::vector<int> own = [&] {
        std::vector<int> all(GGML_TYPE_COUNT);
        for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
            all[t] = rows((ggml_type) t);
        }
        return all;
    }();
    return own;
}

ggml_type quantized_type(const std::string & name) {
    const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
    for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
        const ggml_type_traits * traits = ggml_get_type_traits((ggml_type) t);
        const std::string        known  = traits->type_name ? traits->type_name : "";
        if (traits->is_quantized && traits->to_float &&
            std::equal(known.begin(), known.end(), name.begin(), name.end(), same)) {
            return (ggml_type) t;
        }
    }
    throw status_error(
        DFLASH_ERROR_ARG, "type is '", name, "', which is no quantized type of ggml (try q4_K, q6_K, q8_0)");
}

ggml_context_ptr new_context(size_t n_tensors) {
    ggml_context_ptr ctx(ggml_init(
        { n_tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_tensors, false), nullptr, true }));
    return ctx ? std::move(ctx) : throw std::bad_alloc();
}

std::vector<float> random_floats(size_t n) {
    std::mt19937                    bits(1);
    std::normal_distribution<float> normal;
    std::vector<float>              x(n);
    std::generate(x.begin(), x.end(), [&] { return normal(bits); });
    return x;
}

std::vector<char> random_weight(ggml_type type, int32_t m, int32_t k) {
    const size_t             row = ggml_row_size(type, k);
    const int32_t            n   = std::min(m, SAMPLE_ROWS);
    const std::vector<float> x   = random_floats((size_t) n * k), importance(k, 1.0f);
    std::vector<char>        data(row * m);
    ggml_quantize_chunk(type, x.data(), data.data(), 0, n, k, importance.data());
    for (size_t at = row * n; at < data.size(); ++at) {
        data[at] = data[at - row * n];
    }
    return data;
}

// Weights of one shape, larger than the caches in total, and passes of products with them.
class bench {
  public:
    bench(const device_kernels & kernel, const dflash_tune_params & p) :
        kernel_(kernel), k_(p.k), backend_(ggml_backend_dev_init(kernel.device(), nullptr)) {
        if (!backend_) {
            throw status_error(DFLASH_ERROR_MEMORY, "the device ", p.device, " could not be started: ", logged_error());
        }
        set_threads(kernel.device(), backend_.get(), p.n_threads > 0 ? p.n_threads : common_cpu_get_num_math());
        const std::vector<char> data = random_weight(kernel.type(), p.m, p.k);
        const size_t            n    = std::clamp<size_t>(((size_t) p.megabytes << 20) / data.size(), 2, MAX_WEIGHTS);
        weights_.resize(n);
        weights_ctx_ = new_context(n);
        for (ggml_tensor *& w : weights_) {
            w = ggml_new_tensor_2d(weights_ctx_.get(), kernel.type(), p.k, p.m);
        }
        buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(weights_ctx_.get(),
            best_buffer_type(ggml_backend_dev_buffer_type(kernel.device()), kernel.type(), p.k, p.m)));
        if (!buffer_) {
            throw status_error(DFLASH_ERROR_MEMORY, n, " weights of ", data.size() >> 20, " MiB do not fit ", p.device,
                ": ", logged_error());
        }
        ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        for (ggml_tensor * w : weights_) {
            ggml_backend_tensor_set(w, data.data(), 0, data.size());
        }
        x_ = random_floats((size_t) p.n_max * p.k);
        // On a GPU, launch overhead would hide a single product. On a CPU one product takes long enough, and the next
        // one uses other weights.
        per_pass_ = ggml_backend_dev_type(kernel.device()) == GGML_BACKEND_DEVICE_TYPE_CPU ? 1 : n;
        for (pass & p : passes_) {
            p.alloc.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend_.get())));
        }
    }

    // Median milliseconds of one product of n rows with each choice of kernels, in turns.
    std::vector<double> time(int32_t n, const std::vector<kernel_rows> & from, int32_t limit_ms) {
        std::vector<std::vector<double>> all(from.size());
        for (size_t i = 0; i < from.size(); ++i) {
            build(passes_[i], n);
            for (int warm = 0; warm < (per_pass_ > 1 ? 3 : 1); ++warm) {   // a CUDA graph is recorded on its second run
                run(passes_[i], from[i]);
            }
        }
        double spent = 0;
        for (size_t r = 0; r < MIN_REPEATS || (r < MAX_REPEATS && spent < limit_ms); ++r) {
            for (size_t i = 0; i < from.size(); ++i) {
                if (per_pass_ < weights_.size()) {
                    build(passes_[i], n);
                }
                all[i].push_back(run(passes_[i], from[i]));
                spent += all[i].back() * per_pass_;
            }
        }
        std::vector<double> ms;
        for (auto & times : all) {
            std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
            ms.push_back(times[times.size() / 2]);
        }
        return ms;
    }

    // How far the last products with one choice are from those with another: squared error over squared result.
    double difference(size_t one, size_t other) const {
        const std::vector<float> a = result(passes_[one]), b = result(passes_[other]);
        double                   error = 0, all = 0;
        for (size_t i = 0; i < a.size(); ++i) {
            error += ((double) a[i] - b[i]) * ((double) a[i] - b[i]);
            all += (double) b[i] * b[i];
        }
        const double share = error / std::max(all, 1e-30);
        return share <= 1 ? share : 1;   // a NaN is as wrong as can be
    }

    size_t       n_weights() const { return weights_.size(); }
    const char * buffer() const { return ggml_backend_buffer_name(buffer_.get()); }

  private:
    struct pass {   // products of n rows with the next weights. Each kernel has its own passes, since a CUDA graph
                    // replays the kernels it was recorded with
        ggml_context_ptr ctx;
        ggml_gallocr_ptr alloc;
        ggml_cgraph *    graph = nullptr;
    };

    void build(pass & p, int32_t n) {
        p.ctx           = new_context(per_pass_ + 1);
        p.graph         = ggml_new_graph_custom(p.ctx.get(), per_pass_ + 1, false);
        ggml_tensor * x = ggml_new_tensor_2d(p.ctx.get(), GGML_TYPE_F32, k_, n);
        ggml_set_input(x);
        for (size_t i = 0; i < per_pass_; ++i, next_ = (next_ + 1) % weights_.size()) {
            ggml_tensor * product = ggml_mul_mat(p.ctx.get(), weights_[next_], x);
            if (i == 0) {
                ggml_set_output(product);   // its memory is not used again
            }
            ggml_build_forward_expand(p.graph, product);
        }
        if (!ggml_gallocr_alloc_graph(p.alloc.get(), p.graph)) {
            throw status_error(DFLASH_ERROR_MEMORY, "no memory for the products of ", n, " rows: ", logged_error());
        }
        ggml_backend_tensor_set(x, x_.data(), 0, ggml_nbytes(x));
    }

    // Of the first product.
    static std::vector<float> result(const pass & p) {
        ggml_tensor *      out = ggml_graph_node(p.graph, 0);
        std::vector<float> x(ggml_nelements(out));
        ggml_backend_tensor_get(out, x.data(), 0, ggml_nbytes(out));
        return x;
    }

    double run(pass & p, kernel_rows from) {
        kernel_.set(from);
        const abort_guard guard(abort_guard::phase::pass);
        const int64_t     t = ggml_time_us();
        if (ggml_backend_graph_compute(backend_.get(), p.graph) != GGML_STATUS_SUCCESS) {
            throw status_error(DFLASH_ERROR_COMPUTE, "a product failed: ", logged_error());
        }
        return (ggml_time_us() - t) / 1000.0 / per_pass_;
    }

    const device_kernels &     kernel_;
    int64_t                    k_;
    ggml_backend_ptr           backend_;
    ggml_context_ptr           weights_ctx_;
    std::vector<ggml_tensor *> weights_;
    ggml_backend_buffer_ptr    buffer_;
    std::vector<float>         x_;
    size_t                     per_pass_ = 1, next_ = 0;
    pass                       passes_[3];
};

}   // namespace

device_kernels::device_kernels(const char * device, const char * type) :
    device_(ggml_backend_dev_by_name(device ? device : "")), type_(quantized_type(type ? type : "")) {
    refuse_if(!device_, "device is '", (device ? device : ""), "', which is not here");
    gpu_rows_              = backend_function<int(int, ggml_type, int)>(device_, "ggml_backend_cuda_set_matrix_rows");
    gpu_few_rows_          = backend_function<int(int, ggml_type, int)>(device_, "dflash_cuda_set_few_rows");
    tile_rows_             = backend_function<int(ggml_type)>(device_, "dflash_tile_rows");
    set_tile_rows_         = backend_function<void(ggml_type, int)>(device_, "dflash_set_tile_rows");
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(device_);
    const int          n   = (int) ggml_backend_reg_dev_count(reg);   // without the devices of RPC servers
    while (gpu_rows_ && index_ < n && ggml_backend_reg_dev_get(reg, index_) != device_) {
        ++index_;
    }
    if (tile_rows_) {
        own_tile_rows(tile_rows_);
    }
}

kernel_rows device_kernels::get() const {
    return { gpu_rows_    ? gpu_rows_(index_, type_, -1)
             : tile_rows_ ? tile_rows_(type_)
                          : 0,
        gpu_few_rows_ ? gpu_few_rows_(index_, type_, -1) : 0 };
}

void device_kernels::set_matrix(int rows) const {
    if (gpu_rows_) {
        gpu_rows_(index_, type_, rows);
    } else if (set_tile_rows_ && get().matrix > 0) {
        set_tile_rows_(type_, rows > 0 ? std::min(rows, MAX_TILE_ROWS) : own_tile_rows(tile_rows_)[type_]);
    }
}

void device_kernels::set_few(int rows) const {
    if (gpu_few_rows_) {
        gpu_few_rows_(index_, type_, rows);
    }
}

void device_kernels::set(kernel_rows rows) const {
    set_matrix(rows.matrix);
    set_few(rows.few);
}

namespace {

// Milliseconds by rows; null: not timed, or the kernel does not serve so many.
struct times {
    json vector = json::array(), matrix = json::array(), few = json::array();

    void add(const json & of_vector, const json & of_matrix, const json & of_few) {
        vector.push_back(of_vector);
        matrix.push_back(of_matrix);
        few.push_back(of_few);
    }
};

// Coarse, these rows alone are timed.
bool is_timed(int32_t n, bool coarse) { return !coarse || n <= 8 || n == 12 || n % 16 == 0; }

void check_tune(const dflash_tune_params & p, const kernel_rows & now, const char * type) {
    refuse_if(
        now.matrix == 0 && now.few == 0, p.device, " has one kernel only for ", type, ", or none that can be chosen");
    check_range("m", p.m, 16, 1 << 20);
    check_range("k", p.k, 256, 1 << 20);
    check_range("m * k", (int64_t) p.m * p.k, 0, (int64_t) 1 << 30);
    check_range("n_max", p.n_max, 1, DFLASH_MAX_NODES);
    check_range("n_threads", p.n_threads, 0, GGML_MAX_N_THREADS);
    check_range("megabytes", p.megabytes, 0, 1 << 16);
    check_range("ms", p.ms, 0, 60'000);
    refuse_if(p.k % 256 != 0, "k is ", p.k, ", must be a multiple of 256");
}

}   // namespace

std::string tune(const dflash_tune_params & p, dflash_progress_callback progress, void * user) {
    const device_kernels kernel(p.device, p.type);
    const kernel_rows    before = kernel.get();
    check_tune(p, before, ggml_type_name(kernel.type()));
    logged_error();   // clear earlier errors
    const abort_guard guard(abort_guard::phase::load);
    struct rows_guard {
        const device_kernels & kernel;
        kernel_rows            rows;
        ~rows_guard() { kernel.set(rows); }
    } restore{ kernel, before };
    bench     b(kernel, p);
    const int never = DFLASH_MAX_NODES + 1;
    kernel.set_matrix(1 << 20);
    const int widest = kernel.get().matrix;   // one more than the vector kernel supports

    times  found;
    double difference = 0;
    for (int32_t n = 1; n <= p.n_max; ++n) {
        if (is_timed(n, p.coarse)) {
            std::vector<kernel_rows> choices = { { 1, never } };
            if (before.few) {
                choices.push_back({ 1, 1 });
            }
            if (n < widest) {
                choices.push_back({ widest, never });
            }
            const std::vector<double> ms = b.time(n, choices, p.ms);
            found.add(n < widest ? json(ms.back()) : json(), ms[0], before.few ? json(ms[1]) : json());
            if (before.few) {
                difference = std::max(difference, b.difference(1, 0));
            }
        } else {
            found.add(nullptr, nullptr, nullptr);
        }
        if (progress && !progress((float) n / p.n_max, user)) {
            throw status_error(DFLASH_ERROR_CANCELLED, "the measurement was cancelled");
        }
    }
    const json result = { { "device", p.device }, { "type", ggml_type_name(kernel.type()) }, { "m", p.m }, { "k", p.k },
        { "weights", b.n_weights() }, { "buffer", b.buffer() }, { "rows", before.matrix }, { "rows_max", widest },
        { "few_rows", before.few }, { "vector_ms", found.vector }, { "matrix_ms", found.matrix },
        { "few_rows_ms", found.few }, { "few_rows_difference", difference } };
    return result.dump();
}

}   // namespace dflash
