// The engine's part in the direct path: memory for those who meet, and causes for those who do not.
#include "api/base/signature.hpp"
#include "api/base/words.hpp"
#include "daemon/engine/engine.hpp"

#include <algorithm>

namespace muster::engine {

// ---- memory ------------------------------------------------------------------------------------

Result<std::vector<shm::DirectMember>> Engine::direct_group(const Session& session, std::uint64_t group,
                                                            shm::DirectGroupAnswer* answer) {
  if (!board_) return fail(Code::kUnsupported, "the job's device has no direct path");
  MUSTER_ASSIGN_OR_RETURN(const GroupId id, find_group(scope(session), group));
  const auto& ranks = graph_->groups()[id.value].ranks;
  const auto member = std::find(ranks.begin(), ranks.end(), session.options().rank);
  if (member == ranks.end())
    return fail(Code::kBadArgument, "rank {} is not a member of group {}", session.options().rank.value,
                graph_->groups()[id.value].name);
  answer->line = id.value;
  answer->index = static_cast<std::uint32_t>(member - ranks.begin());
  answer->members = static_cast<std::uint32_t>(ranks.size());
  answer->first_epoch = board_->epochs().first(id);
  answer->epoch = board_->epochs().present(id);
  answer->base = board_->epochs().base(id);
  return board_->segments().members(id);
}

Result<shm::Descriptor> Engine::peer_segment(std::int32_t rank, std::uint64_t* bytes) {
  if (!board_) return fail(Code::kUnsupported, "the job's device has no direct path");
  if (rank < 0 || static_cast<std::uint32_t>(rank) >= spec_.world)
    return fail(Code::kBadArgument, "rank {} is not in 0..{}", rank, spec_.world - 1);
  const Rank peer(static_cast<std::uint32_t>(rank));
  *bytes = board_->segments().bytes(peer);
  return read_only(board_->segments().descriptor(peer));
}

Result<shm::Descriptor> Engine::peer_arena(std::int32_t rank, std::uint32_t segment, std::uint64_t* bytes) {
  if (!board_) return fail(Code::kUnsupported, "the job's device has no direct path");
  if (rank < 0 || static_cast<std::uint32_t>(rank) >= spec_.world)
    return fail(Code::kBadArgument, "rank {} is not in 0..{}", rank, spec_.world - 1);
  const Arena& arena = *seats_[static_cast<std::uint32_t>(rank)].arena;
  const device::Memory* memory = arena.segment(segment);
  if (memory == nullptr)
    return fail(Code::kBadArgument, "the arena of rank {} has had {} segments, {} is none or gone", rank,
                arena.segment_count(), segment);
  *bytes = memory->bytes();
  return read_only(memory->descriptor());
}

// ---- epochs ------------------------------------------------------------------------------------

void Engine::end_direct(Rank rank, const scheduler::CausePtr& loss) {
  for (std::uint32_t g = 0; g < graph_->groups().size(); ++g) {
    const auto& ranks = graph_->groups()[g].ranks;
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end())
      board_->epochs().end(GroupId(g), loss, scheduler::Epochs::Why::kLoss);
  }
}

// Which groups nobody may run in, because a member will not come.
void Engine::refresh_absences() {
  for (std::uint32_t g = 0; g < graph_->groups().size(); ++g)
    board_->epochs().set_absence(GroupId(g), graph_->absences().first_of(graph_->groups()[g].ranks));
}

// A rank that was told of a failure and has run and started nothing anywhere since then leaves because of it.
scheduler::CausePtr Engine::heard_direct(Rank rank) const {
  const Seat& seat = seats_[rank.value];
  if (!board_ || !seat.heard) return nullptr;
  if (board_->records().recorded(rank) != seat.heard->recorded || seat.starts != seat.heard->starts)
    return nullptr;
  return seat.heard->cause;
}

