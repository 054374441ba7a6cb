// The cells of a Gather that do not see all of its taps.
#pragma once
#include "gather.hpp"

namespace lunette::LN_ISA {
namespace {

// Sets of taps.
struct TapSet {
    static constexpr i64 most = 256;
    std::uint64_t words[most / 64] = {};
    void add(i64 t) { words[t / 64] |= std::uint64_t(1) << t % 64; }
    bool meets(const TapSet& s) const {
        std::uint64_t both = 0;
        for (int i = 0; i < most / 64; ++i) both |= words[i] & s.words[i];
        return both != 0;
    }
};

// The cells of a Gather that lack a tap, of one image, in runs along the last axis that lack the same ones.
struct Edges {
    struct Tap {
        i64 from, place, number;  // where it reads, counted from where its cell does; in the kernel; among the taps
    };
    struct Kind {
        i64 first, last;  // its taps
        TapSet set;
    };
    struct Run {
        i64 from, to, length, kind;
    };
    List<Tap> taps;
    List<Kind> kinds;
    List<Run> runs;
    i64 images = 1, image_in = 0, image_out = 0, image_size = 1, cells = 0;

    void find(const Gather& z) {
        const i64 last = z.axes.size - 1, first = z.axes[0].plain ? 1 : 0;
        if (first) images = z.axes[0].m, image_in = z.axes[0].in, image_out = z.axes[0].out;
        List<i64> lo, hi, o;  // cells lo..hi-1 of an axis lack nothing
        i64 all = 1, lines = 1;
        for (i64 a = 0; a <= last; ++a) {
            const Axis& x = z.axes[a];
            i64 least_off = z.off[x.tap], most_off = least_off;
            for (i64 k = 1; k < x.taps; ++k)
                least_off = least(least_off, z.off[x.tap + k]), most_off = most(most_off, z.off[x.tap + k]);
            lo.push(least_off < 0 ? least(x.m, up(-least_off, x.step)) : 0);
            hi.push(most_off < x.n ? least(x.m, up(x.n - most_off, x.step)) : 0);
            if (lo[a] >= hi[a]) lo[a] = hi[a] = x.m;
            o.push(0);
            if (a < first) continue;
            image_size += (x.n - 1) * x.in;
            if (all <= most_kinds) all *= lo[a] + 1 + x.m - hi[a];
            if (a < last) lines *= x.m;
        }
        List<std::int32_t> known;  // kinds by their number, where there are not too many
        for (i64 i = 0; i < all && all <= most_kinds; ++i) known.push(-1);
        auto run = [&](i64 from, i64 to, i64 kind, i64 at, i64 length) {
            const Axis& x = z.axes[last];
            if (length <= 0) return;
            o[last] = at;
            std::int32_t* slot = known.size ? &known[kind * (lo[last] + 1 + x.m - hi[last]) + place_of(at, lo[last], hi[last])]
                                            : nullptr;
            if (!slot || *slot < 0) {
                if (slot) *slot = std::int32_t(kinds.size);
                add_kind(z, o);
            }
            runs.push({from + at * x.step * x.in, to + at * x.out, length, slot ? *slot : kinds.size - 1});
            cells += length;
        };
        List<Part> parts;  // of the last axis: neighbours that see the same of its taps
        for (i64 at = 0, m = z.axes[last].m, length; at < m; at += length) {
            length = unchanged(z, z.axes[last], at, (at < lo[last] ? lo[last] : at < hi[last] ? hi[last] : m) - at);
            parts.push({at, length});
        }
        for (i64 l = 0; l < lines; ++l) {
            i64 from = 0, to = z.base, kind = 0;
            bool lacks = false;
            for (i64 a = first; a < last; ++a) {
                const Axis& x = z.axes[a];
                from += o[a] * x.step * x.in, to += o[a] * x.out;
                kind = kind * (lo[a] + 1 + x.m - hi[a]) + place_of(o[a], lo[a], hi[a]);
                lacks |= o[a] < lo[a] || o[a] >= hi[a];
            }
            for (i64 i = 0; i < parts.size; ++i)
                if (lacks || parts[i].at < lo[last] || parts[i].at >= hi[last]) run(from, to, kind, parts[i].at, parts[i].length);
            for (i64 a = last - 1; a >= first && ++o[a] == z.axes[a].m; --a) o[a] = 0;
        }
    }

    // Whether every cell sees a tap of the set.
    bool all_see(const TapSet& s) const {
        for (i64 k = 0; k < kinds.size; ++k)
            if (!kinds[k].set.meets(s)) return false;
        return true;
    }

private:
    static constexpr i64 most_kinds = 4096;

    struct Part {
        i64 at, length;
    };

    // How many cells from this one on, at most so many, see the same taps of their axis.
    static i64 unchanged(const Gather& z, const Axis& x, i64 at, i64 length) {
        for (i64 k = 0; k < x.taps; ++k) {
            const i64 i = at * x.step + z.off[x.tap + k];
            if (i < x.n) length = least(length, up(i < 0 ? -i : x.n - i, x.step));
        }
        return length;
    }

    static i64 place_of(i64 o, i64 lo, i64 hi) { return o < lo ? o : o < hi ? lo : lo + 1 + o - hi; }

    // The taps that the cell at o sees.
    void add_kind(const Gather& z, const List<i64>& o) {
        List<Tap> seen, next;
        seen.push({0, z.first_place, 0});
        for (i64 a = 0; a < z.axes.size; ++a) {
            const Axis& x = z.axes[a];
            next.size = 0;
            for (i64 i = 0; i < seen.size; ++i)
                for (i64 k = 0; k < x.taps; ++k) {
                    const i64 off = z.off[x.tap + k], at = o[a] * x.step + off;
                    if (at < 0 || at >= x.n) continue;
                    next.push({seen[i].from + off * x.in, seen[i].place + z.place[x.tap + k], seen[i].number * x.taps + k});
                }
            seen.swap(next);
        }
        Kind kind{taps.size, taps.size + seen.size, {}};
        for (i64 i = 0; i < seen.size; ++i) {
            taps.push(seen[i]);
            if (z.taps <= TapSet::most) kind.set.add(seen[i].number);
        }
        kinds.push(kind);
    }
};

}  // namespace
}  // namespace lunette::LN_ISA
