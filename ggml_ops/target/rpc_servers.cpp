#include "target/rpc_servers.h"

#include "base/error.h"
#include "common/common.h"
#include "llama/devices.h"
#include "rpc/failures.h"

#include "ggml-rpc.h"

#include <algorithm>

namespace dflash {

namespace {

// A function of the RPC backend, which a build may lack.
template <class F> F * rpc_function(const char * name) {
    F * found = backend_function<F>(ggml_backend_reg_by_name("RPC"), name);
    return found ? found
                 : throw status_error(
                       DFLASH_ERROR_RPC, "rpc: this build has no RPC backend, build it without -DGGML_RPC=OFF");
}

// Why a server failed, null: it did not.
const char * failure_of(const std::string & endpoint, rpc_order order) {
    return rpc_function<const char *(const char *, int)>("dflash_rpc_failure")(endpoint.c_str(), order);
}

// A sign of life.
void ask_device(ggml_backend_dev_t device) {
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(device, &free, &total);
}

// Why device `i` gives no sign of life, null: it does.
const char * failure_of_device(const std::string & endpoint, ggml_backend_reg_t reg, size_t i) {
    failure_of(endpoint, RPC_FORGET);
    ask_device(ggml_backend_reg_dev_get(reg, i));
    return failure_of(endpoint, RPC_ASK);
}

// Asks each device for a sign of life. ggml keeps the list of those that a server lent first as long as this process
// lives: a server that has fewer now hangs up, and still answers for the first one.
void check_devices(const std::string & endpoint, ggml_backend_reg_t reg) {
    for (size_t i = 0; i < ggml_backend_reg_dev_count(reg); ++i) {
        const char * why = failure_of_device(endpoint, reg, i);
        if (!why) {
            continue;
        }
        if (const char * again = i == 0 ? why : failure_of_device(endpoint, reg, 0)) {
            throw status_error(DFLASH_ERROR_RPC, again);
        }
        throw status_error(DFLASH_ERROR_RPC, "the RPC server ", endpoint,
            " lends fewer devices than before: start it with the same ones, or start this program again");
    }
}

void check_port(const std::string & field, long port) {
    refuse_if(port < 1 || port > 65535, field, ": the port is ", port, ", must be 1..65535");
}

void check_endpoint(const std::string & endpoint) {
    const size_t      colon = endpoint.find(':');
    const std::string port  = colon == std::string::npos ? "" : endpoint.substr(colon + 1);
    refuse_if(
        colon == 0 || port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos,
        "rpc: '", endpoint, "' is no address of an RPC server, write host:port,host:port");
    check_port("rpc: '" + endpoint + "'", std::stol(port));
}

template <class F> std::vector<ggml_backend_dev_t> devices_that(F && fit) {
    std::vector<ggml_backend_dev_t> found;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        if (fit(ggml_backend_dev_get(i))) {
            found.push_back(ggml_backend_dev_get(i));
        }
    }
    return found;
}

std::vector<ggml_backend_dev_t> local_devices_of(enum ggml_backend_dev_type type) {
    return devices_that(
        [type](ggml_backend_dev_t device) { return ggml_backend_dev_type(device) == type && !is_rpc(device); });
}

ggml_backend_dev_t device_of_name(const std::string & name) {
    if (ggml_backend_dev_t device = ggml_backend_dev_by_name(name.c_str())) {
        return device;
    }
    std::vector<std::string> known;
    for (ggml_backend_dev_t device : devices_that([](ggml_backend_dev_t) { return true; })) {
        known.emplace_back(ggml_backend_dev_name(device));
    }
    throw status_error(DFLASH_ERROR_ARG, "devices: there is no '", name, "', only ", joined(known, ", "));
}

std::vector<ggml_backend_dev_t> served_devices(const char * names) {
    std::vector<ggml_backend_dev_t> devices;
    for (const std::string & name : split(names)) {
        devices.push_back(device_of_name(name));
    }
    if (devices.empty()) {
        devices = local_devices();
    }
    if (devices.empty()) {
        devices.push_back(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
    }
    return devices;
}

}   // namespace

std::vector<ggml_backend_dev_t> local_devices() {
    std::vector<ggml_backend_dev_t> devices = local_devices_of(GGML_BACKEND_DEVICE_TYPE_GPU);
    return devices.empty() ? local_devices_of(GGML_BACKEND_DEVICE_TYPE_IGPU) : devices;
}

rpc_servers::rpc_servers(const char * servers) : endpoints_(split(servers)) {
    for (const std::string & endpoint : endpoints_) {
        check_endpoint(endpoint);
        refuse_if(std::count(endpoints_.begin(), endpoints_.end(), endpoint) > 1, "rpc: ", endpoint, " is named twice");
    }
    refuse_if(endpoints_.size() > GGML_RPC_MAX_SERVERS, "rpc: at most ", GGML_RPC_MAX_SERVERS, " servers are possible");
}

void rpc_servers::connect() {
    for (const std::string & endpoint : endpoints_) {
        failure_of(endpoint, RPC_FORGET);
        const auto add_server  = rpc_function<decltype(ggml_backend_rpc_add_server)>("ggml_backend_rpc_add_server");
        ggml_backend_reg_t reg = add_server(endpoint.c_str());
        if (!reg) {
            raise_failures();
            throw status_error(DFLASH_ERROR_RPC, "the RPC server ", endpoint, " has no devices");
        }
        ggml_backend_register(reg);   // once: later calls change nothing
        for (size_t i = 0; i < ggml_backend_reg_dev_count(reg); ++i) {
            devices_.push_back(ggml_backend_reg_dev_get(reg, i));
        }
        check_devices(endpoint, reg);
    }
}

void rpc_servers::raise_failures() const {
    for (const std::string & endpoint : endpoints_) {
        if (const char * why = failure_of(endpoint, RPC_ASK)) {
            throw status_error(DFLASH_ERROR_RPC, why);
        }
    }
}

void rpc_servers::hang_up() const {
    for (const std::string & endpoint : endpoints_) {
        failure_of(endpoint, RPC_HANG_UP);
    }
}

void rpc_servers::check() const {
    for (ggml_backend_dev_t device : devices_) {
        ask_device(device);
    }
    raise_failures();
}

std::vector<ggml_backend_dev_t> rpc_servers::devices() const {
    if (devices_that(is_rpc).empty()) {
        return {};
    }
    std::vector<ggml_backend_dev_t>       all   = devices_;
    const std::vector<ggml_backend_dev_t> local = local_devices();
    all.insert(all.end(), local.begin(), local.end());
    all.push_back(nullptr);
    return all;
}

void rpc_serve(const dflash_rpc_server_params & params) {
    const std::string host = params.host ? params.host : "";
    refuse_if(host.empty(), "host is empty: give an IPv4 address, such as 127.0.0.1");
    check_port("port", params.port);
    const auto    start     = rpc_function<decltype(ggml_backend_rpc_start_server)>("ggml_backend_rpc_start_server");
    const int32_t n_threads = params.n_threads > 0 ? params.n_threads : common_cpu_get_num_math();
    std::vector<ggml_backend_dev_t> devices  = served_devices(params.devices);
    const std::string               endpoint = host + ":" + std::to_string(params.port);
    start(endpoint.c_str(), params.cache, n_threads, devices.size(), devices.data());
    throw status_error(DFLASH_ERROR_RPC, "host, port: cannot listen on ", endpoint);
}

}   // namespace dflash
