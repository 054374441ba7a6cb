// Reductions of rows, along the innermost axis of a window.
#pragma once
#include <algorithm>

#include "rearrange.hpp"
#include "reduce_taps.hpp"
#include "windows.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr i64 scan_bytes = 8 << 10;   // what is scanned and then read again: a quarter of a first-level cache
constexpr i64 most_rows = 64;
constexpr i64 row_outputs = 2048;     // outputs of one long row done at a time

// So many rows at a time, whole groups of the vectors' lanes where there are as many.
template <class T>
inline i64 rows_together(i64 count) {
    constexpr int L = lanes<T>;
    count = std::clamp<i64>(count, 1, most_rows);
    return count < L ? count : count / L * L;
}

template <WindowReduction Op>
class RowReducer {
    using T = typename Op::Scalar;
    using Ref = typename Op::Ref;
    using Source = typename Op::Source;
    static constexpr int L = lanes<T>;

public:
    // x_end is the end of the whole input array: vectors may read past a row, never past that. Null: read on.
    RowReducer(const PoolAxis& ax, const T* x_end) : ax_(ax), x_end_(x_end) {
        const i64 outputs = std::min(ax.m, row_outputs);
        staged_ = stages(ax) ? room(ax, outputs) : 0;
        for (i64 r = 0; ax.period > 1 && r < ax.period; ++r)
            if (stages(ax.phases[r])) staged_ = std::max(staged_, room(ax.phases[r], outputs / ax.period + 2));
        rows_memory_ = (staged_ + (ax.period > 1 ? outputs + 2 * ax.period : 0)) * rows_at_once(ax) + 4 * L;
        if (crosses(ax)) across_ = (ax.n + ax.m + 4 * L) * L;
    }

    i64 cells() const { return rows_memory_ + 2 * staged_ + across_; }

    // `count` rows, one after the other; `plain` if they are known not to be special.
    bool rows(const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, char* memory, bool plain = false) const {
        const PoolAxis& ax = ax_;
        const i64 pitch = o1 - o0, chunk = rows_at_once(ax);
        // What is scanned and then read again should still be in the cache.
        const i64 some = ax.regular ? std::clamp<i64>(row_outputs / ax.stride, 8 * L, row_outputs) : row_outputs;
        bool special = false;
        for (i64 r = 0; r < count; r += chunk)
            for (i64 b0 = o0; b0 < o1; b0 += some)
                special |= some_rows(ax, x + r * ax.n, base + r * ax.n, std::min(chunk, count - r), b0,
                                     std::min(o1, b0 + some), out.at(r * pitch + b0 - o0), pitch, memory, plain);
        return special;
    }

private:
    // Whether plain_rows may work on a copy of a row: wide strides and whole rows do not.
    static bool stages(const PoolAxis& ax) {
        return ax.regular && !ax.whole && (ax.stride < 3 || (ax.step == 1 && ax.taps > 3 * ax.stride));
    }

    // Cells of a staged row for so many outputs.
    static i64 room(const PoolAxis& ax, i64 outputs) {
        return (outputs - 1) * ax.stride + (ax.taps - 1) * ax.step + 1 + 4 * L;
    }

    static i64 rows_at_once(const PoolAxis& ax) {
        return rows_together<T>(scan_bytes / (ax.n * static_cast<i64>(sizeof(T)) + 1));
    }

    // The cells from the first that is read to the last, over `count` rows.
    bool scan_rows(const PoolAxis& ax, const T* x, i64 count, i64 o0, i64 o1) const {
        if (o0 == 0 && o1 == ax.m) return Op::scan(x, count * ax.n);
        i64 lo, hi;
        cells_of(ax, o0, o1, lo, hi);
        bool special = false;
        for (i64 r = 0; r < count; ++r) special |= lo < hi && Op::scan(x + r * ax.n + lo, hi - lo);
        return special;
    }

    bool some_rows(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch, char* memory,
                   bool plain) const {
        if constexpr (Op::any_order)
            if (ax.whole && count >= L && ax.n >= L && wholes(ax.n, x, count, out)) return false;
        if (!plain && watched_rows(ax, x, base, count, o0, o1, out, pitch)) return false;
        bool special = !plain && scan_rows(ax, x, count, o0, o1);
        if (special)
            for (i64 r = 0; r < count; ++r)
                one_by_one<typename Op::Careful>(ax, Source{x + r * ax.n, base + r * ax.n}, o0, o1, o0, out.at(r * pitch));
        else if (!Op::idempotent && ax.period > 1) interleaved(ax, x, base, count, o0, o1, out, pitch, memory);
        else plain_rows(ax, x, base, count, o0, o1, out, pitch, memory);
        return special;
    }

