// Sums of any number of terms that keep the promise of "fast" (sum_block in kernels.hpp). Whatever a kernel adds up beyond
// one block of terms goes through one of these, by how its terms arrive:
//
//   LongSum    one number, or one vector, after the other
//   Ladder     whole arrays, one after the other: when what is to be added up
//   Deposits   numbers for cells of an array, in any order
//
// How deep a sum may be is counted in terms that are there. A kernel that pads also adds zeros, which round nothing, so a
// sum of few terms may be spread over many blocks, each with a term or two. So none of these adds up blocks one after
// another without end.
#pragma once
#include <cstring>

#include "kernels.hpp"
#include "simd.hpp"

namespace lunette::LN_ISA {
namespace {

// What comes one after another is joined like the digits of a binary number: joins of 1, 2, 4, ... wait for another of
// their size, so nothing is joined more than twice the logarithm of the count. The order of the tree is that of arrival.
template <class Op, class V>
class Tree {
public:
    void add(V v) {
        for (std::uint64_t c = count_++; c & 1; c >>= 1) v = Op::join(level_[--depth_], v);
        level_[depth_++] = v;
    }
    // Joined with what comes last.
    V total(V last) const {
        for (int d = depth_; d > 0; --d) last = Op::join(level_[d - 1], last);
        return last;
    }
    // Of one at least.
    V total() {
        V last = level_[--depth_];
        return total(last);
    }

private:
    V level_[64];
    int depth_ = 0;
    std::uint64_t count_ = 0;
};

struct Add {
    template <class V>
    static V join(V a, V b) { return a + b; }
};

// Blocks of terms, and a tree of their sums.
template <class V>
class LongSum {
    static constexpr i64 block = 256;

public:
    void add(V term) {
        now_ += term;
        if (++terms_ % block == 0) tree_.add(now_), now_ = -V{};
    }
    // A sum of at most a block of terms.
    void add_block(V sum) { tree_.add(sum); }
    // -0 if every term was, and if there was none.
    V total() const { return tree_.total(now_); }

private:
    Tree<Add, V> tree_;
    V now_ = -V{};  // x + -0 is x, also for x = -0
    i64 terms_ = 0;
};

// `count` arrays are added up: the first `step` of them into level 0, which then goes to level 1, and so on; `levels` of them
// wait, and the last goes where the result is. Few arrays need one level. Many get levels of `base`: no term is added more
// than base times on a level, and five levels hold 2^25 arrays.
struct Ladder {
    static constexpr i64 few = 190, base = 32, most_levels = 12;
    i64 count, step, levels = 1;
    explicit Ladder(i64 arrays) : count(arrays), step(arrays <= few ? few : base) {
        for (i64 held = step * base; held < count && levels < most_levels; held *= base) ++levels;
    }
    bool one_level() const { return count <= few; }
    // Whether array k starts level 0 anew.
    bool starts(i64 k) const { return k % step == 0; }
    // Behind array k: up(l, fresh) for every level l that is full and goes up, to where nothing is yet if `fresh`. Behind the
    // last array they all go.
    template <class Up>
    void climb(i64 k, Up up) const {
        i64 held = step;
        for (i64 l = 0; l < levels; ++l, held *= base) {
            if ((k + 1) % held != 0 && k + 1 != count) return;
            const i64 next = l + 1 == levels ? count : held * base;
            up(l, k / held * held % next == 0);
        }
    }
};

// What goes up a ladder, in memory: to = from, or to += from.
template <class T>
inline void go_up(bool fresh, i64 n, const T* from, T* to) {
    if (fresh) std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(n) * sizeof(T));
    else
        for (i64 i = 0; i < n; ++i) to[i] += from[i];
}

// Terms for the cells from..to-1 of an array, which gets the sums at the end: -0 where every term is, +0 where there is none.
// Each cell has its own count of the terms of its block.
template <class T>
class Deposits {
public:
    static std::size_t bytes(i64 cells) { return static_cast<std::size_t>(cells) * (sizeof(T) + sizeof(std::uint16_t)); }
    // `memory` has bytes(to - from) bytes, aligned like T.
    Deposits(T* array, void* memory, i64 from, i64 to)
        : sums_(array + from), part_(static_cast<T*>(memory)), count_(reinterpret_cast<std::uint16_t*>(part_ + (to - from))),
          from_(from), cells_(to - from) {
        for (i64 i = 0; i < cells_; ++i) sums_[i] = part_[i] = -T(0), count_[i] = 0;
    }
    bool holds(i64 i) const { return i >= from_ && i < from_ + cells_; }
    void add(i64 i, T term) {
        i -= from_;
        if (count_[i] == sum_block) sums_[i] += part_[i], part_[i] = -T(0), count_[i] = 0;
        part_[i] += term, ++count_[i];
    }
    void finish() {
        for (i64 i = 0; i < cells_; ++i) sums_[i] = count_[i] ? sums_[i] + part_[i] : T(0);
    }

private:
    T *sums_, *part_;
    std::uint16_t* count_;
    i64 from_, cells_;
};

}  // namespace
}  // namespace lunette::LN_ISA
