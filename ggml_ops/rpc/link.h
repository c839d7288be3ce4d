// The client's end of a connection to an RPC server: it sends the messages of ggml's RPC backend, receives the answers,
// and outlives the server.
//
// A failed connection is lost for good: its messages then do nothing and answers are zeros. Nothing aborts; what waits
// for a server that hangs, whose machine still responds, waits until somebody hangs up (RPC_HANG_UP). Callers check for
// failures after computing (dflash_rpc_failure). A new connection to the server can be made once this one is no longer
// used.

#pragma once

#include "rpc/failures.h"
#include "rpc/own_ops.h"
#include "transport.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace dflash {

struct rpc_message {
    uint8_t               command;
    bool                  is_empty;   // nothing is sent: done when all messages before it are
    const void *          input;
    size_t                n_input;    // bytes
    void *                output;     // null: the server sends no answer
    size_t                n_output;   // bytes
    std::function<void()> done;
};

// The version in a server's greeting, and what it reports about our ops (own_ops.h).
struct rpc_greeting {
    uint8_t major, minor, patch, own_ops;
};

class rpc_link {
  public:
    ~rpc_link();

    // socket: null if connecting failed. greet: exchanges greetings and calls meets().
    void start(const std::string & endpoint, socket_ptr socket, const std::function<bool()> & greet);
    // Whether the server is compatible. answered: whether it answered at all.
    bool meets(bool answered, const rpc_greeting & theirs);

    // Sends messages in call order, from one thread. Requests are sent without waiting for earlier answers.
    void pass(const rpc_message & message);

    bool is_lost() const { return lost_; }
    // Whether it depends on the server if an op can be computed there: of the others it has all.
    static bool asks(const ggml_tensor * op);
    // Of such an op.
    bool has_op(const ggml_tensor * op) const;
    // To be held from the choice of a graph's message until that is passed: "the same again" is what was passed last,
    // by whichever engine.
    std::mutex & graph_order() { return graph_order_; }

  private:
    bool send(const rpc_message & message);
    bool receive(const rpc_message & message);
    void wait_for_answer(const rpc_message & message);
    void receive_all();
    void lose(const std::string & why);

    std::string       endpoint_;
    socket_ptr        socket_;
    intptr_t          handle_ = -1;   // the socket's, while it may be hung up
    std::atomic<bool> lost_{ false };
    uint8_t           abilities_ = 0;   // a stock server's: it does not tell
    std::string       refusal_;         // what is wrong with the server's greeting
    std::mutex        graph_order_;

    std::thread             receiver_;
    std::mutex              mutex_;   // guards the next three
    std::condition_variable changed_;
    std::deque<rpc_message> unanswered_;
    bool                    ends_ = false;
};

}   // namespace dflash
