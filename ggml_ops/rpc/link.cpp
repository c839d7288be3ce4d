#include "rpc/link.h"

#include "gdn/gdn_tree.h"
#include "rpc/socket_limits.h"

#include "ggml-impl.h"
#include "ggml-rpc.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

namespace dflash {

namespace {

// Messages up to this size are appended to their header, so that they are sent in one packet.
constexpr size_t SMALL = 64 * 1024;

std::string version(int major, int minor, int patch, bool own) {
    return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch) +
           (own ? " of dflash-local" : "");
}

}   // namespace

rpc_link::~rpc_link() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    if (receiver_.joinable()) {
        receiver_.join();
    }
    if (handle_ != -1) {
        end_socket(endpoint_, handle_);
    }
    if (lost_) {
        end_failed(endpoint_);
    }
}

void rpc_link::start(const std::string & endpoint, socket_ptr socket, const std::function<bool()> & greet) {
    endpoint_ = endpoint;
    socket_   = std::move(socket);
    if (!socket_) {
        lose("the RPC server " + endpoint_ + " cannot be reached: " + rpc_why());
    } else if (!greet()) {
        lose("the RPC server " + endpoint_ + " " + refusal_);
    } else {
        handle_ = rpc_greeted();
        keep_socket(endpoint_, handle_);
    }
    receiver_ = std::thread([this] { receive_all(); });
}

// Numbers, above all those of ops, have other meanings in other versions: such a server would compute something else.
// Stock servers of the pinned llama.cpp have all ops except ours.
bool rpc_link::meets(bool answered, const rpc_greeting & theirs) {
    if (!answered) {
        refusal_ = "does not answer as one: it serves another program, which only one may do at a time, speaks another "
                   "version of llama.cpp's protocol, or is none";
        return false;
    }
    const bool own = theirs.own_ops & OWN_BUILD;
    const bool same =
        own ? theirs.patch == RPC_PROTO_PATCH_VERSION && (theirs.own_ops & ~ABILITIES) == (OWN_BUILD | OWN_OPS)
            : theirs.patch == 0;
    const bool fits = same && theirs.major == RPC_PROTO_MAJOR_VERSION && theirs.minor == RPC_PROTO_MINOR_VERSION;
    if (!fits) {
        refusal_ = "speaks RPC " + version(theirs.major, theirs.minor, theirs.patch, own) + ", and this build " +
                   version(RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION, RPC_PROTO_PATCH_VERSION, true) +
                   ": run the same version on both machines";
        return false;
    }
    abilities_ = own ? theirs.own_ops & ABILITIES : 0;
    return true;
}

static bool is_ours(const ggml_tensor * op) { return op->op == GGML_OP_GDN_TREE || op->op == GGML_OP_GDN_COMMIT; }

bool rpc_link::asks(const ggml_tensor * op) {
    switch (op->op) {
        case GGML_OP_ARGMAX:
        case GGML_OP_TOP_K: return true;
        case GGML_OP_UNARY: return ggml_get_unary_op(op) == GGML_UNARY_OP_FLOOR;
        case GGML_OP_GET_ROWS: return ggml_is_quantized(op->src[0]->type);
        default: return is_ours(op);
    }
}

bool rpc_link::has_op(const ggml_tensor * op) const {
    if (is_ours(op)) {
        return (abilities_ & HAS_KERNELS) && ggml_gdn_supported(op);
    }
    if (op->op == GGML_OP_GET_ROWS &&
        std::find(std::begin(EMBEDDED), std::end(EMBEDDED), op->src[0]->type) == std::end(EMBEDDED)) {
        return false;   // CUDA has some other types for some lengths of rows alone
    }
    return !(abilities_ & LACKS_OPS);
}

void rpc_link::pass(const rpc_message & message) {
    if (!message.is_empty && !lost_ && !send(message)) {
        lose("the RPC server " + endpoint_ + " was lost");
    }
    if (message.is_empty || message.output) {
        wait_for_answer(message);
    } else {
        message.done();
    }
}

// | command (1 byte) | size (8 bytes) | data |
bool rpc_link::send(const rpc_message & message) {
    const uint64_t       size  = message.n_input;
    const bool           small = size <= SMALL;
    std::vector<uint8_t> head(1 + sizeof(size) + (small ? size : 0));
    head[0] = message.command;
    std::memcpy(head.data() + 1, &size, sizeof(size));
    if (small && size > 0) {
        std::memcpy(head.data() + 1 + sizeof(size), message.input, size);
    }
    return socket_->send_data(head.data(), head.size()) && (small || socket_->send_data(message.input, size)) &&
           socket_->flush();
}

bool rpc_link::receive(const rpc_message & message) {
    uint64_t size = 0;
    return socket_->recv_data(&size, sizeof(size)) && size == message.n_output &&
           socket_->recv_data(message.output, size);
}

void rpc_link::wait_for_answer(const rpc_message & message) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        unanswered_.push_back(message);
    }
    changed_.notify_all();
}

void rpc_link::receive_all() {
    while (true) {
        rpc_message message;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait(lock, [this] { return ends_ || !unanswered_.empty(); });
            if (unanswered_.empty()) {
                return;
            }
            message = std::move(unanswered_.front());
            unanswered_.pop_front();
        }
        if (!message.is_empty && (lost_ || !receive(message))) {
            lose("the RPC server " + endpoint_ + " was lost");
            std::memset(message.output, 0, message.n_output);
        }
        message.done();
    }
}

// Either thread may be the first to notice.
void rpc_link::lose(const std::string & why) {
    if (!lost_.exchange(true)) {
        GGML_LOG_ERROR("%s\n", why.c_str());
        keep_failure(endpoint_, why);
    }
}

}   // namespace dflash
