// Nodes of torch's graph of gradients that need no Python: pools, forward and backward, on dense tensors of the CPU.
// `python -m lunette.torch.build` compiles this file against the headers of the torch that is installed.
//
// A node does one thing: it calls the kernel. Whatever else may be wanted of it (a gradient that is to be differentiated
// once more, tensors that stand for others, a mode that watches) it leaves to lunette's own operators of torch.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>
#include <torch/version.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>

// What OpenMP does `#pragma omp parallel` by: GNU's name for it, which LLVM's and Intel's runtimes have as well. It is that of
// the runtime which torch is linked to, another one would have other threads; null where torch has none.
extern "C" void GOMP_parallel(void (*region)(void*), void* data, unsigned threads, unsigned flags) __attribute__((weak));

namespace {

using at::Tensor;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using NodePointer = decltype(torch::autograd::Edge::function);  // std::shared_ptr before torch 2.13

// As native/foreign.hpp declares it.
using Run = int(const char* name, std::size_t length, std::size_t count, void* const* buffers, const std::int64_t* bytes,
                char* message, std::size_t room);
Run* run = nullptr;

// A pool of tensors of one shape and dtype: its kernels by name, and the operators that do what they do not.
struct Pool {
    std::string forward;   // (x, y), or (x, y, record)
    std::string backward;  // (x, g, dx), (record, g, dx) or, of a pool that reads neither, (g, dx)
    std::string op, op_backward, options;
    std::vector<std::int64_t> shape, out;
    at::ScalarType dtype;
    bool reads_x;
    std::int64_t record_bytes;  // of one number; 0: it keeps no record
};

// As long as the process lives, as the kernels; entries do not move.
std::mutex keeping;
std::deque<Pool> pools;

template <std::size_t n>
void call(const std::string& kernel, const std::array<const Tensor*, n>& tensors) {
    void* buffers[n];
    std::int64_t bytes[n];
    for (std::size_t i = 0; i < n; ++i) buffers[i] = tensors[i]->data_ptr(), bytes[i] = tensors[i]->nbytes();
    char message[256] = "";
    const int failure = run(kernel.data(), kernel.size(), n, buffers, bytes, message, sizeof message);
    TORCH_CHECK(failure == 0, "lunette: ", kernel, ": ", message);
}

Tensor dispatch(const std::string& op, torch::jit::Stack stack) {
    c10::Dispatcher::singleton().findSchemaOrThrow(op.c_str(), "").callBoxed(&stack);
    return stack.at(0).toTensor();
}

// Whether nobody stands between an operator and its kernel: no transformation, mode or recorder.
bool alone() {
    return c10::impl::tls_local_dispatch_key_set().included_ == c10::default_included_set;
}

// Whether a tensor is its cells, of that shape and dtype.
bool is_plain(const Tensor& t, const std::vector<std::int64_t>& shape, at::ScalarType dtype) {
    constexpr c10::DispatchKeySet keys({c10::DispatchKey::CPU, c10::DispatchKey::ADInplaceOrView,
                                        c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutocastCPU});
    return t.key_set() == keys && t.scalar_type() == dtype && t.sizes() == shape;
}

bool is_dense(const Tensor& t) {
    return t.is_contiguous() && reinterpret_cast<std::uintptr_t>(t.data_ptr()) % t.itemsize() == 0;
}

struct PoolNode : Node {
    explicit PoolNode(const Pool& pool) : pool(pool) {}

    variable_list apply(variable_list&& grads) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        const Tensor& given = grads[0];
        if (!given.defined() || !task_should_compute_output(0)) return {Tensor()};
        if (at::GradMode::is_enabled() || !alone() || !is_plain(given, pool.out, pool.dtype)) return {differentiable(given)};
        const Tensor g = is_dense(given) ? given : given.clone(at::MemoryFormat::Contiguous);
        const Tensor dx = at::empty(pool.shape, g.options());
        if (!pool.reads_x && !pool.record_bytes) return call<2>(pool.backward, {&g, &dx}), variable_list{dx};
        const Tensor read = (pool.record_bytes ? record : x).unpack();
        return call<3>(pool.backward, {&read, &g, &dx}), variable_list{dx};
    }

