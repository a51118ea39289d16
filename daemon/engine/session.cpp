#include "daemon/engine/session.hpp"

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
  for (; next_ < batch_count_; ++next_, ++taken) {
    bool lane_full = false;
    MUSTER_RETURN_IF_ERROR(execute(graph, batch_[next_], now, &lane_full));
    if (lane_full) break;  // offered again next turn; the ring behind it is the client's back-pressure
  }
  return taken;
}

Status Session::execute(scheduler::Graph& graph, const shm::Command& command, Instant now, bool* lane_full) {
  if (command.reserved != 0)
    return failure(Code::kProtocol, "command {}: reserved bytes are not zero", command.sequence);
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
  if (graph.lane_full(options_.rank, command.lane)) {
    *lane_full = true;
    return {};
  }
  scheduler::Request request;
  request.rank = options_.rank;
  request.lane = command.lane;
  request.value = graph.next_value(options_.rank, command.lane);
  request.plan = plan->get();
  std::copy(std::begin(command.waits), std::end(command.waits), request.waits.begin());
  const auto asked = static_cast<std::int64_t>(std::min<std::uint64_t>(command.deadline_ns, kDeadlineNsMax));
  request.deadline = now + (asked == 0 ? options_.deadline : Nanos(asked));
  ++request.plan->starts_in_flight;
  ++starts_in_flight_;
  const Code code = graph.submit(request, now);
  if (code == Code::kOk) return {};
  --request.plan->starts_in_flight;
  --starts_in_flight_;
  return failure(Code::kProtocol, "command {}: waits for a timeline that does not exist", command.sequence);
}

// A full event socket is readable already; nothing here may block on what a client does not read.
void Session::wake_client() {
  completion_writer_.wake();
  if (!events_.valid()) return;
  const char byte = 1;
  [[maybe_unused]] const auto sent = ::send(events_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Session::close(Code code) {
  completion_writer_.close(code);
  wake_client();
}

// ---- conductor ---------------------------------------------------------------------------------

Result<Handle> Session::add_buffer(std::uint64_t bytes) {
  if (bytes == 0) return fail(Code::kBadArgument, "a buffer needs at least one byte");
  if (buffers_.size() == buffers_.capacity())
    return fail(Code::kNoResource, "the rank has {} buffers already (limits.buffers_per_rank_max); free some",
                buffers_.size());
  MUSTER_ASSIGN_OR_RETURN(const Arena::Grant grant, arena_.allocate(bytes));
  const auto handle = buffers_.insert(Buffer{grant, bytes, 0});
  MUSTER_ASSERT(handle.has_value());
  buffer_bytes_ += bytes;
  buffer_bytes_peak_ = std::max(buffer_bytes_peak_, buffer_bytes_);
  counters_.set(shm::Counter::kBufferBytes, buffer_bytes_);
  counters_.set(shm::Counter::kBufferBytesPeak, buffer_bytes_peak_);
  return *handle;
}

Status Session::free_buffer(Handle handle) {
  const Buffer* buffer = buffers_.find(handle);
  if (buffer == nullptr) return failure(Code::kStale, "no such buffer");
  if (buffer->plans > 0)
    return failure(Code::kBusy, "{} plans use the buffer; destroy them first", buffer->plans);
  arena_.free(buffer->grant);
  buffer_bytes_ -= buffer->bytes;
  counters_.set(shm::Counter::kBufferBytes, buffer_bytes_);
  buffers_.erase(handle);
  return {};
}

Result<Handle> Session::add_plan(std::unique_ptr<scheduler::Plan> plan) {
  if (plans_.size() == plans_.capacity())
    return fail(Code::kNoResource, "the rank has {} plans already (limits.plans_per_rank_max); destroy some",
                plans_.size());
  for (const Handle buffer : plan->buffers) ++buffers_.find(buffer)->plans;
  plan->owner = options_.id;
  const auto handle = plans_.insert(std::move(plan));
  MUSTER_ASSERT(handle.has_value());
  return *handle;
}

Status Session::destroy_plan(Handle handle) {
  auto* plan = plans_.find(handle);
  if (plan == nullptr) return failure(Code::kStale, "no such plan");
  if ((*plan)->starts_in_flight > 0)
    return failure(Code::kBusy, "{} starts of the plan are in flight; wait for their points",
                   (*plan)->starts_in_flight);
  for (const Handle buffer : (*plan)->buffers) --buffers_.find(buffer)->plans;
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

void Session::bury() {
  MUSTER_ASSERT(idle());
  buffers_.for_each([&](Handle, Buffer& buffer) { arena_.free(buffer.grant); });
}

}  // namespace muster::engine
