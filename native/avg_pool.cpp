// The mean of each window, and its adjoint.
#include "elementary.hpp"
#include "long_sum.hpp"
#include "operators.hpp"
#include "sum.hpp"
#include "tiles.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr i64 small_plane = 8192;  // outputs of a plane that are still in cache when all are summed

constexpr i64 share_cells = 2048;  // shares that are kept until they are spread

template <class T>
bool all_finite(const T* x, i64 n) {
    constexpr int L = lanes<T>;
    constexpr T most = std::numeric_limits<T>::max();
    i64 i = 0;
    Vec<Int<T>, L> found{};
    for (; i + L <= n; i += L) {
        auto v = load<L>(x + i);
        found |= ~((v <= most) & (v >= -most));
    }
    bool rest = false;
    for (; i < n; ++i) rest |= !std::isfinite(x[i]);
    return !rest && !any(found);
}

// A division by one number. A product takes a fraction of its time, and gives the same where the divisor is a power of two, or a
// small whole number and what the product is off by can be told exactly.
template <class T>
class Division {
public:
    explicit Division(T by) : by_(by), inverse_(1 / by) {
        int exponent;
        if (std::fabs(std::frexp(by, &exponent)) == T(0.5) && std::isnormal(inverse_)) way_ = exact;
#if defined(__FMA__)
        else if (by == std::floor(by) && by > 0 && by <= most_exact) way_ = near;
#endif
    }
    template <int N>
    [[gnu::always_inline]] Vec<T, N> operator()(Vec<T, N> v) const {
        if (N == 1 || way_ == divided) return v / by_;
        const auto mean = v * inverse_;
        if (way_ == exact) return mean;
        return mean - product_error<T>(mean, splat<N>(by_), v) * inverse_;  // in this order zeros keep their sign
    }
    T by() const { return by_; }

private:
    static constexpr i64 most_exact = i64(1) << 20;
    T by_, inverse_;
    enum { divided, near, exact } way_ = divided;
};

// Sums that become means on their way into memory.
template <class T>
struct MeanInPlace : Sum<T> {
    using Careful = MeanInPlace;
    struct Order {
        static constexpr int L = lanes<T>;
        explicit Order(const Division<T>& division) : divide(division) {}
        Division<T> divide;
        Vec<T, L> spoiled{};  // NaN from the first mean on that is not finite
        template <int N>
        void meet(Vec<T, N>) {}
        template <int N>
        void meet(Vec<T, N>, Vec<T, N>) {}
        template <int N>
        [[gnu::always_inline]] Vec<T, N> finish(Vec<T, N> v) {
            const Vec<T, N> mean = divide.template operator()<N>(v);
            if constexpr (N == 1) spoiled += splat<L>(mean * T(0));
            else if constexpr (N < L) spoiled += repeated<L, N>(mean * T(0));
            else spoiled += mean * T(0);
            return mean;
        }
        bool matters() const { return false; }
        bool finite() const { return !any(spoiled != T(0)); }
    };
};

// Divides sums by what makes them means.
template <class T>
class Divider {
public:
    Divider(const Pool& pool, Mean mean, T divisor) : pool_(pool), mean_(mean), divide_(divisor), constant_(true) {
        i64 product = 1;
        for (int a = 0; mean != Mean::divisor && a < pool.rank; ++a) {
            const PoolAxis& ax = pool.axes[a];
            constant_ = constant_ && (mean == Mean::inside ? ax.same_inside : ax.same_count);
            product *= mean == Mean::inside ? ax.inside[0] : ax.count[0];
        }
        if (mean != Mean::divisor) divide_ = Division<T>(static_cast<T>(product));
        const PoolAxis& last = pool.axes[pool.rank - 1];
        if (constant_ || last.m > most_kept) return;
        const i64* table = mean == Mean::inside ? last.inside : last.count;
        for (i64 o = 0; o < last.m; ++o) inner_[o] = static_cast<T>(table[o]);
        kept_ = last.most <= most_exact && greatest_product(pool) <= most_exact;
    }
    bool constant() const { return constant_; }
    const Division<T>& division() const { return divide_; }  // where it is constant

    // y = x / divisor for n outputs, where that is constant. Whether all y are finite.
    bool by_constant(i64 n, const T* x, T* y) const {
        constexpr int L = lanes<T>;
        i64 i = 0;
        auto spoiled = splat<L>(T(0));
        const Division<T> divide = divide_;
        for (; i + L <= n; i += L) {
            const auto v = divide.template operator()<L>(load<L>(x + i));
            store<L>(y + i, v);
            spoiled += v * T(0);  // NaN from here on if v is not finite
        }
        bool rest = true;
        for (; i < n; ++i) y[i] = x[i] / divide.by(), rest = rest && std::isfinite(y[i]);
        return rest && !any(spoiled != T(0));
    }

