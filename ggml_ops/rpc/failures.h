// RPC servers that failed, by address ("host:port").

#pragma once

#include <string>

namespace dflash {

// A connection to the server has failed but still exists; only the first reason is kept.
void keep_failure(const std::string & endpoint, const std::string & why);
// A failed connection was closed.
void end_failed(const std::string & endpoint);

}   // namespace dflash

// The reason why a connection to the server failed, null if none did. Valid until the thread's next call. forget: first
// forget failures of connections that were closed. Found by this name, as a proc address of the RPC backend.
extern "C" const char * dflash_rpc_failure(const char * endpoint, bool forget);
