#include "transport/span/early_requests.hpp"

#include <iterator>
#include <utility>

namespace muster::transport::span {
namespace {

// About what it takes, with its place in the table.
std::uint64_t bytes_of(const EarlyRequests::Request& request) {
  return 2 * sizeof request + request.request.payload.size() + request.refusal.message().size();
}

}  // namespace

Status EarlyRequests::keep(const OperationKey& key, Request request) {
  std::size_t& count = counts_[request.from.value];
  if (count == kMax) return failure(Code::kNoResource, "it is {} operations ahead", kMax);
  if (const Status taken = pieces_.take(bytes_of(request)); !taken.ok())
    return failure(Code::kNoResource, "it is {} operations ahead, and there is no memory for more: {}", count,
                   taken.message());
  ++count;
  requests_[key].push_back(std::move(request));
  return {};
}

void EarlyRequests::leaves(const Request& request) {
  --counts_[request.from.value];
  pieces_.give_back(bytes_of(request));
}

EarlyRequests::Requests EarlyRequests::take(const OperationKey& key) {
  const auto found = requests_.find(key);
  if (found == requests_.end()) return Requests(requests_.get_allocator());
  for (const Request& each : found->second) leaves(each);
  Requests taken = std::move(found->second);
  requests_.erase(found);
  return taken;
}

std::vector<EarlyRequests::Keyed> EarlyRequests::take_ended(std::uint64_t group, std::uint64_t epoch) {
  std::vector<Keyed> taken;
  for (auto each = requests_.begin(); each != requests_.end();) {
    const OperationKey& key = each->first;
    if (key.place.group != group || key.epoch > epoch) {
      ++each;
      continue;
    }
    for (Request& request : each->second) {
      leaves(request);
      taken.emplace_back(key, std::move(request));
    }
    each = requests_.erase(each);
  }
  return taken;
}

void EarlyRequests::forget(NodeIndex node) {
  for (auto each = requests_.begin(); each != requests_.end();) {
    std::erase_if(each->second, [&](const Request& request) {
      if (request.from != node) return false;
      leaves(request);
      return true;
    });
    each = each->second.empty() ? requests_.erase(each) : std::next(each);
  }
}

}  // namespace muster::transport::span
