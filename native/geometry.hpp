// Where windows look, as tables. Python computes the tables; here we only find out what they amount to.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

namespace lunette {

using i64 = std::int64_t;

// Output cell o of m reads the input cells first[o] + j*step, 0 <= j < count[o], all of them inside 0..n-1.
// inside[o] >= count[o] is the number of window cells inside the padded input.
struct PoolAxis {
    i64 n, m, step;
    const i64 *first, *count, *inside;

    // A regular table is a clipped sliding window: output o reads start + o*stride + j*step, 0 <= j < taps,
    // where that is inside the input. Outputs full_lo..full_hi-1 are not clipped at all.
    bool regular;
    i64 stride, taps, start, full_lo, full_hi;
    // A table with period P > 1 holds P regular tables, interleaved: output o belongs to phase o % P.
    // Transposed windows of stride P look like that. phases[r] is a regular table over ceil((m-r)/P) outputs.
    i64 period;
    const PoolAxis* phases;

    i64 most;        // the greatest count
    bool has_empty;  // some count is 0
    bool monotone;   // no window is empty, and both ends move forward with o
    bool disjoint;   // monotone, and every window ends before the next begins
    i64 jump;        // the greatest distance between the first cells of neighbouring windows
    bool identity;   // every output o reads exactly input o
    bool whole;      // one output that reads everything
    bool tiled;      // regular, and the windows lie side by side: many inputs in a row are one long input
    bool same_count, same_inside;  // constant over o

    // Cells from the first to the last of the widest window; one where all windows are empty, so that sizes stay sizes.
    i64 span() const { return most > 0 ? (most - 1) * step + 1 : 1; }
    i64 last(i64 o) const { return first[o] + (count[o] - 1) * step; }
};

constexpr int max_axes = 8;

// Axes outermost first, at least one; neighbours that together act as one axis are merged.
struct Pool {
    int rank = 0;
    PoolAxis axes[max_axes];
    i64 cells_in = 1, cells_out = 1;
    i64 window = 1;          // the greatest number of cells in one window
    bool has_empty = false;  // some window has no present cell
    // Input cell i is read by the outputs transposed->axes: sums over it are the adjoint of sums over this.
    // Null when some axis has no such table, and where nobody has asked for it: PoolTables::both_ways.
    const Pool* transposed = nullptr;
};

// Output cell o and kernel cell k read input cell o*stride - lo + k*dilation, if that is inside 0..n-1.
struct ConvAxis {
    i64 n, m, kernel, stride, dilation, lo;
};
struct Conv {
    const ConvAxis* axes;  // outermost first
    i64 rank, groups, batch, cin, cout;
};

// Owns the tables of a Pool. Kernels see the Pool only.
class PoolTables {
public:
    struct Axis {
        i64 n, m, step;
        std::vector<i64> first, count, inside;
    };
    explicit PoolTables(std::vector<Axis> axes);
    PoolTables(const PoolTables&) = delete;
    ~PoolTables();
    const Pool& pool() const { return forward_; }
    // With the transposed pool, which only derivatives need: as large as the input is long, it is made by the first of them.
    const Pool& both_ways();

private:
    struct Back {
        std::vector<Axis> tables;
        std::vector<std::vector<Axis>> phase_tables;
        std::vector<std::vector<PoolAxis>> phases;
        Pool pool, forward;  // and the pool it is the transpose of
    };
    std::vector<Axis> axes_;
    Pool forward_;
    std::atomic<Back*> back_ = nullptr;
};

}  // namespace lunette
