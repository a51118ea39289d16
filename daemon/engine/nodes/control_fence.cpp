#include "daemon/engine/nodes/control_fence.hpp"

#include <algorithm>
#include <cstring>

namespace muster::engine {

void ControlFence::tell(NodeIndex node, std::uint64_t question, NodeMessageKind kind) {
  FenceMessage message;
  message.kind = kind;
  message.question = question;
  links_.tell(node, bytes_of_head(message));
}

std::uint64_t ControlFence::ask(Instant now) {
  Open& open = open_[++asked_];
  open.until = now + kTime;
  for (std::uint32_t n = 0; n < world_.nodes().size(); ++n) {
    const NodeIndex node(n);
    if (node == world_.here() || !is_linked_(node)) continue;
    open.awaited.insert(node);
    tell(node, asked_, NodeMessageKind::kQuestion);
  }
  return asked_;
}

bool ControlFence::over(std::uint64_t question, Instant now) {
  const auto open = open_.find(question);
  if (open == open_.end()) return true;
  std::erase_if(open->second.awaited, [this](NodeIndex node) { return !is_linked_(node); });
  if (!open->second.awaited.empty() && now < open->second.until) return false;
  open_.erase(open);
  return true;
}

void ControlFence::hear(NodeIndex from, std::span<const std::byte> message) {
  const auto said = read_message<FenceMessage>(message);
  if (!said) return;
  if (said->kind == NodeMessageKind::kQuestion) {
    owed_[from] = {said->question, 0};
  } else {
    for (auto& [question, open] : open_)
      if (question <= said->question) open.awaited.erase(from);
  }
}

void ControlFence::answer() {
  for (auto& [node, owed] : owed_)
    if (++owed.calls > kAnsweredAfter) tell(node, owed.question, NodeMessageKind::kAnswer);
  std::erase_if(owed_, [](const auto& each) { return each.second.calls > kAnsweredAfter; });
}

}  // namespace muster::engine
