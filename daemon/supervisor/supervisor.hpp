// Supervisor: the node's front door. It knows who may do what, starts and ends engines, and hands clients
// over to them. It is off the data path: engines and their clients go on without it, and its successor takes
// them over (state.hpp, descriptor_store.hpp).
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/peer.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/control/packet.hpp"
#include "daemon/supervisor/descriptor_store.hpp"
#include "daemon/supervisor/engine_process.hpp"
#include "daemon/supervisor/entrance.hpp"
#include "daemon/supervisor/job_table.hpp"
#include "daemon/supervisor/kept_names.hpp"
#include "daemon/supervisor/memory_shares.hpp"
#include "daemon/supervisor/program_check.hpp"
#include "daemon/supervisor/refusal_log.hpp"
#include "daemon/supervisor/replacement.hpp"
#include "daemon/supervisor/shares.hpp"
#include "daemon/supervisor/state_file.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace muster::supervisor {

struct Options {
  std::string socket_path;
  std::uint32_t socket_mode = 0660;
  std::optional<std::uint32_t> socket_gid;  // the group that owns the socket; else the daemon's
  std::string runtime_directory;  // that the socket lies in, and the daemon makes; empty: it makes none
  bool transient = false;         // it removes that directory at its end
  std::string engine_program;
  std::uint32_t jobs_max = 16;
  std::uint32_t jobs_per_user_max = 0;  // 0: Shares::limits_of()
  std::uint32_t sessions_max = 256;
  std::uint32_t sessions_per_user_max = 0;
  std::uint64_t memory_max = 0;  // bytes of all jobs; 0: three quarters of the machine's, or of the cgroup's
  std::uint64_t memory_per_user_max = 0;
  std::uint32_t ranks_per_job_max = 256;
  bool auto_create_jobs = true;
  Nanos made_job_linger = std::chrono::seconds(60);  // of a job that a Hello made, once its ranks have left
  Nanos idle_timeout = std::chrono::seconds(30);     // of a connection that owns no job and asks nothing
  Nanos drain_timeout = std::chrono::seconds(10);
  control::JobSpec job_defaults;               // limits and times of a job that does not set them
  std::vector<control::JobSpec> jobs;          // created at start
  std::function<std::string()> random_hex;     // 32 random bytes as text: tokens
  std::function<std::uint64_t()> random_word;  // epochs, first serials
  Notify notify;                               // to the service manager; may be empty
  std::size_t store_room = 0;                  // descriptors that the manager keeps; 0: unknown
  std::string program;                         // what runs, for an upgrade; empty: there is none
  std::vector<std::string> arguments;          // that it was started with, its name first
};

// How its entrance is to be opened.
Entrance::Options entrance_of(const Options& options);

// Owns    the entrance, every connection that is not yet handed over, the engines, the state.
// Thread  run()'s, alone.
// Bound   jobs_max, sessions_max and memory_max, each by user (Shares::limits_of); ranks_per_job_max; kSilent
//         connections that have said nothing yet (the oldest of whoever has most makes room for a newcomer),
//         kCommands that have sent commands (a newcomer is refused), kQuestionsMax questions of each that
//         wait for an answer, as many of each job that wait for its engine's first word, kRetries claims
//         tried again and jobs that wait for the place of one that is ending.
// Fails   open: the socket's own failures. A bad message ends its connection, nothing else. A predecessor's
//         state that cannot be read ends the predecessor's engines, and this one begins anew.
class Supervisor {
 public:
  static constexpr Shares::Limits kSilent = Shares::limits_of(64, 32);
  static constexpr Shares::Limits kCommands = Shares::limits_of(128, 32);
  static constexpr Shares::Limits kRetries = Shares::limits_of(128, 64);
  static constexpr std::size_t kQuestionsMax = 64;
  static constexpr char kShuttingDown[] =
      "the daemon is shutting down; try again once it has been started anew";
  static constexpr Nanos kHandshakeTime = std::chrono::seconds(5);

  // `inherited`: what a predecessor left.
  static Result<std::unique_ptr<Supervisor>> open(Options options, const Clock& clock,
                                                  std::vector<Inherited> inherited = {});
  ~Supervisor();
  // Until shutdown.
  void run();
  // Instead of run(), by whoever has its thread: one thing that is due, without waiting. False if none was.
  bool turn();
  // As SIGTERM: drains, then run() returns. Any thread.
  void request_shutdown();
  // Calls `callback` on run()'s thread, between two events. Any thread.
  void post(std::function<void()> callback);

