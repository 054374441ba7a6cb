// Bounds of pools over boxes: a pool's own kernel at both ends, or at centres and radii, a few planes at a time while
// they are in cache. lunette.arithmetic.interval derives the numbers that make the bounds hold.
#include <atomic>

#include "operators.hpp"
#include "sum.hpp"
#include "threads.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr i64 block_bytes = 160 << 10;  // of two arrays that are made of the ends

template <class T, int N>
inline Vec<T, N> size_of(Vec<T, N> v) {
    constexpr Int<T> all = std::numeric_limits<Int<T>>::max();
    if constexpr (N == 1) return std::fabs(v); else return bits<Vec<T, N>>(bits<Vec<Int<T>, N>>(v) & all);
}

template <class V>
inline V greater(V a, V b) {
    return a > b ? a : b;
}

template <class V>
inline V lesser(V a, V b) {
    return a < b ? a : b;
}

// Centres, and a*|c| + b*(distance of the farther end): for a point the centre is itself, and is not written. The greatest
// magnitude of an end, NaN if one is not finite; and whether no lower end is negative.
template <class T>
double centres(i64 n, T a, T b, const T* lo, const T* hi, T* c, T* carried, bool& positive) {
    constexpr int L = lanes<T>;
    auto most = splat<L>(T(0)), spoiled = most, least = most;
    const bool point = lo == hi;
    each_vector<T>(n, [&]<int N>(i64 i) {
        const auto low = load<N>(lo + i), high = load<N>(hi + i);
        auto room = size_of<T, N>(low) * a;
        if (!point) {
            const auto centre = (low + high) * T(0.5), radius = greater(high - centre, centre - low);
            store<N>(c + i, centre);
            room = size_of<T, N>(centre) * a + radius * b;
        }
        store<N>(carried + i, room);
        if constexpr (N == L) most = greater(high, most), spoiled += room * T(0), least = lesser(low, least);
        else most[0] = greater(high, most[0]), spoiled[0] += room * T(0), least[0] = lesser(low, least[0]);
    });
    positive = !any(least < T(0));
    double greatest = 0;
    for (int l = 0; l < L; ++l) greatest = std::max<double>(greatest, greater(most[l], -least[l]));
    return any(spoiled != T(0)) ? std::numeric_limits<double>::quiet_NaN() : greatest;
}

// The ends of |x| for x in a box.
template <class T>
void magnitudes(i64 n, const T* lo, const T* hi, T* low, T* high) {
    each_vector<T>(n, [&]<int N>(i64 i) {
        const auto a = load<N>(lo + i), b = load<N>(hi + i);
        store<N>(low + i, greater(greater(a, -b), splat<N>(T(0))));
        store<N>(high + i, greater(-a, b));
    });
}

// lo and hi move apart by a*|y| + s, in place; of points, hi is made of lo. Infinite or NaN if one of them is not finite.
template <bool from_zero, class T>
double move_apart(i64 n, bool point, T a, T s, T* lo, T* hi) {
    constexpr int L = lanes<T>;
    auto spoiled = splat<L>(T(0));
    each_vector<T>(n, [&]<int N>(i64 i) {
        const auto low = load<N>(lo + i), high = point ? low : load<N>(hi + i), zero = splat<N>(T(0));
        auto down = low - (size_of<T, N>(low) * a + s), up = high + (size_of<T, N>(high) * a + s);
        if constexpr (from_zero) down = down < T(0) ? zero : down, up = high == T(0) ? high : up;
        store<N>(lo + i, down), store<N>(hi + i, up);
        if constexpr (N == L) spoiled += (down - up) * T(0);
        else spoiled[0] += (down - up) * T(0);
    });
    return any(spoiled != T(0)) ? std::numeric_limits<double>::quiet_NaN() : 0;
}

// lo holds radii and hi centres: the ends, which are not negative if the cells were not.
template <class T>
void apart(i64 n, T s, bool positive, T* lo, T* hi) {
    const T floor = positive ? T(0) : -std::numeric_limits<T>::infinity();
    each_vector<T>(n, [&]<int N>(i64 i) {
        const auto room = load<N>(lo + i) + s, y = load<N>(hi + i), down = y - room;
        store<N>(lo + i, down < floor ? splat<N>(floor) : down), store<N>(hi + i, y + room);
    });
}

