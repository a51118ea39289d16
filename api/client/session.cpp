#include "api/client/session.hpp"

#include <algorithm>
#include <cstring>

#include <unistd.h>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Result;
using muster::Status;
namespace shm = muster::shm;

muster_session::muster_session(Connection connection)
    : connection_(std::move(connection)),
      ring_(shm::ring_writer(connection_.submission, connection_.completion)),
      reader_(connection_.completion.page(), connection_.submission.writable_header()),
      buffer_(shm::kMessageBytesMax),
      pid_(getpid()) {}

muster_session::~muster_session() = default;

Status muster_session::usable() const {
  if (getpid() != pid_)
    return failure(Code::kStale, "the session belongs to process {}; a child of fork() opens its own", pid_);
  if (!loss_.ok()) return loss_;
  const Code closed = reader_.closed();
  if (closed != Code::kOk) return Status(closed, "the daemon closed the session");
  return {};
}

// A socket that hangs up between messages means that the engine is gone.
std::optional<Status> muster_session::daemon_loss() {
  std::byte probe;
  const auto message = shm::receive_message(connection_.socket, std::span(&probe, 1));
  const bool alive = !message && message.error().code() == Code::kPending;
  if (alive) return std::nullopt;
  loss_ = Status(Code::kDaemonLost, "the engine of job " + std::string(welcome().job) + " is gone");
  return loss_;
}

Result<std::vector<std::byte>> muster_session::exchange(std::span<std::byte> message,
                                                        std::span<const std::byte> extra,
                                                        shm::Descriptor* descriptor) {
  std::vector<std::byte> bytes(message.begin(), message.end());
  bytes.insert(bytes.end(), extra.begin(), extra.end());
  const auto lose = [&](const Status& status) {
    const bool gone = status.code() == Code::kDaemonLost || status.code() == Code::kWaitTimeout;
    loss_ = gone ? Status(Code::kDaemonLost, "the engine of job " + std::string(welcome().job) +
                                                 " does not answer: " + status.message())
                 : status;
    return fail(loss_);
  };
  if (const Status sent = shm::send_message(connection_.socket, bytes); !sent.ok()) return lose(sent);
  auto answer = shm::receive_message(connection_.socket, buffer_, clock_.now() + connection_.timeout, clock_);
  if (!answer) return lose(answer.error());
  if (answer->bytes == 0) return lose(Status(Code::kDaemonLost, "it closed the connection"));
  shm::MessageHeader header;
  if (answer->bytes < sizeof header) return lose(Status(Code::kProtocol, "the daemon's answer is too short"));
  std::memcpy(&header, buffer_.data(), sizeof header);
  if (header.magic != shm::kMagicMessage || header.bytes != answer->bytes || header.serial != serial_)
    return lose(Status(Code::kProtocol, "the daemon's answer does not belong to the question"));
  if (header.kind == shm::MessageKind::kFailure) {
    shm::Failure text;
    if (answer->bytes != sizeof text)
      return lose(Status(Code::kProtocol, "the daemon's failure has a wrong size"));
    std::memcpy(&text, buffer_.data(), sizeof text);
    const std::size_t length = std::min<std::size_t>(text.length, sizeof text.text);
    const Code code =
        muster::is_known(text.status) && text.status < 0 ? static_cast<Code>(text.status) : Code::kProtocol;
    return fail(Status(code, std::string(text.text, length)));
  }
  if (descriptor != nullptr && !answer->descriptors.empty()) *descriptor = std::move(answer->descriptors[0]);
  return std::vector<std::byte>(buffer_.begin(),
                                buffer_.begin() + static_cast<std::ptrdiff_t>(answer->bytes));
}

// ---- submission --------------------------------------------------------------------------------

Code muster_session::push(const shm::Command& command) {
  const Code code = ring_.push(command);
  if (code != Code::kOk) return code;
  if (ring_.doorbell_due()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto rung = ::write(connection_.doorbell.get(), &one, sizeof one);
  }
  return Code::kOk;
}

