// Where a model goes: llama-server's flags for devices, splits and single tensors (common/arg.cpp), read and checked
// before a file is opened.

#pragma once

#include "dflash.h"
#include "llama.h"

#include <list>
#include <string>
#include <vector>

namespace dflash {

// Devices for a drafter, without null.
struct drafter_devices {
    std::vector<ggml_backend_dev_t> known;    // those that can be named
    std::vector<ggml_backend_dev_t> own;      // where it goes by itself, not with its target: this machine's
    std::vector<ggml_backend_dev_t> beside;   // of those where its target goes, the ones where it may follow
};

// Where a drafter goes with its target, null: to the CPU. output: the device of the target's output.
ggml_backend_dev_t drafter_device(ggml_backend_dev_t output, const std::vector<ggml_backend_dev_t> & beside);

// What llama_model_params borrows: must outlive the loading of its model.
class placement {
  public:
    // The target's. known: the devices it may use. Throws status_error that names the field and the choices.
    static placement of_target(const dflash_engine_params & params, const std::vector<ggml_backend_dev_t> & known);
    // The drafter's: on the devices named for it, else on that of the target's output, which settle() finds. A drafter
    // is never split by rows or tensors.
    static placement of_drafter(const dflash_engine_params & params, const drafter_devices & devices);

    placement()                                  = default;
    placement(placement &&) noexcept             = default;
    placement & operator=(placement &&) noexcept = default;

    // Where the drafter follows its target, once that is loaded.
    void settle(const llama_model * target);
    // The devices where none are named, ended by null; empty: llama.cpp chooses.
    void prefer(const std::vector<ggml_backend_dev_t> & devices);
    // Those of the model, before prefer(), without null: the named ones, or of the known ones. With main_gpu below 0 it
    // is on the CPU.
    std::vector<ggml_backend_dev_t> devices_of(const std::vector<ggml_backend_dev_t> & known) const;
    void                            apply(llama_model_params & params) const;
    bool                            splits_tensors_over_rpc() const;

  private:
    void read_overrides(const char * text, const char * field, const std::vector<ggml_backend_dev_t> & known);
    void keep_experts_on_cpu(const dflash_engine_params & params);
    void add_override(const std::string & pattern, ggml_backend_buffer_type_t type);
    void check_split(const std::vector<ggml_backend_dev_t> & known) const;
    void check_overrides(const char * field, const std::vector<ggml_backend_dev_t> & devices) const;

    std::vector<ggml_backend_dev_t>               devices_;   // ends with null; empty: llama.cpp chooses
    std::vector<ggml_backend_dev_t>               beside_;    // of a drafter
    std::vector<float>                            shares_;    // of each device; empty: by free memory
    std::list<std::string>                        patterns_;
    std::vector<llama_model_tensor_buft_override> overrides_;   // ends with null; empty: none
    llama_split_mode                              split_mode_   = LLAMA_SPLIT_MODE_LAYER;
    int32_t                                       n_gpu_layers_ = -1, main_gpu_ = 0;
    bool                                          follows_ = false;
};

}   // namespace dflash
