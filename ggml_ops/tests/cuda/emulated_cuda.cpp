#include "cuda/emulated_backend.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER   // as GCC says it, and below as Clang does
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER
#endif
#endif
#if defined(ADDRESS_SANITIZER) && !__has_include(<sanitizer/common_interface_defs.h>)
#undef ADDRESS_SANITIZER   // clang-tidy reads GCC's commands without GCC's headers
#endif
#ifdef ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

int   emulated_launches = 0;
uint3 threadIdx, blockIdx;
dim3  blockDim, gridDim;

namespace emulated_cuda {

turn_order    order = turn_order::ascending;
std::set<int> barrier_lines;
int           missing_line = 0;

namespace {

constexpr size_t STACK_BYTES = 32 << 10;   // small: AddressSanitizer clears a stack's shadow at every switch
constexpr size_t GUARD_BYTES = 4 << 10;    // below it: stops stack overflows

// A stack and the code that runs on it. AddressSanitizer is notified of every switch.
struct fiber {
    ucontext_t context;
    void *     stack     = nullptr;   // null: the stack of the launch itself
    void *     sanitizer = nullptr;

    bool ended = false;

    fiber() = default;
    ~fiber() {
        if (stack) {
            munmap((char *) stack - GUARD_BYTES, GUARD_BYTES + STACK_BYTES);
        }
    }
    fiber(const fiber &)             = delete;
    fiber & operator=(const fiber &) = delete;

    explicit fiber(void (*entry)()) {
        void * memory =
            mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE)) {
            throw std::runtime_error("emulated CUDA: no memory for a thread's stack");
        }
        stack = (char *) memory + GUARD_BYTES;
        getcontext(&context);
        context.uc_stack.ss_sp   = stack;
        context.uc_stack.ss_size = STACK_BYTES;
        context.uc_link          = nullptr;
        makecontext(&context, entry, 0);
    }
};

#ifdef ADDRESS_SANITIZER
const void * launch_stack;
size_t       launch_stack_bytes;

void before_switch(fiber & from, const fiber & to) {
    __sanitizer_start_switch_fiber(
        &from.sanitizer, to.stack ? to.stack : launch_stack, to.stack ? STACK_BYTES : launch_stack_bytes);
}
void after_switch(fiber & self, bool from_launch) {
    __sanitizer_finish_switch_fiber(
        self.sanitizer, from_launch ? &launch_stack : nullptr, from_launch ? &launch_stack_bytes : nullptr);
}
#else
void before_switch(fiber &, const fiber &) {}
void after_switch(fiber &, bool) {}
#endif

// Threads that wait for each other: a block, or the lanes of a warp.
struct meeting {
    uint32_t arrived = 0, round = 0;
    int      line = 0;   // of the barrier that they are waiting at
};

struct warp_meeting : meeting {
    uint64_t given[2][WARP];   // by the parity of the round: slow lanes may still be reading the previous one
};

using warp = std::map<uint32_t, warp_meeting>;   // by mask

struct block {
    std::vector<std::unique_ptr<fiber>> threads;
    std::vector<warp>                   warps;
    std::vector<copies>                 started;   // by thread
    std::unique_ptr<char[]>             shared;
    meeting                             all;
    fiber                               launch;
    const std::function<void()> *       thread = nullptr;
    std::string                         error;
    uint32_t at = 0, n = 0, n_ended = 0, n_idle = 0;   // idle: consecutive turns without progress
    bool     from_launch = false;
};

block now;

void name_thread() {
    threadIdx = { now.at % blockDim.x, now.at / blockDim.x % blockDim.y, now.at / blockDim.x / blockDim.y };
}

void switch_to(fiber & from, fiber & to) {
    before_switch(from, to);
    swapcontext(&from.context, &to.context);
    after_switch(from, false);
}

// Ends the launch: no thread runs again.
[[noreturn]] void stop(const char * format, int a = 0, int b = 0) {
    char error[160];   // not on the heap: this frame is never left
    std::snprintf(error, sizeof error, format, a, b);
    now.error = error;
    switch_to(*now.threads[now.at], now.launch);
    throw std::logic_error("emulated CUDA: a thread ran after its end");
}

