// mtmd divides by keys, indexes with them and multiplies them (load_hparams(), clip_encode() in tools/mtmd/clip.cpp,
// the preprocessors), and its graphs (tools/mtmd/models/) read tensors that its loader does not ask for. Shapes that do
// not fit are asserted while a graph is built, and types before it is computed: abort_guard, operand_check.

#include "files/projector_check.h"

#include "files/header_keys.h"

#include <map>
#include <string>
#include <vector>

namespace dflash {

namespace {

constexpr int64_t MAX_LAYERS  = 512;
constexpr int64_t MAX_WIDTH   = 1 << 16;
constexpr int64_t MAX_HEADS   = 1 << 10;
constexpr int64_t MAX_PATCH   = 64;          // pixels of its side
constexpr int64_t MAX_MERGED  = 128;         // pixels of the side of what becomes one row
constexpr int64_t MAX_MERGE   = 16;          // patches of that side
constexpr int64_t MAX_SIZE    = 8192;        // pixels of the side of an encoder's picture
constexpr int64_t MAX_PATCHES = 128 * 128;   // of a picture or tile of one size, all of which attend to each other
constexpr int64_t MAX_RANGE   = 1 << 26;     // pixels of a picture after it was resized
constexpr int64_t MAX_TILES   = 64;

// Of what an encoder consists.
enum class trunk { transformer, convolutions, nothing };

// Which pictures it takes: all are made of one size (or tiles of it), or keep their proportions.
enum class input { sized, free, audio };

struct projector_kind {
    const char * name;
    input        takes;
    names        needed = {};   // tensors that its graph reads and the loader takes as optional
    int64_t      merge  = 0;    // the only factor that its graph and the positions of patches agree on; 0: any
    trunk        body   = trunk::transformer;
    bool         whole  = false;   // memory grows with the square of the medium (projector_traits)
};

constexpr const char * PATCH    = "v.patch_embd.weight";
constexpr const char * PATCH_2  = "v.patch_embd.weight.1";
constexpr const char * POSITION = "v.position_embd.weight";
constexpr const char * CLASS    = "v.class_embd";
constexpr const char * SOUND    = "a.position_embd.weight";

const projector_kind KINDS[] = {
    { "mlp", input::sized, { PATCH, POSITION } },
    { "ldp", input::sized, { PATCH, POSITION } },
    { "ldpv2", input::sized, { PATCH, POSITION } },
    { "resampler", input::sized, { PATCH, POSITION } },
    { "adapter", input::sized, { PATCH, POSITION } },
    { "qwen2vl_merger", input::free, { PATCH, PATCH_2 }, 2 },
    { "qwen2.5vl_merger", input::free, { PATCH, PATCH_2 }, 2, trunk::transformer, true },
    { "qwen3vl_merger", input::free, { PATCH, PATCH_2, POSITION, "v.patch_embd.bias" }, 2 },
    { "ling3vl", input::free, { PATCH, PATCH_2, POSITION }, 2 },
    { "step3vl", input::sized, { PATCH, POSITION }, 4 },
    { "gemma3", input::sized, { PATCH } },
    { "gemma3nv", input::sized, { "v.conv_stem.conv.weight" }, 0, trunk::convolutions },
    { "gemma4v", input::free, { PATCH, POSITION } },
    { "gemma4uv", input::free, { PATCH, POSITION, "v.patch_embd.bias" }, 0, trunk::nothing },
    { "phi4", input::free, { PATCH, POSITION } },
    { "idefics3", input::sized, { PATCH } },
    { "pixtral", input::free, { PATCH } },
    { "lightonocr", input::free, { PATCH } },
    { "internvl", input::sized, { PATCH, POSITION, CLASS } },
    { "nemotron_v2_vl", input::sized, { PATCH, POSITION, CLASS } },
    { "llama4", input::sized, { PATCH, POSITION, CLASS } },
    { "lfm2", input::sized, { PATCH, POSITION } },
    { "kimivl", input::free, { PATCH, POSITION } },
    { "kimik25", input::free, { PATCH, POSITION } },
    { "paddleocr", input::free, { PATCH, POSITION } },
    { "cogvlm", input::sized, { PATCH, POSITION, CLASS } },
    { "janus_pro", input::sized, { PATCH } },
    { "dots_ocr", input::free, { PATCH } },
    { "dots3note_v", input::free, { PATCH } },
    { "deepseekocr", input::free, { POSITION, CLASS, "v.image_newline" } },
    { "deepseekocr2", input::free, { "v.resample_query_768.weight", "v.resample_query_1024.weight" } },
    { "deepseek4v", input::free, { PATCH } },
    { "glm4v", input::free, { PATCH, PATCH_2, "v.patch_embd.bias" }, 2 },
    { "glm5v", input::free, { PATCH, PATCH_2, "v.patch_embd.bias" }, 2 },
    { "youtuvl", input::free, { PATCH }, 2, trunk::transformer, true },
    { "yasa2", input::sized, { PATCH }, 0, trunk::convolutions },
    { "hunyuanvl", input::free, { PATCH, POSITION }, 2 },
    { "exaone4_5", input::free, { PATCH, PATCH_2 }, 2, trunk::transformer, true },
    { "minicpmv4_6", input::sized, { PATCH, POSITION } },
    { "mimovl", input::free, { PATCH, PATCH_2 }, 2, trunk::transformer, true },
    { "minimax_m3", input::free, { PATCH, PATCH_2 }, 2 },
    { "granite4_vision", input::sized, { PATCH, POSITION } },
    { "muse-glimmer", input::free, { PATCH, POSITION }, 2, trunk::transformer, true },
    { "ultravox", input::audio, { SOUND } },
    { "qwen2a", input::audio, { SOUND } },
    { "voxtral", input::audio, { SOUND } },
    { "meralion", input::audio, { SOUND } },
    { "musicflamingo", input::audio, { SOUND } },
    { "glma", input::audio, { SOUND } },
    { "qwen3a", input::audio, { SOUND } },
    { "dots3note_a", input::audio },
    { "lfm2a", input::audio, { SOUND }, 0, trunk::transformer, true },
    { "parakeet", input::audio, { "mm.a.mlp.1.weight", "mm.a.mlp.2.weight" }, 0, trunk::transformer, true },
    { "granite_speech", input::audio },
    { "gemma4a", input::audio, { "mm.a.input_projection.weight" } },
    { "gemma4ua", input::audio, {}, 0, trunk::nothing },
    { "mimo_audio", input::audio, {}, 0, trunk::transformer, true },
};

// Numbers that may be absent: divisors, sizes of loops and of memory.
const bound BOUNDS[] = { { "clip.minicpmv_query_num", 0, 4096 }, { "clip.vision.projector.query_side", 1, MAX_MERGE },
    { "clip.vision.projector.window_side", 1, 256 }, { "clip.vision.preproc_min_tiles", 1, MAX_TILES },
    { "clip.vision.preproc_max_tiles", 1, MAX_TILES }, { "clip.vision.preproc_image_size", 1, MAX_SIZE },
    { "clip.vision.image_min_pixels", 1, MAX_RANGE }, { "clip.vision.image_max_pixels", 1, MAX_RANGE },
    { "clip.vision.window_size", 1, 4096 }, { "clip.audio.window_size", 1, 4096 },
    { "clip.vision.n_wa_pattern", 0, MAX_LAYERS }, { "clip.vision.expert_used_count", 1, 256 },
    { "clip.vision.sam.block_count", 1, MAX_LAYERS }, { "clip.audio.projector.stack_factor", 1, 64 },
    { "clip.audio.conv_kernel_size", 1, 255 }, { "clip.audio.rvq.num_quantizers", 1, 64 },
    { "clip.audio.local_block_count", 0, MAX_LAYERS }, { "clip.audio.local_group_size", 1, 64 } };

class projector_check : header_keys {
  public:
    explicit projector_check(const gguf_file & file) : header_keys(file) {}

