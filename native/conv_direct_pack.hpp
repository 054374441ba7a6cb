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

// Packs parts [channel][tap][width]: `width` channels of the result, zeros behind the last of a group. The cells of a kernel may be
// taps of several sums, of which each gets a part of its own.
template <class T>
class DirectPacking {
public:
    static constexpr i64 most_sums = 16, most_cells = 256;  // of a kernel

    DirectPacking(const Gather& z, const T* w, WeightLayout l, i64 width)
        : w_(w), l_(l), rows_(z.rows), channels_(z.channels), width_(width) {
        if (l.row == l.kernel) end_ = w + z.groups * l.group;
        for (i64 k = 0; k < l.kernel; ++k) tap_at_.push({-1, 0});
    }

    // One more sum; `order`: which cell of the kernel each of its taps is.
    void add(const List<i64>& order) {
        for (i64 t = 0; t < order.size; ++t) tap_at_[order[t]] = {sums_, t};
        as_they_lie_ = sums_ == 0 && l_.channel == order.size;
        for (i64 t = 0; t < order.size; ++t) as_they_lie_ &= order[t] == t;
        taps_[sums_++] = order.size;
    }

    // Channels first..last-1 of the source, of the part whose first channel of the result is `row`, to a place for each sum.
    void pack(i64 group, i64 row, i64 first, i64 last, T* const* to) const {
        const i64 count = least(width_, rows_ - row);
        const T* from = w_ + group * l_.group + row * l_.row + first * l_.channel;
        for (i64 i = 0; i < sums_; ++i)
            for (i64 k = 0; k < (last - first) * taps_[i] && count < width_; ++k)
                for (i64 v = count; v < width_; ++v) to[i][k * width_ + v] = 0;
        if (as_they_lie_) return turn_rows(from, count, (last - first) * taps_[0], to[0]);
        pick_taps(from, count, last - first, to);
    }

    // The same of all channels, where the sums' parts lie one after another.
    void pack_part(i64 group, i64 part, i64 parts, i64 parts_of_group, T* out) const {
        T* to[most_sums];
        for (i64 i = 0; i < sums_; out += parts * channels_ * taps_[i++] * width_)
            to[i] = out + (group * parts_of_group + part) * channels_ * taps_[i] * width_;
        pack(group, part * width_, 0, channels_, to);
    }

    // Asks for share `i` of `shares` of the memory that a pack will read.
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
#pragma GCC unroll 16
                for (i64 i = 0; i < L; ++i) store(out + (k + i) * width_ + v, m[i]);
            }
        for (i64 v = whole; v < count; ++v)
            for (i64 k = 0; k < terms; ++k) out[k * width_ + v] = from[v * l_.row + k];
    }

    // The taps of some channels of the source. Of a cell of the kernel that no sum has the weights go nowhere: all vectors that are
    // turned together are stored, so that they stay in registers.
    void pick_taps(const T* from, i64 count, i64 channels, T* const* to) const {
        constexpr i64 L = lanes<T>;
        T nowhere[4 * L];
        T* place[most_cells + L];
        i64 step[most_cells + L];
        for (i64 k = 0; k < l_.kernel + L; ++k) {
            const Tap tap = k < l_.kernel ? tap_at_[k] : Tap{-1, 0};
            place[k] = tap.sum < 0 ? nowhere : to[tap.sum] + tap.tap * width_, step[k] = tap.sum < 0 ? 0 : taps_[tap.sum] * width_;
        }
        for (i64 c = 0; c < channels; ++c, from += l_.channel) {
            i64 whole = 0;  // channels of the result whose weights are turned, some cells of the kernel at a time
            for (; end_ && whole + L <= count && from + (whole + L) * l_.row + L <= end_; whole += L)
                for (i64 k = 0; k < l_.row; k += L) {
                    Vector<T> m[lanes<T>];
                    load_turned(from + whole * l_.row + k, l_.row, m);
#pragma GCC unroll 16
                    for (i64 i = 0; i < L; ++i) store(place[k + i] + whole, m[i]);
                }
            for (i64 k = 0; k < l_.kernel; place[k] += step[k], ++k)
                for (i64 v = whole; v < count; ++v) place[k][v] = from[v * l_.row + k];
        }
    }

    struct Tap {
        i64 sum, tap;  // sum -1: of none
    };
    const T* w_;
    const T* end_ = nullptr;  // of the weights, where rows hold the cells of a kernel, as those of an input gradient do
    WeightLayout l_;
    i64 rows_, channels_, width_, sums_ = 0, taps_[most_sums] = {};
    List<Tap> tap_at_;  // of each cell of the kernel
    bool as_they_lie_ = false;
};

}  // namespace
}  // namespace lunette::LN_ISA
