// Correct rounding: float64 results with error bounds, each rounded to the only float it can be nearest to.
#pragma once
#include "geometry.hpp"

namespace lunette {

// Rows of `inner` cells; row c of an outer cell has the bound rows[group of c] * columns[c].
struct Decision {
    i64 outer, groups, channels, inner;
    bool varies;   // the bounds of a row differ from cell to cell
    bool rounded;  // hi was rounded once more than the bounds know; if not, a bound of zero is exact
};

// y: the nearest floats. The flat places of those that are in doubt are listed, up to `most`, and counted.
void decide(const Decision& d, const double* hi, const double* rows, const double* columns, float* y, i64* places,
            i64 most, i64* count);

// Rows of floats as doubles, and the least nonzero and the greatest of the finite magnitudes of each row (0 if none).
void widen(i64 rows, i64 cells, const float* x, double* y, double* least, double* greatest);

}  // namespace lunette