    void run() const {
        const gguf_value * writes = scalar("clip.has_gen_audio_encoder", gguf_type::boolean);
        refuse_key_if(writes && writes->integer() != 0, "clip.has_gen_audio_encoder",
            "is true; projectors that speak are not supported");
        const bool sees  = is_set("clip.has_vision_encoder");
        const bool hears = is_set("clip.has_audio_encoder");
        refuse_key_if(!sees && !hears, "clip.has_vision_encoder",
            "is not true, nor is clip.has_audio_encoder; the file "
            "has no encoder of media");
        check_bounds(BOUNDS);
        check_flags();
        if (sees) {
            check_vision(picture_kind());
        }
        if (hears && !(sees && reads_only_pictures())) {
            check_audio(sound_kind());
        }
        check_types();
    }

    projector_traits traits() const {
        const bool sees  = is_set("clip.has_vision_encoder");
        const bool hears = is_set("clip.has_audio_encoder") && !(sees && reads_only_pictures());
        return { sees && picture_kind().whole, hears && sound_kind().whole };
    }

  private:
    bool is_set(const std::string & key) const {
        const gguf_value * value = scalar(key, gguf_type::boolean);
        return value && value->integer() != 0;
    }

    // `own`: the key that counts if there is none for both modalities.
    const projector_kind & kind(const std::string & own, bool audio) const {
        const gguf_value * both   = scalar("clip.projector_type", gguf_type::string);
        const bool         shared = both && !both->text.empty();
        const std::string  key    = shared ? "clip.projector_type" : own;
        std::string        text   = scalar(key, gguf_type::string, true)->text;
        if (text == "qwen2.5o") {
            text = audio ? "qwen2a" : "qwen2.5vl_merger";
        }
        for (const projector_kind & known : KINDS) {
            if (text == known.name) {
                refuse_key_if((known.takes == input::audio) != audio, key, "is '", text, "', which encodes ",
                    audio ? "pictures" : "sound", "; the file says that it encodes ", audio ? "sound" : "pictures");
                return known;
            }
        }
        fail_key(
            key, "is '", gguf_printable(text), "', which is not known; update dflash-local, or use another projector");
    }

