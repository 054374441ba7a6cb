// The register-blocked matrix product under every convolution: a few rows of one operand, broadcast, times a
// few vectors of the other. Everything here has internal linkage, for it is compiled once per instruction
// set.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <new>

#include "long_sum.hpp"
#include "simd.hpp"
#include "threads.hpp"

namespace lunette::LN_ISA {
namespace {

inline i64 least(i64 a, i64 b) { return a < b ? a : b; }
inline i64 most(i64 a, i64 b) { return a > b ? a : b; }
inline i64 up(i64 a, i64 b) { return (a + b - 1) / b; }  // a >= 0

// The least size of a part that needs no more parts than parts of at_most.
inline i64 even_split(i64 all, i64 at_most) { return up(all, up(all, most(1, least(at_most, all)))); }

// Multiply-adds, or cells: only to compare with, so that it may be more than any integer holds.
template <class... Sizes>
inline double work(Sizes... sizes) {
    return (double(sizes) * ...);
}
template <class... Sizes>
inline bool any_zero(Sizes... sizes) {
    return ((sizes == 0) || ...);
}

template <class T>
using Vector = Vec<T, lanes<T>>;

// Twelve accumulators fill 16 registers (4 rows x 3 vectors, 3 vectors, 1 broadcast); AVX-512 has 32.
inline constexpr int panel_rows = vector_bytes == 64 ? 8 : 4;
inline constexpr int panel_vectors = 3;
template <class T>
inline constexpr int panel_width = panel_vectors * lanes<T>;

// At most block_terms terms are added one after another; the sums of blocks are added up by a Ladder. Together that is
// never deeper than sum_block, in up to 2^33 terms: 320 + 190 where blocks are few, else 320 + 5*32.
inline constexpr i64 block_terms = 320;
static_assert(block_terms + Ladder::few < sum_block && block_terms + 5 * Ladder::base < sum_block);
inline constexpr i64 packed_terms = 256;  // so that a packed panel stays in the first cache

// Working memory of a thread: what it packs, what it sums, and what the caller keeps while all threads work.
enum Slot { tile_slot, sums_slot, caller_slot, packed_weights_slot };
template <class T>
T* workspace(Slot slot, i64 n) {
    return static_cast<T*>(scratch(static_cast<size_t>(n) * sizeof(T), slot));
}

template <class T>
inline Vector<T> load(const T* p) {
    return load<lanes<T>>(p);
}
template <class T>
inline void store(T* p, Vector<T> v) {
    store<lanes<T>>(p, v);
}
template <class T>
inline Vector<T> broadcast(T s) {
    return splat<lanes<T>>(s);
}

// 0, 1, ..., N-1 as a type.
template <int... I>
struct Numbers {};
template <int N, int... I>
struct CountTo : CountTo<N - 1, N - 1, I...> {};
template <int... I>
struct CountTo<0, I...> {
    using type = Numbers<I...>;
};

// A growing array without std::vector, whose inline functions would be shared between instruction sets.
template <class T>
struct List {
    T* data = nullptr;
    i64 size = 0, room = 0;
    List() = default;
    List(const List&) = delete;
    List& operator=(const List&) = delete;
    ~List() { std::free(data); }
    void reserve(i64 n) {
        if (n <= room) return;
        void* p = std::realloc(static_cast<void*>(data), static_cast<size_t>(n) * sizeof(T));
        if (!p) throw std::bad_alloc();
        data = static_cast<T*>(p), room = n;
    }
    void resize(i64 n) { reserve(n), size = n; }
    void push(const T& v) {
        if (size == room) reserve(size < 8 ? 16 : 2 * size);
        data[size++] = v;
    }
    void swap(List& o) {
        T* d = data;
        i64 s = size, r = room;
        data = o.data, size = o.size, room = o.room;
        o.data = d, o.size = s, o.room = r;
    }
    T& operator[](i64 i) { return data[i]; }
    const T& operator[](i64 i) const { return data[i]; }
};

// An address that need not be valid.
template <class T>
inline void prefetch(const T* p, i64 elements) {
    __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(p) + elements * sizeof(T)),
                       0, 2);
}

// Rows of the broadcast operand: packed [row panel][k][panel_rows], or plain rows of depth k (no packing at
// all).
template <bool Packed, class T>
inline T element(const T* a, i64 depth, int r, i64 k) {
    if constexpr (Packed) return a[(r / panel_rows * depth + k) * panel_rows + r % panel_rows];
    return a[r * depth + k];
}

