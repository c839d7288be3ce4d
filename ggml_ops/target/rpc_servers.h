// The RPC servers whose devices an engine computes on (ggml's RPC backend, docs/rpc.md).

#pragma once

#include "dflash.h"

#include "ggml-backend.h"

#include <string>
#include <vector>

namespace dflash {

class rpc_servers {
  public:
    // servers: "host:port,...", empty or null: none. Throws DFLASH_ERROR_ARG.
    explicit rpc_servers(const char * servers = nullptr);

    bool none() const { return endpoints_.empty(); }
    // The servers' own, after connect().
    const std::vector<ggml_backend_dev_t> & own_devices() const { return devices_; }

    // Registers their devices with ggml. Throws DFLASH_ERROR_RPC.
    void connect();
    // Throws DFLASH_ERROR_RPC if one has failed so far.
    void raise_failures() const;
    // Runs f. If a server fails meanwhile, throws DFLASH_ERROR_RPC instead of what f throws.
    template <class F> void blame(F && f) const {
        try {
            f();
        } catch (...) {
            raise_failures();
            throw;
        }
        raise_failures();
    }
    // Whatever waits for one of them, in any engine of this process, goes on as if it were lost. On any thread.
    void hang_up() const;
    // Asks each of them for a sign of life, then raise_failures().
    void check() const;

    // Where a model goes by default: to the servers' devices, then to those of this machine; without servers only to
    // this machine's, though another engine may have registered some. For llama_model_params::devices, ended by null;
    // empty: llama.cpp would choose the same.
    std::vector<ggml_backend_dev_t> devices() const;

  private:
    std::vector<std::string>        endpoints_;
    std::vector<ggml_backend_dev_t> devices_;
};

// The devices of this machine that take layers, as llama.cpp chooses them.
std::vector<ggml_backend_dev_t> local_devices();

// dflash_rpc_serve().
void rpc_serve(const dflash_rpc_server_params & params);

}   // namespace dflash
