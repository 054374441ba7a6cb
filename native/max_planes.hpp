// The derivative of the greatest cells of small planes, L of them at a time.
#pragma once
#include "max_join.hpp"

namespace lunette::LN_ISA {
namespace {

// dx where ties go to the first: planes lie side by side, one to a lane, so that every cell of every window is one vector,
// whatever the windows.
template <class T>
class PlanesInLanes {
    using I = Int<T>;
    static constexpr int L = lanes<T>;
    // A window is walked a second time to hand out its cotangents, or, if it is large, its winners are written singly.
    static constexpr i64 most_cells = 4096, most_window = 32, asked_window = 9;

public:
    static bool suits(const Pool& pool) {
        i64 rows = 1;
        for (int a = 0; a + 1 < pool.rank; ++a) rows *= pool.axes[a].most;
        return pool.cells_in <= most_cells && pool.cells_out > 0 && pool.cells_out <= most_cells && rows <= WindowRows::most &&
               pool.window <= most_window && pool.transposed && pool.transposed->window <= sum_block;
    }

    explicit PlanesInLanes(const Pool& pool) : pool_(pool) {
        i64 size = 1;
        for (int a = pool.rank - 1; a >= 0; --a) size_[a] = size, size *= pool.axes[a].n;
    }

    // As many planes as there are groups of L; returns how many these are.
    i64 operator()(i64 planes, const T* x, const T* g, T* dx) const {
        const i64 n = pool_.cells_in, m = pool_.cells_out, groups = planes / L;
        const i64 each = std::clamp<i64>((24 << 10) / (n * L), 1, std::max<i64>(1, groups));
        auto task = [&](i64 i) {
            for (i64 p = i * each * L; p < std::min(groups, (i + 1) * each) * L; p += L) some(x + p * n, g + p * m, dx + p * n);
        };
        const i64 tasks = (groups + each - 1) / each;
        if (tasks <= 1) task(0);
        else parallel_for(tasks, task);
        return groups * L;
    }

private:
    void some(const T* x, const T* g, T* dx) const {
        const i64 n = pool_.cells_in, m = pool_.cells_out;
        T* cells = static_cast<T*>(scratch((2 * n + m + 2 * L) * L * sizeof(T)));
        const bool singly = pool_.window > asked_window;
        T *given = cells + n * L, *sums = singly ? dx : given + (m + L) * L;
        to_columns(x, n, n, cells), to_columns(g, m, m, given);
        std::memset(static_cast<void*>(sums), 0, n * L * sizeof(T));
        const bool nan = scan_special<false>(cells, n * L);
        if (has_negative_zero(given, m * L)) {  // a sum of -0 alone is -0
            if (nan) windows<true, true>(cells, given, sums);
            else windows<false, true>(cells, given, sums);
        }
        if (nan) windows<true, false>(cells, given, sums);
        else windows<false, false>(cells, given, sums);
        if (!singly) to_rows(sums, n, dx, n);
    }

    // Every winner is set to -0 if `mark`, else its cotangent is added to it.
    template <bool careful, bool mark>
    void windows(const T* cells, const T* given, T* sums) const {
        const int outer = pool_.rank - 1;
        const i64 n = pool_.cells_in;
        const bool singly = pool_.window > asked_window;
        const PoolAxis& ax = pool_.axes[outer];
        WindowRows rows;
        i64 o[max_axes] = {};
        for (int a = outer; a >= 0;) {
            const i64 start = rows.look(pool_.axes, outer, size_, o), many = rows.many;
            for (i64 q = 0; q < ax.m; ++q, given += L) {
                const i64 at = start + ax.first[q], count = ax.count[q];
                if (singly && many * count > 0) window<careful, mark, true, 0, 0>(rows, ax, at, count, cells, given, sums, n);
                else if (many == 1 && count == 3) window<careful, mark, false, 1, 3>(rows, ax, at, count, cells, given, sums, n);
                else if (many == 2 && count == 2) window<careful, mark, false, 2, 2>(rows, ax, at, count, cells, given, sums, n);
                else if (many == 3 && count == 3) window<careful, mark, false, 3, 3>(rows, ax, at, count, cells, given, sums, n);
                else if (many * count > 0) window<careful, mark, false, 0, 0>(rows, ax, at, count, cells, given, sums, n);
            }
            for (a = outer - 1; a >= 0 && ++o[a] == pool_.axes[a].m; --a) o[a] = 0;
        }
    }

    // R rows of K cells, or as many as there are, the first at place `at`.
    template <bool careful, bool mark, bool singly, int R, int K>
    [[gnu::always_inline]] static void window(const WindowRows& rows, const PoolAxis& ax, i64 at, i64 count, const T* cells,
                                              const T* given, T* sums, i64 plane) {
        const i64 many = R ? R : rows.many, taps = K ? K : count, step = ax.step * L;
        auto each = [&](auto f) {
            I next = 0;
            for (i64 r = 0; r < many; ++r)
                for (i64 k = 0, i = (at + rows.at[r]) * L; k < taps; ++k, i += step) f(i, next++);
        };
        auto best = load<L>(cells + (at + rows.at[0]) * L);
        const auto share = load<L>(given), nothing = splat<L>(-T(0));  // -0 changes no sum
        if (singly) {  // sums are planes one after the other
            auto cell = splat<L>(static_cast<I>(at + rows.at[0]));
            each([&](i64 i, I) {
                const auto v = load<L>(cells + i);
                const auto later = later_wins<careful>(best, v);
                best = later ? v : best, cell = later ? splat<L>(static_cast<I>(i / L)) : cell;
            });
            I winner[L];
            store<L>(winner, cell);
            for (int l = 0; l < L; ++l, sums += plane) sums[winner[l]] = mark ? -T(0) : sums[winner[l]] + given[l];
            return;
        }
        Vec<I, L> winner{};
        each([&](i64 i, I next) {
            const auto v = load<L>(cells + i);
            const auto later = later_wins<careful>(best, v);
            best = later ? v : best, winner = later ? splat<L>(next) : winner;
        });
        each([&](i64 i, I next) {
            const auto wins = winner == next;
            const auto sum = load<L>(sums + i);
            if constexpr (mark) store<L>(sums + i, wins ? nothing : sum);
            else store<L>(sums + i, sum + (wins ? share : nothing));
        });
    }

    const Pool& pool_;
    i64 size_[max_axes];  // cells of one step along an axis
};

}  // namespace
}  // namespace lunette::LN_ISA
