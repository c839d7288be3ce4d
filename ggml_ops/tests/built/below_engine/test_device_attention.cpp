// `flash_attn` auto on a fake GPU that has no kernel for all of flash attention: on the CPU it always is.
//
//   test_device_attention MODEL.gguf

#include "pocket_parts.h"

#include "ggml-backend-impl.h"

using namespace dflash;

static bool has_mixed_types;   // a kernel for K and V of two types

static bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) {
    return op->op != GGML_OP_FLASH_ATTN_EXT || has_mixed_types || op->src[1]->type == op->src[2]->type;
}

static ggml_backend_t start(ggml_backend_dev_t device, const char *) {
    static ggml_guid guid = {};
    ggml_backend_i   f    = {};
    f.get_name            = [](ggml_backend_t) { return "FAKE"; };
    f.free                = [](ggml_backend_t backend) { delete backend; };
    f.graph_compute       = [](ggml_backend_t, ggml_cgraph *) { return GGML_STATUS_FAILED; };
    return new ggml_backend{ &guid, f, device, nullptr };
}

static ggml_backend_device fake;
static ggml_backend_reg    reg;

static void register_device() {
    ggml_backend_device_i & f = fake.iface;
    f.get_name                = [](ggml_backend_dev_t) { return "FAKE"; };
    f.get_description         = f.get_name;
    f.get_memory              = [](ggml_backend_dev_t, size_t * free, size_t * total) { *free = *total = 1 << 30; };
    f.get_type                = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    f.get_props               = [](ggml_backend_dev_t, ggml_backend_dev_props * props) {
        *props      = {};
        props->name = props->description = "FAKE";
        props->type                      = GGML_BACKEND_DEVICE_TYPE_GPU;
    };
    f.init_backend             = start;
    f.supports_op              = supports_op;
    f.supports_buft            = [](ggml_backend_dev_t, ggml_backend_buffer_type_t) { return true; };
    f.get_buffer_type          = [](ggml_backend_dev_t) { return ggml_backend_cpu_buffer_type(); };
    fake.reg                   = &reg;
    reg.api_version            = GGML_BACKEND_API_VERSION;
    reg.iface.get_name         = [](ggml_backend_reg_t) { return "FAKE"; };
    reg.iface.get_device_count = [](ggml_backend_reg_t) { return (size_t) 1; };
    reg.iface.get_device       = [](ggml_backend_reg_t, size_t) { return &fake; };
    reg.iface.get_proc_address = [](ggml_backend_reg_t, const char *) -> void * { return nullptr; };
    ggml_backend_register(&reg);
}

// What flash_attn becomes; the caches may be of two types.
static int32_t attention_of(dflash_engine_params p, int32_t flash_attn = -1) {
    p.flash_attn = flash_attn;
    const model_pair models(p, {});
    return target(p, models).params().flash_attn;
}

int main(int argc, char ** argv) {
    if (argc < 2) {
        return 2;
    }
    dflash_engine_params p = pocket_params(argv[1]);
    register_device();
    p.n_gpu_layers = 99;
    p.device       = "FAKE";
    p.kv_offload   = true;
    CHECK(attention_of(p) == 1);
    p.type_k = "q8_0";
    CHECK(attention_of(p) == 0 && attention_of(p, 1) == 1);
    has_mixed_types = true;
    CHECK(attention_of(p) == 1);
    has_mixed_types = false;
    p.type_v        = "q4_0";   // which needs flash attention
    CHECK(attention_of(p) == 1);
    p.type_v     = nullptr;
    p.kv_offload = false;   // so the CPU computes it
    CHECK(attention_of(p) == 1);
    p.kv_offload = true;
    p.device     = "none";
    CHECK(attention_of(p) == 1);
    return TEST_RESULT;
}