// Switches to the next thread that has not ended.
void pass_turn() {
    fiber &        from = *now.threads[now.at];
    const uint32_t step = order == turn_order::ascending ? 1 : now.n - 1;
    if (++now.n_idle > now.n) {
        stop("threads wait for one another, and none can go on");
    }
    do {
        now.at = (now.at + step) % now.n;
    } while (now.threads[now.at]->ended);
    name_thread();
    fiber & to = *now.threads[now.at];
    if (&to != &from) {
        switch_to(from, to);
    }
}

// Returns when the thread of the next block begins.
void end_thread() {
    fiber & self = *now.threads[now.at];
    now.n_idle   = 0;
    self.ended   = true;
    if (++now.n_ended == now.n) {
        switch_to(self, now.launch);
        return;
    }
    if (now.all.arrived) {
        stop("thread %d has ended while others wait at the barrier in line %d", (int) now.at, now.all.line);
    }
    pass_turn();
}

void run_thread() {
    after_switch(*now.threads[now.at], now.from_launch);
    for (;;) {
        now.from_launch = false;
        (*now.thread)();
        end_thread();
    }
}

// Waits until `expected` threads are here. The last one waits for its turn too, so that the order starts again.
void meet(meeting & m, uint32_t expected) {
    const uint32_t round = m.round;
    now.n_idle           = 0;
    if (++m.arrived == expected) {
        m.arrived = 0;
        ++m.round;
        pass_turn();
        return;
    }
    do {
        pass_turn();
    } while (m.round == round);
}

warp_meeting & lanes(uint32_t mask) {
    if (!(mask >> lane() & 1)) {
        stop("lane %d is not in its own mask", lane());
    }
    return now.warps[now.at / WARP][mask];
}

void run_block(dim3 size, size_t shared_bytes) {
    now.n       = size.x * size.y * size.z;
    now.n_ended = now.n_idle = 0;
    now.all                  = meeting();
    now.warps.assign((now.n + WARP - 1) / WARP, warp());
    now.started.assign(now.n, copies());
    now.shared.reset(new char[shared_bytes]);
    std::memset(now.shared.get(), 0xff, shared_bytes);
    while (now.threads.size() < now.n) {
        now.threads.push_back(std::make_unique<fiber>(run_thread));
    }
    for (uint32_t i = 0; i < now.n; ++i) {
        now.threads[i]->ended = false;
    }
    now.at          = order == turn_order::ascending ? 0 : now.n - 1;
    now.from_launch = true;
    name_thread();
    switch_to(now.launch, *now.threads[now.at]);
}

}   // namespace

void run_grid(dim3 grid, dim3 size, size_t shared_bytes, const std::function<void()> & thread) {
    gridDim    = grid;
    blockDim   = size;
    now.thread = &thread;
    now.error.clear();
    for (uint32_t z = 0; z < grid.z && now.error.empty(); ++z)
        for (uint32_t y = 0; y < grid.y && now.error.empty(); ++y)
            for (uint32_t x = 0; x < grid.x && now.error.empty(); ++x) {
                blockIdx = { x, y, z };
                run_block(size, shared_bytes);
            }
    now.shared.reset();
    if (!now.error.empty()) {
        now.threads.clear();   // they stay wherever they are
        throw std::runtime_error("emulated CUDA: " + now.error);
    }
}

void * shared_memory() { return now.shared.get(); }

void block_barrier(int line) {
    barrier_lines.insert(line);
    if (line == missing_line) {
        return;
    }
    if (now.n_ended) {
        stop("%d threads have ended while others wait at the barrier in line %d", (int) now.n_ended, line);
    }
    if (now.all.arrived && now.all.line != line) {
        stop("threads wait at the barriers in lines %d and %d", now.all.line, line);
    }
    now.all.line = line;
    meet(now.all, now.n);
}

copies & copies_of_thread() { return now.started[now.at]; }

int lane() { return (int) (now.at % WARP); }

void warp_barrier(uint32_t mask) { meet(lanes(mask), (uint32_t) __builtin_popcount(mask)); }

const uint64_t * warp_exchange(uint32_t mask, uint64_t given) {
    warp_meeting & w    = lanes(mask);
    uint64_t *     slot = w.given[w.round % 2];
    slot[lane()]        = given;
    meet(w, (uint32_t) __builtin_popcount(mask));
    return slot;
}

}   // namespace emulated_cuda
