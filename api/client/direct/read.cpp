// All-reduce by reading: each member reduces the whole vector itself, and reads all sources in place. Among
// two or three members this moves less between cores than slices do, because no member writes a line that a
// peer will read.
//
// A member whose target is its source must not overwrite data that others still read. It reduces a chunk into
// its own stage, waits until all have read that chunk, and then copies the chunk into its target. If there is
// such a member, all count their chunks in phases.
#include "api/base/fault_point.hpp"
#include "api/base/node_limits.hpp"
#include "api/client/direct/algorithms.hpp"
#include "api/client/direct/payloads.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/part.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace muster::client {
namespace {

constexpr std::uint64_t kChunkBytes = 128 << 10;
static_assert(kChunkBytes <= shm::kStageBytes);

// One operation.
class Reading {
 public:
  Reading(const DirectPlan& plan, Payloads& payloads, WaitPolicy& policy)
      : plan_(plan),
        channel_(*plan.channel),
        payloads_(payloads),
        policy_(policy),
        element_(plan.element),
        total_(plan.what.count * element_),
        target_(plan.mine.target) {}

  Outcome run() {
    bool counted = false;
    for (std::uint32_t i = 0; i < channel_.members(); ++i) {
      sources_[i] = payloads_.read(i, 0, total_);
      if (sources_[i] == nullptr) return Outcome::kCorrupt;
      counted = counted || channel_.arrivals().of(i).said<Announced::InPlace>().in_place != 0;
    }
    MUSTER_FAULT_POINT("reading.found");
    const Outcome done = counted ? by_chunks() : straight();
    if (done != Outcome::kDone) return done;
    MUSTER_FAULT_POINT("reading.delivered");
    channel_.phases().set(channel_.at(), shm::kPhaseLast);
    return outcome_of(channel_.phases().await_readers(channel_.at(), shm::kPhaseLast, policy_));
  }

 private:
  void reduce(std::uint64_t first, std::uint64_t bytes, std::byte* to, std::size_t streaming_from) {
    std::array<const std::byte*, kRanksOnNodeMax> from;
    for (std::uint32_t i = 0; i < channel_.members(); ++i) from[i] = sources_[i] + first;
    math::carry_out(plan_.what, std::span(from).first(channel_.members()), std::span(&to, 1),
                    bytes / element_, streaming_from);
  }

  // Reduces into the target; the stores bypass the cache if the targets of all members would not fit into it.
  void deliver(std::uint64_t first, std::uint64_t bytes) {
    reduce(first, bytes, target_ + first, math::streaming_from(total_ * channel_.members()));
  }

  Outcome straight() {
    deliver(0, total_);
    return payloads_.all_intact() ? Outcome::kDone : Outcome::kBroken;
  }

  Outcome by_chunks() {
    const bool in_place = plan_.mine.source == target_;
    std::uint64_t phase = 0;
    for (std::uint64_t first = 0; first < total_; first += kChunkBytes) {
      const std::uint64_t bytes = std::min(kChunkBytes, total_ - first);
      if (in_place)
        reduce(first, bytes, payloads_.stage().data, math::kNeverStream);
      else
        deliver(first, bytes);
      if (!payloads_.all_intact()) return Outcome::kBroken;
      MUSTER_FAULT_POINT("reading.chunk_reduced");
      channel_.phases().set(channel_.at(), ++phase);
      if (!in_place) continue;
      const Waited met = channel_.phases().await_readers(channel_.at(), phase, policy_);
      if (met != Waited::kMet) return outcome_of(met);
      MUSTER_FAULT_POINT("reading.chunk_met");
      math::copy(target_ + first, payloads_.stage().data, bytes, math::kNeverStream);
    }
    return Outcome::kDone;
  }

  const DirectPlan& plan_;
  Channel& channel_;
  Payloads& payloads_;
  WaitPolicy& policy_;
  std::size_t element_;
  std::uint64_t total_;
  std::byte* target_;
  std::array<const std::byte*, kRanksOnNodeMax> sources_;
};

}  // namespace

Outcome run_read(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy) {
  Payloads payloads(plan, memory, stages, policy);
  const Outcome met = payloads.meet();
  return met == Outcome::kDone ? Reading(plan, payloads, policy).run() : met;
}

}  // namespace muster::client
