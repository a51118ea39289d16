// Executor: puts ready steps on their lanes' streams and notices when they are done. The only code that launches anything.
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
// Bound   the graph's steps in flight; nothing is allocated after open().
// Fails   launch: the device's or communicator's Status; the step is then not in flight.
class Executor {
 public:
  // One communicator per group, in the order of the graph's groups, with as many ranks as the group has.
  static Result<Executor> open(device::Device& device, std::uint32_t world, std::uint32_t steps_max,
                               std::vector<std::unique_ptr<transport::Communicator>> communicators);

  Status launch(std::uint32_t step_index, const Step& step);
  // Calls done(Finished) for every step that has finished since the last call. Returns how many.
  template<class F>
  std::size_t poll(F&& done) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < in_flight_.size();) {
      const std::uint32_t index = in_flight_[i];
      const device::Event& done_event = *slots_[index].done;
      if (!done_event.query()) {
        ++i;
        continue;
      }
      in_flight_[i] = in_flight_.back();
      in_flight_.pop_back();
      done(Finished{index, done_event.began_at(), done_event.reached_at()});
      ++count;
    }
    return count;
  }
  bool idle() const { return in_flight_.empty(); }

 private:
  struct Slot {
    std::unique_ptr<device::Event> done;
    std::vector<transport::Member> members;
  };
  Executor() = default;
  Status enqueue(device::Stream& stream, Slot& slot, const Step& step);

  std::vector<std::unique_ptr<device::Stream>> streams_;  // rank · MUSTER_LANE_COUNT + lane
  std::vector<std::unique_ptr<transport::Communicator>> communicators_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> in_flight_;
};

// The stream priority of a lane (decision D8).
device::Priority priority_of(std::uint32_t lane) noexcept;

}  // namespace muster::scheduler
