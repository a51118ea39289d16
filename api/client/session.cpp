#include "api/client/session.hpp"

#include "api/base/fault_point.hpp"
#include "api/client/forks.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <unistd.h>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Result;
using muster::Status;
namespace shm = muster::shm;

muster_session::muster_session(Connection connection)
    : connection_(std::move(connection)),
      ring_(muster::client::ring_writer(connection_.submission, connection_.completion)),
      reader_(connection_.completion.page(), connection_.submission.writable_header()),
      buffer_(shm::kMessageBytesMax),
      pid_(getpid()),
      forks_(muster::client::forks()) {}

muster_session::~muster_session() = default;

Result<std::unique_ptr<muster_session>> muster_session::create(Connection connection) {
  shm::Mapping direct = std::move(connection.direct);
  shm::Mapping groups = std::move(connection.groups);
  auto session = std::make_unique<muster_session>(std::move(connection));
  if (!direct.valid()) return session;
  const shm::Welcome& welcome = session->welcome();
  const muster::Machine machine{welcome.cores, static_cast<std::uint32_t>(welcome.local_size), true};
  MUSTER_ASSIGN_OR_RETURN(session->direct_, muster::client::DirectPath::open(*session, std::move(direct),
                                                                             std::move(groups), machine));
  return session;
}

Status muster_session::in_its_process() const {
  if (muster::client::forks() == forks_) return {};
  return failure(Code::kStale, "the session belongs to process {}; a child of fork() opens its own", pid_);
}

Status muster_session::usable() const {
  if (muster::client::forks() != forks_) return in_its_process();
  if (!loss_.ok()) return loss_;
  return closed();
}

Status muster_session::closed() const {
  const Code closed = reader_.closed();
  return closed == Code::kOk ? Status() : in_words(closed);
}

Status muster_session::in_words(Code code) const {
  if (code != Code::kJobEnded) return Status(code, muster::code_sentence(code));
  return failure(code,
                 "job {} was ended: by `muster end`, with its daemon, as whoever started it left, or because "
                 "a restarted daemon could not take it over",
                 welcome().job);
}

// A socket that hangs up between messages means that the engine is gone. One that ends its job says so before
// it goes, and what it said is still there to be read.
std::optional<Status> muster_session::daemon_loss() {
  std::byte probe;
  const auto message = shm::receive_message(connection_.socket, std::span(&probe, 1));
  const Code code = message ? Code::kOk : message.error().code();
  const bool alive = code == Code::kPending || code == Code::kNoResource;
  if (alive) return std::nullopt;
  return lose_engine("is gone");
}

Status muster_session::lose(const Status& status) {
  const bool gone = status.code() == Code::kDaemonLost || status.code() == Code::kWaitTimeout;
  return gone ? lose_engine("does not answer: " + status.message()) : loss_ = status;
}

Status muster_session::lose_engine(const std::string& how) {
  loss_ = closed();
  if (loss_.ok()) loss_ = failure(Code::kDaemonLost, "the engine of job {} {}", welcome().job, how);
  return loss_;
}

Result<std::span<const std::byte>> muster_session::exchange(std::span<std::byte> message,
                                                            std::span<const std::byte> extra,
                                                            shm::Descriptor* descriptor,
                                                            int descriptor_sent) {
  std::vector<std::byte> bytes(message.begin(), message.end());
  bytes.insert(bytes.end(), extra.begin(), extra.end());
  const auto descriptors = std::span(&descriptor_sent, descriptor_sent >= 0 ? 1 : 0);
  MUSTER_FAULT_POINT("ask.sending");
  const Status sent = shm::send_message(connection_.socket, bytes, descriptors);
  // What did not go out has cost nothing.
  if (!sent.ok()) return fail(sent.code() == Code::kDaemonLost ? lose(sent) : sent);
  MUSTER_FAULT_POINT("ask.sent");
  auto answer = shm::receive_message(connection_.socket, buffer_,
                                     muster::later(clock_.now(), connection_.timeout), clock_);
  // The answer came, only its descriptor found no place in this process: the next question has its own.
  if (!answer && answer.error().code() == Code::kNoResource) return fail(answer.error());
  if (!answer) return fail(lose(answer.error()));
  if (answer->bytes == 0) return fail(lose(Status(Code::kDaemonLost, "it closed the connection")));
  MUSTER_FAULT_POINT("ask.answered");
  if (descriptor != nullptr && !answer->descriptors.empty()) *descriptor = std::move(answer->descriptors[0]);
  return std::span<const std::byte>(buffer_).first(answer->bytes);
}

