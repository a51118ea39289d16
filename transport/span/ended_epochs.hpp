// EndedEpochs: which epochs of groups between nodes have ended, as the network's thread knows it.
#pragma once

#include "transport/span/node_connection.hpp"
#include "transport/span/span_groups.hpp"
#include "transport/span/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace muster::transport::span {

// Owns    the latest end of each group, its latest operations, and the ends told by other nodes in this turn.
// Thread  that of the network.
// Bound   the job's groups and their places, and kUnknownGroupsMax groups that this node does not have.
// Fails   never.
class EndedEpochs {
 public:
  // Groups that this node does not have, but whose ends another node has sent. It may make them later.
  static constexpr std::size_t kUnknownGroupsMax = 4096;
  using Told = std::pair<EpochEnd, NodeIndex>;  // with the node that has told it

  // The latest end of the group, if that epoch has ended.
  const EpochEnd* find(std::uint64_t group, std::uint64_t epoch) const;
  // False: the epoch had ended before.
  bool add(const EpochEnd& end);
  // Keeps the end in a message of another node for take_told(), unless that is no node of the group. `groups`
  // says which those are.
  void hear(NodeIndex from, Bytes message, const SpanGroups& groups);
  bool any_told() const { return !told_.empty(); }
  std::vector<Told> take_told() { return std::exchange(told_, {}); }
  // Tells a node that is connected now the latest ends of its groups.
  void tell_all(NodeConnection& to, const SpanGroups& groups) const;
  // An operation that had agreed is over; and whether one was in that epoch, the latest in which any was.
  void done(const OperationKey& operation, bool is_exchange);
  bool was_done_in(std::uint64_t group, std::uint64_t epoch) const;
  // Whether an EXCHANGE that is over had this number or a later one. All nodes with which it had faces have
  // come to it, so a node that asks now has none here.
  bool was_exchange(const OperationKey& operation) const;

 private:
  std::map<std::uint64_t, EpochEnd> ended_;                                // by group
  std::map<std::uint64_t, std::uint64_t> done_;                            // by group: the latest epoch
  std::map<PlaceKey, std::pair<std::uint64_t, std::uint64_t>> exchanged_;  // epoch and number of the latest
  std::vector<Told> told_;
};

}  // namespace muster::transport::span
