#include "rpc/failures.h"

#include "rpc/socket_limits.h"

#include <map>
#include <mutex>
#include <set>

namespace {

struct failure {
    std::string why;
    int         n_alive = 0;   // failed connections still in use
};

struct failures {
    std::mutex                                mutex;
    std::map<std::string, failure>            by_endpoint;
    std::map<std::string, std::set<intptr_t>> sockets;
};

failures & all() {
    static failures * const kept = new failures;   // connections may be closed after static objects are destroyed
    return *kept;
}

}   // namespace

namespace dflash {

void keep_failure(const std::string & endpoint, const std::string & why) {
    const std::lock_guard<std::mutex> lock(all().mutex);
    failure &                         kept = all().by_endpoint[endpoint];
    ++kept.n_alive;
    if (kept.why.empty()) {
        kept.why = why;
    }
}

void end_failed(const std::string & endpoint) {
    const std::lock_guard<std::mutex> lock(all().mutex);
    --all().by_endpoint[endpoint].n_alive;
}

void keep_socket(const std::string & endpoint, intptr_t socket) {
    const std::lock_guard<std::mutex> lock(all().mutex);
    all().sockets[endpoint].insert(socket);
}

void end_socket(const std::string & endpoint, intptr_t socket) {
    const std::lock_guard<std::mutex> lock(all().mutex);
    all().sockets[endpoint].erase(socket);
}

}   // namespace dflash

const char * dflash_rpc_failure(const char * endpoint, int order) {
    static thread_local std::string   sentence;
    const std::lock_guard<std::mutex> lock(all().mutex);
    if (order == dflash::RPC_HANG_UP) {
        for (const intptr_t socket : all().sockets[endpoint]) {
            dflash::rpc_hang_up(socket);
        }
    }
    const auto found = all().by_endpoint.find(endpoint);
    if (found == all().by_endpoint.end()) {
        return nullptr;
    }
    if (order == dflash::RPC_FORGET && found->second.n_alive == 0) {
        all().by_endpoint.erase(found);
        return nullptr;
    }
    sentence = found->second.why;
    return sentence.c_str();
}
