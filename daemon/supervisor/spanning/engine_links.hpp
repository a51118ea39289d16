// EngineLinks: the connections between this node's engine of a job and those of the job's other nodes, once
// the part runs (engine_link.hpp). It tells the engine which node is lost, and has it connect again with one
// that is back. A node that receives `join` and has no part begins one. `gone` reports the end of a part.
//
// Groups may go on without a node if the engine knows that it is dead, or silent while others are not. A node
// is dead if its own supervisor says so: by `gone`, or when it comes up without the part that it had.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/peers/peers.hpp"
#include "daemon/supervisor/spanning/engine_link.hpp"
#include "daemon/supervisor/spanning/linked_part.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace muster::supervisor {

// Owns    the links.
// Thread  the supervisor's loop.
// Bound   the nodes of the job.
// Fails   never: an attempt that fails is made again, and lacks() says why.
class EngineLinks {
 public:
  // `changed`: the result of is_complete() may have changed. `spec` outlives this object.
  EngineLinks(control::Loop& loop, const Clock& clock, RunningJobs& jobs, Peers& peers,
              const control::JobSpec& spec, std::function<void()> changed);

  // ---- this node's part ------------------------------------------------------------------------
  // The engine stands in that epoch, and is connected with all others.
  void begin_connected(std::uint64_t epoch);
  // It is connected with none.
  void begin_disconnected(std::uint64_t epoch);
  // The engine was taken over from a predecessor: it reports its connections itself.
  void begin_adopted(std::uint64_t epoch);
  // The part ends. `why`: sent to the other nodes; nullptr: they know.
  void end(const Status* why);
  bool stands() const { return part_.epoch() != 0; }
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
  void on_word(const RunningJobs::EngineEvent& word);

 private:
  EngineLink* find(std::string_view node);
  void begin(std::uint64_t epoch);

  const Clock& clock_;
  Peers& peers_;
  const control::JobSpec& spec_;
  LinkedPart part_;
  std::deque<EngineLink> links_;  // they do not move
};

}  // namespace muster::supervisor
