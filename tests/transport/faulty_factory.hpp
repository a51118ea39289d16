// A factory that forwards to another one, and fails, delays, stalls or loses steps as its test says.
#pragma once

#include "tests/kernels/math/values.hpp"
#include "transport/collective/communicator_factory.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace muster::transport::test {

// The fate of one launch. Its work on the streams is done in any case, unless it fails at once.
struct Fault {
  Status at_launch;     // not OK: launch() returns it, and nothing moves
  Status late;          // not OK: the step fails with it after it was launched
  Nanos delay{0};       // the step ends so much after its launch
  bool stalls = false;  // it ends by FaultyFactory::let_go()
  bool lost = false;    // it ends once it was cancelled
};
using FaultPlan = std::function<Fault(const Collective&)>;

// Rates of faults drawn from a seed: the launches in a hundred for each fault.
struct FaultRates {
  std::uint32_t at_launch = 0;
  std::uint32_t late = 0;
  std::uint32_t delayed = 0;
  std::uint32_t lost = 0;
};
inline FaultPlan drawn_faults(std::uint64_t seed, FaultRates rates) {
  return [random = math::test::Random(seed), rates](const Collective&) mutable {
    Fault fault;
    if (random.below(100) < rates.at_launch)
      fault.at_launch = Status(Code::kDevice, "no memory for the send");
    if (random.below(100) < rates.late) fault.late = Status(Code::kPeerLost, "the link to node 3 broke");
    if (random.below(100) < rates.delayed) fault.delay = Nanos(random.below(200'000));
    fault.lost = random.below(100) < rates.lost;
    return fault;
  };
}

// Owns    the factory behind it. Steps that it ends itself hold their outcome until then.
// Thread  let_go: any. All else as CommunicatorFactory says; launches come one at a time.
// Bound   none: a test makes as many as it launches steps.
// Fails   as the plan says, and as the factory behind.
class FaultyFactory final : public CommunicatorFactory {
 public:
  // By whom steps are ended that the plan delays, stalls or loses: by the workers in progress(), which is
  // deterministic beside a manual clock, or by a thread of its own, as by a network card.
  enum class Ends : std::uint8_t { kInProgress, kOnItsThread };
  FaultyFactory(std::unique_ptr<CommunicatorFactory> behind, FaultPlan plan, const Clock& clock, Ends ends);
  ~FaultyFactory() override;

  bool takes(const Span& span, Devices devices) const override { return behind_->takes(span, devices); }
  Result<std::unique_ptr<Communicator>> open(const Span& span, Devices devices) override;
  std::size_t progress() override;
  bool arm() override;
  int descriptor() const override;

  // All steps that stall end, and none stalls any more.
  void let_go();
  // Steps that have not ended.
  std::size_t held() const;

 private:
  class Held;
  class Faulty;

  std::unique_ptr<CommunicatorFactory> behind_;
  FaultPlan plan_;
  std::unique_ptr<Held> held_;
};

}  // namespace muster::transport::test
