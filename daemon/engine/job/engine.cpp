#include "daemon/engine/job/engine.hpp"

#include "api/base/log.hpp"
#include "api/shm/endpoint.hpp"
#include "daemon/engine/session/group_span.hpp"
#include "transport/loopback/loopback.hpp"

#include <algorithm>
#include <thread>

namespace muster::engine {
namespace {

constexpr Nanos kTickPeriod = std::chrono::milliseconds(10);
// A message wakes a node that waits for it. Where ranks and workers share cores, polling for it takes cores
// from ranks.
constexpr Nanos kSpinOnSharedCores = std::chrono::microseconds(10);
bool shares_cores(const World& world) {
  return 2 * world.local_count() > std::thread::hardware_concurrency();
}

// One transaction: every group of the mesh, and of each rank alone, is connected before any may be used. The
// places of made groups stay empty, as do those of groups that a job without a network cannot use.
Result<std::vector<std::unique_ptr<transport::Communicator>>> connect_all(
    std::span<const scheduler::Group> groups, const RankTable<device::Device*>& devices,
    const transport::Factories& factories) {
  std::vector<std::unique_ptr<transport::Communicator>> communicators(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].ranks.empty() || (!groups[g].spans() && !devices.world().are_local(groups[g].ranks)))
      continue;
    MUSTER_ASSIGN_OR_RETURN(communicators[g], open_communicator(groups[g], devices, factories));
  }
  return communicators;
}

Result<std::unique_ptr<device::Pool>> open_pool(const control::JobSpec& spec,
                                                const scheduler::Graph::Options& graph,
                                                Engine::Pooling pooling, device::IdleProgress& progress,
                                                bool spans) {
  device::PoolOptions options;
  options.workers = spec.workers;
  constexpr std::uint32_t kOfTransport = 4;  // one of each priority
  options.streams_max =
      std::min(spec.world.local_count() * shm::kLanesMax + kOfTransport, device::PoolOptions::kStreamsMax);
  options.depth = scheduler::Executor::kEntriesPerStep * graph.launch_depth;
  options.spin =
      spans && shares_cores(spec.world) ? std::min(spec.idle_spin, kSpinOnSharedCores) : spec.idle_spin;
  options.progress = &progress;
  if (pooling == Engine::Pooling::kByHand) return device::Pool::open_manual(options);
  return device::Pool::start(options);
}

}  // namespace

// ---- birth and death ---------------------------------------------------------------------------

Engine::Engine(const control::JobSpec& spec, const Clock& clock, Doorbells doorbells,
               std::unique_ptr<ProcessProbe> probe, std::shared_ptr<MemoryAccount> account,
               transport::JobTransport transport)
    : spec_(spec),
      clock_(clock),
      probe_(probe ? std::move(probe) : std::make_unique<SystemProcesses>()),
      account_(std::move(account)),
      graph_options_{spec.world, spec.starts_per_lane_max},
      doorbells_(std::move(doorbells)),
      spans_(transport.links != nullptr),
      links_(spans_ ? std::move(transport.links) : std::make_shared<transport::JobLinks>()),
      factories_(std::move(transport.factories)) {
  factories_.push_back(transport::loopback_factory());
}