    const projector_kind & picture_kind() const { return kind("clip.vision.projector_type", false); }
    const projector_kind & sound_kind() const { return kind("clip.audio.projector_type", true); }

    // mtmd ignores the encoder of sound beside this one.
    bool reads_only_pictures() const { return picture_kind().name == std::string("gemma3nv"); }

    // ---- both ----

    void check_flags() const {
        for (const char * key : { "clip.use_gelu", "clip.use_silu" }) {
            scalar(key, gguf_type::boolean);
        }
        for (const char * key : { "general.name", "general.description", "clip.vision.mm_patch_merge_type" }) {
            scalar(key, gguf_type::string);
        }
        for (const char * key :
            { "clip.vision.feature_layer", "clip.audio.feature_layer", "clip.vision.wa_layer_indexes",
                "clip.vision.wa_pattern_mode", "clip.audio.wa_pattern_mode", "clip.vision.projector.spatial_offsets",
                "clip.audio.rvq.codebook_size", "clip.vision.image_grid_pinpoints" }) {
            const gguf_value * value = find(key);
            refuse_key_if(value && (!value->is_array || value->type != gguf_type::i32 || value->count > MAX_LAYERS),
                key, "must be an array of at most ", MAX_LAYERS, " i32");
        }
    }

    void need(const projector_kind & kind) const {
        for (const char * name : kind.needed) {
            refuse_tensor_if(!has(name), name, "is missing; convert the projector again");
        }
    }

    // The part's encoder; returns the number of its layers.
    int64_t check_trunk(const std::string & part, const projector_kind & kind) const {
        const int64_t n_embd  = number(part + "embedding_length", 1, MAX_WIDTH);
        const bool    attends = kind.body == trunk::transformer;
        const int64_t n_layer = number(part + "block_count", attends ? 1 : 0, MAX_LAYERS);
        const int64_t n_head  = number(part + "attention.head_count", attends ? 1 : 0, MAX_HEADS);
        number(part + "feed_forward_length", 0, MAX_WIDTH * 16);
        number(part + "projection_dim", 0, MAX_WIDTH * 16);
        check_real(part + "attention.layer_norm_epsilon", 0, 1);
        if (attends) {
            const int64_t given = number(part + "attention.head_dim", 0, 1 << 12, 0);
            const int64_t size  = given > 0 ? given : n_embd / n_head;
            // RoPE turns halves and quarters of a head.
            refuse_key_if(size < 4 || size % 4 != 0 || (given == 0 && n_embd % n_head != 0),
                part + "attention.head_count", "is ", n_head, "; the ", n_embd,
                " numbers of a row must make heads of a multiple of 4");
            const int64_t n_kv = number(part + "attention.head_count_kv", 1, MAX_HEADS, n_head);
            refuse_key_if(n_head % n_kv != 0, part + "attention.head_count_kv", "is ", n_kv,
                ", which does not divide the ", n_head, " heads");
        }
        return n_layer;
    }

    // ---- pictures ----

    void check_vision(const projector_kind & kind) const {
        need(kind);
        check_trunk("clip.vision.", kind);
        check_picture(kind);
        check_colors("clip.vision.image_mean", -1e3, 1e3);
        check_colors("clip.vision.image_std", 1e-6, 1e3);
        check_windows(kind);
        const std::string name = kind.name;
        if (name == "mlp") {   // Yi's has four tensors instead of three
            const char * last = has("mm.3.weight") ? "mm.3.bias" : "mm.2.weight";
            refuse_tensor_if(!has(last), last, "is missing; convert the projector again");
        } else if (name == "gemma3nv") {
            check_mobilenet();
        } else if (starts_with(name, "deepseekocr")) {
            check_sam();
        } else if (name == "gemma4v" || name == "gemma4uv") {
            check_layers("v", { "attn_q", "attn_k", "attn_v" }, name == "gemma4v");
        }
    }

