// PreparedOperation: what this node keeps of a collective between nodes, for any number of launches (decision
// D31). It holds no connection, so it is as good after a lost node has come back, and in any epoch.
#pragma once

#include "api/base/memory_budget.hpp"
#include "api/base/nodes/span.hpp"
#include "transport/collective/communicator.hpp"
#include "transport/span/pair_plan.hpp"
#include "transport/span/row_plan.hpp"
#include "transport/span/span_groups.hpp"
#include "transport/span/spanning_options.hpp"
#include "transport/span/wire.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

namespace muster::transport::span {

// Owns    the plan of the operation, and room for the members of each launch. Launches share it with the
//         plan of the client, which may end before them.
// Thread  take_room: that of the launches. Room::give_back: any. All else is immutable: any.
// Bound   rooms: launches in flight at once.
// Fails   charge: as it says.
class PreparedOperation final : public Communicator::Prepared {
 public:
  // The members of one launch that move data, in order of index.
  class Room {
   public:
    std::span<const LocalMember> members() const { return members_; }
    void give_back() { is_taken_.store(false, std::memory_order_release); }

   private:
    friend class PreparedOperation;
    std::atomic<bool> is_taken_{false};
    std::vector<LocalMember> members_;
  };

  // The collective has passed check_launch(). `direct_from`: from so many bytes on, data may travel from and
  // to members. Then call charge().
  PreparedOperation(const Collective& collective, std::span<const LocalMember> members,
                    std::shared_ptr<const Span> span, std::shared_ptr<SpanGroups::Traffic> traffic,
                    const SpanningOptions& options, std::size_t direct_from);
  ~PreparedOperation() override;
  PreparedOperation(const PreparedOperation&) = delete;
  PreparedOperation& operator=(const PreparedOperation&) = delete;

  // Takes its memory from the job's budget until its end. kNoResource.
  Status charge(MemoryBudget* budget);

  // `members`: in the order in which the constructor got them.
  Room& take_room(std::span<const LocalMember> members);

  const Collective& collective() const { return collective_; }
  const Span& span() const { return *span_; }
  SpanGroups::Traffic& traffic() const { return *traffic_; }
  const RowPlan* row() const { return std::get_if<RowPlan>(&plan_); }
  const PairPlan* pair() const { return std::get_if<PairPlan>(&plan_); }

  // ---- the nodes that take part, and this one ---------------------------------------------------
  // Their number; they are counted from 0 on, in the order of the span.
  std::uint32_t nodes() const { return static_cast<std::uint32_t>(places_.size()); }
  std::uint32_t here() const { return here_; }
  NodeIndex index_of(std::uint32_t node) const { return span_->nodes[places_[node]]; }
  // Which of them a node of the job is; nothing: it takes no part.
  std::optional<std::uint32_t> find(NodeIndex index) const;
  // The members on `node` that this operation needs, appended.
  void add_members_on(std::uint32_t node, std::vector<std::uint32_t>& into) const;

  // How many messages may go to each node, beside the request.
  std::uint64_t messages() const { return row() != nullptr ? row()->messages() : pair()->most_chunks; }
  // A request, but for its key and what a launch says.
  const RequestHeader& request() const { return request_; }
  // Nodes agree two by two: edges between the two balance. Else the balances of all do.
  bool agrees_by_pairs() const { return pair() != nullptr && !pair()->balances.empty(); }
  const Hash128& balance_with(std::uint32_t node) const {
    return agrees_by_pairs() ? pair()->balances[node] : request_.balance;
  }

 private:
  std::uint64_t bytes() const;
  std::variant<RowPlan, PairPlan> plan_of(std::span<const LocalMember> members,
                                          const SpanningOptions& options, std::size_t direct_from) const;

  const Collective collective_;
  const std::shared_ptr<const Span> span_;
  const std::shared_ptr<SpanGroups::Traffic> traffic_;
  const std::size_t given_;                  // members of a launch
  const std::vector<std::uint32_t> movers_;  // those that move data, in order of index
  const std::variant<RowPlan, PairPlan> plan_;
  std::vector<std::uint32_t> places_;  // in the span, by node that takes part
  std::uint32_t here_ = 0;
  RequestHeader request_;
  std::deque<Room> rooms_;
  MemoryBudget* budget_ = nullptr;  // from which bytes() were taken
};

}  // namespace muster::transport::span
