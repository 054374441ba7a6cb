#include "isa.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace lunette {

namespace generic { extern const Kernels table; }
#if defined(LN_HAS_avx2)
namespace avx2 { extern const Kernels table; }
#endif
#if defined(LN_HAS_avx512)
namespace avx512 { extern const Kernels table; }
#endif

namespace {

struct Choice {
    const Kernels& table;
    bool runs_here;
};

const Kernels& choose() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    [[maybe_unused]] bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    [[maybe_unused]] bool has_avx512 =
        has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
    const Choice choices[] = {
#if defined(LN_HAS_avx512)
        {avx512::table, has_avx512},
#endif
#if defined(LN_HAS_avx2)
        {avx2::table, has_avx2},
#endif
        {generic::table, true}};
    const char* forced = std::getenv("LUNETTE_ISA");
    for (const Choice& c : choices)
        if (c.runs_here && (!forced || !*forced || std::string(forced) == c.table.name)) return c.table;
    throw std::runtime_error("LUNETTE_ISA=" + std::string(forced) + " is not an instruction set of this processor and this build; "
                             "known are generic, avx2 and avx512");
}

}  // namespace

const Kernels& kernels() {
    static const Kernels& chosen = choose();
    return chosen;
}

}  // namespace lunette
