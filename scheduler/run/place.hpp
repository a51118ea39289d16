// Place: where operations match, and what a start brings there (decision D18).
#pragma once

#include "api/base/clock.hpp"
#include "api/base/ids.hpp"
#include "scheduler/run/plan.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::scheduler {

struct Group {
  std::string name;
  std::vector<Rank> ranks;  // in group order
  // A number that all nodes of the group have in common; 0: all its members are on this node.
  std::uint64_t key = 0;
  std::uint64_t first_epoch = 1;  // Communicator::first_epoch()

  bool spans() const { return key != 0; }
  // The rank's place in group order; nothing: it is no member.
  std::optional<std::size_t> index_of(Rank rank) const {
    const auto at = std::find(ranks.begin(), ranks.end(), rank);
    if (at == ranks.end()) return std::nullopt;
    return static_cast<std::size_t>(at - ranks.begin());
  }
};

// Where a start matches, and as which member of its group.
struct Place {
  GroupId group;
  LaneId lane;                 // ignored for a pair, which matches across lanes
  std::int32_t sender = -1;    // of a pair; else -1
  std::int32_t receiver = -1;  // of a pair; else -1
  std::int32_t index = 0;      // of this member in the group
  bool receives = false;       // of a pair: this member is its receiver
  std::uint32_t tag = 0;       // of the start, if a pair's; one place has starts of all tags

  bool is_pair() const { return sender >= 0; }
  bool same_as(const Place& other) const {
    return group == other.group && sender == other.sender && receiver == other.receiver &&
           (is_pair() || lane == other.lane);
  }
};
Place place_of(const CollectiveWork& work, LaneId lane);

// Epoch and number, which a start carries from the moment when the engine reads it.
struct Stamp {
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;  // from 1 in each epoch
};

// A start that is next on its lane.
struct Arrival {
  Rank rank;
  std::uint32_t lane = 0;  // its number at that rank
  std::uint64_t value = 0;
  Plan* plan = nullptr;
  Stamp stamp;
  Instant at{0};  // for reports
  LaneId lane_id{};
  Share::Bases bases{};     // of a collective
  std::uint32_t unmet = 0;  // of an EXCHANGE by neighbours: those whom it has not met
};

}  // namespace muster::scheduler
