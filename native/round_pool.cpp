// Pools of narrow floats, rounded correctly: a few planes at a time are widened, pooled by the float64 kernel and
// decided, while they are in cache.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "long_sum.hpp"
#include "operators.hpp"
#include "simd.hpp"
#include "threads.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr i64 block_cells = 12 << 10;  // of doubles: with their results they stay in a second-level cache

// The nearest float of D digits, ties to even, as a float. Float itself, float16 and bfloat16 differ in their digits.
template <int D>
inline float narrow(double a) {
    if constexpr (D == 24) {
        return static_cast<float>(a);
    } else {
        constexpr int dropped = 53 - D, least = D == 11 ? -14 : -126, greatest = D == 11 ? 15 : 127;
        constexpr double unit = D == 11 ? 0x1p-24 : 0x1p-133;  // the least subnormal
        static_assert(unit == (D == 11 ? 0x1p-14 : 0x1p-126) * 2 / (1 << D));
        std::uint64_t b = bits<std::uint64_t>(a);
        b += (std::uint64_t(1) << (dropped - 1)) - 1 + ((b >> dropped) & 1);
        b &= ~((std::uint64_t(1) << dropped) - 1);
        const double normal = bits<double>(b), size = std::fabs(a);
        constexpr double anchor = 0x1.8p52 * unit, infinity = std::numeric_limits<double>::infinity();
        const double subnormal = std::copysign((size + anchor) - anchor, a);
        double r = size < std::ldexp(1.0, least) ? subnormal : normal;
        r = std::fabs(r) >= std::ldexp(1.0, greatest + 1) ? std::copysign(infinity, a) : r;
        return static_cast<float>(a - a == 0 ? r : a);
    }
}

template <int D>
constexpr double least_subnormal = D == 24 ? 0x1p-149 : D == 11 ? 0x1p-24 : 0x1p-133;

struct Range {
    double least, greatest;  // of the finite magnitudes other than zero; 0 if there are none
    bool finite;             // all cells
};

// Magnitudes compare as the integers that their bits are; zero, less one, is above all of them.
class Sizes {
    static constexpr int L = lanes<float>;
    using Ints = Vec<std::int32_t, L>;
    static constexpr std::int32_t mask = 0x7fffffff, infinite = 0x7f800000;

public:
    void meet(Vec<float, L> v) {
        const Ints raw = bits<Ints>(v) & mask, a = raw < infinite ? raw : Ints{}, less = (a - 1) & mask;
        top_ = raw > top_ ? raw : top_, high_ = a > high_ ? a : high_, low_ = less < low_ ? less : low_;
    }
    Range range() const {
        std::int32_t least = mask, greatest = 0, all = 0;
        for (int l = 0; l < L; ++l)
            least = std::min(least, low_[l]), greatest = std::max(greatest, high_[l]), all = std::max(all, top_[l]);
        return {least == mask ? 0.0 : double(bits<float>(least + 1)), bits<float>(greatest), all < infinite};
    }

private:
    Ints low_ = splat<L>(mask), high_{}, top_{};
};

// As many floats as a vector holds doubles: a vector of more is taken apart cell by cell.
inline auto doubles(const float* x) {
    constexpr int H = lanes<double>;
    return __builtin_convertvector(load<H>(x), Vec<double, H>);
}

Range widen(i64 n, const float* x, double* y) {
    constexpr int L = lanes<float>, H = lanes<double>;
    Sizes sizes;
    i64 i = 0;
    for (; i + L <= n; i += L) {
        sizes.meet(load<L>(x + i));
        store<H>(y + i, doubles(x + i)), store<H>(y + i + H, doubles(x + i + H));
    }
    for (; i < n; ++i) sizes.meet(splat<L>(x[i])), y[i] = x[i];
    return sizes.range();
}

