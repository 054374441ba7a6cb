// The derivative of the greatest cells of windows that overlap, from the cells' side.
#pragma once
#include "max_join.hpp"

namespace lunette::LN_ISA {
namespace {

// dx where ties go to the first: each cell asks the outputs that read it whether it is their winner. For inner strides of
// 1, 2 and 4, and windows that overlap little. dx is written once, in order, and no cell waits for another.
template <class T>
class Claims {
    using I = Int<T>;
    using Op = MaxPlace<T>;
    static constexpr int L = lanes<T>;
    static constexpr i64 most_taps = 16, found_cells = 2048;

public:
    static bool suits(const Pool& pool) {
        if (!pool.transposed || !places_fit<T>(pool)) return false;
        const PoolAxis& ax = pool.axes[pool.rank - 1];
        if (!ax.regular || (ax.stride != 1 && ax.stride != 2 && ax.stride != 4)) return false;
        // An output as far off as a row is long must not read the same cell: see `row`.
        const i64 row = ax.m * ax.stride;
        if (ax.taps > most_taps || (ax.taps - 1) * ax.step >= row || -ax.start > row) return false;
        // Every output is asked by each cell of its window, a vector of cells at a time; handing it out costs as much as
        // asking about twice a vector, whatever the window.
        i64 readers = 1;  // many outputs may read the same few cells
        for (int a = 0; a + 1 < pool.rank; ++a) readers *= pool.transposed->axes[a].most;
        return pool.window <= 2 * L && readers <= WindowRows::most;
    }

    Claims(const Pool& pool, const T* x_end)
        : pool_(pool), back_(*pool.transposed), ax_(pool.axes[pool.rank - 1]), reducer_(pool, x_end) {
        const PoolAxis& top = pool.axes[0];
        rest_in_ = pool.cells_in / top.n, rest_out_ = pool.cells_out / top.m;
        i64 size = 1;
        for (int a = pool.rank - 1; a >= 0; --a) size_[a] = size, size *= pool.axes[a].m;
        // Cell t*stride + e of a row is read by the outputs t + ask_[e][...].
        i64 reach = 0;
        for (i64 e = 0; e < ax_.stride; ++e)
            for (i64 k = 0; k < ax_.taps; ++k) {
                const i64 far = e - ax_.start - k * ax_.step;
                if (far % ax_.stride != 0) continue;
                ask_[e][asks_[e]++] = far / ax_.stride;
                reach = std::max(reach, std::abs(far / ax_.stride));
            }
        margin_ = reach + 2 * L + std::max<i64>(0, ax_.n / ax_.stride + 1 - ax_.m);
        group_ = reducer_.group();
        // Rows of inputs done at a time; rows shared by two blocks are looked at twice, so blocks are not too small.
        i64 outputs = std::max(found_cells / std::max<i64>(1, rest_out_), 4 * (top.span() / std::max<i64>(1, top.jump)));
        block_ = std::clamp<i64>(outputs * std::max<i64>(1, top.jump) / 4 * 4, 4, (top.n + 3) / 4 * 4);
        if (group_ > 1) block_ = top.n;
        for (i64 i = 0; i < top.n; i += block_) {
            i64 lo, hi;
            cells_of(back_.axes[0], i, std::min(top.n, i + block_), lo, hi);
            room_ = std::max(room_, (hi - lo) * rest_out_);
        }
        room_ *= group_;
    }

    void operator()(i64 planes, const T* x, const T* g, T* dx) const {
        const PoolAxis& top = pool_.axes[0];
        const i64 blocks = (top.n + block_ - 1) / block_, work = block_ * rest_in_;
        const i64 chunks = blocks == 1 ? (planes + group_ - 1) / group_ : planes * blocks;
        const i64 each = std::clamp<i64>((24 << 10) / std::max<i64>(1, work * (blocks == 1 ? group_ : 1)), 1, chunks);
        auto task = [&](i64 index) {
            char* memory = static_cast<char*>(scratch(bytes()));
            for (i64 c = index * each; c < std::min(chunks, (index + 1) * each); ++c) {
                const i64 i = c % blocks * block_;
                if (blocks == 1) chunk(c * group_, std::min(group_, planes - c * group_), 0, top.n, x, g, dx, memory);
                else chunk(c / blocks, 1, i, std::min(top.n, i + block_), x, g, dx, memory);
            }
        };
        const i64 tasks = (chunks + each - 1) / each;
        if (tasks == 1) task(0);
        else parallel_for(tasks, task);
    }

private:
    std::size_t bytes() const {
        return reducer_.bytes() + 2 * (room_ + 2 * margin_ + 64) * Op::cell_bytes + (ax_.n + 8 * L) * sizeof(T) + 1024;
    }

