#include "threads.hpp"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>

namespace lunette {
namespace {

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Work that threads take from, one task at a time.
class Job {
public:
    void begin(std::int64_t tasks, void (*task)(void*, std::int64_t), void* data) {
        tasks_ = tasks, task_ = task, data_ = data, error_ = nullptr;
        next_.store(0, std::memory_order_relaxed);
    }

    void take() {
        try {
            for (std::int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_;) task_(data_, i);
        } catch (...) {
            std::lock_guard lock(mutex_);
            if (!error_) error_ = std::current_exception();
        }
    }

    // When all who took are done: what the first of them threw.
    std::exception_ptr failure() { return std::exchange(error_, nullptr); }

private:
    std::atomic<std::int64_t> next_{0};
    std::int64_t tasks_ = 0;
    void (*task_)(void*, std::int64_t) = nullptr;
    void* data_ = nullptr;
    std::exception_ptr error_;
    std::mutex mutex_;
};

// Whether this thread is doing a task: what it calls then, it does alone.
bool& inside_task() {
    thread_local bool inside = false;
    return inside;
}

class Inside {
public:
    Inside() { inside_task() = true; }
    Inside(const Inside&) = delete;
    ~Inside() { inside_task() = false; }
};

constexpr int most_threads = 256;
constexpr auto spin_time = std::chrono::microseconds(30);

// state = open bit + number of workers inside the job. A worker enters by adding one and reads the job only if the
// bit was set; the caller clears the bit and waits until all have left, so the job's fields never change under one.
class Workers {
public:
    bool try_run(std::int64_t tasks, void (*task)(void*, std::int64_t), void* data, int helpers) {
        if (busy_.exchange(true, std::memory_order_acquire)) return false;
        while (started_ < helpers) {
            try {
                std::thread(&Workers::work, this, started_).detach();
            } catch (const std::system_error&) {
                break;  // no more threads to be had: go on with those there are
            }
            ++started_;
        }
        keep_off_this_cpu(std::min(helpers, started_));
        job_.begin(tasks, task, data), helpers_ = helpers;
        state_.fetch_add(open);
        generation_.fetch_add(1);
        if (sleeping_.load() > 0) {
            { std::lock_guard lock(mutex_); }
            wake_.notify_all();
        }
        job_.take();
        state_.fetch_sub(open);
        for (int tries = 0; state_.load(std::memory_order_acquire) != 0; ++tries)
            if (tries < 4000) pause(); else std::this_thread::yield();
        const std::exception_ptr error = job_.failure();
        busy_.store(false, std::memory_order_release);
        if (error) std::rethrow_exception(error);
        return true;
    }

private:
    static constexpr int open = 1 << 20;

    // A worker that wakes on the caller's own processor gets its turn when the caller has done everything. The system
    // leaves it there as long as no other processor is idle, so it is told to go elsewhere.
    void keep_off_this_cpu(int helpers) {
        int here = sched_getcpu();
        for (int i = 0; i < helpers; ++i) {
            Place& worker = places_[i];
            if (worker.cpu.load(std::memory_order_relaxed) != here) continue;
            cpu_set_t set;
            if (sched_getaffinity(0, sizeof set, &set) != 0) return;
            CPU_CLR(here, &set);
            if (CPU_COUNT(&set) == 0) return;
            sched_setaffinity(worker.thread.load(std::memory_order_relaxed), sizeof set, &set);
        }
    }

    void work(int me) {
        const Inside inside;
        std::fesetenv(FE_DFL_ENV);  // not that of the thread which happened to begin this one
        places_[me].thread.store(gettid(), std::memory_order_relaxed);
        std::uint64_t seen = 0;
        for (;;) {
            auto until = std::chrono::steady_clock::now() + spin_time;
            while (generation_.load(std::memory_order_acquire) == seen && std::chrono::steady_clock::now() < until)
                for (int i = 0; i < 16; ++i) pause();
            if (generation_.load() == seen) {
                std::unique_lock lock(mutex_);
                sleeping_.fetch_add(1);
                wake_.wait(lock, [&] { return generation_.load() != seen; });
                sleeping_.fetch_sub(1);
            }
            seen = generation_.load();
            places_[me].cpu.store(sched_getcpu(), std::memory_order_relaxed);
            if (state_.fetch_add(1) >= open && me < helpers_) job_.take();
            state_.fetch_sub(1, std::memory_order_release);
        }
    }

