#include "scheduler/run/absences.hpp"

#include <algorithm>
#include <utility>

namespace muster::scheduler {

bool Absences::attached(Rank rank) {
  State& state = ranks_[rank];
  if (state.absence != nullptr) --known_;
  const bool first = !state.came;
  state = {true, true, nullptr, nullptr};
  return first;
}

void Absences::left(Rank rank, const CausePtr& because) {
  State& state = ranks_[rank];
  state.attached = false;
  if (because != nullptr) {
    state.left_by = because;
    if (state.absence != nullptr) state.absence = because;
  }
  if (nobody()) forget();
}

bool Absences::nobody() const {
  return std::none_of(ranks_.begin(), ranks_.end(), [](const State& rank) { return rank.attached; });
}

void Absences::begin_run() {
  for (State& state : ranks_) state.came = false;
}

void Absences::add(Rank rank, CausePtr cause) {
  ranks_[rank].absence = std::move(cause);
  ++known_;
}

Cause Absences::reason(Rank rank, const std::string& text) const {
  const CausePtr& left_by = ranks_[rank].left_by;
  return left_by != nullptr ? *left_by : Cause{Code::kPeerLost, static_cast<std::int32_t>(rank.value), text};
}

void Absences::expect_all() {
  for (State& state : ranks_) state.left_by = nullptr;
  forget();
}

void Absences::forget() {
  for (State& state : ranks_) state.absence = nullptr;
  known_ = 0;
}

CausePtr Absences::of(Rank rank) const {
  const State& state = ranks_[rank];
  return state.attached ? nullptr : state.absence;
}

CausePtr Absences::first_of(std::span<const Rank> ranks) const {
  CausePtr first;
  if (known_ == 0) return first;
  for (const Rank rank : ranks) {
    if (!ranks_.world().is_local(rank)) continue;
    CausePtr cause = of(rank);
    if (cause != nullptr && (first == nullptr || cause->fault < first->fault)) first = std::move(cause);
  }
  return first;
}

}  // namespace muster::scheduler
