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
#include "daemon/supervisor/spanning/making_machine.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    the state of the attempt, the answers that it waits for, a timer.
// Thread  the supervisor's loop.
// Bound   the nodes of the job; at the leader a time from begin() to the end: kPrepareTime, unless another is
//         given.
// Fails   by `ended`. An event for which the state has no cell is refused, and changes nothing.
class JobMaking {
 public:
  static constexpr Nanos kPrepareTime = std::chrono::seconds(30);

  // `ended` is called once for each attempt: OK, the job is made; or why not, which only the leader decides.
  // A node whose own part has failed tells the leader, and calls `failed_here`. `spec` outlives this object.
  struct Events {
    std::function<void(const Status&)> ended;
    std::function<void(const Status&)> failed_here;
  };
  // The surroundings of an attempt. Callbacks may be called at once.
  //
  // Owns    nothing.
  // Thread  that of the attempt.
  // Bound   -
  // Fails   connect: by its answer.
  class World {
   public:
    virtual ~World() = default;
    virtual void send(const std::string& node, const control::Json& message) = 0;
    virtual void connect(std::span<const control::EngineCall> calls,
                         std::function<void(const Status&)> answered) = 0;
    // The interfaces of this node, and why they were chosen; for errors about engines that cannot connect.
    virtual std::string interfaces_text() const = 0;
    virtual control::Loop::Watch after(Nanos delay, std::function<void()> callback) = 0;
    virtual void unwatch(control::Loop::Watch watch) = 0;
    // The table has no cell for an event.
    virtual void refused(const Status& why) = 0;
  };
  // `table`: of the leader, or of the others. It outlives this object, and `world` does.
  JobMaking(World& world, const MakingMachine::Table& table, const control::JobSpec& spec, std::string leader,
            Events events);
  ~JobMaking() { world_.unwatch(timer_); }
  JobMaking(const JobMaking&) = delete;
  JobMaking& operator=(const JobMaking&) = delete;

  // The leader asks the others, and gives up after that time. The caller then starts this node's engine.
  void begin(std::uint64_t epoch, Nanos patience);
  // This node's engine has answered, or could not be started.
  void held(const Result<RunningJobs::HeldEngine>& engine);
  // Takes the report of this node's engine on that of another node.
  void on_word(const RunningJobs::EngineEvent& word);
  // `prepared`, `connect`, `connected` or `commit`, of this epoch.
  void hear(const std::string& peer, const std::string& step, const control::Json& message);
  // The attempt is over; later messages do not count.
  void stop();

  // This node's engine has started; the other nodes must hear if it ends.
  bool holds() const { return !machine_.is({State::kIdle, State::kPreparing}); }
  // The steps that are still missing, as far as this node knows.
  std::string lacks() const;

 private:
  using State = MakingMachine::State;
  using Event = MakingMachine::Event;
  // The data of an event.
  struct Facts {
    std::string node{};  // that has answered
    Status why{};
    const RunningJobs::HeldEngine* engine = nullptr;
    std::span<const control::EngineAddress> addresses{};
    Nanos timeout{0};
  };

  const std::string& here() const { return spec_.world.nodes()[spec_.world.here().value]; }
  bool leads() const { return leader_ == here(); }
  bool connects() const { return machine_.is({State::kConnecting, State::kConnected}); }
  void take(Event event, const Facts& facts);
  void act(MakingMachine::Action action, const Facts& facts);
  void say(const char* step, control::Json message);
  void tell_all(const char* step, const control::Json& message);
  void await_all();
  void ask_all(Nanos timeout);
  void note(const Facts& facts);
  Status misfit() const;
  void connect(std::span<const control::EngineAddress> addresses);
  Status unreached(const Status& why) const;
  void report(const char* step, const Status& why);

  World& world_;
  const control::JobSpec& spec_;
  const std::string leader_;
  const Events events_;
  StateMachine<MakingMachine> machine_;
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