Result<DirectQuestion> Engine::question(const Session& session, const shm::DirectMessage& message) const {
  if (!board_) return fail(Code::kUnsupported, "the job's device has no direct path");
  MUSTER_ASSIGN_OR_RETURN(const GroupId id, find_group(scope(session), message.group));
  const auto& ranks = graph_->groups()[id.value].ranks;
  const auto member = std::find(ranks.begin(), ranks.end(), session.options().rank);
  const bool sound = member != ranks.end() &&
                     message.kind <= static_cast<std::uint32_t>(shm::DirectWait::kReceived) &&
                     message.peer < ranks.size();
  if (!sound)
    return fail(Code::kBadArgument, "rank {} asks about kind {} and peer {} of group {}: there are no such",
                session.options().rank.value, message.kind, message.peer, graph_->groups()[id.value].name);
  return DirectQuestion{id,
                        static_cast<std::uint32_t>(member - ranks.begin()),
                        message.epoch,
                        message.position,
                        message.phase,
                        static_cast<shm::DirectWait>(message.kind),
                        message.peer};
}

Result<shm::DirectEndAnswer> Engine::direct_end(Session& session, const shm::DirectMessage& message,
                                                std::string* text) {
  const std::lock_guard lock(baton_);
  MUSTER_ASSIGN_OR_RETURN(const DirectQuestion q, question(session, message));
  const scheduler::CausePtr cause = board_->epochs().cause_of(q.group, q.epoch);
  if (cause == nullptr)
    return fail(Code::kState, "group {} is in epoch {} and has no failure to tell of",
                graph_->groups()[q.group.value].name, board_->epochs().present(q.group));
  const Rank rank = session.options().rank;
  Seat& seat = seats_[rank.value];
  drain_all(seat);  // what it has started before it heard
  seat.heard = Seat::Heard{cause, board_->records().recorded(rank), seat.starts};
  graph_->heard(rank, cause->fault);
  shm::DirectEndAnswer answer;
  answer.code = static_cast<std::int32_t>(cause->code);
  answer.culprit = cause->culprit;
  answer.epoch = board_->epochs().epoch_after(q.group, q.epoch);
  answer.base = answer.epoch == board_->epochs().present(q.group) ? board_->epochs().base(q.group) : 0;
  *text = cause->text;
  return answer;
}

std::string Engine::direct_label(const Session& session, std::uint64_t plan) const {
  const scheduler::Plan* found = session.plans().find(Handle(plan));
  return found != nullptr ? found->label() : "an operation";
}

Status Engine::direct_overdue(Session& session, const shm::DirectMessage& message) {
  const std::lock_guard lock(baton_);
  MUSTER_ASSIGN_OR_RETURN(const DirectQuestion q, question(session, message));
  if (q.epoch != board_->epochs().present(q.group)) return {};
  const std::vector<std::uint32_t> indices = board_->records().missing(q);
  if (indices.empty()) return {};
  const scheduler::Group& group = graph_->groups()[q.group.value];
  std::vector<std::uint32_t> ranks;
  for (const std::uint32_t index : indices) ranks.push_back(group.ranks[index].value);
  const char* where = q.kind == shm::DirectWait::kPhase ? ", having come to it" : "";
  scheduler::Cause cause{Code::kTimeout, static_cast<std::int32_t>(ranks.front()),
                         fmt::format("group {}: {} (run directly) passed its deadline; missing rank{} {}{}",
                                     group.name, direct_label(session, message.plan),
                                     ranks.size() == 1 ? "" : "s", rank_list(ranks), where)};
  const std::vector<RankFacts> facts = rank_facts();
  blame::Situation all = situation(facts, clock_.now());
  if (const auto about = wait_run_by(all, q.group, session.options().rank.value))
    explain(cause, std::move(all), facts, *about);
  board_->epochs().end(q.group, graph_->new_fault(std::move(cause)), scheduler::Epochs::Why::kOther);
  return {};
}

