// StragglerStatistics: which ranks come late to the collectives of their groups, on either path
// (api/base/blame/stragglers.hpp). The engine path reports each step. Direct operations are read from the
// ranks' own records now and then, so that ranks do no work for it.
#pragma once

#include "api/base/blame/stragglers.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "scheduler/run/request.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace muster::engine {

// Owns    a window of lags for each group of two or more ranks.
// Thread  under the engine's lock.
// Bound   met(): a store and an addition a member. look(): kRecordsALook records over all ranks, or
//         kRecordsMin of each if that is more; faster operations are sampled.
// Fails   never. Records are claims of their ranks: an operation with an impossible record is not counted.
//         With possible records a rank can report itself late, and others late by no more than the time since
//         the operation before.
class StragglerStatistics {
 public:
  static constexpr std::uint32_t kRecordsALook = 4096;
  static constexpr std::uint32_t kRecordsMin = 128;

  // Places for so many groups, all empty.
  StragglerStatistics(const World& world, std::uint32_t groups);

  // Another group has that place; empty: none.
  void set_group(GroupId group, std::span<const Rank> ranks);
  // The group will have operations: makes room for its lags, which most groups never need. After it, met()
  // and look() need heap only when a flag changes.
  void expect(GroupId group);
  // The rank's client has left: the lags of its groups begin anew. Appends the flags that change by that.
  struct Change {
    GroupId group;
    Rank rank;
    bool late = false;
  };
  void left(Rank rank, std::vector<Change>& changes);

  // A collective of the engine path, at which all members have arrived; or a step of an EXCHANGE by
  // neighbours. Such exchanges are judged one after the other: those of one lane whose steps are all seen.
  void met(const scheduler::Step& step);
  // Reads the records of the members since the last look, where there is a direct path, and judges them.
  // Appends the flags that have changed.
  void look(const DirectPages* direct_pages, Instant now, std::vector<Change>& changes);

  // ---- as the latest look found it --------------------------------------------------------------
  // A rank in its worst group: a group where it is late comes first, then the one with the highest lag.
  struct Worst {
    std::uint32_t late_in = 0;  // groups
    std::optional<GroupId> group;
    std::uint32_t member = 0;  // its index there
  };
  const Worst& worst(Rank rank) const { return worst_[rank]; }
  // nullptr: no group, or a group of one rank.
  const blame::Stragglers* of(GroupId group) const {
    const GroupState& state = groups_[group.value];
    return state.lags ? &*state.lags : nullptr;
  }
  std::span<const Rank> ranks(GroupId group) const { return groups_[group.value].ranks; }
  // Only `rank`, `group` and figures are filled in.
  blame::Straggler figures(GroupId group, Rank rank) const;
  std::vector<blame::Straggler> stragglers() const;
  std::vector<blame::Straggler> stragglers_of(GroupId group) const;

 private:
  // An EXCHANGE by neighbours, whose members arrive in several steps.
  struct Round {
    std::optional<LaneId> lane;
    scheduler::Stamp latest{};          // of all steps seen; later numbers have no step yet
    std::uint64_t number = 0;           // that is noted; 0: none
    std::vector<std::uint64_t> seen{};  // the number of each member's latest arrival here
    std::vector<Instant> arrivals{};
    std::size_t left = 0;  // members without an arrival
  };
  struct GroupState {
    std::vector<Rank> ranks;
    std::optional<blame::Stragglers> lags;
    Round round{};
    // On the direct path: the epoch being read, its latest operation that was dealt with, and when the last
    // member came to that one; no time before the first.
    std::uint64_t epoch = 0;
    std::uint64_t number = 0;
    std::optional<Instant> over;
  };
  struct Sighting {  // one member's arrival, as the member says
    std::uint32_t group = 0;
    std::uint32_t member = 0;
    std::uint64_t number = 0;
    std::uint64_t index = 0;  // of its record
    Instant at{0};
  };
  static void note(GroupState& state, const scheduler::Step& step);
  void read(const DirectPages& direct_pages, Rank rank, Instant now);
  void match();
  bool all_of(std::span<const Sighting> operation) const;
  void count(std::span<const Sighting> operation);
  void find_worst();

  std::vector<GroupState> groups_;
  std::vector<std::uint32_t> watched_;  // groups with lags
  RankTable<Worst> worst_;
  RankTable<std::uint64_t> read_;  // its records up to this index need not be read again
  std::uint32_t records_a_rank_;
  std::vector<Sighting> sightings_;
  std::vector<Instant> arrivals_;
  std::vector<std::uint32_t> changed_;
  blame::Stragglers::Workbench bench_;
};

}  // namespace muster::engine
