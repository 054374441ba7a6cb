// The derivative of the greatest cells of windows of three by three, two apart, whose winners are known by their numbers.
#pragma once
#include "max_numbers.hpp"

namespace lunette::LN_ISA {
namespace {

// As Awards, but for this one shape of windows, the most common that overlap. Numbers are read as if no window were clipped, so
// that every cell asks for one of nine numbers that stay in registers; two rows of dx are written for each row of outputs, and
// nothing is set up for either: small planes are as fast as large ones.
template <class T>
class ThreeAwards {
    using I = Int<T>;
    using Ints = Vec<I, lanes<T>>;
    static constexpr int L = lanes<T>;
    static constexpr I nobody = I(1) << 30;  // a bit that no number has
    static constexpr i64 taps = 3, laid_cells = 2048;

public:
    static bool suits(const Pool& pool) {
        if (pool.rank != 2 || !pool.transposed) return false;
        for (int a = 0; a < 2; ++a) {
            const PoolAxis& ax = pool.axes[a];
            if (!ax.regular || ax.stride != 2 || ax.taps != taps || ax.step != 1 || ax.start < -1 || ax.start > 0) return false;
            if (ax.has_empty) return false;
        }
        return true;
    }

    // g has the cotangents of so many planes; past them nothing is read.
    ThreeAwards(const Pool& pool, i64 planes, const T* g)
        : back_(*pool.transposed), top_(pool.axes[0]), ax_(pool.axes[1]), g_(g), g_end_(g + planes * pool.cells_out) {
        units_ = (ax_.n + 1) / 2;
        narrow_ = std::max(units_, ax_.m) <= L;
        pitch_ = (std::max(ax_.m, units_) + 2 * L + L) / L * L;
        lines_ = std::clamp<i64>(laid_cells / pitch_, 4, top_.m + 1) + 1;
    }

    void operator()(i64 planes, const std::uint8_t* numbers, T* dx) const {
        const i64 in = top_.n * ax_.n, out = top_.m * ax_.m;
        over_parts(back_, planes, [&](i64 p0, i64 p1, i64 i0, i64 i1) {
            const Room room = prepare(static_cast<I*>(scratch(cells() * sizeof(I))));
            some(room, {numbers + p0 * out, numbers + planes * out, g_ + p0 * out, p1 - p0, i0, i1, dx + p0 * in});
        });
    }

    // Memory for rows of outputs that are laid out, and what their numbers are read by.
    struct Room {
        I *found, *clips;
        T* given;
    };
    i64 cells() const { return 2 * (lines_ + 1) * pitch_ + 4 * (ax_.m + L); }
    Room prepare(I* memory) const {
        const i64 laid = (lines_ + 1) * pitch_;
        Room room{memory + 4 * (ax_.m + L), memory, reinterpret_cast<T*>(memory + 4 * (ax_.m + L) + laid)};
        if (!narrow_) {
            std::fill(room.found, room.found + laid, nobody);  // at the ends of rows it stays so, and in the last
            std::memset(static_cast<void*>(room.given), 0, laid * sizeof(T));
        }
        for (i64 q = 0; q < ax_.m + L; ++q) {
            I* const clip = room.clips + q / L * 4 * L + q % L;
            const i64 count = q < ax_.m ? ax_.count[q] : taps;
            clip[0] = count == 1, clip[L] = count == 2, clip[2 * L] = count == taps ? 0 : -1;
            clip[3 * L] = q < ax_.m ? static_cast<I>(ax_.first[q] - ax_.start - 2 * q) : nobody;
        }
        return room;
    }

    // The rows i0..i1-1 of so many planes, whose arrays begin here. Numbers before `end` may be read.
    struct Part {
        const std::uint8_t *numbers, *end;
        const T* g;
        i64 planes, i0, i1;
        T* dx;
    };
    void some(Room room, const Part& part) const {
        i64 o0, o1;
        outputs(part.i0, part.i1, o0, o1);
        const bool signs = holds_negative_zero(part.g + o0 * ax_.m, ((part.planes - 1) * top_.m + o1 - o0) * ax_.m);
        if (ax_.start == 0) signs ? rows<0, true>(room, part) : rows<0, false>(room, part);
        else signs ? rows<-1, true>(room, part) : rows<-1, false>(room, part);
    }

    // The outputs whose windows the rows i0..i1-1 are in.
    void outputs(i64 i0, i64 i1, i64& o0, i64& o1) const {
        o0 = std::max<i64>(0, lower(i0)), o1 = std::min(top_.m, lower(i1 - 1) + 2);
    }

private:
    // A row of inputs lies in the windows of this row of outputs, and maybe in those of the next.
    i64 lower(i64 i) const { return (i - 1 - top_.start + 2) / 2 - 1; }