// Of the lane only what waits, of the group only the epoch in which the rank is: what has ended otherwise
// meanwhile is told as that, and nothing else is ended in its place.
Status Engine::interrupted(Session& session, const shm::InterruptMessage& message) {
  if (message.lane > MUSTER_LANE_COUNT)
    return failure(Code::kBadArgument, "lane {} is not in 0..{}", message.lane, MUSTER_LANE_COUNT);
  const std::lock_guard lock(baton_);
  const Rank rank = session.options().rank;
  MUSTER_ASSIGN_OR_RETURN(const GroupId id, find_group(scope(session), message.group));
  const std::string& name = graph_->groups()[id.value].name;
  const scheduler::Cause cause{
      Code::kAborted, static_cast<std::int32_t>(rank.value),
      fmt::format("rank {} was interrupted (muster_interrupt) in an operation of group {}", rank.value,
                  name)};
  if (message.lane < MUSTER_LANE_COUNT) {
    drain_all(seats_[rank.value]);
    graph_->give_up(rank, message.lane, cause, clock_.now());
    wake_clients();
  } else if (board_ && message.epoch == board_->epochs().present(id)) {
    board_->epochs().end(id, graph_->new_fault(cause), scheduler::Epochs::Why::kOther);
  }
  return {};
}

// Takes over what the ranks have recorded of themselves since the last time. A new client counts from 1
// again.
void Engine::trace_direct() {
  for (std::uint32_t rank = 0; rank < spec_.world; ++rank) {
    const std::uint64_t latest = board_->records().recorded(Rank(rank));
    if (latest < traced_[rank]) traced_[rank] = 0;
    bool open = false;
    // What is passed over is lost, and lost once.
    const auto pass_to = [&](std::uint64_t index) {
      trace_.missed(index - traced_[rank]);
      traced_[rank] = index;
    };
    for (const DirectRecords::Flight& flight : board_->records().flights(Rank(rank), traced_[rank])) {
      pass_to(flight.index - 1);
      open = flight.state == shm::RecordState::kOpen;
      if (open) break;  // the latest: it is taken once it is over
      traced_[rank] = flight.index;
      if (!flight.ended) continue;  // begun before the trace
      scheduler::TraceEvent event;
      event.begin = flight.begun;
      event.end = std::max(*flight.ended, flight.begun);
      event.label = op_name(flight.what.op);
      event.rank = Rank(rank);
      event.lane = scheduler::kDirectTrack;
      event.group = flight.group.value;
      event.in_group = true;
      event.value = flight.number;
      event.bytes = flight.target_bytes;
      trace_.add(event);
    }
    if (!open && latest > traced_[rank]) pass_to(latest);
  }
}

Status Engine::direct_disagree(Session& session, const shm::DirectMessage& message) {
  const std::lock_guard lock(baton_);
  MUSTER_ASSIGN_OR_RETURN(const DirectQuestion q, question(session, message));
  if (const Status* known = board_->disagreements().find(q)) return *known;
  const scheduler::Group& group = graph_->groups()[q.group.value];
  for (const Rank rank : group.ranks) {
    Seat& seat = seats_[rank.value];
    if (!seat.session) continue;
    drain_all(seat);
    // Each member tells the engine the counts of its plans before it asks.
    if (board_->records().untold(rank) && seat.session)
      return failure(Code::kBusy, "rank {} has not told its new counts yet; ask again", rank.value);
  }
  std::vector<Party> parties(group.ranks.size());
  for (std::uint32_t i = 0; i < parties.size(); ++i) {
    const Session* member = seats_[group.ranks[i].value].session.get();
    const scheduler::Plan* plan =
        member != nullptr ? member->plans().find(Handle(board_->records().plan_of(q, i))) : nullptr;
    const scheduler::CollectiveWork* work = plan != nullptr ? plan->collective() : nullptr;
    parties[i].rank = static_cast<std::int32_t>(group.ranks[i].value);
    if (work == nullptr || work->group != q.group) continue;
    parties[i].collective = &work->collective;
    parties[i].share = &work->share;
    parties[i].site = work->site;
  }
  const std::string found = difference(parties);
  const Status status = failure(Code::kMismatch, "group {}: ranks disagree on {}; no data was moved",
                                group.name, found.empty() ? "what to run" : found);
  board_->disagreements().remember(q, status);
  return status;
}

}  // namespace muster::engine