 private:
  using ConnectionId = std::uint64_t;
  struct Connection {
    shm::Descriptor socket;
    shm::PeerIdentity peer;
    control::Loop::Watch watch = 0;
    control::Loop::Watch timeout = 0;
    bool commands = false;          // a command line; else nothing said yet
    std::size_t questions = 0;      // not answered yet
    std::vector<std::string> jobs;  // that end with this connection
  };
  struct WaitingClient {  // a Hello for a job that starts, is adopted or deserted, or whose channel is full
    shm::Descriptor socket;
    shm::PeerIdentity peer;
    shm::Hello hello;
    int attempts = 0;
    bool applied = false;     // it has waited for its job's place
    std::uint64_t epoch = 0;  // of the job in which it has claimed its seat; 0: it has not
  };
  struct RunningJob {
    std::unique_ptr<EngineProcess> engine;
    shm::Descriptor counters;  // read-only: what the engine counts, also to be seen while it is stuck
    std::uint32_t gid = 0;
    ConnectionId owner = 0;  // the job ends with this connection; 0: with none
    bool made = false;       // by a Hello: nobody else ends it
    bool deserted = false;   // and it is ending because its ranks have left: the next ones wait for its end
    control::Loop::Watch linger = 0;
    std::string ending;                             // why it ends, if it does
    control::Json later = control::Json::object();  // of a later version's state: carried along
    control::Json spec_later = control::Json::object();
    std::vector<WaitingClient> waiting;
    std::vector<std::function<void(const Status&)>> on_ready;
    control::Loop::Watch end_timer = 0;
    control::Loop::Watch attach_again = 0;  // the engine had no room for who waits now
  };
  struct Applicant {  // for the place of a job that is ending
    std::uint32_t uid = 0;
    std::string job;
    std::function<bool()> has_left;
    std::function<void()> apply;  // once, whether there is a place now or not
    Instant until{0};
  };
  enum class Full : std::uint8_t { kWaits, kRefused };
  struct Birth {  // of a job
    std::uint32_t gid = 0;
    ConnectionId owner = 0;
    bool made = false;
  };
  struct Legacy;  // a predecessor's descriptors, each in its place: adoption.cpp
  using Reply = std::function<void(control::Json, std::span<const int>)>;

  Supervisor(Options options, const Clock& clock, Entrance entrance, StateFile state, SignalQueue signals);

  // Connections: connections.cpp
  void look_at_entrance();
  void on_accept();
  void make_room(std::uint32_t uid);
  Status take_commands(Connection& connection);
  void time_out_if_idle(ConnectionId id);
  void on_idle(ConnectionId id);
  void refuse_for_descriptors();
  void on_readable(ConnectionId id);
  void on_hello(ConnectionId id, std::span<const std::byte> bytes);
  void drop(ConnectionId id);
  void refuse(const Connection& connection, std::uint32_t serial, const Status& status);
  void refuse(const WaitingClient& client, const Status& status);
  void log_refusal(RefusalLog& log, const shm::PeerIdentity& peer, std::string_view what,
                   const Status& status);
  void log_more_refusals();
  void admit(WaitingClient client);
  bool admit_later(WaitingClient& client);
  void forget_leavers();
  void turn_away(const std::string& name);
  bool is_held(const std::string& job, std::int32_t rank);
  void hand_over(WaitingClient client);
  void hand_over_all(const std::string& name);
  void on_attached(const std::string& name, Rank rank, WaitingClient client,
                   const Result<control::Packet>& answer);
  Result<control::JobSpec> spec_for(const shm::Hello& hello, std::string_view mesh, std::uint32_t uid) const;

  // Commands: commands.cpp
  void execute(ConnectionId id, control::Packet packet);
  void dispatch(ConnectionId id, const std::string& command, const control::Json& body, Reply reply);
  void job_create(ConnectionId id, const control::Json& body, Reply reply, Full full = Full::kWaits);
  void await_ready(const std::string& name, std::function<void(const Status&)> on_ready, const Reply& reply);
  void answer_created(ConnectionId id, const std::string& name, const Reply& reply);
  void job_destroy(ConnectionId id, const control::Json& body, Reply reply);
  void token(ConnectionId id, const control::Json& body, Reply reply);
  void absent(ConnectionId id, const control::Json& body, const Reply& reply);
  static Result<Rank> rank_in(const Job& job, const control::Json& body);
  void jobs_report(ConnectionId id, const control::Json& body, Reply reply);
  void counters(ConnectionId id, const control::Json& body, const Reply& reply);
  void forward(ConnectionId id, const control::Json& body, const control::Json& question, Reply reply);
  void upgrade(ConnectionId id, const control::Json& body, const Reply& reply);
  Status may_govern(ConnectionId id, const char* what) const;
  control::Json version() const;
  control::Json status(ConnectionId id) const;
  control::Json describe(const Job& job) const;
  Result<Job*> job_for(ConnectionId id, const control::Json& body);

