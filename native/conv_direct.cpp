// Direct convolution: where it is better than the blocked product, and its drive.
#include "conv_direct_sums.hpp"

#include <cstdlib>

#include "columns.hpp"
#include "conv_gather.hpp"
#include "direct.hpp"

namespace lunette::LN_ISA {
namespace {

// All sums of some tiles, of the same channels: of the packed weights of each, or of those that are packed chunk by chunk into
// `room`, for all of them at once.
template <class T>
void run_tiles(DirectSums<T>* t, i64 count, const T* const* packed, const DirectPacking<T>* packing, const T* x, const Epilogue<T>& e,
               T* y) {
    const Direct<T>& d = *t->of;
    const i64 channels = d.z.channels, group = t->group, row = t->channel();
    T* to[DirectPacking<T>::most_sums];
    i64 size = 0, turns = 0;
    for (i64 i = 0; i < count; ++i) size += d.chunk * t[i].of->z.taps * d.width, turns += t[i].turns();
    T* room = packing ? workspace<T>(packed_weights_slot, size) : nullptr;
    for (i64 i = 0; i < count && packing; room += d.chunk * t[i++].of->z.taps * d.width) to[i] = room;
    x += group * channels * d.z.in_channel;
    for (i64 c = 0; c < channels; c += d.chunk) {
        if (packing) packing->pack(group, row, c, least(channels, c + d.chunk), to);
        i64 turned = 0;
        for (i64 i = 0; i < count; turned += t[i++].turns()) {
            const Direct<T>& own = *t[i].of;
            if (packing) {
                t[i].add(c, x, to[i], e, y, [&](DirectJob<T>&, i64 turn) {
                    const i64 next = c + d.chunk;
                    if (next < channels) packing->ask(group, row, next, least(channels, next + d.chunk), turned + turn, turns);
                    else if (t->part + 1 < d.groups) packing->ask(group, row + d.width, 0, d.chunk, turned + turn, turns);
                });
                continue;
            }
            // Weights beyond the second cache are asked for a chunk ahead, a few lines of memory at a time.
            constexpr i64 memory_line = 64 / sizeof(T);
            const T *weights = packed[i] + (group * d.groups + t->part) * own.part_size() + c * own.z.taps * d.width;
            const T* const end = packed[i] + own.packed();
            const i64 chunk = d.chunk * own.z.taps * d.width, asks = own.single ? 1 : d.chunk * own.plane.taps * own.z.row().taps;
            const i64 lines = own.packed() * i64(sizeof(T)) > beyond_cache ? up(up(chunk, memory_line), t[i].turns() * asks) : 0;
            t[i].add(c, x, weights, e, y, [&](DirectJob<T>& j, i64 turn) {
                j.ahead = weights + least(chunk + turn * asks * lines * memory_line, end - weights), j.ahead_lines = lines;
            });
        }
    }
}

// f(i) for all tasks, on threads if there is enough to do.
template <class F>
void for_all(i64 tasks, double work, F f) {
    if (work < 200000)
        for (i64 i = 0; i < tasks; ++i) f(i);
    else parallel_for(tasks, f);
}

// All of it, with weights packed beforehand, or with those that `packing` packs.
template <class T>
void run_direct(const Direct<T>& d, const T* x, const T* packed, const DirectPacking<T>* packing, const Epilogue<T>& e, T* y) {
    const Gather& z = d.z;
    const i64 m = z.col().m, lines = d.lines();
    const i64 some = lines * m <= 2 * tile_pixels ? lines : most(1, least(lines, tile_pixels / m));
    const i64 blocks = m > tile_pixels ? even_split(d.cut.blocks, tile_pixels / d.cut.pixels) : d.cut.blocks;
    const i64 across = up(d.cut.blocks, blocks), tiles = up(lines, some) * across, parts = d.parts();
    const double all = work(z.cells, z.channels, z.taps, z.rows, z.groups);
    const bool chunkwise = packing && tiles == 1;  // each weight is wanted once: it is packed right before
    if (packing && !chunkwise) {
        T* own = workspace<T>(packed_weights_slot, d.packed());
        for_all(parts, all, [&](i64 i) { packing->pack_part(i / d.groups, i % d.groups, parts, d.groups, own); });
        packed = own;
    }
    for_all(tiles * parts, all, [&](i64 i) {
        const i64 tile = i / parts, first = tile / across * some, begin = tile % across * blocks;
        DirectSums<T> t{&d, i % parts / d.groups, i % d.groups,
                        {first, least(lines, first + some), begin, least(d.cut.blocks, begin + blocks)}};
        t.sums = workspace<T>(sums_slot, t.size() + lanes<T>);
        run_tiles(&t, 1, &packed, chunkwise ? packing : nullptr, x, e, y);
        t.write(e, y);
    });
}

// The sums that a result is made of: one, or those of the residues of a stride, `across` of which share their lines.
template <class T>
struct DirectSet {
    Direct<T>* d[DirectPacking<T>::most_sums];
    i64 count, across;
    WeightLayout layout;

