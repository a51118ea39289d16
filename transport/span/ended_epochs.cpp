#include "transport/span/ended_epochs.hpp"

#include <algorithm>

namespace muster::transport::span {
namespace {

bool has_node(const Span& span, NodeIndex node) {
  return std::find(span.nodes.begin(), span.nodes.end(), node) != span.nodes.end();
}

}  // namespace

const EpochEnd* EndedEpochs::find(std::uint64_t group, std::uint64_t epoch) const {
  const auto known = ended_.find(group);
  return known != ended_.end() && epoch <= known->second.epoch ? &known->second : nullptr;
}

bool EndedEpochs::add(const EpochEnd& end) {
  if (find(end.group, end.epoch) != nullptr) return false;
  ended_[end.group] = end;
  return true;
}

void EndedEpochs::hear(NodeIndex from, Bytes message, const SpanGroups& groups) {
  const auto end = read_end(message);
  if (!end) return;
  if (const auto span = groups.span_of(end->group)) {
    if (!has_node(*span, from)) return;
  } else if (!ended_.contains(end->group) && ended_.size() >= kUnknownGroupsMax) {
    return;
  }
  if (find(end->group, end->epoch) == nullptr) told_.emplace_back(*end, from);
}

void EndedEpochs::tell_all(NodeConnection& to, const SpanGroups& groups) const {
  for (const auto& [group, end] : ended_) {
    const auto span = groups.span_of(group);
    if (span == nullptr || has_node(*span, to.peer())) to.tell(message_of_end(end));
  }
}

void EndedEpochs::done(const OperationKey& operation, bool is_exchange) {
  std::uint64_t& latest = done_[operation.place.group];
  latest = std::max(latest, operation.epoch);
  if (!is_exchange) return;
  auto& exchanged = exchanged_[operation.place];
  exchanged = std::max(exchanged, std::pair(operation.epoch, operation.number));
}

bool EndedEpochs::was_done_in(std::uint64_t group, std::uint64_t epoch) const {
  const auto latest = done_.find(group);
  return latest != done_.end() && latest->second == epoch;
}

bool EndedEpochs::was_exchange(const OperationKey& operation) const {
  const auto latest = exchanged_.find(operation.place);
  return latest != exchanged_.end() && latest->second.first == operation.epoch &&
         operation.number <= latest->second.second;
}

}  // namespace muster::transport::span
