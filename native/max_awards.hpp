// The derivative of the greatest cells of windows whose winners are known by their numbers, from the cells' side.
#pragma once
#include <vector>

#include "max_numbers.hpp"

namespace lunette::LN_ISA {
namespace {

// dx where each cell asks the outputs that read it whether its number is theirs. For inner strides of 1, 2 and 4, and small
// windows. dx is written once, in order, and no cell waits for another.
template <class T>
class Awards {
    using I = Int<T>;
    static constexpr int L = lanes<T>;
    static constexpr i64 most_taps = 16, most_window = 64, most_edge = 1 << 14, most_readers = 1 << 16;

public:
    static bool suits(const Pool& pool) {
        if (!pool.transposed || pool.transposed->window > sum_block || !places_fit<T>(pool)) return false;
        const PoolAxis& ax = pool.axes[pool.rank - 1];
        if (!ax.regular || (ax.stride != 1 && ax.stride != 2 && ax.stride != 4)) return false;
        if (ax.taps > most_taps || pool.window > most_window) return false;
        i64 readers = 1;
        for (int a = 0; a + 1 < pool.rank; ++a) readers *= pool.transposed->axes[a].most;
        const i64 rows = pool.cells_in / ax.n;
        return readers <= WindowRows::most && rows * readers <= most_readers && edge_cells(ax) * (pool.window / ax.most) <= most_edge;
    }

    Awards(const Pool& pool, i64 planes, const std::uint8_t* numbers, const T* g)
        : pool_(pool), back_(*pool.transposed), ax_(pool.axes[pool.rank - 1]), numbers_(numbers), g_(g),
          total_(planes * pool.cells_out) {
        i64 size = 1;
        for (int a = pool.rank - 1; a >= 0; --a) size_[a] = size, size *= pool.axes[a].m;
        // Cell t*stride + e of a row is tap `tap` of output t + far, for every Ask of e.
        for (i64 e = 0; e < ax_.stride; ++e)
            for (i64 k = 0; k < ax_.taps; ++k) {
                const i64 far = e - ax_.start - k * ax_.step;
                if (far % ax_.stride != 0) continue;
                ask_[e][asks_[e]++] = {far / ax_.stride, k};
                least_ = std::min(least_, far / ax_.stride), most_ = std::max(most_, far / ax_.stride);
            }
        // Vectors of cells from plain_from_ to plain_to_ ask no output that is clipped, as far as their cells are in the row.
        while (plain_from_ * ax_.stride < ax_.n && plain_from_ + least_ < ax_.full_lo) plain_from_ += L;
        plain_to_ = plain_from_;
        while (plain_to_ * ax_.stride < ax_.n && asks_plain(plain_to_)) plain_to_ += L;
        for (i64 t = 0; t * ax_.stride < ax_.n; t += L) {
            edge_.push_back(static_cast<i64>(wanted_.size()));
            // (Where the arrays end, vectors at the end of a row are none of the plain ones.)
            const bool inside = t + most_ + L <= ax_.m && (t + L) * ax_.stride <= ax_.n;
            const bool plain = t >= plain_from_ && t < plain_to_ && inside;
            for (i64 row = 0; !plain && row < pool.window / ax_.most; ++row)
                for (i64 e = 0; e < ax_.stride; ++e)
                    for (i64 k = 0; k < asks_[e]; ++k) list_wanted(t, ask_[e][k], row);
        }
        if (pool.rank > 1) list_readers();
        else readers_.push_back({0, 0});
    }

    void operator()(i64 planes, T* dx) const {
        const PoolAxis& top = back_.axes[0];
        const i64 rest = pool_.cells_out / pool_.axes[0].m;
        over_parts(back_, planes, [&](i64 p0, i64 p1, i64 i0, i64 i1) {
            i64 lo, hi;
            cells_of(top, i0, i1, lo, hi);
            for (i64 p = p0; p < p1; ++p) {
                const bool signs = has_negative_zero(g_ + p * pool_.cells_out + lo * rest, (hi - lo) * rest);
                const i64 more = i0 == 0 && i1 == top.m ? (p1 - p - 1) * pool_.cells_in : 0;
                if (signs) any_stride<true>(p, i0, i1, dx + p * pool_.cells_in, more);
                else any_stride<false>(p, i0, i1, dx + p * pool_.cells_in, more);
            }
        });
    }

private:
    struct Ask {
        i64 far, tap;
    };
    // A row of outputs that reads a row of inputs: where it starts, and which row of its windows that is.
    struct Reader {
        i64 from;
        I row;
    };
    struct Readers {
        const Reader* list;
        i64 many, base;  // `base` outputs before those of the plane
        i64 from(i64 r) const { return base + list[r].from; }
    };

