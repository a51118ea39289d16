// MemoryUse: bytes that a start reads or writes, at their addresses in this process.
#pragma once

#include "api/base/collective/collective.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace muster::client {

struct MemoryUse {
  bool writes = false;
  bool solid = false;  // all bytes of [from, to); else `view` says which
  const std::byte* from = nullptr;
  const std::byte* to = nullptr;
  Face view;
};
using MemoryUses = std::vector<MemoryUse>;

// All bytes of [from, to).
MemoryUse use_of(const std::byte* from, const std::byte* to, bool writes);
// A view of the buffer that begins at `buffer`; nothing, if that is null or the view empty.
void add_view(MemoryUses& uses, const muster_tensor& view, const std::byte* buffer, bool writes);
// `address_of`: where a range begins in this process; null: it does not see it.
MemoryUses uses_of(const muster_kernel& kernel,
                   const std::function<std::byte*(const muster_range&)>& address_of);
// `at`: where the vectors begin. Data that a member has in place already, such as its own block of an
// all-gather, counts as read only.
MemoryUses uses_of(const Collective& what, const Share& mine, const Share::Bases& at);

// Whether the two uses share a byte. The answer is false for views that take too long to compare.
bool meet(const MemoryUse& a, const MemoryUse& b);

// Calls visit(from, to) for each run of adjacent bytes. A view whose runs are short, or very many, is left
// out.
template<class Visit>
void for_each_run(const MemoryUse& use, std::size_t least_bytes, Visit visit) {
  constexpr std::int64_t kRunsMax = 1 << 16;
  if (use.solid) return visit(use.from, use.to);
  const Face& view = use.view;
  std::int64_t run = 1;
  std::int32_t outer = view.dims;
  for (; outer > 0; --outer) {
    const auto d = static_cast<std::size_t>(outer - 1);
    if (view.size[d] != 1 && view.stride[d] != run) break;
    run *= view.size[d];
  }
  const auto element = static_cast<std::int64_t>(view.element_bytes());
  std::int64_t runs = 1;
  for (std::int32_t d = 0; d < outer && runs <= kRunsMax; ++d) runs *= view.size[static_cast<std::size_t>(d)];
  if (static_cast<std::size_t>(run * element) < least_bytes || runs > kRunsMax) return;
  for (std::int64_t i = 0; i < runs; ++i) {
    const std::byte* from = use.from;
    std::int64_t rest = i;
    for (std::int32_t d = outer; d-- > 0;) {
      const auto dim = static_cast<std::size_t>(d);
      from += rest % view.size[dim] * view.stride[dim] * element;
      rest /= view.size[dim];
    }
    visit(from, from + run * element);
  }
}

}  // namespace muster::client
