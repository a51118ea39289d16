#include "transport/span/engine_messages.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <iterator>

namespace muster::transport::span {

void EngineMessages::tell(NodeIndex node, Bytes message) {
  MUSTER_ASSERT(message.size() <= JobLinks::kMessageMax);
  told_.add({node, message_of(HeaderKind::kEngine, message)});
}

void EngineMessages::hear(NodeConnection& from, Bytes message) {
  const Bytes body = message.subspan(sizeof(HeaderKind));
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