Code muster_session::start(muster_plan plan, const muster_submit& submit, muster_point* point) {
  if (submit.lane >= MUSTER_LANE_COUNT || submit.wait_count > MUSTER_WAITS_MAX || submit.flags != 0 ||
      submit.deadline_ns < 0)
    return Code::kBadArgument;
  if (plans_.find(plan) == plans_.end()) return Code::kStale;
  shm::Command command;
  command.kind = shm::CommandKind::kStart;
  command.lane = static_cast<std::uint16_t>(submit.lane);
  command.plan = plan;
  command.deadline_ns = static_cast<std::uint64_t>(submit.deadline_ns);
  for (std::uint32_t i = 0; i < submit.wait_count; ++i) {
    const std::uint64_t wait = submit.waits[i];
    const std::uint32_t timeline = shm::point_timeline(wait);
    const bool ours =
        wait == 0 || timeline < MUSTER_LANE_COUNT ||
        (timeline >= shm::kClientTimelineFirst && timeline < shm::kClientTimelineFirst + timelines_);
    // A lane's point that was never handed out would only be noticed at the deadline.
    const bool known =
        wait == 0 || timeline >= MUSTER_LANE_COUNT || shm::point_value(wait) <= submitted_[timeline];
    if (!ours || !known) return Code::kBadArgument;
    command.waits[i] = wait;
  }
  const Code code = push(command);
  if (code != Code::kOk) return code;
  const std::uint64_t value = ++submitted_[submit.lane];
  if (point != nullptr) *point = shm::make_point(submit.lane, value);
  return Code::kOk;
}

Code muster_session::signal(std::uint32_t timeline, std::uint64_t value) {
  if (timeline < shm::kClientTimelineFirst || timeline >= shm::kClientTimelineFirst + timelines_)
    return Code::kBadArgument;
  std::uint64_t& current = signalled_[timeline - shm::kClientTimelineFirst];
  if (value < current || value > shm::kPointValueMask) return Code::kBadArgument;
  shm::Command command;
  command.kind = shm::CommandKind::kSignal;
  command.lane = static_cast<std::uint16_t>(timeline);
  command.plan = value;
  const Code code = push(command);
  if (code == Code::kOk) current = value;
  return code;
}

Code muster_session::reset(muster_lane lane) {
  if (lane >= MUSTER_LANE_COUNT) return Code::kBadArgument;
  shm::Command command;
  command.kind = shm::CommandKind::kResetLane;
  command.lane = static_cast<std::uint16_t>(lane);
  const Code code = push(command);
  if (code != Code::kOk) return code;
  return reader_.remember_reset(lane, submitted_[lane]);
}

// ---- waiting -----------------------------------------------------------------------------------

namespace {

constexpr std::uint32_t kSpins = 64;  // tests with the core given away in between, before a sleep
// How often a sleeping client looks whether the engine is still there.
constexpr muster::Nanos kLossCheckPeriod = std::chrono::milliseconds(200);

}  // namespace

Status muster_session::lane_status(muster_point point, Code code) {
  if (code == Code::kOk || code == Code::kPending) return Status(code, "");
  const std::uint32_t timeline = shm::point_timeline(point);
  if (timeline >= MUSTER_LANE_COUNT) return Status(code, muster::code_sentence(code));
  auto why = reader_.failure(timeline);
  return Status(code, why && !why->text.empty() ? why->text : muster::code_sentence(code));
}

// Nothing to ask the engine about: the client itself raises its timelines.
std::optional<Code> muster_session::own_timeline(muster_point point) const {
  const std::uint32_t timeline = shm::point_timeline(point);
  if (point == 0 || timeline < shm::kClientTimelineFirst) return std::nullopt;
  if (timeline >= shm::kClientTimelineFirst + timelines_) return Code::kBadArgument;
  return signalled_[timeline - shm::kClientTimelineFirst] >= shm::point_value(point) ? Code::kOk
                                                                                     : Code::kPending;
}

Status muster_session::test(muster_point point) {
  if (const auto own = own_timeline(point)) return lane_status(point, *own);
  return lane_status(point, reader_.test(point));
}

Status muster_session::wait(muster_point point, muster::Nanos timeout) {
  if (const auto own = own_timeline(point)) {
    // Only this thread could raise it, so waiting would be for ever.
    return *own == Code::kPending
               ? failure(Code::kState, "the point is of a timeline that this session raises itself")
               : lane_status(point, *own);
  }
  const muster::Instant deadline = clock_.now() + (timeout.count() < 0 ? connection_.timeout : timeout);
  while (true) {
    const muster::Instant now = clock_.now();
    const muster::Instant slice = std::min(deadline, now + kLossCheckPeriod);
    const Code code = reader_.wait(point, kSpins, slice, clock_);
    if (code != Code::kWaitTimeout) return lane_status(point, code);
    if (const auto loss = daemon_loss()) return *loss;
    if (slice == deadline)
      return failure(Code::kWaitTimeout, "the point was not reached within the wait's time");
  }
}

