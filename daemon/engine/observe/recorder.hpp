// Recorder: records the operations of the job, on both paths (scheduler/run/trace.hpp).
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "daemon/engine/memory/engine_lock.hpp"
#include "scheduler/run/graph.hpp"
#include "scheduler/run/trace.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::engine {

// The owner's name of a recording that a rank has begun.
std::string recorder_name(Rank rank);

// Owns    the recording that is on.
// Thread  begin, end, by: the conductor; they take the engine's lock. All else: under it.
// Bound   kEventsMax events.
// Fails   begin: BUSY. end: STATE.
class Recorder {
 public:
  // `direct_pages`: nullptr if there is no direct path.
  Recorder(const control::JobSpec& spec, const Clock& clock, EngineLock& lock, const scheduler::Graph& graph,
           DirectPages* direct_pages);

  // One recording at a time. `by`: the name of its owner, which alone may end it; end("") ends any.
  Status begin(std::string by);
  Result<std::string> end(std::string_view by);
  // The owner of the recording; "" if none is on.
  std::string by() const;

  bool on() const { return trace_.on(); }
  void add(const scheduler::Trace::Event& event) { trace_.add(event); }
  // Takes over what the ranks have recorded of their direct operations since the last time.
  void take_over();
  // The rank's session has ended: drops a recording that it owns.
  void left(Rank rank);

 private:
  static constexpr std::size_t kEventsMax = 1u << 21;
  scheduler::Trace stop();
  void take_over(Rank rank);

  const control::JobSpec& spec_;
  const Clock& clock_;
  EngineLock& lock_;
  const scheduler::Graph& graph_;
  DirectPages* direct_pages_;
  scheduler::Trace trace_{kEventsMax};
  std::string by_;                  // while a recording is on
  RankTable<std::uint64_t> taken_;  // while a recording is on: the latest record in it
};

}  // namespace muster::engine
