// A kernel bound to its geometry: what Python calls on arrays, and what a compiled graph is a list of.
#pragma once
#include <functional>
#include <stdexcept>
#include <vector>

#include "geometry.hpp"

namespace lunette {

template <class T>
inline constexpr char code_of = 'f';
template <>
inline constexpr char code_of<double> = 'd';
template <>
inline constexpr char code_of<i64> = 'q';

template <>
inline constexpr char code_of<std::uint8_t> = 'B';
template <>
inline constexpr char code_of<std::uint32_t> = 'I';

// The bytes of one element.
inline i64 size_of(char code) {
    return code == 'B' ? 1 : code == 'f' || code == 'I' ? 4 : 8;
}

// So that bytes and offsets of arrays can be counted as well.
constexpr i64 most_elements = i64(1) << 59;

struct Arg {
    char code;  // 'f', 'd', 'q', 'B' or 'I': float, double, 64-bit integer, 8 and 32 bits without a sign
    i64 count;  // elements
    bool write, optional;
};

inline i64 countable(i64 count) {
    if (count < 0 || count > most_elements) throw std::invalid_argument("an array of more elements than can be counted");
    return count;
}
template <class T>
Arg in(i64 count) {
    return {code_of<T>, countable(count), false, false};
}
template <class T>
Arg out(i64 count) {
    return {code_of<T>, countable(count), true, false};
}
inline Arg maybe(Arg a) {
    a.optional = true;
    return a;
}

constexpr std::size_t most_args = 64;

struct Task {
    std::vector<Arg> args;
    std::function<void(void* const*)> run;  // one pointer per argument, null where absent

    // The same task called with other lists of arguments: its argument i is the caller's places[i], or absent (-1).
    Task taking(const std::vector<int>& places, int count) const {
        if (places.size() != args.size() || args.size() > most_args) throw std::invalid_argument("one place per argument");
        Task t;
        t.args.assign(count, {0, 0, false, true});  // code 0: whatever it is, it is not read
        for (std::size_t i = 0; i < places.size(); ++i) {
            if (places[i] >= count || (places[i] < 0 && !args[i].optional))
                throw std::invalid_argument("no place for an argument");
            if (places[i] >= 0) t.args[places[i]] = args[i];
        }
        t.run = [places, run = run](void* const* given) {
            void* own[most_args];
            for (std::size_t i = 0; i < places.size(); ++i) own[i] = places[i] < 0 ? nullptr : given[places[i]];
            run(own);
        };
        return t;
    }
};

}  // namespace lunette
