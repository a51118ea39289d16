#include "scheduler/run/untold.hpp"

#include <algorithm>

namespace muster::scheduler {
namespace {

bool is_loss(const Verdict& verdict) {
  return verdict.code == Code::kPeerLost;
}

}  // namespace

void Untold::add(const Verdict& verdict, std::uint64_t now) {
  if (has(verdict.event)) return;
  std::erase_if(failures_, [&](const Failure& f) {
    return is_loss(f.verdict) == is_loss(verdict) &&
           (!is_loss(verdict) || f.verdict.culprit == verdict.culprit);
  });
  failures_.push_back({verdict, now, std::vector<std::uint64_t>(members_, kAll)});
}

bool Untold::has(std::uint64_t event) const {
  return std::any_of(failures_.begin(), failures_.end(),
                     [&](const Failure& f) { return f.verdict.event == event; });
}

bool Untold::settled(std::size_t member, std::uint64_t event, std::uint64_t submission) const {
  return std::any_of(failures_.begin(), failures_.end(), [&](const Failure& f) {
    return f.verdict.event == event && f.owed[member] < submission;
  });
}

bool Untold::any(std::size_t member, std::uint64_t submission) const {
  return std::any_of(failures_.begin(), failures_.end(),
                     [&](const Failure& f) { return submission <= f.owed[member]; });
}

std::optional<Verdict> Untold::take(std::size_t member, std::uint64_t submission, std::uint64_t now) {
  Failure* next = nullptr;
  for (Failure& failure : failures_) {
    const bool before = next == nullptr || (is_loss(failure.verdict) && !is_loss(next->verdict));
    if (submission <= failure.owed[member] && before) next = &failure;
  }
  if (next == nullptr) return std::nullopt;
  next->owed[member] = std::min(next->owed[member], now);
  if (is_loss(next->verdict))
    for (Failure& other : failures_)
      if (!is_loss(other.verdict)) other.owed[member] = std::min(other.owed[member], now);
  return next->verdict;
}

// It has known for a while: what came after that, or came here after that, it has to hear of. Where nothing
// was submitted in between, nobody knows which was first, and it hears once more.
void Untold::told(std::size_t member, std::uint64_t event, std::uint64_t now) {
  const auto known = std::find_if(failures_.begin(), failures_.end(), [&](const Failure& f) {
    return f.verdict.event == event && f.owed[member] > now;
  });
  if (known == failures_.end()) return;
  known->owed[member] = now;
  if (!is_loss(known->verdict)) return;
  for (Failure& other : failures_)
    if (!is_loss(other.verdict) && other.verdict.event < event && other.since < now)
      other.owed[member] = std::min(other.owed[member], now);
}

void Untold::told_all(std::size_t member) {
  for (Failure& failure : failures_) failure.owed[member] = 0;
}

}  // namespace muster::scheduler