    i64 packed() const {
        i64 size = 0;
        for (i64 i = 0; i < count; ++i) size += d[i]->packed();
        return size;
    }
    void describe(DirectPacking<T>& packing) const {
        for (i64 i = 0; i < count; ++i) {
            List<i64> order;
            d[i]->find_order(order);
            packing.add(order);
        }
    }
};

template <class T>
void run_residues(const DirectSet<T>& set, const T* x, const T* packed, const DirectPacking<T>* packing, const Epilogue<T>& e, T* y) {
    constexpr i64 most_sums = DirectPacking<T>::most_sums;
    const Direct<T>& d = *set.d[0];
    const i64 parts = d.parts(), across = set.across, lists = set.count / across;
    i64 cells = 0, longest = 0, first_task[most_sums + 1] = {}, some[most_sums];  // of each list of `across` sums: its tasks; lines of a tile
    double all = 0;
    const T* place[most_sums];
    for (i64 i = 0; i < set.count; ++i) {
        const Gather& z = set.d[i]->z;
        cells += z.cells, all += work(z.cells, z.channels, z.taps, z.rows, z.groups);
    }
    const bool chunkwise = packing && cells <= 2 * tile_pixels;
    for (i64 l = 0; l < lists; ++l) {
        const i64 line = set.d[l * across]->z.col().m * across, lines = set.d[l * across]->lines();
        longest = most(longest, line), some[l] = chunkwise ? lines : most(1, least(lines, tile_pixels / line));
        first_task[l + 1] = first_task[l] + up(lines, some[l]) * parts;
    }
    if (packing && !chunkwise) {
        T* own = workspace<T>(packed_weights_slot, set.packed());
        for_all(parts, all, [&](i64 i) { packing->pack_part(i / d.groups, i % d.groups, parts, d.groups, own); });
        packed = own;
    }
    for (i64 i = 0; i < set.count && packed; packed += set.d[i++]->packed()) place[i] = packed;
    auto sum = [&](i64 part, i64 list, i64 many, i64 tile) {
        DirectSums<T> t[most_sums];
        i64 size = 0;
        for (i64 i = 0; i < many * across; ++i) {
            const Direct<T>& own = *set.d[list * across + i];
            const i64 lines = some[list + i / across];
            t[i] = {&own, part / d.groups, part % d.groups, {tile * lines, least(own.lines(), (tile + 1) * lines), 0, own.cut.blocks}};
            size += t[i].size();
        }
        T* sums = workspace<T>(sums_slot, size + longest * d.width + lanes<T>);
        for (i64 i = 0; i < many * across; sums += t[i++].size()) t[i].sums = sums;
        run_tiles(t, many * across, place + list * across, chunkwise ? packing : nullptr, x, e, y);
        for (i64 l = 0; l < many; ++l) write_joined(t + l * across, across, sums, e, y);
    };
    if (chunkwise) return for_all(parts, all, [&](i64 i) { sum(i, 0, lists, 0); });
    for_all(first_task[lists], all, [&](i64 i) {
        i64 list = 0;
        while (i >= first_task[list + 1]) ++list;
        i -= first_task[list];
        sum(i % parts, list, 1, i / parts);
    });
}

template <class T>
void run_set(const DirectSet<T>& set, const T* x, const T* packed, const DirectPacking<T>* packing, const Epilogue<T>& e, T* y) {
    if (set.count > 1) run_residues(set, x, packed, packing, e, y);
    else run_direct(*set.d[0], x, packed, packing, e, y);
}

template <class T>
void pack_set(const DirectSet<T>& set, const T* w, T* to) {
    const Direct<T>& d = *set.d[0];
    DirectPacking<T> packing(d.z, w, set.layout, d.width);
    set.describe(packing);
    for_all(d.parts(), set.packed() < 32768 ? 0 : 1e9,
            [&](i64 i) { packing.pack_part(i / d.groups, i % d.groups, d.parts(), d.groups, to); });
}

// LUNETTE_DIRECT=1 takes direct sums wherever there are, "pays" where they should pay, 0 nowhere: to measure, and to test.
// Without it they are taken where they pay with AVX-512; with half the registers the blocked product is better.
enum class Wanted { nowhere, where_it_pays, everywhere };
Wanted wanted() {
    static const Wanted found = [] {
        const char* asked = std::getenv("LUNETTE_DIRECT");
        if (!asked || !*asked) return vector_bytes == 64 ? Wanted::where_it_pays : Wanted::nowhere;
        return *asked == '0' ? Wanted::nowhere : *asked == 'p' ? Wanted::where_it_pays : Wanted::everywhere;
    }();
    return found;
}

// Whether direct sums are better than the blocked product. `beforehand`: packing costs nothing; for an input gradient the
// product has to gather its weights, too.
template <class T>
bool pays(const Direct<T>& d, bool input_grad, bool beforehand) {
    const Gather& z = d.z;
    if (!d.fits || wanted() == Wanted::everywhere) return d.fits;
    if (sizeof(T) == 8) return false;  // vectors of half as many channels: nothing is gained
    if (z.cells < (beforehand ? 4 : input_grad ? 16 : z.rows <= 64 ? 32 : 128)) return false;
    // A plain product: panels are packed as cells lie, and stored as they are; only many terms pay for turning sums.
    if (z.taps == 1 && z.channels < few_terms && (z.col().step == 1 || !beforehand)) return false;
    // Sums are turned when they are finished, which few terms do not pay for; but then the blocked product has to cut its
    // panels into lines, unless lines are long.
    if (z.channels * z.taps < few_terms && z.col().m > long_line) return false;
    const double pixels = double(d.cut.place(d.cut.blocks - 1) + d.cut.size(d.cut.blocks - 1)) / double(z.col().m);
    return double(d.groups * d.width) / double(z.rows) * pixels < 1.15;
}

// The sums of each residue of a strided input gradient. Those along the last axis, whose cells take turns, are neighbours.
template <class T, class F>
void if_residues(const Conv& c, F f) {
    constexpr i64 most_sums = DirectPacking<T>::most_sums;
    const ConvAxis& last = c.axes[c.rank - 1];
    const i64 count = residues(c), across = last.stride;
    if (count > most_sums || last.n < across || work(last.n) > 2 * tile_pixels) return;
    struct Own {
        Gather z;
        Direct<T>* d = nullptr;
        ~Own() { delete d; }
    } own[most_sums];
    DirectSet<T> set{{}, count, across, {}};
    double pixels = 0, places = 0, terms = 0;
    for (i64 i = 0; i < count; ++i) {
        Gather& z = own[i].z;
        if (!residue_gather(z, i / across + i % across * (count / across), c)) return;
        Direct<T>& d = *(own[i].d = new Direct<T>(z, across, i ? own[0].d->cut.vectors : 0));
        const Direct<T>& first = *own[i / across * across].d;
        const bool alike = d.images == first.images && d.plane.m == first.plane.m && z.row().m == first.z.row().m &&
                           z.row().out == first.z.row().out && d.plane.out == first.plane.out;
        if (!d.fits || !alike) return;
        set.d[i] = &d;
        d.chunk = own[0].d->chunk = least(d.chunk, own[0].d->chunk);
        pixels += double(z.cells), terms += double(z.cells) * double(z.channels * z.taps);
        places += double(z.cells / z.col().m) * double(d.cut.place(d.cut.blocks - 1) + d.cut.size(d.cut.blocks - 1));
    }
    const Direct<T>& d = *own[0].d;
    if (up(d.z.channels, d.chunk) > most_chunks) return;
    for (i64 i = 0; i < count; ++i) own[i].d->chunk = d.chunk;
    if (wanted() != Wanted::everywhere) {
        if (sizeof(T) == 8 || pixels < 16 || terms < 64 * pixels || across > 4) return;  // eight sums in turns were slower
        if (double(d.groups * d.width) / double(d.z.rows) * places / pixels >= 1.15) return;
    }
    set.layout = residue_layout(d.z, sizes(c.axes, c.rank));
    f(set);
}

// f(set) if that is how this convolution, or its input gradient, is summed.
template <class T, class F>
void if_direct(const Conv& c, bool input_grad, bool beforehand, F f) {
    if constexpr (vector_bytes >= 32) {
        if (wanted() == Wanted::nowhere) return;
        const Sizes s = sizes(c.axes, c.rank);
        if (any_zero(c.batch, c.cin, c.cout, s.n, s.m, s.kernel)) return;
        const i64 rows = (input_grad ? c.cin : c.cout) / c.groups, channels = (input_grad ? c.cout : c.cin) / c.groups;
        const double least_work = input_grad ? 200000 : 20000;  // direct sums have less to plan, so little pays, too
        if (s.kernel > DirectPacking<T>::most_cells || channels * s.kernel < 16 || work(c.batch, s.m, rows, channels, s.kernel) < least_work) return;
        if (input_grad && residues(c) > 1) return if_residues<T>(c, f);
        if (input_grad && by_columns(c)) return;
        Gather z;
        if (!(input_grad ? residue_gather(z, 0, c) : forward_gather(z, c))) return;
        Direct<T> d(z);
        if (pays(d, input_grad, beforehand)) f(DirectSet<T>{{&d}, 1, 1, input_grad ? residue_layout(z, s) : forward_layout(z, s)});
    }
}

// f(set) for a convolution of planes whose result is in blocks, if there is one.
template <class T, class F>
void if_into_blocks(const Conv& c, F f) {
    if constexpr (vector_bytes >= 32) {
        const Sizes s = sizes(c.axes, c.rank);
        Gather z;
        if (c.groups > 1 || c.cout % lanes<T> || !forward_gather(z, c)) return;
        Direct<T> d(z);
        d.blocks = true;
        // Of one image, planes along the first axis are as good as images, but they lie inside of a channel.
        if (d.image_out < z.out_channel) d.image_out *= lanes<T>;
        if (d.fits) f(DirectSet<T>{{&d}, 1, 1, forward_layout(z, s)});
    }
}

}  // namespace

template <class T>
i64 direct_packed_size(const Conv& conv, bool input_grad) {
    i64 size = 0;
    if_direct<T>(conv, input_grad, true, [&](const DirectSet<T>& set) { size = set.packed(); });
    return size;
}

template <class T>
void direct_pack(const Conv& conv, bool input_grad, const T* w, T* packed) {
    if_direct<T>(conv, input_grad, true, [&](const DirectSet<T>& set) { pack_set(set, w, packed); });
}

template <class T>
bool direct_conv(const Conv& conv, bool input_grad, const T* x, const T* w, const T* packed, const Epilogue<T>& e, T* y) {
    bool done = false;
    if_direct<T>(conv, input_grad, packed != nullptr, [&](const DirectSet<T>& set) {
        done = true;
        if (packed) return run_set<T>(set, x, packed, nullptr, e, y);
        DirectPacking<T> packing(set.d[0]->z, w, set.layout, set.d[0]->width);
        set.describe(packing);
        run_set<T>(set, x, nullptr, &packing, e, y);
    });
    return done;
}

template <class T>
i64 into_blocks_packed_size(const Conv& conv) {
    i64 size = 0;
    if_into_blocks<T>(conv, [&](const DirectSet<T>& set) { size = set.packed(); });
    return size;
}

template <class T>
void into_blocks_pack(const Conv& conv, const T* w, T* packed) {
    if_into_blocks<T>(conv, [&](const DirectSet<T>& set) { pack_set(set, w, packed); });
}

template <class T>
void into_blocks_conv(const Conv& conv, const T* x, const T* packed, const Epilogue<T>& e, T* y) {
    if_into_blocks<T>(conv, [&](const DirectSet<T>& set) { run_set<T>(set, x, packed, nullptr, e, y); });
}

template i64 into_blocks_packed_size<float>(const Conv&);
template void into_blocks_pack(const Conv&, const float*, float*);
template void into_blocks_conv(const Conv&, const float*, const float*, const Epilogue<float>&, float*);
template i64 direct_packed_size<float>(const Conv&, bool);
template i64 direct_packed_size<double>(const Conv&, bool);
template void direct_pack(const Conv&, bool, const float*, float*);
template void direct_pack(const Conv&, bool, const double*, double*);
template bool direct_conv(const Conv&, bool, const float*, const float*, const float*, const Epilogue<float>&, float*);
template bool direct_conv(const Conv&, bool, const double*, const double*, const double*, const Epilogue<double>&, double*);

}  // namespace lunette::LN_ISA
