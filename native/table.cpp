// The table of kernels of one instruction set.
#include "blocked.hpp"
#include "operators.hpp"
#include "simd.hpp"

namespace lunette::LN_ISA {

template <class T, class R>
static constexpr RecordKernels<T, R> records() {
    return {max_pool_recording<T, R>, max_pool_recorded_jvp<T, R>, max_pool_recorded_vjp<T, R>};
}

template <class T>
static constexpr PoolKernels<T> pools() {
    return {max_pool<T>, max_pool_jvp<T>, max_pool_vjp<T>, records<T, std::uint8_t>(), records<T, std::uint32_t>(),
            avg_pool<T>, avg_pool_vjp<T>,
            smooth_max_pool<T>, smooth_max_pool_jvp<T>, smooth_max_pool_vjp<T>,
            lp_pool<T>, lp_pool_jvp<T>, lp_pool_vjp<T>};
}

template <class T>
static constexpr ConvKernels<T> convs() {
    return {conv<T>, conv_input_grad<T>, conv_weight_grad<T>, conv_bias_grad<T>,
            conv_packed_size<T>, conv_pack<T>,
            blocked_packed_size<T>, blocked_pack<T>, blocked_conv<T>, matmul<T>};
}

template <class T>
static constexpr GlueKernels<T> glue() {
    return {unary<T>, binary<T>, prefer<T>, scale_shift<T>, reduce<T>, softmax<T>};
}

extern const Kernels table;
const Kernels table = {LN_ISA_NAME, vector_bytes, pools<float>(), pools<double>(), convs<float>(),
                       convs<double>(), glue<float>(),  glue<double>(),
                       {round_planes, round_doubles, exponentials, bound_planes<float>, bound_planes<double>},
                       {weigh_rows, pull_rows}};

}  // namespace lunette::LN_ISA
