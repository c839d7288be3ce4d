// Which RPC servers failed, by their addresses ("host:port").

#pragma once

#include <string>

namespace dflash {

// A connection to the server failed, and lives on without it; of several sentences the first is kept.
void keep_failure(const std::string & endpoint, const std::string & why);
// Such a connection has ended.
void end_failed(const std::string & endpoint);

}   // namespace dflash

// One sentence about the server, null if no connection to it failed. Lasts until the thread's next call. forget: first
// forget failures of connections that have ended. Others find it by this name, as a proc address of the RPC backend.
extern "C" const char * dflash_rpc_failure(const char * endpoint, bool forget);
