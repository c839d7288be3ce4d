// Where a drafter goes with its target, on fake devices.

#include "check.h"
#include "target/placement.h"

#include "ggml-backend-impl.h"

using namespace dflash;

namespace {

// A device that has nothing but a type and the name of its backend.
struct fake_device {
    ggml_backend_reg    reg    = {};
    ggml_backend_device device = {};

    fake_device(const char * backend, enum ggml_backend_dev_type type) {
        reg.context           = (void *) backend;
        reg.iface.get_name    = [](ggml_backend_reg_t r) { return (const char *) r->context; };
        device.reg            = &reg;
        device.context        = (void *) (intptr_t) type;
        device.iface.get_type = [](ggml_backend_dev_t d) { return (enum ggml_backend_dev_type)(intptr_t) d->context; };
    }
    operator ggml_backend_dev_t() { return &device; }
};

void test_a_drafter_goes_with_its_target() {
    fake_device first("CUDA", GGML_BACKEND_DEVICE_TYPE_GPU), last("CUDA", GGML_BACKEND_DEVICE_TYPE_GPU);
    fake_device cpu("CPU", GGML_BACKEND_DEVICE_TYPE_CPU), server("RPC", GGML_BACKEND_DEVICE_TYPE_GPU);
    CHECK(drafter_device(last, { first, last }) == last);
    CHECK(drafter_device(cpu, { first, last }) == nullptr && drafter_device(nullptr, { first }) == nullptr);
    CHECK(drafter_device(server, { first, server }) == server);   // named as a device, like any other
    CHECK(drafter_device(server, { first, last }) == first);      // of --rpc: stays on this machine
    CHECK(drafter_device(server, {}) == nullptr);
}

}   // namespace

int main() {
    test_a_drafter_goes_with_its_target();
    return TEST_RESULT;
}
