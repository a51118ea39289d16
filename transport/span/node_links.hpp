// NodeLinks: an engine's connections to those of the other nodes. They know nothing of operations.
#pragma once

#include "api/base/clock.hpp"
#include "transport/collective/job_links.hpp"
#include "transport/endpoint/endpoint.hpp"
#include "transport/span/node_connection.hpp"
#include "transport/span/spanning_options.hpp"
#include "transport/span/untaken_reports.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <vector>

namespace muster::transport::span {

// Owns    the connections, by node, and earlier ones whose memory a library may still touch.
// Thread  that of the network. take_lost, all_losses_taken: any.
// Bound   one connection to each node, and earlier ones until the library keeps nothing of them.
// Fails   connect: as NodeConnection. A connection that ends is reported once.
class NodeLinks {
 public:
  // Called for each connection that has failed, before it is closed.
  using Lost = std::function<void(NodeIndex)>;

  // The network ends before it; all else outlives it. `heard` gets all messages but hellos, also those of
  // earlier connections.
  NodeLinks(const SpanningOptions& options, Network& network, const Clock& clock, NodeConnection::Heard heard,
            Lost lost, std::pmr::memory_resource* memory);

  // By NodeIndex; null: this node.
  std::vector<std::unique_ptr<NodeConnection>>& connections() { return connections_; }
  NodeConnection& operator[](NodeIndex node) { return *connections_[node.value]; }
  // Whether it is the present connection to its node.
  bool is_present(const NodeConnection& one) const { return &one == connections_[one.peer().value].get(); }

  // Reads the clock, for all that the network does until the next turn.
  void begin_turn() { now_ = clock_.now(); }
  const Instant& now() const { return now_; }
  // Begins a new connection; the earlier one must have been lost. The caller then sends what comes before the
  // hello, and calls greet().
  Status connect(NodeIndex node, Bytes address, std::uint32_t generation);
  void greet(NodeIndex node);
  JobLinks::Link link(NodeIndex node) const;
  // Gives the node up, unless that has happened. False: the job has no such other node.
  bool lose(NodeIndex node, const Status& why);
  // Reports connections that have ended since, and closes them.
  void look_for_losses();
  bool all_losses_taken() const { return losses_.empty(); }
  void take_lost(const std::function<void(const JobLinks::Lost&)>& visit);
  // Greets nodes that have been told nothing for a while. Returns whether there was one.
  bool stay_alive();
  // Sends it if the node has greeted.
  void tell(NodeIndex node, Bytes message);
  void go_on();
  // Closes all connections, before the network ends.
  void close();

 private:
  std::unique_ptr<NodeConnection> connection_to(NodeIndex node);
  void hear(NodeConnection& from, Bytes message);
  bool is_other(NodeIndex node) const { return node.value < connections_.size() && node != options_.here; }

  const SpanningOptions& options_;
  Network& network_;
  const Clock& clock_;
  Instant now_;  // when the present turn began
  const NodeConnection::Heard heard_;
  const Lost lost_;
  std::pmr::memory_resource* const memory_;
  std::size_t failures_ = 0, failures_seen_ = 0;  // of all connections
  std::vector<std::unique_ptr<NodeConnection>> connections_;
  std::vector<std::unique_ptr<NodeConnection>> former_;
  std::vector<bool> greeted_;   // by NodeIndex: it has sent a hello on this connection
  std::vector<bool> reported_;  // by NodeIndex: the end of this connection is in `losses_`, or was
  UntakenReports<JobLinks::Lost> losses_;
};

}  // namespace muster::transport::span
