// Engine: one job on one node. It owns the job's device, memory, groups, lanes and plans, from the job's
// creation to its end, across any number of trainer attachments.
//
// The baton. All state of the scheduler is behind one mutex, held by whoever runs a turn of the duty cycle
// (an idle worker) or by the conductor for the length of one control message. The turn: reap finished steps,
// drain rings, launch, publish, wake.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/baton.hpp"
#include "daemon/engine/board.hpp"
#include "daemon/engine/doorbells.hpp"
#include "daemon/engine/flight_dump.hpp"
#include "daemon/engine/group_table.hpp"
#include "daemon/engine/lateness.hpp"
#include "daemon/engine/lateness_log.hpp"
#include "daemon/engine/memory_account.hpp"
#include "daemon/engine/process_state.hpp"
#include "daemon/engine/resolve.hpp"
#include "daemon/engine/session.hpp"
#include "daemon/engine/shrink_rounds.hpp"
#include "daemon/engine/situation.hpp"
#include "daemon/engine/tally.hpp"
#include "kernels/device/host/pool.hpp"
#include "scheduler/mesh/group_list.hpp"
#include "scheduler/run/executor.hpp"
#include "scheduler/run/graph.hpp"
#include "scheduler/run/trace.hpp"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

namespace muster::engine {

// Whose a recording is that a rank has begun.
std::string recorder_name(Rank rank);

// What a new client needs to start.
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
// Fails   create: kConfig (mesh), kNoResource (memory, descriptors, threads). A device error ends the job:
// see health().
class Engine final : public scheduler::Actions, public device::host::Duty {
 public:
  // By hand: no worker threads; everything runs inside run_once(), so that a test decides on each turn.
  enum class Pooling : std::uint8_t { kThreads, kByHand };

  // Makes every group of the mesh before it returns (decision D6). `probe`: how reports see processes; none:
  // by the kernel's word. `account`: for what the job holds; none: it is not counted. `communicators`: how
  // groups get theirs; none: by loopback.
  static Result<std::unique_ptr<Engine>> create(const control::JobSpec& spec, const Clock& clock,
                                                std::unique_ptr<ProcessProbe> probe = nullptr,
                                                Pooling pooling = Pooling::kThreads,
                                                std::shared_ptr<MemoryAccount> account = nullptr,
                                                transport::CommunicatorFactory communicators = nullptr);
  ~Engine() override;

  // ---- conductor -------------------------------------------------------------------------------
  // kDuplicate while the rank has a client; kBadArgument for a rank outside the world.
  Result<Attached> attach(Rank rank, std::int32_t pid);
  // The client left or died; `text` tells the others how. Its memory goes back once its running work has
  // ended.
  void detach(Rank rank, const std::string& text);

  // ---- conductor: buffers (buffers.cpp) ----------------------------------------------------------
  // `imported` is the memory that came with the message; -1: none. Fills the grant; *descriptor is borrowed,
  // -1: the client has that segment already.
  Result<Handle> alloc_buffer(Session& session, const shm::BufferAlloc& request, int imported,
                              shm::BufferGrant* grant, int* descriptor);
  Status free_buffer(Session& session, Handle handle);

  // ---- conductor: plans ------------------------------------------------------------------------
  Result<Handle> plan_kernel(Session& session, const muster_kernel& kernel);
  Result<Handle> plan_collective(Session& session, const shm::PlanCollective& message,
                                 const CollectiveLists& lists);
  Status destroy_plan(Session& session, Handle handle);
  Status abort_group(Session& session, std::uint64_t group);
  // The client's end of a socket that gets a byte at each completion and ends with the session.
  Result<shm::Descriptor> open_events(Session& session);
  // One recording of the job at a time, of whoever began it: `by` says who, in words, and also ends it; ""
  // ends any. A rank's ends with its session, and is lost then. kBusy, kState.
  Status trace_begin(std::string by);
  Result<std::string> trace_end(std::string_view by);
  // Who records; "" if nobody does.
  std::string recorder() const;

