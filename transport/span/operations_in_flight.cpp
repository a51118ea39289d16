#include "transport/span/operations_in_flight.hpp"

#include "transport/span/span_groups.hpp"

#include <algorithm>
#include <utility>

namespace muster::transport::span {
namespace {

// Nothing: the message is malformed.
std::optional<EarlyRequests::Keyed> read_refusal(NodeIndex from, Bytes message) {
  const auto head = read_head<RefusalHeader>(message);
  if (!head || head->code >= 0 || !is_known(head->code) || head->standing > Standing::kGone)
    return std::nullopt;
  const Status why(static_cast<Code>(head->code), text_of_bytes(message.subspan(sizeof *head)),
                   head->culprit);
  return EarlyRequests::Keyed(key_of(*head), {from, {}, why, head->standing});
}

// The operation is here, or was, as an EXCHANGE in which no member of this node has a face with that one.
std::vector<std::byte> no_face(const OperationKey& key, NodeIndex with, const SpanningOptions& options) {
  const auto name = [&](NodeIndex node) { return options.nodes[node.value]; };
  return refusal_of(key,
                    failure(Code::kMismatch,
                            "nodes disagree on their faces: node {} has one with node {}, which "
                            "has none with it in this exchange; no data was moved",
                            name(with), name(options.here)),
                    Standing::kGone);
}

}  // namespace

SpanOperation* OperationsInFlight::find(const OperationKey& key) const {
  for (const auto& each : operations_)
    if (!each->is_past() && each->launched().key == key) return each.get();
  return nullptr;
}

SpanOperation* OperationsInFlight::find(const StepOutcome& outcome) const {
  for (const auto& each : operations_)
    if (!each->over() && each->launched().outcome == &outcome) return each.get();
  return nullptr;
}

void OperationsInFlight::begin(Launched launched) {
  const auto key = launched.key;
  const auto at = launched.is_urgent() ? operations_.begin() : operations_.end();
  SpanOperation& begun = **operations_.insert(at, begin_operation(std::move(launched), context_));
  if (const EpochEnd* const end = ended_.find(key.place.group, key.epoch)) return begun.fail(cause_of(*end));
  for (EarlyRequests::Request& each : early_.take(key)) hand_over(begun, std::move(each));
}

void OperationsInFlight::cancel(const StepOutcome& outcome) {
  if (SpanOperation* const operation = find(outcome))
    operation->fail(failure(Code::kTimeout, "it has passed its deadline"));
}

bool OperationsInFlight::request(NodeConnection& from, Bytes message) {
  const auto head = read_head<RequestHeader>(message);
  if (!head) return true;
  const OperationKey key = key_of(*head);
  const Bytes payload = message.subspan(sizeof *head);
  PeerNodes::Request request{*head, {payload.begin(), payload.end(), context_.memory}};
  SpanOperation* const operation = find(key);
  const EpochEnd* const end = ended_.find(key.place.group, key.epoch);
  const bool too_late = end != nullptr && !(operation && operation->waits());
  if (too_late) {
    from.tell(refusal_of(key, cause_of(*end), Standing::kGone));
    from.tell(message_of_end(*end));
  }
  if (operation == nullptr) return too_late ? false : keep(key, {from.peer(), std::move(request)});
  if (const auto node = operation->prepared().find(from.peer()))
    operation->peers().came(*node, std::move(request));
  else if (!too_late)
    from.tell(no_face(key, from.peer(), context_.options));
  return !too_late;
}

// The message is of no use to an operation that this node has given up before it agreed.
bool OperationsInFlight::ready_came(NodeConnection& from, Bytes message) {
  const auto head = read_head<ReadyHeader>(message);
  if (!head) return true;
  SpanOperation* const operation = find(key_of(*head));
  if (operation == nullptr) return false;
  if (const auto node = operation->prepared().find(from.peer())) operation->peers()[*node].say_ready();
  return true;
}

// An operation that has agreed goes on after the end of its epoch, unless a node refuses it.
bool OperationsInFlight::refusal(NodeConnection& from, Bytes message) {
  auto read = read_refusal(from.peer(), message);
  if (!read) return true;
  const OperationKey& key = read->first;
  const EpochEnd* const end = ended_.find(key.place.group, key.epoch);
  if (end == nullptr || find(key)) return keep(key, std::move(read->second));
  if (read->second.asks()) from.tell(refusal_of(key, cause_of(*end), Standing::kGone));
  return false;
}

// A node that takes no part here, but expects to, is told so.
void OperationsInFlight::hand_over(SpanOperation& operation, EarlyRequests::Request request) {
  const auto node = operation.prepared().find(request.from);
  if (node && request.refusal.ok()) return operation.peers().came(*node, std::move(request.request));
  if (node) return operation.refused(*node, request.refusal, request.standing);
  if (request.asks())
    context_.connection_to(request.from)
        .tell(no_face(operation.launched().key, request.from, context_.options));
}

// Messages of it may still be on their way.
bool OperationsInFlight::is_past_without(NodeIndex node, const OperationKey& key) const {
  return std::any_of(operations_.begin(), operations_.end(), [&](const auto& each) {
    return each->is_past() && each->launched().key == key && !each->prepared().find(node);
  });
}

bool OperationsInFlight::keep(const OperationKey& key, EarlyRequests::Request request) {
  const NodeIndex from = request.from;
  if (SpanOperation* const operation = find(key)) {
    hand_over(*operation, std::move(request));
  } else if (ended_.was_exchange(key) || is_past_without(from, key)) {
    if (request.asks()) context_.connection_to(from).tell(no_face(key, from, context_.options));
  } else if (const Status kept = early_.keep(key, std::move(request)); !kept.ok()) {
    context_.connection_to(from).fail(kept);
  }
  return true;
}

void OperationsInFlight::lost(NodeIndex node) {
  for (auto& each : operations_) {
    const auto peer = each->prepared().find(node);
    if (!peer) continue;
    each->peers()[*peer].lost = true;
    each->fail(context_.connection_to(node).status());
  }
}

bool OperationsInFlight::end(const EpochEnd& end, NodeIndex teller) {
  if (!ended_.add(end)) return false;
  const Status why = cause_of(end);
  for (auto& each : operations_) {
    const OperationKey& key = each->launched().key;
    if (key.place.group != end.group || key.epoch > end.epoch) continue;
    if (each->waits() && !each->peers().has_come(teller)) each->fail(why);
  }
  for (const auto& [key, early] : early_.take_ended(end.group, end.epoch))
    if (early.asks()) context_.connection_to(early.from).tell(refusal_of(key, why, Standing::kGone));
  return true;
}

std::size_t OperationsInFlight::advance() {
  std::size_t moved = 0;
  for (auto& each : operations_) moved += each->advance();
  return moved;
}

void OperationsInFlight::forget_past() {
  std::erase_if(operations_, [this](const auto& each) {
    if (!each->is_past() || !each->quiet()) return false;
    const Launched& launched = each->launched();
    if (each->agreed()) ended_.done(launched.key, launched.prepared->collective().op == MUSTER_EXCHANGE);
    launched.prepared->traffic().ended(each->peers().bulk_ahead(), each->peers().sent_bytes());
    return true;
  });
}

std::vector<std::uint32_t> OperationsInFlight::awaited(const StepOutcome& outcome) const {
  SpanOperation* const operation = find(outcome);
  return operation == nullptr ? std::vector<std::uint32_t>() : operation->peers().awaited();
}

std::optional<Instant> OperationsInFlight::moved_at(const StepOutcome& outcome) const {
  const SpanOperation* const operation = find(outcome);
  return operation == nullptr ? std::nullopt : operation->moved_at();
}

bool OperationsInFlight::in_use(std::uint64_t group, std::uint64_t epoch) const {
  return ended_.was_done_in(group, epoch) ||
         std::any_of(operations_.begin(), operations_.end(), [&](const auto& operation) {
           const OperationKey& key = operation->launched().key;
           return key.place.group == group && key.epoch == epoch && operation->agreed();
         });
}

}  // namespace muster::transport::span