    static bool holds_negative_zero(const T* g, i64 n) {
        constexpr I least = std::numeric_limits<I>::min();
        if (n < L) {
            bool found = false;
            for (i64 i = 0; i < n; ++i) found |= bits<I>(g[i]) == least;
            return found;
        }
        auto low = bits<Ints>(load<L>(g + n - L));
        for (i64 i = 0; i + L <= n; i += L) {
            const auto v = bits<Ints>(load<L>(g + i));
            low = v < low ? v : low;
        }
        return any(low == least);
    }

    // Numbers of windows of which some lack cells: counted among three cells to a row, from the first that a window would have.
    struct Clips {
        Ints twice, half, some, first;
        explicit Clips(const I* p) : twice(load<L>(p)), half(load<L>(p + L)), some(load<L>(p + 2 * L)), first(load<L>(p + 3 * L)) {}
        Ints operator()(Ints number, I rows) const { return number + (((number << twice) >> half) & some) + (first + rows); }
    };
    // As many numbers as the rows have that the windows of row o lack.
    I lacking(i64 o) const { return static_cast<I>(taps * (top_.first[o] - top_.start - 2 * o)); }

    // What a row of outputs says to L units of two cells: the winners of the windows that a unit lies in the middle of, and of
    // those beside it, before (S = 0) or behind.
    struct Said {
        Ints found, beside;
        Vec<T, L> given, other;
    };

    // S is where the first window starts along a row.
    template <int S, bool signs>
    void rows(Room room, const Part& part) const {
        if (narrow_) narrow<S, signs>(room, part);
        else wide<S, signs>(room, part);
    }

