// The one binding file: one line per kernel, nothing else.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_native, m) {
    m.def("instruction_set", [] { return "generic"; });
}
