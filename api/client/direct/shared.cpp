#include "api/client/direct/shared.hpp"

#include "api/base/fault_point.hpp"
#include "api/base/node_limits.hpp"
#include "api/client/direct/algorithms.hpp"
#include "api/client/direct/payloads.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/deliver.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace muster::client {
namespace {

constexpr std::uint64_t kLineBytes = 64;

struct Range {
  std::uint64_t first;
  std::uint64_t bytes;
};
// Whole cache lines, so that no two members write one.
Range part_of(std::uint64_t total, std::uint64_t members, std::uint64_t index) {
  const std::uint64_t even = (total / members / kLineBytes + 1) * kLineBytes;
  const std::uint64_t first = std::min(total, even * index);
  return {first, std::min(even, total - first)};
}

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
          if (channel_.arrival(i).place().value != 0) return true;
        return false;
      case MUSTER_BROADCAST:
        return channel_.arrival(root()).place().kind != shm::Place::Kind::kNone;
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

  Range part() const { return part_of(total_, channel_.members(), channel_.index()); }

  Outcome gather() {
    if (!brings_block(plan_)) return Outcome::kDone;
    const Block& from = plan_.mine.source_blocks.front();
    const Block& to = plan_.mine.target_blocks[channel_.index()];
    math::copy(plan_.mine.target + to.offset * element_, plan_.mine.source + from.offset * element_,
               to.count * element_, math::streaming_from(plan_.got_bytes));
    return Outcome::kDone;
  }

  Outcome broadcast() {
    const Range range = part();
    if (range.bytes == 0) return Outcome::kDone;
    const std::byte* source = payloads_.read(root(), range.first, range.bytes);
    if (source == nullptr) return Outcome::kCorrupt;
    math::copy(target() + range.first, source, range.bytes, math::streaming_from(total_));
    return payloads_.intact(root()) ? Outcome::kDone : Outcome::kBroken;
  }

  Outcome reduce() {
    const Range range = part();
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

bool brings_block(const DirectPlan& plan) {
  const Block& from = plan.mine.source_blocks.front();
  const Block& to = plan.mine.target_blocks[static_cast<std::size_t>(plan.mine.index)];
  const std::size_t element = plan.element;
  return to.count > 0 && plan.mine.source + from.offset * element != plan.mine.target + to.offset * element;
}

std::uint64_t shared_bytes(const DirectPlan& plan) {
  const std::size_t element = plan.element;
  const Channel& channel = *plan.channel;
  if (plan.what.op != MUSTER_ALL_GATHER)
    return part_of(plan.what.count * element, channel.members(), channel.index()).bytes;
  return brings_block(plan) ? plan.mine.target_blocks[channel.index()].count * element : 0;
}

Outcome run_shared(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy) {
  Payloads payloads(plan, memory, stages, policy);
  if (const Outcome met = payloads.meet(); met != Outcome::kDone) return met;
  Shared shared(plan, payloads);
  if (!shared.somebody_writes()) return Outcome::kDone;
  if (const Outcome written = shared.write(); written != Outcome::kDone) return written;
  MUSTER_FAULT_POINT("shared.written");
  plan.channel->set_phase(shm::kPhaseLast);
  const Waited met = plan.channel->await_phase(shm::kPhaseLast, policy);
  MUSTER_FAULT_POINT("shared.met");
  return outcome_of(met);
}

}  // namespace muster::client