// ---- submission --------------------------------------------------------------------------------

Code muster_session::push(std::span<const shm::Command> commands) {
  const Code code = ring_.push_all(commands);
  if (code != Code::kOk) return code;
  if (ring_.doorbell_due()) {
    MUSTER_FAULT_POINT("bell.due");
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto rung = ::write(connection_.doorbell.get(), &one, sizeof one);
    MUSTER_FAULT_POINT("bell.rung");
  }
  return Code::kOk;
}

// More would stand in the ring, and behind them what other lanes need to go on.
bool muster_session::lane_full(muster_lane lane, std::uint64_t starts) {
  const std::uint32_t depth = std::min(connection_.welcome.lane_depth, shm::kLaneDepth);
  if (submitted_[lane] - settled_[lane] + starts <= depth) return false;
  settled_[lane] = std::max(settled_[lane], reader_.settled(lane, submitted_[lane]));
  return submitted_[lane] - settled_[lane] + starts > depth;
}

// A lane's point that was never handed out would only be noticed at the deadline.
bool muster_session::known_wait(muster_point wait) const {
  const std::uint32_t timeline = shm::point_timeline(wait);
  if (wait == 0) return true;
  if (timeline < MUSTER_LANE_COUNT) return shm::point_value(wait) <= submitted_[timeline];
  return timeline >= shm::kClientTimelineFirst && timeline < shm::kClientTimelineFirst + timelines_;
}

// Without its waits.
Code muster_session::command_of(muster_plan plan, const muster_submit& submit, shm::Command* command) const {
  if (submit.lane >= MUSTER_LANE_COUNT || submit.wait_count > MUSTER_WAITS_MAX || submit.flags != 0 ||
      submit.deadline_ns < 0)
    return Code::kBadArgument;
  if (find(plan) == nullptr) return Code::kStale;
  command->kind = shm::CommandKind::kStart;
  command->lane = static_cast<std::uint16_t>(submit.lane);
  command->plan = plan;
  command->deadline_ns = static_cast<std::uint64_t>(submit.deadline_ns);
  return Code::kOk;
}

Code muster_session::start(muster_plan plan, const muster_submit& submit, muster_point* point) {
  shm::Command command;
  if (const Code code = command_of(plan, submit, &command); code != Code::kOk) return code;
  for (std::uint32_t i = 0; i < submit.wait_count; ++i) {
    if (!known_wait(submit.waits[i])) return Code::kBadArgument;
    command.waits[i] = submit.waits[i];
  }
  if (lane_full(submit.lane)) return Code::kBusy;
  MUSTER_FAULT_POINT("start.checked");
  if (const Code code = reset_if_asked(submit.lane); code != Code::kOk) return code;
  PlanRecord& record = *find(plan);
  if (const Code code = tell(record); code != Code::kOk) return code;
  const Code code = push(std::span(&command, 1));
  if (code != Code::kOk) return code;
  MUSTER_FAULT_POINT("start.pushed");
  const std::uint64_t value = ++submitted_[submit.lane];
  reset_asked_[submit.lane] = false;
  record.last = shm::make_point(submit.lane, value);
  if (point != nullptr) *point = record.last;
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
  const Code code = push(std::span(&command, 1));
  MUSTER_FAULT_POINT("signal.pushed");
  if (code == Code::kOk) current = value;
  return code;
}

Code muster_session::reset(muster_lane lane) {
  if (lane >= MUSTER_LANE_COUNT) return Code::kBadArgument;
  reset_asked_[lane] = true;
  const Code code = reset_if_asked(lane);
  MUSTER_FAULT_POINT("reset.pushed");
  return code;
}

// The engine is told only of a lane that this process sees stopped: else the engine could come to the reset
// after a failure that nobody here remembers, and which the next one hides. What fails between the reset and
// the next start is seen then.
Code muster_session::reset_if_asked(muster_lane lane) {
  if (!reset_asked_[lane]) return Code::kOk;
  bool stopped = false;
  if (const Code code = reader_.stopped(lane, &stopped); code != Code::kOk || !stopped) return code;
  shm::Command command;
  command.kind = shm::CommandKind::kResetLane;
  command.lane = static_cast<std::uint16_t>(lane);
  const Code code = push(std::span(&command, 1));
  if (code != Code::kOk) return code;
  return reader_.remember_reset(lane, submitted_[lane]);
}

// ---- waiting -----------------------------------------------------------------------------------

