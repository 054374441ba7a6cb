// Pools of doubles, rounded correctly: sums of terms, and functions of them, as unevaluated pairs of doubles whose error
// is a small multiple of u^2, u = 2^-53 (docs/rounded.md). Compiled without fused operations but those that are written.
#include <atomic>

#include "elementary.hpp"
#include "operators.hpp"
#include "sum.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr double u = 0x1p-53;
constexpr i64 block_cells = 12 << 10;

// hi + lo with |lo| <= u * |hi|.
template <class V>
struct Pair {
    V hi, lo;
};

// a + b for |b| <= |a|, or any b that is a few roundings of a (Dekker).
template <class V>
inline Pair<V> joined(V a, V b) {
    const V s = a + b;
    return {s, b - (s - a)};
}

template <class V>
inline Pair<V> plus(V a, V b) {
    const V s = a + b;
    return {s, sum_error(a, b, s)};
}

template <class V>
inline Pair<V> plus(Pair<V> a, Pair<V> b) {
    const Pair<V> s = plus(a.hi, b.hi);
    return joined(s.hi, s.lo + (a.lo + b.lo));
}

// a*b - p exactly, where p = a*b rounded and far from overflow and underflow. product_error will do for less: without fused
// operations it rounds twice.
template <class V>
inline V product_rest(V a, V b, V p) {
#if defined(__FMA__)
    return product_error<double>(a, b, p);
#else
    auto half = [](V v) {
        const V c = v * 134217729.0;  // 2^27 + 1: halves of 26 bits (Veltkamp), whose products are exact (Dekker)
        return c - (c - v);
    };
    const V a1 = half(a), b1 = half(b), a2 = a - a1, b2 = b - b1;
    return (((a1 * b1 - p) + a1 * b2) + a2 * b1) + a2 * b2;
#endif
}

// Within 8 u^2 of the product: two roundings of cross products, of their sum, and of the sum with the error of the first
// product; and the product of the low parts.
template <class V>
inline Pair<V> times(Pair<V> a, Pair<V> b) {
    const V p = a.hi * b.hi;
    return joined(p, product_rest(a.hi, b.hi, p) + (a.hi * b.lo + a.lo * b.hi));
}

// a^p for p >= 1: within 8 (p-1) u^2.
template <class V>
inline Pair<V> whole_power(V a, i64 p) {
    Pair<V> square{a, a - a}, result = square;
    for (i64 rest = p - 1; rest > 0; rest /= 2) {
        if (rest % 2) result = times(result, square);
        if (rest > 1) square = times(square, square);
    }
    return result;
}

// 1/k! as pairs.
struct Reciprocals {
    static constexpr int exact = 9, all = 21;  // terms from the 9th on are below 2^-32: doubles do
    double hi[all], lo[all];
    constexpr Reciprocals() : hi(), lo() {
        double factorial = 1;  // exact up to 22!
        for (int k = 0; k < all; factorial *= ++k) {
            hi[k] = 1 / factorial;
            // The remainder 1 - hi * factorial, exactly: both factors are cut into halves.
            const double f1 = half(factorial), f2 = factorial - f1, h1 = half(hi[k]), h2 = hi[k] - h1;
            lo[k] = ((((1 - h1 * f1) - h1 * f2) - h2 * f1) - h2 * f2) / factorial;
        }
    }
    static constexpr double half(double a) {
        const double c = a * 134217729;
        return c - (c - a);
    }
};
constexpr Reciprocals reciprocals;

// exp(z) within 2^-82, |z| <= 700. ln2 = l1 + l2 + l3, the first two of 33 bits, so that k*l1 and k*l2 are exact. The
// reduced argument is off by 2^-96 at most, the terms that are doubles by a few u * 2^-32, those left out are below 2^-96.
template <class V>
inline Pair<V> exponential(Pair<V> z) {
    using I = IntsLike<double, V>;
    using F = Format<double>;
    constexpr double l1 = 0x1.62e42fefp-1, l2 = 0x1.473de6afp-34, l3 = 0x1.3c7673007e5edp-69;
    constexpr int N = sizeof(V) / sizeof(double);
    const V rounded = z.hi * 1.44269504088896340736 + F::magic, k = rounded - F::magic;
    const Pair<V> near = plus(z.hi - k * l1, -(k * l2));
    const Pair<V> r = joined(near.hi, near.lo + (z.lo - k * l3));
    V tail = splat<N>(reciprocals.hi[Reciprocals::all - 1]);
    for (int j = Reciprocals::all - 2; j >= Reciprocals::exact; --j) tail = tail * r.hi + reciprocals.hi[j];
    Pair<V> e{tail, tail - tail};
    for (int j = Reciprocals::exact - 1; j >= 0; --j)
        e = plus(Pair<V>{splat<N>(reciprocals.hi[j]), splat<N>(reciprocals.lo[j])}, times(e, r));
    const V scale = power_of_two<double>(bits<I>(rounded) - bits<i64>(F::magic));
    return {e.hi * scale, e.lo * scale};
}

