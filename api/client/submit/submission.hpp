// Submission: the commands that the session writes into its ring.
#pragma once

#include "api/client/connection.hpp"
#include "api/client/submit/plan_table.hpp"
#include "api/client/submit/ring_atomics.hpp"
#include "api/client/submit/timelines.hpp"
#include "api/shm/command.hpp"
#include "api/shm/completion.hpp"
#include "api/shm/ring.hpp"
#include "api/shm/segment.hpp"
#include "api/shm/socket.hpp"

#include <muster/muster.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::client {

// Owns    the writing side of the ring, the doorbell, and a count of starts for each lane.
// Thread  the session's.
// Bound   shm::kRingCapacity commands, and the job's starts_per_lane_max starts of a lane, in flight.
// Fails   with a code: BAD_ARGUMENT, UNSUPPORTED, STALE, BUSY if the ring or the lane is full; without heap,
//         but for offsets that the plan does not take. Then nothing
//         was submitted, and the not_...() functions say why in words.
class Submission {
 public:
  struct Ends {  // all outlive the session's use of them
    const shm::SubmissionView& ring;
    const shm::CompletionView& page;
    shm::CompletionReader& completion;
  };
  // `connection` and `plans` outlive it.
  Submission(const Ends& ends, shm::Descriptor doorbell, Connection& connection, PlanTable& plans);

  const Timelines& timelines() const { return timelines_; }
  Result<std::uint32_t> create_timeline() { return timelines_.create(); }

  Code start(muster_plan plan, const muster_submit& submit, muster_point* point);
  // Starts all entries or none; *refused is the entry that was refused.
  Code start_batch(std::span<muster_batch_entry> entries, std::size_t* refused);
  Code signal(std::uint32_t timeline, std::uint64_t value);
  // The starts that follow belong to this step, in traces.
  Code mark_step(std::uint64_t step);
  Code reset(muster_lane lane);
  // The engine has opened the lane; kernels_only: it has no name, so collectives do not match there.
  void open_lane(muster_lane lane, bool kernels_only);
  void close_lane(muster_lane lane);
  // Tells the engine the new counts of all plans.
  Code tell_all();
  // Ok if the lane takes a start at this moment. First carries out a reset that was asked for.
  Status check_lane(muster_lane lane);

  // Say in words why a call was refused. Call them right after the refusal, before the state changes.
  Status not_started(Code code, muster_plan plan, const muster_submit& submit);
  Status not_started(Code code, std::span<const muster_batch_entry> entries, std::size_t at);
  // Why the ring did not take a command; any other code in its own words.
  Status not_pushed(Code code);

 private:
  Code push(std::span<const shm::Command> commands);
  Code tell(PlanRecord& record);
  [[gnu::noinline]] void ring_doorbell();  // not inlined, so that a start needs no stack for it
  [[gnu::noinline]] Code start_at(muster_plan plan, const muster_submit& submit, muster_point* point);
  template<shm::Command::Kind kKind>
  Code start_as(muster_plan plan, const muster_submit& submit, muster_point* point);
  Code say_first(muster_lane lane, PlanRecord& record);
  // Whether the plan may be started there.
  bool carries(muster_lane lane, const PlanRecord& record) const {
    return (lanes_[lane].flags & kKernelsOnly) == 0 || !record.usual_lane;
  }
  // Starts beyond the lane's depth would fill the ring and block the commands of other lanes. A lane that the
  // session does not have is full.
  bool lane_full(muster_lane lane, std::uint64_t starts = 1) {
    return timelines_.latest(lane) + starts > lanes_[lane].room_to && lane_stays_full(lane, starts);
  }
  // As lane_full(), but first looks how far the lane has come.
  bool lane_stays_full(muster_lane lane, std::uint64_t starts);
  Code reset_if_asked(muster_lane lane);
  Status full(muster_lane lane);
  static constexpr std::uint8_t kResetAsked = 1;   // a reset was asked for since the latest start
  static constexpr std::uint8_t kKernelsOnly = 2;  // the lane has no name
  struct Lane {
    muster_point room_to = MUSTER_POINT_NONE;  // the last start that is known to have room
    std::uint8_t flags = 0;
    bool reset_asked() const { return (flags & kResetAsked) != 0; }
  };
  shm::RingWriter<RingAtomics> ring_;
  shm::CompletionReader& completion_;
  shm::Descriptor doorbell_;
  Connection& connection_;
  PlanTable& plans_;
  std::uint32_t lane_depth_;
  Timelines timelines_;
  std::array<Lane, shm::kLanesMax> lanes_{};
  std::vector<shm::Command> batch_;  // kept, so that a batch needs no heap
};

}  // namespace muster::client