    // Long rows of the commonest short windows, scanned and joined in one pass. False if that cannot be, or they are special.
    bool watched_rows(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch) const {
        if constexpr (!requires { typename Op::Watch; }) {
            return false;
        } else {
            if (!ax.regular || ax.step != 1 || o1 - o0 <= short_row) return false;
            if (ax.stride == 4 && ax.taps == 4) return watched<4, 4>(ax, x, base, count, o0, o1, out, pitch);
            if (ax.stride == 2 && ax.taps == 2) return watched<2, 2>(ax, x, base, count, o0, o1, out, pitch);
            if (ax.stride == 2 && ax.taps == 3) return watched<2, 3>(ax, x, base, count, o0, o1, out, pitch);
            return false;
        }
    }

    template <int S, int K>
    bool watched(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch) const {
        i64 f0, f1;
        full_outputs<S>(ax, x, count, o0, o1, f0, f1);
        if (f1 - f0 < L) return false;
        typename Op::Watch watch;
        for (i64 r = 0; r < count; ++r) {
            const Source s{x + r * ax.n, base + r * ax.n};
            const Ref to = out.at(r * pitch);
            one_by_one<typename Op::Careful>(ax, s, o0, f0, o0, to), one_by_one<typename Op::Careful>(ax, s, f1, o1, o0, to);
            const Watched<Source, typename Op::Watch> from{s, watch};
            auto some = [&](i64 o) { to.template put<L>(o - o0, join_block<Op, L, S, K>(from, ax.start + o * S, K, 1)); };
            i64 o = f0;
            for (; o + L <= f1; o += L) some(o);
            if (o < f1) some(f1 - L);
        }
        return !watch.special();
    }

    // Outputs f0..f1-1 of o0..o1-1 are not clipped, and vectors of them read no further than they may.
    template <int S>
    void full_outputs(const PoolAxis& ax, const T* x, i64 count, i64 o0, i64 o1, i64& f0, i64& f1) const {
        f0 = std::clamp(ax.full_lo, o0, o1), f1 = std::clamp(ax.full_hi, f0, o1);
        // The last pair of a stride-2 vector may reach one cell past the window.
        const i64 reach = (count - 1) * ax.n + ax.start + (f1 - 1) * ax.stride + (ax.taps - 1) * ax.step + 1;
        // (x may be a row of ours, which has room behind it.)
        const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(x), end = reinterpret_cast<std::uintptr_t>(x_end_);
        if (S == 2 && f1 > f0 && x_end_ && at <= end && end - at <= reach * sizeof(T)) --f1;
    }

    void plain_rows(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch, char* memory) const {
        if (ax.tiled && (ax.stride < 3 || !crosses(ax)) && pitch == ax.m && o1 - o0 == ax.m && ax.taps < 2 * L &&
            (ax.stride != 2 || ax.taps == 2)) {
            // Rows side by side are one long row. (A stride-2 window of one cell would be read past its end.)
            Source s{x, base};
            if (ax.stride == 1) unclipped<1>(ax, s, 1, 0, 0, count * ax.m, out, 0);
            else if (ax.stride == 2) unclipped<2>(ax, s, 1, 0, 0, count * ax.m, out, 0);
            else unclipped<3>(ax, s, 1, 0, 0, count * ax.m, out, 0);
        } else if (across_ > 0 && count >= L && crosses(ax)) {
            across(ax, x, base, count, o0, o1, out, pitch, memory);
        } else if (!ax.regular || ax.whole || (ax.stride >= 3 && ax.step == 1 && ax.taps >= 2 * L)) {
            for (i64 r = 0; r < count; ++r) runs(ax, Source{x + r * ax.n, base + r * ax.n}, o0, o1, out.at(r * pitch));
        } else if (ax.step == 1 && ax.taps > 10 && ax.taps > 3 * ax.stride && o1 - o0 > ax.taps / 2) {
            for (i64 r = 0; r < count; ++r) doubling(ax, x + r * ax.n, base + r * ax.n, o0, o1, out.at(r * pitch), memory);
        } else if (ax.stride == 1) {
            slide<1>(ax, x, base, count, o0, o1, out, pitch, memory);
        } else if (ax.stride == 2) {
            slide<2>(ax, x, base, count, o0, o1, out, pitch, memory);
        } else {
            slide<3>(ax, x, base, count, o0, o1, out, pitch, memory);
        }
    }

