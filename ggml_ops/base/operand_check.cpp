#include "base/operand_check.h"

#include "base/text.h"

#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <vector>

namespace dflash {

namespace {

bool one_of(ggml_type type, std::initializer_list<ggml_type> list) {
    return std::find(list.begin(), list.end(), type) != list.end();
}

bool is_float(ggml_type type) { return one_of(type, { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16 }); }

// What mul_mat multiplies with and get_rows reads.
bool is_weight(ggml_type type) {
    return is_float(type) || (ggml_is_quantized(type) && type != GGML_TYPE_Q8_1 && type != GGML_TYPE_Q8_K);
}

template <class... Parts> [[noreturn]] void fail(const ggml_tensor * node, const Parts &... what) {
    throw std::runtime_error(concat("cannot compute ", ggml_op_desc(node), " (", node->name, "): ", what...));
}

void require_type(const ggml_tensor * node, int i, bool fits) {
    if (!fits) {
        const ggml_tensor * operand = node->src[i];
        fail(node, "its operand '", operand->name, "' has type ", ggml_type_name(operand->type));
    }
}

void check_product(const ggml_tensor * node) {
    const ggml_type weight = node->src[0]->type;
    const ggml_type rows   = node->src[1]->type;
    const bool      half   = rows == weight && one_of(weight, { GGML_TYPE_F16, GGML_TYPE_BF16 });
    require_type(node, 0, is_weight(weight));
    require_type(node, 1, rows == GGML_TYPE_F32 || half);
}

// Indices that the host has written must be rows of the table. Others are computed from its size.
void check_rows(const ggml_tensor * node) {
    const ggml_tensor * table   = node->src[0];
    const ggml_tensor * indices = node->src[1];
    require_type(node, 0, is_weight(table->type) || table->type == GGML_TYPE_I32);
    const ggml_tensor * input = indices->view_src != nullptr ? indices->view_src : indices;
    if (input->op != GGML_OP_NONE || input->buffer == nullptr) {
        return;
    }
    std::vector<int32_t> rows((size_t) ggml_nelements(input));
    ggml_backend_tensor_get(input, rows.data(), 0, rows.size() * sizeof(int32_t));
    for (const int32_t row : rows) {
        if (row < 0 || row >= table->ne[1]) {
            fail(node, "row ", row, " of '", table->name, "', which has ", table->ne[1]);
        }
    }
}

void check_copy(const ggml_tensor * node) {
    const ggml_type from  = node->src[0]->type;
    const ggml_type to    = node->type;
    const bool      plain = is_float(from) && is_float(to);
    const bool      whole = from == to && (!ggml_is_quantized(from) || ggml_is_contiguous(node->src[0]));
    const bool index = (from == GGML_TYPE_F32 && to == GGML_TYPE_I32) || (from == GGML_TYPE_I32 && to == GGML_TYPE_F32);
    require_type(node, 0, plain || whole || index || (is_weight(from) && to == GGML_TYPE_F32));
}

// Sums, products: the second operand is F32, or both are of one type.
void check_elementwise(const ggml_tensor * node) {
    require_type(node, 0, is_float(node->src[0]->type));
    require_type(node, 1, one_of(node->src[1]->type, { GGML_TYPE_F32, node->src[0]->type }));
}

void check_rope(const ggml_tensor * node) {
    const auto *  params   = (const int32_t *) node->op_params;
    const int     n_dims   = params[1];
    const int     mode     = params[2];
    const int *   sections = params + 11;
    const int64_t width    = node->ne[0];
    require_type(node, 0, one_of(node->src[0]->type, { GGML_TYPE_F32, GGML_TYPE_F16 }));
    const bool multi  = (mode & GGML_ROPE_TYPE_MROPE) != 0;
    const bool vision = mode == GGML_ROPE_TYPE_VISION;
    if (n_dims < 2 || n_dims % 2 != 0 || n_dims > width || (vision && n_dims != width / 2)) {
        fail(node, "cannot rotate ", n_dims, " of ", width, " numbers");
    }
    if (multi && sections[0] <= 0 && sections[1] <= 0 && sections[2] <= 0) {
        fail(node, "no section of the ", width, " numbers is rotated");
    }
}

// Kernels of convolutions and what they run over.
void check_convolution(const ggml_tensor * node) {
    const bool columns = node->op == GGML_OP_IM2COL;   // reads the kernel's shape alone
    require_type(node, 0, columns || one_of(node->src[0]->type, { GGML_TYPE_F32, GGML_TYPE_F16 }));
    require_type(node, 1, node->src[1]->type == GGML_TYPE_F32);
    if (node->op == GGML_OP_CONV_2D_DW && node->src[0]->ne[3] != node->src[1]->ne[2]) {
        fail(node, "'", node->src[0]->name, "' has ", node->src[0]->ne[3], " kernels for ", node->src[1]->ne[2],
            " channels");
    }
}

void check_attention(const ggml_tensor * node) {
    require_type(node, 0, node->src[0]->type == GGML_TYPE_F32);
    for (const int i : { 1, 2 }) {
        require_type(node, i, is_weight(node->src[i]->type));
    }
    for (const int i : { 3, 4 }) {   // mask, sinks
        const ggml_type wanted = i == 3 ? GGML_TYPE_F16 : GGML_TYPE_F32;
        require_type(node, i, node->src[i] == nullptr || node->src[i]->type == wanted);
    }
}

void check_softmax(const ggml_tensor * node) {
    require_type(node, 0, node->src[0]->type == GGML_TYPE_F32);
    for (const int i : { 1, 2 }) {   // mask, sinks
        if (node->src[i] != nullptr) {
            const bool half = i == 1 && node->src[i]->type == GGML_TYPE_F16;
            require_type(node, i, half || node->src[i]->type == GGML_TYPE_F32);
        }
    }
}

// All others know F32; indices of experts are computed.
void check_plain(const ggml_tensor * node) {
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        if (node->src[i] != nullptr) {
            require_type(node, i, node->src[i]->type == GGML_TYPE_F32);
        }
    }
}

}   // namespace

void check_operands(const ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_NONE:
        case GGML_OP_RESHAPE:
        case GGML_OP_VIEW:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE:
        case GGML_OP_ARANGE: return;
        case GGML_OP_MUL_MAT:
        case GGML_OP_MUL_MAT_ID: return check_product(node);
        case GGML_OP_GET_ROWS: return check_rows(node);
        case GGML_OP_DUP:
        case GGML_OP_CPY:
        case GGML_OP_CONT: return check_copy(node);
        case GGML_OP_ADD:
        case GGML_OP_SUB:
        case GGML_OP_MUL:
        case GGML_OP_DIV: return check_elementwise(node);
        case GGML_OP_CONCAT:
        case GGML_OP_REPEAT:
            return require_type(node, 0, one_of(node->src[0]->type, { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_I32 }));
        case GGML_OP_ROPE: return check_rope(node);
        case GGML_OP_IM2COL:
        case GGML_OP_CONV_2D:
        case GGML_OP_CONV_2D_DW: return check_convolution(node);
        case GGML_OP_FLASH_ATTN_EXT: return check_attention(node);
        case GGML_OP_SOFT_MAX: return check_softmax(node);
        default: return check_plain(node);
    }
}

}   // namespace dflash