namespace {

constexpr std::uint32_t kSpins = 64;  // tests with the core given away in between, before a sleep
// How often a sleeping client looks whether the engine is still there.
constexpr muster::Nanos kLossCheckPeriod = std::chrono::milliseconds(200);
// How often it looks whether it was interrupted: nobody wakes it for that.
constexpr muster::Nanos kInterruptCheckPeriod = std::chrono::milliseconds(50);
constexpr muster::Nanos kLongSilence = std::chrono::seconds(1);
constexpr std::uint32_t kTestsPerLook = 16;  // a clock is read, and not for each test

}  // namespace

Status muster_session::lane_status(muster_point point, Code code) {
  if (code == Code::kOk || code == Code::kPending) return Status(code, "");
  const std::uint32_t timeline = shm::point_timeline(point);
  if (code == Code::kBadArgument && timeline < MUSTER_LANE_COUNT)
    return failure(code, "the point is start {} of lane {}, which this session has not made: its last is {}",
                   shm::point_value(point), timeline, submitted_[timeline]);
  if (code == Code::kBadArgument)
    return failure(code,
                   "point {:#x} is of timeline {}, which is no lane and none that this session has created",
                   point, timeline);
  if (timeline >= MUSTER_LANE_COUNT) return in_words(code);
  auto why = reader_.failure(timeline);
  // The text is of the lane's present failure, the point may be of one before.
  const bool its_own =
      why && !why->text.empty() && why->status == code && shm::point_value(point) >= why->failed_from;
  const Status status = its_own ? Status(code, why->text, why->culprit_rank) : in_words(code);
  note_failure(status, timeline, its_own ? shm::make_point(timeline, why->failed_from) : point);
  return status;
}

void muster_session::note_failure(const Status& status, muster_lane lane, muster_point point) {
  if (muster::is_group_failure(status.code())) last_failure_ = FailedCall{status, lane, point};
}

// Nothing to ask the engine about: the client itself raises its timelines, and knows what it has started.
std::optional<Code> muster_session::own_timeline(muster_point point) const {
  const std::uint32_t timeline = shm::point_timeline(point);
  if (point == 0) return std::nullopt;
  if (timeline < MUSTER_LANE_COUNT)
    return shm::point_value(point) > submitted_[timeline] ? std::optional(Code::kBadArgument) : std::nullopt;
  if (timeline < shm::kClientTimelineFirst) return Code::kBadArgument;
  if (timeline >= shm::kClientTimelineFirst + timelines_) return Code::kBadArgument;
  return signalled_[timeline - shm::kClientTimelineFirst] >= shm::point_value(point) ? Code::kOk
                                                                                     : Code::kPending;
}

Status muster_session::test(muster_point point) {
  if (const auto own = own_timeline(point)) return lane_status(point, *own);
  const Code code = reader_.test(point);
  if (code == Code::kPending)
    if (const auto loss = loss_seen_in_passing()) return *loss;
  return lane_status(point, code);
}

std::optional<Status> muster_session::loss_seen_in_passing() {
  if (!loss_.ok()) return loss_;
  return ++pending_tests_ % kTestsPerLook == 0 ? loss_of_silent_engine() : std::nullopt;
}

std::optional<Status> muster_session::loss_of_silent_engine() {
  return reader_.silence(clock_.now()) < kLongSilence ? std::nullopt : daemon_loss();
}

Status muster_session::wait(muster_point point, muster::Nanos timeout) {
  return spend_interrupt(await(point, timeout));
}

Status muster_session::await(muster_point point, muster::Nanos timeout, Interrupts interrupts) {
  if (const auto own = own_timeline(point)) {
    // Only this thread could raise it, so waiting would be for ever.
    if (*own == Code::kPending && timeout.count() == 0)
      return failure(Code::kWaitTimeout, "the point was not reached within the wait's time");
    return *own == Code::kPending
               ? failure(Code::kState, "the point is of a timeline that this session raises itself")
               : lane_status(point, *own);
  }
  return wait_with_daemon(timeout, interrupts, [&](muster::Instant until) {
    return std::pair(point, reader_.wait(point, kSpins, until, clock_));
  });
}

