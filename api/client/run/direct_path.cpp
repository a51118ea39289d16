#include "api/client/run/direct_path.hpp"

#include "api/base/fault_point.hpp"
#include "api/shm/message.hpp"

#include <algorithm>
#include <thread>

#include <sched.h>

namespace muster::client {
namespace {

using shm::MessageKind;
constexpr Nanos kBusyPause = std::chrono::milliseconds(1);
constexpr Nanos kEngineLookPeriod = std::chrono::milliseconds(100);
using shm::Published;
using shm::Untrusted;

// Cores that this process may run on: it may have been given fewer than the job.
std::uint32_t own_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return UINT32_MAX;
  return static_cast<std::uint32_t>(CPU_COUNT(&set));
}

}  // namespace

Result<std::unique_ptr<DirectPath>> DirectPath::open(const Uses& uses, shm::Mapping own, shm::Mapping groups,
                                                     const Machine& machine) {
  std::unique_ptr<DirectPath> direct(new DirectPath(uses, machine));
  MUSTER_ASSIGN_OR_RETURN(auto memory,
                          DirectMemory::open(std::move(own), std::move(groups), direct->peer_memory_));
  direct->memory_.emplace(std::move(memory));
  direct->stages_.emplace(direct->memory_->own(), direct->memory_->flight());
  return direct;
}

// ---- plans -------------------------------------------------------------------------------------

Result<DirectPlan> DirectPath::plan(std::uint64_t handle, const Described& described) {
  MUSTER_ASSIGN_OR_RETURN(Channel* const channel, this->channel(described.group));
  MUSTER_FAULT_POINT("plan.seating");
  return make_direct_plan(handle, described, *channel, machine_, own_cores());
}

Result<Channel*> DirectPath::channel(std::uint64_t group) {
  if (const auto known = channels_.find(group); known != channels_.end()) return known->second.get();
  shm::HandleMessage request;
  request.handle = group;
  std::vector<std::byte> list;
  MUSTER_ASSIGN_OR_RETURN(
      const auto answer, uses_.connection.ask<shm::DirectGroupAnswer>(
                             request, MessageKind::kDirectGroup, MessageKind::kDirectGroupAnswer, {}, &list));
  if (list.size() != answer.members * sizeof(shm::DirectMember) || answer.line >= memory_->group_count())
    return fail(Code::kProtocol, "the daemon's answer about a group's members cannot be");
  MemberRegions regions{group, answer.line, answer.index, {}, answer.epoch, answer.base};
  for (std::uint32_t i = 0; i < answer.members; ++i)
    regions.members.push_back(shm::tail_entry<shm::DirectMember>(list, i));
  MUSTER_ASSIGN_OR_RETURN(auto made, open_channel(*memory_, regions, *this));
  forget_line(made->line());
  return channels_.emplace(group, std::move(made)).first->second.get();
}

void DirectPath::drain(std::uint64_t group, Nanos timeout) {
  const auto known = channels_.find(group);
  if (known != channels_.end()) stages_->drain(*known->second, WaitPolicy(timeout, true).undisturbed());
}

// Another group has the line now. No plan of the former group is left, and nothing staged.
void DirectPath::forget_line(std::uint32_t line) {
  for (auto it = channels_.begin(); it != channels_.end();) {
    const bool former = it->second->line() == line;
    it = former ? channels_.erase(it) : std::next(it);
  }
}

// ---- running -----------------------------------------------------------------------------------

Outcome DirectPath::attempt(const DirectPlan& plan, Nanos timeout) {
  if (memory_->flight().latest() >= look_at_ && is_alone()) return Outcome::kAlone;
  WaitPolicy policy(timeout, plan.crowded);
  running_ = plan.handle;
  MUSTER_FAULT_POINT("run.chosen");
  const Outcome outcome = run_direct(plan, *memory_, *stages_, policy);
  if (outcome != Outcome::kDone || plan.choice.path == Path::kEngine) return outcome;
  auto* header = reinterpret_cast<shm::DirectHeader*>(memory_->own());
  Published<std::uint64_t>(&header->operations).store(++operations_);
  Published<std::uint64_t>(&header->bytes_moved).store(bytes_moved_ += plan.target_bytes);
  MUSTER_FAULT_POINT("run.counted");
  return outcome;
}

// The cause of a refusal may be gone by now, because a rank has come back: then there is nothing to report,
// and the run is tried again.
Status DirectPath::conclude(const DirectPlan& plan, Nanos timeout, Outcome outcome) {
  while (outcome == Outcome::kRefused) {
    if (explained(plan))
      if (const Status why = hear(plan); why.code() != Code::kState) return noted(why);
    outcome = attempt(plan, timeout);
  }
  return outcome == Outcome::kDone ? Status() : noted(failed(plan, outcome));
}

// Looks for the engine now and then, by the time that the flight record took. Otherwise members that never
// wait long for each other would go on without an engine for ever.
bool DirectPath::is_alone() {
  look_at_ = later(memory_->flight().latest(), kEngineLookPeriod);
  return uses_.connection.loss_of_silent_engine().has_value();
}

// Keeps the failure for a caller that asks afterwards (muster_last_failure).
Status DirectPath::noted(Status status) {
  uses_.last_failure.note(status);
  return status;
}

std::optional<std::uint64_t> DirectPath::counter(std::string_view name) const {
  const auto* header = reinterpret_cast<const shm::DirectHeader*>(memory_->own());
  if (name == "runs_completed") return operations_;
  if (name == "run_bytes_moved") return bytes_moved_;
  if (name == "run_sleeps") return Untrusted<std::uint64_t>(&header->sleeps).load();
  return std::nullopt;
}