    // Rows that are one window each, L at a time.
    static bool wholes(i64 n, const T* x, i64 count, Ref out) {
        for (i64 r = 0; r < count; r += L) {
            if (r + L > count) r = count - L;
            if (!Op::wholes(x + r * n, n, out.v + r)) return false;
        }
        return true;
    }

    // Short windows without a common rhythm that vectors could follow.
    static bool crosses(const PoolAxis& ax) {
        const bool uneven = !ax.regular && ax.period <= 1;
        const bool wide = ax.regular && ax.stride >= 3 && !(ax.stride == 4 && ax.taps == 4);
        if (!(uneven || wide) || ax.whole || ax.most >= 2 * L) return false;
        return (ax.n + ax.m) * L * static_cast<i64>(sizeof(T)) <= (48 << 10);
    }

    // L rows at a time, one to a lane.
    void across(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch,
                char* memory) const {
        i64 lo, hi;
        cells_of(ax, o0, o1, lo, hi);
        T* columns = reinterpret_cast<T*>(memory);
        memory += (ax.n + L) * L * sizeof(T);
        Ref found = Op::make(memory, (ax.m + L) * L);
        for (i64 r = 0; r < count; r += L) {
            if (r + L > count) r = count - L;
            to_columns(x + r * ax.n + lo, ax.n, hi - lo, columns);
            auto column = [&](i64 i) { return Op::column(columns + (i - lo) * L, base + r * ax.n + i, ax.n); };
            for (i64 o = o0; o < o1; ++o) {
                typename Op::template Cell<L> c;
                if (ax.count[o] > 0) {
                    c = column(ax.first[o]);
                    for (i64 j = 1; j < ax.count[o]; ++j) c = Op::join(c, column(ax.first[o] + j * ax.step));
                    found.template put<L>((o - o0) * L, c);
                } else {
                    for (int l = 0; l < L; ++l) found.template put<1>((o - o0) * L + l, Op::nothing());
                }
            }
            Op::arrays(found, out.at(r * pitch), [&](auto* from, auto* to) { to_rows(from, o1 - o0, to, pitch); });
        }
    }

    // Each phase by itself, then woven together.
    void interleaved(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch, char* memory) const {
        const i64 P = ax.period, most = (o1 - o0) / P + 2;
        const bool weave = P == 2 && (o0 & 1) == 0;
        Ref woven = Op::make(memory, count * P * most);
        for (i64 r = 0; r < P; ++r) {
            i64 q0 = (o0 - r + P - 1) / P, q1 = (o1 - r + P - 1) / P;
            if (q0 == q1) continue;
            Ref phase = woven.at(r * count * most);
            plain_rows(ax.phases[r], x, base, count, q0, q1, phase, most, memory);
            for (i64 i = 0; !weave && i < count; ++i)
                for (i64 q = q0; q < q1; ++q)
                    out.template put<1>(i * pitch + q * P + r - o0, phase.template get<1>(i * most + q - q0));
        }
        if constexpr (!Op::idempotent)
            for (i64 i = 0; weave && i < count; ++i)
                Op::weave(woven.at(i * most), woven.at((count + i) * most), o1 - o0, out.at(i * pitch));
    }

    template <class Join>
    static void one_by_one(const PoolAxis& ax, Source s, i64 b0, i64 b1, i64 o0, Ref out) {
        for (i64 o = b0; o < b1; ++o) {
            auto c = Op::nothing();
            if (ax.count[o] > 0) c = join_taps<Join, 1, 1, 0>(s, ax.first[o], ax.count[o], ax.step);
            out.template put<1>(o - o0, c);
        }
    }

    static void runs(const PoolAxis& ax, Source s, i64 o0, i64 o1, Ref out) {
        for (i64 o = o0; o < o1; ++o) {
            if (ax.step == 1 && ax.count[o] >= 2 * L) out.template put<1>(o - o0, Op::run(s, ax.first[o], ax.count[o]));
            else one_by_one<Op>(ax, s, o, o + 1, o0, out);
        }
    }

