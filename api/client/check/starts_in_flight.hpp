// StartsInFlight: the starts after which a new one comes, and those with which it would race.
//
// A start comes after the earlier ones of its lane, and after the points for which it waits. It comes after
// all for which the process had waited when it started it, and after all that these came after. Two starts
// that use the same bytes, of which one writes, must come one after the other. Whether they meet in time is
// chance, and does not count.
#pragma once

#include "api/client/check/memory_use.hpp"
#include "api/shm/command.hpp"

#include <muster/muster.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::client {

// Owns    a record of each start.
// Thread  the session's.
// Bound   kRememberedMax starts; of those before them no race is found.
// Fails   never.
class StartsInFlight {
 public:
  // Which starts have ended: of each lane all up to a number.
  struct Ended {
    std::array<std::uint64_t, shm::kLanesMax> of_lane{};

    bool have(muster_point point) const {
      return shm::point_value(point) <= of_lane[shm::point_timeline(point)];
    }
    void add(const Ended& others);
    void add(muster_point point);
  };

  // A start that is about to be made.
  struct Next {
    std::string name;  // "kernel copy", "all_reduce \"model.py:311\""
    std::shared_ptr<const MemoryUses> uses;
    muster_lane lane = 0;  // MUSTER_LANE_NONE: its lane says nothing
    std::vector<muster_point> waits;
    bool moves = false;  // it is a collective
  };

  // A start whose end the process has not seen yet.
  struct Started {
    muster_point point = MUSTER_POINT_NONE;
    std::string name;
    std::shared_ptr<const MemoryUses> uses;
    Ended before;                    // the starts that have ended when it begins
    std::vector<muster_point> open;  // of the client's timelines, not raised yet: it begins after them
  };

  struct Race {
    const Started* earlier = nullptr;
    MemoryUse its, mine;
  };

  static constexpr std::size_t kRememberedMax = 1 << 14;

  // With the latest of them, if there are several.
  std::optional<Race> race_of(const Next& next) const;
  // For memory that the process itself uses now.
  std::optional<Race> race_of(const MemoryUses& uses) const;
  void add(const Next& next, muster_point point);
  // Returns the oldest, if it remembers too many.
  std::vector<Started> forget_oldest();
  // The process has seen that the point is reached. Returns the starts that it knows ended, and did not know
  // before.
  std::vector<Started> reach(muster_point point);
  // The point will never be reached: the same, but starts for which its start waited may go on.
  std::vector<Started> fail(muster_point point);
  // A start that waits for a point which is not raised yet may come after later ones. So it is judged as the
  // point is raised. `later` of the pair waits for the point.
  struct LateRace {
    const Started* later = nullptr;
    Race race;
  };
  std::optional<LateRace> race_by_signal(std::uint32_t timeline, std::uint64_t value) const;
  // Returns the starts for which nothing is left to be raised now; valid until the next call.
  std::vector<const Started*> signal(std::uint32_t timeline, std::uint64_t value);
  // The one that was added last.
  const Started& latest() const { return starts_.back(); }
  // Whether a start waits for a point that this process has yet to raise.
  bool is_open(muster_point point) const;

  // All starts from there on can be taken back, until the next call that is not race_of() or add().
  struct Mark;
  Mark mark() const;
  void back_to(Mark mark);
  // The memory is gone, and so are the starts that used it.
  void forget(const std::byte* from, const std::byte* to);

 private:
  struct Lane {
    Ended ended;
    std::vector<muster_point> open;
  };
  using Lanes = std::array<Lane, shm::kLanesMax>;

 public:
  struct Mark {
    std::size_t starts = 0;
    Lanes lanes;
  };

 private:
  Lane before(const Next& next) const;
  bool is_raised(muster_point point) const;
  void resolve(Lane& lane, std::uint32_t timeline, std::uint64_t value) const;
  std::vector<Started> take_ended();

  std::deque<Started> starts_;  // in the order in which they were made
  Ended seen_;                  // by the process
  Lanes lanes_;                 // once their latest start has ended
  std::array<std::uint64_t, shm::kClientTimelinesMax> raised_{};
};

}  // namespace muster::client
