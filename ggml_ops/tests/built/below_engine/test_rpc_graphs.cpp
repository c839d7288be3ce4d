// Two users of one RPC device, as engines of a process are: each gets what its own graph computes, also where it asks
// the server for the same again.

#include "check.h"

#include "ggml-backend.h"
#include "ggml-cpp.h"
#include "ggml-impl.h"
#include "ggml-rpc.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

// A device of a server on loopback, in this process.
ggml_backend_dev_t serve() {
    ggml_backend_load_all();
    ggml_backend_reg_t rpc   = ggml_backend_reg_by_name("RPC");
    const auto         start = (decltype(ggml_backend_rpc_start_server) *) ggml_backend_reg_get_proc_address(
        rpc, "ggml_backend_rpc_start_server");
    const auto add =
        (decltype(ggml_backend_rpc_add_server) *) ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server");
    const auto        now      = std::chrono::system_clock::now().time_since_epoch().count() / 1000;
    const std::string endpoint = "127.0.0.1:" + std::to_string(20000 + now % 12000);
    std::thread([=] {
        ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
        start(endpoint.c_str(), nullptr, 1, 1, &cpu);
    }).detach();
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < end) {
        if (ggml_backend_reg_t server = add(endpoint.c_str())) {
            return ggml_backend_reg_dev_get(server, 0);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return nullptr;
}

// Adds 1 n times to a number.
class counter {
  public:
    counter(ggml_backend_dev_t device, int n) :
        n_(n), backend_(ggml_backend_dev_init(device, nullptr)),
        ctx_(
            ggml_init({ (n + 8) * ggml_tensor_overhead() + ggml_graph_overhead_custom(n + 8, false), nullptr, true })) {
        number_ = ggml_new_tensor_1d(ctx_.get(), GGML_TYPE_F32, 1);
        one_    = ggml_new_tensor_1d(ctx_.get(), GGML_TYPE_F32, 1);
        graph_  = ggml_new_graph_custom(ctx_.get(), n + 8, false);
        sum_    = number_;
        for (int i = 0; i < n; ++i) {
            sum_ = ggml_add(ctx_.get(), sum_, one_);
        }
        ggml_build_forward_expand(graph_, sum_);
        buffer_.reset(ggml_backend_alloc_ctx_tensors(ctx_.get(), backend_.get()));
        const float one = 1;
        ggml_backend_tensor_set(one_, &one, 0, sizeof(one));
    }

    // As a new graph, and the same again.
    int n_wrong_of_two() {
        graph_->uid = ggml_graph_next_uid();
        return !is_right() + !is_right();
    }

  private:
    bool is_right() {
        const float number = (float) ++n_computed_;
        float       sum    = 0;
        ggml_backend_tensor_set(number_, &number, 0, sizeof(number));
        ggml_backend_graph_compute(backend_.get(), graph_);
        ggml_backend_tensor_get(sum_, &sum, 0, sizeof(sum));
        return sum == number + (float) n_;
    }

    int                     n_, n_computed_ = 0;
    ggml_backend_ptr        backend_;
    ggml_context_ptr        ctx_;
    ggml_backend_buffer_ptr buffer_;
    ggml_cgraph *           graph_;
    ggml_tensor *           number_, *one_, *sum_;
};

void test_two_users(ggml_backend_dev_t device) {
    counter           large(device, 2000), small(device, 2);
    int               n_wrong = 0;
    std::atomic<bool> ends{ false };
    std::thread       other([&] {
        while (!ends) {
            n_wrong += small.n_wrong_of_two();
        }
    });
    int               n_large = 0;
    for (int i = 0; i < 100; ++i) {
        n_large += large.n_wrong_of_two();
    }
    ends = true;
    other.join();
    CHECK(n_wrong == 0);
    CHECK(n_large == 0);
}

}   // namespace

int main() {
    ggml_backend_dev_t device = serve();
    CHECK(device != nullptr);
    if (device) {
        test_two_users(device);
    }
    const int result = TEST_RESULT;
    std::fflush(stdout);
    std::_Exit(result);   // the server never ends
}