    // A row of Source cells where the windows of o0..o1-1 are not clipped: `pad` cells stand for the absent ones.
    // Returns where output o0 starts to read.
    T* stage(const PoolAxis& ax, const T* x, i64 o0, i64 o1, T* row) const {
        i64 lo = ax.start + o0 * ax.stride;
        i64 hi = ax.start + (o1 - 1) * ax.stride + (ax.taps - 1) * ax.step + 1 + 3 * L;
        i64 from = std::clamp<i64>(lo, 0, ax.n), to = std::clamp<i64>(hi, from, ax.n);
        for (i64 i = lo; i < from; ++i) row[i - lo] = Op::pad();
        T* inside = row + (from - lo);
        sweep<T>(to - from, [&]<int N>(i64 i) { store<N>(inside + i, load<N>(x + from + i)); });
        for (i64 i = std::max(to, lo); i < hi; ++i) row[i - lo] = Op::pad();
        return row;
    }

    template <int S>
    void slide(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch, char* memory) const {
        Source s{x, base};
        i64 f0, f1;
        full_outputs<S>(ax, x, count, o0, o1, f0, f1);
        i64 edge = (f0 - o0) + (o1 - f1);
        if (S < 3 && edge > 0 && edge * ax.taps > 12) {
            T* row = reinterpret_cast<T*>(memory);
            const i64 step = room(ax, o1 - o0);
            for (i64 r = 0; r < count; ++r) stage(ax, x + r * ax.n, o0, o1, row + r * step);
            // Places are those of the input, where rows are ax.n apart.
            unclipped<S>(ax, Source{row, base + ax.start + o0 * ax.stride}, count, step, ax.n, o1 - o0, out, pitch);
            for (i64 r = 0; ax.has_empty && r < count; ++r) mend(ax, o0, o1, out.at(r * pitch));
            return;
        }
        for (i64 r = 0; edge > 0 && r < count; ++r) {
            one_by_one<Op>(ax, s.at(r * ax.n), o0, f0, o0, out.at(r * pitch));
            one_by_one<Op>(ax, s.at(r * ax.n), f1, o1, o0, out.at(r * pitch));
        }
        unclipped<S>(ax, s.at(ax.start + f0 * ax.stride), count, ax.n, ax.n, f1 - f0, out.at(f0 - o0), pitch);
    }

    // Windows without a cell have met padding only.
    static void mend(const PoolAxis& ax, i64 o0, i64 o1, Ref out) {
        if (!ax.has_empty) return;
        for (i64 o = o0; o < o1; ++o)
            if (ax.count[o] == 0) out.template put<1>(o - o0, Op::nothing());
    }

    // m outputs of each of `count` rows, `hop` cells (and `places` cells of the input) apart, none of them clipped.
    template <int S>
    static void unclipped(const PoolAxis& ax, Source s, i64 count, i64 hop, i64 places, i64 m, Ref out, i64 pitch) {
        switch (ax.step == 1 ? ax.taps : 0) {
            case 2: return taps<S, 2>(ax, s, count, hop, places, m, out, pitch);
            case 4:
                if (S == 3 && ax.stride == 4) return taps<4, 4>(ax, s, count, hop, places, m, out, pitch);
                return taps<S, 0>(ax, s, count, hop, places, m, out, pitch);
            case 3: return taps<S, 3>(ax, s, count, hop, places, m, out, pitch);
            default: return taps<S, 0>(ax, s, count, hop, places, m, out, pitch);
        }
    }

    template <int S, int K>
    static void taps(const PoolAxis& ax, Source s, i64 count, i64 hop, i64 places, i64 m, Ref out, i64 pitch) {
        const i64 step = K ? 1 : ax.step, stride = S == 3 ? ax.stride : S;
        constexpr int widest = S == 3 ? 16 / static_cast<int>(sizeof(T)) : L;
        auto window = [&]<int N>(i64 r, i64 o) {
            Source row{s.v + r * hop, s.base + r * places};
            if constexpr (S != 3) return join_taps<Op, N, S, K>(row, o * stride, ax.taps, step);
            else return join_taps<Op, N, 1, K>(Strided<Source>{row, stride}, o * stride, ax.taps, step);
        };
        if (count > 2 && m <= short_row) {
            sweep<T, widest>(m, [&]<int N>(i64 o) {
                for (i64 r = 0; r < count; ++r) out.template put<N>(r * pitch + o, window.template operator()<N>(r, o));
            });
            return;
        }
        for (i64 r = 0; r < count; ++r)
            sweep<T, widest>(m, [&]<int N>(i64 o) { out.template put<N>(r * pitch + o, window.template operator()<N>(r, o)); });
    }

