#include "transport/span/prepared_operation.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace muster::transport::span {
namespace {

// All members, but for those of an exchange without faces. Their places among `members`, in order of index.
std::vector<std::uint32_t> movers_of(const Collective& c, std::span<const LocalMember> members) {
  std::vector<std::uint32_t> movers;
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    const Share& share = *members[i].share;
    if (!has_faces(c.op) || !share.sends.empty() || !share.receives.empty()) movers.push_back(i);
  }
  std::ranges::sort(movers, {}, [&](std::uint32_t each) { return members[each].share->index; });
  return movers;
}

}  // namespace

PreparedOperation::PreparedOperation(const Collective& collective, std::span<const LocalMember> members,
                                     std::shared_ptr<const Span> span,
                                     std::shared_ptr<SpanGroups::Traffic> traffic,
                                     const SpanningOptions& options, std::size_t direct_from)
    : collective_(collective),
      span_(std::move(span)),
      traffic_(std::move(traffic)),
      given_(members.size()),
      movers_(movers_of(collective, members)),
      plan_(plan_of(members, options, direct_from)) {
  if (const PairPlan* const streams = pair()) {
    places_ = streams->nodes;
    here_ = streams->here;
  } else {
    places_.resize(span_->nodes.size());
    std::iota(places_.begin(), places_.end(), 0u);
    here_ = span_->here;
  }
  request_.op = static_cast<std::uint8_t>(agreed_op(collective.op));
  request_.dtype = static_cast<std::uint8_t>(collective.dtype);
  request_.redop = static_cast<std::uint8_t>(collective.redop);
  request_.root = collective.root;
  request_.said_tag = collective.tag;
  request_.count = collective.count;
  request_.shared_memory = collective.shared_memory;
  request_.shared_offset = collective.shared_offset;
  request_.common = members.front().signature->common;
  for (const LocalMember& each : members) request_.balance += each.signature->balance;
}

std::variant<RowPlan, PairPlan> PreparedOperation::plan_of(std::span<const LocalMember> members,
                                                           const SpanningOptions& options,
                                                           std::size_t direct_from) const {
  if (!is_pairwise(collective_.op) && !is_transfer(collective_.op))
    return RowPlan(collective_, *span_, options, direct_from);
  std::vector<LocalMember> movers;
  for (const std::uint32_t each : movers_) movers.push_back(members[each]);
  return PairPlan(collective_, *span_, movers, direct_from);
}

PreparedOperation::~PreparedOperation() {
  if (budget_ != nullptr) budget_->give_back(bytes());
}

Status PreparedOperation::charge(MemoryBudget* budget) {
  if (budget == nullptr) return {};
  MUSTER_RETURN_IF_ERROR(budget->take(bytes()));
  budget_ = budget;
  return {};
}

// About what it takes, but for the rooms.
std::uint64_t PreparedOperation::bytes() const {
  const std::uint64_t plan = row() != nullptr ? row()->bytes() : pair()->bytes();
  return sizeof *this + plan + collective_.counts.size() * sizeof collective_.counts.front() +
         collective_.first_piece.size() * sizeof collective_.first_piece.front() +
         (places_.size() + movers_.size()) * sizeof places_.front();
}

PreparedOperation::Room& PreparedOperation::take_room(std::span<const LocalMember> members) {
  MUSTER_ASSERT(members.size() == given_);
  const auto free = std::ranges::find_if(
      rooms_, [](const Room& room) { return !room.is_taken_.load(std::memory_order_acquire); });
  Room& room = free == rooms_.end() ? rooms_.emplace_back() : *free;
  room.is_taken_.store(true, std::memory_order_relaxed);
  room.members_.resize(movers_.size());
  for (std::size_t i = 0; i < movers_.size(); ++i) room.members_[i] = members[movers_[i]];
  return room;
}

std::optional<std::uint32_t> PreparedOperation::find(NodeIndex index) const {
  const auto index_at = [this](std::uint32_t place) { return span_->nodes[place]; };
  const auto found = std::ranges::lower_bound(places_, index, {}, index_at);
  if (found == places_.end() || index_at(*found) != index) return std::nullopt;
  return static_cast<std::uint32_t>(found - places_.begin());
}

void PreparedOperation::add_members_on(std::uint32_t node, std::vector<std::uint32_t>& into) const {
  const auto add = [&](std::uint32_t member) {
    if (span_->node_of[member] == places_[node]) into.push_back(member);
  };
  if (is_transfer(collective_.op) || has_faces(collective_.op)) {
    for (const std::uint32_t member : pair()->partners) add(member);
    return;
  }
  for (std::uint32_t member = 0; member < span_->node_of.size(); ++member) add(member);
}

}  // namespace muster::transport::span
