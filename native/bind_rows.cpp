// Rows of coefficients, for bounds by linear relaxation.
#include "bind.hpp"

#include <nanobind/stl/vector.h>

#include <algorithm>


namespace nb = nanobind;
using namespace nb::literals;

namespace lunette {

namespace {

Patches patches(i64 rows, i64 channels, const Sizes& size, const Sizes& space) {
    fits(!size.empty() && size.size() == space.size() && size.size() <= Patches::most_axes);
    Patches p{rows, channels, static_cast<int>(size.size()), {}, {}};
    std::copy(size.begin(), size.end(), p.size);
    std::copy(space.begin(), space.end(), p.space);
    product({rows, channels, product(size)}), product({rows, channels, product(space)});
    return p;
}

}  // namespace

void bind_rows(nb::module_& m) {
    m.def("weigh_rows", [](i64 rows, i64 channels, const Sizes& size, const Sizes& space, bool own) {
        const Patches p = patches(rows, channels, size, space);
        const i64 table = product({own ? rows : 1, channels, p.plane()});
        return task({in<double>(product({rows, channels, p.cells()})), maybe(in<i64>(product({rows, p.d}))), in<double>(table),
                     in<double>(table), out<double>(rows)}, [=](Args a) {
            kernels().rows.weigh(p, own, a[0], a[1], a[2], a[3], a[4]);
        });
    }, "rows"_a, "channels"_a, "size"_a, "space"_a, "own"_a, "(a, origin, low, high, y)");
    m.def("pull_rows", [](i64 rows, i64 channels, const Sizes& size, const Sizes& space, const Sizes& behind,
                          const Sizes& space_behind, const Sizes& stride, const Sizes& offsets, bool own) {
        const Patches p = patches(rows, channels, size, space);
        const std::size_t d = size.size();
        fits(behind.size() == d && space_behind.size() == d && stride.size() == d && offsets.size() % d == 0);
        for (i64 s : stride) fits(s > 0);
        Behind to{{}, {}, {}, offsets, static_cast<i64>(offsets.size() / d)};
        std::copy(behind.begin(), behind.end(), to.size);
        std::copy(space_behind.begin(), space_behind.end(), to.space);
        std::copy(stride.begin(), stride.end(), to.stride);
        const i64 table = product({own ? rows : 1, to.taps, channels, p.plane()}), origins = product({rows, p.d});
        return task({in<double>(product({rows, channels, p.cells()})), maybe(in<i64>(origins)), in<double>(table),
                     in<double>(table), out<double>(product({rows, channels, product(behind)})), maybe(in<i64>(origins))},
                    [=](Args a) {
            kernels().rows.pull(p, to, own, a[0], a[1], a[2], a[3], a[4], a[5]);
        });
    }, "rows"_a, "channels"_a, "size"_a, "space"_a, "behind"_a, "space_behind"_a, "stride"_a, "offsets"_a, "own"_a,
       "(a, origin, low, high, g, g_origin)");
}

}  // namespace lunette