    // The same for the outputs o0..o1-1 of axis 0 of one plane, whatever their divisors.
    bool operator()(i64 o0, i64 o1, const T* x, T* y) const {
        const i64 n = (o1 - o0) * (pool_.cells_out / pool_.axes[0].m);
        if (constant_) return by_constant(n, x, y);
        const PoolAxis& last = pool_.axes[pool_.rank - 1];
        const i64* table = mean_ == Mean::inside ? last.inside : last.count;
        const i64 c0 = pool_.rank == 1 ? o0 : 0, c1 = pool_.rank == 1 ? o1 : last.m;
        each_row(pool_, o0, o1, [&](i64 r, i64 count, i64 inside) {
            const i64 outer = mean_ == Mean::inside ? inside : count;
            if (kept_) {  // both factors are exact, so their product is rounded once, like the integer product
                const T factor = static_cast<T>(outer), *from = inner_ + c0;
                const i64 at = r * (c1 - c0);
                each_vector<T>(c1 - c0, [&]<int N>(i64 i) {
                    store<N>(y + at + i, load<N>(x + at + i) / (factor * load<N>(from + i)));
                });
                return;
            }
            for (i64 o = c0, i = r * (c1 - c0); o < c1; ++o, ++i) y[i] = x[i] / static_cast<T>(outer * table[o]);
        });
        return all_finite(y, n);
    }

private:
    static constexpr i64 most_kept = 256, most_exact = i64(1) << 20;

    i64 greatest_product(const Pool& pool) const {
        __int128 product = 1;
        for (int a = 0; a < pool.rank; ++a)
            for (i64 o = 0, most = 1; o < pool.axes[a].m; ++o) {
                most = std::max(most, std::max(pool.axes[a].inside[o], pool.axes[a].count[o]));
                if (o + 1 == pool.axes[a].m) product = std::min<__int128>(product * most, i64(1) << 60);
            }
        return static_cast<i64>(product);
    }

    const Pool& pool_;
    Mean mean_;
    Division<T> divide_;
    bool constant_, kept_ = false;
    T inner_[most_kept];
};

// The mean of one window whose plain sum overflowed, or which holds cells that are not finite.
template <class T>
T mean_again(const Pool& pool, const T* x, i64 output, T by) {
    bool nan = false, up = false, down = false;
    i64 terms = 0;
    each_cell(pool, output, [&](i64 i) {
        nan |= x[i] != x[i], up |= x[i] == std::numeric_limits<T>::infinity();
        down |= x[i] == -std::numeric_limits<T>::infinity(), ++terms;
    });
    if (nan || (up && down)) return std::numeric_limits<T>::quiet_NaN();
    if (up || down) return (up ? 1 : -1) * std::numeric_limits<T>::infinity() / by;
    // 2^-shift * (sum of terms) stays in range; powers of two cost no accuracy up here.
    const int shift = 64 - __builtin_clzll(static_cast<unsigned long long>(terms));
    const Wide<T> scale = std::ldexp(Wide<T>(1), -shift);
    LongSum<Wide<T>> sum;
    each_cell(pool, output, [&](i64 i) { sum.add(x[i] * scale); });
    const T mean = static_cast<T>(std::ldexp(sum.total() / by, shift));
    // Rounding may not push the mean of finite cells over the edge.
    constexpr T most = std::numeric_limits<T>::max();
    return std::fabs(by) >= static_cast<T>(terms) ? std::clamp(mean, -most, most) : mean;
}

template <class T>
T divisor_of(const Pool& pool, i64 output, Mean mean, T divisor) {
    if (mean == Mean::divisor) return divisor;
    i64 product = 1;
    for (int a = pool.rank - 1; a >= 0; --a) {
        const PoolAxis& ax = pool.axes[a];
        const i64* table = mean == Mean::inside ? ax.inside : ax.count;
        product *= table[output % ax.m];
        output /= ax.m;
    }
    return static_cast<T>(product);
}

}  // namespace

template <class T>
void avg_pool(const Pool& pool, i64 planes, const T* x, T* y, Mean mean, T divisor) {
    if (planes == 0 || pool.cells_out == 0) return;
    Reducer<Sum<T>> reducer(pool, x + planes * pool.cells_in);
    const Divider<T> divide(pool, mean, divisor);
    const Straight<MeanInPlace<T>> straight(pool);
    const i64 rest = pool.cells_out / pool.axes[0].m;
    over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
        auto again = [&](i64 p, i64 b0, i64 b1, T* at) {
            for (i64 i = 0; i < (b1 - b0) * rest; ++i) {
                i64 output = b0 * rest + i;
                if (!std::isfinite(at[i]))
                    at[i] = mean_again(pool, x + p * pool.cells_in, output, divisor_of(pool, output, mean, divisor));
            }
        };
        if (straight.suits() && divide.constant()) {
            for (i64 p = p0, end; p < p1; p = end) {
                end = o1 - o0 == pool.axes[0].m ? p1 : p + 1;
                typename MeanInPlace<T>::Order order(divide.division());
                straight(x + p * pool.cells_in, end - p, o0, o1, y + p * pool.cells_out + o0 * rest, order);
                for (i64 q = p; !order.finite() && q < end; ++q) again(q, o0, o1, y + q * pool.cells_out + o0 * rest);
            }
            return;
        }
        char* memory = static_cast<char*>(scratch(reducer.bytes()));
        if (o1 - o0 == pool.axes[0].m && pool.cells_out <= small_plane) {
            T* out = y + p0 * pool.cells_out;
            return reducer.run_planes(x + p0 * pool.cells_in, p1 - p0, {out}, memory, [&](i64 q0, i64 q1) {
                bool finite = divide.constant() && divide.by_constant((q1 - q0) * pool.cells_out, out + q0 * pool.cells_out,
                                                                      out + q0 * pool.cells_out);
                for (i64 q = q0; !finite && q < q1; ++q) {
                    T* at = out + q * pool.cells_out;
                    if (divide.constant() || !divide(0, pool.axes[0].m, at, at)) again(p0 + q, 0, pool.axes[0].m, at);
                }
            });
        }
        for (i64 p = p0; p < p1; ++p)
            reducer.run_blocks(x + p * pool.cells_in, o0, o1, {y + p * pool.cells_out + o0 * rest}, memory,
                               [&](i64 b0, i64 b1, typename Sum<T>::Ref at) {
                                   if (!divide(b0, b1, at.v, at.v)) again(p, b0, b1, at.v);
                               });
    });
}

