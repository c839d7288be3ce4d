// What becomes of connections to RPC servers, by address ("host:port"): those that failed, and those that still live.

#pragma once

#include <cstdint>
#include <string>

namespace dflash {

// A connection to the server has failed but still exists; only the first reason is kept.
void keep_failure(const std::string & endpoint, const std::string & why);
// A failed connection was closed.
void end_failed(const std::string & endpoint);
// A connection lives from the one to the other.
void keep_socket(const std::string & endpoint, intptr_t socket);
void end_socket(const std::string & endpoint, intptr_t socket);

// What to do before telling why a server failed: nothing, forget failures of connections that were closed, or hang up,
// so that whoever waits for it goes on as if it were lost.
enum rpc_order : int { RPC_ASK, RPC_FORGET, RPC_HANG_UP };

}   // namespace dflash

// The reason why a connection to the server failed, null if none did. Valid until the thread's next call. order: an
// rpc_order. Found by this name, as a proc address of the RPC backend.
extern "C" const char * dflash_rpc_failure(const char * endpoint, int order);
