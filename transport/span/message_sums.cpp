#include "transport/span/message_sums.hpp"

namespace muster::transport::span {

std::optional<bool> MessageSums::came(MessageTag tag, WireSum sum, Flow& flow) {
  const auto found = said_.find(tag);
  if (found == said_.end()) {
    if (waiting_.try_emplace(tag, Waiting{sum, &flow}).second) return std::nullopt;
    return false;
  }
  const bool is_right = found->second == sum;
  said_.erase(found);
  while (!order_.empty() && !said_.contains(order_.front())) order_.pop_front();
  return is_right;
}

std::optional<std::pair<Flow*, bool>> MessageSums::said(MessageTag tag, WireSum sum) {
  if (const auto found = waiting_.find(tag); found != waiting_.end()) {
    const Waiting waited = found->second;
    waiting_.erase(found);
    return std::pair(waited.flow, waited.sum == sum);
  }
  if (said_.insert_or_assign(tag, sum).second) order_.push_back(tag);
  if (order_.size() > kMax) {
    said_.erase(order_.front());
    order_.pop_front();
  }
  return std::nullopt;
}

Flow* MessageSums::give_up_one() {
  if (waiting_.empty()) return nullptr;
  Flow* const flow = waiting_.begin()->second.flow;
  waiting_.erase(waiting_.begin());
  return flow;
}

}  // namespace muster::transport::span