    // The input cells i0..i1-1 of axis 0 of `count` planes; all of axis 0 if these are several.
    void chunk(i64 plane, i64 count, i64 i0, i64 i1, const T* x, const T* g, T* dx, char* memory) const {
        i64 o0, o1;
        cells_of(back_.axes[0], i0, i1, o0, o1);
        const i64 cells = count * (o1 - o0) * rest_out_;
        auto found = Op::make(memory, room_ + 2 * margin_).at(margin_);
        T* given = reinterpret_cast<T*>(Op::make(memory, room_ + 2 * margin_).v) + margin_;
        T* spare = reinterpret_cast<T*>(memory);
        memory += ((ax_.n + 8 * L) * sizeof(T) + 63) / 64 * 64;
        x += plane * pool_.cells_in;
        if (group_ > 1) {
            o0 = 0;
            reducer_.run_planes(x, count, found, memory, [](i64, i64) {});
        } else if (o0 < o1) {
            reducer_.run(0, x, 0, o0, o1, found, memory);
        }
        const T* from = g + plane * pool_.cells_out + o0 * rest_out_;
        Vec<I, L> signs{};
        constexpr I negative_zero = std::numeric_limits<I>::min();
        bool signed_zeros = false;
        i64 q = 0;
        for (; q + L <= cells; q += L) {
            auto v = load<L>(from + q);
            signs |= bits<Vec<I, L>>(v) == negative_zero;
            store<L>(given + q, v);
        }
        for (; q < cells; ++q) given[q] = from[q], signed_zeros |= bits<I>(from[q]) == negative_zero;
        for (i64 k = 0; k < margin_; ++k)
            found.p[-1 - k] = found.p[cells + k] = -1, given[-1 - k] = given[cells + k] = 0;
        if (signed_zeros || any(signs)) rows_as<true>(plane, count, i0, i1, o0, found.p, given, dx, spare);
        else rows_as<false>(plane, count, i0, i1, o0, found.p, given, dx, spare);
    }

    template <bool signed_zeros>
    void rows_as(i64 plane, i64 count, i64 i0, i64 i1, i64 o0, const I* found, const T* given, T* dx, T* spare) const {
        if (ax_.stride == 1) rows<1, signed_zeros>(plane, count, i0, i1, o0, found, given, dx, spare);
        else if (ax_.stride == 2) rows<2, signed_zeros>(plane, count, i0, i1, o0, found, given, dx, spare);
        else rows<4, signed_zeros>(plane, count, i0, i1, o0, found, given, dx, spare);
    }

    template <int S, bool signed_zeros>
    void rows(i64 plane, i64 count, i64 i0, i64 i1, i64 o0, const I* found, const T* given, T* dx, T* spare) const {
        const int outer = pool_.rank - 1;
        const i64 length = outer == 0 ? i1 - i0 : ax_.n, first = outer == 0 ? i0 : 0;
        T* to = dx + plane * pool_.cells_in + i0 * rest_in_;
        T* const end = to + ((count - 1) * pool_.cells_in + (i1 - i0) * rest_in_);
        const i64 spill = (length + S * L - 1) / (S * L) * (S * L);
        i64 i[max_axes] = {i0};
        WindowRows readers;
        I place = static_cast<I>(i0 * rest_in_);
        for (i64 q = 0; q < count; ++q) {
            const i64 base = (q * pool_.axes[0].m - o0) * rest_out_;
            for (;;) {
                // The rows of outputs that read this row of inputs.
                const i64 from = base + first / S + readers.look(back_.axes, outer, size_, i);
                // A row may write past its end, where the next row will write later; at the end of all it must not.
                const bool safe = end - to >= spill;
                T* const write = safe ? to : spare;
                if constexpr (signed_zeros) row<S>(readers.at, readers.many, found + from, given + from, place, length, write);
                else each_reader<S>(readers.at, readers.many, found + from, given + from, place, length, write);
                if (!safe) std::memcpy(static_cast<void*>(to), spare, length * sizeof(T));
                to += length, place += static_cast<I>(length);
                int a = outer - 1;
                for (; a > 0 && ++i[a] == pool_.axes[a].n; --a) i[a] = 0;
                if (a < 0 || (a == 0 && ++i[0] == i1)) break;
            }
            i[0] = i0;
        }
    }

