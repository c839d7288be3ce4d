#include "llama/tap_store.h"

#include "llama-graph.h"
#include "llama-model.h"
#include "llama/access.h"
#include "llama/devices.h"
#include "llama/mutable_cparams.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace dflash {

namespace {

// One layer's part of the rows: [n_embd, cells], with the rows' stride.
ggml_tensor * part_of(ggml_context * ctx, ggml_tensor * rows, int32_t n_embd, size_t layer) {
    return ggml_view_2d(ctx, rows, n_embd, rows->ne[1], rows->nb[1], layer * n_embd * sizeof(float));
}

// Whether a device can write and read such rows: their stride differs from their size.
bool can_store(ggml_backend_dev_t device) {
    const ggml_context_ptr ctx(ggml_init({ 16 * ggml_tensor_overhead(), nullptr, true }));
    ggml_tensor *          rows  = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, 512, 8);
    ggml_tensor *          taps  = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, 256, 4);
    ggml_tensor *          cells = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I64, 4);
    ggml_tensor *          ids   = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I32, 4);
    return ggml_backend_dev_supports_op(
               device, ggml_set_rows(ctx.get(), part_of(ctx.get(), rows, 256, 1), taps, cells)) &&
           ggml_backend_dev_supports_op(device, ggml_get_rows(ctx.get(), rows, ids));
}

// The cells that the rows of a pass are written to.
class input_tap_cells : public llm_graph_input_i {
  public:
    input_tap_cells(ggml_context * ctx, const tap_store & store, int64_t n_rows) : store_(store) {
        cells = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, n_rows);
        ggml_set_input(cells);
    }

    void set_input(const llama_ubatch * ubatch) override {
        std::vector<int64_t> data(ubatch->n_tokens, tap_store::WASTE);
        for (size_t i = 0; ubatch->data && i < data.size() && i < ubatch->data->batch_idxs.size(); ++i) {
            data[i] = store_.pass_cell(ubatch->data->batch_idxs[i]);
        }
        ggml_backend_tensor_set(cells, data.data(), 0, ggml_nbytes(cells));
    }

    bool can_reuse(const llm_graph_params & params) override {
        return params.cparams.tap_store == &store_ && cells->ne[0] == params.ubatch.n_tokens;
    }

    ggml_tensor * cells;   // I64 [rows]

  private:
    const tap_store & store_;
};

// The last of the free cells, until it is destroyed. Neither end allocates: the list has room for all cells.
struct taken_cell {
    explicit taken_cell(std::shared_ptr<std::vector<int32_t>> list) : free(std::move(list)), number(free->back()) {
        free->pop_back();
    }
    taken_cell(const taken_cell &) = delete;
    ~taken_cell() { free->push_back(number); }

    std::shared_ptr<std::vector<int32_t>> free;   // shared, since a cell may outlive the store
    int32_t                               number;
};

}   // namespace

// ---- memory ----

ggml_backend_dev_t tap_store::device_for(
    const llama_model * target, const std::vector<int32_t> & layers, const ggml_tensor * fc) {
    const auto         devices  = access_devices(target);
    ggml_backend_dev_t device   = nullptr;
    const auto         layer_on = [&](int32_t layer) {
        return target->dev_layer(std::min(layer, llama_model_n_layer(target) - 1));
    };
    for (const int32_t layer : layers) {   // the last layer that is not computed on the host decides
        device = is_apart(layer_on(layer)) ? layer_on(layer) : device;
    }
    ggml_backend_dev_t drafters = fc && fc->buffer ? device_of(fc) : nullptr;
    if (device && is_apart(drafters) && std::find(devices.begin(), devices.end(), drafters) != devices.end()) {
        device = drafters;
    }
    // With RPC servers, each copy and each row is a round trip; the host gets all outputs of a pass in one.
    const bool crosses = std::any_of(layers.begin(), layers.end(),
        [&](int32_t layer) { return is_rpc(layer_on(layer)) && layer_on(layer) != device; });
    if (crosses || (is_rpc(device) && drafters != device)) {
        return nullptr;
    }
    return device && can_store(device) ? device : nullptr;
}

