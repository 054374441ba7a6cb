#include "decide.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

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
        const double least = d.rounded ? 0x1p-51 : 0;
        int count = 0;
        for (i64 i = 0; i < d.inner; ++i) {
            // Rounding hi once, and the ends, moves them by less than 2^-51 of their size.
            double error = r[i] * scale;
            double slack = error + std::fabs(h[i]) * (error > 0 ? 0x1p-51 : least);
            float low = static_cast<float>(h[i] - slack), high = static_cast<float>(h[i] + slack);
            out[i] = low;
            count += low != high;
        }
        doubts[row] = count;
    });
}

void widen(i64 rows, i64 cells, const float* x, double* y, double* least, double* greatest) {
    constexpr std::int32_t mask = 0x7fffffff, infinite = 0x7f800000;
    for (i64 row = 0; row < rows; ++row, x += cells, y += cells) {
        // Magnitudes compare as the integers that their bits are; zero, less one, is above all of them.
        std::int32_t low = mask, high = 0;
        for (i64 i = 0; i < cells; ++i) {
            y[i] = x[i];
            std::int32_t a = std::bit_cast<std::int32_t>(x[i]) & mask;
            a = a < infinite ? a : 0;
            std::int32_t less = (a - 1) & mask;
            high = a > high ? a : high;
            low = less < low ? less : low;
        }
        least[row] = low == mask ? 0 : std::bit_cast<float>(low + 1);
        greatest[row] = std::bit_cast<float>(high);
    }
}

}  // namespace lunette
