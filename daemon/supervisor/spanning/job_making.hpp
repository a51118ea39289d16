// JobMaking: how a job of several nodes is made, on all of them or on none, as one of them goes through it.
//
// The job's leader has drawn the job's epoch, and asks each node for its part (`prepare`). A node starts its
// engine, answers with the engine's network address (`prepared`), and holds its ranks back. When all have
// answered well, the leader gives the addresses to all (`connect`). Each node's engine connects with the
// others, and the node reports the outcome (`connected`). When all are connected, the leader sends `commit`,
// and ranks attach. After any failure it sends `end` instead.
#pragma once

#include "daemon/control/engine_address.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/peers/peers.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    what the attempt waits for.
// Thread  the supervisor's loop.
// Bound   the nodes of the job; at the leader a time from begin() to the end: kPrepareTime, unless another is
//         given.
// Fails   by `ended`.
class JobMaking {
 public:
  static constexpr Nanos kPrepareTime = std::chrono::seconds(30);

  // `ended` is called once for each attempt: OK, the job is made; or why not, which only the leader decides.
  // A node whose own part has failed tells the leader, and calls `failed_here`. `spec` outlives this object.
  struct Events {
    std::function<void(const Status&)> ended;
    std::function<void(const Status&)> failed_here;
  };
  JobMaking(control::Loop& loop, RunningJobs& jobs, Peers& peers, const control::JobSpec& spec,
            const std::string& leader, Events events);
  ~JobMaking();

  // The leader asks the others, and gives up after that time. The caller then starts this node's engine.
  void begin(std::uint64_t epoch, Nanos patience);
  // This node's engine has answered, or could not be started.
  void held(const Result<RunningJobs::HeldEngine>& engine);
  // Takes the report of this node's engine on that of another node.
  void on_word(const EngineEvent& word);
  // `prepared`, `connect`, `connected` or `commit`, of this epoch.
  void hear(const std::string& peer, const std::string& step, const control::Json& message);
  // The attempt is over; later messages do not count.
  void stop();

  // The engine stands, so its end is news.
  bool holds() const { return state_ > State::kPreparing; }
  // The steps that are still missing, as far as this node knows.
  std::string lacks() const;

 private:
  enum class State : std::uint8_t {
    kIdle,
    kPreparing,   // the engine starts
    kHeld,        // the engine stands; others may not
    kConnecting,  // it connects with those of the other nodes
    kConnected,   // it has; others may not have
  };
  bool leads() const { return leader_ == peers_.here(); }
  void say(const char* step, control::Json message);
  void tell_all(const char* step, const control::Json& message);
  void await_all();
  bool all_answered(const std::string& node, const Status& status);
  void prepared(const std::string& node, const Result<RunningJobs::HeldEngine>& engine);
  void connect(std::span<const control::EngineAddress> addresses);
  void on_connected(const Status& status);
  void connected(const std::string& node, const Status& status);
  void end(const Status& how);

  control::Loop& loop_;
  RunningJobs& jobs_;
  Peers& peers_;
  const control::JobSpec& spec_;
  const std::string& leader_;
  const Events events_;
  State state_ = State::kIdle;
  std::uint64_t epoch_ = 0;
  // For the leader: the nodes that have not answered yet; the addresses of the engines, and the hashes of
  // their lists of groups, by NodeIndex.
  std::set<std::string> unanswered_;
  std::vector<control::EngineAddress> addresses_;
  std::vector<std::string> groups_;
  std::set<NodeIndex> unconnected_;  // nodes whose engines this one has not reached yet
  control::Loop::Watch timer_ = 0;
};

}  // namespace muster::supervisor
