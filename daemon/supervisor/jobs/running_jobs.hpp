// RunningJobs: the engines of the jobs in the table. It starts, asks and ends them, and reports what happens
// to their jobs. Other classes decide who may do what.
#pragma once

#include "daemon/control/engine_address.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/control/node_costs.hpp"
#include "daemon/supervisor/base/engine_process.hpp"
#include "daemon/supervisor/base/options.hpp"
#include "daemon/supervisor/jobs/job_memory.hpp"
#include "daemon/supervisor/jobs/job_table.hpp"
#include "daemon/supervisor/jobs/state.hpp"
#include "daemon/supervisor/listener/connections.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace muster::supervisor {

// Whether a job of that size may be made at all, whatever room there is. kNoResource: the limit.
Status check_size(const control::JobSpec& spec, const Options& options);

// Owns    the engine processes, and their descriptors in the store.
// Thread  the supervisor's loop.
// Bound   the table's jobs; ranks_per_job_max; kQuestionsMax callbacks of each job until its engine has
//         answered; kEngineEndTime from "stop" to SIGKILL.
// Fails   start: as JobTable::create, EngineProcess::spawn and JobMemory::enter; kState once it is closed.
class RunningJobs {
 public:
  struct EngineEvent {
    NodeIndex node;
    std::uint32_t generation = 0;  // of the connection
    Status status;                 // OK: it stands
  };
  // Whether a part of a job has ranks. kInHaste: none, and its owner needs the room, so other nodes are not
  // to wait for ranks that may come back.
  enum class Idle : std::uint8_t { kNo, kYes, kInHaste };
  static constexpr std::size_t kQuestionsMax = 64;
  static constexpr Nanos kEngineEndTime = std::chrono::seconds(10);
  static constexpr char kOwnerLeft[] = "whoever started the job has left";  // why a job ends
  static constexpr char kShuttingDown[] =
      "the daemon is shutting down; try again once it has been started anew";

  using OnReady = std::function<void(const Status&)>;
  struct HeldEngine {
    control::EngineAddress address;
    std::string groups;  // the hash of its list of groups
  };
  // The engine of a job that is held stands, or why it never will.
  using OnHeld = std::function<void(const Result<HeldEngine>&)>;
  // All are called on the loop's thread, and may call back into this object.
  struct Events {
    std::function<void(Connections::Id)> owned;     // the connection has one job more; called before the save
    std::function<void(Connections::Id)> disowned;  // and one less
    std::function<void(const std::string& job, const Status&)> ready;  // or why it never will be
    // The engine's report on another node's engine: it is connected, or why it is not.
    std::function<void(const std::string& job, const EngineEvent&)> heard;
    std::function<void(const std::string& job, const Status& why)> ending;
    // The engine is gone, and the table does not have the job any more.
    std::function<void(const std::string& job, const Status& why, bool reaped)> gone;
    // A job of several nodes that is not the cluster file's has had no rank here for made_job_linger, or has
    // one again.
    std::function<void(const std::string& job, Idle idle)> idle;
    // Its engine lacks so many bytes, which the owner's other jobs have.
    std::function<void(const std::string& job, std::uint64_t bytes)> short_of_memory;
    std::function<void()> stays;    // a job that was giving way does not end soon
    std::function<void()> changed;  // the number of jobs or sessions
    std::function<void()> save;     // what a successor must find has changed
    // Why a job of that name may not be made by a user: it is the cluster file's.
    std::function<Status(const std::string& job)> reserved;
  };
  struct Birth {
    std::uint32_t gid = 0;
    Connections::Id owner = 0;  // the job ends with this connection; 0: with none
    bool made = false;          // it may end once its ranks have left
    // The job has parts on other nodes, and all have this epoch: it is held until commit(), and nobody may
    // attach. 0: a job of this node alone.
    std::uint64_t held_epoch = 0;
    OnHeld on_held = {};  // of a job that is held; empty once it was called
  };
  // Descriptors of a predecessor's engine.
  struct KeptEngine {
    shm::Descriptor channel, pidfd, counters;
    std::shared_ptr<control::Identity::Handles> place;  // of a foreign owner, as far as it was kept
  };
  struct Facts {
    std::int32_t engine_pid = 0;
    int counters = -1;  // a descriptor, read-only; -1: the engine has not given it yet
    Connections::Id owner = 0;
    bool reaped = false;  // it ends, or may end, because its ranks have left: new ones wait
    // Its ranks have made it and left it: the smaller, the longer ago. 0: it is not idle.
    std::uint64_t idle_since = 0;
    bool made = false;  // by its ranks
    std::uint32_t gid = 0;
    bool gives_way = false;  // its owner needs the room, and it ends once no node has ranks of it
  };