// a / d for a pair and an exact d: what is left of a rounded quotient is divided once more, with 3 roundings.
template <class V>
inline Pair<V> over(Pair<V> a, V d) {
    const V q = a.hi / d, p = q * d;
    return {q, (((a.hi - p) - product_rest(q, d, p)) + a.lo) / d};
}

// ---- what is summed, and what becomes of the sums. terms() and value() are all that vectors do.

struct Mean {
    static constexpr bool makes_terms = false;
    template <class V>
    Pair<V> term(V x) const { return {x, x}; }
    template <class V>
    Pair<V> value(Pair<V> s, V divisor) const { return over(s, divisor); }
};

struct SmoothMax {
    static constexpr bool makes_terms = true;
    double beta;
    template <class V>
    Pair<V> term(V x) const {
        constexpr int N = sizeof(V) / sizeof(double);
        const V b = splat<N>(beta), z = b * x;
        return exponential(Pair<V>{z, product_rest(b, x, z)});
    }
    // log s = y + log(s * exp(-y)) for a y so near that the second logarithm is d - d^2/2.
    template <class V>
    Pair<V> value(Pair<V> s, V) const {
        constexpr int N = sizeof(V) / sizeof(double);
        const V y = log_scaled<double>(s.hi, 0.0);
        const Pair<V> w = times(s, exponential(Pair<V>{-y, y - y}));
        const V d = (w.hi - 1.0) + w.lo;
        return over(Pair<V>{y, d - d * d * 0.5}, splat<N>(beta));
    }
};

struct WholeNorm {
    static constexpr bool makes_terms = true;
    i64 p;
    Exponent<double> root;
    template <class V>
    Pair<V> term(V x) const { return whole_power(x < 0.0 ? -x : x, p); }
    // One step of Newton from a root y within 8 u.
    template <class V>
    Pair<V> value(Pair<V> s, V) const {
        constexpr int N = sizeof(V) / sizeof(double);
        V y = s.hi;
        if (p == 2) for (int l = 0; l < N; ++l) set(y, l, std::sqrt(lane(s.hi, l)));
        else if (p > 2) y = power<double>(s.hi, root);
        const Pair<V> z = whole_power(y, p);
        const V rest = (s.hi - z.hi) + (s.lo - z.lo), step = y * rest / (z.hi * static_cast<double>(p));
        return {y, y == 0.0 ? y : step};
    }
    template <class V>
    static double lane(V v, int l) {
        if constexpr (sizeof(V) == sizeof(double)) return v; else return v[l];
    }
    template <class V>
    static void set(V& v, int l, double a) {
        if constexpr (sizeof(V) == sizeof(double)) v = a; else v[l] = a;
    }
};

struct Range {
    double least, greatest;  // of the finite magnitudes other than zero; 0 if there are none
    bool finite;
};

Range range_of(const double* x, i64 n) {
    constexpr int L = lanes<double>;
    constexpr double most = std::numeric_limits<double>::max();
    auto low = splat<L>(most), high = splat<L>(0.0);
    Vec<i64, L> spoiled{};
    auto meet = [&](Vec<double, L> v) {
        auto a = v < 0.0 ? -v : v;
        spoiled |= ~(a <= most);
        a = a <= most ? a : splat<L>(0.0);
        const auto b = a == 0.0 ? splat<L>(most) : a;
        low = b < low ? b : low, high = a > high ? a : high;
    };
    i64 i = 0;
    for (; i + L <= n; i += L) meet(load<L>(x + i));
    for (; i < n; ++i) meet(splat<L>(x[i]));
    double least = most, greatest = 0;
    for (int l = 0; l < L; ++l) least = std::min<double>(least, low[l]), greatest = std::max<double>(greatest, high[l]);
    return {greatest == 0 ? 0 : least, greatest, !any(spoiled)};
}

