#include "daemon/engine/session.hpp"

#include "api/base/node_limits.hpp"
#include "daemon/engine/resolve.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>

namespace muster::engine {
namespace {

constexpr std::int64_t kDeadlineNsMax = std::int64_t{1}
                                        << 60;  // 36 years: an addition to now() cannot overflow

}  // namespace

Session::Session(SessionOptions options, shm::SubmissionView submission, shm::CompletionView completion,
                 Arena& arena)
    : options_(options),
      submission_(std::move(submission)),
      completion_(std::move(completion)),
      arena_(arena),
      ring_(shm::ring_reader(submission_, completion_)),
      completion_writer_(completion_.writable_page(), submission_.header()),
      counters_(completion_.writable_page()),
      buffers_(options.buffers_max),
      plans_(options.plans_max) {}

// ---- duty --------------------------------------------------------------------------------------

Result<std::size_t> Session::drain(scheduler::Graph& graph, Instant now) {
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
    if (lane_full) break;  // offered again next turn; the ring behind it is the client's back-pressure
  }
  return taken;
}

Status Session::execute(scheduler::Graph& graph, const shm::Command& command, Instant now, bool* lane_full) {
  if (command.first != 0 && command.kind != shm::CommandKind::kNumbers)
    return failure(Code::kProtocol, "command {}: bytes that must be zero are not", command.sequence);
  switch (command.kind) {
    case shm::CommandKind::kStart:
      return start(graph, command, now, lane_full);
    case shm::CommandKind::kSignal:
      if (graph.signal(options_.rank, command.lane, command.plan, now) != Code::kOk)
        return failure(Code::kProtocol, "command {}: timeline {} cannot go to {}", command.sequence,
                       command.lane, command.plan);
      return {};
    case shm::CommandKind::kResetLane:
      if (command.lane >= MUSTER_LANE_COUNT)
        return failure(Code::kProtocol, "command {}: lane {} does not exist", command.sequence, command.lane);
      graph.reset_lane(options_.rank, command.lane, now);
      return {};
    case shm::CommandKind::kNumbers:
      return take_numbers(command);
    case shm::CommandKind::kRecount:
      return recount(graph, command);
    case shm::CommandKind::kNone:
      break;
  }
  return failure(Code::kProtocol, "command {}: kind {} is unknown", command.sequence,
                 static_cast<unsigned>(command.kind));
}

Status Session::start(scheduler::Graph& graph, const shm::Command& command, Instant now, bool* lane_full) {
  if (command.lane >= MUSTER_LANE_COUNT)
    return failure(Code::kProtocol, "command {}: lane {} does not exist", command.sequence, command.lane);
  auto* plan = plans_.find(Handle(command.plan));
  if (plan == nullptr) return failure(Code::kProtocol, "command {}: no such plan", command.sequence);
  if (graph.lanes_of(options_.rank).lane(command.lane).full()) {
    *lane_full = true;
    return {};
  }
  scheduler::Request request;
  request.rank = options_.rank;
  request.lane = command.lane;
  request.value = graph.lanes_of(options_.rank).lane(command.lane).next_value();
  request.plan = (*plan)->plan.get();
  std::copy(std::begin(command.waits), std::end(command.waits), request.waits.begin());
  const auto asked = static_cast<std::int64_t>(std::min<std::uint64_t>(command.deadline_ns, kDeadlineNsMax));
  request.timeout = asked == 0 ? options_.deadline : Nanos(asked);
  ++request.plan->starts_in_flight;
  ++starts_in_flight_;
  const Code code = graph.submit(request, now);
  if (code == Code::kOk) return {};
  --request.plan->starts_in_flight;
  --starts_in_flight_;
  return failure(Code::kProtocol, "command {}: waits for a timeline that does not exist", command.sequence);
}

// ---- new counts

