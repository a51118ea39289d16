// Algorithm::kShared: one result for all members, in memory that they share: each brings its part of it, and
// nobody is done before all are.
#include "api/base/fault_point.hpp"
#include "api/base/node_limits.hpp"
#include "api/client/direct/algorithms.hpp"
#include "api/client/direct/payloads.hpp"
#include "api/client/direct/shared_target.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/deliver.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace muster::client {
namespace {

// One operation.
class Shared {
 public:
  Shared(const DirectPlan& plan, Payloads& payloads)
      : plan_(plan),
        channel_(*plan.channel),
        payloads_(payloads),
        element_(plan.element),
        total_(plan.what.count * element_) {}

  // Whether somebody has to write: all members see the same arrivals, so all say the same.
  bool somebody_writes() const {
    switch (plan_.what.op) {
      case MUSTER_ALL_GATHER:
        for (std::uint32_t i = 0; i < channel_.members(); ++i)
          if (channel_.arrivals().of(i).location().value != 0) return true;
        return false;
      case MUSTER_BROADCAST:
        return channel_.arrivals().of(root()).location().kind != shm::PayloadLocation::Kind::kNone;
      default:
        return total_ > 0;
    }
  }

  Outcome write() {
    switch (plan_.what.op) {
      case MUSTER_ALL_GATHER:
        return gather();
      case MUSTER_BROADCAST:
        return broadcast();
      default:
        return reduce();
    }
  }

 private:
  std::uint32_t root() const { return static_cast<std::uint32_t>(plan_.what.root); }
  std::byte* target() const { return plan_.mine.target + plan_.mine.target_blocks.front().offset * element_; }

  SharedPart part() const { return part_of(total_, channel_.members(), channel_.index()); }

  Outcome gather() {
    if (!brings_block(plan_)) return Outcome::kDone;
    const Block& from = plan_.mine.source_blocks.front();
    const Block& to = plan_.mine.target_blocks[channel_.index()];
    math::copy(plan_.mine.target + to.offset * element_, plan_.mine.source + from.offset * element_,
               to.count * element_, math::streaming_from(plan_.got_bytes));
    return Outcome::kDone;
  }

  Outcome broadcast() {
    const SharedPart range = part();
    if (range.bytes == 0) return Outcome::kDone;
    const std::byte* source = payloads_.read(root(), range.first, range.bytes);
    if (source == nullptr) return Outcome::kCorrupt;
    math::copy(target() + range.first, source, range.bytes, math::streaming_from(total_));
    return payloads_.intact(root()) ? Outcome::kDone : Outcome::kBroken;
  }

  Outcome reduce() {
    const SharedPart range = part();
    if (range.bytes == 0) return Outcome::kDone;
    std::array<const std::byte*, kRanksOnNodeMax> sources;
    for (std::uint32_t i = 0; i < channel_.members(); ++i) {
      sources[i] = payloads_.read(i, range.first, range.bytes);
      if (sources[i] == nullptr) return Outcome::kCorrupt;
    }
    std::byte* const to = target() + range.first;
    math::reduce_to_all(plan_.what.dtype, plan_.what.redop, std::span(sources).first(channel_.members()),
                        std::span(&to, 1), range.bytes / element_, plan_.what.scale,
                        math::streaming_from(total_));
    return payloads_.all_intact() ? Outcome::kDone : Outcome::kBroken;
  }

  const DirectPlan& plan_;
  Channel& channel_;
  Payloads& payloads_;
  std::size_t element_;
  std::uint64_t total_;  // of the one vector; nothing of an ALL_GATHER
};

}  // namespace

Outcome run_shared(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy) {
  Payloads payloads(plan, memory, stages, policy);
  if (const Outcome met = payloads.meet(); met != Outcome::kDone) return met;
  Shared shared(plan, payloads);
  if (!shared.somebody_writes()) return Outcome::kDone;
  if (const Outcome written = shared.write(); written != Outcome::kDone) return written;
  MUSTER_FAULT_POINT("shared.written");
  plan.channel->phases().set(plan.channel->at(), shm::kPhaseLast);
  const Waited met = plan.channel->phases().await(plan.channel->at(), shm::kPhaseLast, policy);
  MUSTER_FAULT_POINT("shared.met");
  return outcome_of(met);
}

}  // namespace muster::client
