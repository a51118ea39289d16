// Executor: puts ready steps on their lanes' streams and notices when they are done. The only code that
// launches anything.
#pragma once

#include "api/base/result.hpp"
#include "kernels/device/device.hpp"
#include "scheduler/run/request.hpp"
#include "transport/collective/communicator.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace muster::scheduler {

struct Finished {
  std::uint32_t step_index = 0;
  Instant begin{0};
  Instant end{0};
};

// Owns    a stream per (rank, lane), an event per step in flight, and the groups' communicators.
// Thread  whoever holds the engine's baton.
// Bound   the graph's steps in flight; nothing is allocated between open() and connect().
// Fails   launch: the device's or communicator's Status; the step is then not in flight, though what of it
//         lies on its stream already still runs.
class Executor {
 public:
  // What a step takes of its stream's depth at most: its parts, their fold (kernels/kernel.hpp), and the
  // record of its end.
  static constexpr std::uint32_t kEntriesPerStep = 3;

  // One communicator per group, in the order of the graph's groups, with as many ranks as the group has.
  static Result<Executor> open(device::Device& device, std::uint32_t world, std::uint32_t steps_max,
                               std::vector<std::unique_ptr<transport::Communicator>> communicators);

  // The communicator of a group that has come or gone; no step of it is in flight. nullptr: none.
  void connect(GroupId group, std::unique_ptr<transport::Communicator> communicator) {
    communicators_[group.value] = std::move(communicator);
  }
  Status launch(std::uint32_t step_index, const Step& step);
  // Calls done(Finished) for every step that has finished since the last call, those of one lane in order.
  // Returns how many. `done` may launch.
  template<class F>
  std::size_t poll(F&& done) {
    collect();
    for (const Finished& finished : finished_) done(finished);
    return finished_.size();
  }
  bool idle() const { return in_flight_.empty(); }

 private:
  struct Slot {
    std::unique_ptr<device::Event> done;
    std::uint32_t stream = 0;
    std::vector<const Share*> shares;
  };
  Executor() = default;
  Status enqueue(device::Stream& stream, Slot& slot, const Step& step);
  void collect();

  std::vector<std::unique_ptr<device::Stream>> streams_;  // rank · MUSTER_LANE_COUNT + lane
  std::vector<std::unique_ptr<transport::Communicator>> communicators_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> in_flight_;  // in order of launch
  std::vector<Finished> finished_;
  std::vector<std::uint64_t> unfinished_at_;  // per stream: the poll that last found a step of it unfinished
  std::uint64_t polls_ = 0;
};

// The stream priority of a lane (decision D8).
device::Priority priority_of(std::uint32_t lane) noexcept;

}  // namespace muster::scheduler