tap_store::tap_store(ggml_backend_dev_t device, const std::vector<int32_t> & layers, int32_t n_embd, int32_t n_rows) :
    device_(device), layers_(layers), n_embd_(n_embd), free_(std::make_shared<std::vector<int32_t>>()) {
    const int32_t first = WASTE + 1, end = first + n_rows;
    ctx_.reset(ggml_init({ ggml_tensor_overhead(), nullptr, true }));
    rows_ = ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_F32, (int64_t) layers.size() * n_embd, end);
    ggml_set_name(rows_, "taps");
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(ctx_.get(), ggml_backend_dev_buffer_type(device)));
    if (!buffer_) {
        throw std::runtime_error("not enough memory for taps: lower -ub or -np");
    }
    ggml_backend_buffer_clear(buffer_.get(), 0);
    free_->reserve(n_rows);
    for (int32_t cell = end - 1; cell >= first; --cell) {
        free_->push_back(cell);
    }
}

size_t tap_store::memory_bytes() const { return ggml_backend_buffer_get_size(buffer_.get()); }

std::vector<tap_cell> tap_store::take(int32_t n) {
    if (n > n_free()) {
        throw std::runtime_error("too few cells for taps are free");
    }
    std::vector<tap_cell> cells(n);
    for (tap_cell & cell : cells) {
        const auto taken = std::make_shared<const taken_cell>(free_);
        cell             = tap_cell(taken, &taken->number);
    }
    return cells;
}

int32_t tap_store::pass_cell(int32_t row) const {
    return row >= 0 && row < (int32_t) pass_.size() && pass_[row] ? *pass_[row] : WASTE;
}

std::vector<float> tap_store::read(const std::vector<tap_cell> & cells) const {
    const size_t       row_size = rows_->ne[0];
    std::vector<float> data(cells.size() * row_size);
    for (size_t i = 0; i < cells.size(); ++i) {
        ggml_backend_tensor_get(rows_, data.data() + i * row_size, *cells[i] * rows_->nb[1], row_size * sizeof(float));
    }
    return data;
}

void tap_store::write(const std::vector<tap_cell> & cells, const float * data) {
    const size_t row_size = rows_->ne[0];
    for (size_t i = 0; i < cells.size(); ++i) {
        ggml_backend_tensor_set(rows_, data + i * row_size, *cells[i] * rows_->nb[1], row_size * sizeof(float));
    }
}

// ---- the target's graph ----

void access_set_tap_store(llama_context * ctx, tap_store * store) { mutable_cparams(ctx).tap_store = store; }

void store_taps(llm_graph_context & graph) {
    const tap_store * store = graph.cparams.tap_store;
    if (!store) {
        return;
    }
    auto input = std::make_unique<input_tap_cells>(graph.ctx0, *store, graph.n_tokens);
    for (size_t i = 0; i < store->layers().size(); ++i) {
        ggml_tensor * taps = graph.res->get_layer_inp(store->layers()[i]);
        if (!taps) {
            throw std::runtime_error("the graph gives out no taps of layer " + std::to_string(store->layers()[i]));
        }
        taps = ggml_is_contiguous(taps) ? ggml_reshape_2d(graph.ctx0, taps, store->n_embd(), graph.n_tokens)
                                        : ggml_cont_2d(graph.ctx0, taps, store->n_embd(), graph.n_tokens);
        ggml_tensor * part = part_of(graph.ctx0, store->rows(), store->n_embd(), i);
        ggml_build_forward_expand(graph.gf, ggml_set_rows(graph.ctx0, part, taps, input->cells));
    }
    graph.res->add_input(std::move(input));
}

}   // namespace dflash