// One more term: acc[r][v] += a[r][k] * p[v*lanes ...]
template <int R, int N, bool Packed, class T>
[[gnu::always_inline]] inline void multiply_term(const T* a, i64 depth, i64 k, const T* p,
                                                 Vector<T> (&acc)[R][N]) {
    Vector<T> x[N];
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) x[v] = load(p + v * lanes<T>);
#pragma GCC unroll 64
    for (int r = 0; r < R; ++r) {
        Vector<T> s = broadcast(element<Packed>(a, depth, r, k));
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) acc[r][v] += s * x[v];
    }
}

// acc[r][v] += sum_k a[r][k] * b[off[k] + v*lanes ...]
template <int R, int N, bool Packed, class T>
[[gnu::always_inline]] inline void multiply(const T* a, i64 depth, const int32_t* off, i64 terms, const T* b,
                                            Vector<T> (&acc)[R][N]) {
#pragma GCC unroll 4
    for (i64 k = 0; k < terms; ++k) {
        multiply_term<R, N, Packed>(a, depth, k, b + off[k], acc);
        asm volatile("" ::: "memory");  // or the compiler loads ahead and runs out of registers
    }
}

// The sums of R rows, a[r] . x, both contiguous: for single cells, which would waste a vector each.
template <int R, class T>
inline void dot(const T* a, i64 depth, const T* x, i64 terms, T* out) {
    constexpr int L = lanes<T>;
    Vector<T> acc[R];
    for (int r = 0; r < R; ++r) acc[r] = broadcast(T(-0.0));
    i64 k = 0;
    for (; k + L <= terms; k += L) {
        Vector<T> v = load(x + k);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) acc[r] += load(a + r * depth + k) * v;
    }
    for (int r = 0; r < R; ++r) {
        T s = T(-0.0);
        for (int l = 0; l < L; ++l) s += acc[r][l];
        for (i64 i = k; i < terms; ++i) s += a[r * depth + i] * x[i];
        out[r] = s;
    }
}

// sums[r*pitch] (+)= a[r] . x for all rows.
template <class T>
void dots(const T* a, i64 depth, i64 rows, const T* x, i64 terms, bool fresh, T* sums, i64 pitch) {
    T s[4];
    for (i64 r = 0; r < rows; r += 4, a += 4 * depth) {
        int n = rows - r < 4 ? int(rows - r) : 4;
        if (n == 4) dot<4>(a, depth, x, terms, s);
        else
            for (int i = 0; i < n; ++i) dot<1>(a + i * depth, depth, x, terms, s + i);
        for (int i = 0; i < n; ++i) {
            T& sum = sums[(r + i) * pitch];
            sum = fresh ? s[i] : sum + s[i];
        }
    }
}

// Some rows of the product over one panel. `before`: sums so far (or null); `bias`, `scale`, `shift`, `add`, `relu`: see
// Epilogue.
template <class T>
struct Column {
    const T* a;
    i64 depth;
    const int32_t* off;
    i64 terms;
    const T *b, *before, *bias, *add;
    T* out;
    i64 before_pitch, pitch;  // of before; of add and out
    bool relu, watch;  // watch: say whether a sum is in doubt
    const T *scale = nullptr, *shift = nullptr;
};

// f(r, v) for every accumulator, unrolled early enough that they stay in registers.
template <int R, int N, class F>
[[gnu::always_inline]] inline void each(F f) {
#pragma GCC unroll 64
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) f(r, v);
}

// Sums that padded zeros may have spoiled: 0 * infinity is NaN, and +0 turns a sum of -0 into +0.
template <class T>
[[gnu::always_inline]] inline auto in_doubt(T sum) {
    return !((sum < 0) | (sum > 0));
}

// The next R rows of a column.
template <int R, int N, bool Packed, class T>
[[gnu::always_inline]] inline bool tile(Column<T>& t) {
    constexpr int L = lanes<T>;
    Vector<T> acc[R][N];
    each<R, N>([&](int r, int v) { acc[r][v] = broadcast(T(-0.0)); });  // so that a sum of -0 stays -0
    for (int r = 0; r < R; ++r)  // what is written last is asked for first
        for (int i = 0; i < N * L; i += 64 / int(sizeof(T))) __builtin_prefetch(t.out + r * t.pitch + i, 1);
    multiply<R, N, Packed>(t.a, t.depth, t.off, t.terms, t.b, acc);
    if (t.before) each<R, N>([&](int r, int v) { acc[r][v] += load(t.before + r * t.before_pitch + v * L); });
    if (t.bias) each<R, N>([&](int r, int v) { acc[r][v] += broadcast(t.bias[r]); });
    if (t.scale) each<R, N>([&](int r, int v) { acc[r][v] = rounded_product(acc[r][v], broadcast(t.scale[r])); });
    if (t.shift) each<R, N>([&](int r, int v) { acc[r][v] += broadcast(t.shift[r]); });
    if (t.add) each<R, N>([&](int r, int v) { acc[r][v] += load(t.add + r * t.pitch + v * L); });
    auto doubt = in_doubt(acc[0][0]);
    if (t.watch) each<R, N>([&](int r, int v) { doubt |= in_doubt(acc[r][v]); });
    if (t.relu) each<R, N>([&](int r, int v) { acc[r][v] = acc[r][v] < 0 ? Vector<T>{} : acc[r][v]; });
    each<R, N>([&](int r, int v) { store(t.out + r * t.pitch + v * L, acc[r][v]); });
    t.a += Packed && R < panel_rows ? R : R * t.depth;
    t.out += R * t.pitch;
    if (t.before) t.before += R * t.before_pitch;
    if (t.add) t.add += R * t.pitch;
    if (t.bias) t.bias += R;
    if (t.scale) t.scale += R;
    if (t.shift) t.shift += R;
    return t.watch && any(doubt);
}

