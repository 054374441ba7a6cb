// The weights of a convolution as rows of the blocked product.
#pragma once
#include "depthwise.hpp"

namespace lunette::LN_ISA {
namespace {

// The rows of the product, ready to run. For many cells they are packed into panels. For few that would cost
// more than it gains: rows are used as they lie, or, where their terms are not neighbours, gathered block by
// block. Packed beforehand, rows may also lie side by side, so that vectors run across them and single cells are
// broadcast: no vector is wasted on a map of four cells.
enum class Rows { packed, as_they_lie, gathered, plain, across };
inline bool is_packed(Rows kind) { return kind == Rows::packed || kind == Rows::plain || kind == Rows::across; }
template <class T>
struct PackedWeights {
    Rows kind;
    const T* data = nullptr;
    i64 depth = 0, group = 0;  // distance of rows (terms of a row, at least) and of groups
    WeightLayout layout;
    List<i64> place;
    bool runs = true;  // whether the taps of a channel are neighbours
};

// Whether few cells cost less as broadcast numbers than as vectors; counted in multiply-adds of vectors per row and
// term.
inline constexpr i64 most_across = 64;
template <class T>
bool pays_across(const Gather& z) {
    constexpr i64 W = panel_width<T>;
    if (z.cells > most_across || z.channels * z.taps > 100000) return false;
    i64 rest = z.cells % panel_rows;
    double cells = double(z.cells - rest + (rest ? most(rest, 3) : 0)) / lanes<T>;
    double across = cells * double(up(z.rows, W) * W) / double(z.rows) + 2 * double(z.cells) / double(z.rows);
    return across < 0.9 * panels_cost<T>(z.cells, true);
}

// How the rows of z are used. `beforehand`: packing them costs nothing, so all but rows that lie well are.
template <class T>
Rows kind_of_rows(const Gather& z, WeightLayout l, bool beforehand) {
    if (beforehand && pays_across<T>(z)) return Rows::across;
    if (z.cells >= 1024 || (beforehand && panels_cost<T>(z.cells, true) >= panels_cost<T>(z.cells, false)))
        return Rows::packed;
    bool neighbours = l.channel == l.kernel && z.taps == l.kernel && l.row == z.channels * z.taps;
    return neighbours ? Rows::as_they_lie : beforehand ? Rows::plain : Rows::gathered;
}

// Rows of a packed panel.
template <class T>
i64 panel_height(Rows kind) {
    return kind == Rows::across ? panel_width<T> : kind == Rows::plain ? 1 : panel_rows;
}

template <class T>
void choose_rows(PackedWeights<T>& a, const Gather& z, WeightLayout l, bool beforehand) {
    a.kind = kind_of_rows<T>(z, l, beforehand);
    a.depth = z.channels * z.taps, a.layout = l, a.group = l.group;
    i64 height = panel_height<T>(a.kind);
    if (is_packed(a.kind)) a.group = up(z.rows, height) * height * a.depth;
    places(z, a.place);
    for (i64 t = 0; t < z.taps; ++t) a.runs &= a.place[t] == a.place[0] + t;
}

template <class T>
void pack_weights(PackedWeights<T>& a, const Gather& z, const T* w, T* out) {
    const WeightLayout l = a.layout;
    i64 height = panel_height<T>(a.kind), panels = up(z.rows, height), threads = num_threads();
    constexpr i64 B = 8;  // channels at a time, so that lines read are used whole
    i64 chunk = up(panels, most(1, least(panels, threads))), chunks = up(panels, chunk);
    auto task = [&](i64 i) {
        i64 g = i / chunks, first = i % chunks * chunk, last = least(panels, first + chunk);
        for (i64 c0 = 0; c0 < z.channels; c0 += B)
            for (i64 p = first; p < last; ++p)
                for (i64 c = c0; c < least(z.channels, c0 + B); ++c) {
                    const T* x = w + g * l.group + p * height * l.row + c * l.channel;
                    T* y = out + g * a.group + (p * a.depth + c * z.taps) * height;
                    i64 n = least(height, z.rows - p * height);
                    for (i64 t = 0; t < z.taps; ++t, y += height) {
                        for (i64 r = 0; r < n; ++r) y[r] = x[r * l.row + a.place[t]];
                        for (i64 r = n; r < height; ++r) y[r] = 0;
                    }
                }
    };
    if (z.groups * a.group < 32768) {
        for (i64 i = 0; i < z.groups * chunks; ++i) task(i);
    } else {
        parallel_for(z.groups * chunks, task);
    }
}

// How many numbers pack_weights makes beforehand.
template <class T>
i64 packed_size(const Gather& z, WeightLayout l) {
    Rows kind = kind_of_rows<T>(z, l, true);
    if (is_depthwise(z) || !is_packed(kind)) return 0;
    i64 height = panel_height<T>(kind);
    return z.groups * up(z.rows, height) * height * z.channels * z.taps;
}

// Gathers the terms (c, t), (c, t+1), ... of rows m0.. of a group into plain rows `pitch` apart.
template <class T>
void gather_rows(const PackedWeights<T>& a, const Gather& z, i64 group, i64 m0, i64 rows, i64 c, i64 t,
                 i64 terms, T* out, i64 pitch) {
    const WeightLayout& l = a.layout;
    const T* w = a.data + group * l.group + m0 * l.row + c * l.channel;
    if (z.taps == 1 && l.row == 1)
        return transpose_block(w + a.place[0], l.channel, terms, 0, rows, out, pitch, 64 / vector_bytes);
    bool runs = a.runs && t == 0 && z.taps >= lanes<T> && terms % z.taps == 0;
    for (i64 k = 0; k < terms; t = 0) {
        i64 n = least(z.taps - t, terms - k);
        for (i64 r = 0; r < rows; ++r) {
            const T* x = w + r * l.row;
            T* y = out + r * pitch + k;
            if (runs) copy_run(y, x + a.place[0], n);
            else
                for (i64 i = 0; i < n; ++i) y[i] = x[a.place[t + i]];
        }
        k += n, w += l.channel;
    }
}

}  // namespace
}  // namespace lunette::LN_ISA
