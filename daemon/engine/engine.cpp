#include "daemon/engine/engine.hpp"

#include "api/base/log.hpp"
#include "daemon/engine/counted_device.hpp"
#include "transport/loopback/loopback.hpp"

#include <algorithm>

namespace muster::engine {
namespace {

constexpr std::size_t kTraceEventsMax = 1u << 21;

constexpr std::uint32_t kNamesPerRankMax = 1024;

// As much as all arenas together.
std::uint64_t names_bytes_max(const control::JobSpec& spec) {
  std::uint64_t bytes = 0;
  return __builtin_mul_overflow(spec.arena_bytes_max, spec.world, &bytes) ? UINT64_MAX : bytes;
}

}  // namespace

// ---- birth and death ---------------------------------------------------------------------------

Engine::Engine(const control::JobSpec& spec, const Clock& clock, mesh::GroupList groups, Doorbells doorbells,
               std::unique_ptr<ProcessProbe> probe, std::shared_ptr<MemoryAccount> account,
               transport::CommunicatorFactory communicators)
    : spec_(spec),
      clock_(clock),
      probe_(probe ? std::move(probe) : std::make_unique<SystemProcesses>()),
      account_(std::move(account)),
      open_communicator_(communicators ? std::move(communicators) : transport::open_loopback),
      graph_options_{spec.world, spec.starts_per_lane_max},
      group_list_(std::move(groups)),
      table_({static_cast<std::uint32_t>(group_list_.size()), spec.world, spec.groups_made_max}, spec.epoch),
      doorbells_(std::move(doorbells)),
      seats_(spec.world),
      trace_(kTraceEventsMax),
      flight_log_(spec.world),
      lateness_(spec.world, table_.size()) {
  counted_.reserve(spec.world);
}

Engine::~Engine() {
  if (pool_) pool_->halt();  // no worker is in a turn of ours from here on
}

Result<std::unique_ptr<Engine>> Engine::create(const control::JobSpec& spec, const Clock& clock,
                                               std::unique_ptr<ProcessProbe> probe, Pooling pooling,
                                               std::shared_ptr<MemoryAccount> account,
                                               transport::CommunicatorFactory communicators) {
  MUSTER_ASSIGN_OR_RETURN(mesh::GroupList groups, groups_of_mesh(spec));
  MUSTER_ASSIGN_OR_RETURN(Doorbells doorbells, Doorbells::open());
  std::unique_ptr<Engine> engine(new Engine(spec, clock, std::move(groups), std::move(doorbells),
                                            std::move(probe), std::move(account), std::move(communicators)));
  MUSTER_RETURN_IF_ERROR(engine->open(pooling));
  MUSTER_LOG(kInfo, "engine", "job {}: {} ranks, mesh {}, {} groups, {}", spec.name, spec.world, spec.mesh,
             engine->group_list_.size(), engine->device_->info().name);
  return engine;
}

Status Engine::open(Pooling pooling) {
  // The workers start while we hold the baton, so that none takes a turn before the graph exists.
  const std::lock_guard lock(baton_);
  if (table_.first_made() > GroupTable::kGroupsMax)
    return failure(Code::kNoResource, "mesh {} of {} ranks has {} groups; with single ranks more than {}",
                   spec_.mesh, spec_.world, group_list_.size(), GroupTable::kGroupsMax);
  constexpr std::uint64_t kSessionBytes = shm::kSubmissionBytes + shm::kCompletionBytes;
  MUSTER_ASSIGN_OR_RETURN(sessions_charge_, MemoryAccount::charge(account_, spec_.world * kSessionBytes));
  MUSTER_RETURN_IF_ERROR(open_device(pooling));
  return open_groups();
}

Status Engine::open_device(Pooling pooling) {
  device::host::PoolOptions options;
  options.workers = spec_.workers;
  options.streams_max = spec_.world * graph_options_.lanes;
  options.depth = scheduler::Executor::kEntriesPerStep * graph_options_.launch_depth;
  options.spin = spec_.idle_spin;
  options.duty = this;
  if (pooling == Pooling::kByHand) {
    pool_ = device::host::Pool::open_manual(options);
  } else {
    MUSTER_ASSIGN_OR_RETURN(pool_, device::host::Pool::start(options));
  }
  MUSTER_ASSIGN_OR_RETURN(auto host, device::host::open_device(*pool_));
  device_ = std::make_unique<CountedDevice>(std::move(host), CountedDevice::beside(spec_.world), account_);
  for (Seat& seat : seats_)
    seat.arena =
        std::make_unique<Arena>(*device_, Arena::Options{spec_.arena_bytes_max, spec_.segment_bytes});
  named_.emplace(*device_, NamedMemory::Options{names_bytes_max(spec_), spec_.world * kNamesPerRankMax});
  return {};
}

Scope Engine::scope(const Session& session) const {
  return session.scope(graph_->groups());
}

// ---- conductor ---------------------------------------------------------------------------------

Result<Attached> Engine::attach(Rank rank, std::int32_t pid) {
  if (rank.value >= spec_.world)
    return fail(Code::kBadArgument, "rank {} is not in 0..{} of job {}", rank.value, spec_.world - 1,
                spec_.name);
  bury();
  const shm::Headroom headroom = shm::memory_headroom();
  MUSTER_ASSIGN_OR_RETURN(shm::SubmissionView submission, shm::SubmissionView::create(headroom));
  MUSTER_ASSIGN_OR_RETURN(shm::CompletionView page,
                          shm::CompletionView::create(next_session_, spec_.epoch, headroom));
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor bell, make_bell());
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor copy, copy_bell(bell));

  const std::lock_guard lock(baton_);
  Seat& seat = seats_[rank.value];
  if (closed_)
    return fail(Code::kJobEnded, "job {} is ending; try again once it is gone (`muster jobs`)", spec_.name);
  if (seat.session)
    return fail(Code::kDuplicate,
                "rank {} of job {} is held by process {}; end that process or attach as another rank",
                rank.value, spec_.name, seat.session->options().pid);
  MUSTER_RETURN_IF_ERROR(doorbells_.add(bell));
  const SessionOptions options{
      rank, SessionId(next_session_++), pid, spec_.buffers_max, spec_.plans_max, spec_.deadline, &table_};
  seat.session = std::make_unique<Session>(options, std::move(submission), std::move(page), *seat.arena);
  seat.doorbell = std::move(bell);
  seat.process = probe_->identify(pid);
  seat.heard_at = clock_.now();
  seat.session->publication().beat(seat.heard_at);
  seat.finished.reset();
  flight_log_.attached(rank);
  graph_->attached(rank);
  seat.heard.reset();
  Attached attached{seat.session.get(), std::move(copy), -1, -1, welcome(*seat.session)};
  if (board_) {
    board_->reset(rank);
    board_->segments().set_attached(rank, true);
    refresh_absences();
    attached.direct_segment = board_->segments().descriptor(rank);
    attached.group_page = board_->segments().page_descriptor();
  }
  ++seat.attachments;
  // Engines that sleep have not armed this session's ring, so its client would not ring for them.
  wake();
  return attached;
}

