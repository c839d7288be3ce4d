// The client's end of a connection to an RPC server: it sends the messages of ggml's RPC backend, fetches their
// answers, and outlives the server.
//
// A connection that fails is lost for good: from then on its messages do nothing, and answers are zeros. Nothing
// aborts, and nobody waits for ever. Whoever computes asks for failures afterwards (dflash_rpc_failure). The next
// connection to the server begins anew, once nobody uses this one.

#pragma once

#include "rpc/failures.h"
#include "transport.h"

#include <array>
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
    bool                  is_empty;   // nothing is sent: it is done when all before it are
    const void *          input;
    size_t                n_input;    // bytes
    void *                output;     // null: the server does not answer
    size_t                n_output;   // bytes
    std::function<void()> done;
};

// The version in a server's greeting, and what it tells of our ops (own_ops.h).
struct rpc_greeting {
    uint8_t major, minor, patch, own_ops;
};

class rpc_link {
  public:
    ~rpc_link();

    // socket: null if no connection came about. greet: exchanges greetings, and calls meets().
    void start(const std::string & endpoint, socket_ptr socket, const std::function<bool()> & greet);
    // Whether the server speaks as we do. answered: it did at all.
    bool meets(bool answered, const rpc_greeting & theirs);

    // In the order of the calls, which one thread makes. Requests leave without waiting for the answers to those before
    // them.
    void pass(const rpc_message & message);

    bool is_lost() const { return lost_; }
    bool has_own_ops() const { return own_ops_; }

  private:
    bool send(const rpc_message & message);
    bool receive(const rpc_message & message);
    void wait_for_answer(const rpc_message & message);
    void receive_all();
    void lose(const std::string & why);

    std::string       endpoint_;
    socket_ptr        socket_;
    std::atomic<bool> lost_{ false };
    bool              own_ops_ = false;
    std::string       refusal_;   // what is wrong with the server's greeting

    std::thread             receiver_;
    std::mutex              mutex_;   // guards the next three
    std::condition_variable changed_;
    std::deque<rpc_message> unanswered_;
    bool                    ends_ = false;
};

}   // namespace dflash