  RunningJobs(control::Loop& loop, JobTable& table, JobMemory& memory, DescriptorStore& store,
              control::NodeCostBook& costs, const Options& options, Events events);

  // `on_ready` may be empty.
  Status start(control::JobSpec spec, Birth birth, OnReady on_ready);
  // A held job is ready.
  void commit(const std::string& name);
  // Takes over a predecessor's job as kAdopting. The channel and pidfd of its engine are valid.
  void adopt(const SavedJob& saved, KeptEngine engine);
  // An engine that was taken over has not made its job: the predecessor was killed before it had asked.
  void begin_anew(const std::string& name);
  // An engine that was taken over has reported, and the table has the report.
  void taken_over(const std::string& name);
  // From now on no further job is made.
  void close() { closed_ = true; }
  bool closed() const { return closed_; }

  // Asks the engine to stop, and kills it if it has not ended in time. A job that is ending is not asked
  // again, but may get less time.
  void end(const std::string& name, const std::string& why, Nanos time = kEngineEndTime);
  // `owner`: only the jobs that end with this connection; 0: all.
  void end_all(const std::string& why, Nanos time = kEngineEndTime, Connections::Id owner = 0);
  // A job that a Hello has made has no owner to end it: it ends made_job_linger after its last rank. A part
  // of a temporary job on several nodes is idle then, and does not end alone. To be called when a rank of the
  // job becomes held or free.
  void watch_idle(const std::string& name);
  // A job without ranks ends at once, or is idle here if it has parts on other nodes. A job that still has a
  // rank does so as soon as that has left. Ranks that come to it wait for the next job of its name.
  void give_way(const std::string& name, const std::string& why, Idle how);
  // The end of a job that gives way is put off: another node has ranks of it, or is away. Its owner's other
  // idle jobs make room meanwhile.
  void put_off(const std::string& name);
  // Ranks that come to a job wait: it has none, and may be about to end. False: they may attach again.
  void hold_ranks(const std::string& name, bool held);

  void ask(const std::string& name, const control::Json& command, std::span<const int> descriptors,
           EngineProcess::Answered answered);
  // Calls `on_ready` once the job is ready or has failed. kBusy: too many callers wait for that already.
  Status await_ready(const std::string& name, OnReady on_ready);
  // The Status for clients that wait for a job: kJobEnded with the reason if it is ending, else `status`.
  Status unless_ending(const std::string& name, Status status) const;

  Facts facts(const std::string& name) const;
  std::vector<SavedJob> saved() const;

 private:
  struct RunningJob {
    std::unique_ptr<EngineProcess> engine;
    shm::Descriptor counters;
    Birth birth;
    bool reaped = false;
    bool idle = false;
    std::uint64_t idle_since = 0;
    bool hurried = false;                           // it gives way as soon as it is idle
    bool gives_way = false;                         // since it is idle
    bool held = false;                              // until commit()
    std::string ending;                             // why it ends, if it does
    control::Json later = control::Json::object();  // unknown fields of a later version's state, kept
    control::Json spec_later = control::Json::object();
    std::vector<OnReady> on_ready;
    control::Loop::Watch linger = 0;
    control::Loop::Watch end_timer = 0;
  };
  EngineProcess::Options engine_options(const control::JobSpec& spec, std::uint32_t gid);
  void ask_to_create(const std::string& name);
  void on_created(const std::string& name, Result<control::Packet> answer);
  void on_event(const std::string& name, const control::Json& event);
  void on_end(const std::string& name, const std::string& how);
  void report_ready(const std::string& name, const Status& status);
  void ask_counters(const std::string& name, std::uint64_t epoch);

  control::Loop& loop_;
  JobTable& table_;
  JobMemory& memory_;
  DescriptorStore& store_;
  const Options& options_;
  control::NodeCostBook& costs_;
  Events events_;
  std::map<std::string, RunningJob> jobs_;
  std::uint64_t idles_ = 0;
  bool closed_ = false;
};

}  // namespace muster::supervisor
