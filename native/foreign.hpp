// Kernels for callers that are not Python: compiled code of other runtimes, which knows a kernel by its name.
#pragma once
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

namespace lunette {

// Runs the task that is kept under a name on buffers of so many bytes, one per argument. It checks that they fit, needs
// no lock of Python's, and throws nothing: 0, or another number and why, in the caller's `message` of `room` bytes.
// This is a binary interface: a change of it is a change of foreign_version.
using ForeignRun = int(const char* name, std::size_t length, std::size_t count, void* const* buffers,
                       const std::int64_t* bytes, char* message, std::size_t room);
constexpr int foreign_version = 1;

enum ForeignFailure { unknown_name = 1, misfit = 2, refused = 3 };

void bind_foreign(nanobind::module_&);

}  // namespace lunette
