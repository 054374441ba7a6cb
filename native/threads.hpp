// One small pool of threads, shared by all callers.
#pragma once
#include <cfenv>
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

// Threads of another runtime: runs part(data, i) for every i < parts, at the same time where it can, and is false where it
// has fewer threads or is at work itself. Its workers spin for a while after its own work, on processors that ours would
// have to wait for. Fork: the child has none of them, and goes back to threads of its own. Null: nobody lends.
using Lend = bool(std::int64_t parts, void (*part)(void*, std::int64_t), void* data);
void borrow_threads(Lend* lend);

// Other runtimes have their threads flush subnormal numbers to zero (XLA does); lunette's results have them.
class PlainFloats {
public:
    PlainFloats() { std::fegetenv(&before_), std::fesetenv(FE_DFL_ENV); }
    PlainFloats(const PlainFloats&) = delete;
    ~PlainFloats() { std::fesetenv(&before_); }

private:
    std::fenv_t before_;
};

// Working memory of the calling thread, 64-byte aligned, kept for the next call: one live use per thread and slot.
void* scratch(std::size_t bytes, int slot = 0);
constexpr int scratch_slots = 4;

}  // namespace lunette
