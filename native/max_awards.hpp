// The derivative of the greatest cells of windows whose winners are known by their numbers, from the cells' side.
#pragma once
#include <vector>

#include "max_numbers.hpp"

namespace lunette::LN_ISA {
namespace {

// dx where each cell asks the outputs that read it whether its number is theirs. For inner strides of 1, 2 and 4, and small
// windows. Rows of outputs are first laid out with room at their ends, and numbered as if no window were clipped along the
// row, so that all cells of a row ask alike. dx is written once, in order, and no cell waits for another.
template <class T>
class Awards {
    using I = Int<T>;
    static constexpr int L = lanes<T>;
    static constexpr i64 most_taps = 16, most_window = 64, most_readers = 1 << 16;
    static constexpr i64 laid_cells = 2048;  // outputs laid out at a time, about
    static constexpr I nobody = -1;

public:
    static bool suits(const Pool& pool) {
        if (!pool.transposed || pool.transposed->window > sum_block || !places_fit<T>(pool)) return false;
        const PoolAxis& ax = pool.axes[pool.rank - 1];
        if (!ax.regular || (ax.stride != 1 && ax.stride != 2 && ax.stride != 4)) return false;
        if (ax.taps > most_taps || pool.window > most_window) return false;
        i64 readers = 1;
        for (int a = 0; a + 1 < pool.rank; ++a) readers *= pool.transposed->axes[a].most;
        return readers <= WindowRows::most && pool.cells_in / ax.n * readers <= most_readers;
    }

    explicit Awards(const Pool& pool) : pool_(pool), back_(*pool.transposed), ax_(pool.axes[pool.rank - 1]) {
        // Cell t*stride + e of a row is tap `tap` of output t + far, for every Ask of e.
        i64 least = 0, most = 0;
        for (i64 e = 0; e < ax_.stride; ++e)
            for (i64 k = 0; k < ax_.taps; ++k) {
                const i64 far = e - ax_.start - k * ax_.step;
                if (far % ax_.stride != 0) continue;
                ask_[e][asks_[e]++] = {far / ax_.stride, k};
                least = std::min(least, far / ax_.stride), most = std::max(most, far / ax_.stride);
            }
        before_ = -least, behind_ = most;
        for (i64 o = 0; o < ax_.m; ++o) {
            if (o == ax_.full_lo) o = std::max(o, ax_.full_hi);
            if (o < ax_.m) list_clipped(o);
        }
        const i64 rows = pool.cells_out / ax_.m / pool.axes[0].m;
        if (pool.rank == 1) {
            block_ = (laid_cells * ax_.stride + S_L - 1) / S_L * S_L;
            pitch_ = before_ + block_ / ax_.stride + behind_ + 1;
            lines_ = 1, readers_.push_back({0, 0}), first_ = {0, 1};
        } else {
            pitch_ = before_ + std::max(ax_.m, (ax_.n - 1) / ax_.stride + behind_ + 1);
            const PoolAxis& top = pool.axes[0];
            // Rows of outputs shared by two blocks are laid out twice, so blocks are not too small.
            const i64 fit = laid_cells / std::max<i64>(1, rows * pitch_), some = 4 * (top.span() / std::max<i64>(1, top.jump));
            block_ = std::clamp<i64>(std::max(fit, some) * std::max<i64>(1, top.jump), 1, top.n);
            for (i64 i = 0, lo, hi; i < top.n; i += block_) {
                cells_of(back_.axes[0], i, std::min(top.n, i + block_), lo, hi);
                lines_ = std::max(lines_, (hi - lo) * rows);
            }
            list_readers();
        }
    }

