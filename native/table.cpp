// The table of kernels of one instruction set.
#include "operators.hpp"

namespace lunette::LN_ISA {

template <class T>
static constexpr PoolKernels<T> pools() {
    PoolKernels<T> k{};
    k.max_pool = max_pool<T>;
    k.max_pool_jvp = max_pool_jvp<T>;
    k.max_pool_vjp = max_pool_vjp<T>;
    k.avg_pool = avg_pool<T>;
    k.avg_pool_vjp = avg_pool_vjp<T>;
    return k;
}

template <class T>
static constexpr ConvKernels<T> convs() {
    return {conv<T>, conv_input_grad<T>, conv_weight_grad<T>, conv_bias_grad<T>};
}

extern const Kernels table;
const Kernels table = {LN_ISA_NAME, pools<float>(), pools<double>(), convs<float>(), convs<double>()};

}  // namespace lunette::LN_ISA
