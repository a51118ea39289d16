#include "api/client/check/source_sums.hpp"

#include "api/client/digest.hpp"

#include <algorithm>
#include <utility>

namespace muster::client {
namespace {

Hash128 digest_of(const MemoryUse& use) {
  const Held::View view{use.view.dtype, use.view};
  return held_of({&view, 1}).digest;
}

bool is_written(const MemoryUses& uses, const MemoryUse& part) {
  return std::ranges::any_of(uses, [&](const MemoryUse& use) { return use.writes && meet(use, part); });
}

}  // namespace

std::optional<SourceSums::Sum> SourceSums::Sum::of(const MemoryUses& uses) {
  Sum sum;
  for (const MemoryUse& use : uses)
    if (!use.writes && !is_written(uses, use)) sum.parts_.push_back({use, digest_of(use)});
  return sum.parts_.empty() ? std::nullopt : std::optional(std::move(sum));
}

const MemoryUse* SourceSums::Sum::changed() const {
  const auto other =
      std::ranges::find_if(parts_, [](const Part& part) { return digest_of(part.use) != part.digest; });
  return other == parts_.end() ? nullptr : &other->use;
}

std::optional<SourceSums::Sum> SourceSums::take(muster_point point) {
  auto node = sums_.extract(point);
  return node.empty() ? std::nullopt : std::optional(std::move(node.mapped()));
}

void SourceSums::forget_written(const MemoryUses& uses) {
  for (auto& [point, sum] : sums_)
    std::erase_if(sum.parts_, [&](const Sum::Part& part) { return is_written(uses, part.use); });
}

}  // namespace muster::client