Status DirectPath::failed(const DirectPlan& plan, Outcome outcome) {
  switch (outcome) {
    case Outcome::kBroken:
      if (explained(plan)) return hear(plan);
      return give_up(plan, failure(Code::kAborted,
                                   "what a member had given was overwritten while it was read: this rank was "
                                   "held up for longer than the operation's deadline"));
    case Outcome::kDisagree:
      return disagreement(plan);
    case Outcome::kInterrupted:
      return leave(plan);
    case Outcome::kCorrupt:
    case Outcome::kNoMemory:
      // Memory goes with its owner, whose loss has ended the epoch already.
      if (explained(plan)) {
        static_cast<void>(memory_->take_trouble());
        return hear(plan);
      }
      if (Status trouble = memory_->take_trouble(); !trouble.ok()) return give_up(plan, trouble);
      return give_up(plan, failure(Code::kAborted, "a member published an operation that cannot be"));
    default:
      return uses_.connection.loss();
  }
}

// Returns how this member's epoch has ended, and moves on to the epoch in which it stands from now on. The
// engine reports each end once.
Status DirectPath::hear(const DirectPlan& plan) {
  std::vector<std::byte> text;
  MUSTER_FAULT_POINT("verdict.asking");
  const auto end = uses_.connection.ask<shm::DirectEndAnswer>(question(plan), MessageKind::kDirectEnd,
                                                              MessageKind::kDirectEndAnswer, {}, &text);
  if (!end) return end.error();
  if (end->epoch < plan.channel->view().epoch() || end->code >= 0)
    return failure(Code::kProtocol, "the daemon's answer about the end of an epoch cannot be");
  // An absence ends no epoch: messages between two members that are present go on.
  if (end->epoch != plan.channel->view().epoch()) plan.channel->move_on(end->epoch, end->base);
  MUSTER_FAULT_POINT("verdict.taken");
  return Status(static_cast<Code>(end->code),
                std::string(reinterpret_cast<const char*>(text.data()), text.size()), end->culprit);
}

// Ends the group's epoch for all members, since this rank cannot go on and the others would wait for it.
Status DirectPath::give_up(const DirectPlan& plan, Status why) {
  Channel& channel = *plan.channel;
  const shm::GroupAbort request = shm::abort_of(channel.group(), why.message());
  const Status asked = uses_.connection.tell(request, MessageKind::kGroupAbort);
  if (channel.view().closed()) static_cast<void>(hear(plan));
  if (asked.ok()) return why;
  // No end of the epoch warns the peers: they must not count data that this caller may overwrite from now on.
  withdraw(plan);
  return asked;
}

// Aborts this epoch alone. If it has ended meanwhile, this rank gets the cause of that end.
Status DirectPath::leave(const DirectPlan& plan) {
  const EpochView& view = plan.channel->view();
  const Status asked = uses_.interrupt.leave(plan.channel->group(), view.epoch(), MUSTER_LANE_NONE);
  if (asked.ok() && view.closed()) return uses_.interrupt.as_interrupted(hear(plan));
  withdraw(plan);
  return asked.ok() ? failure(Code::kProtocol, "the daemon has not ended the group's epoch") : asked;
}

shm::DirectMessage DirectPath::question(const DirectPlan& plan) const {
  Wanted wanted = wanted_by(plan);
  wanted.group = plan.channel->group();
  wanted.epoch = plan.channel->view().epoch();
  return question(wanted);
}

shm::DirectMessage DirectPath::question(const Wanted& wanted) const {
  shm::DirectMessage message;
  message.group = wanted.group;
  message.epoch = wanted.epoch;
  message.position = wanted.position;
  message.phase = wanted.phase;
  message.plan = running_;
  message.kind = static_cast<std::uint32_t>(wanted.kind);
  message.peer = wanted.peer;
  message.deadline_ns = wanted.deadline.count();
  return message;
}

// The engine compares the reports of all members; each member reports before it asks.
Status DirectPath::disagreement(const DirectPlan& plan) {
  const shm::DirectMessage message = question(disagreed_in(plan));
  MUSTER_FAULT_POINT("disagree.asking");
  const Instant deadline = later(now(), uses_.connection.timeout());
  while (true) {
    const Code code = uses_.submission.tell_all();
    Status status =
        code == Code::kOk ? told(message, MessageKind::kDirectDisagree) : uses_.submission.not_pushed(code);
    if (status.code() != Code::kBusy) return status;
    if (interrupted()) return leave(plan);
    if (now() >= deadline)
      return failure(Code::kMismatch,
                     "ranks disagree on what to run, and one of them does not say what it "
                     "runs; no data was moved");
    std::this_thread::sleep_for(kBusyPause);
  }
}

// A question whose answer is always a failure.
Status DirectPath::told(const shm::DirectMessage& message, MessageKind kind) {
  MUSTER_RETURN_IF_ERROR(uses_.connection.tell(message, kind));
  return failure(Code::kProtocol, "the daemon knows of no failure of the group");
}

// ---- wait hooks ------------------------------------------------------------------------------------

Instant DirectPath::now() const {
  return uses_.connection.clock().now();
}

std::uint32_t DirectPath::core() const {
  const int core = ::sched_getcpu();
  return core < 0 ? 0 : static_cast<std::uint32_t>(core);
}

bool DirectPath::engine_gone() {
  // An engine that does not answer is as good as gone, though it holds its socket.
  return !uses_.connection.loss().ok() || !uses_.connection.engine_lives();
}

bool DirectPath::interrupted() const {
  return uses_.interrupt.raised();
}

void DirectPath::overdue(const Wanted& wanted) {
  MUSTER_FAULT_POINT("overdue.asking");
  static_cast<void>(uses_.connection.tell(question(wanted), MessageKind::kDirectOverdue));
  MUSTER_FAULT_POINT("overdue.asked");
}

}  // namespace muster::client
