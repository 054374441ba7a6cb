// What the bindings share: arrays from Python, and makers of tasks. A maker binds a kernel to its geometry and dtype.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <cmath>
#include <memory>
#include <stdexcept>

#include "isa.hpp"
#include "plan.hpp"

namespace lunette {

// Each in a file of its name.
void bind_pools(nanobind::module_& m);
void bind_arithmetics(nanobind::module_& m);
void bind_convs(nanobind::module_& m);
void bind_glue(nanobind::module_& m);
void bind_rows(nanobind::module_& m);

class Buffer {
public:
    // Without a format it has no code, which saves the time to write one.
    Buffer(nanobind::handle array, bool write, bool format = true) {
        int flags = PyBUF_C_CONTIGUOUS | (format ? PyBUF_FORMAT : 0) | (write ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(array.ptr(), &view_, flags)) throw nanobind::python_error();
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() { PyBuffer_Release(&view_); }
    char* data() const { return static_cast<char*>(view_.buf); }
    i64 bytes() const { return view_.len; }
    // The letter of the dtype; 'q' for any 64-bit integer.
    char code() const {
        char c = view_.format && !view_.format[1] ? view_.format[0] : '?';
        return c == 'l' && view_.itemsize == 8 ? 'q' : c;
    }

private:
    Py_buffer view_;
};

inline void fits(bool ok) {
    if (!ok) throw std::invalid_argument("the arrays do not fit the kernel");
}

using Sizes = std::vector<i64>;

// The number of elements of an array, whose bytes can be counted, too.
inline i64 product(const Sizes& sizes) {
    i64 p = 1;
    for (i64 n : sizes) {
        fits(n >= 0);
        if (n == 0) return 0;
    }
    for (i64 n : sizes)
        if (__builtin_mul_overflow(p, n, &p)) fits(false);
    fits(p <= most_elements);
    return p;
}

// A pointer of whatever type the kernel asks for.
struct Any {
    void* p;
    template <class T>
    operator T*() const {
        return static_cast<T*>(p);
    }
};
struct Args {
    void* const* p;
    Any operator[](int i) const { return {p[i]}; }
    template <class T>
    T number(int i) const {
        return p[i] ? *static_cast<const T*>(p[i]) : T(0);
    }
};

template <class F>
Task task(std::vector<Arg> args, F run) {
    return {std::move(args), [run](void* const* p) { run(Args{p}); }};
}

// f(T()) for the dtype's letter.
template <class F>
Task with_type(char code, F f) {
    if (code == 'f') return f(float());
    if (code == 'd') return f(double());
    throw std::invalid_argument("kernels are made for 'f' and 'd'");
}

using Tables = std::shared_ptr<PoolTables>;

struct Pools {
    Tables tables;
    i64 planes, n, m;  // cells of all planes, before and behind
    Pools(Tables t, i64 p)
        : tables(t), planes(p), n(product({p, t->pool().cells_in})), m(product({p, t->pool().cells_out})) {}
    const Pool& pool() const { return tables->pool(); }
    const Pool& both_ways() const { return tables->both_ways(); }
};

// Rule S1 keeps a beta of zero out, but a compiled graph may compute one.
template <class T>
T checked_beta(T beta) {
    if (beta == 0 || !std::isfinite(beta)) throw std::domain_error("beta must be finite and other than zero");
    return beta;
}

}  // namespace lunette
