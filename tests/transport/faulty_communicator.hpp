// A communicator that does what another does, and fails or delays steps as its test says.
#pragma once

#include "tests/kernels/math/values.hpp"
#include "transport/collective/communicator.hpp"

#include <cstdint>
#include <functional>
#include <memory>

namespace muster::transport::test {

// What becomes of one launch.
struct Fault {
  Status at_launch;  // not OK: launch() says so, and nothing moves
  Status late;       // not OK: the step fails with it after it was launched, from another thread
  Nanos delay{0};    // so much later it ends; a worker waits meanwhile, so keep it short
};
using FaultPlan = std::function<Fault(const Collective&)>;

// Faults drawn from a seed. Of a hundred launches so many fail at once, late, and end late.
struct FaultRates {
  std::uint32_t at_launch = 0;
  std::uint32_t late = 0;
  std::uint32_t delayed = 0;
};
inline FaultPlan drawn_faults(std::uint64_t seed, FaultRates rates) {
  return [random = math::test::Random(seed), rates](const Collective&) mutable {
    Fault fault;
    if (random.below(100) < rates.at_launch)
      fault.at_launch = Status(Code::kDevice, "no memory for the send");
    if (random.below(100) < rates.late) fault.late = Status(Code::kPeerLost, "the link to node 3 broke");
    if (random.below(100) < rates.delayed) fault.delay = Nanos(random.below(200'000));
    return fault;
  };
}

// Owns    the communicator behind it, and one thread, which fails steps and lets them end.
// Thread  launch: one issuing thread at a time.
// Bound   as the communicator behind; each delayed step keeps a worker.
// Fails   as the plan says, and as the communicator behind.
//
// Destroy it when its streams are idle.
class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> behind, FaultPlan plan);
  ~FaultyCommunicator() override;

  std::int32_t ranks() const noexcept override { return behind_->ranks(); }
  Status launch(const Collective& collective, std::span<const LocalMember> members,
                StepOutcome& outcome) override;

 private:
  class Ender;

  std::unique_ptr<Communicator> behind_;
  FaultPlan plan_;
  std::unique_ptr<Ender> ender_;
};

}  // namespace muster::transport::test
