#include "tests/transport/faulty_communicator.hpp"

#include "kernels/device/host/pool.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace muster::transport::test {

// Opens gates in the order in which they came, each after its delay.
//
// Owns    the gates, until its end, and the thread.
// Thread  add: one at a time.
// Bound   none: a test makes as many as it launches steps.
// Fails   never.
class FaultyCommunicator::Ender {
 public:
  Ender() : thread_([this] { run(); }) {}
  ~Ender() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    came_.notify_one();
    thread_.join();
  }
  Ender(const Ender&) = delete;
  Ender& operator=(const Ender&) = delete;

  // Puts a gate on the stream.
  Status add(device::Stream& stream, StepOutcome& outcome, Fault fault) {
    const std::lock_guard lock(mutex_);
    Gate& gate = gates_.emplace_back();
    gate.outcome = &outcome;
    gate.late = std::move(fault.late);
    gate.delay = fault.delay;
    Status status = device::host::enqueue(stream, {.run = pass, .context = &gate, .parts = 1});
    if (status.ok())
      came_.notify_one();
    else
      gates_.pop_back();
    return status;
  }

 private:
  // Work at the end of a step that waits until the thread lets it pass.
  struct Gate {
    StepOutcome* outcome = nullptr;
    Status late;
    Nanos delay{0};
    std::atomic<bool> open{false};
  };
  static void pass(const void* context, std::uint32_t /*part*/) {
    static_cast<const Gate*>(context)->open.wait(false, std::memory_order_acquire);
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      came_.wait(lock, [&] { return stopping_ || opened_ < gates_.size(); });
      if (opened_ == gates_.size()) return;
      Gate& gate = gates_[opened_++];
      lock.unlock();
      std::this_thread::sleep_for(gate.delay);
      if (!gate.late.ok()) gate.outcome->fail(gate.late);
      gate.open.store(true, std::memory_order_release);
      gate.open.notify_one();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Gate> gates_;
  std::size_t opened_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

FaultyCommunicator::FaultyCommunicator(std::unique_ptr<Communicator> behind, FaultPlan plan)
    : behind_(std::move(behind)), plan_(std::move(plan)), ender_(std::make_unique<Ender>()) {}
FaultyCommunicator::~FaultyCommunicator() = default;

Status FaultyCommunicator::launch(const Collective& collective, std::span<const LocalMember> members,
                                  StepOutcome& outcome) {
  Fault fault = plan_(collective);
  MUSTER_RETURN_IF_ERROR(fault.at_launch);
  MUSTER_RETURN_IF_ERROR(behind_->launch(collective, members, outcome));
  if (fault.late.ok() && fault.delay == Nanos(0)) return {};
  return ender_->add(*members.front().stream, outcome, std::move(fault));
}

}  // namespace muster::transport::test
