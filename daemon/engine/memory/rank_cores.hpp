// RankCores: the cores that the attached ranks of this node may use together. A job's engine keeps to them.
#pragma once

#include "api/base/world.hpp"
#include "daemon/engine/memory/core_set.hpp"

#include <cstdint>
#include <optional>

namespace muster::engine {

// Owns    the cores of each attached rank, and those to which the engine keeps.
// Thread  one.
// Bound   a set for each rank of this node.
// Fails   never.
class RankCores {
 public:
  // `granted`: the cores with which the engine was started. It never uses more, and until ranks attach no
  // fewer.
  RankCores(CoreSet granted, const World& world);

  // The rank may use `cores`; nullopt: they are not known, and count as all granted cores. Returns whether
  // present() has changed. present() is the granted cores that attached ranks may use; all granted cores, if
  // there are none.
  bool attached(Rank rank, std::optional<CoreSet> cores);
  // present() stays as it is until a rank attaches again. A job that waits for a rank does little, and at the
  // end of a job every departure would move its threads.
  void left(Rank rank);

  const CoreSet& present() const { return present_; }
  // How many of `workers` work: one for each core, at least one; all, where ranks use all granted cores; one
  // until the first rank attaches.
  std::uint32_t working(std::uint32_t workers) const;

 private:
  const CoreSet granted_;
  CoreSet present_;
  RankTable<std::optional<CoreSet>> of_ranks_;
  bool used_ = false;  // a rank has attached
};

}  // namespace muster::engine
