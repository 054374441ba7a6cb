// Rows of coefficients through lines: what bounds of networks spend their time on.
//
// A row is a patch of (channels, *size) coefficients that lies somewhere in planes of (channels, *space) cells, and may
// hang over their edges, where it counts as zero. Every coefficient meets one of two numbers, by its sign. Zero times
// anything is zero; what is not a number stays one.
#pragma once
#include <vector>

#include "geometry.hpp"

namespace lunette {

struct Patches {
    static constexpr int most_axes = 8;
    i64 rows, channels;
    int d;
    i64 size[most_axes], space[most_axes];
    i64 cells() const { return volume(size); }
    i64 plane() const { return volume(space); }

private:
    i64 volume(const i64* n) const {
        i64 v = 1;
        for (int k = 0; k < d; ++k) v *= n[k];
        return v;
    }
};

// Where cells of patches come from: tap t of cell o reads cell o*stride + offset_t, if there is one; patches behind are of
// `size`, in planes of `space`.
struct Behind {
    i64 size[Patches::most_axes], space[Patches::most_axes], stride[Patches::most_axes];
    std::vector<i64> offsets;  // one per axis for each tap
    i64 taps;
};

// Without origins, patches begin at the first cell. Tables are (channels, *space), or (taps, channels, *space) for pulls;
// `own`: one for each row.
struct RowKernels {
    // The sums of a * (a > 0 ? low : high), in any order.
    void (*weigh)(const Patches&, bool own, const double* a, const i64* origin, const double* low, const double* high,
                  double* y);
    // The same products, added up at the cells that taps read.
    void (*pull)(const Patches&, const Behind&, bool own, const double* a, const i64* origin, const double* low,
                 const double* high, double* g, const i64* g_origin);
};

}  // namespace lunette
