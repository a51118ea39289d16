#include "daemon/engine/nodes/control_fence.hpp"

#include <algorithm>
#include <cstring>

namespace muster::engine {
namespace {

// Neither is a kind of AgreementMessage or of MissingMembers: these messages have their kind at the same
// place.
constexpr std::uint32_t kAskKind = 0x41534B3F, kAnswerKind = 0x414E5357;

struct FenceMessage {
  std::uint64_t question = 0, reserved = 0;
  std::uint32_t kind = 0, reserved_last = 0;
};
static_assert(sizeof(FenceMessage) == 24);

}  // namespace

void ControlFence::tell(NodeIndex node, std::uint64_t question, std::uint32_t kind) {
  FenceMessage word;
  word.question = question;
  word.kind = kind;
  backend_.tell(node, std::as_bytes(std::span(&word, 1)));
}

std::uint64_t ControlFence::ask(Instant now) {
  Open& open = open_[++asked_];
  open.until = now + kTime;
  for (std::uint32_t n = 0; n < world_.nodes().size(); ++n) {
    const NodeIndex node(n);
    if (node == world_.here() || !is_linked_(node)) continue;
    open.awaited.insert(node);
    tell(node, asked_, kAskKind);
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

bool ControlFence::hear(NodeIndex from, std::span<const std::byte> word) {
  FenceMessage said;
  if (word.size() != sizeof said) return false;
  std::memcpy(&said, word.data(), sizeof said);
  if (said.kind == kAskKind) {
    owed_[from] = {said.question, 0};
  } else if (said.kind == kAnswerKind) {
    for (auto& [question, open] : open_)
      if (question <= said.question) open.awaited.erase(from);
  }
  return said.kind == kAskKind || said.kind == kAnswerKind;
}

void ControlFence::answer() {
  for (auto& [node, owed] : owed_)
    if (++owed.calls > kAnsweredAfter) tell(node, owed.question, kAnswerKind);
  std::erase_if(owed_, [](const auto& each) { return each.second.calls > kAnsweredAfter; });
}

}  // namespace muster::engine
