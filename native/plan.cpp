#include "plan.hpp"

#include <chrono>
#include <new>

namespace lunette {

Plan::Plan(std::vector<Step> steps, std::vector<Slot> slots, std::vector<Argument> arguments, i64 arena)
    : steps_(std::move(steps)), slots_(std::move(slots)), arguments_(std::move(arguments)), arena_(arena) {
    auto need = [](bool ok) {
        if (!ok) throw std::invalid_argument("the steps do not fit the memory of the plan");
    };
    for (const auto& [task, own] : steps_) {
        need(own.size() == task.args.size());
        for (std::size_t i = 0; i < own.size(); ++i) {
            const Arg& arg = task.args[i];
            if (arg.code == 0) continue;
            if (own[i] < 0) {
                need(arg.optional);
                continue;
            }
            need(own[i] < i64(slots_.size()));
            const auto& [argument, offset] = slots_[own[i]];
            need(argument < i64(arguments_.size()) && offset >= 0 && offset % 8 == 0);
            need(argument < 0 || !arg.write || std::get<1>(arguments_[argument]));
            i64 room = argument < 0 ? arena_ : std::get<0>(arguments_[argument]);
            need(offset + arg.count * size_of(arg.code) <= room);
        }
    }
}

void Plan::run(char* const* arguments, double* seconds) const {
    const auto give_back = [this](char* p) { idle_->give(p); };
    std::unique_ptr<char, decltype(give_back)> arena(idle_->take(), give_back);
    if (!arena && arena_ > 0) {
        arena.reset(static_cast<char*>(std::aligned_alloc(64, static_cast<std::size_t>((arena_ + 63) / 64 * 64))));
        if (!arena) throw std::bad_alloc();
    }
    std::vector<void*> own;
    using Clock = std::chrono::steady_clock;
    auto then = seconds ? Clock::now() : Clock::time_point();
    for (const auto& [task, places] : steps_) {
        own.clear();
        for (int s : places) {
            if (s < 0) {
                own.push_back(nullptr);
                continue;
            }
            const auto& [argument, offset] = slots_[s];
            own.push_back((argument < 0 ? arena.get() : arguments[argument]) + offset);
        }
        task.run(own.data());
        if (seconds) {
            auto now = Clock::now();
            *seconds++ = std::chrono::duration<double>(now - then).count();
            then = now;
        }
    }
}

}  // namespace lunette
