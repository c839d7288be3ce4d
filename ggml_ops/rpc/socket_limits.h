// How long ggml's RPC sockets wait: for a connection, for a greeting, and for a machine that has gone without a word.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dflash {

// connect() that gives up after some seconds; the greeting that follows may take as long. false: rpc_why() says why.
bool rpc_connect(intptr_t socket, const void * address, size_t size);
// Greetings were exchanged: from here on answers take as long as they take.
void rpc_end_handshake(intptr_t socket);
// A peer whose machine or network is gone counts as gone after half a minute.
void rpc_watch_peer(intptr_t socket);
// Close it; `why` is what rpc_why() says.
void rpc_drop(intptr_t socket, const char * why);

// Why the thread's last connection did not come about.
const std::string & rpc_why();

}   // namespace dflash
