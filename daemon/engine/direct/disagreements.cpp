#include "daemon/engine/direct/disagreements.hpp"

namespace muster::engine {

// Both sides of a pair must find the same entry.
Disagreements::Found Disagreements::about(const DirectQuestion& q) {
  Found d{q.position, 0, 0, {}};
  if (q.kind == shm::DirectWait::kMessage) {
    d.sender = q.peer;
    d.receiver = q.index;
  } else if (q.kind == shm::DirectWait::kReceived) {
    d.sender = q.index;
    d.receiver = q.peer;
  }
  return d;
}

const Status* Disagreements::find(const DirectQuestion& q) const {
  const Found asked = about(q);
  for (const Found& known : groups_[q.group.value])
    if (known.position == asked.position && known.sender == asked.sender && known.receiver == asked.receiver)
      return &known.what;
  return nullptr;
}

void Disagreements::remember(const DirectQuestion& q, const Status& what) {
  auto& kept = groups_[q.group.value];
  kept.push_back(about(q));
  kept.back().what = what;
  if (kept.size() > kKept) kept.erase(kept.begin());
}

}  // namespace muster::engine