    // Rows that are one vector of units at most.
    template <int S, bool signs>
    [[gnu::noinline]] void narrow(Room room, const Part& part) const {
        const Clips clips(room.clips);
        const Wanted wanted;
        const i64 n = ax_.n, m = ax_.m, all = top_.m, before = lower(part.i0), last = lower(part.i1 - 1);
        const auto lane = iota<L, I>(0, 1);
        const Ints edge = kept<Ints>((lane == I(S == 0 ? 0 : L - 1)) & nobody);
        const std::uint8_t* at = part.numbers;
        const T* g = part.g;
        auto listen = [&](i64 o) __attribute__((always_inline)) -> Said {
            if (o < 0 || o >= all) return {splat<L>(nobody), splat<L>(nobody), Vec<T, L>{}, Vec<T, L>{}};
            const T* const given = g + o * m;
            Said said;
            said.found = clips(load_some_numbers<T>(at + o * m, part.end), lacking(o));
            said.beside = turned<S>(said.found) | edge;
            if (g_end_ - given > L && given > g_) {
                said.given = load<L>(given), said.other = load<L>(given + (S == 0 ? -1 : 1));
            } else {
                T own[L] = {};
                std::memcpy(static_cast<void*>(own), given, m * sizeof(T));
                said.given = load<L>(own), said.other = turned<S>(said.given);
            }
            return said;
        };
        T* dx = part.dx;
        for (i64 p = 0; p < part.planes; ++p, at += all * m, g += all * m, dx += top_.n * n) {
            i64 i = 2 * before + 1 + top_.start;  // a row that only this row of windows has; the next one has two
            Said a = listen(before);
            for (i64 o = before; o <= last; ++o, i += 2) {
                const Said b = listen(o + 1);
                T* const to = dx + i * n;
                if (i >= part.i0) {
                    Sums<S, signs> one;
                    one.meet(wanted, 1, a), one.write(to, n);
                }
                if (i + 1 < part.i1) {
                    Sums<S, signs> two;
                    two.meet(wanted, 2, a), two.meet(wanted, 0, b), two.write(to + n, n);
                }
                a = b;
            }
        }
    }
    template <int S, class V>
    static V turned(V v) {
        V r;
        if constexpr (L == 16 && S == 0) r = __builtin_shufflevector(v, v, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
        else if constexpr (L == 16) r = __builtin_shufflevector(v, v, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0);
        else if constexpr (L == 8 && S == 0) r = __builtin_shufflevector(v, v, 7, 0, 1, 2, 3, 4, 5, 6);
        else if constexpr (L == 8) r = __builtin_shufflevector(v, v, 1, 2, 3, 4, 5, 6, 7, 0);
        else if constexpr (L == 4 && S == 0) r = __builtin_shufflevector(v, v, 3, 0, 1, 2);
        else if constexpr (L == 4) r = __builtin_shufflevector(v, v, 1, 2, 3, 0);
        else r = __builtin_shufflevector(v, v, 1, 0);
        return r;
    }

    // Longer rows. Several rows of outputs are laid out before the first is read: what is read across two vectors that were
    // just written waits until both have reached the cache.
    template <int S, bool signs>
    [[gnu::noinline]] void wide(Room room, const Part& part) const {
        const Wanted wanted;
        const i64 n = ax_.n, out = top_.m * ax_.m, units = units_, before = lower(part.i0), last = lower(part.i1 - 1);
        const i64 most = n % 2 == 0 ? units - L : units;  // the last vector of a row does some units again
        T* dx = part.dx;
        for (i64 p = 0; p < part.planes; ++p, dx += top_.n * n) {
            const std::uint8_t* const numbers = part.numbers + p * out;
            const T* const g = part.g + p * out;
            Line a{};
            for (i64 o = before, place = lines_; o <= last; ++o, ++place) {
                if (place >= lines_ - 1) {
                    for (i64 l = 0; l < lines_ && o + l <= last + 1; ++l) lay(room, numbers, part.end, o + l, l);
                    a = line(room, g, o, 0), place = 0;
                }
                const Line b = line(room, g, o + 1, place + 1);
                const i64 i = 2 * o + 1 + top_.start;
                T* const to = dx + i * n;
                if (i >= part.i0)
                    for (i64 u = 0; u < units; u += L) {
                        u = std::min(u, most);
                        Sums<S, signs> one;
                        one.meet(wanted, 1, a.template at<S>(u)), one.write(to + 2 * u, n - 2 * u);
                    }
                if (i + 1 < part.i1)
                    for (i64 u = 0; u < units; u += L) {
                        u = std::min(u, most);
                        Sums<S, signs> two;
                        two.meet(wanted, 2, a.template at<S>(u)), two.meet(wanted, 0, b.template at<S>(u));
                        two.write(to + n + 2 * u, n - 2 * u);
                    }
                a = b;
            }
        }
    }
    struct Line {
        const I* found;
        const T* given;
        template <int S>
        [[gnu::always_inline]] Said at(i64 u) const {
            constexpr int far = S == 0 ? -1 : 1;
            return {load<L>(found + u), load<L>(found + u + far), load<L>(given + u), load<L>(given + u + far)};
        }
    };
    // Row o of the outputs of a plane goes to a place in the room; rows that are not there are nobody's.
    [[gnu::noinline]] void lay(Room room, const std::uint8_t* numbers, const std::uint8_t* end, i64 o, i64 place) const {
        if (o < 0 || o >= top_.m) return;
        I* const found = room.found + place * pitch_ + L;
        const std::uint8_t* const from = numbers + o * ax_.m;
        const I lack = lacking(o);
        for (i64 q = 0; q < ax_.m; q += L)  // what is behind the row is nobody's
            store<L>(found + q, Clips(room.clips + 4 * q)(load_some_numbers<T>(from + q, end), lack));
    }
    Line line(Room room, const T* g, i64 o, i64 place) const {
        if (o < 0 || o >= top_.m) return {room.found + lines_ * pitch_ + L, room.given + lines_ * pitch_ + L};
        const T* given = g + o * ax_.m;
        if (given == g_ || g_end_ - given < units_ + L + 1) {  // what is read beside it may not be there
            T* const own = room.given + place * pitch_ + L;
            std::memcpy(static_cast<void*>(own), given, ax_.m * sizeof(T));
            given = own;
        }
        return {room.found + place * pitch_ + L, given};
    }

    struct Wanted {
        Ints of[9];
        Wanted() {
            for (int k = 0; k < 9; ++k) of[k] = kept<Ints>(splat<L>(I(k)));
        }
    };

    // 2*L cells of a row: those in the middle of their windows, and those that two windows share.
    template <int S, bool signs>
    struct Sums {
        Vec<T, L> mid = splat<L>(signs ? -T(0) : T(0)), shared = mid;
        Ints mid_won{}, shared_won{};

        static void award(Ints wins, Vec<T, L> given, Vec<T, L>& sum, Ints& won) {
            if constexpr (signs) sum += wins ? given : splat<L>(-T(0)), won |= wins;
            else sum += bits<Vec<T, L>>(wins & bits<Ints>(given));
        }
        // As row r of windows.
        [[gnu::always_inline]] void meet(const Wanted& wanted, int r, const Said& said) {
            const Ints* const of = wanted.of + taps * r;
            award(said.found == of[1], said.given, mid, mid_won);
            award(said.found == of[S == 0 ? 0 : 2], said.given, shared, shared_won);
            award(said.beside == of[S == 0 ? 2 : 0], said.other, shared, shared_won);
        }
        [[gnu::always_inline]] void write(T* to, i64 n) {
            if constexpr (signs) mid = mid_won ? mid : splat<L>(T(0)), shared = shared_won ? shared : splat<L>(T(0));
            Vec<T, L> low, high;
            if (S == 0) zip<L>(shared, mid, low, high);
            else zip<L>(mid, shared, low, high);
            soon_written(to), soon_written(to + L);
            if (n >= 2 * L) store<L>(to, low), store<L>(to + L, high);
            else store_some<L>(to, low, n), store_some<L>(to + L, high, n - L);
        }
    };

    const Pool& back_;
    const PoolAxis &top_, &ax_;
    const T *g_, *g_end_;
    i64 units_, pitch_, lines_;  // pairs of cells in a row; cells of a row of outputs that is laid out; how many are
    bool narrow_;
};

}  // namespace
}  // namespace lunette::LN_ISA
