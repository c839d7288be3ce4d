// Timeouts of ggml's RPC sockets: for connecting, for the greeting, and for a machine that no longer responds.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dflash {

// connect() with a timeout of some seconds, which also applies to the greeting that follows. false: rpc_why() says why.
// From then on the peer counts as gone half a minute after its machine or network fails.
bool rpc_connect(intptr_t socket, const void * address, size_t size);
// The same two limits for a client that a server has accepted: it serves nobody else while it waits for its greeting.
void rpc_await_greeting(intptr_t socket);
// Call after the greetings: from here on, messages have no timeout.
void rpc_end_handshake(intptr_t socket);
// Closes the socket; rpc_why() then returns `why`.
void rpc_drop(intptr_t socket, const char * why);
// Ends what waits for it, on any thread: the peer seems to have hung up.
void rpc_hang_up(intptr_t socket);
// The socket of the thread's last greeting.
intptr_t rpc_greeted();

// Why the thread's last connection failed.
const std::string & rpc_why();

}   // namespace dflash
