#include "media/projector.h"

#include "base/abort_guard.h"
#include "base/error.h"
#include "base/log.h"
#include "base/operand_check.h"
#include "files/gguf_check.h"
#include "llama/devices.h"
#include "media/media_limits.h"
#include "media/projector_memory.h"
#include "media/projector_params.h"

#include "mtmd-helper.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>

namespace dflash {

// ---- load ----

// Nobody can guess it, so that no text of a client stands for a medium.
static std::string random_marker() {
    std::random_device random;
    std::string        marker = "<__media_";
    for (int32_t i = 0; i < 16; ++i) {
        marker += "0123456789abcdef"[random() % 16];
    }
    return marker + "__>";
}

static void log_like_llama() {
    ggml_log_callback callback = nullptr;
    void *            user     = nullptr;
    llama_log_get(&callback, &user);
    mtmd_helper_log_set(callback, user);
}

// Null: another build of the CPU backend.
static encoder_turns::pause_function * pause_of_cpu() {
    return backend_function<encoder_turns::pause_function>(ggml_backend_reg_by_name("CPU"), "dflash_pause_background");
}

projector::projector(const dflash_engine_params & params, const llama_model * model, int32_t n_rows) :
    traits_(traits_of(check_gguf(params.mmproj, gguf_use::project))), n_embd_(llama_model_n_embd_inp(model)),
    n_rows_(n_rows), memory_(projector_memory(params, traits_, model)), marker_(random_marker()),
    turns_(is_offloaded(params, model) ? nullptr : pause_of_cpu()) {
    log_like_llama();
    mtmd_context_params cp = projector_params(params, traits_, model);
    cp.media_marker        = marker_.c_str();
    cp.warmup              = params.warmup;
    cp.cb_eval             = after_op;
    cp.cb_eval_user_data   = this;
    const abort_guard guard(abort_guard::phase::load);
    logged_error();   // clear earlier errors
    ctx_.reset(mtmd_init_from_file(params.mmproj, model, cp));
    if (!ctx_) {
        throw status_error(DFLASH_ERROR_MODEL, "mmproj ", params.mmproj, " could not be loaded: ", logged_error());
    }
}

// ---- prompts ----

mtmd::bitmap projector::bitmap_of(const dflash_media & medium, int32_t index) const {
    refuse_if(medium.kind != DFLASH_IMAGE && medium.kind != DFLASH_AUDIO, "media[", index, "].kind is ", medium.kind,
        ", must be an image or audio");
    const bool is_image = medium.kind == DFLASH_IMAGE;
    refuse_if(!medium.data || !medium.hash, "media[", index, "] has no data or no hash");
    refuse_if(is_image && !sees(), "media[", index, "] is an image, which this model cannot read: it has no projector",
        " of images");
    refuse_if(!is_image && !hears(), "media[", index, "] is audio, which this model cannot read: it has no projector",
        " of audio");
    mtmd::bitmap bitmap;
    if (is_image) {
        const uint64_t n_pixels = (uint64_t) std::max(0, medium.width) * (uint64_t) std::max(0, medium.height);
        refuse_if(n_pixels == 0 || medium.n_data != 3 * n_pixels, "media[", index, "] has ", medium.n_data,
            " bytes, which are no ", medium.width, " x ", medium.height, " RGB pixels");
        refuse_if(!picture_fits(medium.width, medium.height), "media[", index, "] is an image of ", medium.width, " x ",
            medium.height, " pixels; it may have ", MAX_PIXELS, ", ", MAX_SIDE, " on a side, and be ", MAX_ASPECT,
            " times as long as wide");
        bitmap.ptr.reset(mtmd_bitmap_init((uint32_t) medium.width, (uint32_t) medium.height, medium.data));
    } else {
        const mtmd_helper_init_opt options = mtmd_helper_init_opt_default();
        bitmap.ptr.reset(
            mtmd_helper_bitmap_init_from_buf(ctx_.get(), medium.data, medium.n_data, false, options).bitmap);
        refuse_if(!bitmap.ptr || !mtmd_bitmap_is_audio(bitmap.ptr.get()), "media[", index,
            "] is no audio that can be read: give a wav, mp3 or flac file of at most an hour");
        check_sound(bitmap, index);
    }
    bitmap.set_id(std::to_string(index).c_str());   // which chunks are its
    return bitmap;
}

void projector::check_sound(const mtmd::bitmap & bitmap, int32_t index) const {
    const double seconds = (double) mtmd_bitmap_get_nx(bitmap.ptr.get()) / mtmd_get_audio_sample_rate(ctx_.get());
    const double most    = max_audio_seconds(traits_);
    refuse_if(seconds < MIN_AUDIO_SECONDS || seconds > most, "media[", index, "] is audio of ", seconds,
        " seconds; it must be from ", MIN_AUDIO_SECONDS, " to ", most);
}

medium_key projector::key_of(const mtmd_input_chunk * chunk, const dflash_media & medium, int32_t part) const {
    medium_key key;
    std::memcpy(key.hash.data(), medium.hash, key.hash.size());
    key.part           = part;
    key.size.n_rows    = (int32_t) mtmd_input_chunk_get_n_tokens(chunk);
    key.size.n_pos     = mtmd_input_chunk_get_n_pos(chunk);
    const auto * image = mtmd_input_chunk_get_tokens_image(chunk);
    if (image && mtmd_decode_use_mrope(ctx_.get()) && key.size.n_rows > 1) {
        const mtmd_decoder_pos second = mtmd_image_tokens_get_decoder_pos(image, 0, 1);
        key.size.advances             = second.t > 0;
        key.order                     = second.t == second.z ? 0 : (int32_t) second.z;   // HunyuanVL counts images
    }
    return key;
}

media_prompt projector::tokenize(
    const std::string & text, bool add_special, const dflash_media * media, int32_t n_media, live_media & live) const {
    const abort_guard                guard(abort_guard::phase::load);
    std::vector<mtmd::bitmap>        bitmaps;
    std::vector<const mtmd_bitmap *> pointers;
    for (int32_t i = 0; i < n_media; ++i) {
        bitmaps.push_back(bitmap_of(media[i], i));
        pointers.push_back(bitmaps.back().ptr.get());
    }
    const mtmd_input_text input = { text.data(), text.size(), add_special, true };
    mtmd::input_chunks    chunks(mtmd_input_chunks_init());
    logged_error();
    const int32_t rc = mtmd_tokenize(ctx_.get(), chunks.ptr.get(), &input, pointers.data(), pointers.size());
    refuse_if(rc == 1, "the text's markers are another number than the media (", n_media, ")");
    refuse_if(rc != 0, "the media could not be prepared: ", logged_error());

    media_prompt         prompt;
    std::vector<int32_t> n_parts(n_media);
    for (size_t i = 0; i < chunks.size(); ++i) {
        if (mtmd_input_chunk_get_type(chunks[i]) == MTMD_INPUT_CHUNK_TYPE_TEXT) {
            size_t       n      = 0;
            const auto * tokens = mtmd_input_chunk_get_tokens_text(chunks[i], &n);
            refuse_if(std::find(tokens, tokens + n, LLAMA_TOKEN_NULL) != tokens + n,
                "the model's vocabulary lacks a token that its projector puts around media");
            prompt.tokens.insert(prompt.tokens.end(), tokens, tokens + n);
            continue;
        }
        const int32_t         of  = std::atoi(mtmd_input_chunk_get_id(chunks[i]));
        const medium_key      key = key_of(chunks[i], media[of], n_parts[of]++);
        const medium::reading how = { mtmd_decode_use_non_causal(ctx_.get(), chunks[i]),
            mtmd_decode_use_mrope(ctx_.get()) };
        refuse_if(key.size.n_rows > max_image_tokens(traits_), "media[", of, "] takes ", key.size.n_rows,
            " rows; this projector may give ", max_image_tokens(traits_), ": send it smaller");
        refuse_if(how.non_causal && key.size.n_rows > n_rows_, "media[", of, "] takes ", key.size.n_rows,
            " rows that see each other, more than one pass has (", n_rows_, "): start with -b and -ub ",
            key.size.n_rows);
        prompt.media.push_back(live.add(key, mtmd::input_chunk_ptr(mtmd_input_chunk_copy(chunks[i])), how));
        prompt.tokens.insert(prompt.tokens.end(), key.size.n_rows, prompt.media.back()->token);
    }
    return prompt;
}

// ---- rows ----

// Called by ggml's scheduler: asked whether it should stop after an op, then, if so, after that. Products take nearly
// all of the time. Throws if a kernel could not take the op's operands.
bool projector::after_op(ggml_tensor * op, bool ask, void * self) {
    if (ask) {
        check_operands(op);
        return op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_FLASH_ATTN_EXT;
    }
    ((projector *) self)->turns_.yield();
    return !((projector *) self)->cancelled_;
}

std::vector<float> projector::encode(const medium & m) {
    const encoder_turns::encoding turn(turns_);
    const abort_guard             guard(abort_guard::phase::pass);
    logged_error();
    fail_if(mtmd_encode_chunk(ctx_.get(), m.chunk()) != 0, "a medium could not be encoded: ", logged_error());
    fail_if(cancelled_, "the encoding of a medium was cancelled");   // mtmd does not tell
    const float * rows = mtmd_get_output_embd(ctx_.get());
    return { rows, rows + (size_t) m.key.size.n_rows * n_embd_ };
}

}   // namespace dflash