    // Where x is not read, it is there by its shape alone.
    Tensor differentiable(const Tensor& g) {
        const bool kept = pool.reads_x || pool.record_bytes;
        const Tensor at = kept ? x.unpack() : at::empty({}, g.options()).expand(pool.shape);
        return dispatch(pool.op_backward, {at, g, pool.options});
    }

    void release_variables() override {
        const std::lock_guard<std::mutex> lock(mutex_);
        x.reset_data(), record.reset_data();
    }

    std::string name() const override { return "Lunette<" + pool.op + ">"; }

    const Pool& pool;
    SavedVariable x, record;
};

template <class P>
P pointer(Node* node) {
    if constexpr (std::is_same_v<P, std::shared_ptr<Node>>)
        return P(node, [](auto* n) { deleteNode(n); });
    else
        return P::unsafe_steal_from_new(node);
}

const Pool& at_number(std::int64_t which) {
    const std::lock_guard<std::mutex> lock(keeping);
    return pools.at(which);
}

Tensor pooled(std::int64_t which, const Tensor& x) {
    const Pool& pool = at_number(which);
    if (!at::GradMode::is_enabled() || !x.requires_grad() || !alone() || !is_plain(x, pool.shape, pool.dtype) || !is_dense(x))
        return dispatch(pool.op, {x, pool.options});
    auto* node = new PoolNode(pool);
    const NodePointer held = pointer<NodePointer>(node);
    node->set_next_edges(torch::autograd::collect_next_edges(x));
    const Tensor y = at::empty(pool.out, x.options());
    if (pool.record_bytes) {
        const Tensor record = at::empty(pool.out, x.options().dtype(pool.record_bytes == 1 ? at::kByte : at::kInt));
        call<3>(pool.forward, {&x, &y, &record});
        node->record = SavedVariable(record, false);
    } else {
        call<2>(pool.forward, {&x, &y});
    }
    if (pool.reads_x || pool.record_bytes) node->x = SavedVariable(x, false);
    torch::autograd::set_history(y, held);
    return y;
}

std::int64_t keep(std::string forward, std::string backward, std::string op, std::string op_backward, std::string options,
                  at::IntArrayRef shape, at::IntArrayRef out, at::ScalarType dtype, bool reads_x, std::int64_t record_bytes) {
    const std::lock_guard<std::mutex> lock(keeping);
    pools.push_back({std::move(forward), std::move(backward), std::move(op), std::move(op_backward), std::move(options),
                     shape.vec(), out.vec(), dtype, reads_x, record_bytes});
    return static_cast<std::int64_t>(pools.size()) - 1;
}

// As native/threads.hpp says (Lend). All of torch's threads are asked for, since a team of another size would be made anew.
bool lend(std::int64_t parts, void (*part)(void*, std::int64_t), void* data) {
    if (!GOMP_parallel || at::in_parallel_region() || at::get_num_threads() < parts) return false;
    struct Region {
        std::int64_t parts;
        void (*part)(void*, std::int64_t);
        void* data;
        std::atomic<std::int64_t> next{0};
    } region{parts, part, data};
    const auto enter = [](void* data) {
        auto& region = *static_cast<Region*>(data);
        for (std::int64_t i; (i = region.next.fetch_add(1)) < region.parts;) region.part(region.data, i);
    };
    GOMP_parallel(enter, &region, 0, 0);
    return true;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) std::uintptr_t lunette_lend() { return reinterpret_cast<std::uintptr_t>(&lend); }

// Tells torch of it, if this is the torch that it was compiled for.
extern "C" __attribute__((visibility("default"))) int lunette_connect(const char* version, std::uintptr_t address) try {
    if (std::strncmp(version, TORCH_VERSION, std::strlen(TORCH_VERSION)) != 0) return 0;
    run = reinterpret_cast<Run*>(address);
    static const torch::Library* const library = [] {
        auto* told = new torch::Library(torch::Library::FRAGMENT, "lunette", std::nullopt, __FILE__, __LINE__);
        told->def("_keep_pool(str forward, str backward, str op, str op_backward, str options, int[] shape, int[] out, "
                  "ScalarType dtype, bool reads_x, int record_bytes) -> int", keep);
        told->def("_pool(int which, Tensor x) -> Tensor", pooled);
        return told;
    }();
    return library != nullptr;
} catch (...) {
    return 0;
}
