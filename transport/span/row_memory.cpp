#include "transport/span/row_memory.hpp"

#include "api/base/dtype.hpp"
#include "transport/span/vectors.hpp"

#include <cstdint>

namespace muster::transport::span {

RowMemory::RowMemory(const Collective& collective, const NodeRow& row, std::span<const LocalMember> members)
    : c_(collective), row_(row), members_(members), element_(dtype_bytes(collective.dtype)) {}

// `view_of` a block: the view of it.
template<class ViewOf>
std::byte* RowMemory::whole(NodeRow::Range range, ViewOf view_of) const {
  std::byte *begin = nullptr, *end = nullptr;
  bool is_whole = true;
  row_.for_each_block(range, [&](std::uint32_t block, NodeRow::Range elements, std::uint64_t) {
    const auto view = view_of(block);
    is_whole = is_whole && view.base != nullptr;
    if (!is_whole) return;
    view.for_each(elements.first, elements.last, [&](auto* data, std::uint64_t, std::uint64_t count) {
      auto* const piece = const_cast<std::byte*>(data);  // of sources: they are read only
      is_whole = is_whole && (begin == nullptr || piece == end);
      if (begin == nullptr) begin = piece;
      end = piece + count * element_;
    });
  });
  return is_whole ? begin : nullptr;
}

std::byte* RowMemory::source_of(NodeRow::Range range) const {
  const bool folds = has_reduction(c_.op);
  if (folds && (members_.size() != 1 || c_.redop == MUSTER_PREMUL_SUM)) return nullptr;
  return whole(range, [&](std::uint32_t block) -> BlockView<const std::byte> {
    const LocalMember* giver = &members_.front();
    if (!folds)
      giver = find_member(members_, c_.op == MUSTER_ALL_GATHER ? block : static_cast<std::uint32_t>(c_.root));
    return source_block(c_, *giver, block, element_);
  });
}

std::byte* RowMemory::target_of(NodeRow::Range range) const {
  return whole(range, [&](std::uint32_t block) -> BlockView<std::byte> {
    const LocalMember* getter = nullptr;
    if (!may_share_target(c_.op))
      getter = find_member(members_, gets_at_root(c_.op) ? static_cast<std::uint32_t>(c_.root) : block);
    for (std::size_t i = 0; may_share_target(c_.op) && getter == nullptr && i < members_.size(); ++i)
      if (members_[i].bases.target != nullptr) getter = &members_[i];
    return getter == nullptr || getter->bases.target == nullptr ? BlockView<std::byte>()
                                                                : target_block(c_, *getter, block, element_);
  });
}

}  // namespace muster::transport::span