// The sum of a plane, without a copy of it. No cell passes through more additions than in the kernels.
Range sum_plane(i64 n, const float* x, double& sum) {
    constexpr int L = lanes<float>, H = lanes<double>;
    constexpr i64 block = sum_block * L;
    Sizes sizes;
    LongSum<double> blocks;
    for (i64 i = 0; i < n;) {
        const i64 end = std::min(n, i + block);
        auto a = splat<H>(-0.0), b = a, c = a, d = a;
        for (; i + 2 * L <= end; i += 2 * L) {
            sizes.meet(load<L>(x + i)), sizes.meet(load<L>(x + i + L));
            a += doubles(x + i), b += doubles(x + i + H), c += doubles(x + i + L), d += doubles(x + i + L + H);
        }
        a = (a + b) + (c + d);
        double part = -0.0;
        for (int l = 0; l < H; ++l) part += a[l];
        for (; i < end && end - i < 2 * L; ++i) sizes.meet(splat<L>(x[i])), part += x[i];
        blocks.add_block(part);
    }
    sum = blocks.total();
    return sizes.range();
}

// The same sum where cells are so far apart that additions drop something, which is added up, too: n additions, one after
// the other, are off by less than 2 (n u)^2 of the sum of magnitudes before the last rounding.
double sum_of_pairs(i64 n, const float* x) {
    constexpr int H = lanes<double>;
    auto add = [](auto& sum, auto& low, auto v) {
        const auto s = sum + v, t = s - sum;
        low += (sum - (s - t)) + (v - t), sum = s;
    };
    auto sums = splat<H>(-0.0), lows = splat<H>(0.0);
    i64 i = 0;
    for (; i + H <= n; i += H) add(sums, lows, doubles(x + i));
    double sum = -0.0, low = 0;
    for (int l = 0; l < H; ++l) add(sum, low, double(sums[l])), low += lows[l];
    for (; i < n; ++i) add(sum, low, double(x[i]));
    return sum + low;
}

// How far results may be from the exact ones: error + relative * |result|, the rounding of both ends included.
struct Slack {
    double error, relative;
};

template <int D>
inline bool ends_agree(double q, Slack s, float& y) {
    const double slack = s.error + std::fabs(q) * s.relative;
    const float high = narrow<D>(q + slack);
    y = narrow<D>(q - slack);
    // Zeros of either sign are the same only where nothing moved the ends apart.
    return y == high && (bits<std::int32_t>(y) == bits<std::int32_t>(high) || !(slack > 0));
}

// The nearest floats; how many are in doubt.
template <int D>
i64 decide(i64 n, const double* q, Slack s, float* y) {
    int doubts = 0;  // fewer than 2^31: as wide as a float, for the vectors
    for (i64 i = 0; i < n; ++i) doubts += !ends_agree<D>(q[i], s, y[i]);
    return doubts;
}

// n / d for exact n: the double next to it that is odd unless it is the quotient, so that rounding again is right.
double quotient_to_odd(double n, double d) {
    const double q = n / d, rest = std::fma(-q, d, n) * (d > 0 ? 1 : -1);  // exact: q was rounded once
    if (rest == 0 || bits<std::uint64_t>(q) % 2 != 0) return q;
    return std::nextafter(q, std::copysign(std::numeric_limits<double>::infinity(), rest));
}