    static i64 edge_cells(const PoolAxis& ax) {
        const i64 reach = 2 * (ax.taps * ax.step / ax.stride + ax.full_lo + ax.m - ax.full_hi) / L + 4;
        return std::min(reach, ax.n / (ax.stride * L) + 1) * ax.taps * L;
    }

    bool asks_plain(i64 t) const {
        for (i64 e = 0; e < ax_.stride; ++e)
            for (i64 k = 0; k < asks_[e]; ++k) {
                const i64 cells = std::min<i64>(L, (ax_.n - e - t * ax_.stride + ax_.stride - 1) / ax_.stride);
                if (cells > 0 && t + ask_[e][k].far + cells > ax_.full_hi) return false;
            }
        return true;
    }

    // At the ends of a row windows are clipped, or there are none: the numbers that L outputs are asked for. No byte is -1.
    void list_wanted(i64 t, Ask ask, i64 row) {
        for (int l = 0; l < L; ++l) {
            const i64 o = t + ask.far + l;
            const bool there = o >= 0 && o < ax_.m;
            const i64 cell = ax_.start + o * ax_.stride + ask.tap * ax_.step;
            const bool reads = there && cell >= 0 && cell < ax_.n;
            wanted_.push_back(static_cast<I>(reads ? row * ax_.count[o] + (cell - ax_.first[o]) / ax_.step : -1));
        }
    }

    template <bool signs>
    void any_stride(i64 plane, i64 i0, i64 i1, T* dx, i64 more) const {
        const i64 a = asks_[0], b = asks_[1];
        if (ax_.stride == 1 && a == 3) part<1, 3, 0, signs>(plane, i0, i1, dx, more);
        else if (ax_.stride == 1) part<1, 0, 0, signs>(plane, i0, i1, dx, more);
        else if (ax_.stride == 2 && a == 1 && b == 1) part<2, 1, 1, signs>(plane, i0, i1, dx, more);
        else if (ax_.stride == 2 && a == 1 && b == 2) part<2, 1, 2, signs>(plane, i0, i1, dx, more);
        else if (ax_.stride == 2 && a == 2 && b == 1) part<2, 2, 1, signs>(plane, i0, i1, dx, more);
        else if (ax_.stride == 2) part<2, 0, 0, signs>(plane, i0, i1, dx, more);
        else part<4, 0, 0, signs>(plane, i0, i1, dx, more);
    }

    // The input cells i0..i1-1 of axis 0 of a plane, behind which there are `more` that will be written later. A and B are the
    // numbers of asks of even and odd cells; 0: any.
    template <int S, int A, int B, bool signs>
    void part(i64 plane, i64 i0, i64 i1, T* dx, i64 more) const {
        const i64 base = plane * pool_.cells_out;
        if (pool_.rank == 1) {  // parts of the one row begin with a vector
            const i64 width = S * L, end = i1 == ax_.n ? ax_.n : std::min(ax_.n, (i1 + width - 1) / width * width);
            i0 = (i0 + width - 1) / width * width;
            return row<S, A, B, signs>({readers_.data(), 1, base}, i0, end, dx, end - i0 + more);
        }
        const i64 rows = pool_.cells_in / pool_.axes[0].n / ax_.n;
        T* const end = dx + i1 * rows * ax_.n;
        T* to = dx + i0 * rows * ax_.n;
        for (i64 i = i0 * rows; i < i1 * rows; ++i, to += ax_.n) {
            const Readers readers{readers_.data() + first_[i], first_[i + 1] - first_[i], base};
            row<S, A, B, signs>(readers, 0, ax_.n, to, end - to + more);
        }
    }

