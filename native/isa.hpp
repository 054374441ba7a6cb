// Which instruction set's kernels run here.
#pragma once
#include "kernels.hpp"

namespace lunette {

// Chosen once: the environment variable LUNETTE_ISA (generic, avx2, avx512), else the best this processor has.
// Throws std::runtime_error when the variable asks for what is not there.
const Kernels& kernels();

}  // namespace lunette
