#include "daemon/engine/job/direct_service.hpp"

#include "api/base/collective/signature.hpp"
#include "api/base/words.hpp"

#include <algorithm>
#include <utility>

namespace muster::engine {

// ---- memory ------------------------------------------------------------------------------------

Result<std::vector<shm::DirectMember>> DirectService::group(const Session& session, std::uint64_t group,
                                                            shm::DirectGroupAnswer* answer) const {
  if (direct_pages_ == nullptr) return fail(Code::kUnsupported, "the job's device has no direct path");
  MUSTER_ASSIGN_OR_RETURN(const GroupId id, find_group(session.scope(graph_.groups()), group));
  const auto& ranks = graph_.groups()[id.value].ranks;
  const auto member = std::find(ranks.begin(), ranks.end(), session.options().rank);
  if (member == ranks.end())
    return fail(Code::kBadArgument, "rank {} is not a member of group {}", session.options().rank.value,
                graph_.groups()[id.value].name);
  MUSTER_RETURN_IF_ERROR(check_on_node(graph_.lanes().world(), graph_.groups()[id.value]));
  answer->line = id.value;
  answer->index = static_cast<std::uint32_t>(member - ranks.begin());
  answer->members = static_cast<std::uint32_t>(ranks.size());
  answer->epoch = direct_pages_->epochs().epoch_of(id, answer->index);
  answer->base = answer->epoch == direct_pages_->epochs().present(id) ? direct_pages_->epochs().base(id) : 0;
  return direct_pages_->segments().members(id);
}

Status DirectService::check_rank(std::int32_t rank) const {
  if (direct_pages_ == nullptr) return failure(Code::kUnsupported, "the job's device has no direct path");
  const World& world = graph_.lanes().world();
  if (rank < 0 || static_cast<std::uint32_t>(rank) >= world.size())
    return failure(Code::kBadArgument, "rank {} is not in 0..{}", rank, world.size() - 1);
  const Rank asked(static_cast<std::uint32_t>(rank));
  if (world.is_local(asked)) return {};
  return failure(Code::kBadArgument, "{}, so this node has no memory of it",
                 world.text_of(std::span(&asked, 1)));
}

Result<shm::Descriptor> DirectService::segment(std::int32_t rank, std::uint64_t* bytes) const {
  MUSTER_RETURN_IF_ERROR(check_rank(rank));
  const Rank peer(static_cast<std::uint32_t>(rank));
  *bytes = direct_pages_->segments().bytes(peer);
  return read_only(direct_pages_->segments().descriptor(peer));
}

Result<shm::Descriptor> DirectService::arena(std::int32_t rank, std::uint32_t segment,
                                             std::uint64_t* bytes) const {
  MUSTER_RETURN_IF_ERROR(check_rank(rank));
  const Arena& arena = buffers_.arena(Rank(static_cast<std::uint32_t>(rank)));
  const device::Memory* memory = arena.segment(segment);
  if (memory == nullptr)
    return fail(Code::kBadArgument, "the arena of rank {} has had {} segments, {} is none or gone", rank,
                arena.segment_count(), segment);
  *bytes = memory->bytes();
  return read_only(memory->descriptor());
}

// ---- operations --------------------------------------------------------------------------------

Result<DirectQuestion> DirectService::question(const Session& session,
                                               const shm::DirectMessage& message) const {
  if (direct_pages_ == nullptr) return fail(Code::kUnsupported, "the job's device has no direct path");
  MUSTER_ASSIGN_OR_RETURN(const GroupId id, find_group(session.scope(graph_.groups()), message.group));
  const auto& ranks = graph_.groups()[id.value].ranks;
  const auto member = std::find(ranks.begin(), ranks.end(), session.options().rank);
  const bool sound = member != ranks.end() &&
                     message.kind <= static_cast<std::uint32_t>(shm::DirectWait::kReceived) &&
                     message.peer < ranks.size();
  if (!sound)
    return fail(Code::kBadArgument, "rank {} asks about kind {} and peer {} of group {}: there are no such",
                session.options().rank.value, message.kind, message.peer, graph_.groups()[id.value].name);
  MUSTER_RETURN_IF_ERROR(check_on_node(graph_.lanes().world(), graph_.groups()[id.value]));
  return DirectQuestion{id,
                        static_cast<std::uint32_t>(member - ranks.begin()),
                        message.epoch,
                        message.position,
                        message.phase,
                        static_cast<shm::DirectWait>(message.kind),
                        message.peer};
}

Result<shm::DirectEndAnswer> DirectService::end(const Session& session, const shm::DirectMessage& message,
                                                std::string* text) {
  const std::lock_guard lock(lock_);
  MUSTER_ASSIGN_OR_RETURN(const DirectQuestion q, question(session, message));
  GroupEpochs& epochs = direct_pages_->epochs();
  const scheduler::CausePtr cause = epochs.cause_of(q.group, q.epoch);
  if (cause == nullptr)
    return fail(Code::kState, "group {} is in epoch {} and has no failure to tell of",
                graph_.groups()[q.group.value].name, epochs.present(q.group));
  slots_.drain_all(session.options().rank);  // the rank started these before it knew the cause
  faults_.tell(session.options().rank, cause);
  shm::DirectEndAnswer answer;
  answer.code = static_cast<std::int32_t>(cause->code);
  answer.culprit = cause->culprit;
  answer.epoch = epochs.move_on(q.group, q.index, q.epoch);
  answer.base = answer.epoch == epochs.present(q.group) ? epochs.base(q.group) : 0;
  *text = cause->text;
  return answer;
}

Status DirectService::overdue(const Session& session, const shm::DirectMessage& message) {
  const std::lock_guard lock(lock_);
  MUSTER_ASSIGN_OR_RETURN(const DirectQuestion q, question(session, message));
  if (q.epoch != direct_pages_->epochs().present(q.group)) return {};
  const std::vector<std::uint32_t> indices = direct_pages_->records().missing(q);
  if (indices.empty()) return {};
  const scheduler::Group& group = graph_.groups()[q.group.value];
  std::vector<std::uint32_t> ranks;
  for (const std::uint32_t index : indices) ranks.push_back(group.ranks[index].value);
  const char* where = q.kind == shm::DirectWait::kPhase ? ", having come to it" : "";
  const scheduler::Plan* plan = session.plans().find(Handle(message.plan));
  scheduler::Cause cause{Code::kTimeout, static_cast<std::int32_t>(ranks.front()),
                         fmt::format("group {}: {} (run directly) {}; missing rank{} {}{}", group.name,
                                     plan != nullptr ? plan->label() : "an operation",
                                     passed_deadline(Nanos(message.deadline_ns)),
                                     ranks.size() == 1 ? "" : "s", rank_list(ranks), where)};
  reports_.overdue(session.options().rank, q.group, cause);
  faults_.end_direct(q.group, std::move(cause));
  return {};
}

Status DirectService::disagree(const Session& session, const shm::DirectMessage& message) {
  const std::lock_guard lock(lock_);
  MUSTER_ASSIGN_OR_RETURN(const DirectQuestion q, question(session, message));
  if (const Status* known = direct_pages_->disagreements().find(q)) return *known;
  const scheduler::Group& group = graph_.groups()[q.group.value];
  for (const Rank rank : group.ranks) {
    if (!slots_.of(rank).session) continue;
    slots_.drain_all(rank);
    // Each member tells the engine the counts of its plans before it asks.
    if (direct_pages_->records().untold(rank))
      return failure(Code::kBusy, "rank {} has not told its new counts yet; ask again", rank.value);
  }
  const std::string found = difference_in(q);
  const Status status = failure(Code::kMismatch, "group {}: ranks disagree on {}; no data was moved",
                                group.name, found.empty() ? "what to run" : found);
  direct_pages_->disagreements().remember(q, status);
  return status;
}

std::string DirectService::difference_in(const DirectQuestion& q) const {
  const scheduler::Group& group = graph_.groups()[q.group.value];
  std::vector<Party> parties(group.ranks.size());
  for (std::uint32_t i = 0; i < parties.size(); ++i) {
    const Session* member = slots_.of(group.ranks[i]).session.get();
    const Handle handle(direct_pages_->records().plan_of(q, i));
    const scheduler::Plan* plan = member != nullptr ? member->plans().find(handle) : nullptr;
    const scheduler::CollectiveWork* work = plan != nullptr ? plan->collective() : nullptr;
    parties[i].rank = static_cast<std::int32_t>(group.ranks[i].value);
    if (work == nullptr || work->group != q.group) continue;
    parties[i].collective = &work->collective;
    parties[i].share = &work->share;
    parties[i].site = work->site;
  }
  return difference(parties);
}

}  // namespace muster::engine
