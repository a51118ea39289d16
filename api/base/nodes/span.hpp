// Span: the members of a group by node (decision D26). Between nodes the node is the participant.
#pragma once

#include "api/base/ids.hpp"

#include <cstdint>
#include <vector>

namespace muster::transport {

struct Span {
  std::uint64_t group = 0;             // a number of the group, the same on all of its nodes
  std::vector<NodeIndex> nodes{{}};    // that have members, rising
  std::vector<std::uint32_t> node_of;  // by member: index in `nodes`
  std::uint32_t here = 0;              // index in `nodes`

  std::int32_t ranks() const { return static_cast<std::int32_t>(node_of.size()); }
  bool is_local() const { return nodes.size() == 1; }
};

// Where operations of a group match, by names that all of its nodes have in common. For a SEND or RECV it is
// the pair of members, and `lane` is 0; for all else the lane, and the pair is -1.
struct PlaceKey {
  std::uint64_t group = 0;  // Span::group
  std::uint64_t lane = 0;   // a number of its class and name
  std::int32_t sender = -1;
  std::int32_t receiver = -1;
  friend auto operator<=>(const PlaceKey&, const PlaceKey&) = default;
};

// Which operation of its place a launch is.
struct MatchKey {
  PlaceKey place;
  std::uint64_t epoch = 0;   // decision D18
  std::uint64_t number = 0;  // from 1 in each epoch; of a SEND or RECV, among those of its tag
};

}  // namespace muster::transport