Engine::Parts::Parts(Engine& engine, std::optional<DirectPages> own_board, JobGroups::Plan plan,
                     scheduler::Executor own_executor, Tally tally)
    : maybe_board(std::move(own_board)),
      direct_pages(maybe_board ? &*maybe_board : nullptr),
      buffers(engine.spec_, engine.lock_, *engine.devices_, graph, slots, direct_pages),
      slots(engine.spec_.world, graph, engine.clock_),
      executor(std::move(own_executor)),
      graph(engine.graph_options_, std::move(plan.groups), execution),
      metrics(engine.spec_, engine.pool_->workers(), graph, executor, slots, direct_pages, std::move(tally)),
      recorder(engine.spec_, engine.clock_, engine.lock_, graph, direct_pages),
      reports(engine.spec_, engine.clock_, engine.lock_, *engine.probe_, graph, slots, metrics, direct_pages),
      elsewhere(engine.spec_.world, *engine.links_),
      faults(engine.spec_.world, engine.clock_, engine.lock_, graph, slots, elsewhere, direct_pages),
      other_nodes(
          engine.spec_, engine.clock_, engine.lock_, graph, slots, *engine.links_,
          [this, &engine](GroupId group) { groups.lost_elsewhere(group, SessionId(engine.next_session_)); }),
      missing(engine.spec_.world, graph, *engine.links_),
      for_groups{engine.spec_,
                 engine.clock_,
                 engine.lock_,
                 graph,
                 executor,
                 slots,
                 buffers,
                 metrics,
                 faults,
                 direct_pages,
                 engine.factories_,
                 engine.spans_,
                 engine.devices_->table(),
                 other_nodes,
                 elsewhere,
                 missing},
      groups(std::move(plan.table), for_groups),
      meshes(std::move(plan.list), groups, for_groups),
      lanes(engine.lock_, graph, executor, slots, metrics),
      plans(engine.lock_, graph, slots, metrics),
      direct(engine.lock_, graph, slots, buffers, faults, reports, direct_pages),
      execution(engine.spec_, graph, executor, slots, metrics, recorder, reports, missing, *engine.links_) {}

Engine::~Engine() {
  if (pool_) pool_->halt();  // no worker is in a turn of this engine afterwards
}

Result<std::unique_ptr<Engine>> Engine::create(const control::JobSpec& spec, const Clock& clock,
                                               std::unique_ptr<ProcessProbe> probe, Pooling pooling,
                                               std::shared_ptr<MemoryAccount> account,
                                               transport::JobTransport transport,
                                               std::span<const device::DeviceId> devices) {
  MUSTER_ASSIGN_OR_RETURN(JobGroups::Plan plan, JobGroups::plan(spec, transport.links != nullptr));
  MUSTER_ASSIGN_OR_RETURN(Doorbells doorbells, Doorbells::open());
  std::unique_ptr<Engine> engine(new Engine(spec, clock, std::move(doorbells), std::move(probe),
                                            std::move(account), std::move(transport)));
  MUSTER_RETURN_IF_ERROR(engine->open(pooling, std::move(plan), devices));
  const World& world = spec.world;
  MUSTER_LOG(kInfo, "engine", "job {}: {} ranks{}, mesh {}, {} groups, {}", spec.name, world.size(),
             world.nodes().size() == 1
                 ? ""
                 : fmt::format(", {} of them here ({})", world.local_count(), world.text_of(world.locals())),
             spec.mesh, engine->meshes().list().size(), engine->devices_->text());
  return engine;
}

// The workers start under the lock, so that none takes a turn before all parts are there.
Status Engine::open(Pooling pooling, JobGroups::Plan plan, std::span<const device::DeviceId> devices) {
  const std::lock_guard lock(lock_);
  for (const auto& factory : factories_)
    if (factory->descriptor() >= 0) MUSTER_RETURN_IF_ERROR(doorbells_.add(factory->descriptor()));
  constexpr std::uint64_t kSessionBytes = shm::kSubmissionBytes + shm::kCompletionBytes;
  MUSTER_ASSIGN_OR_RETURN(sessions_charge_,
                          MemoryAccount::charge(account_, spec_.world.local_count() * kSessionBytes));
  MUSTER_ASSIGN_OR_RETURN(pool_, open_pool(spec_, graph_options_, pooling, *this, spans_));
  MUSTER_ASSIGN_OR_RETURN(devices_, RankDevices::open(spec_.world, devices, *pool_, account_));
  graph_options_.stream_waits = devices_->all(&device::Device::Info::stream_waits);
  for (const auto& factory : factories_) factory->use([this] { wake(); });
  MUSTER_ASSIGN_OR_RETURN(auto communicators, connect_all(plan.groups, devices_->table(), factories_));
  const GroupTable& table = plan.table;
  MUSTER_ASSIGN_OR_RETURN(
      Tally tally,
      Tally::create(spec_.world, std::span(plan.groups).first(plan.list.size()),
                    {table.first_made(), table.size() - table.first_made()}, spec_.epoch, account_));
  MUSTER_ASSIGN_OR_RETURN(
      scheduler::Executor executor,
      scheduler::Executor::open({devices_->table(), graph_options_.lanes, graph_options_.launch_depth},
                                std::move(communicators)));
  std::optional<DirectPages> direct_pages;
  if (devices_->all(&device::Device::Info::node_memory)) {
    MUSTER_ASSIGN_OR_RETURN(
        DirectPages made,
        DirectPages::create(plan.groups, spec_.world, GroupTable::kRoom * spec_.groups_made_max, spec_.epoch,
                            shm::memory_headroom(), account_));
    direct_pages.emplace(std::move(made));
  }
  parts_ = std::make_unique<Parts>(*this, std::move(direct_pages), std::move(plan), std::move(executor),
                                   std::move(tally));
  return {};
}

