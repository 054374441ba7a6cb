// Matrix products as linear layers and their gradients need them: x w^T, g w and g^T x, on the register-blocked
// product of the convolutions.
#include "gemm.hpp"
#include "operators.hpp"

namespace lunette::LN_ISA {
namespace {

template <class T>
struct Product {
    i64 m, n, k;
    bool ta, tb;
    const T *a, *b, *bias;
    bool relu;
    T* c;
    // At most `block` terms are added one after another, then the sums of blocks: never deeper than 512 + k/512.
    i64 block = even_split(most(1, k), k > (1 << 17) ? 512 : 256);

    i64 panel() const { return (block + 1) * panel_width<T>; }  // not a power of two
    const T* a_at(i64 i, i64 p) const { return a + (ta ? p * m + i : i * k + p); }
    const T* b_at(i64 p, i64 j) const { return b + (tb ? j * k + p : p * n + j); }
    T finished(T v, i64 j) const {
        if (bias) v += bias[j];
        return relu && v < 0 ? T(0) : v;
    }
};

// c = x b^T for up to few_rows rows x: every number of b is used a few times only, so b is read as it lies, row by row.
inline constexpr i64 few_rows = 4;
template <int R, int C, class T>
[[gnu::always_inline]] inline void dot_block(const Product<T>& z, i64 j, i64 p, i64 terms, T (&sums)[few_rows][4]) {
    constexpr i64 L = lanes<T>;
    Vector<T> acc[R][C];
    each<R, C>([&](int r, int c) { acc[r][c] = broadcast(T(-0.0)); });
    const T *a = z.a + p, *b = z.b + j * z.k + p;
    i64 i = 0;
    for (; i + L <= terms; i += L) {
        Vector<T> x[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) x[r] = load(a + r * z.k + i);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
            Vector<T> y = load(b + c * z.k + i);
            prefetch(b + c * z.k + i, 512 / i64(sizeof(T)));
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) acc[r][c] += x[r] * y;
        }
    }
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) {
            T s = T(-0.0);
            for (i64 l = 0; l < L; ++l) s += acc[r][c][l];
            for (i64 l = i; l < terms; ++l) s += a[r * z.k + l] * b[c * z.k + l];
            sums[r][c] = p ? sums[r][c] + s : s;
        }
}

template <int R, class T>
void dot_rows(const Product<T>& z, i64 first, i64 last) {
    constexpr i64 B = 256 * lanes<T>;  // a lane adds 256 terms, then lanes and blocks are added
    T sums[few_rows][4];
    for (i64 j = first; j < last;) {
        int c = last - j >= 4 ? 4 : 1;
        for (i64 p = 0; p < z.k; p += B) {
            i64 terms = least(B, z.k - p);
            if (c == 1) dot_block<R, 1>(z, j, p, terms, sums);
            else if constexpr (R <= 2) dot_block<R, 4>(z, j, p, terms, sums);
            else {
                T half[few_rows][4];
                for (int h = 0; h < 4; h += 2) {
                    for (int r = 0; r < R; ++r) half[r][0] = sums[r][h], half[r][1] = sums[r][h + 1];
                    dot_block<R, 2>(z, j + h, p, terms, half);
                    for (int r = 0; r < R; ++r) sums[r][h] = half[r][0], sums[r][h + 1] = half[r][1];
                }
            }
        }
        for (int r = 0; r < R; ++r)
            for (int i = 0; i < c; ++i) z.c[r * z.n + j + i] = z.finished(sums[r][i], j + i);
        j += c;
    }
}