Status muster_session::wait_any(std::span<const muster_point> points, muster::Nanos timeout,
                                std::size_t* index) {
  bool any = false;
  bool others_raise = false;
  *index = points.size();
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i] == MUSTER_POINT_NONE) continue;
    const auto own = own_timeline(points[i]);
    any = true;
    others_raise = others_raise || !own;
    const Code code = own ? *own : reader_.test(points[i]);
    if (code == Code::kPending) continue;
    *index = i;
    return spend_interrupt(lane_status(points[i], code));
  }
  if (!any) return {};
  if (timeout.count() == 0) {
    if (const auto loss = others_raise ? loss_seen_in_passing() : std::nullopt) return *loss;
    return failure(Code::kWaitTimeout, "no point was reached within the wait's time");
  }
  if (!others_raise)
    return failure(Code::kState, "all points are of timelines that this session raises itself");
  return spend_interrupt(wait_with_daemon(timeout, Interrupts::kEnd, [&](muster::Instant until) {
    const Code code = reader_.wait_any(points, kSpins, until, clock_, index);
    return std::pair(code == Code::kWaitTimeout ? MUSTER_POINT_NONE : points[*index], code);
  }));
}

// `wait_until(instant)` says what was decided of which point. In slices: the daemon may be gone, and somebody
// may want this thread out. One look at the points comes after that at the interrupt: what need not wait, or
// is only tested, is not interrupted.
template<class Wait>
Status muster_session::wait_with_daemon(muster::Nanos timeout, Interrupts interrupts, Wait wait_until) {
  const muster::Instant begun = clock_.now();
  const muster::Instant deadline = muster::later(begun, timeout.count() < 0 ? connection_.timeout : timeout);
  const bool heeds = interrupts == Interrupts::kEnd && timeout.count() != 0;
  muster::Instant loss_check = begun + kLossCheckPeriod;
  while (true) {
    const bool ends = heeds && interrupted();
    const muster::Instant now = clock_.now();
    const muster::Instant slice = ends ? now : std::min(deadline, now + kInterruptCheckPeriod);
    const auto [point, code] = wait_until(slice);
    if (code != Code::kWaitTimeout) return lane_status(point, code);
    if (ends)
      return Status(Code::kWaitInterrupted,
                    "the wait was interrupted (muster_interrupt); the operation goes on");
    const bool over = slice == deadline;
    if (!over && slice < loss_check) continue;
    if (const auto loss = daemon_loss()) return *loss;
    if (over) return not_reached();
    loss_check = slice + kLossCheckPeriod;
  }
}

// An engine that takes no turns is why, and no rank is to blame.
Status muster_session::not_reached() const {
  const muster::Nanos silence = reader_.silence(clock_.now());
  if (silence < kLongSilence)
    return failure(Code::kWaitTimeout, "the point was not reached within the wait's time");
  return failure(Code::kWaitTimeout,
                 "the point was not reached within the wait's time, and the job's engine has not moved for "
                 "{:.1f} s: it is stopped or gets no core; see `muster hang`",
                 std::chrono::duration<double>(silence).count());
}

// ---- counters ----------------------------------------------------------------------------------

std::optional<std::uint64_t> muster_session::own_counter(std::string_view name) const {
  return direct_ != nullptr ? direct_->counter(name) : std::nullopt;
}

// ---- names -------------------------------------------------------------------------------------

Result<shm::MeshAnswer> muster_session::mesh_dim(const char* dim) {
  const std::pair<muster_mesh, std::string> name(mesh_, dim);
  if (const auto known = dims_.find(name); known != dims_.end()) return known->second;
  shm::MeshQuery request;
  request.mesh = mesh_;
  if (*dim == '\0') return fail(Code::kBadArgument, "a dim's name is empty");
  MUSTER_RETURN_IF_ERROR(shm::set_text(request.dim, dim, "a dim's name"));
  auto answer = ask<shm::MeshAnswer>(request, shm::MessageKind::kMeshQuery, shm::MessageKind::kMeshAnswer);
  if (answer) dims_.emplace(name, *answer);
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

Result<const muster_session::GroupFacts*> muster_session::known_group(muster_group handle) {
  auto known = groups_.find(handle);
  if (known == groups_.end()) {
    MUSTER_ASSIGN_OR_RETURN(GroupFacts facts, group(handle));
    known = groups_.emplace(handle, std::move(facts)).first;
  }
  return &known->second;
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
  MUSTER_FAULT_POINT("event.opened");
  if (!events_.valid()) return fail(Code::kProtocol, "the daemon sent no event socket");
  return events_.get();
}

void muster_session::goodbye() {
  constexpr muster::Nanos kGoodbyeTime = std::chrono::seconds(1);  // an engine that hangs holds nobody up
  if (!usable().ok()) return;
  connection_.timeout = std::min(connection_.timeout, kGoodbyeTime);
  MUSTER_FAULT_POINT("goodbye.saying");
  static_cast<void>(ask<shm::Plain>(shm::Plain{}, shm::MessageKind::kGoodbye, shm::MessageKind::kDone));
  MUSTER_FAULT_POINT("goodbye.said");
}
