// The greatest cell of each window with a record of the winners, their numbers in their windows; and derivatives that are made
// of the record and never read the input.
#include "max_awards.hpp"
#include "max_scatter.hpp"
#include "max_three_awards.hpp"
#include "max_tile_awards.hpp"
#include "max_winners.hpp"
#include "operators.hpp"

namespace lunette::LN_ISA {

template <class T, class R>
void max_pool_recording(const Pool& pool, i64 planes, const T* x, T* y, R* numbers) {
    if (planes == 0 || pool.cells_out == 0) return;
    if constexpr (sizeof(R) == 1)
        if (Numbers<T>::suits(pool)) return Numbers<T>(pool, x, planes)(planes, y, numbers);
    max_pool_numbers<T, R>(pool, planes, x, y, numbers);
}

template <class T, class R>
void max_pool_recorded_jvp(const Pool& pool, i64 planes, const R* numbers, const T* t, T* dy) {
    if (planes == 0 || pool.cells_out == 0) return;
    const Places places(pool);
    over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
        for (i64 p = p0; p < p1; ++p) {
            const T* from = t + p * pool.cells_in;
            T* to = dy + p * pool.cells_out;
            places.each(numbers + p * pool.cells_out, o0, o1, [&](i64 output, i64 i) {
                const bool inside = static_cast<std::uint64_t>(i) < static_cast<std::uint64_t>(pool.cells_in);
                to[output] = inside ? from[i] : std::numeric_limits<T>::quiet_NaN();
            });
        }
    });
}

template <class T, class R>
void max_pool_recorded_vjp(const Pool& pool, i64 planes, const R* numbers, const T* g, T* dx) {
    if (planes == 0 || pool.cells_in == 0) return;
    if constexpr (sizeof(R) == 1) {
        if (TileAwards<T>::suits(pool)) return TileAwards<T>(pool)(planes, numbers, g, dx);
        if (ThreeAwards<T>::suits(pool)) return ThreeAwards<T>(pool, planes, g)(planes, numbers, dx);
        if (Awards<T>::suits(pool)) return Awards<T>(pool)(planes, numbers, g, dx);
    }
    constexpr i64 block_bytes = 16 << 10;  // of dx, zeroed and then added to
    const PoolAxis& ax = pool.axes[0];
    const i64 jump = std::max<i64>(1, ax.jump) * (pool.cells_in / ax.n) * static_cast<i64>(sizeof(T));
    const Places places(pool);
    scatter(pool, planes, std::max<i64>(1, block_bytes / jump), g, dx, [&](i64 p, i64 b0, i64 b1, auto put) {
        const T* from = g + p * pool.cells_out;
        places.each(numbers + p * pool.cells_out, b0, b1, [&](i64 output, i64 i) { put(i, from[output]); });
    });
}

#define LN_RECORDED(T, R)                                                                \
    template void max_pool_recording<T, R>(const Pool&, i64, const T*, T*, R*);          \
    template void max_pool_recorded_jvp<T, R>(const Pool&, i64, const R*, const T*, T*); \
    template void max_pool_recorded_vjp<T, R>(const Pool&, i64, const R*, const T*, T*)
LN_RECORDED(float, std::uint8_t);
LN_RECORDED(float, std::uint32_t);
LN_RECORDED(double, std::uint8_t);
LN_RECORDED(double, std::uint32_t);

}  // namespace lunette::LN_ISA
