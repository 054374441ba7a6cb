#include "layout.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "threads.hpp"

namespace lunette {

Walk::Walk(const std::vector<Axis>& given) {
    for (const Axis& axis : given) cells *= axis.size;
    if (cells == 0) return;
    for (const Axis& axis : given) {
        if (axis.size == 1) continue;
        Axis* last = rank > 0 ? &axes[rank - 1] : nullptr;
        if (last && last->a == axis.a * axis.size && last->b == axis.b * axis.size) {
            *last = {last->size * axis.size, axis.a, axis.b};
            continue;
        }
        if (rank == most_axes) throw std::invalid_argument("too many axes");
        axes[rank++] = axis;
    }
}

namespace {

constexpr i64 grain = 1 << 15;  // cells that pay for waking another thread

// f(begin, end) for parts of 0..count-1 when all of it moves `cells` cells.
template <class F>
void parallel_parts(i64 count, i64 cells, F f) {
    i64 parts = std::min({4 * i64(num_threads()), count, cells / grain});
    if (num_threads() == 1 || parts <= 1) {
        if (count > 0) f(i64(0), count);
        return;
    }
    i64 size = (count + parts - 1) / parts;
    parallel_for((count + size - 1) / size, [&](i64 p) { f(p * size, std::min(count, (p + 1) * size)); });
}

// Short runs without a call; long ones in pieces, because memcpy would write a very long one past the caches.
template <class T>
inline void copy_run(const T* x, T* y, i64 n) {
    constexpr i64 N = 16 / sizeof(T), piece = (1 << 16) / sizeof(T);
    if (n < N) {
        for (i64 i = 0; i < n; ++i) y[i] = x[i];
    } else if (n <= 32 * N) {
        for (i64 i = 0; i + N <= n; i += N) std::memcpy(y + i, x + i, 16);
        std::memcpy(y + n - N, x + n - N, 16);
    } else {
        for (i64 i = 0; i < n; i += piece) std::memcpy(y + i, x + i, std::min(piece, n - i) * sizeof(T));
    }
}

// What is filled already is copied on: memcpy has wider vectors than code for any processor.
template <class T>
inline void fill_run(T* y, i64 n, T value) {
    constexpr i64 first = 256 / sizeof(T), most = 4096 / sizeof(T);
    i64 done = std::min(n, first);
    std::fill_n(y, done, value);
    for (i64 more; done < n; done += more) {
        more = std::min({done, n - done, most});
        std::memcpy(y + done, y, more * sizeof(T));
    }
}

// Cells of `count` arrays side by side to one where they alternate, and back.
template <int count, class T>
void interleave(i64 n, i64 from, i64 by, const T* x, T* y) {
    for (i64 i = 0; i < n; ++i)
        for (int j = 0; j < count; ++j) y[i * by + j] = x[i + j * from];
}
template <int count, class T>
void part(i64 n, i64 from, i64 by, const T* x, T* y) {
    for (i64 j = 0; j < n; ++j)
        for (int i = 0; i < count; ++i) y[i * by + j] = x[i + j * from];
}

// y[i*by + j] = x[i + j*from], i < rows, j < columns. Tiles go through a buffer: whole cache lines are read and
// written at a time, wherever the rows lie.
template <class T>
void transpose(i64 rows, i64 columns, i64 from, i64 by, const T* x, T* y) {
    typedef T V __attribute__((vector_size(16), aligned(sizeof(T)), may_alias));
    constexpr i64 N = 16 / sizeof(T), tile = 128 / sizeof(T);
    if (columns == 2) return interleave<2>(rows, from, by, x, y);
    if (columns == 3) return interleave<3>(rows, from, by, x, y);
    if (rows == 2) return part<2>(columns, from, by, x, y);
    if (rows == 3) return part<3>(columns, from, by, x, y);
    alignas(64) T buffer[tile][tile];
    auto block = [&](const T* corner, i64 i, i64 j) {
        auto in = [&](i64 k) { return *reinterpret_cast<const V*>(corner + i + (j + k) * from); };
        auto out = [&](i64 k, V v) { *reinterpret_cast<V*>(&buffer[i + k][j]) = v; };
        if constexpr (N == 2) {
            V a = in(0), b = in(1);
            out(0, __builtin_shufflevector(a, b, 0, 2)), out(1, __builtin_shufflevector(a, b, 1, 3));
        } else {
            V a = in(0), b = in(1), c = in(2), d = in(3);
            V ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
            V AB = __builtin_shufflevector(a, b, 2, 6, 3, 7), CD = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            out(0, __builtin_shufflevector(ab, cd, 0, 1, 4, 5)), out(1, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
            out(2, __builtin_shufflevector(AB, CD, 0, 1, 4, 5)), out(3, __builtin_shufflevector(AB, CD, 2, 3, 6, 7));
        }
    };
    for (i64 i0 = 0; i0 < rows; i0 += tile) {
        for (i64 j0 = 0; j0 < columns; j0 += tile) {
            const i64 height = std::min(tile, rows - i0), width = std::min(tile, columns - j0);
            const i64 whole_height = height / N * N, whole_width = width / N * N;
            const T* corner = x + i0 + j0 * from;
            for (i64 j = 0; j < whole_width; j += N)
                for (i64 i = 0; i < whole_height; i += N) block(corner, i, j);
            for (i64 j = 0; j < width; ++j)
                for (i64 i = j < whole_width ? whole_height : 0; i < height; ++i) buffer[i][j] = corner[i + j * from];
            T* to = y + i0 * by + j0;
            if (width == tile)
                for (i64 i = 0; i < height; ++i) std::memcpy(to + i * by, buffer[i], sizeof buffer[i]);
            else
                for (i64 i = 0; i < height; ++i) copy_run(buffer[i], to + i * by, width);
        }
    }
}

// The whole walk in this thread; axes innermost last.
template <class T>
void copy_walk(const Walk::Axis* given, int rank, const T* x, T* y) {
    Walk::Axis axes[Walk::most_axes];
    std::copy_n(given, rank, axes);
    const Walk::Axis inner = axes[--rank];
    int dense = -1;  // the axis to transpose with the innermost
    if (inner.b == 1 && inner.a != 1 && inner.a != 0)
        for (int k = 0; k < rank; ++k)
            if (axes[k].a == 1) dense = k;
    Walk::Axis other{};
    if (dense >= 0) {
        other = axes[dense];
        std::copy(axes + dense + 1, axes + rank, axes + dense);
        --rank;
    }
    i64 outer = 1;
    for (int k = 0; k < rank; ++k) outer *= axes[k].size;
    each_cell(axes, rank, 0, outer, [&](i64 a, i64 b) {
        const T* from = x + a;
        T* to = y + b;
        if (dense >= 0) transpose(other.size, inner.size, inner.a, other.b, from, to);
        else if (inner.b == 1 && inner.a == 1) copy_run(from, to, inner.size);
        else if (inner.b == 1 && inner.a == 0) fill_run(to, inner.size, *from);
        else for (i64 i = 0; i < inner.size; ++i) to[i * inner.b] = from[i * inner.a];
    });
}

}  // namespace

template <class T>
void strided_copy(const Walk& walk, const T* x, T* y) {
    if (walk.cells == 0) return;
    if (walk.rank == 0) {
        *y = *x;
        return;
    }
    // Cut the outermost axis that gives every thread enough to do, or else the longest.
    int cut = 0;
    for (int k = walk.rank - 1; k >= 0; --k)
        if (walk.axes[k].size > walk.axes[cut].size) cut = k;
    for (int k = walk.rank - 1; k >= 0; --k)
        if (walk.axes[k].size >= 8 * num_threads()) cut = k;
    parallel_parts(walk.axes[cut].size, walk.cells, [&](i64 begin, i64 end) {
        Walk::Axis axes[Walk::most_axes];
        std::copy_n(walk.axes, walk.rank, axes);
        axes[cut].size = end - begin;
        copy_walk(axes, walk.rank, x + begin * axes[cut].a, y + begin * axes[cut].b);
    });
}

template <class T>
void filled_copy(const Walk& walk, const T* x, i64 offset, i64 count, T value, T* y) {
    // Each step of the outermost axis has a stretch of y to itself: fill it and copy into it while it is at hand.
    i64 reach = 1;
    for (int k = 1; k < walk.rank; ++k) reach += (walk.axes[k].size - 1) * walk.axes[k].b;
    const Walk::Axis outer = walk.rank > 0 ? walk.axes[0] : Walk::Axis{1, 0, 0};
    if (walk.rank < 2 || reach > outer.b || outer.size < 4 * num_threads() || outer.b > (1 << 16)) {
        fill(count, value, y);
        if (walk.cells > 0) strided_copy(walk, x, y + offset);
        return;
    }
    std::fill(y, y + offset, value);
    parallel_parts(outer.size, count, [&](i64 begin, i64 end) {
        for (i64 i = begin; i < end; ++i) {
            i64 at = offset + i * outer.b;
            std::fill(y + at, y + std::min(count, at + outer.b), value);
            copy_walk(walk.axes + 1, walk.rank - 1, x + i * outer.a, y + at);
        }
    });
    i64 rest = std::min(count, offset + outer.size * outer.b);
    std::fill(y + rest, y + count, value);
}

template <class T>
void fill(i64 count, T value, T* y) {
    parallel_parts(count, count, [=](i64 begin, i64 end) { fill_run(y + begin, end - begin, value); });
}

template <class T>
void concat(i64 outer, const std::vector<i64>& inners, const T* const* x, T* y) {
    const std::size_t inputs = inners.size();
    i64 row = 0;
    for (i64 n : inners) row += n;
    if (outer >= num_threads()) {
        parallel_parts(outer, outer * row, [&](i64 begin, i64 end) {
            for (i64 o = begin; o < end; ++o) {
                T* to = y + o * row;
                for (std::size_t k = 0; k < inputs; to += inners[k++]) copy_run(x[k] + o * inners[k], to, inners[k]);
            }
        });
        return;
    }
    for (i64 o = 0; o < outer; ++o) {
        T* to = y + o * row;
        for (std::size_t k = 0; k < inputs; to += inners[k++]) {
            const T* from = x[k] + o * inners[k];
            parallel_parts(inners[k], inners[k], [=](i64 i, i64 end) { copy_run(from + i, to + i, end - i); });
        }
    }
}

template <class T>
void one_hot(i64 outer, i64 classes, i64 inner, const i64* labels, T* y) {
    parallel_parts(outer, outer * classes * inner, [=](i64 begin, i64 end) {
        for (i64 o = begin; o < end; ++o) {
            T* to = y + o * classes * inner;
            std::fill_n(to, classes * inner, T(0));
            for (i64 i = 0; i < inner; ++i) {
                i64 label = labels[o * inner + i];
                if (label < 0 || label >= classes)
                    throw std::domain_error("label " + std::to_string(label) + " is not in 0.." +
                                            std::to_string(classes - 1));
                to[label * inner + i] = T(1);
            }
        }
    });
}

static void check_places(i64 size, i64 count, const i64* places) {
    for (i64 k = 0; k < count; ++k)
        if (places[k] < 0 || places[k] >= size)
            throw std::domain_error("place " + std::to_string(places[k]) + " is not in 0.." + std::to_string(size - 1));
}

template <class T>
void take(i64 outer, i64 size, i64 inner, i64 count, const T* x, const i64* places, T* y) {
    check_places(size, count, places);
    parallel_parts(outer, outer * count * inner, [=](i64 begin, i64 end) {
        for (i64 o = begin; o < end; ++o)
            for (i64 k = 0; k < count; ++k)
                copy_run(x + (o * size + places[k]) * inner, y + (o * count + k) * inner, inner);
    });
}

// Sums carry their rounding errors along (Neumaier), so that they are as good as short ones however long they are.
template <class T>
void put(i64 outer, i64 size, i64 inner, i64 count, const T* g, const i64* places, T* y) {
    check_places(size, count, places);
    std::vector<i64> first(size + 1), takers(count);
    for (i64 k = 0; k < count; ++k) ++first[places[k] + 1];
    for (i64 p = 0; p < size; ++p) first[p + 1] += first[p];
    std::vector<i64> next(first.begin(), first.end() - 1);
    for (i64 k = 0; k < count; ++k) takers[next[places[k]]++] = k;
    parallel_parts(outer * size, outer * (size + count) * inner, [&](i64 begin, i64 end) {
        for (i64 r = begin; r < end; ++r) {
            const i64 p = r % size, from = first[p], to = first[p + 1];
            const T* rows = g + (r / size) * count * inner;
            for (i64 i = 0; i < inner; ++i) {
                T sum = from < to ? rows[takers[from] * inner + i] : T(0), lost = 0;
                for (i64 k = from + 1; k < to; ++k) {
                    const T t = rows[takers[k] * inner + i], s = sum + t, back = s - sum;
                    lost += (sum - (s - back)) + (t - back);
                    sum = s;
                }
                y[r * inner + i] = lost != 0 && lost == lost ? sum + lost : sum;
            }
        }
    });
}

template void take<float>(i64, i64, i64, i64, const float*, const i64*, float*);
template void take<double>(i64, i64, i64, i64, const double*, const i64*, double*);
template void put<float>(i64, i64, i64, i64, const float*, const i64*, float*);
template void put<double>(i64, i64, i64, i64, const double*, const i64*, double*);
template void strided_copy<float>(const Walk&, const float*, float*);
template void strided_copy<double>(const Walk&, const double*, double*);
template void filled_copy<float>(const Walk&, const float*, i64, i64, float, float*);
template void filled_copy<double>(const Walk&, const double*, i64, i64, double, double*);
template void fill<float>(i64, float, float*);
template void fill<double>(i64, double, double*);
template void concat<float>(i64, const std::vector<i64>&, const float* const*, float*);
template void concat<double>(i64, const std::vector<i64>&, const double* const*, double*);
template void one_hot<float>(i64, i64, i64, const i64*, float*);
template void one_hot<double>(i64, i64, i64, const i64*, double*);

}  // namespace lunette
