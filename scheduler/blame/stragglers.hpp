// Stragglers: which members of a group come late to its collectives, over and over, so that all others wait
// for them. It is said and nothing fails: a late rank does its work.
//
// A member's lag is how long after the first member it came. It is a straggler when its median lag over the
// last operations is above median + 5 MAD of all the others' lags together (the median absolute deviation
// grows with what is usual here, and one wild value does not move it), plus a floor. What all share is
// nobody's lateness; where half of a group comes late, both halves are what is usual.
#pragma once

#include "api/base/clock.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::blame {

// Owns    the lags of one group's last kWindow operations, a histogram and a flag of each member.
// Thread  one at a time.
// Bound   met(): a store and an addition a member, no heap. judge(): sorts the window if somebody may be
//         late.
// Fails   never.
class Stragglers {
 public:
  static constexpr std::uint32_t kWindow = 100;
  // A flag needs as many: the median of fewer is chance. A member that begins to come late has half of a
  // full window against it after as many, so neither case is named before the other.
  static constexpr std::uint32_t kEnough = kWindow / 2;
  static constexpr int kDeviations = 5;
  // Below that a lag is the operating system's: a rank whose core others want waits for a slice of its
  // scheduler, which ends with a tick, and on Linux those are 4 ms apart (250 Hz). Who has to wait is no
  // property of a rank: four ranks that were never late, on two cores with ten programs more, had medians of
  // 1 to 4 ms in turn. It also lets two ranks be judged, of which the other's lags may all be 0.
  static constexpr Nanos kFloor = std::chrono::milliseconds(5);
  // Lags below 1 µs, then by powers of two: [1, 2) µs, [2, 4) µs …; all from 4.2 s on are in the last.
  static constexpr std::size_t kBuckets = 24;
  using Histogram = std::array<std::uint64_t, kBuckets>;

  explicit Stragglers(std::uint32_t members);

  // When each member, by index in the group, came to an operation to which all have come.
  void met(std::span<const Instant> arrivals);
  // All begins anew.
  void restart();

  // Room to sort in: one for many groups.
  struct Workbench {
    std::vector<Nanos> each;  // the lags of one member after those of the other
    std::vector<Nanos> all;
  };
  // Looks at the window, if anything has come since the last look. Adds the members whose flag has changed. A
  // flag that is up goes when a whole window of operations has passed in which no look has found it right.
  void judge(Workbench& bench, std::vector<std::uint32_t>& changed);

  // ---- as the latest look found it --------------------------------------------------------------
  std::uint32_t members() const { return static_cast<std::uint32_t>(states_.size()); }
  // That the window held.
  std::uint32_t operations() const { return judged_window_; }
  bool late(std::uint32_t member) const { return states_[member].late; }
  Nanos median(std::uint32_t member) const { return states_[member].median; }
  // Of the others' lags; 0 for a member that was too little behind to be late.
  Nanos others(std::uint32_t member) const { return states_[member].others; }
  // Of all operations since the beginning.
  const Histogram& histogram(std::uint32_t member) const { return states_[member].histogram; }
  static std::size_t bucket_of(Nanos lag);

 private:
  struct State {
    Nanos median{0};
    Nanos others{0};
    bool late = false;
    std::optional<std::uint64_t> fine_since;  // operations by the first look of which its flag is not right
    Histogram histogram{};
  };
  std::uint32_t window() const;
  bool find_medians(Workbench& bench);
  bool is_late(std::uint32_t member, const Workbench& bench);
  bool turn(State& state, bool late) const;

  std::vector<State> states_;
  std::vector<Nanos> lags_;  // kWindow operations of all members, one after the other; touched as they come
  std::uint64_t operations_ = 0;
  std::uint64_t judged_ = 0;
  std::uint32_t judged_window_ = 0;
};

// One that is late just now, for reports.
struct Straggler {
  std::uint32_t rank = 0;
  std::uint32_t group = 0;
  std::string group_name;
  Nanos median{0};
  Nanos others{0};
  std::uint32_t operations = 0;
};
// "group dp_shard: rank 3 comes late: median 20.1 ms behind the first over the last 100 operations; the
// others 0.02 ms".
std::string sentence_of(const Straggler& straggler);
// "0.02 ms", "20.1 ms", "3.1 s".
std::string lag_text(Nanos lag);

}  // namespace muster::blame