// part[r] (+)= sum of P rows p.. of b, each times x[r][p], along a strip of columns.
template <int R, int P, class T>
[[gnu::always_inline]] inline void add_to_strip(const Product<T>& z, i64 p, i64 j, i64 width, bool fresh, T* part,
                                                i64 pitch) {
    constexpr i64 L = lanes<T>;
    T s[R][P];
    for (int r = 0; r < R; ++r)
        for (int q = 0; q < P; ++q) s[r][q] = *z.a_at(r, p + q);
    const T* b = z.b + p * z.n + j;
    constexpr i64 ahead = 8192 / sizeof(T);  // strips are so short that the processor asks for little ahead by itself
    i64 i = 0;
    for (; i + L <= width; i += L) {
        Vector<T> y[P];
#pragma GCC unroll 8
        for (int q = 0; q < P; ++q) y[q] = load(b + q * z.n + i), prefetch(b + q * z.n + i, ahead);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            Vector<T> sum = fresh ? broadcast(T(-0.0)) : load(part + r * pitch + i);
#pragma GCC unroll 8
            for (int q = 0; q < P; ++q) sum += s[r][q] * y[q];
            store(part + r * pitch + i, sum);
        }
    }
    for (; i < width; ++i)
        for (int r = 0; r < R; ++r) {
            T sum = fresh ? T(-0.0) : part[r * pitch + i];
            for (int q = 0; q < P; ++q) sum += s[r][q] * b[q * z.n + i];
            part[r * pitch + i] = sum;
        }
}

// c = x b for up to few_rows rows x: some rows of b at a time, along whole strips of columns.
template <int R, class T>
void add_rows(const Product<T>& z, i64 first, i64 last) {
    constexpr i64 S = 4096 / R;  // so that the sums stay in the first cache
    T part[R * S];
    for (i64 j = first; j < last; j += S) {
        i64 width = least(S, last - j);
        for (i64 p0 = 0; p0 < z.k; p0 += z.block) {
            i64 end = least(z.k, p0 + z.block), p = p0;
            constexpr int P = R == 1 ? 8 : 4;  // what the registers hold
            for (; p + P <= end; p += P) add_to_strip<R, P>(z, p, j, width, p == p0, part, S);
            for (; p < end; ++p) add_to_strip<R, 1>(z, p, j, width, p == p0, part, S);
            for (int r = 0; r < R; ++r)
                for (i64 i = 0; i < width; ++i) {
                    T& c = z.c[r * z.n + j + i];
                    T v = p0 ? c + part[r * S + i] : part[r * S + i];
                    c = end == z.k ? z.finished(v, j + i) : v;
                }
        }
    }
}

// c = a b with few terms: the result is what takes time, so it is written once, row by row.
inline constexpr i64 few_terms = 4;
template <int K, class T>
void few_products(const Product<T>& z, i64 i0, i64 i1) {
    constexpr i64 L = lanes<T>;
    for (i64 i = i0; i < i1; ++i) {
        T s[K];
        for (int p = 0; p < K; ++p) s[p] = *z.a_at(i, p);
        T* c = z.c + i * z.n;
        i64 j = 0;
        for (; j + L <= z.n; j += L) {
            Vector<T> v = broadcast(T(-0.0));
            for (int p = 0; p < K; ++p) v += s[p] * load(z.b + p * z.n + j);
            if (z.bias) v += load(z.bias + j);
            store(c + j, z.relu ? v < 0 ? Vector<T>{} : v : v);
        }
        for (; j < z.n; ++j) {
            T v = T(-0.0);
            for (int p = 0; p < K; ++p) v += s[p] * z.b[p * z.n + j];
            c[j] = z.finished(v, j);
        }
    }
}

// c = x b^T for x of a few vectors of rows: c^T = b x^T, the rows of b as they lie, vectors along the rows of x.
inline constexpr i64 across_rows = 96, across_chunk = 256;
template <class T>
void across(const Product<T>& z, i64 first, i64 last) {
    constexpr i64 W = panel_width<T>, L = lanes<T>, B = 512;
    i64 panels = up(z.m, W);
    T* x = workspace<T>(tile_slot, panels * z.panel());
    T* sums = workspace<T>(sums_slot, panels * (last - first) * W);
    int32_t off[B];
    for (i64 p = 0; p < z.block; ++p) off[p] = int32_t(p * W);
    for (i64 p0 = 0; p0 < z.k; p0 += z.block) {
        i64 terms = least(z.block, z.k - p0);
        bool done = p0 + terms == z.k;
        for (i64 q = 0; q < panels; ++q) {
            T* to = x + q * z.panel();
            i64 width = least(W, z.m - q * W);
            for (i64 p = 0; p < terms && width % L; ++p) store(to + p * W + width / L * L, Vector<T>{});
            transpose_block(z.a_at(q * W, p0), z.k, width, 0, terms, to, W, 64 / vector_bytes);
        }
        for (i64 q = 0; q < panels; ++q) {
            T* sum = sums + q * (last - first) * W;
            Column<T> job{z.b_at(p0, first), z.k, off, terms, x + q * z.panel(), p0 ? sum : nullptr,
                          done && z.bias ? z.bias + first : nullptr, nullptr, sum, W, W, done && z.relu, false};
            column<false>(int(up(least(W, z.m - q * W), L)), job, last - first);
        }
    }
    for (i64 q = 0; q < panels; ++q)
        transpose_block(sums + q * (last - first) * W, W, last - first, 0, least(W, z.m - q * W),
                        z.c + q * W * z.n + first, z.n, 64 / vector_bytes);
}

