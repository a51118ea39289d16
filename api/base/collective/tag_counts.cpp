#include "api/base/collective/tag_counts.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

namespace muster {

std::uint64_t TagCounts::of(std::uint32_t tag) const {
  return std::prev(from_.upper_bound(tag))->second;
}

void TagCounts::set(std::uint32_t tag, std::uint64_t count) {
  const auto entry = std::prev(from_.upper_bound(tag));
  if (entry->second == count) return;
  const auto next = std::next(entry);
  if (entry->first == tag && next != from_.end() && next->first == tag + 1) {
    entry->second = count;
    return;
  }
  if (tag != std::numeric_limits<std::uint32_t>::max()) from_.try_emplace(tag + 1, entry->second);
  from_.insert_or_assign(tag, count);
  if (from_.size() > merge_at_) merge();
}

std::uint64_t TagCounts::increment(std::uint32_t tag) {
  const std::uint64_t count = of(tag) + 1;
  set(tag, count);
  return count;
}

std::uint64_t TagCounts::decrement(std::uint32_t tag) {
  const std::uint64_t count = of(tag);
  MUSTER_ASSERT(count > 0);
  set(tag, count - 1);
  return count - 1;
}

void TagCounts::merge() {
  for (auto entry = std::next(from_.begin()); entry != from_.end();)
    entry = entry->second == std::prev(entry)->second ? from_.erase(entry) : std::next(entry);
  merge_at_ = std::max(kKept, 2 * from_.size());
}

}  // namespace muster
