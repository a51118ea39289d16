// Executor: puts ready steps on the streams of their lanes, and finds out when they have ended. No other code
// of the engine launches work on a device.
#pragma once

#include "api/base/result.hpp"
#include "api/base/world.hpp"
#include "kernels/device/device.hpp"
#include "scheduler/run/request.hpp"
#include "transport/collective/communicator.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace muster::scheduler {

// Owns    a stream for each open lane of each rank, an event for each step that may lie there, and the
//         communicators.
// Thread  the one that holds the engine lock.
// Bound   launch_depth steps of a lane, for which open() and open_lane() take all memory.
// Fails   launch, health: a device is broken as a whole. Any other failed launch fails its step alone. poll()
//         reports that step when those of its parts that reached a stream have run.
class Executor {
 public:
  // The most entries of a stream that one step takes: its parts, their fold (kernels/kernel.hpp), and the
  // record of its end. Each step that it is launched behind takes one more, on the stream of the member that
  // waits and on that of the first member.
  static constexpr std::uint32_t kEntriesPerStep = 3;

  struct Options {
    RankTable<device::Device*> devices;  // they outlive the executor
    std::uint32_t lanes = 1;             // with which each rank begins: one of each class from 0 on
    std::uint32_t launch_depth = 1;      // steps of a lane in flight
  };
  // One communicator per group, in the order of the graph's groups, with as many ranks as the group has.
  static Result<Executor> open(const Options& options,
                               std::vector<std::unique_ptr<transport::Communicator>> communicators);

  // Sets the communicator of a group that was made; nullptr for one that is gone. No step of it is in flight.
  void connect(GroupId group, std::unique_ptr<transport::Communicator> communicator) {
    communicators_[group.value] = std::move(communicator);
  }
  // The lane has a stream from now on. Nothing runs on the stream that it had before. kNoResource.
  Status open_lane(Rank rank, std::uint32_t lane, muster_lane lane_class);
  // Gives its stream back, on which nothing runs.
  void close_lane(Rank rank, std::uint32_t lane) { lane_of(rank, lane) = Lane(); }
  Status launch(std::uint32_t step_index, const Step& step);
  // The launched step has done its work on the streams, and goes on outside of them.
  bool is_outside(std::uint32_t step_index) const;
  // Members of the launched collective on other nodes that have not come: Communicator::awaited().
  std::vector<std::uint32_t> awaited(std::uint32_t step_index) const;
  // When something of it last moved there: Communicator::moved_at().
  std::optional<Instant> moved_at(std::uint32_t step_index) const;
  // The group's traffic between nodes: Communicator::traffic().
  transport::Communicator::Traffic traffic(GroupId group) const {
    const auto& communicator = communicators_[group.value];
    return communicator ? communicator->traffic() : transport::Communicator::Traffic();
  }
  // Nobody waits for the launched collective any more: Communicator::cancel().
  void cancel(std::uint32_t step_index);
  struct Finished {
    std::uint32_t step_index = 0;
    Instant begin{0};
    Instant end{0};
    const Status* failure = nullptr;  // nullptr: success. Valid until a step is launched at that index.
  };
  // Calls done(Finished) for every step that has finished since the last call; steps of one lane in order.
  // Returns their number. `done` may launch.
  template<class F>
  std::size_t poll(F&& done) {
    collect();
    for (const Finished& finished : finished_) done(finished);
    return finished_.size();
  }
  bool idle() const { return in_flight_.empty(); }
  // Call this regularly: if a device breaks, its steps never end, so poll() does not show the fault.
  Status health() const;

 private:
  struct Lane {
    device::Priority priority = device::Priority::kNormal;  // of its class
    std::unique_ptr<device::Stream> stream;
    std::vector<std::unique_ptr<device::Event>> ends;  // of its latest steps, used in turns
    std::size_t launched = 0;
    std::uint64_t unfinished_at = 0;  // the latest poll that found a step of this lane unfinished
  };
  struct Slot {                // one step in flight
    std::uint64_t number = 0;  // Step::number; 0: none is in flight
    std::span<const Step::After> after;
    Lane* lane = nullptr;
    const device::Event* end = nullptr;
    transport::Communicator* communicator = nullptr;  // of a collective
    transport::StepOutcome outcome;
  };
  explicit Executor(const Options& options)
      : devices_(options.devices), launch_depth_(options.launch_depth), lanes_(devices_.world()) {}
  Lane& lane_of(Rank rank, std::uint32_t lane) { return lanes_[rank][lane]; }
  Lane& lane_of(const Step::Part& part) { return lane_of(part.rank, part.lane); }
  Status enqueue(device::Stream& stream, transport::StepOutcome& outcome, const Step& step);
  Status await(device::Stream& stream, const Step& step);
  bool waits(const Slot& slot) const;
  void collect();

  RankTable<device::Device*> devices_;
  std::uint32_t launch_depth_;
  RankTable<std::vector<Lane>> lanes_;  // by number: room for shm::kLanesMax each
  std::vector<std::unique_ptr<transport::Communicator>> communicators_;
  std::deque<Slot> slots_;                       // by step index
  std::vector<transport::LocalMember> members_;  // of the present launch; kept, so that it needs no heap
  std::vector<std::uint32_t> in_flight_;         // in order of launch
  std::vector<Finished> finished_;
  std::uint64_t polls_ = 0;
};

// The stream priority of a lane's class (decision D8).
device::Priority priority_of(muster_lane lane_class) noexcept;

}  // namespace muster::scheduler
