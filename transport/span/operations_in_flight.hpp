// OperationsInFlight: the operations of a node between nodes, and what other nodes have said of later ones.
#pragma once

#include "transport/span/early_requests.hpp"
#include "transport/span/ended_epochs.hpp"
#include "transport/span/operation.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace muster::transport::span {

// Owns    the operations, in the order in which they advance, and the early requests. A library may touch
//         the operations until the network has ended.
// Thread  that of the network.
// Bound   launches in flight; as EarlyRequests.
// Fails   operations, by their outcomes.
class OperationsInFlight {
 public:
  // Both outlive it. The context's connections need not be there yet.
  OperationsInFlight(const OperationContext& context, EndedEpochs& ended)
      : context_(context),
        ended_(ended),
        early_(context.options.nodes.size(), context.memory, context.options.memory) {}

  void begin(Launched launched);
  void cancel(const StepOutcome& outcome);
  // Hear a message of another node. False: it comes too late.
  bool request(NodeConnection& from, Bytes message);
  bool refusal(NodeConnection& from, Bytes message);
  bool ready_came(NodeConnection& from, Bytes message);
  // Its connection has failed. forget: it connects anew; what it has said of later operations is dropped.
  void lost(NodeIndex node);
  void forget(NodeIndex node) { early_.forget(node); }
  // Ends operations that wait for nodes, unless the teller has come to them: it then has all requests, so all
  // come here too, or it refuses. False: the epoch had ended before.
  bool end(const EpochEnd& end, NodeIndex teller);
  // Advances all; returns how many times something has moved.
  std::size_t advance();
  void forget_past();

  // PeerNodes::awaited() and SpanOperation::moved_at() of the operation with that outcome, if it is there.
  std::vector<std::uint32_t> awaited(const StepOutcome& outcome) const;
  std::optional<Instant> moved_at(const StepOutcome& outcome) const;
  // Whether nodes have agreed on an operation of that epoch, which is the group's present one.
  bool in_use(std::uint64_t group, std::uint64_t epoch) const;

 private:
  SpanOperation* find(const OperationKey& key) const;                   // if it is not past
  SpanOperation* find(const StepOutcome& outcome) const;                // if it is not over
  bool is_past_without(NodeIndex node, const OperationKey& key) const;  // it took no part
  void hand_over(SpanOperation& operation, EarlyRequests::Request request);
  // Hands it to the operation, or keeps it until this node comes to that. True.
  bool keep(const OperationKey& key, EarlyRequests::Request request);

  const OperationContext& context_;
  EndedEpochs& ended_;
  std::vector<std::shared_ptr<SpanOperation>> operations_;
  EarlyRequests early_;
};

}  // namespace muster::transport::span
