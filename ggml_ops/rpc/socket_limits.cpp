#include "rpc/socket_limits.h"

#ifdef _WIN32
#include <winsock2.h>
#include <ws2tcpip.h>
#else
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#endif

#include <cerrno>
#include <system_error>

namespace dflash {

namespace {

constexpr int PATIENCE_MS = 10000;   // a client's timeout of connecting and of the greeting
constexpr int GREETING_MS = 5000;    // a server's of the greeting: whoever waits behind is still served in time
// 10 s of silence, then 4 probes 5 s apart
constexpr int IDLE_SECONDS = 10, PROBE_SECONDS = 5, N_PROBES = 4;

thread_local std::string why;
thread_local intptr_t    greeted = -1;

#ifdef _WIN32
using os_socket = SOCKET;
int  last_error() { return WSAGetLastError(); }
bool in_progress(int code) { return code == WSAEWOULDBLOCK; }
int  wait_for(WSAPOLLFD & what) { return WSAPoll(&what, 1, PATIENCE_MS); }
void set_blocking(os_socket s, bool blocking) {
    u_long nonblocking = !blocking;
    ioctlsocket(s, FIONBIO, &nonblocking);
}
void set_patience(os_socket s, int ms) {
    const DWORD limit = ms;
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, (const char *) &limit, sizeof(limit));
}
using poll_entry = WSAPOLLFD;
#else
using os_socket = int;
int  last_error() { return errno; }
bool in_progress(int code) { return code == EINPROGRESS; }
int  wait_for(pollfd & what) { return poll(&what, 1, PATIENCE_MS); }
void set_blocking(os_socket s, bool blocking) {
    int nonblocking = !blocking;
    ioctl(s, FIONBIO, &nonblocking);
}
void set_patience(os_socket s, int ms) {
    const timeval limit = { ms / 1000, (ms % 1000) * 1000 };
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}
using poll_entry = pollfd;
#endif

void set_option(os_socket s, int level, int name, int value) {
    setsockopt(s, level, name, (const char *) &value, sizeof(value));
}

// Treats a peer as gone half a minute after its machine or network fails.
void watch_peer(os_socket s) {
    set_option(s, SOL_SOCKET, SO_KEEPALIVE, 1);
#if defined(TCP_KEEPIDLE)
    set_option(s, IPPROTO_TCP, TCP_KEEPIDLE, IDLE_SECONDS);
#elif defined(TCP_KEEPALIVE)
    set_option(s, IPPROTO_TCP, TCP_KEEPALIVE, IDLE_SECONDS);
#endif
#if defined(TCP_KEEPINTVL) && defined(TCP_KEEPCNT)
    set_option(s, IPPROTO_TCP, TCP_KEEPINTVL, PROBE_SECONDS);
    set_option(s, IPPROTO_TCP, TCP_KEEPCNT, N_PROBES);
#endif
#if defined(TCP_USER_TIMEOUT)   // timeout of unacknowledged data, in milliseconds
    set_option(s, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * (IDLE_SECONDS + PROBE_SECONDS * N_PROBES));
#endif
}

bool failed(int code) {
    why = std::system_category().message(code);
    return false;
}

bool connect_in_time(os_socket s, const void * address, size_t size) {
    if (connect(s, (const sockaddr *) address, (int) size) == 0) {
        return true;
    }
    if (const int code = last_error(); !in_progress(code)) {
        return failed(code);
    }
    poll_entry what = {};
    what.fd         = s;
    what.events     = POLLOUT;
    if (wait_for(what) <= 0) {
        why = "no answer within " + std::to_string(PATIENCE_MS / 1000) + " s";
        return false;
    }
    int       code = 0;
    socklen_t n    = sizeof(code);
    getsockopt(s, SOL_SOCKET, SO_ERROR, (char *) &code, &n);
    return code == 0 || failed(code);
}

}   // namespace

bool rpc_connect(intptr_t socket, const void * address, size_t size) {
    const os_socket s = (os_socket) socket;
    set_blocking(s, false);
    const bool connected = connect_in_time(s, address, size);
    set_blocking(s, true);
    if (connected) {
        watch_peer(s);
        set_patience(s, PATIENCE_MS);
    }
    return connected;
}

void rpc_await_greeting(intptr_t socket) {
    watch_peer((os_socket) socket);
    set_patience((os_socket) socket, GREETING_MS);
}

void rpc_end_handshake(intptr_t socket) {
    set_patience((os_socket) socket, 0);
    greeted = socket;
}

void rpc_drop(intptr_t socket, const char * reason) {
#ifdef _WIN32
    closesocket((os_socket) socket);
#else
    close((os_socket) socket);
#endif
    why = reason;
}

void rpc_hang_up(intptr_t socket) {
#ifdef _WIN32
    shutdown((os_socket) socket, SD_BOTH);
#else
    shutdown((os_socket) socket, SHUT_RDWR);
#endif
}

intptr_t rpc_greeted() { return greeted; }

const std::string & rpc_why() { return why; }

}   // namespace dflash
