// Algorithm::kShared: one result for all members, in memory that they share. Each writes its part of it, and
// none finishes before all have written.
#include "api/base/fault_point.hpp"
#include "api/base/node_limits.hpp"
#include "api/client/direct/algorithms.hpp"
#include "api/client/direct/payloads.hpp"
#include "api/client/direct/shared_target.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/part.hpp"

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

  // Whether any member has to write. All members see the same arrivals, so all return the same.
  bool somebody_writes() const {
    if (gathers()) {
      for (std::uint32_t i = 0; i < channel_.members(); ++i)
        if (channel_.arrivals().of(i).location().value != 0) return true;
      return false;
    }
    if (has_reduction(plan_.what.op)) return total_ > 0;
    return channel_.arrivals().of(root()).location().kind != shm::PayloadLocation::Kind::kNone;
  }

  Outcome write() { return gathers() ? bring_block() : write_part(); }

 private:
  bool gathers() const { return has_target_blocks(plan_.what.op, false); }
  std::uint32_t root() const { return static_cast<std::uint32_t>(plan_.what.root); }

  // The own block of an ALL_GATHER.
  Outcome bring_block() {
    if (!brings_block(plan_)) return Outcome::kDone;
    const auto entries = entries_of(plan_.what, plan_.mine.target_blocks, channel_.index());
    for_each_fragment(entries, 0, count_of(entries), [&](const Block::Fragment& fragment) {
      const std::byte* const source =
          plan_.mine.source + own_offset(plan_.mine.source_blocks, fragment) * element_;
      std::byte* const target = plan_.mine.target + fragment.cut_offset * element_;
      math::carry_out(plan_.what, std::span(&source, 1), std::span(&target, 1), fragment.count,
                      math::streaming_from(plan_.got_bytes));
    });
    return Outcome::kDone;
  }

  // This member's part of the one vector, from all members or from the root.
  Outcome write_part() {
    const SharedPart range = part_of(total_, channel_.members(), channel_.index());
    if (range.bytes == 0) return Outcome::kDone;
    const math::Givers givers = math::givers_of(plan_.what, 0, channel_.members());
    std::array<const std::byte*, kRanksOnNodeMax> sources;
    for (std::uint32_t i = 0; i < givers.count; ++i) {
      sources[i] = payloads_.read(givers.first + i, range.first, range.bytes);
      if (sources[i] == nullptr) return Outcome::kCorrupt;
    }
    std::byte* const to =
        plan_.mine.target + plan_.mine.target_blocks.front().offset * element_ + range.first;
    math::carry_out(plan_.what, std::span(sources).first(givers.count), std::span(&to, 1),
                    range.bytes / element_, math::streaming_from(total_));
    const bool intact = has_reduction(plan_.what.op) ? payloads_.all_intact() : payloads_.intact(root());
    return intact ? Outcome::kDone : Outcome::kBroken;
  }

  const DirectPlan& plan_;
  Channel& channel_;
  Payloads& payloads_;
  std::size_t element_;
  std::uint64_t total_;  // of the vector; an ALL_GATHER does not use it
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