shm::Welcome Engine::welcome(const Session& session) const {
  shm::Welcome w;
  w.session = session.options().id.value;
  w.rank = w.local_rank = static_cast<std::int32_t>(session.options().rank.value);
  w.world_size = w.local_size = static_cast<std::int32_t>(spec_.world);
  w.attachments = seats_[session.options().rank.value].attachments;
  w.epoch = spec_.epoch;
  w.deadline_ns = spec_.deadline.count();
  spec_.name.copy(w.job, sizeof w.job - 1);
  group_list_.mesh().degrees().canonical().copy(w.mesh, sizeof w.mesh - 1);
  w.cores = pool_->workers();
  w.lane_depth = spec_.starts_per_lane_max;
  w.digests = spec_.digests;
  if (board_) {
    w.direct_bytes = board_->segments().bytes(session.options().rank);
    w.group_bytes = board_->segments().page_bytes();
  }
  return w;
}

void Engine::detach(Rank rank, const std::string& text) {
  const std::lock_guard lock(baton_);
  Seat& seat = seats_[rank.value];
  if (!seat.session) return;
  doorbells_.remove(seat.doorbell);
  seat.doorbell.reset();
  seat.offence.clear();
  const scheduler::CausePtr cause = graph_->detached(rank, text, clock_.now(), heard_direct(rank));
  if (board_ && cause != nullptr) {
    board_->segments().set_attached(rank, false);
    end_direct(rank, cause);
    refresh_absences();
  }
  for (std::uint32_t g = 0; g < graph_->groups().size(); ++g) {
    const auto& members = graph_->groups()[g].ranks;
    if (std::find(members.begin(), members.end(), rank) != members.end())
      shrinks_.lost(GroupId(g), SessionId(next_session_));
  }
  if (trace_.on() && trace_by_ == recorder_name(rank)) static_cast<void>(stop_recording());
  shrinks_.left(seat.session->options().id);
  graveyard_.push_back(std::move(seat.session));
  lateness_changes_.clear();
  lateness_.left(rank, lateness_changes_);
  log_lateness(clock_.now());
  wake_clients();
}