// The sums of the lower ends, of the upper ends and of the greatest magnitudes of a plane, each blocked as Sum::run is.
// The greatest magnitude, NaN if a sum is not finite; and whether no lower end is negative.
template <class T>
double whole_sums(i64 n, const T* lo, const T* hi, T (&sums)[3], bool& positive) {
    constexpr int L = lanes<T>, W = 2;
    sums[0] = sums[1] = sums[2] = 0;
    auto top = splat<L>(T(0)), least = top;
    for (i64 j = 0; j < n;) {
        const i64 end = std::min(n, j + sum_block * L);
        Vec<T, L> low[W]{}, high[W]{}, size[W]{};
        for (; j + W * L <= end; j += W * L)
            for (int w = 0; w < W; ++w) {
                const auto a = load<L>(lo + j + w * L), b = load<L>(hi + j + w * L), most = greater(-a, b);
                low[w] += a, high[w] += b, size[w] += most;
                top = greater(top, most), least = lesser(a, least);
            }
        T part[3];
        auto add = [](auto a, auto b) { return a + b; };
        part[0] = fold<L>(low[0] + low[1], add), part[1] = fold<L>(high[0] + high[1], add);
        part[2] = fold<L>(size[0] + size[1], add);
        for (; end - j < W * L && j < end; ++j) {
            const T most = std::max(-lo[j], hi[j]);
            part[0] += lo[j], part[1] += hi[j], part[2] += most;
            top[0] = greater(top[0], most), least[0] = lesser(lo[j], least[0]);
        }
        for (int k = 0; k < 3; ++k) sums[k] += part[k];
    }
    positive = !any(least < T(0));
    double greatest = 0;
    for (int l = 0; l < L; ++l) greatest = std::max<double>(greatest, top[l]);
    return std::isfinite(sums[2]) && std::isfinite(sums[0] - sums[1]) ? greatest : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

template <class T>
void bound_planes(const Planes& p, PlaneKernel<T> kernel, const Outward& o, const T* lo, const T* hi, T* y_lo, T* y_hi,
                  double* top) {
    const T a = static_cast<T>(o.a), b = static_cast<T>(o.b), s = static_cast<T>(o.s);
    const bool point = lo == hi;
    const i64 cells = std::max<i64>(1, std::max(p.in, p.out));
    const i64 few = std::clamp<i64>(block_bytes / (2 * cells * i64(sizeof(T))), 1, std::max<i64>(1, p.planes));
    std::atomic<i64> greatest = 0;  // the bits of a double that is not negative: they compare as it does, NaN above all
    auto block = [&](i64 job) {
        const i64 p0 = job * few, planes = std::min(p.planes - p0, few), n = planes * p.in, m = planes * p.out;
        const T *low = lo + p0 * p.in, *high = hi + p0 * p.in;
        T *down = y_lo + p0 * p.out, *up = y_hi + p0 * p.out;
        const i64 room = (n + 2 * lanes<T>) / lanes<T> * lanes<T>;
        const bool made = (o.kind == Outward::sums && o.whole == 0) || (o.kind == Outward::magnitudes && !point);
        T* first = made ? static_cast<T*>(scratch(2 * room * sizeof(T), 2)) : nullptr;
        T* second = first + (made ? room : 0);
        double met = 0;
        if (o.kind == Outward::sums && o.whole != 0) {
            const T by = static_cast<T>(o.whole);
            for (i64 k = 0; k < planes; ++k) {
                T sums[3];
                bool positive;
                const double here = whole_sums(p.in, low + k * p.in, high + k * p.in, sums, positive);
                met = met >= here || met != met ? met : here;  // a NaN stays
                const T room = sums[2] / by * a + s, end = sums[0] / by - room;
                down[k] = positive && end < 0 ? T(0) : end, up[k] = sums[1] / by + room;
            }
        } else if (o.kind == Outward::sums) {
            bool positive;
            met = centres(n, a, b, low, high, first, second, positive);
            kernel.call(kernel.self, planes, point ? low : first, up);
            kernel.call(kernel.self, planes, second, down);
            apart(m, s, positive, down, up);
        } else {
            if (made) magnitudes(n, low, high, first, second), low = first, high = second;
            kernel.call(kernel.self, planes, low, down);
            if (!point) kernel.call(kernel.self, planes, high, up);
            met = o.kind == Outward::ends ? move_apart<false>(m, point, a, s, down, up)
                                          : move_apart<true>(m, point, a, s, down, up);
        }
        const i64 found = bits<i64>(met != met ? std::numeric_limits<double>::quiet_NaN() : met);
        for (i64 seen = greatest.load(); seen < found && !greatest.compare_exchange_weak(seen, found);) {}
    };
    const i64 blocks = (p.planes + few - 1) / few;
    if (blocks == 1) block(0);
    else parallel_for(blocks, block);
    *top = bits<double>(greatest.load());
}

template void bound_planes<float>(const Planes&, PlaneKernel<float>, const Outward&, const float*, const float*, float*,
                                  float*, double*);
template void bound_planes<double>(const Planes&, PlaneKernel<double>, const Outward&, const double*, const double*,
                                   double*, double*, double*);

}  // namespace lunette::LN_ISA