template <class T>
void avg_pool_vjp(const Pool& pool, i64 planes, const T* g, T* dx, Mean mean, T divisor) {
    if (planes == 0 || pool.cells_in == 0) return;
    if (pool.cells_out == 0 || !pool.transposed) {
        // Tables that do not step evenly: cell by cell.
        return parallel_for(planes, [&](i64 p) {
            Deposits<T> deposits(dx + p * pool.cells_in, scratch(Deposits<T>::bytes(pool.cells_in)), 0, pool.cells_in);
            for (i64 o = 0; o < pool.cells_out; ++o) {
                const T share = g[p * pool.cells_out + o] / divisor_of(pool, o, mean, divisor);
                each_cell(pool, o, [&](i64 i) { deposits.add(i, share); });
            }
            deposits.finish();
        });
    }
    const Divider<T> divide(pool, mean, divisor);
    if (pool.rank == 1 && pool.axes[0].whole)
        return over_parts(pool, planes, [&](i64 p0, i64 p1, i64, i64) {
            const i64 n = pool.cells_in;
            for (i64 p = p0; p < p1; ++p) {
                const T share = g[p] / divide.division().by();
                sweep<T>(n, [&]<int N>(i64 i) { store<N>(dx + p * n + i, splat<N>(share)); });
            }
        });
    const i64 rest_out = pool.cells_out / pool.axes[0].m, rest_in = pool.cells_in / pool.axes[0].n;
    if (share_no_cell(pool))
        return over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
            const Spread<T> spread(pool);
            const i64 step = std::clamp<i64>(share_cells / rest_out, 1, o1 - o0);
            T* share = static_cast<T*>(scratch((step * rest_out + 2 * lanes<T>) * sizeof(T)));
            WindowRows rows;
            for (i64 p = p0; p < p1; ++p)
                for (i64 b0 = o0; b0 < o1; b0 += step) {
                    const i64 b1 = std::min(o1, b0 + step);
                    divide(b0, b1, g + p * pool.cells_out + b0 * rest_out, share);
                    spread(rows, b0, b1, origin<T>(share, b0 * rest_out), dx + p * pool.cells_in);
                }
        });
    const Pool& back = *pool.transposed;
    Reducer<Sum<T>> reducer(back, nullptr);
    const i64 step = reducer.top_block(), group = reducer.group();
    const i64 room = std::max(reducer.cells_read(step), group * pool.cells_out);
    over_parts(back, planes, [&](i64 p0, i64 p1, i64 i0, i64 i1) {
        char* memory = static_cast<char*>(scratch(reducer.bytes() + (room + 128) * sizeof(T)));
        T* share = Sum<T>::make(memory, room + 4 * lanes<T>).v;
        for (i64 p = p0; group > 1 && i1 - i0 == back.axes[0].m && p < p1; p += group) {
            const i64 count = std::min(group, p1 - p);
            for (i64 q = 0; q < count; ++q)
                divide(0, pool.axes[0].m, g + (p + q) * pool.cells_out, share + q * pool.cells_out);
            reducer.run_planes(share, count, {dx + p * pool.cells_in}, memory, [](i64, i64) {});
            if (p + count == p1) return;
        }
        for (i64 p = p0; p < p1; ++p)
            for (i64 b0 = i0; b0 < i1; b0 += step) {
                i64 b1 = std::min(i1, b0 + step), lo, hi;
                cells_of(back.axes[0], b0, b1, lo, hi);
                divide(lo, hi, g + p * pool.cells_out + lo * rest_out, share);
                reducer.run(0, origin(share, lo * rest_out), 0, b0, b1, {dx + p * pool.cells_in + b0 * rest_in}, memory);
            }
    });
}

template void avg_pool<float>(const Pool&, i64, const float*, float*, Mean, float);
template void avg_pool<double>(const Pool&, i64, const double*, double*, Mean, double);
template void avg_pool_vjp<float>(const Pool&, i64, const float*, float*, Mean, float);
template void avg_pool_vjp<double>(const Pool&, i64, const double*, double*, Mean, double);

}  // namespace lunette::LN_ISA