  // ---- conductor: groups and meshes (groups.cpp) --------------------------------------------------
  // Each gives a handle; errors as in muster.h.
  Result<std::uint64_t> make_group(Session& session, std::string_view name,
                                   std::span<const std::int32_t> ranks);
  // kBusy while others are waited for: to be asked again, at last with `gives_up`.
  Result<std::uint64_t> shrink_group(Session& session, std::uint64_t group, bool gives_up);
  Status free_group(Session& session, std::uint64_t group);
  Result<std::uint64_t> make_mesh(Session& session, std::uint64_t over, std::string_view text);
  Status free_mesh(Session& session, std::uint64_t mesh);
  // Coordinate, size and group handle of a rank along a dim.
  // Whoever asks first for a group of a mesh gives it the name that reports use from then on.
  Result<shm::MeshAnswer> mesh_dim(const Session& session, std::uint64_t mesh, std::string_view dim);
  // The members' world ranks; fills the answer.
  Result<std::vector<std::int32_t>> group_ranks(const Session& session, std::uint64_t group,
                                                shm::GroupAnswer* answer);
  // Those that clients have made.
  std::vector<scheduler::Group> made_groups() const;

  // ---- conductor: the direct path (direct.cpp) --------------------------------------------------
  // Fills the answer; its members, by index.
  Result<std::vector<shm::DirectMember>> direct_group(const Session& session, std::uint64_t group,
                                                      shm::DirectGroupAnswer* answer);
  // Memory of another rank, to be read.
  Result<shm::Descriptor> peer_segment(std::int32_t rank, std::uint64_t* bytes);
  Result<shm::Descriptor> peer_arena(std::int32_t rank, std::uint32_t segment, std::uint64_t* bytes);
  // How the epoch in which the client stands has ended, and where it goes on. STATE: it goes on.
  Result<shm::DirectEndAnswer> direct_end(Session& session, const shm::DirectMessage& message,
                                          std::string* text);
  // The deadline of what the client waits for has passed: breaks the group if somebody is missing.
  Status direct_overdue(Session& session, const shm::DirectMessage& message);
  // The rank leaves what it waits in, on a lane or directly: that ends for everybody in it.
  Status interrupted(Session& session, const shm::InterruptMessage& message);
  // In what the members of the operation differ. Never OK.
  Status direct_disagree(Session& session, const shm::DirectMessage& message);

  // ---- conductor: reports (reports.cpp) ----------------------------------------------------------
  // The rank's client has said something.
  void heard(Rank rank);
  // Who waits for whom just now, whose fault it is, and what the latest deadline's report was:
  // daemon/control/README.md, `hang`.
  control::Json hang();
  // By rank, what it has run: flight_dump.hpp.
  control::Json flight();
  // Writes what deadlines have left to be written. Now and then.
  void write_reports();
  // Read-only: the job's counters (api/shm/job_counters.hpp).
  Result<shm::Descriptor> counters() const;

  // A rank will not come, or not come back, says who started it; and all of them may come again.
  void absent(Rank rank, const std::string& text);
  void expect_all();
  // Ends every session with `code` and refuses new ones.
  void close(Code code, const std::string& text);
  // Gives the memory of gone sessions back; call now and then. Returns sessions still waiting.
  std::size_t bury();
  // A session that broke the protocol, taken once: the conductor then detaches it.
  std::optional<std::pair<Rank, std::string>> take_offender();
  // The device's first error.
  Status health() const;

  const Baton& baton() const { return baton_; }
  const control::JobSpec& spec() const { return spec_; }
  const mesh::GroupList& groups() const { return group_list_; }
  struct RankReport {
    bool attached = false;
    std::int32_t pid = 0;
    std::uint32_t attachments = 0;
    std::uint64_t arena_used_bytes = 0;
    std::uint64_t arena_reserved_bytes = 0;
  };
  std::vector<RankReport> report();

