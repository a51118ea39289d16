// Trace: every start as an event with rank, lane, group, bytes, site and step, in Chrome/Perfetto JSON.
//
// One track per rank and lane (complete `X` events: nested async events misbehave in viewers). Source of the
// format: the Trace Event Format document of the Chromium project.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/ids.hpp"
#include "api/shm/command.hpp"
#include "scheduler/run/lane_table.hpp"

#include <muster/muster.h>

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::scheduler {

// The track of what the rank runs itself; others are lanes.
constexpr std::uint32_t kDirectTrack = shm::kLanesMax;

// Owns    the events of one recording, and the sites that they name.
// Thread  the one that holds the engine lock.
// Bound   events_max; further events are dropped and counted.
// Fails   never.
class Trace {
 public:
  struct Event {
    Instant begin{0};
    Instant end{0};
    const char* label = "";  // static storage
    Rank rank;
    std::uint32_t lane = 0;  // its number at the rank; kDirectTrack: run by the rank itself
    LaneId lane_id{};
    std::uint32_t group = 0;
    bool in_group = false;    // a collective: `group` is valid
    std::uint64_t value = 0;  // point that it reached; on the direct path: number of the operation
    std::uint64_t bytes = 0;
    std::string_view site = {};  // of a collective: place in the client's program, or name of its unit
    std::uint64_t step = 0;      // of the client's units; 0: none
  };

  explicit Trace(std::size_t events_max) : events_max_(events_max) {}
  Trace(Trace&&) = default;
  Trace& operator=(Trace&&) = default;

  void begin(Instant now);
  void end() { on_ = false; }
  bool on() const { return on_; }
  // Clips an event that began before the recording; ignores one that ended before it. Copies the site.
  void add(const Event& event);
  // Counts events as dropped of which only the number is known.
  void missed(std::uint64_t events) { dropped_ += events; }
  std::size_t size() const { return events_.size(); }
  std::uint64_t dropped() const { return dropped_; }

  // The whole recording. group_names[g] names Event::group g.
  std::string json(std::string_view job, std::span<const Rank> ranks,
                   const std::vector<std::string>& group_names, const LaneTable& lanes) const;

 private:
  std::size_t events_max_;
  std::vector<Event> events_;
  std::set<std::string, std::less<>> sites_;  // each once
  std::uint64_t dropped_ = 0;
  Instant origin_{0};
  bool on_ = false;
};

}  // namespace muster::scheduler
