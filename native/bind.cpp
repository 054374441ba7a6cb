// The module: tasks, plans, and the bindings of every kind of kernel.
#include "bind.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "foreign.hpp"
#include "threads.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace lunette;

namespace {

constexpr std::size_t small_call = 8;  // arguments that need no memory of their own

// `known`: the arrays have the kernel's dtypes, which are not asked for; numbers may stand for arrays of one element.
template <bool known>
void call(const Task& task, nb::args given) {
    const std::size_t count = given.size();
    fits(count == task.args.size() && count <= most_args);
    std::optional<Buffer> few[small_call];
    std::unique_ptr<std::optional<Buffer>[]> many(count > small_call ? new std::optional<Buffer>[count] : nullptr);
    std::optional<Buffer>* const buffers = many ? many.get() : few;
    union { float f; double d; } numbers[known ? most_args : 1];
    void* pointers[most_args];
    for (std::size_t i = 0; i < count; ++i) {
        const Arg& arg = task.args[i];
        pointers[i] = nullptr;
        if (arg.code == 0) continue;
        const nb::handle own = given[i];
        if (own.is_none()) {
            fits(arg.optional);
            continue;
        }
        if (known && (PyFloat_CheckExact(own.ptr()) || PyLong_CheckExact(own.ptr()))) {
            fits(arg.count == 1 && !arg.write && (arg.code == 'f' || arg.code == 'd'));
            const double number = PyFloat_AsDouble(own.ptr());
            if (number == -1 && PyErr_Occurred()) throw nb::python_error();
            if (arg.code == 'f') numbers[i].f = static_cast<float>(number); else numbers[i].d = number;
            pointers[i] = &numbers[i];
            continue;
        }
        Buffer& b = buffers[i].emplace(own, arg.write, !known);
        fits((known || b.code() == arg.code) && b.bytes() == arg.count * size_of(arg.code));
        pointers[i] = b.data();
    }
    nb::gil_scoped_release release;
    task.run(pointers);
}

void run_plan(const Plan& plan, nb::args given, std::optional<nb::object> seconds) {
    fits(given.size() == plan.arguments().size());
    const std::size_t count = given.size();
    std::optional<Buffer> few[small_call];
    std::unique_ptr<std::optional<Buffer>[]> many(count > small_call ? new std::optional<Buffer>[count] : nullptr);
    std::optional<Buffer>* const buffers = many ? many.get() : few;
    char* some[small_call];
    std::unique_ptr<char*[]> more(many ? new char*[count] : nullptr);
    char** const pointers = more ? more.get() : some;
    for (std::size_t i = 0; i < count; ++i) {
        auto [bytes, write] = plan.arguments()[i];
        const Buffer& b = buffers[i].emplace(given[i], write, false);
        fits(b.bytes() == bytes);
        pointers[i] = b.data();
    }
    std::optional<Buffer> times;
    if (seconds) {
        times.emplace(*seconds, true);
        fits(times->code() == 'd' && times->bytes() == i64(8 * plan.steps()));
    }
    nb::gil_scoped_release release;
    plan.run(pointers, times ? reinterpret_cast<double*>(times->data()) : nullptr);
}

}  // namespace

NB_MODULE(_native, m) {
    m.attr("SUM_BLOCK") = sum_block;
    // Programs and compiled functions that users keep in globals live until the process ends, and where another library
    // holds on to modules they are not taken down before. That is no leak, so nothing is printed about it.
    nb::set_leak_warnings(false);
    m.def("instruction_set", [] { return kernels().name; });
    m.def("set_num_threads", [](int n) {
        if (n < 1) throw std::invalid_argument("set_num_threads needs at least 1 thread");
        set_num_threads(n);
    }, "n"_a);
    m.def("get_num_threads", num_threads);

    nb::class_<Task>(m, "Task", "A kernel bound to its geometry; call it with arrays.")
        .def("__call__", call<false>, nb::sig("def __call__(self, *args: object) -> None"))
        .def("run", call<true>, nb::sig("def run(self, *args: object) -> None"),
             "The same for arrays that are known to have the kernel's dtypes; numbers may stand for arrays of one element.")
        .def("count", [](const Task& t, std::size_t i) { return t.args.at(i).count; }, "i"_a, "Elements of argument i.")
        .def("taking", &Task::taking, "places"_a, "count"_a,
             "The same kernel for callers with `count` arguments: its own argument i is theirs places[i]; -1: absent.");
    nb::class_<Plan>(m, "Plan", "Tasks in order: (task, slots) each; a slot is (argument or -1 for the arena, offset).")
        .def(nb::init<std::vector<Plan::Step>, std::vector<Plan::Slot>, std::vector<Plan::Argument>, i64>(),
             "steps"_a, "slots"_a, "arguments"_a, "arena"_a)
        .def("run", run_plan, "args"_a, nb::kw_only(), "seconds"_a = nb::none(),
             nb::sig("def run(self, *args: object, seconds: object | None = None) -> None"));
    bind_pools(m);
    bind_arithmetics(m);
    bind_convs(m);
    bind_glue(m);
    bind_rows(m);
    bind_foreign(m);
}