  // ---- duty ------------------------------------------------------------------------------------
  // kByHand: one part of a step, or a turn. Returns what was done.
  std::size_t run_once() { return pool_->run_once(); }
  std::size_t do_work() override;
  bool arm() override;
  void wait(Nanos bound) override;
  void wake() noexcept override;

  // ---- actions ---------------------------------------------------------------------------------
  void launch(std::uint32_t step_index, const scheduler::Step& step) override;
  void submitted(const scheduler::Request& request) override;
  void overdue(Rank rank, std::uint32_t lane, scheduler::Cause& cause) override;
  void reached(Rank rank, std::uint32_t lane, std::uint64_t value) override;
  void stopped(Rank rank, std::uint32_t lane, std::uint64_t from, const scheduler::Cause& cause) override;
  void resumed(Rank rank, std::uint32_t lane, std::uint64_t to) override;
  void retired(Rank rank, std::uint32_t lane, std::uint64_t value, scheduler::Plan& plan, bool well) override;

 private:
  struct Seat {  // one rank's place
    std::unique_ptr<Session> session;
    shm::Descriptor doorbell;
    std::unique_ptr<Arena> arena;
    std::uint32_t attachments = 0;
    std::string offence;  // how the session broke the protocol; empty: it did not
    struct Heard {        // the latest cause of the direct path that its client was told
      scheduler::CausePtr cause;
      std::uint64_t recorded = 0;  // how far it had come then: operations run directly
      std::uint64_t starts = 0;    // and on the engine path
    };
    std::optional<Heard> heard;
    std::uint64_t starts = 0;  // of all its clients
    ProcessId process;
    Instant heard_at{0};  // its client's last command or message
    struct Finished {     // its last collective on the engine path; no words, which would need heap
      GroupId group;
      const char* label = "";
      std::uint64_t number = 0;
      Instant at{0};
    };
    std::optional<Finished> finished;
  };

  Engine(const control::JobSpec& spec, const Clock& clock, mesh::GroupList groups, Doorbells doorbells,
         std::unique_ptr<ProcessProbe> probe, std::shared_ptr<MemoryAccount> account,
         transport::CommunicatorFactory communicators);
  Status open(Pooling pooling);
  Status open_device(Pooling pooling);
  Status open_groups();
  static Result<mesh::GroupList> groups_of_mesh(const control::JobSpec& spec);
  std::vector<scheduler::Group> all_groups() const;
  Status no_room(const Status& why) const;
  Result<GroupId> enter_group(std::string_view name, std::span<const Rank> ranks, GroupTable::Found found);
  void retire_group(GroupId group);
  void name_group(GroupId group, std::string_view name);
  Result<std::uint64_t> close_shrink(GroupId of, const std::vector<SessionId>& askers);
  std::vector<SessionId> sessions_of(std::span<const Rank> ranks) const;
  Result<MadeMesh*> enter_mesh(std::uint64_t over, mesh::GroupList list, std::span<const Rank> ranks);
  void leave_mesh(MadeMesh& mesh);
  void release_groups(SessionId session);
  Scope scope(const Session& session) const;
  Result<Handle> carve_buffer(Session& session, std::uint64_t bytes);
  Result<Handle> alloc_named(Session& session, const shm::BufferAlloc& request, std::string_view name);
  Result<Handle> import_buffer(Session& session, const shm::BufferAlloc& request, int memory);
  bool lingers(Rank rank) const;
  std::size_t drain_rings(Instant now);
  std::size_t drain_ring(Seat& seat, Instant now);
  void drain_all(Seat& seat);
  void tick(Instant now);
  void note_health(const Status& device, const char* doing, const char* what);
  void account(Session& session, const scheduler::Plan& plan, std::uint32_t lane, std::uint64_t value);
  void wake_clients();
  Session* session_of(const scheduler::Plan& plan, Rank rank);
  Status open_board();
  Result<DirectQuestion> question(const Session& session, const shm::DirectMessage& message) const;
  void end_direct(Rank rank, const scheduler::CausePtr& loss);
  void refresh_absences();
  scheduler::CausePtr heard_direct(Rank rank) const;
  std::string direct_label(const Session& session, std::uint64_t plan) const;
  shm::Welcome welcome(const Session& session) const;
  void trace_direct();
  scheduler::Trace stop_recording();
  std::vector<RankFlights> all_flights() const;
  std::vector<RankFacts> rank_facts() const;
  void look_for_stragglers(Instant now);
  void log_lateness(Instant now);
  blame::Situation situation(std::span<const RankFacts> facts, Instant now) const;
  // Adds the cause to a deadline's verdict, and keeps the report.
  void explain(scheduler::Cause& cause, blame::Situation situation, std::span<const RankFacts> facts,
               std::size_t about);