  // Jobs: jobs.cpp
  Status start_job(control::JobSpec spec, Birth birth, std::function<void(const Status&)> on_ready);
  EngineProcess::Options engine_options(const control::JobSpec& spec, std::uint32_t gid);
  void ask_to_create(const std::string& name);
  void on_engine_ready(const std::string& name, Result<control::Packet> answer);
  void on_engine_event(const std::string& name, const control::Json& event);
  void on_engine_end(const std::string& name, const std::string& how);
  Status unless_ended(const std::string& name, Status status);
  bool may_wait_for_place(std::uint32_t uid);
  void wait_for_place(Applicant applicant);
  void watch_places();
  void fill_places();
  RunningJob* running_job(const std::string& name, std::uint64_t epoch);
  void end_job(const std::string& name, const std::string& why);
  void ask_to_stop(const std::string& name, std::uint64_t epoch);
  void end_if_deserted(const std::string& name);
  void drain(bool wait_for_ranks);
  void check_drained();
  void tell(const std::string& text) const;
  void publish_status();
  void share_memory();
  void forget_memory(const control::JobSpec& spec);
  std::uint32_t sessions() const;
  Shares sessions_by_user() const;

  // A predecessor's jobs: adoption.cpp
  void take_over(Legacy legacy);
  void adopt_job(const SavedJob& saved, Legacy& legacy);
  void adopt_memory(const control::JobSpec& spec, Legacy& legacy);
  void adopt_owner(ConnectionId id, shm::Descriptor socket);
  void ask_report(const std::string& name, std::uint64_t epoch);
  void on_report(const std::string& name, const Result<control::Packet>& answer);
  void begin_anew(const std::string& name);
  void conclude_takeover();
  void ask_counters(const std::string& name, std::uint64_t epoch);
  void end_strangers(Legacy& legacy, const std::string& why);
  void ask_stranger_to_stop(std::size_t index, const std::string& why);
  std::size_t adopting() const;
  void save();

  // A successor: upgrade.cpp
  void begin_upgrade(const std::string& program, std::function<void(const Status&)> refused);
  Status give_way(const std::string& program);
  void on_signal(int number);

  Options options_;
  const Clock& clock_;
  control::Loop loop_;
  Entrance entrance_;
  control::Loop::Watch socket_watch_ = 0;
  control::Loop::Watch managers_watch_ = 0;
  SignalQueue signals_;
  shm::Descriptor reserve_;  // given up to answer when descriptors run out
  JobTable table_;
  StateFile state_file_;
  DescriptorStore store_;
  State state_;                   // its jobs are filled in when it is saved
  std::uint32_t state_read_ = 0;  // version of the predecessor's; 0: there was none
  Instant takeover_began_{0};     // a predecessor's exec, else this one's start
  Nanos takeover_{0};             // from then to the last engine's word
  bool taking_over_ = false;
  // Engines of a state that could not be read: they are ending.
  std::vector<std::unique_ptr<EngineProcess>> strangers_;
  std::unique_ptr<ProgramCheck> check_;  // of an upgrade under way
  std::map<std::string, RunningJob> running_;
  std::map<ConnectionId, Connection> connections_;
  ConnectionId next_connection_ = 1;
  Shares silent_;
  Shares commanding_;
  Shares retrying_;  // whose claims wait to be tried again, or whose jobs for a place
  std::vector<Applicant> applicants_;
  RefusalLog refusals_;
  RefusalLog wrong_claims_;  // of ranks: tokens are tried here, and nothing else hides it
  MemoryShares memory_;
  control::Loop::Watch memory_timer_ = 0;
  control::Loop::Watch places_timer_ = 0;
  std::vector<std::byte> buffer_;
  Instant started_{0};
  bool draining_ = false;
};

}  // namespace muster::supervisor
