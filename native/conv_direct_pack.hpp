// The weights of a direct convolution, turned so that channels of the result lie side by side: all of them beforehand, or a few
// channels of the source right before they are used, so that they are read from memory once and stay in the first cache.
#pragma once
#include "conv_direct.hpp"

namespace lunette::LN_ISA {
namespace {

// As many rows as a vector has lanes, `pitch` apart, as columns. Quarters of a vector are put side by side as they are read,
// which leaves half of the exchanges.
template <class T>
[[gnu::always_inline]] inline void load_turned(const T* from, i64 pitch, Vector<T> (&m)[lanes<T>]) {
    constexpr int L = lanes<T>;
#if defined(__AVX512F__)
    constexpr int E = 16 / sizeof(T);
    auto quarter = [&](int row, int column) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from + row * pitch + column));
    };
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) {
        const int column = i / E * E, row = i % E;
        __m512i v = _mm512_castsi128_si512(quarter(row, column));
        v = _mm512_inserti32x4(v, quarter(row + E, column), 1);
        v = _mm512_inserti32x4(v, quarter(row + 2 * E, column), 2);
        v = _mm512_inserti32x4(v, quarter(row + 3 * E, column), 3);
        m[i] = bits<Vector<T>>(v);
    }
    turn_quarters(m);
#else
    for (int i = 0; i < L; ++i) m[i] = load(from + i * pitch);
    transpose<T>(m);
#endif
}

// Packs parts [channel][tap][width]: `width` channels of the result, zeros behind the last of a group.
template <class T>
class DirectPacking {
public:
    // `order`: which cell of the kernel each tap is.
    DirectPacking(const Gather& z, const T* w, WeightLayout l, i64 width, const List<i64>& order)
        : w_(w), l_(l), rows_(z.rows), taps_(z.taps), width_(width) {
        as_they_lie_ = l.channel == taps_;
        for (i64 t = 0; t < taps_; ++t) place_.push(order[t]), as_they_lie_ &= order[t] == t;
        if (l.row != l.kernel) return;
        end_ = w + z.groups * l.group;
        for (i64 k = 0; k < l.kernel; ++k) tap_at_.push(-1);
        for (i64 t = 0; t < taps_; ++t) tap_at_[order[t]] = t;
    }

    // Channels first..last-1 of the source, of the part whose first channel of the result is `row`.
    void pack(i64 group, i64 row, i64 first, i64 last, T* out) const {
        const i64 count = least(width_, rows_ - row), terms = (last - first) * taps_;
        const T* from = w_ + group * l_.group + row * l_.row + first * l_.channel;
        for (i64 k = 0; k < terms && count < width_; ++k)
            for (i64 v = count; v < width_; ++v) out[k * width_ + v] = 0;
        if (as_they_lie_) return turn_rows(from, count, terms, out);
        for (i64 c = first; c < last; ++c, from += l_.channel, out += taps_ * width_) pick_taps(from, count, out);
    }

    // Asks for share `i` of `shares` of the memory that such a pack will read.
    void ask(i64 group, i64 row, i64 first, i64 last, i64 i, i64 shares) const {
        constexpr i64 line = 64 / sizeof(T);
        const i64 count = least(width_, rows_ - row);
        const bool by_rows = l_.row >= l_.channel;  // else the rows of a channel are neighbours
        const i64 pieces = by_rows ? count : last - first, apart = by_rows ? l_.row : l_.channel;
        const i64 lines = up(by_rows ? (last - first) * l_.channel : count * l_.row, line) + 1, some = up(pieces * lines, shares);
        const T* from = w_ + group * l_.group + row * l_.row + first * l_.channel;
        for (i64 k = i * some; k < least(pieces * lines, (i + 1) * some); ++k)
            prefetch(from, k / lines * apart + k % lines * line);
    }

private:
    // A matrix of so many rows and columns, turned.
    void turn_rows(const T* from, i64 count, i64 terms, T* out) const {
        constexpr i64 L = lanes<T>;
        const i64 whole = terms < L ? 0 : count / L * L;
        for (i64 v = 0; v < whole; v += L)
            for (i64 k = 0; k < terms; k += L) {
                if (k + L > terms) k = terms - L;  // some columns twice
                Vector<T> m[lanes<T>];
                load_turned(from + v * l_.row + k, l_.row, m);
                for (i64 i = 0; i < L; ++i) store(out + (k + i) * width_ + v, m[i]);
            }
        for (i64 v = whole; v < count; ++v)
            for (i64 k = 0; k < terms; ++k) out[k * width_ + v] = from[v * l_.row + k];
    }

    // The taps of one channel of the source.
    void pick_taps(const T* from, i64 count, T* out) const {
        constexpr i64 L = lanes<T>;
        i64 whole = 0;  // channels of the result whose weights are turned, some cells of the kernel at a time
        for (; end_ && whole + L <= count && from + (whole + L) * l_.row + L <= end_; whole += L)
            for (i64 k = 0; k < l_.row; k += L) {
                Vector<T> m[lanes<T>];
                load_turned(from + whole * l_.row + k, l_.row, m);
                for (i64 i = 0; i < least(L, l_.row - k); ++i)
                    if (tap_at_[k + i] >= 0) store(out + tap_at_[k + i] * width_ + whole, m[i]);
            }
        for (i64 t = 0; t < taps_; ++t)
            for (i64 v = whole; v < count; ++v) out[t * width_ + v] = from[v * l_.row + place_[t]];
    }

    const T* w_;
    const T* end_ = nullptr;  // of the weights, where rows hold the cells of a kernel, as those of an input gradient do
    WeightLayout l_;
    i64 rows_, taps_, width_;
    List<i64> place_, tap_at_;  // of each tap in the kernel; of each cell of the kernel among the taps, or -1
    bool as_they_lie_;
};

}  // namespace
}  // namespace lunette::LN_ISA
