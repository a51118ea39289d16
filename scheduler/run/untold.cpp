#include "scheduler/run/untold.hpp"

#include <algorithm>

namespace muster::scheduler {
namespace {

bool is_loss(const Verdict& verdict) {
  return verdict.code == Code::kPeerLost;
}

}  // namespace

void Untold::add(const Verdict& verdict) {
  if (has(verdict.event)) return;
  std::erase_if(failures_, [&](const Failure& f) {
    return is_loss(f.verdict) == is_loss(verdict) &&
           (!is_loss(verdict) || f.verdict.culprit == verdict.culprit);
  });
  failures_.push_back({verdict, std::vector<bool>(members_)});
}

bool Untold::has(std::uint64_t event) const {
  return std::any_of(failures_.begin(), failures_.end(),
                     [&](const Failure& f) { return f.verdict.event == event; });
}

bool Untold::any(std::size_t member) const {
  return std::any_of(failures_.begin(), failures_.end(), [&](const Failure& f) { return !f.told[member]; });
}

std::optional<Verdict> Untold::take(std::size_t member) {
  Failure* next = nullptr;
  for (Failure& failure : failures_) {
    const bool before = next == nullptr || (is_loss(failure.verdict) && !is_loss(next->verdict));
    if (!failure.told[member] && before) next = &failure;
  }
  if (next == nullptr) return std::nullopt;
  tell(*next, member);
  return next->verdict;
}

// It has known for a while: what came after that it has to hear of.
void Untold::told(std::size_t member, std::uint64_t event) {
  const auto known = std::find_if(failures_.begin(), failures_.end(), [&](const Failure& f) {
    return f.verdict.event == event && !f.told[member];
  });
  if (known == failures_.end()) return;
  known->told[member] = true;
  if (!is_loss(known->verdict)) return;
  for (Failure& other : failures_)
    if (!is_loss(other.verdict) && other.verdict.event < event) other.told[member] = true;
}

void Untold::told_all(std::size_t member) {
  for (Failure& failure : failures_) failure.told[member] = true;
}

void Untold::tell(Failure& failure, std::size_t member) {
  failure.told[member] = true;
  if (!is_loss(failure.verdict)) return;
  for (Failure& other : failures_)
    if (!is_loss(other.verdict)) other.told[member] = true;
}

}  // namespace muster::scheduler
