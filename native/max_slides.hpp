// The derivative of the greatest cells of windows that move on by one cell, axis by axis.
#pragma once
#include "max_chosen.hpp"

namespace lunette::LN_ISA {
namespace {

// dx where ties go to the first. The first winner of a window, in row-major order, is the first winner of the first of its rows
// that has one: so an axis is done after the other, from the innermost outward, and cotangents go the same way back. Along an
// axis K windows in a row, from one on that starts a block of K cells, are a rear part of that block and a front part of the
// next: two comparisons for a cell, and one for a window, whatever K. L lines are done at once, side by side.
template <class T>
class Slides {
    using I = Int<T>;
    using V = Vec<T, lanes<T>>;
    using Ints = Vec<I, lanes<T>>;
    using Mask = typename Chosen<T>::Mask;
    static constexpr int L = lanes<T>;
    static constexpr I absent = std::numeric_limits<I>::min();  // less than any cell
    static constexpr std::size_t most_bytes = 16 << 20;
    static constexpr i64 most_line = 32 << 10;  // cells of L rows, longer ones of which leave the cache before they are done
    static constexpr i64 few_cells = 9;  // of windows all of whose cells are sooner asked
    static constexpr i64 some_cells = 16 << 10;  // of planes done at a time

public:
    static bool suits(const Pool& pool, i64 planes) {
        i64 taps = 0;
        if (planes * (pool.cells_in / pool.axes[pool.rank - 1].n) < L / 2) return false;  // too few rows to lie side by side
        for (int a = 0; a < pool.rank; ++a) {
            const PoolAxis& ax = pool.axes[a];
            if (!ax.regular || ax.stride != 1 || ax.step != 1 || ax.has_empty || ax.start > 0) return false;
            if (cells(ax) < ax.n - ax.start) return false;  // cells that no window reads
            taps += ax.taps;
        }
        // A cotangent is added to others at most once for every tap of an axis.
        if (pool.window <= few_cells || taps > sum_block / 2) return false;
        const Slides slides(pool, planes);
        return slides.line_ <= most_line && slides.bytes() <= most_bytes;
    }

    Slides(const Pool& pool, i64 planes) : pool_(pool), last_(pool.axes[pool.rank - 1]) {
        const i64 rows = pool.cells_in / last_.n;  // of a plane
        count_ = std::min(planes, std::max(some_cells / pool.cells_in, (L + rows - 1) / rows));
        pitch_ = (last_.m + L - 1) / L * L;
        i64 inner = pitch_, outer = count_ * rows;
        i64 most = 0;
        marks_ = (outer + L - 1) / L * cells(last_);
        for (int a = pool.rank - 2; a >= 0; --a) {
            const PoolAxis& ax = pool.axes[a];
            outer /= ax.n;
            Stage& s = stages_[a];
            s = {outer, inner, keys_, marks_};
            keys_ += outer * cells(ax) * inner, marks_ += outer * (inner / L) * cells(ax);
            inner *= ax.m;
        }
        given_ = count_ * inner;
        for (int a = 0; a < pool.rank; ++a) most = std::max(most, cells(pool.axes[a]));
        line_ = (most + L) * L;
    }

    void operator()(i64 planes, const T* x, const T* g, T* dx) const {
        const i64 groups = (planes + count_ - 1) / count_, n = pool_.cells_in, threads = num_threads();
        const i64 each = threads > 1 ? std::max<i64>(1, groups / (4 * threads)) : groups;
        auto task = [&](i64 i) {
            Room room = prepare();
            for (i64 p = i * each * count_; p < std::min(planes, (i + 1) * each * count_); p += count_)
                some(room, std::min(count_, planes - p), x + p * n, x + planes * n, g + p * pool_.cells_out, dx + p * n);
        };
        const i64 tasks = (groups + each - 1) / each;
        if (tasks == 1) task(0);
        else parallel_for(tasks, task);
    }

private:
    // Cells of a line with its padding, as far as windows reach.
    static i64 cells(const PoolAxis& ax) { return ax.m + ax.taps - 1; }

