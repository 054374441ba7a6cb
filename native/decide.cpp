#include "decide.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>

#include "threads.hpp"

namespace lunette {

// Compiled twice, and chosen when the module is loaded: results do not depend on the choice.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LN_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define LN_CLONES
#endif

namespace {

struct Ends {
    float low, high;
    bool moved;  // apart, from one number
    // Zeros of either sign are the same only where nothing moved them there.
    bool agree() const {
        return low == high && (!moved || std::bit_cast<std::int32_t>(low) == std::bit_cast<std::int32_t>(high));
    }
};

// Rounding hi once, and the ends, moves them by less than 2^-51 of their size.
inline Ends ends(double hi, double error, double least) {
    double slack = error + std::fabs(hi) * (error > 0 ? 0x1p-51 : least);
    return {static_cast<float>(hi - slack), static_cast<float>(hi + slack), slack > 0};
}

LN_CLONES int decide_row(const double* h, const double* r, double scale, double least, i64 n, float* out) {
    int doubts = 0;
    for (i64 i = 0; i < n; ++i) {
        Ends e = ends(h[i], r[i] * scale, least);
        out[i] = e.low;
        doubts += !e.agree();
    }
    return doubts;
}

LN_CLONES int decide_evenly(const double* h, double error, double least, i64 n, float* out) {
    int doubts = 0;
    for (i64 i = 0; i < n; ++i) {
        Ends e = ends(h[i], error, least);
        out[i] = e.low;
        doubts += !e.agree();
    }
    return doubts;
}

// Magnitudes compare as the integers that their bits are; zero, less one, is above all of them.
LN_CLONES void widen_row(i64 n, const float* x, double* y, std::int32_t& low, std::int32_t& high) {
    constexpr std::int32_t mask = 0x7fffffff, infinite = 0x7f800000;
    std::int32_t least = mask, most = 0;
    for (i64 i = 0; i < n; ++i) {
        y[i] = x[i];
        std::int32_t a = std::bit_cast<std::int32_t>(x[i]) & mask;
        a = a < infinite ? a : 0;
        std::int32_t less = (a - 1) & mask;
        most = a > most ? a : most;
        least = less < least ? less : least;
    }
    low = least, high = most;
}

}  // namespace

void decide(const Decision& d, const double* hi, const double* rows, const double* columns, float* y, i64* places,
            i64 most, i64* count) {
    std::atomic<i64> found = 0;
    const i64 share = d.channels / d.groups, step = std::max<i64>(1, 4096 / std::max<i64>(d.inner, 1));
    const i64 all = d.outer * d.channels;
    const double least = d.rounded ? 0x1p-51 : 0;
    parallel_for((all + step - 1) / step, [&](i64 job) {
        for (i64 row = job * step; row < std::min(all, (job + 1) * step); ++row) {
            const i64 a = row / d.channels, c = row % d.channels, group = a * d.groups + c / share;
            const double* h = hi + row * d.inner;
            const double* r = rows + group * (d.varies ? d.inner : 1);
            const double scale = columns[c] * (1 + 0x1p-40);
            float* out = y + row * d.inner;
            int doubts = d.varies ? decide_row(h, r, scale, least, d.inner, out)
                                  : decide_evenly(h, r[0] * scale, least, d.inner, out);
            for (i64 i = 0; doubts > 0 && i < d.inner; ++i) {
                Ends e = ends(h[i], r[d.varies ? i : 0] * scale, least);
                if (e.agree()) continue;
                --doubts;
                if (std::isfinite(h[i])) {
                    i64 at = found++;
                    if (at < most) places[at] = row * d.inner + i;
                } else {
                    out[i] = static_cast<float>(h[i]);
                }
            }
        }
    });
    *count = found;
}

void widen(i64 rows, i64 cells, const float* x, double* y, double* least, double* greatest) {
    for (i64 row = 0; row < rows; ++row, x += cells, y += cells) {
        std::int32_t low, high;
        widen_row(cells, x, y, low, high);
        least[row] = low == 0x7fffffff ? 0 : std::bit_cast<float>(low + 1);
        greatest[row] = std::bit_cast<float>(high);
    }
}

}  // namespace lunette
