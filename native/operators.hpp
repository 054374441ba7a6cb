// What each operator's file offers to the table of its instruction set.
#pragma once
#include "kernels.hpp"

namespace lunette::LN_ISA {

template <class T>
void max_pool(const Pool&, i64 planes, const T* x, T* y, i64* index);
template <class T>
void max_pool_jvp(const Pool&, i64 planes, const T* x, const T* t, T* dy, Ties);
template <class T>
void max_pool_vjp(const Pool&, i64 planes, const T* x, const T* g, T* dx, Ties);

template <class T>
void avg_pool(const Pool&, i64 planes, const T* x, T* y, Mean, T divisor);
template <class T>
void avg_pool_vjp(const Pool&, i64 planes, const T* g, T* dx, Mean, T divisor);

}  // namespace lunette::LN_ISA
