#include "daemon/engine/memory/rank_cores.hpp"

#include <algorithm>
#include <utility>

namespace muster::engine {

RankCores::RankCores(CoreSet granted, const World& world)
    : granted_(std::move(granted)), present_(granted_), of_ranks_(world) {}

bool RankCores::attached(Rank rank, std::optional<CoreSet> cores) {
  used_ = true;
  CoreSet& own = of_ranks_[rank].emplace(cores ? *std::move(cores) : granted_);
  own &= granted_;
  CoreSet all;
  for (const std::optional<CoreSet>& one : of_ranks_)
    if (one) all |= *one;
  if (all.empty()) all = granted_;
  return std::exchange(present_, all) != all;
}

void RankCores::left(Rank rank) {
  of_ranks_[rank].reset();
}

std::uint32_t RankCores::working(std::uint32_t workers) const {
  if (!used_) return std::min(workers, 1u);
  return present_ == granted_ ? workers : std::min(workers, std::max(present_.count(), 1u));
}

}  // namespace muster::engine