    // The readers of every row of a plane.
    void list_readers() {
        const int outer = pool_.rank - 1;
        i64 i[max_axes] = {};
        WindowRows rows;
        for (i64 row = 0; row < pool_.cells_in / ax_.n; ++row) {
            first_.push_back(static_cast<i64>(readers_.size()));
            const i64 start = rows.look(back_.axes, outer, size_, i);
            i64 j[max_axes] = {};
            for (i64 r = 0; r < rows.many; ++r) {
                i64 number = 0;
                for (int a = 0; a < outer; ++a) {
                    const PoolAxis& ax = pool_.axes[a];
                    const i64 o = back_.axes[a].first[i[a]] + j[a] * back_.axes[a].step;
                    number = number * ax.count[o] + (i[a] - ax.first[o]) / ax.step;
                }
                readers_.push_back({start + rows.at[r], static_cast<I>(number)});
                for (int a = outer - 1; a >= 0 && ++j[a] == back_.axes[a].count[i[a]]; --a) j[a] = 0;
            }
            for (int a = outer - 1; a >= 0 && ++i[a] == pool_.axes[a].n; --a) i[a] = 0;
        }
        first_.push_back(static_cast<i64>(readers_.size()));
    }

    // The cells c0..c1-1 of a row, whose cell 0 is at dx, where `left` cells may be written from c0 on: what is written too
    // much is written again.
    template <int S, int A, int B, bool signs>
    [[gnu::always_inline]] inline void row(const Readers& readers, i64 c0, i64 c1, T* dx, i64 left) const {
        constexpr i64 width = S * L;
        const i64 end = (c1 + width - 1) / width * width;
        i64 c = c0, safe = end;  // from c on, vectors read where they may; before `safe`, they write where they may, too
        if (readers.many > 0) {
            const i64 lowest = readers.from(0) + least_, highest = readers.from(readers.many - 1) + most_;
            for (; c < c1 && lowest + c / S < 0; c += width) guarded_edge<S, signs>(readers, c, c1, dx);
            if (highest + end / S > total_) safe = (total_ - highest) / L * width;
        }
        if (end - c0 > left) safe = std::min(safe, end - width);
        const i64 from = std::min(safe, plain_from_ * S), to = std::min(safe, plain_to_ * S);
        for (; c < from; c += width) edge<S, A, B, signs, false>(readers, c / S, dx + c);
        if (c < to) {
            if (A > 0 && readers.many == 1) plain_cells<S, A, B, (A ? 1 : 0), signs>(readers, c, to, dx);
            else if (A > 0 && readers.many == 2) plain_cells<S, A, B, (A ? 2 : 0), signs>(readers, c, to, dx);
            else if (A > 2 && readers.many == 3) plain_cells<S, A, B, (A > 2 ? 3 : 0), signs>(readers, c, to, dx);
            else plain_cells<S, 0, 0, 0, signs>(readers, c, to, dx);
            c = to;
        }
        for (; c < safe; c += width) edge<S, A, B, signs, false>(readers, c / S, dx + c);
        for (; c < c1; c += width) guarded_edge<S, signs>(readers, c, c1, dx);
    }

    template <int S, bool signs>
    [[gnu::noinline]] void guarded_edge(const Readers& readers, i64 c, i64 c1, T* dx) const {
        T own[S * L];
        edge<S, 0, 0, signs, true>(readers, c / S, own);
        std::memcpy(static_cast<void*>(dx + c), own, std::min<i64>(S * L, c1 - c) * sizeof(T));
    }

    template <bool signs>
    [[gnu::always_inline]] static void award(Vec<I, L> mine, Vec<T, L> given, Vec<T, L>& sum, Vec<I, L>& ever) {
        if constexpr (signs) sum += mine ? given : splat<L>(-T(0)), ever |= mine;
        else sum += bits<Vec<T, L>>(mine & bits<Vec<I, L>>(given));
    }
    template <int S, bool signs>
    [[gnu::always_inline]] static void finish(Vec<T, L>* sum, const Vec<I, L>* ever, T* to) {
        if constexpr (signs)
            for (int e = 0; e < S; ++e) sum[e] = ever[e] ? sum[e] : splat<L>(T(0));
        if constexpr (S == 2) {  // as interleave does, in registers
            Vec<T, L> low, high;
            zip<L>(sum[0], sum[1], low, high);
            store<L>(to, low), store<L>(to + L, high);
        } else {
            interleave<S, false, T>(sum, to);
        }
    }

