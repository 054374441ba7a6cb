#include "geometry.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>

namespace lunette {
namespace {

using Table = PoolTables::Axis;

constexpr i64 most_phases = 64;  // a table each; windows further apart than that are few, and done one by one

// The kernels check nothing, so a table that lies is refused here.
void check(const Table& t) {
    auto size = static_cast<std::size_t>(t.m);
    bool good = t.n >= 0 && t.m >= 0 && t.step >= 1 && t.first.size() == size && t.count.size() == size &&
                t.inside.size() == size;
    for (i64 o = 0; good && o < t.m; ++o) {
        i64 first = t.first[o], count = t.count[o];
        if (count == 0) continue;
        good = count > 0 && first >= 0 && first < t.n && (count - 1) <= (t.n - 1 - first) / t.step;
    }
    if (!good) throw std::invalid_argument("window table: a cell lies outside the input");
}

// Whether the windows are start + o*stride + j*step, j < taps, clipped; tables so wide that padding a row to
// hold them would cost more than the row itself are not called regular.
bool sliding(const Table& t, i64 taps, i64 start, i64 stride) {
    __int128 span = static_cast<__int128>(t.m - 1) * stride + static_cast<__int128>(taps - 1) * t.step + 1;
    if (stride < 1 || span > 4 * static_cast<__int128>(t.n) + 256) return false;
    for (i64 o = 0; o < t.m; ++o) {
        i64 v = start + o * stride;
        i64 skip = v < 0 ? (-v + t.step - 1) / t.step : 0;              // taps before the input
        i64 fits = v < t.n ? (t.n - 1 - v) / t.step + 1 : 0;            // taps before its end
        i64 count = std::max<i64>(0, std::min(taps, fits) - skip);
        if (count != t.count[o] || (count > 0 && v + skip * t.step != t.first[o])) return false;
    }
    return true;
}

// Where window o would start if nothing were clipped; false where the table does not tell.
bool virtual_start(const Table& t, i64 taps, i64 o, i64& v) {
    if (t.count[o] == 0) return false;
    i64 last = t.first[o] + (t.count[o] - 1) * t.step;
    if (t.first[o] >= t.step || t.count[o] == taps) {
        v = t.first[o];
        return true;
    }
    v = last - (taps - 1) * t.step;
    return last + t.step < t.n;
}

bool find_sliding(const Table& t, PoolAxis& a) {
    if (t.m < 1 || t.n < 1) return false;
    i64 most_inside = *std::max_element(t.inside.begin(), t.inside.end());
    if (most_inside > 4 * t.n + 256 || t.step > 4 * t.n + 256) return false;
    for (i64 taps : {a.most, most_inside}) {
        i64 known = 0, o0 = 0, v0 = 0, o1 = 0, v1 = 0, v = 0;
        for (i64 o = 0; o < t.m; ++o)
            if (virtual_start(t, taps, o, v)) {
                if (known++ == 0) o0 = o, v0 = v;
                o1 = o, v1 = v;
            }
        if (known == 0 || taps < 1) continue;
        i64 stride = known == 1 ? 1 : (v1 - v0) / (o1 - o0);
        if (known == 1 && t.m > 1) continue;
        i64 start = v0 - o0 * stride;
        if (!sliding(t, taps, start, stride)) continue;
        a.taps = taps, a.start = start, a.stride = stride;
        return true;
    }
    return false;
}

PoolAxis describe(const Table& t) {
    PoolAxis a{};
    a.n = t.n, a.m = t.m, a.step = t.step;
    a.first = t.first.data(), a.count = t.count.data(), a.inside = t.inside.data();
    a.period = 1;
    a.identity = t.n == t.m;
    a.same_count = a.same_inside = a.monotone = a.disjoint = true;
    i64 before = -1, end = -1;
    for (i64 o = 0; o < t.m; ++o) {
        a.most = std::max(a.most, t.count[o]);
        a.has_empty = a.has_empty || t.count[o] == 0;
        if (t.count[o] > 0) {
            if (before >= 0) a.jump = std::max(a.jump, t.first[o] > before ? t.first[o] - before : before - t.first[o]);
            a.monotone = a.monotone && t.first[o] >= before && t.first[o] + t.count[o] * t.step >= end;
            a.disjoint = a.disjoint && t.first[o] > end - t.step;
            before = t.first[o], end = before + t.count[o] * t.step;
        } else {
            a.monotone = a.disjoint = false;
        }
        a.identity = a.identity && t.count[o] == 1 && t.first[o] == o;
        a.same_count = a.same_count && t.count[o] == t.count[0];
        a.same_inside = a.same_inside && t.inside[o] == t.inside[0];
    }
    a.whole = t.m == 1 && t.count[0] == t.n && (t.step == 1 || t.n <= 1) && t.n >= 1;
    a.regular = find_sliding(t, a);
    if (a.regular) {
        while (a.full_lo < t.m && t.count[a.full_lo] < a.taps) ++a.full_lo;
        a.full_hi = a.full_lo;
        while (a.full_hi < t.m && t.count[a.full_hi] == a.taps) ++a.full_hi;
        a.tiled = a.start == 0 && a.stride * a.m == a.n && (a.taps - 1) * a.step < a.stride && a.full_hi == t.m;
    }
    return a;
}

// Two neighbouring axes act as one when the inner one takes everything, or both take every cell by itself.
bool merge(Table& outer, const Table& inner) {
    PoolAxis a = describe(outer), b = describe(inner);
    bool both = a.identity && b.identity && a.same_inside && b.same_inside;
    bool rows = b.whole && (outer.step == 1 || a.most <= 1);
    if (!both && !rows) return false;
    Table r;
    r.n = outer.n * inner.n, r.m = outer.m * inner.m, r.step = 1;
    for (i64 o = 0; o < r.m; ++o) {
        i64 p = both ? o / inner.m : o, q = both ? o % inner.m : 0;
        r.first.push_back(outer.first[p] * inner.n + inner.first[q]);
        r.count.push_back(outer.count[p] * inner.count[q]);
        r.inside.push_back(outer.inside[p] * inner.inside[q]);
    }
    outer = std::move(r);
    return true;
}

// The outputs that read input cell i, for each i, as a table of the same kind; false if they are not evenly spaced.
// Time grows with n + m, not with the windows.
bool transpose(const Table& t, Table& r) {
    PoolAxis a = describe(t);
    r.n = t.m, r.m = t.n, r.step = 1;
    r.first.assign(t.n, 0), r.count.assign(t.n, 0);
    if (t.step == 1 || a.most <= 1) {
        i64 lo = 0, hi = 0, before = 0, end = 0;
        for (i64 o = 0; o < t.m; ++o) {  // both ends must move forward
            if (t.count[o] == 0) continue;
            if (t.first[o] < before || t.first[o] + t.count[o] < end) return false;
            before = t.first[o], end = before + t.count[o];
        }
        for (i64 i = 0; i < t.n; ++i) {
            while (hi < t.m && (t.count[hi] == 0 || t.first[hi] <= i)) ++hi;
            while (lo < hi && (t.count[lo] == 0 || t.first[lo] + t.count[lo] <= i)) ++lo;
            i64 end_o = hi;
            while (end_o > lo && t.count[end_o - 1] == 0) --end_o;
            r.first[i] = std::min(lo, t.m - 1), r.count[i] = end_o - lo;
        }
        // An empty window between others would break the run of outputs.
        bool seen = false, gap = false;
        for (i64 o = 0; o < t.m; ++o) {
            if (t.count[o] > 0 && gap) return false;
            gap = seen && t.count[o] == 0;
            seen = seen || t.count[o] > 0;
        }
    } else {
        if (!a.regular) return false;
        // o*stride + start + j*step = i: o runs through one residue class modulo step/gcd.
        i64 common = std::gcd(a.stride, t.step);
        r.step = t.step / common;
        std::vector<i64> least(r.step);
        for (i64 o = 0; o < r.step; ++o) least[o * (a.stride / common % r.step) % r.step] = o;
        for (i64 i = 0; i < t.n; ++i) {
            i64 d = i - a.start;
            if (d < 0 || d % common != 0) continue;
            i64 from = std::max<i64>(0, (d - (a.taps - 1) * t.step + a.stride - 1) / a.stride);
            if (d - (a.taps - 1) * t.step <= 0) from = 0;
            i64 to = std::min(t.m - 1, d / a.stride);
            i64 o = least[d / common % r.step];
            from += ((o - from) % r.step + r.step) % r.step;
            if (from <= to) r.first[i] = from, r.count[i] = (to - from) / r.step + 1;
        }
    }
    r.inside = r.count;
    return true;
}

void finish(Pool& p) {
    for (int a = 0; a < p.rank; ++a) {
        const PoolAxis& x = p.axes[a];
        p.cells_in *= x.n, p.cells_out *= x.m, p.window *= x.most;
        p.has_empty = p.has_empty || x.has_empty;
    }
}

}  // namespace

PoolTables::PoolTables(std::vector<Axis> axes) {
    if (axes.size() > max_axes) throw std::invalid_argument("window table: more than eight axes");
    for (Axis& t : axes) {
        check(t);
        if (!axes_.empty() && merge(axes_.back(), t)) continue;
        axes_.push_back(std::move(t));
    }
    if (axes_.empty()) axes_.push_back({1, 1, 1, {0}, {1}, {1}});
    for (const Axis& t : axes_) forward_.axes[forward_.rank++] = describe(t);
    finish(forward_);
}

PoolTables::~PoolTables() { delete back_.load(); }

const Pool& PoolTables::both_ways() {
    Back* back = back_.load();
    if (back) return back->forward;
    auto made = std::make_unique<Back>();
    bool evenly = true;
    made->tables.resize(axes_.size());
    for (std::size_t a = 0; a < axes_.size(); ++a) evenly = evenly && transpose(axes_[a], made->tables[a]);
    made->phase_tables.resize(axes_.size()), made->phases.resize(axes_.size());
    for (std::size_t a = 0; evenly && a < axes_.size(); ++a) {
        const PoolAxis& f = forward_.axes[a];
        PoolAxis& b = made->pool.axes[made->pool.rank++] = describe(made->tables[a]);
        if (b.regular || !f.regular || f.stride == 1 || f.stride > std::min(b.m, most_phases)) continue;
        i64 period = f.stride;
        for (i64 r = 0; r < period; ++r) {
            Axis t{b.n, 0, b.step, {}, {}, {}};
            for (i64 i = r; i < b.m; i += period) {
                t.first.push_back(b.first[i]), t.count.push_back(b.count[i]), ++t.m;
            }
            t.inside = t.count;
            made->phase_tables[a].push_back(std::move(t));
        }
        bool all = true;
        for (const Axis& t : made->phase_tables[a]) {
            made->phases[a].push_back(describe(t));
            // A phase that no window reaches has nothing to slide.
            all = all && (made->phases[a].back().regular || made->phases[a].back().most == 0);
        }
        if (all) b.period = period, b.phases = made->phases[a].data();
    }
    if (evenly) finish(made->pool);
    made->forward = forward_;
    if (evenly) made->forward.transposed = &made->pool;
    // Of several threads that are here at once, the first makes it for all.
    if (back_.compare_exchange_strong(back, made.get())) back = made.release();
    return back->forward;
}

}  // namespace lunette
