#include "transport/span/operation.hpp"

#include "api/base/dtype.hpp"
#include "api/base/nodes/choice.hpp"
#include "kernels/math/reduce.hpp"

#include <algorithm>
#include <utility>

namespace muster::transport::span {
namespace {

device::Priority priority_of(muster_op op) {
  if (has_faces(op) || !has_data(op)) return device::Priority::kUrgent;
  return op == MUSTER_ALL_GATHER || op == MUSTER_REDUCE_SCATTER ? device::Priority::kHigh
                                                                : device::Priority::kNormal;
}

// Vectors up to this size go on the lane for small ones, if the caller names no other.
constexpr std::size_t kShortBytes = 64 << 10;

}  // namespace

bool is_urgent(const Collective& c) {
  if (priority_of(c.op) == device::Priority::kUrgent) return true;
  const bool is_vector = !has_agreed_blocks(c.op) && !is_pairwise(c.op) && !is_transfer(c.op);
  return is_vector && c.count <= kShortBytes / std::max<std::size_t>(1, dtype_bytes(c.dtype));
}

Status check_launch(const Span& span, const Collective& c, std::span<const LocalMember> members,
                    bool reproducible) {
  const bool apart = !combines(c, reproducible);
  const std::size_t folded = apart ? static_cast<std::size_t>(span.ranks()) : span.nodes.size();
  if (has_reduction(c.op) && folded > math::kReduceSourcesMax)
    return failure(Code::kUnsupported, "{} of {} between nodes folds {} contributions{}; {} are the most",
                   op_name(c.op), dtype_name(c.dtype), folded, apart ? ", one of each rank" : "",
                   math::kReduceSourcesMax);
  const auto takes_part = [&](std::int32_t index) {
    return !is_transfer(c.op) || index == c.root || index == c.receiver;
  };
  std::vector<bool> seen(span.node_of.size());
  for (const LocalMember& member : members) {
    const std::int32_t index = member.share->index;
    const bool here = index >= 0 && index < span.ranks() && takes_part(index) &&
                      span.node_of[static_cast<std::size_t>(index)] == span.here;
    if (!here || member.signature == nullptr)
      return failure(Code::kBadArgument, "member {} is not one of this node, or says nothing", index);
    if (seen[static_cast<std::size_t>(index)])
      return failure(Code::kBadArgument, "member {} is given twice", index);
    seen[static_cast<std::size_t>(index)] = true;
  }
  for (std::int32_t index = 0; index < span.ranks(); ++index)
    if (span.node_of[static_cast<std::size_t>(index)] == span.here && takes_part(index) &&
        !seen[static_cast<std::size_t>(index)])
      return failure(Code::kBadArgument, "member {} is missing", index);
  return {};
}

device::Stream& OperationContext::stream_for(muster_op op) const {
  return *streams[static_cast<std::size_t>(priority_of(op))];
}

Rest::~Rest() {
  for (Staged& each : memory_) context_.staging.give_back(std::move(each));
}

void Rest::send_empty(std::uint32_t node, std::uint64_t number) {
  if (!peers_[node].draining) return;
  context_.connection_to(span_.nodes[node]).send(peers_[node].first_tag + number, {}, flow_, false);
}

void Rest::receive_unread(std::uint32_t node, std::uint64_t number, std::size_t bytes) {
  if (!peers_[node].draining) return;
  if (memory_.empty() || memory_.back().bytes < bytes) memory_.push_back(context_.staging.take(bytes));
  context_.connection_to(span_.nodes[node])
      .receive(peers_[node].received_tag() + number, {memory_.back().data(), bytes}, flow_, false);
}

SpanOperation::SpanOperation(Launched launched, const OperationContext& context)
    : context_(context),
      launched_(std::move(launched)),
      peers_(collective(), span()),
      rest_(peers_, context, span()) {}

void SpanOperation::refused(std::uint32_t node, const Status& why, Standing standing) {
  PeerNode& peer = peers_[node];
  if (!peer.takes_part) return;
  const bool was_done = standing == Standing::kGone && peer.request && !peer.refused;
  peer.refused = true;
  peer.ready = peer.ready || standing == Standing::kReady;
  peer.agreed = peer.agreed || standing == Standing::kMoving || was_done;
  fail(why);
  if (standing == Standing::kOpen && !peer.told && !peer.lost)
    to(node).tell(refusal_of(launched_.key, why, Standing::kGone));
}

void SpanOperation::lost(NodeIndex node) {
  for (std::uint32_t i = 0; i < peers_.count(); ++i) {
    if (!peers_[i].takes_part || span().nodes[i] != node) continue;
    peers_[i].lost = true;
    fail(to(i).status());
  }
}

void SpanOperation::fail(const Status& why) {
  if (state_ != State::kOpen && state_ != State::kReady && state_ != State::kMoving) return;
  launched_.outcome->fail(why);
  had_agreed_ = agreed();
  drains_ = true;
  state_ = State::kDying;
  // A node that has this one's request might wait for its bytes.
  const Standing moving = direct_ ? Standing::kReady : Standing::kMoving;
  const Standing standing = had_agreed_ ? moving : Standing::kOpen;
  for (std::uint32_t node = 0; node < peers_.count(); ++node)
    if (peers_[node].takes_part && peers_[node].told) to(node).tell(refusal_of(launched_.key, why, standing));
}

void SpanOperation::finish() {
  state_ = State::kDone;
  launched_.outcome->release(context_.clock.now());
}

std::size_t SpanOperation::advance() {
  if (over()) return drain();
  std::size_t moved = 0;
  if (state_ == State::kOpen)  // it may have begun after the loss
    for (std::uint32_t node = 0; node < peers_.count(); ++node)
      if (peers_[node].takes_part && !to(node).status().ok()) fail(to(node).status());
  if (state_ == State::kOpen) {
    moved += work();  // makes the data for the requests ready
    moved += tell_peers();
    agree();
  }
  if (state_ == State::kReady && peers_.all_are_ready()) state_ = State::kMoving;
  if (state_ == State::kMoving) moved += work();
  moved += drain();
  if (state_ == State::kDying && resting()) {
    state_ = State::kDead;
    launched_.outcome->release(context_.clock.now());
    ++moved;
  }
  moved += state_ == State::kDone ? 1 : 0;
  if (moved > 0) moved_at_ = context_.clock.now();
  return moved;
}

// If a node refused before it was ready, no node has begun to move data from or to members. A node that does
// not have this one's request has not agreed, and never will.
std::size_t SpanOperation::drain() {
  if (!drains_) return 0;
  const bool none_has_begun = direct_ && peers_.any_refused_before_it_was_ready();
  if (direct_ && !none_has_begun && !peers_.all_are_ready()) return 0;
  drains_ = false;
  std::size_t begun = 0;
  for (std::uint32_t node = 0; node < peers_.count(); ++node) {
    PeerNode& peer = peers_[node];
    peer.draining = false;
    if (!peer.takes_part || !peer.told || peer.lost || peer.drained) continue;
    peer.drained = had_agreed_ || peer.refused;
    peer.draining = peer.drained && !none_has_begun && (had_agreed_ || peer.agreed) && peer.request;
    drains_ = drains_ || !peer.drained;
    begun += peer.draining ? 1 : 0;
  }
  if (begun > 0) drain_rest(rest_);
  return begun + (drains_ ? 0 : 1);
}

// An empty message comes after its sender's refusal, but may be reported before it.
bool SpanOperation::ended_well(const Flow& flow) {
  if (!flow.failure.ok()) fail(flow.failure);
  return flow.failure.ok() && !flow.abandoned;
}

RequestHeader SpanOperation::head() const {
  const Collective& c = collective();
  auto head = head_of<RequestHeader>(launched_.key);
  head.op = static_cast<std::uint8_t>(agreed_op(c.op));
  head.dtype = static_cast<std::uint8_t>(c.dtype);
  head.redop = static_cast<std::uint8_t>(c.redop);
  head.direct = wants_direct() ? 1 : 0;
  head.root = c.root;
  head.said_tag = c.tag;
  head.count = c.count;
  head.shared_memory = c.shared_memory;
  head.shared_offset = c.shared_offset;
  head.common = launched_.members.front().signature->common;
  for (const LocalMember& each : launched_.members) head.balance += each.signature->balance;
  return head;
}

// Sends each node its request as soon as the data for it is ready.
std::size_t SpanOperation::tell_peers() {
  std::size_t told = 0;
  for (std::uint32_t node = 0; node < peers_.count(); ++node) {
    PeerNode& peer = peers_[node];
    if (!peer.takes_part || peer.told) continue;
    const Inline goes = inline_for(node);
    if (!goes.ready) continue;
    RequestHeader said = head();
    if (is_urgent(collective())) peer.sent_after(to(node).bulk_sending());
    said.first_tag = peer.first_tag = to(node).take_tags(std::max<std::uint64_t>(1, messages()));
    to(node).tell(message_of(said, goes.bytes));
    peer.told = true;
    ++told;
  }
  return told;
}

void SpanOperation::agree() {
  const RequestHeader mine = head();
  Hash128 balance = mine.balance;
  bool common = true, direct = mine.direct != 0;
  for (std::uint32_t node = 0; node < peers_.count(); ++node) {
    const PeerNode& peer = peers_[node];
    if (!peer.takes_part) continue;
    if (!peer.told || !peer.request) return;
    common = common && peer.request->head.common == mine.common;
    balance += peer.request->head.balance;
    direct = direct || peer.request->head.direct != 0;
  }
  if (common && balance.zero()) {
    direct_ = direct;
    state_ = direct ? State::kReady : State::kMoving;
    for (std::uint32_t node = 0; direct && node < peers_.count(); ++node)
      if (peers_[node].takes_part) to(node).tell(message_of_ready(launched_.key));
    return;
  }
  fail(failure(Code::kMismatch, "nodes disagree on {}; no data was moved",
               peers_.difference(mine, context_.options.nodes)));
  drains_ = false;  // no node has agreed
}

std::unique_ptr<SpanOperation> begin_operation(Launched launched, const OperationContext& context) {
  const muster_op op = launched.collective->op;
  return is_pairwise(op) || is_transfer(op) ? begin_pair_operation(std::move(launched), context)
                                            : begin_row_operation(std::move(launched), context);
}

}  // namespace muster::transport::span