std::size_t Engine::bury() {
  const LetGo after_the_baton(gone_);
  const std::lock_guard lock(baton_);
  std::vector<SessionId> gone;
  std::erase_if(graveyard_, [&](const std::unique_ptr<Session>& session) {
    if (!session->plans().idle()) return false;
    session->buffers().give_back(gone_);
    gone.push_back(session->options().id);
    const Rank rank = session->options().rank;
    if (board_) board_->segments().set_retired(rank, seats_[rank.value].arena->retired());
    return true;
  });
  // Only now: what a session held keeps its groups.
  for (const SessionId session : gone) release_groups(session);
  return graveyard_.size();
}

// The departure of a rank has ended an epoch already. Members may have arrived in the next one meanwhile, and
// cannot take that back on the direct path: so an absence ends that epoch too. Said again, it ends nothing.
void Engine::absent(Rank rank, const std::string& text) {
  const std::lock_guard lock(baton_);
  if (rank.value >= spec_.world) return;
  const bool known = graph_->absences().of(rank) != nullptr;
  graph_->absent(rank, text, clock_.now());
  if (board_ && !known) {
    if (const scheduler::CausePtr gone = graph_->absences().of(rank)) end_direct(rank, gone);
    refresh_absences();
  }
  wake_clients();
}

void Engine::expect_all() {
  const std::lock_guard lock(baton_);
  graph_->expect_all();
  if (board_) refresh_absences();
}

void Engine::close(Code code, const std::string& text) {
  const std::lock_guard lock(baton_);
  closed_ = true;
  for (std::uint32_t g = 0; g < graph_->groups().size(); ++g) {
    const scheduler::CausePtr cause = graph_->abort(GroupId(g), {code, -1, text}, clock_.now());
    if (board_) board_->epochs().end(GroupId(g), cause, scheduler::Epochs::Why::kOther);
  }
  for (Seat& seat : seats_)
    if (seat.session) seat.session->publication().close(code, text);
}

Result<Handle> Engine::plan_kernel(Session& session, const muster_kernel& kernel) {
  MUSTER_ASSIGN_OR_RETURN(auto plan, resolve_kernel(scope(session), kernel));
  const std::lock_guard lock(baton_);
  return session.plans().add(std::move(plan));
}

Result<Handle> Engine::plan_collective(Session& session, const shm::PlanCollective& message,
                                       const CollectiveLists& lists) {
  MUSTER_ASSIGN_OR_RETURN(auto plan, resolve_collective(scope(session), message, lists));
  const std::lock_guard lock(baton_);
  const scheduler::CollectiveWork& work = *plan->collective();
  lateness_.expect(work.group);
  graph_->expect(work);
  if (work.point_to_point()) flight_log_.expect(work.group, work.collective.root, work.collective.receiver);
  return session.plans().add(std::move(plan), message);
}

// What the client has pushed before it asked: once through the ring.
void Engine::drain_all(Seat& seat) {
  constexpr std::size_t kTurns = shm::kRingCapacity / CommandIntake::kBatch;
  for (std::size_t turn = 0; turn <= kTurns && drain_ring(seat, clock_.now()) > 0;) ++turn;
}

