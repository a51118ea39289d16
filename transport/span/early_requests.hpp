// EarlyRequests: requests and refusals of other nodes for operations to which this node has not come yet.
#pragma once

#include "transport/span/operation.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <utility>
#include <vector>

namespace muster::transport::span {

// Owns    the requests.
// Thread  that of the network.
// Bound   kMax of each node, and the budget. Members come to at most one operation of each of their lanes at
// a
//         time.
// Fails   keep: kNoResource; the request is dropped.
class EarlyRequests {
 public:
  static constexpr std::size_t kMax = std::size_t{1} << 16;
  struct Request {
    NodeIndex from;
    PeerNodes::Request request;
    Status refusal = {};                  // not OK: that node will not carry the operation out
    Standing standing = Standing::kOpen;  // of a node that refuses
    // Whether the node waits for an answer of this one.
    bool asks() const { return refusal.ok() || standing == Standing::kOpen; }
  };
  using Keyed = std::pair<OperationKey, Request>;
  using Requests = std::pmr::vector<Request>;

  EarlyRequests(std::size_t nodes, std::pmr::memory_resource* memory, MemoryBudget* budget)
      : requests_(memory), counts_(nodes), pieces_(budget) {}

  Status keep(const OperationKey& key, Request request);
  // Take the requests of one operation, in the order in which they came, or those of the group's epochs up to
  // that one.
  Requests take(const OperationKey& key);
  std::vector<Keyed> take_ended(std::uint64_t group, std::uint64_t epoch);
  // Drops the requests of the node, because its connection has ended.
  void forget(NodeIndex node);

 private:
  void leaves(const Request& request);

  std::pmr::map<OperationKey, Requests> requests_;
  std::vector<std::size_t> counts_;  // by NodeIndex
  MemoryBudget::Pieces pieces_;
};

}  // namespace muster::transport::span
