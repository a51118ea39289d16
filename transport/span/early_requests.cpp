#include "transport/span/early_requests.hpp"

#include <iterator>

namespace muster::transport::span {

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
