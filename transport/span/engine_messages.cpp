#include "transport/span/engine_messages.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <iterator>

namespace muster::transport::span {

void EngineMessages::tell(NodeIndex node, Bytes message) {
  MUSTER_ASSERT(message.size() <= JobLinks::kMessageMax);
  const std::lock_guard lock(mutex_);
  told_.emplace_back(node, message_of(EngineHeader(), message));
  any_told_.store(true, std::memory_order_release);
}

bool EngineMessages::all_told() const {
  return !any_told_.load(std::memory_order_acquire);
}

EngineMessages::Told EngineMessages::take_told() {
  if (all_told()) return {};
  const std::lock_guard lock(mutex_);
  any_told_.store(false, std::memory_order_relaxed);
  return std::exchange(told_, {});
}

void EngineMessages::hear(NodeConnection& from, Bytes message) {
  const Bytes body = message.subspan(sizeof(EngineHeader));
  {
    const std::lock_guard lock(mutex_);
    if (heard_.size() + coming_.size() >= kUntakenMax)
      return from.fail(failure(Code::kNoResource, "its engine says more than this one takes"));
  }
  coming_.push_back({from.peer(), from.generation(), {body.begin(), body.end()}});
}

void EngineMessages::arrive() {
  if (coming_.empty()) return;
  const std::lock_guard lock(mutex_);
  std::move(coming_.begin(), coming_.end(), std::back_inserter(heard_));
  coming_.clear();
}

void EngineMessages::take(const JobLinks::Messages& visit) {
  std::vector<Message> heard;
  {
    const std::lock_guard lock(mutex_);
    heard.swap(heard_);
  }
  for (const Message& each : heard) visit(each.from, each.generation, each.bytes);
}

}  // namespace muster::transport::span
