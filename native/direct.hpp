// Direct convolution, for the file of convolutions.
#pragma once
#include "kernels.hpp"

namespace lunette::LN_ISA {

// A convolution, or its input gradient, with the arguments that these have; false, and nothing is done: the blocked product is
// better. The sizes and the packing are of weights packed beforehand.
template <class T>
bool direct_conv(const Conv&, bool input_grad, const T* x, const T* w, const T* packed, const Epilogue<T>&, T* y);
template <class T>
i64 direct_packed_size(const Conv&, bool input_grad);
template <class T>
void direct_pack(const Conv&, bool input_grad, const T* w, T* packed);

// A convolution that reads planes and writes blocks of channels (blocked.hpp); a size of 0: there is none.
template <class T>
i64 into_blocks_packed_size(const Conv&);
template <class T>
void into_blocks_pack(const Conv&, const T* w, T* packed);
template <class T>
void into_blocks_conv(const Conv&, const T* x, const T* packed, const Epilogue<T>&, T* y);

// The weight gradient likewise.
template <class T>
bool direct_weight_grad(const Conv&, const T* x, const T* g, T* dw);

}  // namespace lunette::LN_ISA
