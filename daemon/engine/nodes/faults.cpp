#include "daemon/engine/nodes/faults.hpp"

#include <algorithm>
#include <utility>

namespace muster::engine {

using Why = scheduler::Epochs::Why;

Status Faults::abort(Session& session, std::uint64_t group, std::string_view reason) {
  MUSTER_ASSIGN_OR_RETURN(const GroupId id, find_group(session.scope(graph_.groups()), group));
  const std::lock_guard lock(lock_);
  const Rank rank = session.options().rank;
  slots_.drain_all(rank);  // starts and resets from before the abort belong to the old epoch
  const scheduler::Cause cause{
      Code::kAborted, static_cast<std::int32_t>(rank.value),
      fmt::format("rank {} aborted group {}{}{}", rank.value, graph_.groups()[id.value].name,
                  reason.empty() ? "" : ": ", reason)};
  // Two faults, one for each path: a rank that gets the abort on the direct path gets it on its lanes too.
  graph_.abort({id}, cause, clock_.now());
  if (direct_pages_ != nullptr) end_direct(id, cause);
  slots_.wake_clients();
  return {};
}

// Ends only the wait of the rank: on the lane, and in the group's epoch in which the rank is. If that has
// ended meanwhile, the rank gets that end, and nothing else ends.
Status Faults::interrupt(Session& session, const shm::InterruptMessage& message) {
  const std::lock_guard lock(lock_);
  const Rank rank = session.options().rank;
  if (message.lane != MUSTER_LANE_NONE && !graph_.lanes()[rank].is_open(message.lane))
    return failure(Code::kBadArgument, "lane {} does not exist", message.lane);
  MUSTER_ASSIGN_OR_RETURN(const GroupId id, find_group(session.scope(graph_.groups()), message.group));
  const std::string& name = graph_.groups()[id.value].name;
  const scheduler::Cause cause{
      Code::kAborted, static_cast<std::int32_t>(rank.value),
      fmt::format("rank {} was interrupted (muster_interrupt) in an operation of group {}", rank.value,
                  name)};
  if (message.lane != MUSTER_LANE_NONE) {
    slots_.drain_all(rank);
    graph_.give_up(rank, message.lane, cause, clock_.now());
    slots_.wake_clients();
  } else if (direct_pages_ != nullptr && message.epoch == direct_pages_->epochs().present(id)) {
    end_direct(id, cause);
  }
  return {};
}

std::optional<std::pair<Rank, std::string>> Faults::take_offender() const {
  const std::lock_guard lock(lock_);
  return slots_.offender();
}

// The rank's departure has ended an epoch already. Members may have arrived in the next epoch since, and
// cannot take that back on the direct path. So the first report of an absence ends that epoch too.
void Faults::absent(Rank rank, const std::string& text) {
  const std::lock_guard lock(lock_);
  if (!told_.world().is_local(rank)) return;
  const bool known = graph_.absences().of(rank) != nullptr;
  graph_.absent(rank, text, clock_.now());
  if (direct_pages_ != nullptr && !known) {
    if (const scheduler::CausePtr gone = graph_.absences().of(rank)) lose_direct(rank, gone);
    refresh_absences();
  }
  slots_.wake_clients();
}

void Faults::expect_all() {
  const std::lock_guard lock(lock_);
  graph_.absences().expect_all();
  refresh_absences();
}

void Faults::attached(Rank rank) {
  if (elsewhere_.begun_again() || elsewhere_.nobody_elsewhere()) begin_run_here();
  const bool first = graph_.attached(rank);
  elsewhere_.set_here(true);
  told_[rank].reset();
  if (direct_pages_ == nullptr) return;
  direct_pages_->reset(rank, first);
  direct_pages_->segments().set_attached(rank, true);
  refresh_absences();
}

void Faults::left(Rank rank, const std::string& text) {
  const scheduler::CausePtr cause = graph_.detached(rank, text, clock_.now(), reason_to_leave(rank));
  if (direct_pages_ != nullptr && cause != nullptr) {
    direct_pages_->segments().set_attached(rank, false);
    lose_direct(rank, cause);
    refresh_absences();
  }
  elsewhere_.set_here(!graph_.absences().nobody());
  begin_run_if_empty();
}

void Faults::begin_run_if_empty() {
  if (elsewhere_.nobody_elsewhere()) begin_run_here();
}

void Faults::begin_run_here() {
  if (!graph_.absences().nobody()) return;
  graph_.begin_run();
  if (direct_pages_ == nullptr) return;
  for (const Rank rank : told_.world().locals()) direct_pages_->epochs().enter(rank);
}

void Faults::missing(GroupId group, Rank rank, const std::string& text) {
  const scheduler::CausePtr cause = graph_.abort(
      {group}, {Code::kPeerLost, static_cast<std::int32_t>(rank.value), text}, clock_.now(), Why::kLoss);
  if (direct_pages_ != nullptr) direct_pages_->epochs().end(group, cause, Why::kLoss);
}

void Faults::end_all(Code code, const std::string& text) {
  for (std::uint32_t g = 0; g < graph_.groups().size(); ++g) {
    const GroupId group(g);
    const scheduler::CausePtr cause = graph_.abort({group}, {code, -1, text}, clock_.now());
    if (direct_pages_ != nullptr) direct_pages_->epochs().end(group, cause, Why::kOther);
  }
}

void Faults::end_direct(GroupId group, scheduler::Cause cause) {
  direct_pages_->epochs().end(group, graph_.new_fault(std::move(cause)), Why::kOther);
}

void Faults::tell(Rank rank, const scheduler::CausePtr& cause) {
  told_[rank] = Told{cause, direct_pages_->records().recorded(rank), slots_.of(rank).starts};
  graph_.heard(rank, cause->fault);
}

void Faults::lose_direct(Rank rank, const scheduler::CausePtr& loss) {
  for (std::uint32_t g = 0; g < graph_.groups().size(); ++g) {
    const auto& ranks = graph_.groups()[g].ranks;
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
      direct_pages_->epochs().end(GroupId(g), loss, Why::kLoss);
  }
}

void Faults::refresh_absences() {
  if (direct_pages_ == nullptr) return;
  for (std::uint32_t g = 0; g < graph_.groups().size(); ++g)
    direct_pages_->epochs().set_absence(GroupId(g), graph_.absences().first_of(graph_.groups()[g].ranks));
}

// A rank leaves because of a failure if it has run and started nothing since it got the cause.
scheduler::CausePtr Faults::reason_to_leave(Rank rank) const {
  const auto& told = told_[rank];
  if (direct_pages_ == nullptr || !told) return nullptr;
  if (direct_pages_->records().recorded(rank) != told->recorded || slots_.of(rank).starts != told->starts)
    return nullptr;
  return told->cause;
}

}  // namespace muster::engine