    void check_colors(const std::string & key, double low, double high) const {
        const gguf_value * value = find(key);
        refuse_key_if(!value || !value->is_array || value->type != gguf_type::f32 || value->count < 3 ||
                          value->count > gguf_value::max_numbers,
            key, "must be an array of three f32");
        for (uint64_t i = 0; i < 3; ++i) {
            in_range<double>(key, value->real(i), low, high);
        }
    }

    void check_picture(const projector_kind & kind) const {
        const bool    sized = kind.takes == input::sized;
        const int64_t patch = number("clip.vision.patch_size", 1, MAX_PATCH);
        const int64_t size  = number("clip.vision.image_size", sized ? patch : 0, MAX_SIZE);
        const int64_t merge = std::max(number_of_merged("clip.vision.spatial_merge_size", kind),
            number_of_merged("clip.vision.projector.scale_factor", kind));
        refuse_key_if(patch * merge > MAX_MERGED, "clip.vision.patch_size", "is ", patch, "; with ", merge,
            " patches it makes rows of more than ", MAX_MERGED, " pixels");
        const int64_t side = size / patch;
        const int64_t most = kind.body == trunk::convolutions ? 4 * MAX_PATCHES : MAX_PATCHES;
        refuse_key_if(sized && side * side > most, "clip.vision.image_size", "is ", size, "; its ", side * side,
            " patches are more than ", most);
        const int64_t low  = number("clip.vision.image_min_pixels", 1, MAX_RANGE, 1);
        const int64_t high = number("clip.vision.image_max_pixels", 1, MAX_RANGE, MAX_RANGE);
        refuse_key_if(low > high, "clip.vision.image_min_pixels", "is ", low, ", more than image_max_pixels, ", high);
        check_tiles(kind, size, patch);
    }

    int64_t number_of_merged(const std::string & key, const projector_kind & kind) const {
        const int64_t merge = number(key, 1, MAX_MERGE, 1);
        refuse_key_if(find(key) != nullptr && kind.merge > 0 && merge != kind.merge, key, "is ", merge, "; in '",
            kind.name, "' it must be ", kind.merge);
        return merge;
    }

    void check_tiles(const projector_kind & kind, int64_t size, int64_t patch) const {
        const std::string  name  = kind.name;
        const std::string  key   = "clip.vision.image_grid_pinpoints";
        const gguf_value * value = find(key);
        for (const int64_t n : value ? integers(key, *value) : std::vector<int64_t>()) {
            refuse_key_if(size < 1 || n < size || n > MAX_TILES * size || n > MAX_SIZE || n % size != 0, key, "holds ",
                n, "; it must be a multiple of image_size, ", size, ", and at most ", MAX_SIZE);
        }
        const int64_t longest = number("clip.vision.preproc_image_size", 1, MAX_SIZE, size);
        refuse_key_if(name == "idefics3" && longest > size * 16, "clip.vision.preproc_image_size", "is ", longest,
            ", more than 16 tiles of image_size, ", size);
        refuse_key_if(name == "step3vl" && (size % (4 * patch) != 0 || 504 % (4 * patch) != 0),
            "clip.vision.patch_size", "is ", patch, "; four of them must divide image_size, ", size,
            ", and tiles of 504 pixels");
        if (name == "granite4_vision") {
            check_samples(size / patch);
        }
    }

    // Each window of the patches becomes one of queries; with an offset of 0 and more, every second patch is taken.
    void check_samples(int64_t n_patches) const {
        const std::string offsets_key = "clip.vision.projector.spatial_offsets";
        const int64_t     window      = number("clip.vision.projector.window_side", 1, 256);
        refuse_key_if(n_patches % window != 0, "clip.vision.projector.window_side", "is ", window,
            "; it must divide the ", n_patches, " patches of a side");
        const gguf_value * layers  = find("clip.vision.feature_layer");
        const gguf_value * offsets = find(offsets_key);
        refuse_key_if(!layers || !offsets || layers->count != offsets->count, "clip.vision.feature_layer",
            "must have as many elements as ", offsets_key);
        const std::string key = "clip.vision.projector.query_side";
        const int64_t     n   = n_patches / window * number(key, 1, MAX_MERGE);
        for (const int64_t offset : integers(offsets_key, *offsets)) {
            refuse_key_if(offset >= 0 && 2 * n != n_patches, key, "makes ", n, " queries of ", n_patches,
                " patches of a side; it must be half as many");
        }
    }