    // One row of inputs. Outputs before the start or past the end of a row of outputs are those of other rows, or
    // margin: their winners lie elsewhere. Here a sum of -0 alone stays -0.
    template <int S>
    void row(const i64* readers, i64 many, const I* found, const T* given, I place, i64 n, T* dx) const {
        for (i64 t = 0; t * S < n; t += L) {
            Vec<T, L> sum[S];
            for (int e = 0; e < S; ++e) {
                const auto cell = iota<L, I>(0, S) + static_cast<I>(place + t * S + e);
                auto total = splat<L>(-T(0));
                Vec<I, L> ever{};
                for (i64 r = 0; r < many; ++r)
                    for (i64 k = 0; k < asks_[e]; ++k) {
                        const i64 o = readers[r] + t + ask_[e][k];
                        const auto mine = load<L>(found + o) == cell;
                        total += mine ? load<L>(given + o) : splat<L>(-T(0)), ever |= mine;
                    }
                sum[e] = ever ? total : splat<L>(T(0));
            }
            interleave<S, false, T>(sum, dx + t * S);
        }
    }

    // The same without -0. The common numbers of taps are known beforehand.
    template <int S>
    void each_reader(const i64* readers, i64 many, const I* found, const T* given, I place, i64 n, T* dx) const {
        const i64 a = asks_[0], b = asks_[1];
        if constexpr (S == 1) {
            if (a == 3) return some_readers<S, 3, 0>(readers, many, found, given, place, n, dx);
            if (a == 5) return some_readers<S, 5, 0>(readers, many, found, given, place, n, dx);
        } else if constexpr (S == 2) {
            if (a == 1 && b == 2) return some_readers<S, 1, 2>(readers, many, found, given, place, n, dx);
            if (a == 2 && b == 1) return some_readers<S, 2, 1>(readers, many, found, given, place, n, dx);
        }
        some_readers<S, 0, 0>(readers, many, found, given, place, n, dx);
    }

    // Up to three reading rows at once, the others one after the other.
    template <int S, int A, int B>
    void some_readers(const i64* readers, i64 many, const I* found, const T* given, I place, i64 n, T* dx) const {
        if (many == 0) read<S, 0, 0, 0, false>(readers, found, given, place, n, dx);
        else if (many == 1) read<S, A, B, 1, false>(readers, found, given, place, n, dx);
        else if (many == 2) read<S, A, B, 2, false>(readers, found, given, place, n, dx);
        else read<S, A, B, 3, false>(readers, found, given, place, n, dx);
        for (i64 r = 3; r < many; ++r) read<S, A, B, 1, true>(readers + r, found, given, place, n, dx);
    }

    // A and B are the numbers of taps at even and odd cells, or all are as in asks_ if A = 0.
    template <int S, int A, int B, int R, bool add>
    void read(const i64* readers, const I* found, const T* given, I place, i64 n, T* dx) const {
        const auto ramp = iota<L, I>(0, S);
        i64 from[R + 1];
        for (int r = 0; r < R; ++r) from[r] = readers[r];
        i64 far[2][A + B + 1];
        for (int k = 0; k < A; ++k) far[0][k] = ask_[0][k];
        for (int k = 0; k < B; ++k) far[1][k] = ask_[1][k];
        for (i64 t = 0; t * S < n; t += L) {
            Vec<T, L> sum[S];
            for (int e = 0; e < S; ++e) {
                const auto cell = ramp + static_cast<I>(place + t * S + e);
                sum[e] = splat<L>(T(0));
                for (int r = 0; r < R; ++r) {
                    const i64 taps = A == 0 ? asks_[e] : e == 0 ? A : B;
                    for (i64 k = 0; k < taps; ++k) {
                        const i64 o = from[r] + t + (A == 0 ? ask_[e][k] : far[e & 1][A == 0 ? 0 : k]);
                        sum[e] += bits<Vec<T, L>>((load<L>(found + o) == cell) & bits<Vec<I, L>>(load<L>(given + o)));
                    }
                }
            }
            interleave<S, add, T>(sum, dx + t * S);
        }
    }

    const Pool& pool_;
    const Pool& back_;
    const PoolAxis& ax_;
    Reducer<Op> reducer_;
    i64 rest_in_, rest_out_, margin_, group_, block_, room_ = 0;
    i64 size_[max_axes];  // outputs that one step along an axis passes
    i64 ask_[4][most_taps], asks_[4] = {};
};

}  // namespace
}  // namespace lunette::LN_ISA
