#include "decide.hpp"

#include <cmath>

#include "threads.hpp"

namespace lunette {

void decide(const Decision& d, const double* hi, const double* rows, const double* columns, float* y, i64* doubts) {
    const i64 share = d.channels / d.groups;
    parallel_for(d.outer * d.channels, [&](i64 row) {
        const i64 a = row / d.channels, c = row % d.channels;
        const double* h = hi + row * d.inner;
        const double* r = rows + (a * d.groups + c / share) * d.inner;
        float* out = y + row * d.inner;
        const double scale = columns[c] * (1 + 0x1p-40);
        int count = 0;
        for (i64 i = 0; i < d.inner; ++i) {
            // Rounding hi once, and the ends, moves them by less than 2^-51 of their size.
            double slack = r[i] * scale + std::fabs(h[i]) * 0x1p-51;
            float low = static_cast<float>(h[i] - slack), high = static_cast<float>(h[i] + slack);
            out[i] = low;
            count += low != high;
        }
        doubts[row] = count;
    });
}

}  // namespace lunette