    void operator()(i64 planes, const std::uint8_t* numbers, const T* g, T* dx) const {
        const i64 room = lines_ * pitch_ + 2 * L, top = back_.axes[0].m;
        over_parts(back_, planes, [&](i64 p0, i64 p1, i64 i0, i64 i1) {
            I* const found = static_cast<I*>(scratch(2 * room * sizeof(I)));
            for (i64 i = 0; i < room; ++i) found[i] = nobody;  // at the ends of rows it stays so
            const Laid laid{found, reinterpret_cast<T*>(found + room)};
            std::memset(static_cast<void*>(laid.given), 0, room * sizeof(T));
            for (i64 p = p0; p < p1; ++p) {
                const i64 more = i0 == 0 && i1 == top ? (p1 - p - 1) * pool_.cells_in : 0;
                const i64 at = p * pool_.cells_out;
                if (pool_.rank == 1) one_row(numbers + at, g + at, i0, i1, dx + p * pool_.cells_in, laid, more);
                else rows(numbers + at, g + at, i0, i1, dx + p * pool_.cells_in, laid, more);
            }
        });
    }

private:
    static constexpr i64 S_L = 4 * L;  // a multiple of every stride's vectors
    struct Ask {
        i64 far, tap;
    };
    // A row of outputs that reads a row of inputs, and which row of its windows that is.
    struct Reader {
        i64 line;
        I row;
    };
    // Outputs as they are laid out: the numbers of their winners, and their cotangents.
    struct Laid {
        I* found;
        T* given;
        Laid at(i64 i) const { return {found + i, given + i}; }
    };
    // Outputs with fewer taps along the row than others, and what their numbers would be if they had all.
    struct Clipped {
        i64 output, numbers;
    };
    struct Readers {
        const Reader* list;
        i64 many;
        Laid laid;  // output 0 of line `line0`
        i64 line0;
        Laid at(i64 r, i64 pitch) const { return laid.at((list[r].line - line0) * pitch); }
    };

    void list_clipped(i64 o) {
        const i64 count = ax_.count[o], skipped = (ax_.first[o] - ax_.start - o * ax_.stride) / ax_.step;
        clipped_.push_back({o, static_cast<i64>(renumbered_.size())});
        for (i64 number = 0; number < pool_.window; ++number)
            renumbered_.push_back(static_cast<I>(number / count * ax_.taps + number % count + skipped));
    }

