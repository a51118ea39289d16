// SpanningJobs: the cluster file's jobs that have ranks on several nodes. Such a job is made on all of its
// nodes or on none.
//
// The first node of a job leads. Once all of the job's nodes are up, it draws the job's epoch and asks each
// node for its part (`prepare`). A node starts its engine, answers with the engine's network address
// (`prepared`), and holds its ranks back. When all have answered well, the leader gives the addresses to all
// (`connect`). Each node's engine connects with the others, and the node says how that ended (`connected`).
// When all have, the leader says `commit`, and ranks attach. After any failure it says `end` instead. A node
// that loses the leader before it has heard `commit` ends its part, so nothing is left half made. A part that
// ends later, whatever the reason, ends the others too; if a node was lost or came back without its part, the
// leader then makes the job again.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/engine_address.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/options.hpp"
#include "daemon/supervisor/peers.hpp"
#include "daemon/supervisor/running_jobs.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    what each job waits for.
// Thread  the supervisor's loop.
// Bound   the jobs of the cluster file; kPrepareTime from `prepare` to `commit`.
// Fails   never: a job that cannot be made is tried again, and says why in the log and in awaited().
class SpanningJobs {
 public:
  static constexpr Nanos kPrepareTime = std::chrono::seconds(30);
  static constexpr Nanos kRetry = std::chrono::seconds(2);

  SpanningJobs(control::Loop& loop, const JobTable& table, RunningJobs& jobs, Peers& peers,
               const Options& options);
  ~SpanningJobs();

  // To be called once, after a predecessor's jobs were adopted.
  void start();
  // Whether the cluster file has it as a job of several nodes.
  bool has(const std::string& job) const { return parts_.contains(job); }
  // This node's parts that ranks may use, for a greeting.
  control::Json parts() const;
  // Why that job is not there yet. kOk: it is, or it is no spanning job.
  Status awaited(const std::string& job) const;

  // The jobs that are not there or not ready, each with its reason.
  control::Json report() const;

  void on_up(const std::string& peer, const control::Json& its_parts);
  void on_down(const std::string& peer, const Status& why);
  void heard(const std::string& peer, const control::Json& message);
  // What RunningJobs reports of any job.
  void on_connected(const std::string& job, const Status& status);
  void on_ending(const std::string& job, const Status& why);
  void on_gone(const std::string& job, const Status& why);

 private:
  enum class Stage : std::uint8_t {
    kWaiting,     // for its nodes, its leader, or the end of an earlier part
    kPreparing,   // the engine starts
    kHeld,        // the engine stands; others may not
    kConnecting,  // it connects with those of the other nodes
    kConnected,   // it has; others may not have
    kReady,
    kOver,  // ended on purpose: it is not made again
  };
  struct Part {
    control::JobSpec spec;  // without its epoch
    std::vector<std::string> others;
    std::string leader;
    Stage stage = Stage::kWaiting;
    std::uint64_t epoch = 0;
    // For the leader: who has not answered yet, and where the engines are, by NodeIndex.
    std::set<std::string> unanswered;
    std::vector<control::EngineAddress> addresses;
    Status why;         // the last attempt failed
    bool told = false;  // the others know that it ends
    control::Loop::Watch timer = 0;
  };
  enum class Again : std::uint8_t { kYes, kNo };

  bool leads(const Part& part) const { return part.leader == peers_.here(); }
  static bool is_made(Stage stage) { return stage >= Stage::kPreparing && stage <= Stage::kConnected; }
  std::string lacks(const Part& part) const;
  void try_begin(Part& part);
  void begin_part(Part& part, std::uint64_t epoch);
  void on_held(const std::string& job, std::uint64_t epoch, const Result<control::EngineAddress>& address);
  void await_all(Part& part);
  bool all_answered(Part& part, const std::string& node, const Status& status);
  void prepared(Part& part, const std::string& node, const Result<control::EngineAddress>& address);
  void connect(Part& part, const control::Json& addresses);
  void connected(Part& part, const std::string& node, const Status& status);
  void give_up(Part& part, const Status& why);
  void end_part(Part& part, const std::string& why, Again again);
  void tell_end(Part& part, const std::string& why, Again again);
  void hear_prepare(Part& part, const std::string& peer, std::uint64_t epoch);
  void hear_connect(Part& part, const control::Json& message);
  void hear_end(Part& part, const control::Json& message);
  void retry_later(Part& part);

  control::Loop& loop_;
  const JobTable& table_;
  RunningJobs& jobs_;
  Peers& peers_;
  const Options& options_;
  std::map<std::string, Part> parts_;
};

}  // namespace muster::supervisor
