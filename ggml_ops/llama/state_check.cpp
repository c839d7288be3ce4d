#include "llama/state_check.h"

#include "llama-context.h"
#include "llama-kv-cache.h"
#include "llama-memory-recurrent.h"
#include "llama-model.h"
#include "llama/memory_parts.h"

#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

namespace dflash {

namespace {

// The state is sound, but that of a context with other options.
struct other_options : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Walks over a state's parts in the order in which llama.cpp writes them. Every function throws std::runtime_error.
class state_walk {
  public:
    state_walk(const llama_context * ctx, const uint8_t * data, size_t size, const token_positions & tokens) :
        hparams_(ctx->get_model().hparams), data_(data), left_(size), tokens_(tokens) {}

    void header() {
        skip(sizeof(uint32_t));       // llama.cpp checks its magic
        skip(sizeof(llama_seq_id));   // of the saved sequence
    }

    // window: it is enough if the positions that the next token sees are there.
    void cache(const llama_kv_cache & kv, bool window) {
        const uint32_t n_streams = take<uint32_t>();
        if (n_streams != kv.get_n_stream()) {
            throw other_options("was saved with another number of caches: start with the same --kv-unified and, "
                                "without it, the same -np");
        }
        bool found = false;
        for (uint32_t s = 0; s < n_streams; ++s) {
            const uint32_t n_cells = take<uint32_t>();
            if (n_cells == 0) {
                continue;
            }
            require(!found, "several streams");
            found = true;
            positions(n_cells, kv.get_size(), window);
            cell_data(n_cells);
        }
        require(found, "no cells");
    }

    void states(const llama_memory_recurrent & mem) {
        uint32_t   n_cells      = take<uint32_t>();
        const bool tapes_follow = state_tapes::take_flag(n_cells);
        require(n_cells == 1, "several recurrent states");
        require(take<llama_pos>() == tokens_.at.back(), "a recurrent state of another position");
        require(take<uint32_t>() == 0, "sequences of a recurrent state");
        require(take<uint32_t>() == 0, "transposed recurrent states");
        require(take<uint32_t>() == hparams_.n_layer(), "another number of layers");
        for (int part = 0; part < 2; ++part) {   // convolution inputs, then states
            for (const ggml_tensor * layer : part == 0 ? mem.r_l : mem.s_l) {
                if (layer) {
                    rows(layer->type, layer->ne[0], 1);
                }
            }
        }
        if (tapes_follow) {
            tapes(mem);
        }
    }

    void end() const { require(left_ == 0, "more bytes than it needs"); }

  private:
    static void require(bool holds, const char * why) {
        if (!holds) {
            throw std::runtime_error(why);
        }
    }

    const uint8_t * skip(size_t n) {
        require(n <= left_, "fewer bytes than it needs");
        const uint8_t * at = data_;
        data_ += n;
        left_ -= n;
        return at;
    }

    template <class T> T take() {
        T value;
        std::memcpy(&value, skip(sizeof(T)), sizeof(T));
        return value;
    }

    void positions(uint32_t n_cells, uint32_t size, bool window) {
        require(n_cells <= size && n_cells <= tokens_.at.size(), "more cells than tokens");
        const bool                    has_ext = hparams_.n_pos_per_embd() > 1 || hparams_.ple_n_heads > 0;
        std::map<llama_pos, uint32_t> unseen;
        std::set<llama_pos>           of_media;
        for (size_t i = 0; i < tokens_.at.size(); ++i) {
            ++unseen[tokens_.at[i]];
            if (!tokens_.is_text[i]) {
                of_media.insert(tokens_.at[i]);
            }
        }
        for (uint32_t i = 0; i < n_cells; ++i) {
            const llama_pos pos = take<llama_pos>();
            require(take<uint32_t>() == 1, "a cell of several sequences");
            if (has_ext) {
                const auto ext = take<llama_kv_cell_ext>();
                require(of_media.count(pos) || (ext.x == pos && ext.y == pos), "a cell that is no text");
            }
            take<llama_seq_id>();
            const auto found = unseen.find(pos);
            require(found != unseen.end() && found->second > 0, "a position too often, or outside the text");
            --found->second;
        }
        for (const auto & [pos, n] : unseen) {
            const bool left =
                window && llama_hparams::is_masked_swa(hparams_.n_swa, hparams_.swa_type, pos, tokens_.at.back());
            require(n == 0 || left, "a position is missing");
        }
    }