    // The joins of as many cells as half a window has, or a vector, in place of the cells. Returns how many these are.
    static i64 doubled(T* w, i64 size, i64 taps) {
        if constexpr (L >= 16)
            if (taps >= 16) return doubled_times<4>(w, size);
        if constexpr (L >= 8)
            if (taps >= 8) return doubled_times<3>(w, size);
        if constexpr (L >= 4)
            if (taps >= 4) return doubled_times<2>(w, size);
        return 1;
    }
    template <int times>
    static i64 doubled_times(T* w, i64 size) {
        Vec<T, L> before[times]{};  // joins of 1, 2, 4, ... cells
        const i64 blocks = (size + L - 1) / L;
        for (i64 b = 0; b < blocks + times; ++b) {
            Vec<T, L> v = b < blocks ? load<L>(w + b * L) : splat<L>(Op::pad());
            [&]<int... t>(std::integer_sequence<int, t...>) __attribute__((always_inline)) {
                auto longer = [&]<int u>(std::integral_constant<int, u>) __attribute__((always_inline)) {
                    const Vec<T, L> here = std::exchange(before[u], v);
                    v = Op::join(typename Op::template Cell<L>{here}, typename Op::template Cell<L>{lanes_from<1 << u>(here, v)}).v;
                };
                (longer(std::integral_constant<int, t>()), ...);
            }(std::make_integer_sequence<int, times>());
            if (b >= times) store<L>(w + (b - times) * L, v);
        }
        return i64(1) << times;
    }

    // Long windows: joins of 2, 4, 8, ... cells, each from two of the joins before.
    void doubling(const PoolAxis& ax, const T* x, i64 base, i64 o0, i64 o1, Ref out, char* memory) const {
        const i64 k = ax.taps, m = o1 - o0;
        Ref w = Op::make(memory, staged_ + 2 * L);
        i64 size = (m - 1) * ax.stride + k;
        Op::fill(w, stage(ax, x, o0, o1, w.v), base + ax.start + o0 * ax.stride, size + 2 * L);
        i64 h = 1;
        if constexpr (Op::idempotent) {
            if constexpr (Op::any_order) h = doubled(w.v, size, k);
            for (; 2 * h <= k; h *= 2)
                for (i64 i = 0; i < size - h; i += L)
                    w.template put<L>(i, Op::join(w.template get<L>(i), w.template get<L>(i + h)));
            auto some = [&]<int N>(i64 o) {
                out.template put<N>(o, Op::join(w.template get<N>(o * ax.stride), w.template get<N>(o * ax.stride + k - h)));
            };
            if (ax.stride == 1) sweep<T>(m, some);
            else for (i64 o = 0; o < m; ++o) some.template operator()<1>(o);
        } else {
            // k in binary: the joins of 1, 2, 4, ... cells that make it up, one after the other.
            Ref sum = Op::make(memory, staged_ + 2 * L);
            i64 done = 0;
            for (;; h *= 2) {
                if (k & h) {
                    for (i64 i = 0; i < size - k + 1; i += L) {
                        auto c = w.template get<L>(i + done);
                        sum.template put<L>(i, done ? Op::join(sum.template get<L>(i), c) : c);
                    }
                    done += h;
                }
                if (done == k) break;
                for (i64 i = 0; i < size - h; i += L)
                    w.template put<L>(i, Op::join(w.template get<L>(i), w.template get<L>(i + h)));
            }
            auto some = [&]<int N>(i64 o) { out.template put<N>(o, sum.template get<N>(o * ax.stride)); };
            if (ax.stride == 1) sweep<T>(m, some);
            else for (i64 o = 0; o < m; ++o) some.template operator()<1>(o);
        }
        mend(ax, o0, o1, out);
    }


    const PoolAxis& ax_;
    const T* x_end_;
    i64 staged_, rows_memory_;  // cells of a padded row, of the padded rows done together
    i64 across_ = 0;            // cells of the rows done one to a lane
};

}  // namespace
}  // namespace lunette::LN_ISA