template <int D>
void round_as(const Planes& p, PlaneKernel<double> kernel, const Proved& proved, const float* x, const double* divisors,
              float* y, i64* places, i64* count) {
    const bool sums = proved.terms > 0, table = p.divisors > 1, divided = table || (p.divisors == 1 && divisors[0] != 1);
    double least_divisor = 1;
    for (i64 i = 0; i < p.divisors; ++i)
        least_divisor = i == 0 ? std::fabs(divisors[0]) : std::min(least_divisor, std::fabs(divisors[i]));
    int exponent;
    const bool exact_quotients = !divided || (!table && std::frexp(least_divisor, &exponent) == 0.5);
    std::atomic<i64> found = 0;
    const i64 few = std::clamp<i64>(block_cells / std::max<i64>(1, std::max(p.in, p.out)), 1, p.planes);

    auto block = [&](i64 job) {
        const i64 p0 = job * few, p1 = std::min(p.planes, p0 + few);
        const i64 room = (few * p.in + 15) / 8 * 8, results = (few * p.out + 15) / 8 * 8;
        double* wide = static_cast<double*>(scratch((room + results + p.out + 8) * sizeof(double) + few * sizeof(Range), 2));
        double *sum = wide + room, *quotients = sum + results;
        Range* ranges = reinterpret_cast<Range*>(quotients + p.out + 8);
        for (i64 k = p0; k < p1; ++k)
            ranges[k - p0] = p.whole ? sum_plane(p.in, x + k * p.in, sum[k - p0])
                                     : widen(p.in, x + k * p.in, wide + (k - p0) * p.in);
        if (!p.whole) kernel.call(kernel.self, p1 - p0, wide, sum);
        for (i64 k = p0; k < p1; ++k) {
            const Range r = ranges[k - p0];
            const double* s = sum + (k - p0) * p.out;
            float* to = y + k * p.out;
            int low = 0, high = 0;
            std::frexp(r.least, &low), std::frexp(r.greatest, &high);
            if (!((sums || r.finite) && r.greatest <= proved.most && (r.least == 0 || r.least >= proved.least) &&
                  high - low <= proved.span)) {
                const i64 at = found.fetch_add(p.out);
                for (i64 i = 0; i < p.out; ++i) places[at + i] = k * p.out + i;
                continue;
            }
            // Sums of multiples of the last place of the least cell: float64 holds 2^53 of them.
            const double last = std::max(std::ldexp(1.0, low - D), least_subnormal<D>);
            const bool exact = sums && (r.least == 0 || proved.terms * r.greatest <= 0x1p53 * last);
            Slack slack{};
            double evenly = proved.evenly;
            if (!exact && p.whole && r.finite) {
                const double lost = static_cast<double>(p.in) * 0x1p-53;
                sum[k - p0] = sum_of_pairs(p.in, x + k * p.in), evenly = 2 * lost * lost * proved.terms;
            }
            if (!exact) slack = {(evenly * r.greatest + proved.always) / least_divisor * (1 + 0x1p-40), proved.relative};
            // Rounding the quotient, and both ends, moves them by less than 2^-51 of their size.
            if (!exact || !exact_quotients) slack.relative += 0x1p-51;
            const double* q = divided ? quotients : s;
            for (i64 i = 0; table && i < p.out; ++i) quotients[i] = s[i] / divisors[i];
            for (i64 i = 0; divided && !table && i < p.out; ++i) quotients[i] = s[i] / divisors[0];
            i64 doubts = decide<D>(p.out, q, slack, to);
            for (i64 i = 0; doubts > 0 && i < p.out; ++i) {
                if (ends_agree<D>(q[i], slack, to[i])) continue;
                --doubts;
                if (!std::isfinite(q[i])) to[i] = static_cast<float>(q[i]);
                else if (exact) to[i] = narrow<D>(divided ? quotient_to_odd(s[i], divisors[table ? i : 0]) : s[i]);
                else places[found++] = k * p.out + i;
            }
        }
    };
    const i64 blocks = (p.planes + few - 1) / few;
    if (blocks == 1) block(0);
    else parallel_for(blocks, block);
    *count = found;
}

}  // namespace

void round_planes(const Planes& p, PlaneKernel<double> kernel, const Proved& proved, int digits, const float* x,
                  const double* divisors, float* y, i64* places, i64* count) {
    *count = 0;
    if (p.planes == 0 || p.out == 0) return;
    if (digits == 24) round_as<24>(p, kernel, proved, x, divisors, y, places, count);
    else if (digits == 11) round_as<11>(p, kernel, proved, x, divisors, y, places, count);
    else round_as<8>(p, kernel, proved, x, divisors, y, places, count);
}

}  // namespace lunette::LN_ISA