    struct Place {
        std::atomic<pid_t> thread{0};
        std::atomic<int> cpu{-1};  // where it ran last
    };

    std::atomic<bool> busy_{false};
    std::atomic<int> state_{0}, sleeping_{0};
    std::atomic<std::uint64_t> generation_{0};
    Job job_;
    int helpers_ = 0, started_ = 0;
    Place places_[most_threads];
    std::mutex mutex_;
    std::condition_variable wake_;
};

// Never destroyed: workers sleep in it until the process ends. A forked child has none of the threads, so it
// forgets the parent's pool and starts its own.
std::atomic<Workers*> the_workers{nullptr};
std::atomic<Lend*> lender{nullptr};
// As the library is loaded, not at first use: a child that is forked in the middle of that would wait for it.
[[maybe_unused]] const int forgotten_in_children =
    pthread_atfork(nullptr, nullptr, [] { the_workers.store(nullptr), lender.store(nullptr); });

Workers& workers() {
    if (Workers* w = the_workers.load(std::memory_order_acquire)) return *w;
    auto fresh = std::make_unique<Workers>();
    Workers* none = nullptr;
    if (the_workers.compare_exchange_strong(none, fresh.get())) return *fresh.release();
    return *none;
}

int default_threads() {
    if (const char* text = std::getenv("OMP_NUM_THREADS"))
        if (int n = std::atoi(text); n >= 1) return std::min(n, most_threads);
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::clamp(CPU_COUNT(&set), 1, most_threads);
    return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, most_threads);
}

std::atomic<int> wanted{0};

struct Buffer {
    void* data = nullptr;
    std::size_t size = 0;
    ~Buffer() { ::operator delete(data, std::align_val_t(64)); }
};

}  // namespace

int num_threads() {
    int n = wanted.load(std::memory_order_relaxed);
    if (n == 0) {
        n = default_threads();
        int none = 0;
        if (!wanted.compare_exchange_strong(none, n)) n = none;
    }
    return n;
}

void set_num_threads(int n) { wanted.store(std::clamp(n, 1, most_threads)); }

void borrow_threads(Lend* lend) { lender.store(lend); }

namespace {

// Whether it was done by threads of another runtime.
bool run_on_borrowed(std::int64_t tasks, void (*task)(void*, std::int64_t), void* data, int threads) {
    Lend* const lend = lender.load(std::memory_order_acquire);
    if (!lend) return false;
    Job job;
    job.begin(tasks, task, data);
    const auto part = [](void* job, std::int64_t) {
        const PlainFloats plain;
        const Inside inside;
        static_cast<Job*>(job)->take();
    };
    if (!lend(threads, part, &job)) return false;
    if (const std::exception_ptr error = job.failure()) std::rethrow_exception(error);
    return true;
}

}  // namespace

void run_tasks(std::int64_t tasks, void (*task)(void*, std::int64_t), void* data) {
    const int threads = static_cast<int>(std::min<std::int64_t>(num_threads(), tasks));
    if (threads > 1 && !inside_task()) {
        if (run_on_borrowed(tasks, task, data, threads)) return;
        const Inside inside;
        if (workers().try_run(tasks, task, data, threads - 1)) return;
    }
    for (std::int64_t i = 0; i < tasks; ++i) task(data, i);
}

void* scratch(std::size_t bytes, int slot) {
    thread_local Buffer buffers[scratch_slots];
    Buffer& b = buffers[slot];
    if (b.size < bytes) {
        ::operator delete(b.data, std::align_val_t(64));
        b.data = nullptr, b.size = 0;
        b.data = ::operator new(bytes + bytes / 4, std::align_val_t(64));
        b.size = bytes + bytes / 4;
    }
    return b.data;
}

}  // namespace lunette
