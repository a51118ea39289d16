// Engine: one job on one node. It owns the job's devices, memory, groups, lanes and plans, from the job's
// creation to its end, across any number of trainer attachments.
//
// The engine lock. One mutex guards all state of the scheduler. An idle worker holds it for a turn of
// progress; the conductor holds it for one control message. A turn: reap finished steps, drain rings, launch,
// publish, wake.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "daemon/engine/job/direct_service.hpp"
#include "daemon/engine/job/execution.hpp"
#include "daemon/engine/job/job_buffers.hpp"
#include "daemon/engine/job/job_groups.hpp"
#include "daemon/engine/job/job_lanes.hpp"
#include "daemon/engine/job/job_meshes.hpp"
#include "daemon/engine/job/job_plans.hpp"
#include "daemon/engine/memory/doorbells.hpp"
#include "daemon/engine/memory/engine_lock.hpp"
#include "daemon/engine/memory/memory_account.hpp"
#include "daemon/engine/memory/rank_devices.hpp"
#include "daemon/engine/nodes/faults.hpp"
#include "daemon/engine/nodes/missing_members.hpp"
#include "daemon/engine/nodes/other_nodes.hpp"
#include "daemon/engine/observe/metrics.hpp"
#include "daemon/engine/observe/recorder.hpp"
#include "daemon/engine/observe/reports.hpp"
#include "daemon/engine/observe/tally.hpp"
#include "daemon/engine/session/process_state.hpp"
#include "daemon/engine/session/rank_slots.hpp"
#include "daemon/engine/session/session.hpp"
#include "kernels/device/pool.hpp"
#include "scheduler/run/executor.hpp"
#include "scheduler/run/graph.hpp"
#include "transport/collective/communicator_factory.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster::engine {

// Attached: all that a new client needs to start.
struct Attached {
  Session* session = nullptr;  // lives until detach() of its rank
  shm::Descriptor doorbell;    // the client's copy
  int direct_segment = -1;     // borrowed; -1: there is no direct path
  int group_page = -1;
  shm::Welcome welcome;
};

// Owns    everything of the job on this node.
// Thread  do_work, arm, wait, wake: the pool's workers. All else: the conductor, one thread.
// Bound   by the JobSpec.
// Fails   create: kConfig (mesh), kNoResource (memory, descriptors, threads). A device that is broken as a
//         whole ends the job: see health().
class Engine final : public device::IdleProgress {
 public:
  // kByHand: no worker threads; everything runs inside run_once(), so that a test decides on each turn.
  enum class Pooling : std::uint8_t { kThreads, kByHand };

  // Makes every group of the mesh before it returns (decision D6). `probe`: how reports see processes;
  // nullptr: through the kernel. `account`: it is charged for all that the job holds; nullptr: not
  // counted. `transport`: offered each group first; loopback takes the rest. `devices`: as RankDevices.
  static Result<std::unique_ptr<Engine>> create(
      const control::JobSpec& spec, const Clock& clock, std::unique_ptr<ProcessProbe> probe = nullptr,
      Pooling pooling = Pooling::kThreads, std::shared_ptr<MemoryAccount> account = nullptr,
      transport::JobTransport transport = transport::JobTransport(),
      std::span<const device::DeviceId> devices = std::span<const device::DeviceId>());
  ~Engine() override;

  // ---- sessions --------------------------------------------------------------------------------
  // kDuplicate while the rank has a client; kBadArgument for a rank that does not exist, or runs on another
  // node.
  Result<Attached> attach(Rank rank, std::int32_t pid);
  // The client left or died; `text` tells the other ranks how. Its memory is freed once its running work has
  // ended.
  void detach(Rank rank, const std::string& text);
  // Ends every session with `code` and refuses new ones.
  void close(Code code, const std::string& text);
  // Frees the memory of closing sessions; call now and then. Returns the sessions whose work still runs.
  std::size_t reclaim();
  // Notes that the rank's client has sent a message.
  void heard(Rank rank);

  // ---- other nodes -----------------------------------------------------------------------------
  OtherNodes& other_nodes() { return parts_->other_nodes; }

  // ---- other parts of a job --------------------------------------------------------------------
  JobBuffers& buffers() { return parts_->buffers; }
  JobGroups& groups() { return parts_->groups; }
  JobMeshes& meshes() { return parts_->meshes; }
  JobLanes& lanes() { return parts_->lanes; }
  JobPlans& plans() { return parts_->plans; }
  DirectService& direct() { return parts_->direct; }
  Faults& faults() { return parts_->faults; }
  Recorder& recorder() { return parts_->recorder; }
  Reports& reports() { return parts_->reports; }
  const control::JobSpec& spec() const { return spec_; }
  const EngineLock& lock() const { return lock_; }
  // The workers. The creator of the engine decides how many of them work.
  device::Pool& pool() { return *pool_; }
  // A device's first error.
  Status health() const;
  struct RankReport {
    Rank rank;
    bool attached = false;
    std::int32_t pid = 0;
    std::uint32_t attachments = 0;
    std::uint64_t arena_used_bytes = 0;
    std::uint64_t arena_reserved_bytes = 0;
  };
  std::vector<RankReport> report() const;

  // ---- progress --------------------------------------------------------------------------------
  // kByHand: runs one part of a step, or a turn. Returns the amount of work done.
  std::size_t run_once() { return pool_->run_once(); }
  std::size_t do_work() override;
  bool arm() override;
  void wait(Nanos bound) override;
  void wake() noexcept override;

 private:
  // In order of construction. Some refer to later ones, and use them only once all are there.
  struct Parts {
    Parts(Engine& engine, std::optional<DirectPages> own_board, JobGroups::Plan plan,
          scheduler::Executor own_executor, Tally tally);
    std::optional<DirectPages> maybe_board;  // none where clients cannot reach the device's memory
    DirectPages* direct_pages;
    JobBuffers buffers;
    RankSlots slots;  // declared after `buffers`, whose names sessions hold
    scheduler::Executor executor;
    scheduler::Graph graph;
    Metrics metrics;
    Recorder recorder;
    Reports reports;
    RanksElsewhere elsewhere;
    Faults faults;
    OtherNodes other_nodes;
    MissingMembers missing;
    JobGroups::Parts for_groups;
    JobGroups groups;
    JobMeshes meshes;
    JobLanes lanes;
    JobPlans plans;
    DirectService direct;
    Execution execution;
  };

  Engine(const control::JobSpec& spec, const Clock& clock, Doorbells doorbells,
         std::unique_ptr<ProcessProbe> probe, std::shared_ptr<MemoryAccount> account,
         transport::JobTransport transport);
  Status open(Pooling pooling, JobGroups::Plan plan, std::span<const device::DeviceId> devices);
  shm::Welcome welcome(const Session& session) const;
  void tick(Instant now);

  control::JobSpec spec_;
  const Clock& clock_;
  std::unique_ptr<ProcessProbe> probe_;
  std::shared_ptr<MemoryAccount> account_;
  scheduler::Graph::Options graph_options_;
  MemoryCharge sessions_charge_;  // for one session of each rank
  Doorbells doorbells_;
  mutable EngineLock lock_;
  std::unique_ptr<device::Pool> pool_;
  std::optional<RankDevices> devices_;
  const bool spans_;  // it has links to other nodes
  const std::shared_ptr<transport::JobLinks> links_;
  transport::Factories factories_;  // not changed after the constructor
  std::unique_ptr<Parts> parts_;
  Instant next_tick_{0};
  std::uint32_t next_session_ = 1;
  bool armed_ = false;
  bool closed_ = false;
};

}  // namespace muster::engine
