// A compiled graph: tasks in order, and where in memory each of their arguments lies.
#pragma once
#include <cstdlib>
#include <memory>
#include <mutex>
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
    struct Free {
        void operator()(char* p) const { std::free(p); }
    };
    using Memory = std::unique_ptr<char, Free>;
    mutable std::mutex lock_;
    mutable std::vector<Memory> idle_;  // arenas that no call is using
};

}  // namespace lunette
