#include "transport/span/operation.hpp"

#include "api/base/assert.hpp"
#include "api/base/dtype.hpp"
#include "api/base/nodes/choice.hpp"
#include "kernels/math/reduce.hpp"

#include <algorithm>
#include <utility>

namespace muster::transport::span {
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

SpanOperation::Rest::~Rest() {
  for (Staging::Piece& each : memory_) context_.staging.give_back(std::move(each));
}

void SpanOperation::Rest::send_empty(std::uint32_t node, std::uint64_t number) {
  if (peers_[node].drain != PeerNodes::Drain::kBegins) return;
  context_.connection_to(operation_.index_of(node)).send(peers_[node].first_tag + number, {}, flow_, false);
}

void SpanOperation::Rest::receive_unread(std::uint32_t node, std::uint64_t number, std::size_t bytes) {
  if (peers_[node].drain != PeerNodes::Drain::kBegins) return;
  if (memory_.empty() || memory_.back().bytes < bytes) memory_.push_back(context_.staging.take(bytes));
  context_.connection_to(operation_.index_of(node))
      .receive(peers_[node].received_tag() + number, {memory_.back().data(), bytes}, flow_, false);
}

SpanOperation::SpanOperation(Launched launched, const OperationContext& context)
    : context_(context),
      launched_(std::move(launched)),
      peers_(prepared(), context.memory),
      rest_(peers_, context, prepared()) {}

SpanOperation::~SpanOperation() {
  launched_.room->give_back();
}

void SpanOperation::refused(std::uint32_t node, const Status& why, Standing standing) {
  PeerNodes::Node& peer = peers_[node];
  if (!peer.takes_part) return;
  peer.refuse(standing);
  fail(why);
  if (standing == Standing::kOpen && !peer.told && !peer.lost)
    to(node).tell(refusal_of(launched_.key, why, Standing::kGone));
}

void SpanOperation::take(Event event, const Status& why) {
  const auto step = machine_.take(event);
  MUSTER_ASSERT(step);
  switch (step->action) {
    case OperationMachine::Action::kNone:
      return;
    case OperationMachine::Action::kRefuse:
      return refuse(why, step->before != State::kOpen);
    case OperationMachine::Action::kRelease:
      return launched_.outcome->release(context_.clock.now());
  }
}

// A node that has this one's request might wait for its bytes.
void SpanOperation::refuse(const Status& why, bool had_agreed) {
  launched_.outcome->fail(why);
  for (std::uint32_t node = 0; node < peers_.count(); ++node) {
    const PeerNodes::Node& peer = peers_[node];
    if (peer.takes_part) to(node).room().leave(this);
    if (!peer.takes_part || !peer.told) continue;
    const Standing moving = peer.direct ? Standing::kReady : Standing::kMoving;
    to(node).tell(refusal_of(launched_.key, why, had_agreed ? moving : Standing::kOpen));
  }
}

std::size_t SpanOperation::advance() {
  if (over()) return is_past() ? 0 : drain();
  std::size_t moved = 0;
  if (waits())  // it may have begun after the loss
    for (std::uint32_t node = 0; node < peers_.count(); ++node)
      if (peers_[node].takes_part && !to(node).status().ok()) fail(to(node).status());
  if (waits()) {
    moved += work();  // makes the data for the requests ready
    moved += tell_peers();
    agree();
  }
  if (machine_.is(State::kReady) && peers_.all_are_ready()) take(Event::kAllReady);
  if (machine_.is(State::kMoving)) moved += work();
  if (drains()) moved += drain();
  if (machine_.is({State::kStopping, State::kStoppingAgreed, State::kStopped}) && still() != Still::kMore) {
    take(Event::kLeft);
    ++moved;
  }
  moved += machine_.is(State::kDone) ? 1 : 0;
  if (moved > 0) moved_at_ = context_.now;
  return moved;
}

// Data moves from or to members of two nodes once both, or all where nodes agree together, have said that
// they are ready. If a node refused before, none has begun. A node that does not have this one's request has
// not agreed, and never will.
std::size_t SpanOperation::drain() {
  const bool had_agreed = machine_.is({State::kStoppingAgreed, State::kDrainingAgreed});
  const bool by_pairs = prepared().agrees_by_pairs(), direct = !by_pairs && peers_[prepared().here()].direct;
  const bool none_has_begun = direct && peers_.any_refused_before_it_was_ready();
  if (direct && !none_has_begun && !peers_.all_are_ready()) return 0;
  std::size_t begun = 0;
  bool all = true;
  for (std::uint32_t node = 0; node < peers_.count(); ++node) {
    PeerNodes::Node& peer = peers_[node];
    if (peer.drain == PeerNodes::Drain::kBegins) peer.drain = PeerNodes::Drain::kOver;
    if (!peer.takes_part || !peer.told || peer.lost || peer.drain == PeerNodes::Drain::kOver) continue;
    const bool none_with_it = by_pairs ? peer.direct && peer.refused() && !peer.is_ready() : none_has_begun;
    const bool may_begin = by_pairs && peer.direct && !peer.refused() && !peer.is_ready();
    if (may_begin || !(had_agreed || peer.refused())) {
      all = false;
      continue;
    }
    const bool both_agreed = (had_agreed || peer.agreed()) && peer.request;
    peer.drain = both_agreed && !none_with_it ? PeerNodes::Drain::kBegins : PeerNodes::Drain::kOver;
    begun += peer.drain == PeerNodes::Drain::kBegins ? 1 : 0;
  }
  if (begun > 0) drain_rest(rest_);
  if (all) take(Event::kDrained);
  return begun + (all ? 1 : 0);
}

bool SpanOperation::send(std::uint32_t node, std::uint64_t number, Bytes elements, Flow& flow) {
  if (!flow.urgent && !to(node).room().may_give(this, elements.size())) return false;
  PeerNodes::Node& peer = peers_[node];
  if (flow.urgent) peer.sent_after(to(node).room().given());
  peer.sent_bytes += elements.size();
  to(node).send(peer.first_tag + number, elements, flow, moves(node) == Moves::kChecked);
  return true;
}

// An empty message comes after its sender's refusal, but may be reported before it.
bool SpanOperation::ended_well(const Flow& flow) {
  if (!flow.failure.ok()) fail(flow.failure);
  return flow.failure.ok() && !flow.abandoned;
}

// Sends each node its request as soon as the data for it is ready.
std::size_t SpanOperation::tell_peers() {
  std::size_t told = 0;
  for (std::uint32_t node = 0; node < peers_.count(); ++node) {
    PeerNodes::Node& peer = peers_[node];
    if (!peer.takes_part || peer.told) continue;
    const Inline goes = inline_for(node);
    if (!goes.ready) continue;
    RequestHeader said = prepared().request();
    set_key(said, launched_.key);
    said.direct = wants_direct(node) ? 1 : 0;
    said.balance = prepared().balance_with(node);
    if (launched_.is_urgent()) peer.sent_after(to(node).room().given());
    said.first_tag = peer.first_tag = to(node).take_tags(std::max<std::uint64_t>(1, prepared().messages()));
    to(node).tell(bytes_of_head(said), goes.bytes);
    peer.sent_bytes += goes.bytes.size();
    peer.told = true;
    ++told;
  }
  return told;
}

void SpanOperation::agree() {
  const RequestHeader& mine = prepared().request();
  bool common = true, direct = wants_direct(prepared().here());
  for (std::uint32_t node = 0; node < peers_.count(); ++node) {
    const PeerNodes::Node& peer = peers_[node];
    if (!peer.takes_part) continue;
    if (!peer.told || !peer.request) return;
    common = common && peer.request->head.common == mine.common;
    direct = direct || peer.request->head.direct != 0;
  }
  const bool by_pairs = prepared().agrees_by_pairs();
  if (common && peers_.balance()) {
    take(direct && !by_pairs ? Event::kAgreeDirect : Event::kAgree);
    for (std::uint32_t node = 0; node < peers_.count(); ++node) {
      peers_[node].direct = by_pairs ? peers_[node].takes_part && wants_direct(node) : direct;
      if (peers_[node].takes_part && peers_[node].direct)
        to(node).tell(bytes_of_head(head_of<ReadyHeader>(launched_.key)));
    }
    return;
  }
  take(by_pairs ? Event::kFail : Event::kDisagree,  // a pair may have agreed
       failure(Code::kMismatch, "nodes disagree on {}; no data was moved",
               peers_.difference(mine, context_.options.nodes)));
}

std::shared_ptr<SpanOperation> begin_operation(Launched launched, const OperationContext& context) {
  return launched.prepared->pair() != nullptr ? begin_pair_operation(std::move(launched), context)
                                              : begin_row_operation(std::move(launched), context);
}

}  // namespace muster::transport::span