// error + relative * |result| + low * |its low part|.
struct Slack {
    double error, relative, low;
};

constexpr double least_sure = 0x1p-800;  // what is less may have been rounded in other ways, being nearly subnormal

// The nearest doubles to pairs; how many are in doubt.
inline bool decide_one(double hi, double lo, Slack s, double& y) {
    const Pair<double> sum = plus(hi, lo);
    const double slack = s.error + std::fabs(sum.hi) * s.relative + std::fabs(lo) * s.low;
    y = sum.hi + (sum.lo - slack);
    return y == sum.hi + (sum.lo + slack) && std::fabs(hi) >= least_sure;
}

i64 decide(i64 n, const double* hi, const double* lo, Slack s, double* y) {
    i64 doubts = 0;
    for (i64 i = 0; i < n; ++i) doubts += !decide_one(hi[i], lo[i], s, y[i]);
    return doubts;
}

// Which of two neighbours, y < z, is nearer to (hi + lo) / d, exactly; false if that takes more than doubles tell.
bool settle(double hi, double lo, double d, double y, double z, double& nearer) {
    if (!(std::nextafter(y, z) == z) || !std::isfinite(y) || !std::isfinite(z)) return false;
    // The sign of hi + lo - (y + half)*d: the first difference is exact, and so is half*d.
    const double p = y * d, half = (z - y) * 0.5, parts[] = {lo, -product_rest(y, d, p), -(half * d)};
    double s = hi - p, error = 0;
    for (double part : parts) {
        const Pair<double> sum = plus(s, part);
        s = sum.hi, error += std::fabs(sum.lo);
    }
    if (error > 0 && !(std::fabs(s) > 2 * error)) return false;
    const double side = d > 0 ? s : -s;
    nearer = side < 0 || (side == 0 && bits<std::uint64_t>(y) % 2 == 0) ? y : z;
    return true;
}

