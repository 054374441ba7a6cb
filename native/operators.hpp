// What each operator's file offers to the table of its instruction set.
#pragma once
#include "kernels.hpp"

namespace lunette::LN_ISA {

template <class T>
void max_pool(const Pool&, i64 planes, const T* x, T* y, i64* index);

}  // namespace lunette::LN_ISA