    // What the windows of a line found, for each of its cells: whether a later cell of its block is greater; whether the cell is
    // greater than all before it in its block; whether the window that ends here has its greatest in the block that ends here.
    struct Mark {
        Mask behind, above, front;
    };
    // An axis but the innermost: `outer` times cells(ax) times `inner` numbers, where they begin, and their marks.
    struct Stage {
        i64 outer, inner, keys, marks;
    };
    struct Room {
        I* keys;      // of every stage, with absent cells around them
        T *back, *own;  // cotangents of these, and of the windows
        const T* given;  // own, or those of the call where their rows are whole vectors
        Mark* marks;
        I *line, *found;  // L rows side by side, and their windows
        T *shares, *cells;  // the same of cotangents
        I* ends;
    };
    std::size_t bytes() const {
        return (2 * keys_ + given_ + 5 * line_) * sizeof(T) + marks_ * sizeof(Mark) + 9 * 64;
    }
    Room prepare() const {
        char* memory = static_cast<char*>(scratch(bytes()));
        auto take = [&]<class C>(C*& p, i64 n) {
            p = reinterpret_cast<C*>(memory);
            memory += (n * static_cast<i64>(sizeof(C)) + 63) / 64 * 64;
        };
        Room r{};
        take(r.keys, keys_), take(r.back, keys_), take(r.own, given_), take(r.marks, marks_);
        take(r.line, line_), take(r.found, line_), take(r.shares, line_), take(r.cells, line_), take(r.ends, line_);
        std::fill(r.keys, r.keys + keys_, absent), std::fill(r.line, r.line + line_, absent);
        std::memset(static_cast<void*>(r.own), 0, given_ * sizeof(T));
        return r;
    }

    void some(Room& room, i64 planes, const T* x, const T* x_end, const T* g, T* dx) const {
        const i64 rows = planes * (pool_.cells_in / last_.n);
        for (i64 r = 0; r < rows; r += L) look(room, r, rows, x, x_end);
        for (int a = pool_.rank - 2; a >= 0; --a) each_line(room, a, planes, false);
        room.given = last_.m == pitch_ ? g : give(room, planes, [&](i64 i) { return load<L>(g + i); }, [&](i64 i) { return g[i]; });
        const bool signs = has_negative_zero(g, planes * pool_.cells_out);
        hand_back(room, planes, rows, dx, signs ? -T(0) : T(0), false);  // what is still -0 was given nothing
        if (!signs) return;
        // Sums of -0 alone are -0: the same once more, counting windows.
        room.given = give(room, planes, [](i64) { return splat<L>(T(1)); }, [](i64) { return T(1); });
        hand_back(room, planes, rows, dx, -T(0), true);
    }

    // Row r of a group of planes: where its numbers are in the last stage but one.
    i64 row_place(i64 r) const {
        if (pool_.rank == 1) return r * pitch_;
        const PoolAxis& ax = pool_.axes[pool_.rank - 2];
        return stages_[pool_.rank - 2].keys + (r / ax.n * cells(ax) + r % ax.n - ax.start) * pitch_;
    }

    // The windows of the rows r..r+L-1 along the innermost axis.
    void look(const Room& room, i64 r, i64 rows, const T* x, const T* x_end) const {
        const i64 n = last_.n, m = last_.m, many = std::min<i64>(L, rows - r);
        for (i64 i = 0; i < n; i += L) {
            if (i + L > n && n >= L) i = n - L;
            Ints v[L];
            const T* const from = x + r * n + i;
            if (many == L && x_end - from >= (L - 1) * n + L) {
#pragma GCC unroll 16
                for (int l = 0; l < L; ++l) v[l] = key<T>(load<L>(from + l * n));
            } else {
                for (i64 l = 0; l < L; ++l) {
                    const T* const row = from + std::min(l, many - 1) * n;
                    T own[L] = {};
                    std::memcpy(static_cast<void*>(own), row, static_cast<std::size_t>(std::min<i64>(L, x_end - row)) * sizeof(T));
                    v[l] = key<T>(load<L>(own));
                }
            }
            transpose<L>(v);
            I* const to = room.line + (i - last_.start) * L;
            if (n - i >= L) {
#pragma GCC unroll 16
                for (int l = 0; l < L; ++l) store<L>(to + l * L, v[l]);
            } else {
                for (i64 l = 0; l < n - i; ++l) store<L>(to + l * L, v[l]);
            }
        }
        forward(last_, room.line, L, room.found, L, room.marks + r / L * cells(last_), room.ends);
        if (pool_.rank == 1) return;
        i64 place[L];
        for (i64 l = 0; l < many; ++l) place[l] = row_place(r + l);
        for (i64 i = 0; i < m; i += L) {
            Ints v[L];
#pragma GCC unroll 16
            for (int l = 0; l < L; ++l) v[l] = load<L>(room.found + (i + l) * L);
            transpose<L>(v);
#pragma GCC unroll 16
            for (int l = 0; l < L; ++l)
                if (l < many) store<L>(room.keys + place[l] + i, v[l]);
        }
    }

