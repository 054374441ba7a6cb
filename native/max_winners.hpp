// Winners by their numbers among the cells of their windows, which are counted in row-major order: what a record of a max
// pool keeps. A window has fewer cells than a plane, so numbers are narrow where places are wide.
#pragma once
#include <vector>

#include "windows.hpp"

namespace lunette::LN_ISA {

namespace {

// The number of the cell at `place` in the window of an output.
inline i64 number_of(const Pool& pool, i64 output, i64 place) {
    i64 number = 0, scale = 1;
    for (int a = pool.rank - 1; a >= 0; --a) {
        const PoolAxis& ax = pool.axes[a];
        const i64 o = output % ax.m;
        number += (place % ax.n - ax.first[o]) / ax.step * scale;
        scale *= ax.count[o], place /= ax.n, output /= ax.m;
    }
    return number;
}

// From numbers to places. A number that its window does not have leads anywhere, also outside of the plane.
class Places {
public:
    explicit Places(const Pool& pool) : pool_(pool), ax_(pool.axes[pool.rank - 1]) {
        i64 size = 1;
        for (int a = pool.rank - 1; a >= 0; --a) size_[a] = size, size *= pool.axes[a].n;
        if (!ax_.regular || pool.window > 256) return;
        // How far from the first cell of its window each number is, for windows that are clipped in no axis or in outer ones.
        i64 kinds = 1;
        for (int a = 0; a + 1 < pool.rank; ++a) kinds *= pool.axes[a].most + 1;
        if (kinds * pool.window > most_offsets) return;
        offsets_.assign(kinds * pool.window + 256, 0);
        for (i64 kind = 0; kind < kinds; ++kind) {
            i64 count[max_axes], rest = kind, cells = ax_.taps;
            for (int a = pool.rank - 2; a >= 0; --a) {
                count[a] = rest % (pool.axes[a].most + 1), rest /= pool.axes[a].most + 1;
                cells *= count[a];
            }
            count[pool.rank - 1] = ax_.taps;
            for (i64 n = 0; n < std::min(cells, pool.window); ++n) offsets_[kind * pool.window + n] = offset(count, n);
        }
    }

    // f(output, place of its winner) for the outputs b0..b1-1 of axis 0 of a plane, whose numbers are given.
    template <class R, class F>
    inline void each(const R* numbers, i64 b0, i64 b1, F&& f) const {
        const int outer = pool_.rank - 1;
        const i64 rest = pool_.cells_out / pool_.axes[0].m, q0 = outer == 0 ? b0 : 0, q1 = outer == 0 ? b1 : ax_.m;
        i64 f0 = q0, f1 = q0;
        if (!offsets_.empty()) f0 = std::clamp(ax_.full_lo, q0, q1), f1 = std::clamp(ax_.full_hi, f0, q1);
        i64 o[max_axes] = {b0}, count[max_axes];
        for (i64 at = b0 * rest - q0; at + q0 < b1 * rest; at += q1 - q0) {
            i64 first = 0, kind = 0;
            for (int a = 0; a < outer; ++a) {
                const PoolAxis& ax = pool_.axes[a];
                count[a] = ax.count[o[a]];
                first += ax.first[o[a]] * size_[a], kind = kind * (ax.most + 1) + count[a];
            }
            auto singly = [&](i64 from, i64 to) {
                for (i64 q = from; q < to; ++q) {
                    count[outer] = ax_.count[q];
                    f(at + q, first + ax_.first[q] + offset(count, numbers[at + q]));
                }
            };
            singly(q0, f0);
            const i64* offsets = offsets_.data() + kind * pool_.window;
            for (i64 q = f0, i = first + ax_.start + f0 * ax_.stride; q < f1; ++q, i += ax_.stride)
                f(at + q, i + offsets[sizeof(R) == 1 ? numbers[at + q] : 0]);
            singly(f1, q1);
            for (int a = outer - 1; a >= 0 && ++o[a] == pool_.axes[a].m && a > 0; --a) o[a] = 0;
        }
    }

private:
    static constexpr i64 most_offsets = 4096;

    // From the first cell of a window, which has so many along each axis.
    i64 offset(const i64* count, i64 number) const {
        i64 at = 0;
        for (int a = pool_.rank - 1; a > 0; --a) {
            at += number % count[a] * pool_.axes[a].step * size_[a];
            number /= count[a];
        }
        return at + number * pool_.axes[0].step * size_[0];
    }

    const Pool& pool_;
    const PoolAxis& ax_;
    i64 size_[max_axes];          // cells of one step along an axis
    std::vector<i64> offsets_;  // none where they would be too many
};

}  // namespace
}  // namespace lunette::LN_ISA