template <class Model>
void round_with(const Model& model, bool sums, const Pool& pool, const Planes& p, const Proved& proved, bool include_pad,
                const double* x, const double* divisors, double* y, i64* places, i64* count, double* lows) {
    const bool table = p.divisors > 1, divided = table || (p.divisors == 1 && divisors[0] != 1);
    double least_divisor = 1;
    for (i64 i = 0; i < p.divisors; ++i)
        least_divisor = i == 0 ? std::fabs(divisors[0]) : std::min(least_divisor, std::fabs(divisors[i]));
    int exponent;
    const bool exact_quotients = !divided || (!table && std::frexp(least_divisor, &exponent) == 0.5);
    Reducer<PairSum<double>> pairs(pool, Model::makes_terms ? nullptr : x + p.planes * p.in);
    Reducer<Sum<double>> plain(pool, nullptr);
    const i64 few = std::clamp<i64>(block_cells / std::max<i64>(1, std::max(p.in, p.out)), 1, p.planes);
    const i64 terms = Model::makes_terms ? p.in + 8 * lanes<double> : 0, results = p.out + 8 * lanes<double>;
    std::atomic<i64> found = 0;

    auto one = [&](i64 k) {
        const double* from = x + k * p.in;
        double* to = y + k * p.out;
        const Range r = range_of(from, p.in);
        if (!((sums || r.finite) && r.greatest <= proved.most && (r.least == 0 || r.least >= proved.least))) {
            const i64 at = found.fetch_add(p.out);
            for (i64 i = 0; i < p.out; ++i) places[at + i] = k * p.out + i;
            return;
        }
        char* memory = static_cast<char*>(scratch(std::max(pairs.bytes(), plain.bytes())));
        double* hi = static_cast<double*>(scratch((2 * terms + 4 * results) * sizeof(double), 2));
        double *lo = hi + terms, *top = lo + terms, *low = top + results, *more = low + results;
        if constexpr (Model::makes_terms) {
            each_vector<double>(p.in, [&]<int N>(i64 i) {
                const auto t = model.term(load<N>(from + i));
                store<N>(hi + i, t.hi), store<N>(lo + i, t.lo);
            });
        }
        pairs.run(0, Model::makes_terms ? hi : from, 0, 0, pool.axes[0].m, {top, low}, memory);
        if constexpr (Model::makes_terms) {
            plain.run(0, lo, 0, 0, pool.axes[0].m, {more}, memory);
            for (i64 i = 0; i < p.out; ++i) low[i] += more[i];
            if (include_pad)  // absent cells are zeros, whose terms are 1
                for (i64 i = 0; i < p.out; ++i) {
                    const Pair<double> s = plus(top[i], static_cast<double>(absent_cells(pool, i)));
                    top[i] = s.hi, low[i] += s.lo;
                }
        }
        // The low parts of a sum are multiples of the last place of the least cell: exact while below 2^53 of them.
        std::frexp(r.least, &exponent);
        const bool exact = sums && (r.least == 0 || proved.terms * r.greatest <= 0x1p53 * std::ldexp(1.0, exponent - 53));
        Slack slack{};
        if (!exact) slack = {(proved.evenly * r.greatest + proved.always) / least_divisor * (1 + 0x1p-40), proved.relative, 0};
        if (!exact || !exact_quotients) slack.relative += 0x1p-104, slack.low = 8 * u;
        double *sum = top, *sum_low = low;  // which settling needs again
        if constexpr (!Model::makes_terms) top = more, low = more + results;
        each_vector<double>(p.out, [&]<int N>(i64 i) {
            const auto hi = load<N>(sum + i), lo = load<N>(sum_low + i);
            auto s = Pair<Vec<double, N>>{hi, lo};
            if constexpr (Model::makes_terms) s = plus(hi, lo);
            const auto d = table ? load<N>(divisors + i) : splat<N>(divided ? divisors[0] : 1.0);
            const auto v = model.value(s, d);
            store<N>(top + i, v.hi), store<N>(low + i, v.lo);
        });
        if (lows) {
            std::copy_n(top, p.out, to), std::copy_n(low, p.out, lows + k * p.out);
            return;
        }
        // In doubt are two neighbours, the ends of what the quotient may be.
        auto settled = [&](i64 i) {
            if (std::fabs(top[i]) < least_sure) return false;
            const Pair<double> v = plus(top[i], low[i]);
            const double room = std::fabs(v.hi) * slack.relative + std::fabs(low[i]) * slack.low;
            return settle(sum[i], sum_low[i], table ? divisors[i] : divisors[0], v.hi + (v.lo - room), v.hi + (v.lo + room), to[i]);
        };
        i64 doubts = decide(p.out, top, low, slack, to);
        for (i64 i = 0; doubts > 0 && i < p.out; ++i) {
            if (decide_one(top[i], low[i], slack, to[i])) continue;
            --doubts;
            if ((sums && !std::isfinite(top[i])) || (top[i] == 0 && low[i] == 0 && slack.error == 0)) to[i] = top[i];
            else if (!(exact && settled(i))) places[found++] = k * p.out + i;
        }
    };
    auto block = [&](i64 job) {
        for (i64 k = job * few; k < std::min(p.planes, (job + 1) * few); ++k) one(k);
    };
    const i64 blocks = (p.planes + few - 1) / few;
    if (blocks == 1) block(0);
    else parallel_for(blocks, block);
    *count = found;
}

}  // namespace

void round_doubles(Pooling kind, const Pool& pool, const Planes& p, const Proved& proved, bool include_pad, const double* x,
                   const double* parameters, double* y, i64* places, i64* count, double* low) {
    *count = 0;
    if (p.planes == 0 || p.out == 0) return;
    auto with = [&](const auto& model, bool sums) {
        round_with(model, sums, pool, p, proved, include_pad, x, parameters, y, places, count, low);
    };
    if (kind == Pooling::mean) with(Mean{}, true);
    else if (kind == Pooling::smooth_max) with(SmoothMax{parameters[0]}, false);
    else with(WholeNorm{static_cast<i64>(parameters[0]), Exponent<double>::of(1 / static_cast<long double>(parameters[0]))}, false);
}

void exponentials(i64 n, const double* hi, const double* lo, double* y_hi, double* y_lo) {
    each_vector<double>(n, [&]<int N>(i64 i) {
        const auto e = exponential(Pair<Vec<double, N>>{load<N>(hi + i), load<N>(lo + i)});
        store<N>(y_hi + i, e.hi), store<N>(y_lo + i, e.lo);
    });
}

}  // namespace lunette::LN_ISA