    // All lines of another axis, from cells to windows, or back.
    void each_line(const Room& room, int a, i64 planes, bool back) const {
        const PoolAxis& ax = pool_.axes[a];
        const Stage& s = stages_[a];
        const i64 length = s.inner * cells(ax), strips = s.inner / L, outer = s.outer / count_ * planes;
        for (i64 o = 0; o < outer; ++o) {
            const i64 from = s.keys + o * length;
            i64 to = o * ax.m * s.inner;  // of windows, which are cells of the next axis
            if (a > 0) {
                const PoolAxis& next = pool_.axes[a - 1];
                to = stages_[a - 1].keys + (o / next.n * cells(next) + o % next.n - next.start) * ax.m * s.inner;
            }
            for (i64 q = 0; q < strips; ++q) {
                Mark* const marks = room.marks + s.marks + (o * strips + q) * cells(ax);
                const i64 i = from + q * L, j = to + q * L;
                if (back) backward(ax, (a > 0 ? static_cast<const T*>(room.back) : room.given) + j, s.inner, room.back + i, s.inner, marks);
                else if (a > 0) forward(ax, room.keys + i, s.inner, room.keys + j, s.inner, marks, room.ends);
                else forward(ax, room.keys + i, s.inner, room.found, 0, marks, room.ends);  // nobody asks what was found
            }
        }
    }

    // Cotangents of the windows of some planes, rows of which begin `pitch_` apart.
    template <class Some, class One>
    const T* give(const Room& room, i64 planes, Some&& some, One&& one) const {
        const i64 m = last_.m, rows = planes * (pool_.cells_out / m);
        for (i64 r = 0; r < rows; ++r) {
            T* const to = room.own + r * pitch_;
            i64 i = 0;
            for (; i + L <= m; i += L) store<L>(to + i, some(r * m + i));
            for (; i < m; ++i) to[i] = one(r * m + i);
        }
        return room.own;
    }

    // From cotangents to dx, `nothing` added; or, again, from the number of its windows to what a cell keeps.
    void hand_back(const Room& room, i64 planes, i64 rows, T* dx, T nothing, bool again) const {
        for (int a = 0; a + 1 < pool_.rank; ++a) each_line(room, a, planes, true);
        const i64 n = last_.n;
        const T* const shares = pool_.rank == 1 ? room.given : room.back;
        for (i64 r = 0; r < rows; r += L) {
            const i64 many = std::min<i64>(L, rows - r);
            i64 place[L];
            for (i64 l = 0; l < L; ++l) place[l] = row_place(r + std::min(l, many - 1));
            for (i64 i = 0; i < last_.m; i += L) {
                V v[L];
#pragma GCC unroll 16
                for (int l = 0; l < L; ++l) v[l] = load<L>(shares + place[l] + i);
                transpose<L>(v);
#pragma GCC unroll 16
                for (int l = 0; l < L; ++l) store<L>(room.shares + (i + l) * L, v[l]);
            }
            backward(last_, room.shares, L, room.cells, L, room.marks + r / L * cells(last_));
            const T* const from = room.cells - last_.start * L;
            for (i64 i = 0; i < n; i += L) {
                if (i + L > n && n >= L) i = n - L;
                V v[L];
#pragma GCC unroll 16
                for (int l = 0; l < L; ++l) v[l] = load<L>(from + (i + l) * L);
                transpose<L>(v);
                if (!again && n >= L && many == L) {
#pragma GCC unroll 16
                    for (int l = 0; l < L; ++l) store<L>(dx + (r + l) * n + i, v[l] + nothing);
                    continue;
                }
                for (i64 l = 0; l < many; ++l) {
                    T* const to = dx + (r + l) * n + i;
                    const T* has = to;
                    T own[L] = {};
                    if (again && n < L) std::memcpy(static_cast<void*>(own), to, n * sizeof(T)), has = own;
                    const V sum = again ? (v[l] > T(0) ? load<L>(has) : V{}) : v[l] + nothing;
                    if (n >= L) store<L>(to, sum);
                    else store_some<L>(to, sum, n);
                }
            }
        }
    }

