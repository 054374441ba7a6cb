// Correct rounding: float64 results with error bounds, each rounded to the only float it can be nearest to.
#pragma once
#include "geometry.hpp"

namespace lunette {

// Rows of `inner` cells; row c of an outer cell has the bound rows[group of c] * columns[c].
struct Decision {
    i64 outer, groups, channels, inner;
    bool rounded;  // hi was rounded once more than the bounds know; if not, a bound of zero is exact
};

// y: the nearest floats. doubts: how many cells of each row have two candidates (or are NaN).
void decide(const Decision& d, const double* hi, const double* rows, const double* columns, float* y, i64* doubts);

// Rows of floats as doubles, and the least nonzero and the greatest of the finite magnitudes of each row (0 if none).
void widen(i64 rows, i64 cells, const float* x, double* y, double* least, double* greatest);

}  // namespace lunette
