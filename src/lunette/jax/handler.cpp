// What XLA calls: one handler for every kernel and program. It hands the buffers over as they are.
// `python -m lunette.jax.build` compiles this file against the headers of the jaxlib that is installed.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

constexpr std::size_t most = 4096;  // arrays of a call, weights of a program among them

// As native/foreign.hpp declares it.
using Run = int(const char* name, std::size_t length, std::size_t count, void* const* buffers, const std::int64_t* bytes,
                char* message, std::size_t room);
Run* run = nullptr;

ffi::Error call(ffi::RemainingArgs args, ffi::RemainingRets rets, std::string_view name) {
    const std::size_t count = args.size() + rets.size();
    if (!run || count > most) return ffi::Error::Internal("lunette: the handler is not connected to its kernels");
    void* few_buffers[16];
    std::int64_t few_bytes[16];
    std::vector<void*> many_buffers(count > 16 ? count : 0);
    std::vector<std::int64_t> many_bytes(count > 16 ? count : 0);
    void** buffers = count > 16 ? many_buffers.data() : few_buffers;
    std::int64_t* bytes = count > 16 ? many_bytes.data() : few_bytes;
    for (std::size_t i = 0; i < count; ++i) {
        if (i < args.size()) {
            auto a = args.get<ffi::AnyBuffer>(i);
            if (!a) return a.error();
            buffers[i] = a->untyped_data(), bytes[i] = static_cast<std::int64_t>(a->size_bytes());
        } else {
            auto r = rets.get<ffi::AnyBuffer>(i - args.size());
            if (!r) return r.error();
            buffers[i] = (*r)->untyped_data(), bytes[i] = static_cast<std::int64_t>((*r)->size_bytes());
        }
    }
    char message[256] = "";
    if (const int failure = run(name.data(), name.size(), count, buffers, bytes, message, sizeof message)) {
        std::string text = "lunette: " + std::string(name) + ": " + message;
        constexpr ffi::ErrorCode codes[] = {ffi::ErrorCode::kNotFound, ffi::ErrorCode::kInternal,
                                            ffi::ErrorCode::kInvalidArgument};
        return ffi::Error(codes[failure < 1 || failure > 3 ? 1 : failure - 1], text);
    }
    return ffi::Error::Success();
}

}  // namespace

extern "C" void lunette_connect(std::uintptr_t address) { run = reinterpret_cast<Run*>(address); }

XLA_FFI_DEFINE_HANDLER_SYMBOL(lunette_call, call,
                              ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<std::string_view>("name"));