// ---- memory ------------------------------------------------------------------------------------

Result<std::pair<muster_buffer, void*>> muster_session::alloc(std::uint64_t bytes) {
  shm::BufferAlloc request;
  request.bytes = bytes;
  shm::Descriptor memory;
  auto grant = ask<shm::BufferGrant>(request, shm::MessageKind::kBufferAlloc, shm::MessageKind::kBufferGrant,
                                     {}, nullptr, &memory);
  if (!grant) return fail(grant.error());
  if (grant->segment_is_new != 0) {
    MUSTER_RETURN_IF_ERROR(shm::check_memory(memory, grant->segment_bytes));
    auto mapping = shm::Mapping::map(memory, grant->segment_bytes, shm::Access::kReadWrite);
    if (!mapping) return fail(mapping.error());
    segments_[grant->segment] = Segment{*std::move(mapping)};
  }
  const auto segment = segments_.find(grant->segment);
  const bool inside = segment != segments_.end() && grant->offset <= segment->second.mapping.size() &&
                      bytes <= segment->second.mapping.size() - grant->offset;
  if (!inside) return fail(Code::kProtocol, "the daemon granted a buffer outside of its memory");
  return std::pair<muster_buffer, void*>(grant->buffer, segment->second.mapping.writable() + grant->offset);
}

Status muster_session::free(muster_buffer buffer) {
  shm::HandleMessage request;
  request.handle = buffer;
  auto answer = ask<shm::Plain>(request, shm::MessageKind::kBufferFree, shm::MessageKind::kDone);
  return answer ? Status() : answer.error();
}

// ---- names -------------------------------------------------------------------------------------

Result<shm::MeshAnswer> muster_session::mesh_dim(const char* dim) {
  if (const auto known = dims_.find(dim); known != dims_.end()) return known->second;
  shm::MeshQuery request;
  const std::size_t length = std::strlen(dim);
  if (length == 0 || length >= sizeof request.dim)
    return fail(Code::kBadArgument, "a dim's name has 1 to {} bytes; this one has {}", sizeof request.dim - 1,
                length);
  std::memcpy(request.dim, dim, length);
  auto answer = ask<shm::MeshAnswer>(request, shm::MessageKind::kMeshQuery, shm::MessageKind::kMeshAnswer);
  if (answer) dims_.emplace(dim, *answer);
  return answer;
}

Result<muster_session::GroupFacts> muster_session::group(muster_group group) {
  shm::HandleMessage request;
  request.handle = group;
  std::vector<std::byte> list;
  auto answer = ask<shm::GroupAnswer>(request, shm::MessageKind::kGroupQuery, shm::MessageKind::kGroupAnswer,
                                      {}, &list);
  if (!answer) return fail(answer.error());
  if (answer->ranks < 0 || list.size() != static_cast<std::size_t>(answer->ranks) * sizeof(std::int32_t))
    return fail(Code::kProtocol, "the daemon's list of ranks has a wrong size");
  GroupFacts facts;
  facts.rank = answer->rank;
  facts.name.assign(answer->name, strnlen(answer->name, sizeof answer->name));
  facts.ranks.resize(static_cast<std::size_t>(answer->ranks));
  if (!list.empty()) std::memcpy(facts.ranks.data(), list.data(), list.size());
  return facts;
}

Result<std::uint32_t> muster_session::create_timeline() {
  if (timelines_ == shm::kClientTimelinesMax)
    return fail(Code::kNoResource, "a session has at most {} timelines of its own", shm::kClientTimelinesMax);
  return shm::kClientTimelineFirst + timelines_++;
}

Result<int> muster_session::event_descriptor() {
  if (events_.valid()) return events_.get();
  auto answer = ask<shm::Plain>(shm::Plain{}, shm::MessageKind::kEventOpen, shm::MessageKind::kDone, {},
                                nullptr, &events_);
  if (!answer) return fail(answer.error());
  if (!events_.valid()) return fail(Code::kProtocol, "the daemon sent no event socket");
  return events_.get();
}

void muster_session::goodbye() {
  if (usable().ok())
    static_cast<void>(ask<shm::Plain>(shm::Plain{}, shm::MessageKind::kGoodbye, shm::MessageKind::kDone));
}
