#include "daemon/engine/session/command_intake.hpp"

#include "api/base/node_limits.hpp"
#include "api/base/words.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace muster::engine {
namespace {

constexpr std::int64_t kDeadlineNsMax = std::int64_t{1}
                                        << 60;  // 36 years: an addition to now() cannot overflow

}  // namespace

Result<std::size_t> CommandIntake::drain(scheduler::Graph& graph, Instant now) {
  if (next_ == batch_count_) {
    next_ = 0;
    batch_count_ = 0;
    MUSTER_ASSIGN_OR_RETURN(batch_count_, ring_.drain(batch_));
    if (batch_count_ == 0) return std::size_t{0};
    counters_.add(shm::Counter::kCommands, batch_count_);
  }
  std::size_t taken = 0;
  blocked_ = false;
  for (; next_ < batch_count_; ++next_, ++taken) {
    bool lane_full = false;
    MUSTER_RETURN_IF_ERROR(execute(graph, batch_[next_], now, &lane_full));
    blocked_ = lane_full;
    if (lane_full) break;  // offered again next turn; meanwhile the ring fills up and the client waits
  }
  return taken;
}

Status CommandIntake::execute(scheduler::Graph& graph, const shm::Command& command, Instant now,
                              bool* lane_full) {
  if (command.first != 0 && command.kind != shm::Command::Kind::kNumbers)
    return failure(Code::kProtocol, "command {}: bytes that must be zero are not", command.sequence);
  switch (command.kind) {
    case shm::Command::Kind::kStart:
    case shm::Command::Kind::kStartAt:
      return start(graph, command, now, lane_full);
    case shm::Command::Kind::kSignal:
      if (graph.signal(options_.rank, command.lane, command.plan, now) != Code::kOk)
        return failure(Code::kProtocol, "command {}: timeline {} cannot go to {}", command.sequence,
                       command.lane, command.plan);
      return {};
    case shm::Command::Kind::kResetLane:
      if (!graph.lanes()[options_.rank].is_open(command.lane))
        return failure(Code::kProtocol, "command {}: lane {} does not exist", command.sequence, command.lane);
      graph.reset_lane(options_.rank, command.lane, now);
      return {};
    case shm::Command::Kind::kNumbers:
      return take_numbers(command);
    case shm::Command::Kind::kRecount:
      return recount(graph, command);
    case shm::Command::Kind::kStep:
      if (command.plan > shm::kPointValueMask)
        return failure(Code::kProtocol, "command {}: there is no step {}", command.sequence, command.plan);
      step_ = command.plan;
      return {};
    case shm::Command::Kind::kNone:
      break;
  }
  return failure(Code::kProtocol, "command {}: kind {} is unknown", command.sequence,
                 static_cast<unsigned>(command.kind));
}

Status CommandIntake::start(scheduler::Graph& graph, const shm::Command& command, Instant now,
                            bool* lane_full) {
  if (!graph.lanes()[options_.rank].is_open(command.lane))
    return failure(Code::kProtocol, "command {}: lane {} does not exist", command.sequence, command.lane);
  scheduler::Plan* plan = plans_.find(Handle(command.plan));
  if (plan == nullptr)
    return failure(Code::kProtocol, "command {}: {}", command.sequence,
                   unknown_handle("plan", command.plan, "destroyed"));
  if (graph.lanes()[options_.rank].lane(command.lane).full()) {
    *lane_full = true;
    return {};
  }
  scheduler::Request request;
  request.rank = options_.rank;
  request.lane = command.lane;
  request.value = graph.lanes()[options_.rank].lane(command.lane).next_value();
  request.plan = plan;
  request.step = step_;
  std::copy(std::begin(command.waits), std::end(command.waits), request.waits.begin());
  if (const scheduler::CollectiveWork* const work = plan->collective()) request.bases = bases_of(work->share);
  if (command.kind == shm::Command::Kind::kStartAt) MUSTER_RETURN_IF_ERROR(move_bases(command, request));
  const auto asked = static_cast<std::int64_t>(std::min<std::uint64_t>(command.deadline_ns, kDeadlineNsMax));
  request.timeout = asked == 0 ? default_deadline(*plan) : Nanos(asked);
  plans_.started(*plan);
  const Code code = graph.submit(request, now);
  if (code == Code::kOk) return {};
  plans_.ended(*plan);
  return failure(
      Code::kProtocol,
      "command {}: waits for a timeline that does not exist, or is of a collective on a lane without a name",
      command.sequence);
}