// ---- sessions ----------------------------------------------------------------------------------

Result<Attached> Engine::attach(Rank rank, std::int32_t pid) {
  const World& world = spec_.world;
  if (rank.value >= world.size())
    return fail(Code::kBadArgument, "rank {} is not in 0..{} of job {}", rank.value, world.size() - 1,
                spec_.name);
  if (!world.is_local(rank))
    return fail(Code::kBadArgument, "{} of job {}; attach to the daemon there",
                world.text_of(std::span(&rank, 1)), spec_.name);
  reclaim();
  const shm::Headroom headroom = shm::memory_headroom();
  MUSTER_ASSIGN_OR_RETURN(shm::SubmissionView submission, shm::SubmissionView::create(headroom));
  MUSTER_ASSIGN_OR_RETURN(shm::CompletionView page,
                          shm::CompletionView::create(next_session_, spec_.epoch, headroom));
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor bell, make_bell());
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor copy, copy_bell(bell));

  const std::lock_guard lock(lock_);
  RankSlot& slot = parts_->slots.of(rank);
  if (closed_)
    return fail(Code::kJobEnded, "job {} is ending; try again once it is gone (`muster jobs{}`)", spec_.name,
                shm::endpoint_option(spec_.endpoint));
  if (slot.session)
    return fail(Code::kDuplicate,
                "rank {} of job {} is held by process {}; end that process or attach as another rank",
                rank.value, spec_.name, slot.session->options().pid);
  MUSTER_RETURN_IF_ERROR(doorbells_.add(bell));
  const SessionOptions options{rank,
                               spec_.world,
                               SessionId(next_session_++),
                               pid,
                               spec_.buffers_max,
                               spec_.plans_max,
                               spec_.deadline,
                               &parts_->groups.table()};
  slot.session =
      std::make_unique<Session>(options, std::move(submission), std::move(page), parts_->buffers.arena(rank));
  slot.doorbell = std::move(bell);
  slot.process = probe_->identify(pid);
  slot.heard_at = clock_.now();
  parts_->other_nodes.hear(slot.heard_at);  // the client stands in the epochs of all nodes
  slot.session->publication().beat(slot.heard_at);
  parts_->metrics.attached(rank);
  Attached attached{slot.session.get(), std::move(copy), -1, -1, welcome(*slot.session)};
  parts_->faults.attached(rank);
  if (const DirectPages* direct_pages = parts_->direct_pages) {
    attached.direct_segment = direct_pages->segments().descriptor(rank);
    attached.group_page = direct_pages->segments().page_descriptor();
  }
  ++slot.attachments;
  // A sleeping engine has not armed this session's ring, so the client would not ring its doorbell.
  wake();
  return attached;
}

shm::Welcome Engine::welcome(const Session& session) const {
  const Rank rank = session.options().rank;
  shm::Welcome w;
  w.session = session.options().id.value;
  w.rank = static_cast<std::int32_t>(rank.value);
  w.world_size = static_cast<std::int32_t>(spec_.world.size());
  w.local_rank = static_cast<std::int32_t>(spec_.world.local(rank).value);
  w.local_size = static_cast<std::int32_t>(spec_.world.local_count());
  w.attachments = parts_->slots.of(rank).attachments;
  w.epoch = spec_.epoch;
  w.deadline_ns = spec_.deadline.count();
  spec_.name.copy(w.job, sizeof w.job - 1);
  parts_->meshes.list().mesh().degrees().canonical().copy(w.mesh, sizeof w.mesh - 1);
  w.cores = pool_->workers();  // for all ranks alike, or they would choose different algorithms
  w.costs = spec_.costs;
  w.lane_depth = spec_.starts_per_lane_max;
  w.digests = spec_.digests;
  if (const DirectPages* direct_pages = parts_->direct_pages) {
    w.direct_bytes = direct_pages->segments().bytes(rank);
    w.group_bytes = direct_pages->segments().page_bytes();
  }
  return w;
}

