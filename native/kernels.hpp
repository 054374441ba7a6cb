// The kernels as a table of functions, one table per instruction set.
#pragma once
#include "geometry.hpp"
#include "layout.hpp"
#include "relax.hpp"

namespace lunette {

// The promise of "fast": a term of a sum of t terms passes through at most min(t, sum_block + ceil(t / sum_block)) roundings
// on its way into the result, the one of its product or quotient included. Python reads the number here, and every error
// bound, box and rounded result rests on it; long_sum.hpp has what keeps it.
inline constexpr i64 sum_block = 512;

enum class Ties { first, all, split };
enum class Mean { inside, count, divisor };
enum class Unary { neg, relu, leaky_relu, sigmoid, tanh, exp, log, sqrt, abs, sign, power, copy, erf, bell, floor };
enum class Binary { add, sub, mul, div, maximum, minimum, gate, equal, pow };
enum class Reduction { sum, mean, max };

// A max pool that keeps, for each window, the number of its first winner among its cells, and derivatives made of that alone.
template <class T, class R>
struct RecordKernels {
    void (*forward)(const Pool&, i64 planes, const T* x, T* y, R* numbers);  // y may be null
    void (*jvp)(const Pool&, i64 planes, const R* numbers, const T* t, T* dy);
    void (*vjp)(const Pool&, i64 planes, const R* numbers, const T* g, T* dx);
};

template <class T>
struct PoolKernels {
    void (*max_pool)(const Pool&, i64 planes, const T* x, T* y, i64* index);
    void (*max_pool_jvp)(const Pool&, i64 planes, const T* x, const T* t, T* dy, Ties);
    void (*max_pool_vjp)(const Pool&, i64 planes, const T* x, const T* g, T* dx, Ties);
    RecordKernels<T, std::uint8_t> max_pool_bytes;    // for windows of up to 256 cells
    RecordKernels<T, std::uint32_t> max_pool_words;
    template <class R>
    const RecordKernels<T, R>& max_pool_record() const {
        if constexpr (sizeof(R) == 1) return max_pool_bytes; else return max_pool_words;
    }
    void (*avg_pool)(const Pool&, i64 planes, const T* x, T* y, Mean, T divisor);
    void (*avg_pool_vjp)(const Pool&, i64 planes, const T* g, T* dx, Mean, T divisor);
    void (*smooth_max_pool)(const Pool&, i64 planes, const T* x, T* y, T beta, bool include_pad);
    void (*smooth_max_pool_jvp)(const Pool&, i64 planes, const T* x, const T* t, T* dy, T beta, T dbeta, bool include_pad);
    void (*smooth_max_pool_vjp)(const Pool&, i64 planes, const T* x, const T* g, T* dx, T beta, bool include_pad,
                                double* dbeta);  // null where not wanted
    void (*lp_pool)(const Pool&, i64 planes, const T* x, T* y, T p);
    void (*lp_pool_jvp)(const Pool&, i64 planes, const T* x, const T* t, T* dy, T p);
    void (*lp_pool_vjp)(const Pool&, i64 planes, const T* x, const T* g, T* dx, T p);
};

// A pool of some planes, as drivers that work a few planes at a time call it.
template <class T>
struct PlaneKernel {
    const void* self;
    void (*call)(const void* self, i64 planes, const T* x, T* y);
};
struct Planes {
    i64 planes, in, out;  // and the cells of one, before and behind
    i64 divisors = 0;     // that results are divided by: none, one for all, or one for each of a plane
    bool whole = false;   // the result is the sum of all cells
};
// What is proved of a float64 kernel on planes of narrow floats: before they are divided, its results y are within
// evenly * (greatest |cell| of the plane) + relative * |y| + always of the exact ones, for planes that keep `most` and `span`.
struct Proved {
    double evenly, relative, always;
    double most;   // no cell is greater than this; all are finite, unless it is a sum, which infinities decide
    double least;  // nor smaller than this, unless it is zero
    double span;   // the exponents of the cells other than zero are no further apart than this
    double terms;  // of a sum of cells: how many; it is exact where float64 holds every partial sum. Else 0.
};
enum class Pooling { mean, smooth_max, lp };
// Bounds of a pool whose kernel K is off by a known amount (lunette.arithmetic.interval derives the numbers):
struct Outward {
    enum Kind {
        ends,        // K at the ends of x, moved apart by a*|y| + s
        magnitudes,  // K at the ends of |x|, moved apart by a*y + s, but zeros are exact
        sums         // K at the centres c, plus and minus K(a*|c| + b*radius) + s
    } kind;
    double a, b, s;
    double whole = 0;  // of sums: if not zero, all cells of a plane are one window, which is divided by this
};
struct ArithmeticKernels {
    // Writes the nearest floats of so many digits, and the flat places of those that are in doubt, in any order.
    void (*round_planes)(const Planes&, PlaneKernel<double>, const Proved&, int digits, const float* x,
                         const double* divisors, float* y, i64* places, i64* count);
    // The same for doubles, proved of the pairs of doubles that these compute with. `parameters` are divisors (as many as
    // Planes says), beta, or a whole p; `terms` of a sum is what the greatest cell times that bounds the low parts with.
    void (*round_doubles)(Pooling, const Pool&, const Planes&, const Proved&, bool include_pad, const double* x,
                          const double* parameters, double* y, i64* places, i64* count,
                          double* low);  // if given, pairs y + low are written as they are, undecided
    // exp of pairs hi + lo, |lo| <= 2^-53 |hi| and |hi| <= 700, as pairs within 2^-82 of it.
    void (*exponentials)(i64 n, const double* hi, const double* lo, double* y_hi, double* y_lo);
    // *top gets the greatest magnitude that was added up, or of a result: NaN and infinity show there.
    void (*bound_floats)(const Planes&, PlaneKernel<float>, const Outward&, const float* lo, const float* hi, float* y_lo,
                         float* y_hi, double* top);
    void (*bound_doubles)(const Planes&, PlaneKernel<double>, const Outward&, const double* lo, const double* hi,
                          double* y_lo, double* y_hi, double* top);
};

// What happens to a finished sum before it is stored: + bias, * scale, + shift, + another array, then relu (which keeps NaN and -0).
template <class T>
struct Epilogue {
    const T *bias = nullptr, *scale = nullptr, *shift = nullptr;  // one per channel of the result
    const T* add = nullptr;                                       // laid out as the result, not overlapping it
    bool relu = false;
};

template <class T>
struct ConvKernels {
    // `packed`: null, or what conv_pack made of w for the same Conv on this instruction set; w is given anyway.
    void (*conv)(const Conv&, const T* x, const T* w, const T* packed, const Epilogue<T>&, T* y);
    void (*conv_input_grad)(const Conv&, const T* w, const T* packed, const T* g, const Epilogue<T>&, T* dx);
    void (*conv_weight_grad)(const Conv&, const T* x, const T* g, T* dw);
    void (*conv_bias_grad)(i64 batch, i64 channels, i64 cells, const T* g, T* db);
    i64 (*conv_packed_size)(const Conv&, bool input_grad);  // numbers; 0: packing beforehand gains nothing
    void (*conv_pack)(const Conv&, bool input_grad, const T* w, T* packed);
    // Of arrays in blocks of channels (blocked.hpp): a size of 0 says that there is no such kernel.
    i64 (*blocked_packed_size)(const Conv&, bool input_grad);
    void (*blocked_pack)(const Conv&, bool input_grad, const T* w, T* packed);
    void (*blocked_conv)(const Conv&, bool input_grad, const T* x, const T* packed, const Epilogue<T>&, T* y);
    // c[m,n] = op(a) op(b) + bias_n over columns (or null), then relu; all dense and row major, `ta`: a is [k,m], `tb`:
    // b is [n,k]. A batch of products whose operands lie a_stride and b_stride apart (0: the same for all).
    void (*matmul)(i64 batch, i64 m, i64 n, i64 k, bool ta, bool tb, const T* a, i64 a_stride, const T* b, i64 b_stride,
                   const T* bias_n, bool relu, T* c);
};

// What stands between convolutions and pools in a graph. Outputs may be one of the inputs (in place) where both are
// read and written cell by cell in the same order.
template <class T>
struct GlueKernels {
    void (*unary)(Unary, i64 count, T parameter, const T* x, T* y);
    void (*binary)(Binary, const Walk&, const T* x, const T* y, T* z);  // z is dense in the order of the walk
    void (*prefer)(i64 count, const T* a, const T* b, const T* t, T* out);
    void (*scale_shift)(i64 outer, i64 channels, i64 inner, bool relu, const T* x, const T* scale, const T* shift,
                        T* y);
    void (*reduce)(Reduction, const Walk&, const T* x, T* y);  // x is dense; y stands still on the axes reduced
    void (*softmax)(bool log, i64 outer, i64 count, i64 inner, const T* x, T* y);
};

struct Kernels {
    const char* name;
    int vector_bytes;
    PoolKernels<float> f32;
    PoolKernels<double> f64;
    ConvKernels<float> conv_f32;
    ConvKernels<double> conv_f64;
    GlueKernels<float> glue_f32;
    GlueKernels<double> glue_f64;
    ArithmeticKernels arithmetic;
    RowKernels rows;
    template <class T>
    const GlueKernels<T>& glue_of() const {
        if constexpr (sizeof(T) == 4) return glue_f32; else return glue_f64;
    }
    template <class T>
    const ConvKernels<T>& conv_of() const {
        if constexpr (sizeof(T) == 4) return conv_f32; else return conv_f64;
    }
    template <class T>
    const PoolKernels<T>& of() const {
        if constexpr (sizeof(T) == 4) return f32; else return f64;
    }
};

}  // namespace lunette