Status Session::take_numbers(const shm::Command& command) {
  if (command.lane >= shm::kCountLists || command.first >= kRanksOnNodeMax)
    return failure(Code::kProtocol, "command {}: there is no number {} of list {}", command.sequence,
                   command.first, command.lane);
  std::vector<std::uint64_t>& list = numbers_[command.lane];
  list.resize(std::max<std::size_t>(list.size(), command.first + shm::kNumbersPerCommand));
  std::copy(std::begin(command.waits), std::end(command.waits), list.begin() + command.first);
  list[command.first + MUSTER_WAITS_MAX] = command.deadline_ns;
  return {};
}

// The plan is made anew from what its client said of it and the new counts: the same checks, the same errors.
// The client has made them too, so that what fails here is no mistake of a user.
Status Session::recount(scheduler::Graph& graph, const shm::Command& command) {
  const Handle handle(command.plan);
  auto* record = plans_.find(handle);
  if (record == nullptr || (*record)->plan->collective() == nullptr || (*record)->said.op == MUSTER_EXCHANGE)
    return failure(Code::kProtocol, "command {}: no plan with counts", command.sequence);
  for (std::size_t i = 0; i < shm::kCountLists; ++i)
    if (command.waits[i] > numbers_[i].size())
      return failure(Code::kProtocol, "command {}: list {} has {} numbers, not {}", command.sequence, i,
                     numbers_[i].size(), command.waits[i]);
  const auto list = [&](shm::CountList which) {
    const auto& numbers = numbers_[static_cast<std::size_t>(which)];
    const auto entries = static_cast<std::ptrdiff_t>(command.waits[static_cast<std::size_t>(which)]);
    return std::vector<std::uint64_t>(numbers.begin(), numbers.begin() + entries);
  };
  CollectiveLists lists;
  lists.source_counts = list(shm::CountList::kSourceCounts);
  lists.source_offsets = list(shm::CountList::kSourceOffsets);
  lists.target_counts = list(shm::CountList::kTargetCounts);
  lists.target_offsets = list(shm::CountList::kTargetOffsets);
  (*record)->said.count = command.deadline_ns;
  const Scope scope{*this, graph.groups(), *options_.groups};
  auto plan = resolve_collective(scope, (*record)->said, lists);
  if (!plan) return failure(Code::kProtocol, "command {}: {}", command.sequence, plan.error().message());
  forget_former();
  (*plan)->owner = options_.id;
  hold_buffers(**plan);
  former_.push_back({handle, std::exchange((*record)->plan, *std::move(plan))});
  forget_former();
  return {};
}

void Session::hold_buffers(const scheduler::Plan& plan) {
  for (const Handle buffer : plan.buffers) ++buffers_.find(buffer)->plans;
}

void Session::release_buffers(const scheduler::Plan& plan) {
  for (const Handle buffer : plan.buffers) --buffers_.find(buffer)->plans;
}

void Session::forget_former() {
  std::erase_if(former_, [&](const FormerPlan& former) {
    if (former.plan->starts_in_flight > 0) return false;
    release_buffers(*former.plan);
    return true;
  });
}