// Rows i.. of a as panels [panel][term][panel_rows].
template <class T>
void pack_rows(const Product<T>& z, i64 i, i64 count, i64 p0, i64 terms, T* rows) {
    if (z.ta) return pack_columns(z.a_at(i, p0), z.m, count, terms, rows);
    for (i64 r = 0; r < count; r += panel_rows) {
        const T* from = z.a_at(i + r, p0);
        T* to = rows + r * terms;
        i64 height = least(panel_rows, count - r);
        if (height == panel_rows)
            for (i64 p = 0; p < terms; ++p)
                for (i64 l = 0; l < panel_rows; ++l) to[p * panel_rows + l] = from[l * z.k + p];
        else
            for (i64 p = 0; p < terms; ++p)
                for (i64 l = 0; l < height; ++l) to[p * panel_rows + l] = from[l * z.k + p];
    }
}

// Rows i0..i1 of panels q0..q1, both operands packed block by block.
inline constexpr i64 packed_rows = 128, packed_panels = 20;
template <class T>
void blocked(const Product<T>& z, i64 i0, i64 i1, i64 q0, i64 q1) {
    constexpr i64 W = panel_width<T>, L = lanes<T>, B = 512;
    i64 j0 = q0 * W, j1 = least(z.n, q1 * W), rest = (j1 - j0) % W, tail_width = rest % L ? rest : 0;
    T* panels = workspace<T>(tile_slot, (q1 - q0) * z.panel() + packed_rows * z.block);
    T* rows = panels + (q1 - q0) * z.panel();
    T* tail = workspace<T>(sums_slot, (i1 - i0 + 1) * W);  // sums of the last panel, if it is no whole vectors
    T* tail_bias = tail + (i1 - i0) * W;
    for (i64 l = 0; l < W; ++l) tail_bias[l] = z.bias && l < tail_width ? z.bias[j1 - tail_width + l] : T(0);
    int32_t off[B];
    for (i64 p = 0; p < z.block; ++p) off[p] = int32_t(p * W);
    for (i64 p0 = 0; p0 < z.k; p0 += z.block) {
        i64 terms = least(z.block, z.k - p0);
        bool done = p0 + terms == z.k;
        for (i64 p = 0; p < terms && rest; ++p)
            for (i64 l = 0; l < W; ++l) panels[(j1 - j0) / W * z.panel() + p * W + l] = 0;
        if (z.tb) {
            for (i64 j = j0; j < j1; j += W)
                transpose_block(z.b_at(p0, j), z.k, least(W, j1 - j), 0, terms, panels + (j - j0) / W * z.panel(), W,
                                64 / vector_bytes);
        } else {
            for (i64 p = 0; p < terms; ++p)
                for (i64 j = j0; j < j1; j += W) {
                    const T* from = z.b_at(p0 + p, j);
                    T* to = panels + (j - j0) / W * z.panel() + p * W;
                    if (j1 - j >= W)
                        for (i64 l = 0; l < W; l += L) store(to + l, load(from + l));
                    else
                        for (i64 l = 0; l < j1 - j; ++l) to[l] = from[l];
                }
        }
        for (i64 i = i0; i < i1; i += packed_rows) {
            i64 count = least(packed_rows, i1 - i);
            pack_rows(z, i, count, p0, terms, rows);
            for (i64 j = j0; j < j1; j += W) {
                i64 width = least(W, j1 - j);
                T* out = z.c + i * z.n + j;
                Column<T> job{rows, terms, off, terms, panels + (j - j0) / W * z.panel(), out, nullptr, nullptr,
                              out, z.n, z.n, done && z.relu, false};
                bool in_tail = width % L;
                if (in_tail) job.out = tail + (i - i0) * W, job.before = job.out, job.pitch = job.before_pitch = W;
                if (!p0) job.before = z.bias ? in_tail ? tail_bias : z.bias + j : nullptr, job.before_pitch = 0;
                column<true>(int(up(width, L)), job, count);
            }
        }
    }
    for (i64 i = i0; i < i1 && tail_width; ++i)
        for (i64 l = 0; l < tail_width; ++l) z.c[i * z.n + j1 - tail_width + l] = tail[(i - i0) * W + l];
}