    void cell_data(uint32_t n_cells) {
        const bool     v_trans = take<uint32_t>() != 0;
        const uint32_t n_layer = take<uint32_t>();
        require(n_layer <= hparams_.n_layer(), "another number of layers");
        for (uint32_t i = 0; i < n_layer; ++i) {
            any_rows(n_cells);
        }
        for (uint32_t i = 0; i < n_layer && !hparams_.is_mla(); ++i) {
            if (v_trans) {
                const auto     type = (ggml_type) take<int32_t>();
                const uint32_t size = take<uint32_t>(), row_size = take<uint32_t>();
                require(type >= 0 && type < GGML_TYPE_COUNT && size == ggml_type_size(type), "an unknown type");
                numbers(type, (size_t) size * row_size, n_cells);
            } else {
                any_rows(n_cells);
            }
        }
    }

    // Rows with a header of type and size, which llama.cpp checks.
    void any_rows(uint32_t n) {
        const auto     type = (ggml_type) take<int32_t>();
        const uint64_t size = take<uint64_t>();
        require(type >= 0 && type < GGML_TYPE_COUNT && ggml_blck_size(type) > 0, "an unknown type");
        require(size > 0 && size % ggml_type_size(type) == 0, "rows of another size");
        numbers(type, size, n);
    }

    void rows(ggml_type type, int64_t row_size, uint32_t n) {
        require((ggml_type) take<int32_t>() == type, "another type");
        require(take<uint64_t>() == ggml_row_size(type, row_size), "rows of another size");
        numbers(type, ggml_row_size(type, row_size), n);
    }

    void numbers(ggml_type type, size_t row_size, uint32_t n_rows) {
        if (row_size == 0) {   // of layers without such a state; llama.cpp compares the size
            return;
        }
        require(row_size <= left_ && n_rows <= left_ / row_size, "fewer bytes than it needs");
        aligned_.resize((row_size + sizeof(double) - 1) / sizeof(double));   // aligned like rows in memory
        for (uint32_t i = 0; i < n_rows; ++i) {
            std::memcpy(aligned_.data(), skip(row_size), row_size);
            require(ggml_validate_row_data(type, aligned_.data(), row_size), "values that are no numbers");
        }
    }

    void tapes(const llama_memory_recurrent & mem) {
        require(take<int64_t>() == mem.tapes.n_row(), "tapes of another size");
        const int32_t n_path = take<int32_t>();
        require(n_path >= 0 && n_path <= mem.tapes.capacity && n_path <= (int32_t) tokens_.at.size(),
            "a path that fits no tape");
        for (const ggml_tensor * layer : mem.tapes.layers) {
            if (layer && n_path > 0) {
                numbers(GGML_TYPE_F32, mem.tapes.row_bytes(), n_path);
            }
        }
    }

    const llama_hparams &   hparams_;
    const uint8_t *         data_;
    size_t                  left_;
    const token_positions & tokens_;
    std::vector<double>     aligned_;
};

}   // namespace

std::string access_uncheckable(const llama_context * ctx) {
    if (memory_parts(llama_get_memory(ctx)).kv) {
        return {};
    }
    return "the memory of the architecture " + ctx->get_model().arch_name() + " derives data that cannot be checked";
}

std::string access_check_state(
    const llama_context * ctx, const uint8_t * data, size_t size, const token_positions & tokens, bool partial) {
    if (std::string why = access_uncheckable(ctx); !why.empty()) {
        return "cannot be checked: " + why;
    }
    const memory_parts parts(llama_get_memory(ctx));
    try {
        state_walk walk(ctx, data, size, tokens);
        walk.header();
        if (!partial || (!parts.window && !parts.states)) {
            walk.cache(*parts.kv, false);
        }
        if (parts.window) {
            walk.cache(*parts.window, true);
        }
        if (parts.states) {
            walk.states(*parts.states);
        }
        walk.end();
    } catch (const other_options & e) {
        return e.what();
    } catch (const std::exception & e) {
        return std::string("is damaged: ") + e.what();
    }
    return {};
}

}   // namespace dflash
