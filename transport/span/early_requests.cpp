#include "transport/span/early_requests.hpp"

#include <iterator>
#include <utility>

namespace muster::transport::span {

void hand_over(SpanOperation& operation, EarlyRequest request) {
  const auto node = operation.peers().place_of(request.from);
  if (!node) return;  // no node of that group
  if (!request.refusal.ok()) return operation.refused(*node, request.refusal, request.standing);
  operation.peers().came(*node, std::move(request.request));
}

std::optional<KeyedRequest> read_request(NodeIndex from, Bytes message) {
  const auto head = read_head<RequestHeader>(message);
  if (!head) return std::nullopt;
  const Bytes payload = message.subspan(sizeof *head);
  return KeyedRequest(key_of(*head), {from, {*head, {payload.begin(), payload.end()}}});
}

std::optional<KeyedRequest> read_refusal(NodeIndex from, Bytes message) {
  const auto head = read_head<RefusalHeader>(message);
  if (!head || head->code >= 0 || !is_known(head->code) || head->standing > Standing::kGone)
    return std::nullopt;
  const Status why(static_cast<Code>(head->code), text_of_bytes(message.subspan(sizeof *head)),
                   head->culprit);
  return KeyedRequest(key_of(*head), {from, {}, why, head->standing});
}

bool EarlyRequests::keep(const OperationKey& key, EarlyRequest request) {
  std::size_t& count = counts_[request.from.value];
  if (count == kMax) return false;
  ++count;
  requests_[key].push_back(std::move(request));
  return true;
}

std::vector<EarlyRequest> EarlyRequests::take(const OperationKey& key) {
  auto taken = requests_.extract(key);
  if (taken.empty()) return {};
  for (const EarlyRequest& each : taken.mapped()) --counts_[each.from.value];
  return std::move(taken.mapped());
}

EarlyRequests::Keyed EarlyRequests::take_ended(std::uint64_t group, std::uint64_t epoch) {
  Keyed taken;
  for (auto each = requests_.begin(); each != requests_.end();) {
    const OperationKey& key = each->first;
    if (key.place.group != group || key.epoch > epoch) {
      ++each;
      continue;
    }
    for (EarlyRequest& request : each->second) {
      --counts_[request.from.value];
      taken.emplace_back(key, std::move(request));
    }
    each = requests_.erase(each);
  }
  return taken;
}

void EarlyRequests::forget(NodeIndex node) {
  for (auto each = requests_.begin(); each != requests_.end();) {
    std::erase_if(each->second, [&](const EarlyRequest& request) { return request.from == node; });
    each = each->second.empty() ? requests_.erase(each) : std::next(each);
  }
  counts_[node.value] = 0;
}

}  // namespace muster::transport::span