    // Whole vectors of cells whose readers are not clipped: `R` rows of these, A and B asks of even and odd cells; 0: any.
    template <int S, int A, int B, int R, bool signs>
    void plain_cells(const Readers& readers, i64 c, i64 end, T* dx) const {
        constexpr int asks = A ? A + B : 1;
        const I taps = static_cast<I>(ax_.taps);
        i64 from[R ? R : 1][asks];
        I want[R ? R : 1][asks];
        for (int r = 0; r < R; ++r)
            for (int k = 0; k < asks; ++k) {
                const Ask& ask = k < A ? ask_[0][k] : ask_[1][k - A];
                from[r][k] = readers.from(r) + ask.far, want[r][k] = readers.list[r].row * taps + static_cast<I>(ask.tap);
            }
        for (i64 t = c / S; t * S < end; t += L) {
            Vec<T, L> sum[S];
            Vec<I, L> ever[S];
            for (int e = 0; e < S; ++e) sum[e] = splat<L>(signs ? -T(0) : T(0)), ever[e] = Vec<I, L>{};
            if constexpr (R > 0) {
                for (int r = 0; r < R; ++r)
                    for (int k = 0; k < asks; ++k) {
                        const i64 o = from[r][k] + t;
                        award<signs>(load_numbers<T>(numbers_ + o) == want[r][k], load<L>(g_ + o), sum[k < A ? 0 : S > 1],
                                     ever[k < A ? 0 : S > 1]);
                    }
            } else {
                for (i64 r = 0; r < readers.many; ++r)
                    for (int e = 0; e < S; ++e)
                        for (i64 k = 0; k < asks_[e]; ++k) {
                            const i64 o = readers.from(r) + t + ask_[e][k].far;
                            const I number = readers.list[r].row * taps + static_cast<I>(ask_[e][k].tap);
                            award<signs>(load_numbers<T>(numbers_ + o) == number, load<L>(g_ + o), sum[e], ever[e]);
                        }
            }
            finish<S, signs>(sum, ever, dx + t * S);
        }
    }

    // A vector of cells whose readers may be clipped, and, if `guarded`, lie where the arrays end.
    template <int S, int A, int B, bool signs, bool guarded>
    [[gnu::noinline]] void edge(const Readers& readers, i64 t, T* to) const {
        const I* const wanted = wanted_.data() + edge_[t / L];
        Vec<T, L> sum[S];
        Vec<I, L> ever[S];
        for (int e = 0; e < S; ++e) sum[e] = splat<L>(signs ? -T(0) : T(0)), ever[e] = Vec<I, L>{};
        for (i64 r = 0; r < readers.many; ++r) {
            const I* known = wanted + readers.list[r].row * ax_.taps * L;
            for (int e = 0; e < S; ++e)
                for (i64 k = 0; k < (A == 0 ? asks_[e] : e == 0 ? A : B); ++k, known += L) {
                    const i64 o = readers.from(r) + t + ask_[e][k].far;
                    const auto want = load<L>(known);
                    if constexpr (guarded) {
                        T given[L] = {};
                        I number[L];
                        for (int l = 0; l < L; ++l) {
                            const bool there = o + l >= 0 && o + l < total_;
                            number[l] = there ? numbers_[o + l] : I(-2);
                            if (there) given[l] = g_[o + l];
                        }
                        award<signs>(load<L>(number) == want, load<L>(given), sum[e], ever[e]);
                    } else {
                        award<signs>(load_numbers<T>(numbers_ + o) == want, load<L>(g_ + o), sum[e], ever[e]);
                    }
                }
        }
        finish<S, signs>(sum, ever, to);
    }

    const Pool& pool_;
    const Pool& back_;
    const PoolAxis& ax_;
    const std::uint8_t* numbers_;
    const T* g_;
    i64 total_;             // outputs of the whole array
    i64 size_[max_axes];    // outputs of one step along an axis
    Ask ask_[4][most_taps];
    i64 asks_[4] = {}, least_ = 0, most_ = 0, plain_from_ = 0, plain_to_;
    std::vector<i64> edge_;  // for each vector of a row of cells: where what it wants is listed, if it is not plain
    std::vector<I> wanted_;
    std::vector<i64> first_;  // of the readers of each row of a plane
    std::vector<Reader> readers_;
};

}  // namespace
}  // namespace lunette::LN_ISA
