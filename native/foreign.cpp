#include "foreign.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "plan.hpp"
#include "threads.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace lunette {
namespace {

// What compiled code may call is kept as long as the process lives, since nobody says when that code is gone; and it is
// never destroyed, since threads of other runtimes may outlive static objects. The lock is held for a look only.
struct Kept {
    std::shared_mutex mutex;
    std::unordered_map<std::string_view, std::shared_ptr<const Task>> tasks;  // names are leaked as well
};
Kept& kept() {
    static Kept& all = *new Kept;
    return all;
}

void keep(const std::string& name, const Task& task) {
    Kept& all = kept();
    std::unique_lock lock(all.mutex);
    if (all.tasks.count(name)) return;  // the same name is the same task
    all.tasks.emplace(*new std::string(name), std::make_shared<const Task>(task));
}

std::shared_ptr<const Task> find(std::string_view name) {
    Kept& all = kept();
    std::shared_lock lock(all.mutex);
    auto at = all.tasks.find(name);
    return at == all.tasks.end() ? nullptr : at->second;
}

int run(const char* name, std::size_t length, std::size_t count, void* const* buffers, const std::int64_t* bytes,
        char* message, std::size_t room) noexcept {
    auto failed = [&](int how, const char* why) {
        std::snprintf(message, room, "%s", why);
        return how;
    };
    try {
        auto task = find({name, length});
        if (!task) return failed(unknown_name, "this process has compiled nothing that calls this kernel");
        if (count != task->args.size()) return failed(misfit, "another number of arrays than the kernel takes");
        for (std::size_t i = 0; i < count; ++i) {
            const Arg& arg = task->args[i];
            if (arg.code && bytes[i] != arg.count * size_of(arg.code))
                return failed(misfit, "an array of another size than the kernel takes");
        }
        const PlainFloats plain;
        task->run(buffers);
        return 0;
    } catch (const std::exception& error) {
        return failed(refused, error.what());
    } catch (...) {
        return failed(refused, "an unknown failure");
    }
}

// A plan as a task. Only the sizes of its arguments are known, which is what callers are checked for.
Task task_of(nb::handle_t<Plan> object) {
    object.inc_ref();  // for good, as the task is
    const Plan* plan = nb::cast<Plan*>(object);
    Task task;
    for (auto [bytes, write] : plan->arguments()) {
        const bool wide = bytes % 8 == 0;
        task.args.push_back({wide ? 'd' : 'f', bytes / (wide ? 8 : 4), write, false});
    }
    task.run = [plan](void* const* p) {
        std::vector<char*> own;
        for (std::size_t i = 0; i < plan->arguments().size(); ++i) own.push_back(static_cast<char*>(p[i]));
        plan->run(own.data(), nullptr);
    };
    return task;
}

}  // namespace

void bind_foreign(nb::module_& m) {
    m.attr("FOREIGN_VERSION") = foreign_version;
    m.def("foreign_run", [] { return reinterpret_cast<std::uintptr_t>(static_cast<ForeignRun*>(run)); },
          "The address of what runs a kept task; native/foreign.hpp says how it is called.");
    m.def("with_plain_floats", [](nb::callable f) {
        const PlainFloats plain;
        return f();
    }, "f"_a, nb::sig("def with_plain_floats(f: object) -> object"),
       "f(), on a thread that may be flushing subnormal numbers to zero; it does not meanwhile.");
    m.def("borrow_threads", [](std::uintptr_t lend) { borrow_threads(reinterpret_cast<Lend*>(lend)); }, "lend"_a,
          "The address of what runs parts on threads of another runtime (native/threads.hpp); 0: threads of our own.");
    m.def("keep_task", keep, "name"_a, "task"_a, "Keeps a task for good, for callers that know it by its name.");
    m.def("keep_plan", [](const std::string& name, nb::handle_t<Plan> plan) { keep(name, task_of(plan)); }, "name"_a,
          "plan"_a, "The same for a plan.");
}

}  // namespace lunette