void Engine::detach(Rank rank, const std::string& text) {
  const std::lock_guard lock(lock_);
  const RankSlot& slot = parts_->slots.of(rank);
  if (!slot.session) return;
  const SessionId session = slot.session->options().id;
  doorbells_.remove(slot.doorbell);
  parts_->faults.left(rank, text);
  parts_->groups.left(rank, session, SessionId(next_session_));
  parts_->recorder.left(rank);
  parts_->slots.leave(rank);
  parts_->metrics.left(rank, clock_.now());
  parts_->slots.wake_clients();
}

void Engine::close(Code code, const std::string& text) {
  const std::lock_guard lock(lock_);
  closed_ = true;
  parts_->faults.end_all(code, text);
  parts_->slots.close(code, text);
}

// Memory is let go without the lock: unmapping GiBs takes seconds, in which all ranks would wait.
std::size_t Engine::reclaim() {
  SessionBuffers::Gone gone;
  const std::lock_guard lock(lock_);
  std::vector<SessionId> ended;
  for (const auto& session : parts_->slots.take_idle()) {
    parts_->buffers.give_back(*session, gone);
    ended.push_back(session->options().id);
  }
  // Sessions are destroyed first, because their objects keep their groups.
  for (const SessionId session : ended) {
    parts_->meshes.release(session);
    parts_->groups.release(session, gone);
  }
  return parts_->slots.closing();
}

void Engine::heard(Rank rank) {
  const std::lock_guard lock(lock_);
  parts_->slots.of(rank).heard_at = clock_.now();
}

// ---- reports -----------------------------------------------------------------------------------

Status Engine::health() const {
  const std::lock_guard lock(lock_);
  return parts_->execution.health();
}

std::vector<Engine::RankReport> Engine::report() const {
  const std::lock_guard lock(lock_);
  std::vector<RankReport> reports;
  for (const Rank rank : spec_.world.locals()) {
    const RankSlot& slot = parts_->slots.of(rank);
    const Arena& arena = parts_->buffers.arena(rank);
    reports.push_back({rank, slot.session != nullptr, slot.session ? slot.session->options().pid : 0,
                       slot.attachments, arena.used_bytes(), arena.reserved_bytes()});
  }
  return reports;
}

// ---- progress ----------------------------------------------------------------------------------

std::size_t Engine::do_work() {
  std::size_t moved = 0;
  for (const auto& factory : factories_) moved += factory->progress();
  const std::lock_guard lock(lock_);
  if (!parts_ || !parts_->execution.health().ok()) return 0;  // not open yet, or open() has failed
  if (std::exchange(armed_, false)) parts_->slots.awake();
  const Instant now = clock_.now();
  parts_->other_nodes.hear(now);
  lock_.doing("reaping finished steps");
  std::size_t work = moved + parts_->execution.reap(now);
  lock_.doing("draining the rings");
  work += parts_->slots.drain(now);
  parts_->graph.meet(now);
  lock_.doing("its timers");
  if (now >= next_tick_) tick(now);
  lock_.doing("waking clients");
  parts_->slots.wake_clients();
  return work;
}

void Engine::tick(Instant now) {
  parts_->graph.tick(now);
  parts_->execution.look_at_devices();
  parts_->slots.beat(now);
  parts_->recorder.take_over();
  parts_->metrics.tick(now);
  next_tick_ = now + kTickPeriod;
}

// Steps on the workers need no bell: the worker that finishes one takes the next turn itself. Factories ring
// for the others. They are armed last, so that what they finish meanwhile is seen in the next turn.
bool Engine::arm() {
  {
    const std::lock_guard lock(lock_);
    armed_ = true;
    if (parts_ && !parts_->slots.arm()) return false;
  }
  return std::all_of(factories_.begin(), factories_.end(),
                     [](const auto& factory) { return factory->arm(); });
}

void Engine::wait(Nanos bound) {
  doorbells_.wait(bound);
}

void Engine::wake() noexcept {
  doorbells_.ring();
}

}  // namespace muster::engine
