#include "scheduler/run/epochs.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <utility>

namespace muster::scheduler {

bool Epochs::end(CausePtr cause, Why why) {
  if (ended_by(cause->fault)) return false;
  if (ends_.size() == kCausesKept) ends_.erase(ends_.begin());
  ends_.push_back({std::move(cause), why});
  ++present_;
  return true;
}

void Epochs::skip_to(std::uint64_t epoch) {
  MUSTER_ASSERT(!ends_.empty());
  if (epoch <= present_) return;
  const std::uint64_t missed = epoch - present_;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(missed, kCausesKept); ++i) {
    if (ends_.size() == kCausesKept) ends_.erase(ends_.begin());
    ends_.push_back(ends_.back());
  }
  present_ = epoch;
}

bool Epochs::ended_by(std::uint64_t fault) const {
  return std::any_of(ends_.begin(), ends_.end(), [&](const End& end) { return end.cause->fault == fault; });
}

const Epochs::End& Epochs::end_of(std::uint64_t epoch) const {
  MUSTER_ASSERT(epoch < present_ && !ends_.empty());
  return ends_[static_cast<std::size_t>(std::max(epoch, oldest()) - oldest())];
}

const CausePtr& Epochs::cause_of(std::uint64_t epoch) const {
  return end_of(epoch).cause;
}

std::uint64_t Epochs::after(std::uint64_t epoch, std::uint64_t fault) const {
  std::uint64_t stands = epoch;
  while (stands < present_) {
    const End& end = end_of(stands);
    if (end.why == Why::kLoss && end.cause->fault != fault) break;
    stands = std::max(stands, oldest()) + 1;
  }
  return stands;
}

bool Epochs::ended_since(std::uint64_t epoch, std::uint64_t fault) const {
  for (std::uint64_t each = std::max(epoch, oldest()); each < present_; ++each)
    if (end_of(each).cause->fault == fault) return true;
  return false;
}

bool Epochs::Member::move_on(const Epochs& epochs, std::uint64_t fault) {
  if (!epochs.has_ended(epoch_)) return false;
  const std::uint64_t before = epoch_;
  epoch_ = late_ ? before + 1 : epochs.after(before, fault);
  late_ = late_ && epochs.has_ended(epoch_);
  return epoch_ != before;
}

bool Epochs::Member::hear(const Epochs& epochs, std::uint64_t fault) {
  if (!epochs.ended_since(epoch_, fault)) return false;
  if (late_ && epochs.cause_of(epoch_)->fault != fault) return false;
  return move_on(epochs, fault);
}

}  // namespace muster::scheduler
