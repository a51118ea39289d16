// Lateness: which ranks come late to the collectives of their groups, on either path
// (scheduler/blame/stragglers.hpp). The engine path tells it of each step; what ranks run directly is read
// from their own records now and then, so that it costs them nothing.
#pragma once

#include "daemon/engine/board.hpp"
#include "scheduler/blame/stragglers.hpp"
#include "scheduler/run/request.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace muster::engine {

// Owns    a window of lags of each group of two and more.
// Thread  under the engine's lock.
// Bound   met(): a store and an addition a member. look(): kRecordsALook records among all ranks, or
//         kRecordsMin of each if that is more; of operations that come faster than they are read, a sample
//         is taken.
// Fails   never. Records are their ranks' word: of what cannot have been so, the whole operation is not
//         counted. A rank that lies within what can have been may call itself late, and nobody else later
//         than the time since the operation before.
class Lateness {
 public:
  static constexpr std::uint32_t kRecordsALook = 4096;
  static constexpr std::uint32_t kRecordsMin = 128;

  // Places for so many groups, all empty.
  Lateness(std::uint32_t world, std::uint32_t groups);

  // Another group in that place; empty: none.
  void set_group(GroupId group, std::span<const Rank> ranks);
  // There will be operations of the group: room for its lags, which most groups never need, and to judge
  // them, so that neither met() nor look() needs heap unless a flag changes.
  void expect(GroupId group);
  // The rank has no client any more: its groups begin anew with the next one. Adds flags that go with it.
  struct Change {
    GroupId group;
    Rank rank;
    bool late = false;
  };
  void left(Rank rank, std::vector<Change>& changes);

  // A collective of the engine path, to which all have come.
  void met(const scheduler::Step& step);
  // Reads what the members have recorded since the last look, where there is a direct path, and judges. Adds
  // flags that have changed.
  void look(const Board* board, Instant now, std::vector<Change>& changes);

  // ---- as the latest look found it --------------------------------------------------------------
  // A rank in the group where it is worst: late if it is so anywhere, then by its lag.
  struct Worst {
    std::uint32_t late_in = 0;  // groups
    std::optional<GroupId> group;
    std::uint32_t member = 0;  // its index there
  };
  const Worst& worst(Rank rank) const { return worst_[rank.value]; }
  // nullptr: no group, or one of a single rank.
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
  struct GroupState {
    std::vector<Rank> ranks;
    std::optional<blame::Stragglers> lags;
    // Of the direct path: the epoch that is being read, its latest operation that is dealt with, and
    // when the last member came to that one; none before the first.
    std::uint64_t epoch = 0;
    std::uint64_t number = 0;
    std::optional<Instant> over;
  };
  struct Sighting {  // one member's arrival, as it says
    std::uint32_t group = 0;
    std::uint32_t member = 0;
    std::uint64_t number = 0;
    std::uint64_t index = 0;  // of its record
    Instant at{0};
  };
  void read(const Board& board, Rank rank, Instant now);
  void match();
  bool all_of(std::span<const Sighting> operation) const;
  void count(std::span<const Sighting> operation);
  void find_worst();

  std::vector<GroupState> groups_;
  std::vector<std::uint32_t> watched_;  // groups with lags
  std::vector<Worst> worst_;            // by rank
  std::vector<std::uint64_t> read_;     // by rank: its records up to here need not be read again
  std::uint32_t records_a_rank_;
  std::vector<Sighting> sightings_;
  std::vector<Instant> arrivals_;
  std::vector<std::uint32_t> changed_;
  blame::Stragglers::Workbench bench_;
};

}  // namespace muster::engine
