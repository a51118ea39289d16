// EngineCommands: the supervisor's commands about a job that exists, all but those that let a rank in or end
// the job (Conductor).
#pragma once

#include "api/shm/descriptor.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/control/packet.hpp"
#include "daemon/engine/job/engine.hpp"
#include "daemon/engine/job/supervisor_channel.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace muster::engine {

// Owns    the attempts to connect, and a descriptor that waits for its answer to be sent.
// Thread  the conductor's.
// Bound   one attempt a node.
// Fails   the answers say so; nlohmann's exceptions for fields of a wrong type.
class EngineCommands {
 public:
  // `counters`: sent with the answer to the command that has made the job.
  EngineCommands(control::Loop& loop, const Clock& clock, SupervisorChannel& channel, Engine& engine,
                 shm::Descriptor counters);
  EngineCommands(const EngineCommands&) = delete;
  EngineCommands& operator=(const EngineCommands&) = delete;

  control::Json execute(const std::string& command, const control::Json& body);
  // Whether the engine still connects with that node, for which a report of its own follows.
  bool awaits(NodeIndex node, std::uint32_t generation) const;
  // The descriptor that belongs to the latest answer, if one does.
  shm::Descriptor take_descriptor() { return std::exchange(descriptor_, shm::Descriptor()); }

 private:
  control::Json connect(const control::Json& body);
  void await_connected(NodeIndex node);
  control::Json lose(const control::Json& body);
  control::Json network() const;
  control::Json report();
  control::Json groups() const;
  control::Json counters();
  control::Json trace_begin(const control::Json& body);
  control::Json trace_end(const control::Json& body);
  control::Json flight();
  control::Json with_text(const std::string& json);
  control::Json absent(const control::Json& body);

  struct Attempt {
    std::uint32_t generation = 0;
    Instant until{0};
  };

  control::Loop& loop_;
  const Clock& clock_;
  SupervisorChannel& channel_;
  Engine& engine_;
  shm::Descriptor descriptor_;
  std::map<NodeIndex, Attempt> connecting_;
};

}  // namespace muster::engine
