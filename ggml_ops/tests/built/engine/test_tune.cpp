// dflash_tune() and dflash_matrix_rows() on two fake GPUs: they take the time of the kernel that would be chosen, and
// replay a graph with the kernels it was recorded with, like CUDA graphs.

#include "check.h"
#include "dflash.h"
#include "ggml-backend-impl.h"
#include "ggml-impl.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

using json = nlohmann::json;

namespace {

constexpr int    MOST      = 9;                     // the vector kernel supports 8 rows
constexpr double VECTOR_US = 60, MATRIX_US = 270;   // for a whole pass: per row, and for any number of rows

enum class trouble { none, no_backend, no_memory, failing, aborting } trouble_now;

int rows_set[2][GGML_TYPE_COUNT], n_products;
std::map<const void *, std::pair<int64_t, int>>
    recorded;   // first node -> rows, and the matrix kernel's smallest number of rows at that time

int set_rows(int device, ggml_type type, int rows) {
    if (type != GGML_TYPE_Q4_K) {
        return 0;
    }
    if (rows >= 0) {
        rows_set[device][type] = std::min(rows, MOST);
    }
    return rows_set[device][type] ? rows_set[device][type] : MOST;
}

ggml_status compute(ggml_backend_t backend, ggml_cgraph * graph) {
    if (trouble_now == trouble::failing) {
        return GGML_STATUS_FAILED;
    }
    if (trouble_now == trouble::aborting) {
        GGML_ABORT("out of memory");
    }
    const ggml_tensor * y     = graph->nodes[0];
    const int64_t       n     = y->ne[1];
    const int           from  = set_rows((int) (intptr_t) backend->device->context, y->src[0]->type, -1);
    auto &              known = recorded.insert({ y, { n, from } }).first->second;
    if (known.first != n) {
        known = { n, from };
    }
    n_products      = graph->n_nodes;
    const double us = n < known.second ? VECTOR_US * n : MATRIX_US;
    for (const auto begin = std::chrono::steady_clock::now();
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() < us;) {}
    return GGML_STATUS_SUCCESS;
}

ggml_backend_buffer_t no_buffer(ggml_backend_buffer_type_t, size_t) { return nullptr; }

ggml_backend_buffer_type_t buffer_type(ggml_backend_dev_t dev) {
    static ggml_backend_buffer_type full = *ggml_backend_cpu_buffer_type();
    full.iface.alloc_buffer              = no_buffer;
    full.device                          = dev;
    return trouble_now == trouble::no_memory ? &full : ggml_backend_cpu_buffer_type();
}

ggml_backend_t start(ggml_backend_dev_t dev, const char *) {
    static ggml_guid guid = {};
    if (trouble_now == trouble::no_backend) {
        return nullptr;
    }
    ggml_backend_i iface = {};
    iface.get_name       = [](ggml_backend_t) { return "FAKE"; };
    iface.free           = [](ggml_backend_t b) {
        recorded.clear();
        delete b;
    };
    iface.graph_compute = compute;
    return new ggml_backend{ &guid, iface, dev, nullptr };
}

ggml_backend_device devices[2];
ggml_backend_reg    reg;

void register_devices() {
    for (int i = 0; i < 2; ++i) {
        ggml_backend_device_i & d = devices[i].iface;
        d.get_name                = [](ggml_backend_dev_t dev) { return dev->context ? "FAKE1" : "FAKE0"; };
        d.get_description         = d.get_name;
        d.get_memory              = [](ggml_backend_dev_t, size_t * free, size_t * total) { *free = *total = 0; };
        d.get_type                = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
        d.init_backend            = start;
        d.get_buffer_type         = buffer_type;
        d.supports_op             = [](ggml_backend_dev_t, const ggml_tensor *) { return true; };
        d.supports_buft           = [](ggml_backend_dev_t, ggml_backend_buffer_type_t) { return true; };
        devices[i].reg            = &reg;
        devices[i].context        = (void *) (intptr_t) i;
    }
    reg.api_version            = GGML_BACKEND_API_VERSION;
    reg.iface.get_name         = [](ggml_backend_reg_t) { return "FAKE"; };
    reg.iface.get_device_count = [](ggml_backend_reg_t) { return (size_t) 2; };
    reg.iface.get_device       = [](ggml_backend_reg_t, size_t i) { return &devices[i]; };
    reg.iface.get_proc_address = [](ggml_backend_reg_t, const char * name) {
        return std::strcmp(name, "ggml_backend_cuda_set_matrix_rows") == 0 ? (void *) set_rows : nullptr;
    };
    ggml_backend_register(&reg);
}

dflash_tune_params small() {
    dflash_tune_params p;
    dflash_tune_params_default(&p);
    p.device    = "FAKE1";
    p.m         = 64;
    p.k         = 256;
    p.n_max     = 12;
    p.megabytes = 1;
    p.ms        = 5;
    return p;
}

// The count in force, or the error.
int32_t matrix_rows(const char * device, const char * type, int32_t rows) {
    int32_t             n      = 0;
    const dflash_status status = dflash_matrix_rows(device, type, rows, &n);
    return status == DFLASH_OK ? n : status;
}

void test_rows_belong_to_a_device() {
    CHECK(matrix_rows("FAKE1", "q4_k", 5) == 5);
    CHECK(matrix_rows("FAKE0", "q4_k", -1) == MOST);
    CHECK(matrix_rows("FAKE1", "q4_k", 100) == MOST);
    CHECK(matrix_rows("FAKE1", "q8_0", 5) == 0);
    CHECK(matrix_rows("FAKE2", "q4_k", 5) == DFLASH_ERROR_ARG);
    CHECK(matrix_rows(nullptr, nullptr, 5) == DFLASH_ERROR_ARG);
}

// Microseconds of a graph by rows, -1 if there is none.
std::vector<double> times_of(const json & j, const char * kernel) {
    std::vector<double> times;
    for (const json & ms : j[kernel]) {
        times.push_back(ms.is_number() ? ms.get<double>() * 1000 * 64 : -1);
    }
    return times;
}

void test_times() {
    matrix_rows("FAKE1", "q4_k", 5);
    const dflash_tune_params p = small();
    std::vector<double>      vector, matrix;
    const auto               is_close = [&](int n) {
        const bool has_vector = n < MOST;
        return vector[n - 1] < (has_vector ? VECTOR_US * n + 150 : 0) && matrix[n - 1] < MATRIX_US + 150;
    };
    // A busy machine makes times longer, never shorter: use the minimum of several.
    for (int turn = 0; turn < 50; ++turn) {
        char * text = nullptr;
        CHECK(dflash_tune(&p, nullptr, nullptr, &text) == DFLASH_OK);
        const json j = json::parse(text ? text : "{}");
        dflash_string_free(text);
        CHECK(j["rows"] == 5 && j["rows_max"] == MOST && j["weights"] == 64 && n_products == 64);
        const std::vector<double> vector_now = times_of(j, "vector_ms"), matrix_now = times_of(j, "matrix_ms");
        CHECK((int) vector_now.size() == p.n_max && (int) matrix_now.size() == p.n_max);
        vector.resize(p.n_max, INFINITY);
        matrix.resize(p.n_max, INFINITY);
        int n_close = 0;
        for (int n = 1; n <= p.n_max; ++n) {
            CHECK(n < MOST ? vector_now[n - 1] >= VECTOR_US * n : vector_now[n - 1] == -1);
            CHECK(matrix_now[n - 1] >= MATRIX_US);
            vector[n - 1] = std::min(vector[n - 1], vector_now[n - 1]);
            matrix[n - 1] = std::min(matrix[n - 1], matrix_now[n - 1]);
            n_close += is_close(n);
        }
        if (n_close == p.n_max) {
            break;
        }
    }
    for (int n = 1; n <= p.n_max; ++n) {
        CHECK(is_close(n));
    }
    CHECK(matrix_rows("FAKE1", "q4_k", -1) == 5);   // unchanged
    CHECK(rows_set[0][GGML_TYPE_Q4_K] == 0);
}

void test_trouble_is_an_error() {
    const std::pair<trouble, dflash_status> all[] = {
        { trouble::no_backend, DFLASH_ERROR_MEMORY },
        { trouble::no_memory, DFLASH_ERROR_MEMORY },
        { trouble::failing, DFLASH_ERROR_COMPUTE },
        { trouble::aborting, DFLASH_ERROR_INTERNAL },
    };
    for (const auto & [what, expected] : all) {
        trouble_now                   = what;
        const dflash_tune_params p    = small();
        char *                   text = nullptr;
        CHECK(dflash_tune(&p, nullptr, nullptr, &text) == expected && !text && *dflash_last_error());
        CHECK(matrix_rows("FAKE1", "q4_k", -1) == 5);
    }
    trouble_now = trouble::none;
    char * text = nullptr;
    CHECK(dflash_tune(nullptr, nullptr, nullptr, &text) == DFLASH_ERROR_ARG && !text);
    const dflash_tune_params       p    = small();
    const dflash_progress_callback stop = [](float, void *) { return false; };
    CHECK(dflash_tune(&p, stop, nullptr, &text) == DFLASH_ERROR_CANCELLED && !text);
}

}   // namespace

int main() {
    register_devices();
    test_rows_belong_to_a_device();
    test_times();
    test_trouble_is_an_error();
    return TEST_RESULT;
}
