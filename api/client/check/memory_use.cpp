#include "api/client/check/memory_use.hpp"

#include "api/base/collective/overlap.hpp"
#include "api/base/dtype.hpp"
#include "api/client/check/field_boxes.hpp"
#include "api/client/check/kernel_operands.hpp"

#include <algorithm>
#include <span>

namespace muster::client {
namespace {

void add_face(MemoryUses& uses, const Face& view, bool writes) {
  if (view.data == nullptr || view.count() == 0) return;
  std::int64_t last = 0;
  for (std::int32_t d = 0; d < view.dims; ++d) {
    const auto dim = static_cast<std::size_t>(d);
    last += (view.size[dim] - 1) * view.stride[dim];
  }
  const std::size_t element = view.element_bytes();
  const std::uint64_t extent = (static_cast<std::uint64_t>(last) + 1) * element;
  uses.push_back({writes, extent == view.bytes(), view.data, view.data + extent, view});
}

// Neighbouring blocks become one use, so that the pages that they have together are whole.
void add_blocks(MemoryUses& uses, const std::byte* vector, std::span<const Block> blocks, std::size_t element,
                bool writes) {
  if (vector == nullptr) return;
  std::vector<Block> sorted;
  for (const Block& block : blocks)
    if (block.count > 0) sorted.push_back(block);
  std::ranges::sort(sorted, {}, &Block::offset);
  for (std::size_t i = 0; i < sorted.size();) {
    const std::uint64_t first = sorted[i].offset;
    std::uint64_t end = first;
    for (; i < sorted.size() && sorted[i].offset <= end; ++i)
      end = std::max(end, sorted[i].offset + sorted[i].count);
    uses.push_back(use_of(vector + first * element, vector + end * element, writes));
  }
}

// The blocks of the target that change. A member's own block that lies in place already stays as it is, if
// the operation only moves data.
std::vector<Block> changed_blocks(const Collective& what, const Share& mine, const Share::Bases& at) {
  const std::vector<Block>& all = mine.target_blocks;
  if (row_of(what.op).reduces || at.source == nullptr) return all;
  const std::size_t element = dtype_bytes(what.dtype);
  std::vector<Block> changed;
  for (const Block& block : all) {
    const auto same = [&](const Block& source) {
      return source.count == block.count &&
             at.source + source.offset * element == at.target + block.offset * element;
    };
    const bool is_swapped = what.op == MUSTER_ALL_TO_ALL;
    if (is_swapped || std::ranges::none_of(mine.source_blocks, same)) changed.push_back(block);
  }
  return changed;
}

}  // namespace

MemoryUse use_of(const std::byte* from, const std::byte* to, bool writes) {
  Face view;
  view.dtype = MUSTER_U8;
  view.dims = 1;
  view.size[0] = to - from;
  view.stride[0] = 1;
  view.data = const_cast<std::byte*>(from);  // NOLINT(cppcoreguidelines-pro-type-const-cast): only compared
  return {writes, true, from, to, view};
}

void add_view(MemoryUses& uses, const muster_tensor& view, const std::byte* buffer, bool writes) {
  if (buffer == nullptr) return;
  std::byte* const data =
      const_cast<std::byte*>(buffer) + view.offset_bytes;  // NOLINT(*-const-cast): as above
  add_face(uses, make_face({0, 0, view}, data), writes);
}

MemoryUses uses_of(const muster_kernel& kernel,
                   const std::function<std::byte*(const muster_range&)>& address_of) {
  MemoryUses uses;
  const KernelOperands* const operands = operands_of(kernel.op);
  if (operands == nullptr) return uses;
  for (std::uint32_t i = 0; i < kernel.tensor_count; ++i) {
    if (kernel.tensors[i].buffer == 0) continue;
    const muster_tensor tensor = used_part(kernel, i);
    std::byte* const data = address_of({tensor.buffer, tensor.offset_bytes});
    add_face(uses, make_face({0, 0, tensor}, data), (operands->written >> i & 1U) != 0);
  }
  return uses;
}

MemoryUses uses_of(const Collective& what, const Share& mine, const Share::Bases& at) {
  MemoryUses uses;
  for (const Face& face : mine.sends) add_face(uses, face, false);
  for (const Face& face : mine.receives) add_face(uses, face, true);
  if (has_faces(what.op)) return uses;
  const std::size_t element = dtype_bytes(what.dtype);
  add_blocks(uses, at.source, mine.source_blocks, element, false);
  if (at.target != nullptr) add_blocks(uses, at.target, changed_blocks(what, mine, at), element, true);
  return uses;
}

bool meet(const MemoryUse& a, const MemoryUse& b) {
  if (a.to <= b.from || b.to <= a.from) return false;
  if (a.solid && b.solid) return true;
  OverlapBudget budget;
  return overlap_of(a.view, b.view, budget) == BytesShared::kSome;
}

}  // namespace muster::client
