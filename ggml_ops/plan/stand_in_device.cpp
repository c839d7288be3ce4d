#include "plan/stand_in_device.h"

#include "ggml-backend-impl.h"

#include <map>
#include <memory>
#include <mutex>

namespace dflash {

namespace {

// The values of ggml-cuda.cu.
constexpr size_t  ALIGNMENT       = 128;   // of tensors
constexpr int64_t ROW_PADDING     = 512;   // MATRIX_ROW_PADDING: quantized rows are read in units of this
constexpr int64_t LEAST_OFFLOADED = 32;    // rows of a product for which the host's weights are copied to the device

struct stand_in {
    std::string              name;
    size_t                   memory;
    ggml_backend_device      device;
    ggml_backend_buffer_type type;
};

const stand_in & of(ggml_backend_dev_t device) { return *(const stand_in *) device->context; }

// ---- memory ----

size_t padded(size_t size) { return (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

// Attention reads K and V as F16: other types are converted first (ggml_cuda_flash_attn_ext_get_alloc_size).
size_t attention_scratch(const ggml_tensor * attention) {
    size_t bytes = 0;
    for (const ggml_tensor * rows : { attention->src[1], attention->src[2] }) {
        bytes += rows && rows->type != GGML_TYPE_F16 ? padded(ggml_nelements(rows) * sizeof(ggml_fp16_t)) : 0;
    }
    return bytes;
}

size_t alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * tensor) {
    size_t size = ggml_nbytes(tensor);
    if (tensor->op == GGML_OP_FLASH_ATTN_EXT) {
        size = padded(size) + attention_scratch(tensor);
    }
    if (ggml_is_quantized(tensor->type) && tensor->ne[0] % ROW_PADDING != 0) {
        size += ggml_row_size(tensor->type, ROW_PADDING - tensor->ne[0] % ROW_PADDING);
    }
    return size;
}

ggml_backend_buffer_type_i memory_functions() {
    ggml_backend_buffer_type_i f = {};
    f.get_name                   = [](ggml_backend_buffer_type_t type) { return of(type->device).name.c_str(); };
    f.alloc_buffer               = [](ggml_backend_buffer_type_t, size_t) -> ggml_backend_buffer_t { return nullptr; };
    f.get_alignment              = [](ggml_backend_buffer_type_t) { return ALIGNMENT; };
    f.get_alloc_size             = alloc_size;
    return f;
}

// ---- passes ----

ggml_guid_t guid() {
    static ggml_guid id = { 0xdf, 0x1a, 0x54, 0, 0x70, 0x6c, 0x61, 0x6e };
    return &id;
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char *) {
    ggml_backend_i f = {};
    f.get_name       = [](ggml_backend_t backend) { return of(backend->device).name.c_str(); };
    f.free           = [](ggml_backend_t backend) { delete backend; };
    f.graph_compute  = [](ggml_backend_t, ggml_cgraph *) { return GGML_STATUS_FAILED; };
    return new ggml_backend{ guid(), f, device, nullptr };
}

// Rows of an op, counted like ggml-cuda.cu does.
int64_t n_rows(const ggml_tensor * op) {
    switch (op->op) {
        case GGML_OP_GET_ROWS: return 0;
        case GGML_OP_MUL_MAT: return op->ne[1];
        case GGML_OP_MUL_MAT_ID:
        case GGML_OP_ROPE:
        case GGML_OP_ROPE_BACK: return op->ne[2];
        default: return ggml_nrows(op);
    }
}

// ---- the device ----

void get_memory(ggml_backend_dev_t device, size_t * free, size_t * total) { *free = *total = of(device).memory; }

void get_props(ggml_backend_dev_t device, ggml_backend_dev_props * props) {
    props->name        = of(device).name.c_str();
    props->description = "a device of another machine";
    props->type        = GGML_BACKEND_DEVICE_TYPE_GPU;
    props->caps        = {};
    props->caps.async = props->caps.events = true;
    get_memory(device, &props->memory_free, &props->memory_total);
}

ggml_backend_device_i device_functions() {
    ggml_backend_device_i f = {};
    f.get_name              = [](ggml_backend_dev_t device) { return of(device).name.c_str(); };
    f.get_description       = [](ggml_backend_dev_t) { return "a device of another machine"; };
    f.get_memory            = get_memory;
    f.get_type              = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    f.get_props             = get_props;
    f.init_backend          = init_backend;
    f.get_buffer_type       = [](ggml_backend_dev_t device) {
        return const_cast<ggml_backend_buffer_type_t>(&of(device).type);
    };
    f.supports_op   = [](ggml_backend_dev_t, const ggml_tensor *) { return true; };
    f.supports_buft = [](ggml_backend_dev_t device, ggml_backend_buffer_type_t type) {
        return type == &of(device).type;
    };
    f.offload_op = [](ggml_backend_dev_t, const ggml_tensor * op) { return n_rows(op) >= LEAST_OFFLOADED; };
    return f;
}

ggml_backend_reg_t registry() {
    ggml_backend_reg_i f      = {};
    f.get_name                = [](ggml_backend_reg_t) { return "plan"; };
    f.get_device_count        = [](ggml_backend_reg_t) { return (size_t) 0; };
    static ggml_backend_reg r = { GGML_BACKEND_API_VERSION, f, nullptr };
    return &r;
}

}   // namespace

ggml_backend_dev_t stand_in_device(const std::string & name, size_t memory) {
    static std::mutex                                                          lock;
    static std::map<std::pair<std::string, size_t>, std::unique_ptr<stand_in>> made;
    const std::lock_guard<std::mutex>                                          guard(lock);
    std::unique_ptr<stand_in> &                                                s = made[{ name, memory }];
    if (!s) {
        s         = std::make_unique<stand_in>();
        s->name   = name;
        s->memory = memory;
        s->device = { device_functions(), registry(), s.get() };
        s->type   = { memory_functions(), &s->device, nullptr };
    }
    return &s->device;
}

}   // namespace dflash