// Starts that the client has pushed are in flight for it, whether they lie in the ring or not: they are taken
// out first.
Status Engine::destroy_plan(Session& session, Handle handle) {
  const std::lock_guard lock(baton_);
  drain_all(seats_[session.options().rank.value]);
  if (session.intake().has_backlog())
    return failure(Code::kBusy, "starts before this call wait for room on their lane; wait for their points");
  return session.plans().destroy(handle);
}

Status Engine::abort_group(Session& session, std::uint64_t group) {
  MUSTER_ASSIGN_OR_RETURN(const GroupId id, find_group(scope(session), group));
  const std::lock_guard lock(baton_);
  const std::uint32_t rank = session.options().rank.value;
  drain_all(seats_[rank]);  // what it has started and reset before is of before
  const scheduler::Cause cause{
      Code::kAborted, static_cast<std::int32_t>(rank),
      fmt::format("rank {} aborted group {}", rank, graph_->groups()[id.value].name)};
  // Two faults: a rank that hears of an abort by a run hears of it on its lanes too.
  graph_->abort(id, cause, clock_.now());
  if (board_) board_->epochs().end(id, graph_->new_fault(cause), scheduler::Epochs::Why::kOther);
  wake_clients();
  return {};
}

Result<shm::Descriptor> Engine::open_events(Session& session) {
  const std::lock_guard lock(baton_);
  return session.publication().open_events();
}

std::string recorder_name(Rank rank) {
  return fmt::format("rank {}", rank.value);
}

Status Engine::trace_begin(std::string by) {
  const std::lock_guard lock(baton_);
  if (trace_.on())
    return failure(Code::kBusy,
                   "a recording of job {} is on already, of {}; it ends where it was begun, or by "
                   "`muster trace --job {} --end`",
                   spec_.name, trace_by_, spec_.name);
  trace_.begin(clock_.now());
  trace_by_ = std::move(by);
  if (!board_) return {};
  traced_.clear();
  for (std::uint32_t rank = 0; rank < spec_.world; ++rank)
    traced_.push_back(board_->records().recorded(Rank(rank)));
  board_->segments().set_recording(true);
  return {};
}

scheduler::Trace Engine::stop_recording() {
  if (board_) {
    trace_direct();
    board_->segments().set_recording(false);
  }
  trace_by_.clear();
  return std::exchange(trace_, scheduler::Trace(kTraceEventsMax));
}

// The text of a long recording takes long to write, so it is written without the baton.
Result<std::string> Engine::trace_end(std::string_view by) {
  scheduler::Trace recording(0);
  {
    const std::lock_guard lock(baton_);
    if (!trace_.on())
      return fail(Code::kState,
                  "no recording of job {} is on; begin one with muster_trace_begin, `muster trace` or "
                  "`muster run --trace`",
                  spec_.name);
    if (!by.empty() && by != trace_by_)
      return fail(Code::kState, "the recording of job {} that is on is of {}, not of {}", spec_.name,
                  trace_by_, by);
    recording = stop_recording();
  }
  std::vector<std::string> names;
  for (const scheduler::Group& group : graph_->groups()) names.push_back(group.name);
  return recording.json(spec_.name, spec_.world, names);
}

std::string Engine::recorder() const {
  const std::lock_guard lock(baton_);
  return trace_by_;
}

std::optional<std::pair<Rank, std::string>> Engine::take_offender() {
  const std::lock_guard lock(baton_);
  for (const Seat& seat : seats_)
    if (seat.session && !seat.offence.empty()) return std::pair(seat.session->options().rank, seat.offence);
  return std::nullopt;
}

Status Engine::health() const {
  const std::lock_guard lock(baton_);
  return health_;
}

std::vector<Engine::RankReport> Engine::report() {
  const std::lock_guard lock(baton_);
  std::vector<RankReport> reports;
  for (const Seat& seat : seats_) {
    reports.push_back({seat.session != nullptr, seat.session ? seat.session->options().pid : 0,
                       seat.attachments, seat.arena->used_bytes(), seat.arena->reserved_bytes()});
  }
  return reports;
}

}  // namespace muster::engine
