// Stragglers: members of a group that often arrive late at its collectives, so that all others wait for them.
// They are reported, but nothing fails, because a late rank still does its work.
//
// A member's lag is the time from the first member's arrival to its own. A member is a straggler if its
// median lag over the last operations exceeds median + 5 MAD + kFloor of the others' lags. MAD, the median
// absolute deviation, grows with the usual scatter, and one wild value does not move it. A lag that all
// members share makes no straggler, and neither does one that half of them share.
#pragma once

#include "api/base/clock.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::blame {

// Owns    the lags of one group's last kWindow operations, and a histogram and a flag for each member.
// Thread  one at a time.
// Bound   met(): a store and an addition for each member, no heap. judge(): sorts the window if a member may
//         be late.
// Fails   never.
class Stragglers {
 public:
  static constexpr std::uint32_t kWindow = 100;
  // Operations that a flag needs, because the median of fewer is chance. A member that turns late in a full
  // window also needs this many, so both cases are named equally soon.
  static constexpr std::uint32_t kEnough = kWindow / 2;
  static constexpr int kDeviations = 5;
  // A smaller lag is the operating system's. A rank on a contended core waits for a time slice, which ends at
  // a tick; Linux ticks are 4 ms apart (250 Hz). Such a wait says nothing about the rank. Four punctual ranks
  // on two cores, beside ten other programs, had medians of 1 to 4 ms in turn. The floor also lets a group of
  // two be judged, where the other member's lags may all be 0.
  static constexpr Nanos kFloor = std::chrono::milliseconds(5);
  // Lags below 1 µs, then by powers of two: [1, 2) µs, [2, 4) µs …; all from 4.2 s on are in the last.
  static constexpr std::size_t kBuckets = 24;
  using Histogram = std::array<std::uint64_t, kBuckets>;

  explicit Stragglers(std::uint32_t members);

  // Adds a complete operation: the arrival time of each member, by index in the group.
  void met(std::span<const Instant> arrivals);
  // Forgets all lags, histograms and flags.
  void restart();

  // Memory for sorting, which many groups may share.
  struct Workbench {
    std::vector<Nanos> each;  // the lags of member 0, then those of member 1, …
    std::vector<Nanos> all;
  };
  // Judges the window, if an operation has been added since the last call. Appends the members whose flag has
  // changed. A flag falls when no call has found its member late for a whole window of operations.
  void judge(Workbench& bench, std::vector<std::uint32_t>& changed);

  // ---- results of the latest judge() ------------------------------------------------------------
  std::uint32_t members() const { return static_cast<std::uint32_t>(states_.size()); }
  // Number of operations in the window.
  std::uint32_t operations() const { return judged_window_; }
  bool late(std::uint32_t member) const { return states_[member].late; }
  Nanos median(std::uint32_t member) const { return states_[member].median; }
  // The median of the others' lags; 0 for a member whose own median is too small for a straggler.
  Nanos others(std::uint32_t member) const { return states_[member].others; }
  // Counts all operations since construction or restart(), also those after the latest judge().
  const Histogram& histogram(std::uint32_t member) const { return states_[member].histogram; }
  static std::size_t bucket_of(Nanos lag);

 private:
  struct State {
    Nanos median{0};
    Nanos others{0};
    bool late = false;
    std::optional<std::uint64_t> fine_since;  // operations_ at the first judge() that found it punctual again
    Histogram histogram{};
  };
  std::uint32_t window() const;
  bool find_medians(Workbench& bench);
  bool is_late(std::uint32_t member, const Workbench& bench);
  bool turn(State& state, bool late) const;

  std::vector<State> states_;
  std::vector<Nanos> lags_;  // kWindow rows of one lag per member; a row's memory is touched at its first use
  std::uint64_t operations_ = 0;
  std::uint64_t judged_ = 0;
  std::uint32_t judged_window_ = 0;
};

// A member whose flag is up, for reports.
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
// The sentence of the latest of them, and how many more there are: "…; 2 more ranks of this group come late".
// There is at least one.
std::string sentence_of(std::span<const Straggler> stragglers);
// "0.02 ms", "20.1 ms", "3.1 s".
std::string lag_text(Nanos lag);

}  // namespace muster::blame