    void forward(const PoolAxis& ax, const I* x, i64 hop, I* y, i64 far, Mark* marks, I* ends) const {
        if (ax.taps == 3) windows<3>(ax, x, hop, y, far, marks, ends);
        else if (ax.taps == 5) windows<5>(ax, x, hop, y, far, marks, ends);
        else windows<0>(ax, x, hop, y, far, marks, ends);
    }
    // L lines of cells, `hop` apart, to their windows, `far` apart. Of K taps; 0: any.
    template <int K>
    [[gnu::noinline]] static void windows(const PoolAxis& ax, const I* x, i64 hop, I* y, i64 far, Mark* marks, I* ends) {
        const i64 k = K ? K : ax.taps, m = ax.m;
        Ints own[K ? K : 1];
        auto rear = [&](i64 i) -> Ints { if constexpr (K > 0) return own[i]; else return load<L>(ends + i * L); };
        auto keep = [&](i64 i, Ints v) { if constexpr (K > 0) own[i] = v; else store<L>(ends + i * L, v); };
        for (i64 o = 0; o < m; o += k) {
            const I* from = x + o * hop;
            Ints top = load<L>(from + (k - 1) * hop);
            marks[o + k - 1].behind = Mask{};
            keep(k - 1, top);
#pragma GCC unroll 8
            for (i64 i = k - 2; i >= 0; --i) {
                const auto v = load<L>(from + i * hop);
                marks[o + i].behind = Chosen<T>::greater(top, v);
                top = greatest(v, top);
                keep(i, top);
            }
            store<L>(y + o * far, top);
            from += k * hop;
            Mark* const next = marks + o + k;
            auto front = [&](i64 many) __attribute__((always_inline)) {
                Ints best{};
#pragma GCC unroll 8
                for (i64 i = 0; i + 1 < many; ++i) {
                    const auto v = load<L>(from + i * hop), before = rear(i + 1);
                    next[i].above = i == 0 ? Chosen<T>::all() : Chosen<T>::greater(v, best);
                    best = i == 0 ? v : greatest(best, v);
                    next[i].front = Chosen<T>::greater(best, before);
                    store<L>(y + (o + i + 1) * far, greatest(before, best));
                }
            };
            if (K > 0 && o + k <= m) front(K);
            else front(std::min(k, m - o));
        }
    }

    void backward(const PoolAxis& ax, const T* g, i64 far, T* dx, i64 hop, const Mark* marks) const {
        if (ax.taps == 3) cotangents<3>(ax, g, far, dx, hop, marks);
        else if (ax.taps == 5) cotangents<5>(ax, g, far, dx, hop, marks);
        else cotangents<0>(ax, g, far, dx, hop, marks);
    }
    // Back from windows to cells. Nothing is -0, which changes no sum.
    template <int K>
    [[gnu::noinline]] static void cotangents(const PoolAxis& ax, const T* g, i64 far, T* dx, i64 hop, const Mark* marks) {
        const i64 k = K ? K : ax.taps, m = ax.m;
        const V nothing = kept(splat<L>(-T(0)));
        auto where = [&](Mask mask, V v) __attribute__((always_inline)) { return Chosen<T>::where(mask, v, nothing); };
        auto unless = [&](Mask mask, V v) __attribute__((always_inline)) { return Chosen<T>::where(mask, nothing, v); };
        for (i64 o = 0; o < m; o += k) {
            const Mark* const next = marks + o + k;
            const T* const from = g + o * far;
            T* const to = dx + o * hop;
            auto block = [&](i64 many) __attribute__((always_inline)) {
                V carry = nothing;
#pragma GCC unroll 8
                for (i64 i = many - 2; i >= 0; --i) {
                    const V sum = carry + where(next[i].front, load<L>(from + (i + 1) * far));
                    store<L>(to + (k + i) * hop, where(next[i].above, sum)), carry = unless(next[i].above, sum);
                }
                carry = load<L>(from);
#pragma GCC unroll 8
                for (i64 i = 0; i < k; ++i) {
                    V sum = carry;
                    if (i > 0 && i < many) sum += unless(next[i - 1].front, load<L>(from + i * far));
                    const Mask behind = marks[o + i].behind;
                    V here = unless(behind, sum);
                    carry = where(behind, sum);
                    if (o > 0 && i + 1 < k) here += load<L>(to + i * hop);
                    store<L>(to + i * hop, here);
                }
            };
            if (K > 0 && o + k <= m) block(K);
            else block(std::min(k, m - o));
        }
    }

    const Pool& pool_;
    const PoolAxis& last_;
    i64 count_, pitch_, keys_ = 0, marks_ = 0, given_, line_;
    Stage stages_[max_axes];
};

}  // namespace
}  // namespace lunette::LN_ISA