  control::JobSpec spec_;
  const Clock& clock_;
  std::unique_ptr<ProcessProbe> probe_;
  std::shared_ptr<MemoryAccount> account_;
  const transport::CommunicatorFactory open_communicator_;
  const scheduler::GraphOptions graph_options_;
  MemoryCharge sessions_charge_;  // of one for each rank
  mesh::GroupList group_list_;
  GroupTable table_;
  ShrinkRounds shrinks_;
  Doorbells doorbells_;
  std::vector<bool> asked_for_;  // by group: a session has named it

  // Memory that is nobody's any more. Unmapping GiBs takes seconds in which all ranks would stand still, so
  // who lets go of it does so after giving the baton back.
  struct LetGo {
    explicit LetGo(SessionBuffers::Gone& what) : gone(what) {}
    ~LetGo() { gone.clear(); }
    LetGo(const LetGo&) = delete;
    LetGo& operator=(const LetGo&) = delete;
    SessionBuffers::Gone& gone;
  };
  SessionBuffers::Gone gone_;  // the conductor's

  mutable Baton baton_;
  std::unique_ptr<device::host::Pool> pool_;
  std::unique_ptr<device::Device> device_;
  std::optional<NamedMemory> named_;
  std::vector<Seat> seats_;  // sessions hold names
  std::vector<std::unique_ptr<Session>> graveyard_;
  std::optional<scheduler::Executor> executor_;
  std::optional<scheduler::Graph> graph_;
  std::optional<Board> board_;  // none where clients cannot reach the device's memory
  scheduler::Trace trace_;
  std::string trace_by_;         // while one is taken: whose it is
  scheduler::Finished current_;  // the step being retired
  FlightLog flight_log_;
  Lateness lateness_;
  LatenessLog lateness_log_;
  const unsigned cores_ = std::thread::hardware_concurrency();  // asks the system, so no turn does
  std::vector<Lateness::Change> lateness_changes_;  // of the latest look: kept, so that one needs no heap
  std::optional<Tally> tally_;
  std::vector<Tally::Counted> counted_;  // kept, so that a tick needs no heap
  Instant turn_{0};                      // when the present turn of duty began
  struct DeadlineReport {
    Instant at{0};
    control::Json report;
  };
  std::optional<DeadlineReport> deadline_report_;  // the latest
  std::uint32_t reports_ = 0;                      // deadlines that have been reported
  struct BrokenCircle {
    blame::Situation situation;
    blame::Report report;
  };
  static bool is_in(const BrokenCircle& circle, const blame::Situation& now, std::size_t about);
  std::optional<BrokenCircle> broken_circle_;  // the latest that a deadline took apart
  Instant explained_turn_{0};
  std::uint32_t explained_in_turn_ = 0;  // verdicts of deadlines
  std::uint32_t reports_seen_ = 0;       // of them, when files were written last
  std::uint32_t reports_written_ = 0;    // files of each kind
  std::vector<std::uint64_t> traced_;  // while a trace is taken: by rank, the latest of its own records in it
  Status health_;
  Instant next_tick_{0};
  std::uint32_t next_session_ = 1;
  bool armed_ = false;
  bool closed_ = false;
};

}  // namespace muster::engine
