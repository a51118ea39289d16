// RankCores: the cores that the attached ranks of this node may use together. A job's engine keeps to them.
#pragma once

#include "api/base/world.hpp"
#include "daemon/engine/memory/core_set.hpp"

#include <cstdint>
#include <optional>

namespace muster::engine {

// Owns    what each attached rank may use, and what the engine keeps to.
// Thread  one.
// Bound   a set for each rank of this node.
// Fails   never.
class RankCores {
 public:
  // `granted`: what the engine was started with. It never uses more, and until ranks attach no less.
  RankCores(CoreSet granted, const World& world);

  // The rank may use `cores`; nullopt: nobody knows, and it counts as all that were granted. Returns whether
  // present() is another set now: what all attached ranks may use, of what was granted. If that is nothing,
  // it is all that were granted.
  bool attached(Rank rank, std::optional<CoreSet> cores);
  // present() stays as it is until a rank attaches again: a job that waits for a rank does little, and at its
  // end every departure would move its threads.
  void left(Rank rank);

  const CoreSet& present() const { return present_; }
  // Of so many workers as many as there are cores, at least one; all, where ranks use all that were granted;
  // one until the first rank attaches.
  std::uint32_t working(std::uint32_t workers) const;

 private:
  const CoreSet granted_;
  CoreSet present_;
  RankTable<std::optional<CoreSet>> of_ranks_;
  bool used_ = false;  // a rank has attached
};

}  // namespace muster::engine
