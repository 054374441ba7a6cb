// A compiled graph: tasks in order, and where in memory each of their arguments lies.
#pragma once
#include <atomic>
#include <cstdlib>
#include <memory>
#include <tuple>

#include "task.hpp"

namespace lunette {

class Plan {
public:
    using Step = std::tuple<Task, std::vector<int>>;  // a task and one slot per argument; -1: absent
    using Slot = std::tuple<int, i64>;      // an argument of the call, or -1 for the arena, and an offset in bytes
    using Argument = std::tuple<i64, bool>;  // its size in bytes, and whether it is written

    // Throws std::invalid_argument unless every argument of every task lies inside its memory.
    Plan(std::vector<Step> steps, std::vector<Slot> slots, std::vector<Argument> arguments, i64 arena);

    const std::vector<Argument>& arguments() const { return arguments_; }
    std::size_t steps() const { return steps_.size(); }

    // `seconds`, if given, gets the time of every step. Several threads may run one plan.
    void run(char* const* arguments, double* seconds) const;

private:
    std::vector<Step> steps_;
    std::vector<Slot> slots_;
    std::vector<Argument> arguments_;
    i64 arena_;
    // Arenas that no call is using. There is no lock: a process that is forked while a thread holds one would find it
    // held for good. A call that finds no place for its arena frees it.
    struct Idle {
        std::atomic<char*> place[8] = {};
        ~Idle() {
            for (auto& p : place) std::free(p.load());
        }
        char* take() {
            for (auto& p : place)
                if (char* found = p.exchange(nullptr)) return found;
            return nullptr;
        }
        void give(char* arena) {
            for (auto& p : place) {
                char* none = nullptr;
                if (p.compare_exchange_strong(none, arena)) return;
            }
            std::free(arena);
        }
    };
    std::unique_ptr<Idle> idle_ = std::make_unique<Idle>();
};

}  // namespace lunette
