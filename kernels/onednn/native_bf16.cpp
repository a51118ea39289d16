#include "kernels/onednn/native_bf16.hpp"

#include "kernels/onednn/objects.hpp"

#include "api/base/assert.hpp"

#include <array>
#include <optional>
#include <vector>

#include <dnnl.h>

namespace muster::kernels::onednn {
namespace {

// Shapes that a thread remembers; a training step of a transformer block uses about thirty.
constexpr std::size_t kRememberedMax = 128;

dnnl_data_type_t type_of(muster_dtype dtype) {
  return dtype == MUSTER_F32 ? dnnl_f32 : dnnl_bf16;
}

// The strides for the library, which takes matrices with contiguous rows or columns; empty for others. The
// stride along a dim of one element is corrected, because the library reads it.
std::optional<std::array<std::int64_t, 2>> strides_of(const Matrix& m) {
  std::array<std::int64_t, 2> s{m.row_stride, m.column_stride};
  if (m.columns == 1 && s[0] >= 1) s[1] = 1;
  if (m.rows == 1) s = s[1] == 1 ? std::array<std::int64_t, 2>{m.columns, 1} : s;
  if (s[1] == 1 && s[0] >= m.columns) return s;
  if (s[0] == 1 && s[1] >= m.rows) return s;
  return std::nullopt;
}

dnnl_memory_desc_t describe(std::int64_t rows, std::int64_t columns,
                            const std::array<std::int64_t, 2>& strides, dnnl_data_type_t type) {
  dnnl_memory_desc_t d;
  const dnnl_dims_t sizes{rows, columns};
  const dnnl_dims_t steps{strides[0], strides[1]};
  MUSTER_ASSERT(dnnl_memory_desc_init_by_strides(&d, 2, sizes, type, steps) == dnnl_success);
  return d;
}

// A generated product and the library's names for its operands.
//
// Owns    the library's objects; the operands' memory is set for each run. Thread  one.
// Bound   none.  Fails  make() returns nothing if the library has no such product.
struct Generated {
  // A generated product depends on these values, but not on addresses.
  struct Key {
    std::array<std::int64_t, 3> sizes;                   // m, n, k
    std::array<std::array<std::int64_t, 2>, 3> strides;  // of a, b, c
    muster_dtype c_dtype;
    bool bias;
    bool accumulate;
    friend bool operator==(const Key&, const Key&) = default;
  };

  Key key{};
  DnnlOwned<dnnl_primitive> primitive;
  DnnlOwned<dnnl_memory> a, b, c, bias, scratchpad;
  std::size_t scratchpad_bytes = 0;

  static std::optional<Generated> make(const Key& key) {
    const auto& [m, n, k] = key.sizes;
    const dnnl_memory_desc_t a = describe(m, k, key.strides[0], dnnl_bf16);
    const dnnl_memory_desc_t b = describe(k, n, key.strides[1], dnnl_bf16);
    const dnnl_memory_desc_t c = describe(m, n, key.strides[2], type_of(key.c_dtype));
    const dnnl_memory_desc_t bias = describe(1, n, {n, 1}, dnnl_bf16);
    dnnl_matmul_desc_t operation;
    if (dnnl_matmul_desc_init(&operation, &a, &b, key.bias ? &bias : nullptr, &c) != dnnl_success)
      return std::nullopt;
    const DnnlOwned<dnnl_primitive_attr> attributes = attributes_of(key.accumulate);
    dnnl_primitive_desc_t descriptor = nullptr;
    if (dnnl_primitive_desc_create(&descriptor, &operation, attributes.get(), engine(), nullptr) !=
        dnnl_success)
      return std::nullopt;
    const DnnlOwned<dnnl_primitive_desc> owned(descriptor);
    dnnl_primitive_t primitive = nullptr;
    if (dnnl_primitive_create(&primitive, descriptor) != dnnl_success) return std::nullopt;

    Generated g;
    g.key = key;
    g.primitive.reset(primitive);
    g.a = memory_of(a);
    g.b = memory_of(b);
    g.c = memory_of(c);
    if (key.bias) g.bias = memory_of(bias);
    const dnnl_memory_desc_t* scratchpad =
        dnnl_primitive_desc_query_md(descriptor, dnnl_query_scratchpad_md, 0);
    g.scratchpad = memory_of(*scratchpad);
    g.scratchpad_bytes = dnnl_memory_desc_get_size(scratchpad);
    return g;
  }
};

std::optional<Generated::Key> key_of(const Product& p) {
  const auto a = strides_of(p.a);
  const auto b = strides_of(p.b);
  const auto c = strides_of(p.c);
  if (!a || !b || !c || (*c)[1] != 1) return std::nullopt;
  const bool bias = p.bias.data != nullptr;
  if (bias && p.bias.columns > 1 && p.bias.column_stride != 1) return std::nullopt;
  return Generated::Key{{p.a.rows, p.b.columns, p.a.columns}, {*a, *b, *c}, p.c.dtype, bias, p.accumulate};
}

// The products that a thread used last, and one work memory for all of them.
//
// Owns    both. Thread  the one that it belongs to.
// Bound   kRememberedMax products; the oldest makes room.  Fails  never; null: the library has no such
// product.
class ProductCache {
 public:
  ProductCache() { products_.reserve(kRememberedMax); }
  ProductCache(const ProductCache&) = delete;
  ProductCache& operator=(const ProductCache&) = delete;

