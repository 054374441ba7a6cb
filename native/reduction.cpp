// Sums, means and maxima over any axes.
#include "elementwise.hpp"
#include "long_sum.hpp"
#include "operators.hpp"
#include "sum.hpp"

namespace lunette::LN_ISA {
namespace {

template <class T>
using Lanes = Vec<T, lanes<T>>;

constexpr i64 most_splits = 512;  // parts of one reduction that run at a time
constexpr i64 strip = 1024;       // columns reduced together: their partial results stay in the first cache
constexpr i64 block_rows = sum_block;  // rows added one after another; then these sums are

template <class T>
struct AddUp {
    static constexpr bool blocked = true;
    static T start() { return -T(0); }  // x + -0 is x, also for x = -0
    template <class V>
    static V join(V a, V b) { return a + b; }
    static T row(const T* x, i64 n) {
        constexpr int N = lanes<T>;
        constexpr i64 block = 64 * 4 * N;
        if (n > block) {
            Tree<AddUp, T> tree;
            for (i64 i = 0; i < n; i += block) tree.add(row(x + i, std::min(block, n - i)));
            return tree.total();
        }
        Lanes<T> c[4];
        for (auto& v : c) v = splat<N>(start());
        i64 i = 0;
        for (; i + 4 * N <= n; i += 4 * N)
            for (int w = 0; w < 4; ++w) c[w] += load<N>(x + i + w * N);
        for (; i + N <= n; i += N) c[0] += load<N>(x + i);
        if (i < n) c[1] += load_some<N>(x + i, n - i, start());
        return fold<N>((c[0] + c[1]) + (c[2] + c[3]), [](auto a, auto b) { return a + b; });
    }
};

// The first of the greatest, or NaN: only for zeros does it matter which of equal numbers it is.
template <class T>
struct Greatest {
    static constexpr bool blocked = false;
    static T start() { return -infinity<T>; }
    template <class V>
    static V join(V a, V b) {
        if constexpr (sizeof(V) == sizeof(T)) return b > a || b != b ? b : a;
        else return (b > a) | (b != b) ? b : a;
    }
    static T row(const T* x, i64 n) {
        constexpr int N = lanes<T>;
        Lanes<T> c[4];
        for (auto& v : c) v = splat<N>(start());
        Vec<Int<T>, N> odd{};
        i64 i = 0;
        auto greater = [](auto a, auto b) { return b > a ? b : a; };
        for (; i + 4 * N <= n; i += 4 * N) {
            Lanes<T> v[4];
            for (int w = 0; w < 4; ++w) v[w] = load<N>(x + i + w * N), c[w] = greater(c[w], v[w]);
            odd |= either_nan(v[0], v[1]) | either_nan(v[2], v[3]);
        }
        for (; i + N <= n; i += N) {
            Lanes<T> v = load<N>(x + i);
            c[0] = greater(c[0], v), odd |= v != v;
        }
        if (i < n) {
            Lanes<T> v = load_some<N>(x + i, n - i, start());
            c[1] = greater(c[1], v), odd |= v != v;
        }
        if (any(odd)) return std::numeric_limits<T>::quiet_NaN();
        T best = fold<N>(greater(greater(c[0], c[1]), greater(c[2], c[3])), greater);
        if (best == 0)
            for (i = 0; i < n; ++i)
                if (x[i] == 0) return x[i];
        return best;
    }
};

// The axes of a reduction apart: those that stay and those that go, without the innermost one.
struct Axes {
    Walk::Axis kept[Walk::most_axes], gone[Walk::most_axes], inner;
    int kept_rank = 0, gone_rank = 0;
    i64 kept_cells = 1, gone_cells = 1;
    explicit Axes(const Walk& walk) : inner(walk.axes[walk.rank - 1]) {
        for (int k = 0; k < walk.rank - 1; ++k) {
            const Walk::Axis& axis = walk.axes[k];
            if (axis.b == 0) gone[gone_rank++] = axis, gone_cells *= axis.size;
            else kept[kept_rank++] = axis, kept_cells *= axis.size;
        }
    }
};

// How many parts to cut each of `items` reductions of `terms` terms into so that all threads have work.
inline i64 splits(i64 items, i64 terms) {
    i64 threads = num_threads();
    if (threads == 1 || items >= threads) return 1;
    return std::clamp<i64>(std::min((2 * threads + items - 1) / items, terms / cheap_grain), 1, most_splits / items);
}

// The innermost axis goes: every output is a reduction of rows.
template <class Op, class T>
void reduce_rows(const Axes& axes, const T* x, T* y) {
    const i64 n = axes.inner.size, terms = n * axes.gone_cells;
    // The terms begin..end-1 of the output whose first term is *from.
    auto part = [&](const T* from, i64 begin, i64 end) {
        if (axes.gone_rank == 0) return Op::row(from + begin, end - begin);
        Tree<Op, T> tree;
        i64 skip = begin % n, left = end - begin;
        each_cell(axes.gone, axes.gone_rank, begin / n, (end - 1) / n + 1, [&](i64 a, i64) {
            i64 count = std::min(n - skip, left);
            tree.add(Op::row(from + a + skip, count));
            left -= count, skip = 0;
        });
        return tree.total();
    };
    const i64 parts = splits(axes.kept_cells, terms);
    if (parts == 1)
        return parallel_parts(axes.kept_cells, std::max<i64>(1, cheap_grain / terms), [&](i64 begin, i64 end) {
            each_cell(axes.kept, axes.kept_rank, begin, end, [&](i64 a, i64 b) { y[b] = part(x + a, 0, terms); });
        }, 1);
    T partial[most_splits];
    const i64 size = (terms + parts - 1) / parts;
    parallel_for(axes.kept_cells * parts, [&](i64 task) {
        i64 item = task / parts, begin = task % parts * size;
        each_cell(axes.kept, axes.kept_rank, item, item + 1, [&](i64 a, i64) {
            partial[task] = begin < terms ? part(x + a, begin, std::min(terms, begin + size)) : Op::start();
        });
    });
    for (i64 item = 0; item < axes.kept_cells; ++item) {
        Tree<Op, T> tree;
        for (i64 p = 0; p < parts; ++p) tree.add(partial[item * parts + p]);
        y[item] = tree.total();
    }
}

template <class Op, class T>
void reduce_columns(const Axes& axes, const T* x, T* y);

// Short dense rows: several of them in a row are one row that fills the vectors, and its columns are added last.
template <class T>
void add_narrow_columns(const Axes& axes, const T* x, T* y) {
    constexpr i64 most = 12 * lanes<T>;
    const i64 width = axes.inner.size, together = (8 * lanes<T> + width - 1) / width;
    Axes wide = axes;
    wide.kept_rank = 0, wide.kept_cells = 1;
    wide.gone[0] = {axes.gone_cells / together, together * width, 0}, wide.gone_cells = wide.gone[0].size;
    wide.inner = {together * width, 1, 1};
    auto run = [&](i64 begin, i64 end) {
        each_cell(axes.kept, axes.kept_rank, begin, end, [&](i64 a, i64 b) {
            T sums[most];
            reduce_columns<AddUp<T>>(wide, x + a, sums);
            for (i64 c = 0; c < width; ++c) {
                T sum = sums[c];
                for (i64 k = 1; k < together; ++k) sum += sums[k * width + c];
                for (i64 r = wide.gone_cells * together; r < axes.gone_cells; ++r) sum += x[a + r * width + c];
                y[b + c] = sum;
            }
        });
    };
    if (axes.kept_cells < num_threads()) run(0, axes.kept_cells);  // in parallel within
    else parallel_parts(axes.kept_cells, std::max<i64>(1, cheap_grain / (axes.gone_cells * width)), run, 1);
}

// The innermost axis stays: rows are joined column by column.
template <class Op, class T>
void reduce_columns(const Axes& axes, const T* x, T* y) {
    const i64 width = axes.inner.size, threads = num_threads();
    if constexpr (Op::blocked)
        if (width < 4 * lanes<T> && axes.gone_rank == 1 && axes.gone[0].a == width && axes.gone_cells >= 16 * lanes<T>)
            return add_narrow_columns(axes, x, y);
    // The rows begin..end-1 of `count` columns into `into`.
    auto part = [&](const T* from, i64 begin, i64 end, i64 count, T* into) {
        T block[strip];
        auto add_rows = [&](T* to, auto... row) {
            map<T>(count, to, [](auto sum, auto first, auto... more) {
                if constexpr (sizeof...(more) == 3) {
                    Lanes<T> r[3] = {more...};
                    return Op::join(sum, Op::join(Op::join(first, r[0]), Op::join(r[1], r[2])));
                } else return Op::join(sum, first);
            }, Row<T>{to}, row...);
        };
        bool empty = true;
        i64 rows = 0;
        const T* waiting[4];
        int held = 0;
        auto finish_block = [&] {
            for (int h = 0; h < held; ++h) add_rows(block, Row<T>{waiting[h]});
            held = 0, rows = 0;
            if (empty) std::memcpy(into, block, count * sizeof(T));
            else add_rows(into, Row<T>{block});
            empty = false;
        };
        each_cell(axes.gone, axes.gone_rank, begin, end, [&](i64 a, i64) {
            if (rows++ == 0) std::fill_n(block, count, Op::start());
            waiting[held++] = from + a;
            if (held == 4) {
                add_rows(block, Row<T>{waiting[0]}, Row<T>{waiting[1]}, Row<T>{waiting[2]}, Row<T>{waiting[3]});
                held = 0;
            }
            if (rows == block_rows) finish_block();
        });
        if (rows > 0) finish_block();
    };
    // Narrower strips where there would be too few for the threads.
    i64 columns = strip;
    if (axes.kept_cells < threads)
        columns = std::clamp<i64>((width / threads + 63) / 64 * 64, 64, strip);
    const i64 strips = (width + columns - 1) / columns, items = axes.kept_cells * strips;
    const i64 parts = std::min(splits(items, axes.gone_cells * std::min(width, columns)), axes.gone_cells);
    const i64 rows = (axes.gone_cells + parts - 1) / parts;
    T* partial = nullptr;
    if (parts > 1) partial = static_cast<T*>(scratch(items * parts * columns * sizeof(T)));
    auto run = [&](i64 begin, i64 end) {
        for (i64 task = begin; task < end; ++task) {
            i64 item = task / parts, p = task % parts, first = item % strips * columns, r = p * rows;
            i64 count = std::min(columns, width - first);
            each_cell(axes.kept, axes.kept_rank, item / strips, item / strips + 1, [&](i64 a, i64 b) {
                T* into = partial ? partial + task * columns : y + b + first;
                if (r < axes.gone_cells) part(x + a + first, r, std::min(axes.gone_cells, r + rows), count, into);
                else std::fill_n(into, count, Op::start());
            });
        }
    };
    parallel_parts(items * parts, std::max<i64>(1, cheap_grain / (rows * std::min(width, columns))), run, 1);
    for (i64 item = 0; partial && item < items; ++item) {
        i64 first = item % strips * columns, count = std::min(columns, width - first);
        T* to = y + item / strips * width + first;
        std::memcpy(to, partial + item * parts * columns, count * sizeof(T));
        for (i64 p = 1; p < parts; ++p)
            map<T>(count, to, [](auto a, auto b) { return Op::join(a, b); }, Row<T>{to},
                   Row<T>{partial + (item * parts + p) * columns});
    }
}

// Sums that are not finite once more, in a format where only infinite terms make them so.
template <class T>
void mend(const Walk& walk, const T* x, T* y, Wide<T> divisor) {
    Walk::Axis kept[Walk::most_axes], gone[Walk::most_axes];
    int kept_rank = 0, gone_rank = 0;
    i64 outputs = 1, terms = 1;
    for (int k = 0; k < walk.rank; ++k) {
        if (walk.axes[k].b == 0) gone[gone_rank++] = walk.axes[k], terms *= walk.axes[k].size;
        else kept[kept_rank++] = walk.axes[k], outputs *= walk.axes[k].size;
    }
    constexpr int N = lanes<T>;
    Vec<Int<T>, N> odd{};
    i64 i = 0;
    for (; i + N <= outputs; i += N) {
        auto v = load<N>(y + i);
        odd |= (v - v) != T(0);
    }
    auto infinite = [](T v) { return v - v != 0; };
    bool rest = false;
    for (; i < outputs; ++i) rest |= infinite(y[i]);
    if (!rest && !any(odd)) return;
    each_cell(kept, kept_rank, 0, outputs, [&](i64 a, i64 b) {
        if (!infinite(y[b])) return;
        Wide<T> sum = -Wide<T>(0);
        each_cell(gone, gone_rank, 0, terms, [&](i64 c, i64) { sum += x[a + c]; });
        const Wide<T> most = std::numeric_limits<T>::max(), result = sum / divisor;
        // No mean lies beyond the numbers it is of, whatever the rounding.
        const bool over = divisor > 1 && sum - sum == 0 && std::abs(result) > most;
        y[b] = static_cast<T>(over ? std::copysign(most, result) : result);
    });
}

template <class Op, class T>
void reduce_all(const Walk& walk, const T* x, T* y) {
    Axes axes(walk);
    if (axes.inner.b == 0) reduce_rows<Op>(axes, x, y); else reduce_columns<Op>(axes, x, y);
}

}  // namespace

template <class T>
void reduce(Reduction name, const Walk& walk, const T* x, T* y) {
    i64 terms = 1;
    for (int k = 0; k < walk.rank; ++k)
        if (walk.axes[k].b == 0) terms *= walk.axes[k].size;
    if (terms == 1) return unary<T>(Unary::copy, walk.cells, T(0), x, y);
    if (name == Reduction::max) return reduce_all<Greatest<T>>(walk, x, y);
    reduce_all<AddUp<T>>(walk, x, y);
    const i64 outputs = walk.cells / terms;
    if (name == Reduction::mean)
        map<T>(outputs, y, [n = splat<lanes<T>>(T(terms))](auto v) { return v / n; }, Row<T>{y});
    mend<T>(walk, x, y, name == Reduction::mean ? Wide<T>(terms) : Wide<T>(1));
}

template void reduce<float>(Reduction, const Walk&, const float*, float*);
template void reduce<double>(Reduction, const Walk&, const double*, double*);

}  // namespace lunette::LN_ISA
