// One small pool of threads, shared by all callers.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lunette {

int num_threads();
void set_num_threads(int n);  // n >= 1

// Runs task(data, 0), ..., task(data, tasks - 1) in any order and returns when all are done. A caller who finds
// the pool busy, or calls from within a task, does the work alone.
void run_tasks(std::int64_t tasks, void (*task)(void*, std::int64_t), void* data);

template <class F>
inline void parallel_for(std::int64_t tasks, F f) {
    run_tasks(tasks, [](void* data, std::int64_t i) { (*static_cast<F*>(data))(i); }, &f);
}

// Working memory of the calling thread, 64-byte aligned, kept for the next call: one live use per thread and slot.
void* scratch(std::size_t bytes, int slot = 0);
constexpr int scratch_slots = 4;

}  // namespace lunette