template <class T>
void share_out(i64 batch, const Product<T>& all, i64 a_stride, i64 b_stride) {
    i64 threads = num_threads();
    if (work(batch, all.m, all.n, all.k) < 100000) threads = 1;
    bool few = all.m <= few_rows && !(all.ta && all.m > 1 && all.tb);
    bool flat = !few && !all.tb && all.k <= few_terms;
    bool wide = !few && !all.ta && all.tb && all.m <= across_rows;
    // Cut by columns, and where these are few, by rows.
    constexpr i64 W = panel_width<T>;
    i64 at_most = few ? 4096 : wide ? across_chunk : packed_panels * W;
    i64 parts = threads == 1 ? 1 : up(4 * threads, batch);
    i64 chunk = flat ? all.n : least(at_most, up(up(all.n, parts), W) * W), chunks = up(all.n, chunk);
    i64 row_parts = few || wide ? 1 : least(up(threads == 1 ? 1 : 4 * threads, chunks * batch), up(all.m, 16));
    i64 row_chunk = up(up(all.m, row_parts), panel_rows) * panel_rows;
    row_parts = up(all.m, row_chunk);
    auto task = [&](i64 i) {
        i64 part = i % row_parts, first = i / row_parts % chunks * chunk, which = i / row_parts / chunks;
        i64 last = least(all.n, first + chunk);
        Product<T> z = all;
        z.a += which * a_stride, z.b += which * b_stride, z.c += which * z.m * z.n;
        if (few && z.tb) {
            if (z.m == 1) dot_rows<1>(z, first, last);
            if (z.m == 2) dot_rows<2>(z, first, last);
            if (z.m == 3) dot_rows<3>(z, first, last);
            if (z.m == 4) dot_rows<4>(z, first, last);
        } else if (few) {
            if (z.m == 1) add_rows<1>(z, first, last);
            if (z.m == 2) add_rows<2>(z, first, last);
            if (z.m == 3) add_rows<3>(z, first, last);
            if (z.m == 4) add_rows<4>(z, first, last);
        } else if (flat) {
            i64 i0 = part * row_chunk, i1 = least(z.m, (part + 1) * row_chunk);
            if (z.k == 1) few_products<1>(z, i0, i1);
            if (z.k == 2) few_products<2>(z, i0, i1);
            if (z.k == 3) few_products<3>(z, i0, i1);
            if (z.k == 4) few_products<4>(z, i0, i1);
        } else if (wide) {
            across(z, first, last);
        } else {
            blocked(z, part * row_chunk, least(z.m, (part + 1) * row_chunk), first / W, up(last, W));
        }
    };
    i64 tasks = batch * chunks * row_parts;
    if (threads == 1)
        for (i64 i = 0; i < tasks; ++i) task(i);
    else parallel_for(tasks, task);
}

}  // namespace

template <class T>
void matmul(i64 batch, i64 m, i64 n, i64 k, bool ta, bool tb, const T* a, i64 a_stride, const T* b, i64 b_stride,
            const T* bias_n, bool relu, T* c) {
    if (any_zero(batch, m, n)) return;
    Product<T> z{m, n, k, ta, tb, a, b, bias_n, relu, c};
    if (k == 0) {
        for (i64 i = 0; i < batch * m * n; ++i) c[i] = z.finished(T(0), i % n);
        return;
    }
    if (!ta && b_stride == 0 && (batch == 1 || a_stride == m * k)) z.m *= batch, batch = 1;
    share_out(batch, z, a_stride, b_stride);
}

template void matmul(i64, i64, i64, i64, bool, bool, const float*, i64, const float*, i64, const float*, bool, float*);
template void matmul(i64, i64, i64, i64, bool, bool, const double*, i64, const double*, i64, const double*, bool,
                     double*);

}  // namespace lunette::LN_ISA
