// EngineLinks: the connections between this node's engine of a job and those of the job's other nodes, once
// the part runs. It tells the engine which node is lost, and has it connect again with one that is back.
//
// The first node of a pair, in the job's order, asks. It sends `join`, with its engine's address and the
// generation of the last connection between the two. The other answers `here`, with its address and a new
// generation, and both engines connect. If the second node finds itself disconnected, it sends `apart`, and
// the first one asks. A node that receives `join` and has no part begins one. `gone` reports the end of a
// part.
//
// Groups may go on without a node if the engine knows that it is dead, or silent while others are not. A node
// is dead if its own supervisor says so: by `gone`, or when it comes up without the part that it had.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/engine_address.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/peers/peers.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::supervisor {

// Owns    what is known of the parts on the other nodes.
// Thread  the supervisor's loop.
// Bound   the nodes of the job; one attempt with each at a time.
// Fails   never: an attempt that fails is made again, and lacks() says why.
class EngineLinks {
 public:
  // Attempts that fail are made again after so long, and each time after twice as long.
  static constexpr Nanos kFirstRetry = std::chrono::milliseconds(250);
  static constexpr Nanos kLastRetry = std::chrono::seconds(2);
  // For the other node's answer: it may have to start its engine.
  static constexpr Nanos kAnswerTime = std::chrono::seconds(15);

  // `changed`: settled() may be another now. `spec` outlives this object.
  EngineLinks(control::Loop& loop, const Clock& clock, RunningJobs& jobs, Peers& peers,
              const control::JobSpec& spec, std::function<void()> changed);
  ~EngineLinks();

  // ---- this node's part ------------------------------------------------------------------------
  // The engine stands in that epoch, and is connected with all others.
  void begin_connected(std::uint64_t epoch);
  // It is connected with none.
  void begin_disconnected(std::uint64_t epoch);
  // The engine was taken over from a predecessor: it reports its connections itself.
  void begin_adopted(std::uint64_t epoch);
  // The part ends. `why`: sent to the other nodes; nullptr: they know.
  void end(const Status* why);
  bool stands() const { return epoch_ != 0; }
  // Each node that is up and has a part of this epoch is connected, or could not be.
  bool is_complete() const;
  // The nodes with which the engine is not connected, and why; empty: none.
  std::string lacks() const;

  // ---- the parts of others ---------------------------------------------------------------------
  bool has(std::string_view node) const;
  // The epoch of a part on a node that is up, of the first such node; 0: there is none.
  std::uint64_t elsewhere() const;
  // Whether that node has a part of another epoch than this one's, and stands before this node.
  bool yields_to(std::string_view node) const;

  // ---- events ----------------------------------------------------------------------------------
  void on_up(const std::string& node, std::uint64_t its_epoch);
  void on_down(const std::string& node);
  // The node is given up.
  void on_lost(const std::string& node, const Status& why);
  // The node's supervisor is silent. Perhaps this node's engine still receives from the node's engine.
  void on_suspected(const std::string& node);
  // `join`, `here`, `apart`, `gone`.
  void heard(const std::string& node, const std::string& step, const control::Json& message);
  void on_word(const EngineEvent& word);

 private:
  enum class State : std::uint8_t { kDisconnected, kAsking, kConnecting, kConnected };
  struct Call {
    control::EngineAddress address;
    std::uint32_t generation = 0;
  };
  struct Other {
    std::string node;
    NodeIndex index;
    std::uint64_t epoch = 0;  // of its part, as it last reported; 0: it has none
    State state = State::kDisconnected;
    std::uint32_t generation = 0;  // of the connection, or of the attempt
    std::uint32_t failures = 0;    // attempts since it was last up or connected
    Status why;                    // it is disconnected
    std::optional<Call> asked;     // its `join`, until this node's engine can answer
    std::uint64_t round = 0;       // counts changes: an answer to an earlier question is out of date
    control::Loop::Watch timer = 0;
  };
  struct Links {
    control::EngineAddress address;
    std::vector<control::Json> links;  // by NodeIndex
  };

  Other* find(std::string_view node);
  void turn(Other& other, State state);
  void begin(std::uint64_t epoch);
  void ask_network(Other& other, std::function<void(const Result<Links>&)> answered);
  Result<Links> links_in(const Result<control::Packet>& packet) const;
  void ask_engine(Other& other, std::function<void(const Links&)> answered);
  void reconcile(Other& other);
  void answer(Other& other);
  void connect(Other& other, const Call& call);
  void apart(Other& other, const Status& why);
  enum class Fate : std::uint8_t { kDisconnected, kSilent, kDead };
  void give_up(Other& other, const Status& why, Fate fate);
  void tell_lost(const Other& other, const Status& why, Fate fate);
  control::Json about(const char* step) const;

  control::Loop& loop_;
  const Clock& clock_;
  RunningJobs& jobs_;
  Peers& peers_;
  const control::JobSpec& spec_;
  const std::function<void()> changed_;
  std::uint64_t epoch_ = 0;  // of this node's part; 0: it does not stand
  std::vector<Other> others_;
};

}  // namespace muster::supervisor
