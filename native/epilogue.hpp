// What becomes of a finished sum, for the loops of convolutions.
#pragma once
#include <cmath>

#include "kernels.hpp"
#include "simd.hpp"

namespace lunette::LN_ISA {
namespace {

// The epilogue of one channel, without what is added cell by cell. V: a number, or a vector of them.
template <class T>
struct Finish {
    T bias = T(-0.0), scale = T(1), shift = T(-0.0);  // which change nothing
    bool relu = false;

    // Whether it does something to a sum.
    bool changes() const {
        auto adds = [](T v) { return v != 0 || !std::signbit(v); };
        return relu || scale != 1 || adds(bias) || adds(shift);
    }
    template <class V>
    [[gnu::always_inline]] V moved(V sum) const {
        return rounded_product(sum + bias, scale - V{}) + shift;  // -0 - 0 is -0
    }
    template <class V>
    [[gnu::always_inline]] V ended(V v) const {
        return relu ? v < 0 ? V{} : v : v;
    }
    // What a sum becomes, `add` being where the number to be added is, or null.
    [[gnu::always_inline]] T operator()(T sum, const T* add) const {
        T v = moved(sum);
        if (add) v += *add;
        return ended(v);
    }
};

template <class T>
Finish<T> finish_of(const Epilogue<T>& e, i64 row) {
    Finish<T> f{.relu = e.relu};
    if (e.bias) f.bias = e.bias[row];
    if (e.scale) f.scale = e.scale[row];
    if (e.shift) f.shift = e.shift[row];
    return f;
}

// A sum without terms, which is +0 unless there is a bias: then this is all.
template <class T>
T no_terms(const Epilogue<T>& e) {
    return e.bias ? T(-0.0) : T(0);
}

// The same for rows from `row` on, whose cells lie `at` cells further on.
template <class T>
Epilogue<T> from_row(const Epilogue<T>& e, i64 row, i64 at) {
    auto later = [](const T* p, i64 by) { return p ? p + by : nullptr; };
    return {later(e.bias, row), later(e.scale, row), later(e.shift, row), later(e.add, at), e.relu};
}

}  // namespace
}  // namespace lunette::LN_ISA
