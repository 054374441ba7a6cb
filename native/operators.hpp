// What each operator's file offers to the table of its instruction set.
#pragma once
#include "kernels.hpp"

namespace lunette::LN_ISA {

template <class T>
void max_pool(const Pool&, i64 planes, const T* x, T* y, i64* index);
template <class T, class R>
void max_pool_numbers(const Pool&, i64 planes, const T* x, T* y, R* numbers);  // of windows of any size
template <class T, class R>
void max_pool_recording(const Pool&, i64 planes, const T* x, T* y, R* numbers);
template <class T, class R>
void max_pool_recorded_jvp(const Pool&, i64 planes, const R* numbers, const T* t, T* dy);
template <class T, class R>
void max_pool_recorded_vjp(const Pool&, i64 planes, const R* numbers, const T* g, T* dx);
template <class T>
void max_pool_jvp(const Pool&, i64 planes, const T* x, const T* t, T* dy, Ties);
template <class T>
void max_pool_vjp(const Pool&, i64 planes, const T* x, const T* g, T* dx, Ties);

template <class T>
void conv(const Conv&, const T* x, const T* w, const T* packed, const Epilogue<T>&, T* y);
template <class T>
void conv_input_grad(const Conv&, const T* w, const T* packed, const T* g, const Epilogue<T>&, T* dx);
template <class T>
void conv_weight_grad(const Conv&, const T* x, const T* g, T* dw);
template <class T>
void conv_bias_grad(i64 batch, i64 channels, i64 cells, const T* g, T* db);
template <class T>
i64 conv_packed_size(const Conv&, bool input_grad);
template <class T>
void conv_pack(const Conv&, bool input_grad, const T* w, T* packed);
template <class T>
void matmul(i64 batch, i64 m, i64 n, i64 k, bool ta, bool tb, const T* a, i64 a_stride, const T* b, i64 b_stride,
            const T* bias_n, bool relu, T* c);

template <class T>
void avg_pool(const Pool&, i64 planes, const T* x, T* y, Mean, T divisor);
template <class T>
void avg_pool_vjp(const Pool&, i64 planes, const T* g, T* dx, Mean, T divisor);

template <class T>
void smooth_max_pool(const Pool&, i64 planes, const T* x, T* y, T beta, bool include_pad);
template <class T>
void smooth_max_pool_jvp(const Pool&, i64 planes, const T* x, const T* t, T* dy, T beta, T dbeta, bool include_pad);
template <class T>
void smooth_max_pool_vjp(const Pool&, i64 planes, const T* x, const T* g, T* dx, T beta, bool include_pad, double* dbeta);

template <class T>
void lp_pool(const Pool&, i64 planes, const T* x, T* y, T p);
template <class T>
void lp_pool_jvp(const Pool&, i64 planes, const T* x, const T* t, T* dy, T p);
template <class T>
void lp_pool_vjp(const Pool&, i64 planes, const T* x, const T* g, T* dx, T p);

void round_planes(const Planes&, PlaneKernel<double>, const Proved&, int digits, const float* x, const double* divisors,
                  float* y, i64* places, i64* count);
void round_doubles(Pooling, const Pool&, const Planes&, const Proved&, bool include_pad, const double* x,
                   const double* parameters, double* y, i64* places, i64* count, double* low);
void exponentials(i64 n, const double* hi, const double* lo, double* y_hi, double* y_lo);
template <class T>
void bound_planes(const Planes&, PlaneKernel<T>, const Outward&, const T* lo, const T* hi, T* y_lo, T* y_hi, double* top);

template <class T>
void unary(Unary, i64 count, T parameter, const T* x, T* y);
template <class T>
void binary(Binary, const Walk&, const T* x, const T* y, T* z);
template <class T>
void prefer(i64 count, const T* a, const T* b, const T* t, T* out);
template <class T>
void scale_shift(i64 outer, i64 channels, i64 inner, bool relu, const T* x, const T* scale, const T* shift, T* y);
template <class T>
void reduce(Reduction, const Walk&, const T* x, T* y);
template <class T>
void softmax(bool log, i64 outer, i64 count, i64 inner, const T* x, T* y);

void weigh_rows(const Patches&, bool own, const double* a, const i64* origin, const double* low, const double* high,
                double* y);
void pull_rows(const Patches&, const Behind&, bool own, const double* a, const i64* origin, const double* low,
               const double* high, double* g, const i64* g_origin);

}  // namespace lunette::LN_ISA