    // The readers of every row of a plane.
    void list_readers() {
        const int outer = pool_.rank - 1;
        i64 size[max_axes], i[max_axes] = {}, all = 1;
        for (int a = outer - 1; a >= 0; --a) size[a] = all, all *= pool_.axes[a].m;
        WindowRows rows;
        for (i64 row = 0; row < pool_.cells_in / ax_.n; ++row) {
            first_.push_back(static_cast<i64>(readers_.size()));
            const i64 start = rows.look(back_.axes, outer, size, i);
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

    // The outputs q0..q1-1 of a row, all of whose arrays begin with q0. Whether a cotangent is -0.
    bool lay(const std::uint8_t* numbers, const T* g, i64 q0, i64 q1, Laid to) const {
        constexpr I negative_zero = std::numeric_limits<I>::min();
        Vec<I, L> signs{};
        bool sign = false;
        auto some = [&](i64 q) {
            const auto v = load<L>(g + q);
            signs |= bits<Vec<I, L>>(v) == negative_zero;
            store<L>(to.found + q, load_numbers<T>(numbers + q)), store<L>(to.given + q, v);
        };
        const i64 n = q1 - q0;
        i64 q = 0;
        for (; q + L <= n; q += L) some(q);
        if (q < n && n >= L) some(n - L), q = n;
        for (; q < n; ++q) to.found[q] = numbers[q], to.given[q] = g[q], sign |= bits<I>(g[q]) == negative_zero;
        for (const Clipped& c : clipped_)
            if (const i64 at = c.output - q0; at >= 0 && at < n)
                to.found[at] = numbers[at] < pool_.window ? renumbered_[c.numbers + numbers[at]] : nobody;
        return sign || any(signs);
    }

    // The input cells i0..i1-1 of axis 0 of a plane, behind which there are `more` that will be written later.
    void rows(const std::uint8_t* numbers, const T* g, i64 i0, i64 i1, T* dx, Laid laid, i64 more) const {
        const i64 in = pool_.cells_in / pool_.axes[0].n / ax_.n, out = pool_.cells_out / pool_.axes[0].m / ax_.m;
        T* const end = dx + i1 * in * ax_.n;
        for (i64 b0 = i0; b0 < i1; b0 += block_) {
            const i64 b1 = std::min(i1, b0 + block_);
            i64 lo, hi;
            cells_of(back_.axes[0], b0, b1, lo, hi);
            bool signs = false;
            for (i64 line = lo * out; line < hi * out; ++line)
                signs |= lay(numbers + line * ax_.m, g + line * ax_.m, 0, ax_.m, laid.at((line - lo * out) * pitch_ + before_));
            const Rows rows{first_.data() + b0 * in, (b1 - b0) * in, laid.at(before_), lo * out, ax_.n};
            ask(rows, dx + b0 * in * ax_.n, end + more, signs);
        }
    }

    // The same of planes that are one row. Parts of it begin with a vector.
    void one_row(const std::uint8_t* numbers, const T* g, i64 i0, i64 i1, T* dx, Laid laid, i64 more) const {
        const i64 stride = ax_.stride, end = i1 == ax_.n ? ax_.n : std::min(ax_.n, (i1 + S_L - 1) / S_L * S_L);
        for (i64 b0 = (i0 + S_L - 1) / S_L * S_L; b0 < end; b0 += block_) {
            const i64 b1 = std::min(end, b0 + block_), far = before_ - b0 / stride;  // output q goes to q + far
            const i64 last = (b1 - 1) / stride + behind_, q0 = std::clamp<i64>(-far, 0, ax_.m);
            const i64 q1 = std::clamp<i64>(last + 1, q0, ax_.m);
            std::fill(laid.found, laid.found + q0 + far, nobody);
            std::fill(laid.found + q1 + far, laid.found + std::max(q1, last + 1) + far, nobody);
            const bool signs = lay(numbers + q0, g + q0, q0, q1, laid.at(q0 + far));
            ask({first_.data(), 1, laid.at(before_), 0, b1 - b0}, dx + b0, dx + end + more, signs);
        }
    }

    // Rows of inputs, of `n` cells each: where the readers of each begin; lines from `line0` on are laid out.
    struct Rows {
        const i64* first;
        i64 many;
        Laid laid;
        i64 line0, n;
    };

    void ask(const Rows& rows, T* dx, const T* end, bool signs) const {
        if (signs) any_stride<true>(rows, dx, end);
        else any_stride<false>(rows, dx, end);
    }

    template <bool signs>
    void any_stride(const Rows& rows, T* dx, const T* end) const {
        const i64 a = asks_[0], b = asks_[1];
        if (ax_.stride == 1 && a == 3) each_row<1, 3, 0, signs>(rows, dx, end);
        else if (ax_.stride == 1) each_row<1, 0, 0, signs>(rows, dx, end);
        else if (ax_.stride == 2 && a == 1 && b == 1) each_row<2, 1, 1, signs>(rows, dx, end);
        else if (ax_.stride == 2 && a == 1 && b == 2 && ax_.step == 1) each_row<2, 1, 2, signs>(rows, dx, end);
        else if (ax_.stride == 2 && a == 2 && b == 1 && ax_.step == 1) each_row<2, 2, 1, signs>(rows, dx, end);
        else if (ax_.stride == 2) each_row<2, 0, 0, signs>(rows, dx, end);
        else each_row<4, 0, 0, signs>(rows, dx, end);
    }

    // A and B are the numbers of asks of even and odd cells; 0: any.
    template <int S, int A, int B, bool signs>
    void each_row(const Rows& rows, T* dx, const T* end) const {
        for (i64 i = 0; i < rows.many; ++i, dx += rows.n) {
            const Readers readers{readers_.data() + rows.first[i], rows.first[i + 1] - rows.first[i], rows.laid, rows.line0};
            if (A > 0 && readers.many == 1) cells<S, A, B, (A ? 1 : 0), signs>(readers, rows.n, dx, end - dx);
            else if (A > 0 && readers.many == 2) cells<S, A, B, (A ? 2 : 0), signs>(readers, rows.n, dx, end - dx);
            else if (A > 2 && readers.many == 3) cells<S, A, B, (A > 2 ? 3 : 0), signs>(readers, rows.n, dx, end - dx);
            else cells<S, 0, 0, 0, signs>(readers, rows.n, dx, end - dx);
        }
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

    // n cells, asked by R rows of outputs, where A even and B odd cells have asks; 0: any. `left` cells may be written from dx
    // on: what is written too much is written again.
    template <int S, int A, int B, int R, bool signs>
    void cells(const Readers& readers, i64 n, T* dx, i64 left) const {
        // Three taps two apart: of two neighbouring outputs, one is asked by an even and an odd cell, the other by one of them.
        constexpr bool three = S == 2 && A + B == 3;
        constexpr int asks = three ? 2 : A ? A + B : 1;
        const I taps = static_cast<I>(ax_.taps);
        Laid from[R ? R : 1][asks];
        I want[R ? R : 1][A ? A + B : 1];
        for (int r = 0; r < R; ++r) {
            const Laid line = readers.at(r, pitch_);
            for (int k = 0; k < A + B; ++k) {
                const Ask& ask = k < A ? ask_[0][k] : ask_[1][k - A];
                if (!three) from[r][k] = line.at(ask.far);
                want[r][k] = readers.list[r].row * taps + static_cast<I>(ask.tap);
            }
            if constexpr (three) {
                const i64 both = A == 1 ? ask_[0][0].far : ask_[1][0].far, one = A == 1 ? ask_[1][0].far : ask_[0][1].far;
                from[r][0] = line.at(both), from[r][1] = line.at(one);
            }
        }
        auto some = [&](i64 t, T* to) __attribute__((always_inline)) {
            Vec<T, L> sum[S];
            Vec<I, L> ever[S];
            for (int e = 0; e < S; ++e) sum[e] = splat<L>(signs ? -T(0) : T(0)), ever[e] = Vec<I, L>{};
            if constexpr (three && R > 0) {
                constexpr int lone = A == 1;  // whether the cell that asks two outputs is the odd one
                for (int r = 0; r < R; ++r) {
                    const auto found = load<L>(from[r][0].found + t);
                    const auto given = load<L>(from[r][0].given + t);
                    award<signs>(found == want[r][0], given, sum[0], ever[0]);
                    award<signs>(found == want[r][2], given, sum[1], ever[1]);
                    award<signs>(load<L>(from[r][1].found + t) == want[r][1], load<L>(from[r][1].given + t), sum[lone], ever[lone]);
                }
            } else if constexpr (R > 0) {
                for (int r = 0; r < R; ++r)
                    for (int k = 0; k < asks; ++k)
                        award<signs>(load<L>(from[r][k].found + t) == want[r][k], load<L>(from[r][k].given + t),
                                     sum[k < A ? 0 : S > 1], ever[k < A ? 0 : S > 1]);
            } else {
                for (i64 r = 0; r < readers.many; ++r)
                    for (int e = 0; e < S; ++e)
                        for (i64 k = 0; k < asks_[e]; ++k) {
                            const Laid at = readers.at(r, pitch_).at(ask_[e][k].far + t);
                            const I number = readers.list[r].row * taps + static_cast<I>(ask_[e][k].tap);
                            award<signs>(load<L>(at.found) == number, load<L>(at.given), sum[e], ever[e]);
                        }
            }
            finish<S, signs>(sum, ever, to);
        };
        if (n >= S * L && n % S == 0) {  // the last vector does some cells again
            const i64 last = n / S - L;
            for (i64 t = 0;; t = std::min(t + L, last)) {
                some(t, dx + t * S);
                if (t == last) return;
            }
        }
        const i64 width = S * L, whole = left >= (n + width - 1) / width * width ? n : n / width * width;
        i64 t = 0;
        for (; t * S < whole; t += L) some(t, dx + t * S);
        if (t * S >= n) return;
        T own[S * L];
        some(t, own);
        std::memcpy(static_cast<void*>(dx + t * S), own, (n - t * S) * sizeof(T));
    }

    const Pool& pool_;
    const Pool& back_;
    const PoolAxis& ax_;
    Ask ask_[4][most_taps];
    i64 asks_[4] = {};
    i64 before_, behind_, pitch_, block_, lines_ = 0;  // cells before a laid row and behind it; of a row; inputs done at a time; rows
    std::vector<Clipped> clipped_;
    std::vector<I> renumbered_;
    std::vector<i64> first_;  // of the readers of each row of a plane
    std::vector<Reader> readers_;
};

}  // namespace
}  // namespace lunette::LN_ISA
