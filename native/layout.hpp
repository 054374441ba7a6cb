// Loops over an index space that several arrays share, and moving cells from one layout to another.
#pragma once
#include <vector>

#include "geometry.hpp"

namespace lunette {

// Two arrays walked together: sizes outermost first, and how far one step along each axis moves in either array.
struct Walk {
    struct Axis {
        i64 size, a, b;
    };
    static constexpr int most_axes = 64;
    Axis axes[most_axes];  // sizes >= 2, no two neighbours act as one axis; none at all for a single cell or no cell
    int rank = 0;
    i64 cells = 1;

    explicit Walk(const std::vector<Axis>& given);
};

// f(offset in a, offset in b) for the cells first..last-1 of the outermost `depth` axes, in order.
template <class F>
inline void each_cell(const Walk::Axis* axes, int depth, i64 first, i64 last, F&& f) {
    i64 index[Walk::most_axes];
    i64 a = 0, b = 0, rest = first;
    for (int k = depth - 1; k >= 0; --k) {
        index[k] = rest % axes[k].size, rest /= axes[k].size;
        a += index[k] * axes[k].a, b += index[k] * axes[k].b;
    }
    for (i64 i = first; i < last; ++i) {
        f(a, b);
        for (int k = depth - 1; k >= 0; --k) {
            a += axes[k].a, b += axes[k].b;
            if (++index[k] < axes[k].size) break;
            index[k] = 0, a -= axes[k].size * axes[k].a, b -= axes[k].size * axes[k].b;
        }
    }
}

// y[i.b] = x[i.a] for every index i of the walk; the two do not overlap.
template <class T>
void strided_copy(const Walk&, const T* x, T* y);
template <class T>
void fill(i64 count, T value, T* y);
// The same to y + offset, after all `count` cells of y became `value`.
template <class T>
void filled_copy(const Walk&, const T* x, i64 offset, i64 count, T value, T* y);
// y[outer][sum of inners], row by row from x_k[outer][inners[k]].
template <class T>
void concat(i64 outer, const std::vector<i64>& inners, const T* const* x, T* y);
// y[outer][classes][inner]: 1 where the label says so. Throws std::domain_error for a label that is no class.
template <class T>
void one_hot(i64 outer, i64 classes, i64 inner, const i64* labels, T* y);
// y[outer][count][inner]: the cells of x[outer][size][inner] at some places of its middle axis. Throws std::domain_error
// for a place that is none.
template <class T>
void take(i64 outer, i64 size, i64 inner, i64 count, const T* x, const i64* places, T* y);
// Its adjoint: y[outer][size][inner], at each place the sum of the cells of g that were taken there.
template <class T>
void put(i64 outer, i64 size, i64 inner, i64 count, const T* g, const i64* places, T* y);

}  // namespace lunette
