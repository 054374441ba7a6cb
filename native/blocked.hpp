// Convolutions of arrays in blocks of channels, for the table of kernels. An array (batch, channels, *space) in blocks is
// (batch, channels / L, *space, L), L being the lanes of a vector; what belongs to channels alone lies as it did. A source whose
// channels are no multiple of L is read as it is.
#pragma once
#include "kernels.hpp"

namespace lunette::LN_ISA {

// The size of the weights of a convolution, or of its input gradient, that reads and writes blocks; 0: it is not summed so.
template <class T>
i64 blocked_packed_size(const Conv&, bool input_grad);
template <class T>
void blocked_pack(const Conv&, bool input_grad, const T* w, T* packed);
template <class T>
void blocked_conv(const Conv&, bool input_grad, const T* x, const T* packed, const Epilogue<T>&, T* y);

}  // namespace lunette::LN_ISA