Nanos CommandIntake::default_deadline(const scheduler::Plan& plan) const {
  const scheduler::CollectiveWork* const work = plan.collective();
  const Nanos groups = work != nullptr ? options_.groups->deadline(work->group) : Nanos(0);
  return groups.count() == 0 ? options_.deadline : std::min(groups, Nanos(kDeadlineNsMax));
}

// Takes the offsets out of the waits. The client has checked them too, so a failure here breaks the protocol.
Status CommandIntake::move_bases(const shm::Command& command, scheduler::Request& request) {
  const scheduler::CollectiveWork* const work = request.plan->collective();
  if (work == nullptr)
    return failure(Code::kProtocol, "command {}: a kernel's plan takes no offsets", command.sequence);
  const Rooms::Offsets to{std::exchange(request.waits[shm::kSourceOffsetAt], MUSTER_POINT_NONE),
                          std::exchange(request.waits[shm::kTargetOffsetAt], MUSTER_POINT_NONE)};
  if (!work->rooms.allow(work->collective, work->share, to))
    return failure(Code::kProtocol, "command {}: {}", command.sequence,
                   work->rooms.check(work->collective, work->share, to).message());
  request.bases = work->rooms.bases(work->share, to);
  return {};
}

// ---- new counts ----------------------------------------------------------------------------------

Status CommandIntake::take_numbers(const shm::Command& command) {
  if (command.lane >= shm::kCountLists || command.first >= kRanksOnNodeMax)
    return failure(Code::kProtocol, "command {}: there is no number {} of list {}", command.sequence,
                   command.first, command.lane);
  std::vector<std::uint64_t>& list = numbers_[command.lane];
  list.resize(std::max<std::size_t>(list.size(), command.first + shm::kNumbersPerCommand));
  std::copy(std::begin(command.waits), std::end(command.waits), list.begin() + command.first);
  list[command.first + MUSTER_WAITS_MAX] = command.deadline_ns;
  return {};
}

// The client has checked the counts too, so a failure here breaks the protocol.
Status CommandIntake::recount(const scheduler::Graph& graph, const shm::Command& command) {
  const Handle handle(command.plan);
  if (!plans_.has_counts(handle))
    return failure(Code::kProtocol, "command {}: no plan with counts", command.sequence);
  for (std::size_t i = 0; i < shm::kCountLists; ++i)
    if (command.waits[i] > numbers_[i].size())
      return failure(Code::kProtocol, "command {}: list {} has {} numbers, not {}", command.sequence, i,
                     numbers_[i].size(), command.waits[i]);
  const auto list = [&](shm::Command::CountList which) {
    const auto& numbers = numbers_[static_cast<std::size_t>(which)];
    const auto entries = static_cast<std::ptrdiff_t>(command.waits[static_cast<std::size_t>(which)]);
    return std::vector<std::uint64_t>(numbers.begin(), numbers.begin() + entries);
  };
  CollectiveLists lists;
  lists.source_counts = list(shm::Command::CountList::kSourceCounts);
  lists.source_offsets = list(shm::Command::CountList::kSourceOffsets);
  lists.target_counts = list(shm::Command::CountList::kTargetCounts);
  lists.target_offsets = list(shm::Command::CountList::kTargetOffsets);
  const Scope scope{options_.rank, options_.id, buffers_, graph.groups(), *options_.groups, options_.world};
  const Status made = plans_.recount(scope, handle, command.deadline_ns, lists);
  if (!made.ok()) return failure(Code::kProtocol, "command {}: {}", command.sequence, made.message());
  return {};
}

}  // namespace muster::engine