// A full event socket is readable already; nothing here may block on what a client does not read.
void Session::wake_client() {
  completion_writer_.wake();
  if (!events_.valid()) return;
  const char byte = 1;
  [[maybe_unused]] const auto sent = ::send(events_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Session::close(Code code, std::string_view why) {
  completion_writer_.close(code, why);
  wake_client();
}

// ---- conductor ---------------------------------------------------------------------------------

Status Session::check_buffer_limit() const {
  if (buffers_.size() < buffers_.capacity()) return {};
  return failure(Code::kNoResource,
                 "the rank has {} buffers already (limits.buffers_per_rank_max); free some", buffers_.size());
}

Result<Handle> Session::add_buffer(Buffer buffer) {
  const Arena::Grant grant = buffer.grant;
  const std::uint64_t bytes = buffer.bytes;
  const auto handle = buffers_.insert(std::move(buffer));
  if (!handle) {
    arena_.free(grant);
    return fail(check_buffer_limit());
  }
  buffer_bytes_ += bytes;
  buffer_bytes_peak_ = std::max(buffer_bytes_peak_, buffer_bytes_);
  counters_.set(shm::Counter::kBufferBytes, buffer_bytes_);
  counters_.set(shm::Counter::kBufferBytesPeak, buffer_bytes_peak_);
  return *handle;
}

bool Session::holds(std::uint64_t identity) const {
  bool found = false;
  buffers_.for_each([&](Handle, const Buffer& buffer) {
    found = found || (buffer.name.valid() && buffer.name.identity() == identity);
  });
  return found;
}

std::size_t Session::uses(GroupId group) {
  forget_former();
  const auto names = [group](const scheduler::Plan& plan) {
    const scheduler::CollectiveWork* work = plan.collective();
    return work != nullptr && work->group == group;
  };
  std::size_t count = 0;
  plans_.for_each([&](Handle, const auto& record) { count += names(*record->plan) ? 1 : 0; });
  for (const FormerPlan& former : former_) count += names(*former.plan) ? 1 : 0;
  buffers_.for_each([&](Handle, const Buffer& buffer) {
    count += buffer.shared_memory != 0 && buffer.shared_by == group ? 1 : 0;
  });
  return count;
}

Status Session::free_buffer(Handle handle, Gone& gone) {
  Buffer* buffer = buffers_.find(handle);
  if (buffer == nullptr) return failure(Code::kStale, "no such buffer");
  forget_former();
  if (buffer->plans > 0)
    return failure(Code::kBusy, "plans use the buffer ({} of them); destroy those first", buffer->plans);
  gone.push_back(arena_.free(buffer->grant));
  gone.push_back(buffer->name.drop());
  buffer_bytes_ -= buffer->bytes;
  counters_.set(shm::Counter::kBufferBytes, buffer_bytes_);
  buffers_.erase(handle);
  return {};
}

Result<Handle> Session::add_plan(std::unique_ptr<scheduler::Plan> plan, const shm::PlanCollective& said) {
  if (plans_.size() == plans_.capacity())
    return fail(Code::kNoResource, "the rank has {} plans already (limits.plans_per_rank_max); destroy some",
                plans_.size());
  hold_buffers(*plan);
  plan->owner = options_.id;
  const auto handle = plans_.insert(std::make_unique<PlanRecord>(PlanRecord{std::move(plan), said}));
  MUSTER_ASSERT(handle.has_value());
  return *handle;
}

Status Session::destroy_plan(Handle handle) {
  auto* record = plans_.find(handle);
  if (record == nullptr) return failure(Code::kStale, "no such plan");
  forget_former();
  std::uint32_t in_flight = (*record)->plan->starts_in_flight;
  for (const FormerPlan& former : former_)
    if (former.handle == handle) in_flight += former.plan->starts_in_flight;
  if (in_flight > 0)
    return failure(Code::kBusy, "{} starts of the plan are in flight; wait for their points", in_flight);
  release_buffers(*(*record)->plan);
  plans_.erase(handle);
  return {};
}

Result<shm::Descriptor> Session::open_events() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return fail(Code::kNoResource, "socketpair: {}; raise the open-files limit (ulimit -n)",
                std::strerror(errno));
  events_.reset(ends[0]);
  return shm::Descriptor(ends[1]);
}

bool Session::introduce_segment(std::uint32_t segment) {
  if (introduced_.size() <= segment) introduced_.resize(segment + 1, false);
  const bool known = introduced_[segment];
  introduced_[segment] = true;
  return !known;
}

void Session::bury(Gone& gone) {
  MUSTER_ASSERT(idle());
  buffers_.for_each([&](Handle, Buffer& buffer) { gone.push_back(arena_.free(buffer.grant)); });
}

}  // namespace muster::engine