  const Generated* find(const Generated::Key& key) {
    for (const Generated& g : products_)
      if (g.key == key) return &g;
    auto made = Generated::make(key);
    if (!made) return nullptr;
    if (products_.size() < kRememberedMax) return &products_.emplace_back(*std::move(made));
    Generated& oldest = products_[next_];
    next_ = (next_ + 1) % kRememberedMax;
    oldest = *std::move(made);
    return &oldest;
  }
  DnnlThread& thread() { return thread_; }

 private:
  DnnlThread thread_;
  std::vector<Generated> products_;
  std::size_t next_ = 0;
};

}  // namespace

bool native_bf16_is_fast() {
  // The library's instruction-set values are a bit set: a later set contains the bits of the earlier ones.
  const auto have = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  const auto need = static_cast<unsigned>(dnnl_cpu_isa_avx512_core_bf16);
  return (have & need) == need;
}

bool multiply_native_bf16(const Product& p) {
  const auto key = key_of(p);
  if (!key) return false;
  thread_local ProductCache remembered;
  const Generated* g = remembered.find(*key);
  if (g == nullptr) return false;

  MUSTER_ASSERT(dnnl_memory_set_data_handle(g->a.get(), p.a.data) == dnnl_success);
  MUSTER_ASSERT(dnnl_memory_set_data_handle(g->b.get(), p.b.data) == dnnl_success);
  MUSTER_ASSERT(dnnl_memory_set_data_handle(g->c.get(), p.c.data) == dnnl_success);
  MUSTER_ASSERT(dnnl_memory_set_data_handle(g->scratchpad.get(),
                                            remembered.thread().work(g->scratchpad_bytes)) == dnnl_success);
  std::array<dnnl_exec_arg_t, 5> operands{{{DNNL_ARG_SRC, g->a.get()},
                                           {DNNL_ARG_WEIGHTS, g->b.get()},
                                           {DNNL_ARG_DST, g->c.get()},
                                           {DNNL_ARG_SCRATCHPAD, g->scratchpad.get()},
                                           {DNNL_ARG_BIAS, g->bias.get()}}};
  if (key->bias) MUSTER_ASSERT(dnnl_memory_set_data_handle(g->bias.get(), p.bias.data) == dnnl_success);
  const int count = key->bias ? 5 : 4;
  MUSTER_ASSERT(dnnl_primitive_execute(g->primitive.get(), remembered.thread().stream(), count,
                                       operands.data()) == dnnl_success);
  MUSTER_ASSERT(dnnl_stream_wait(remembered.thread().stream()) == dnnl_success);
  return true;
}

}  // namespace muster::kernels::onednn