    // An encoder that attends within windows puts its patches in their order, window by window.
    void check_windows(const projector_kind & kind) const {
        if (!one_of(kind.name, { "qwen2.5vl_merger", "exaone4_5", "youtuvl" })) {
            return;
        }
        const int64_t patch  = number("clip.vision.patch_size", 1, MAX_PATCH);
        const int64_t window = number("clip.vision.window_size", 1, 4096, 112);
        refuse_key_if(window < 2 * patch, "clip.vision.window_size", "is ", window,
            "; it must be at least two patches of ", patch, " pixels");
    }

    void check_layers(const char * prefix, names parts, bool exist) const {
        const int64_t n_layer = exist ? number("clip.vision.block_count", 1, MAX_LAYERS) : 0;
        for (int64_t i = 0; i < n_layer; ++i) {
            for (const char * part : parts) {
                const std::string name = concat(prefix, ".blk.", i, ".", part, ".weight");
                const std::string all  = concat(prefix, ".blk.", i, ".attn_qkv.weight");
                refuse_tensor_if(!has(name) && !has(all), name, "is missing; convert the projector again");
            }
        }
    }

    // MobileNet: a block is there if its first tensor is.
    void check_mobilenet() const {
        const std::map<std::string, std::vector<std::string>> rests = {
            { ".conv_exp.weight", { ".conv_pwl.weight" } },
            { ".attn.query.proj.weight",
                { ".attn.key.proj.weight", ".attn.value.proj.weight", ".attn.output.proj.weight" } },
        };
        for (const auto & [name, tensor] : file_.tensors) {
            for (const auto & [first, rest] : rests) {
                const size_t at = name.rfind(first);
                if (!starts_with(name, "v.blk.") || at == std::string::npos || at + first.size() != name.size()) {
                    continue;
                }
                for (const std::string & end : rest) {
                    const std::string other = name.substr(0, at) + end;
                    refuse_tensor_if(!has(other), other, "is missing; convert the projector again");
                }
            }
        }
    }

    void check_sam() const {
        const int64_t n_embd = number("clip.vision.sam.embedding_length", 1, MAX_WIDTH);
        const int64_t n_head = number("clip.vision.sam.head_count", 1, MAX_HEADS);
        refuse_key_if(
            n_embd % n_head != 0, "clip.vision.sam.head_count", "is ", n_head, ", which does not divide ", n_embd);
    }

    // ---- sound ----

    void check_audio(const projector_kind & kind) const {
        need(kind);
        check_trunk("clip.audio.", kind);
        number("clip.audio.num_mel_bins", 1, kind.body == trunk::nothing ? 1 << 16 : 256);
        if (kind.name == std::string("granite_speech")) {
            check_speech();
        }
    }

    // Queries of windows of frames; distances of frames are rows of a table.
    void check_speech() const {
        const int64_t n_embd = number("clip.audio.embedding_length", 1, MAX_WIDTH);
        const int64_t heads  = number("clip.audio.projector.head_count", 1, MAX_HEADS);
        const int64_t window = number("clip.audio.projector.window_size", 1, 4096);
        number("clip.audio.projector.downsample_rate", 1, window);
        const int64_t chunk = number("clip.audio.chunk_size", 1, 1024);
        const int64_t most  = number("clip.audio.max_pos_emb", 1, 1 << 20);
        refuse_key_if(
            n_embd % heads != 0, "clip.audio.projector.head_count", "is ", heads, ", which does not divide ", n_embd);
        refuse_key_if(most < chunk, "clip.audio.max_pos_emb", "is ", most, "; it must be at least chunk_size, ", chunk);
        refuse_key_if(number("clip.audio.num_mel_bins", 1, 256) % 2 != 0, "clip.audio.num_mel_bins", "must be even");
    }

    // ---- tensors ----

    // Types that ggml multiplies with. What must be F32 depends on the graph: operand_check. These are read by the
    // host, or by mtmd as numbers.
    void check_types() const {
        for (const auto & [name, tensor] : file_.tensors) {
            const std::string type = ggml_type_find(tensor.type)->name;
            refuse_tensor_if(one_of(type, { "f64", "i8", "i16", "i32", "i64", "q8_1", "q8_K" }), name, "has type ",
                type, ", which ggml cannot multiply with");
        }
        if (is_set("clip.has_vision_encoder") && picture_kind().name == std::string("hunyuanvl")) {
            check_f32(POSITION);
        }
    }
};

}   // namespace

void check_projector(const gguf_file & file) { projector_check(file).run(); }

projector_traits traits_of(const gguf_file & projector) { return projector_check(projector).traits(); }

}   // namespace dflash
