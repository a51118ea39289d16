#include "tests/transport/faulty_factory.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

namespace muster::transport::test {

// The steps that are held, and what they wait for.
//
// Owns    the thread, if there is one, and the descriptor that it rings.
// Thread  any.
// Bound   none.
// Fails   never.
class FaultyFactory::Held {
 public:
  Held(const Clock& clock, Ends ends) : clock_(clock), bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (ends == Ends::kOnItsThread) thread_.emplace([this] { run(); });
  }
  ~Held() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    if (thread_) thread_->join();
    ::close(bell_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  void add(StepOutcome& outcome, Fault fault) {
    outcome.hold();
    const std::lock_guard lock(mutex_);
    steps_.push_back({&outcome, std::move(fault), later(clock_.now(), fault.delay), false});
    changed_.notify_one();
  }
  void cancel(const StepOutcome& outcome) {
    const std::lock_guard lock(mutex_);
    for (Step& step : steps_)
      if (step.outcome == &outcome) step.cancelled = true;
    changed_.notify_one();
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    let_go_ = true;
    changed_.notify_one();
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return steps_.size();
  }
  // Ends what is due. Returns how many.
  std::size_t end_due() {
    if (thread_) return 0;
    const std::lock_guard lock(mutex_);
    return end_due(clock_.now());
  }
  bool has_thread() const { return thread_.has_value(); }
  int bell() const { return bell_; }

 private:
  struct Step {
    StepOutcome* outcome = nullptr;
    Fault fault;
    Instant at{0};
    bool cancelled = false;
  };
  bool is_due(const Step& step, Instant now) const {
    if (step.fault.lost) return step.cancelled;
    if (step.fault.stalls && !let_go_) return false;
    return step.at <= now;
  }
  std::size_t end_due(Instant now) {
    return std::erase_if(steps_, [&](const Step& step) {
      if (!is_due(step, now)) return false;
      if (!step.fault.late.ok()) step.outcome->fail(step.fault.late);
      step.outcome->release(now);
      return true;
    });
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (end_due(clock_.now()) > 0) {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(bell_, &one, sizeof one);
      }
      Instant next = Instant::max();
      for (const Step& step : steps_)
        if (!step.fault.lost && (!step.fault.stalls || let_go_)) next = std::min(next, step.at);
      if (next == Instant::max())
        changed_.wait(lock);
      else
        changed_.wait_for(lock, std::max(next - clock_.now(), Nanos(0)));
    }
  }

  const Clock& clock_;
  const int bell_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Step> steps_;
  bool let_go_ = false;
  bool stopping_ = false;
  std::optional<std::thread> thread_;
};

struct FaultyPrepared final : Communicator::Prepared {
  FaultyPrepared(const Collective& all, std::shared_ptr<Communicator::Prepared> made)
      : collective(all), behind(std::move(made)) {}
  const Collective& collective;
  const std::shared_ptr<Communicator::Prepared> behind;
};

// Owns    the communicator behind it. Thread  one issuing thread at a time. Bound  as that one. Fails  as
// planned.
class FaultyFactory::Faulty final : public Communicator {
 public:
  Faulty(std::unique_ptr<Communicator> behind, const FaultPlan& plan, Held& held)
      : behind_(std::move(behind)), plan_(plan), held_(held) {}

  std::int32_t ranks() const noexcept override { return behind_->ranks(); }
  Result<std::shared_ptr<Communicator::Prepared>> prepare(const Collective& collective,
                                                          std::span<const LocalMember> members) override {
    MUSTER_ASSIGN_OR_RETURN(auto behind, behind_->prepare(collective, members));
    return std::make_shared<FaultyPrepared>(collective, std::move(behind));
  }
  bool keeps_prepared() const override { return behind_->keeps_prepared(); }
  Status launch(const std::shared_ptr<Communicator::Prepared>& prepared, std::span<const LocalMember> members,
                const MatchKey& key, device::Priority priority, StepOutcome& outcome) override {
    const auto& faulty = static_cast<const FaultyPrepared&>(*prepared);
    Fault fault = plan_(faulty.collective);
    MUSTER_RETURN_IF_ERROR(fault.at_launch);
    MUSTER_RETURN_IF_ERROR(behind_->launch(faulty.behind, members, key, priority, outcome));
    if (!fault.late.ok() || fault.delay > Nanos(0) || fault.stalls || fault.lost)
      held_.add(outcome, std::move(fault));
    return {};
  }
  void cancel(StepOutcome& outcome) override {
    behind_->cancel(outcome);
    held_.cancel(outcome);
  }

 private:
  std::unique_ptr<Communicator> behind_;
  const FaultPlan& plan_;
  Held& held_;
};

FaultyFactory::FaultyFactory(std::unique_ptr<CommunicatorFactory> behind, FaultPlan plan, const Clock& clock,
                             Ends ends)
    : behind_(std::move(behind)), plan_(std::move(plan)), held_(std::make_unique<Held>(clock, ends)) {}
FaultyFactory::~FaultyFactory() = default;

Result<std::unique_ptr<Communicator>> FaultyFactory::open(const Span& span, Devices devices) {
  MUSTER_ASSIGN_OR_RETURN(auto behind, behind_->open(span, devices));
  return std::make_unique<Faulty>(std::move(behind), plan_, *held_);
}

std::size_t FaultyFactory::progress() {
  return behind_->progress() + held_->end_due();
}

// Without a thread it is polled while it holds a step.
bool FaultyFactory::arm() {
  return behind_->arm() && (held_->has_thread() || held_->size() == 0);
}

int FaultyFactory::descriptor() const {
  return held_->bell();
}

void FaultyFactory::let_go() {
  held_->let_go();
}

std::size_t FaultyFactory::held() const {
  return held_->size();
}

}  // namespace muster::transport::test