template <int N, bool Packed, class T>
[[gnu::noinline]] bool column(Column<T> t, i64 rows) {
    bool bad = false;
    if constexpr (N == 1)  // one vector: more rows, to have enough sums under way
        for (; rows >= 2 * panel_rows; rows -= 2 * panel_rows) bad |= tile<2 * panel_rows, N, Packed>(t);
    for (; rows >= panel_rows; rows -= panel_rows) bad |= tile<panel_rows, N, Packed>(t);
    if (panel_rows > 4 && rows >= 4) rows -= 4, bad |= tile<4, N, Packed>(t);
    if (rows >= 2) rows -= 2, bad |= tile<2, N, Packed>(t);
    if (rows >= 1) bad |= tile<1, N, Packed>(t);
    return bad;
}
template <bool Packed, class T>
inline bool column(int vectors, const Column<T>& t, i64 rows) {
    if (vectors == 1) return column<1, Packed>(t, rows);
    if (vectors == 2) return column<2, Packed>(t, rows);
    return column<3, Packed>(t, rows);
}

// m becomes its transpose: at each step the lanes that differ in one bit of (row, lane) change places.
template <int H, class T, int... I>
[[gnu::always_inline]] inline void exchange(Vector<T> (&m)[lanes<T>], Numbers<I...> all) {
    constexpr int L = lanes<T>;
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i)
        if (!(i & H)) {
            Vector<T> a = m[i], b = m[i + H];
            m[i] = __builtin_shufflevector(a, b, (I & H ? L + I - H : I)...);
            m[i + H] = __builtin_shufflevector(a, b, (I & H ? L + I : I + H)...);
        }
    if constexpr (2 * H < L) exchange<2 * H, T>(m, all);
}
template <class T>
[[gnu::always_inline]] inline void transpose(Vector<T> (&m)[lanes<T>]) {
    exchange<1, T>(m, typename CountTo<lanes<T>>::type{});
}

// to[r][c] = from[c][r] for r in first..last, so many vectors of rows at once
template <class T>
void transpose_block(const T* from, i64 pitch, i64 columns, i64 first, i64 last, T* to, i64 to_pitch,
                     i64 vectors) {
    constexpr i64 L = lanes<T>;
    for (i64 r0 = first; r0 < last; r0 += vectors * L)
        for (i64 c = 0; c < columns; c += L)
            for (i64 r = r0; r < least(last, r0 + vectors * L); r += L) {
                if (c + L <= columns && r + L <= last) {
                    Vector<T> m[lanes<T>];
                    for (i64 i = 0; i < L; ++i) m[i] = load(from + (c + i) * pitch + r);
                    transpose<T>(m);
                    for (i64 i = 0; i < L; ++i) store(to + (r + i) * to_pitch + c, m[i]);
                    continue;
                }
                for (i64 i = c; i < least(columns, c + L); ++i)
                    for (i64 j = r; j < least(last, r + L); ++j) to[j * to_pitch + i] = from[i * pitch + j];
            }
}

// Columns 0..count of a matrix of so many lines become rows in panels [panel][line][panel_rows], a few panels at a time:
// these lie powers of two apart.
template <class T>
void pack_columns(const T* from, i64 pitch, i64 count, i64 terms, T* out) {
    constexpr i64 at_once = 4 * panel_rows;
    for (i64 r0 = 0; r0 < count; r0 += at_once)
        for (i64 p = 0; p < terms; ++p) {
            const T* x = from + p * pitch;
            T* to = out + r0 * terms + p * panel_rows;
            i64 r = r0, last = least(count, r0 + at_once);
            for (; r + panel_rows <= last; r += panel_rows, to += terms * panel_rows)
                for (i64 l = 0; l < panel_rows; ++l) to[l] = x[r + l];
            for (; r < last; ++r) *to++ = x[r];
        }
}

}  // namespace
}  // namespace lunette::LN_ISA
