// DirectPages: the engine's side of the direct path. It makes the memory, counts each group's epochs, and
// reads how far each rank has come. It moves no data and no operation waits for it.
#pragma once

#include "daemon/engine/direct/direct_records.hpp"
#include "daemon/engine/direct/direct_segments.hpp"
#include "daemon/engine/direct/disagreements.hpp"
#include "daemon/engine/direct/group_epochs.hpp"

#include <cstdint>
#include <memory>
#include <span>

namespace muster::engine {

// Owns    segments, epochs and disagreements of all groups.
// Thread  under the engine's lock.
// Bound   that of its parts.
// Fails   create: NO_RESOURCE.
class DirectPages {
 public:
  static Result<DirectPages> create(std::span<const scheduler::Group> groups, const World& world,
                                    std::uint32_t made_max, std::uint64_t epoch,
                                    const shm::Headroom& headroom,
                                    const std::shared_ptr<MemoryAccount>& account = nullptr);

  // Prepares the rank's words for its new client: its first in this run, or a later one.
  void reset(Rank rank, bool first);
  // Puts a group into an empty place; on failure nothing changes. Errors: as DirectSegments::add().
  Status add_group(GroupId group, std::span<const Rank> ranks);
  // Empties the place of a group without users.
  void remove_group(GroupId group);

  DirectSegments& segments() { return *segments_; }
  const DirectSegments& segments() const { return *segments_; }
  GroupEpochs& epochs() { return *epochs_; }
  const GroupEpochs& epochs() const { return *epochs_; }
  const DirectRecords& records() const { return records_; }
  Disagreements& disagreements() { return disagreements_; }

 private:
  explicit DirectPages(std::unique_ptr<DirectSegments> segments);

  std::unique_ptr<DirectSegments> segments_;  // these two stay where they are when the direct_pages is moved
  std::unique_ptr<GroupEpochs> epochs_;
  DirectRecords records_;
  Disagreements disagreements_;
};

}  // namespace muster::engine
