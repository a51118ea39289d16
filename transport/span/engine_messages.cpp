#include "transport/span/engine_messages.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <iterator>

namespace muster::transport::span {

void EngineMessages::say(NodeIndex node, Bytes word) {
  MUSTER_ASSERT(word.size() <= Backend::kEngineWordMax);
  const std::lock_guard lock(mutex_);
  said_.emplace_back(node, message_of(EngineHeader(), word));
  any_said_.store(true, std::memory_order_release);
}

bool EngineMessages::all_said() const {
  return !any_said_.load(std::memory_order_acquire);
}

EngineMessages::Said EngineMessages::take_said() {
  if (all_said()) return {};
  const std::lock_guard lock(mutex_);
  any_said_.store(false, std::memory_order_relaxed);
  return std::exchange(said_, {});
}

void EngineMessages::hear(NodeConnection& from, Bytes message) {
  const Bytes word = message.subspan(sizeof(EngineHeader));
  {
    const std::lock_guard lock(mutex_);
    if (heard_.size() + coming_.size() >= kUntakenMax)
      return from.fail(failure(Code::kNoResource, "its engine says more than this one takes"));
  }
  coming_.push_back({from.peer(), from.generation(), {word.begin(), word.end()}});
}

void EngineMessages::arrive() {
  if (coming_.empty()) return;
  const std::lock_guard lock(mutex_);
  std::move(coming_.begin(), coming_.end(), std::back_inserter(heard_));
  coming_.clear();
}

void EngineMessages::take(const Visit& visit) {
  std::vector<Message> heard;
  {
    const std::lock_guard lock(mutex_);
    heard.swap(heard_);
  }
  for (const Message& word : heard) visit(word.from, word.generation, word.bytes);
}

}  // namespace muster::transport::span
