// Reducing by slices. The vector is cut into chunks, and each chunk into a slice per member. A member reduces
// its slice into its stage, and reads all sources in place. Once all have done so, each member that has a
// target collects the chunk from all stages. So every source is read once, and every slice is reduced once,
// by one member. There is one meeting for each chunk.
//
// The stage has two halves. A member collects chunk c before it reduces chunk c + 1. So once all have reduced
// chunk c + 1, no member reads the half of c any more. It may then be filled with c + 2.
#include "api/base/assert.hpp"
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

constexpr std::uint64_t kHalfBytes = shm::kStageBytes / 2;
// A member's slice of a chunk. It is small enough that it is still in the cache of the core that reduced it
// when the other members read it.
constexpr std::uint64_t kSliceBytesMax = 128 << 10;
static_assert(kSliceBytesMax <= kHalfBytes);

// One operation.
class Slices {
 public:
  Slices(const DirectPlan& plan, Payloads& payloads, WaitPolicy& policy)
      : plan_(plan),
        channel_(*plan.channel),
        payloads_(payloads),
        policy_(policy),
        element_(plan.element),
        slice_(slice_bytes(plan.what, static_cast<std::int32_t>(channel_.members()), kSliceBytesMax)),
        total_(plan.what.count * element_) {}

  Outcome run() {
    const std::uint64_t chunk = slice_ * channel_.members();
    const std::uint64_t chunks = (total_ + chunk - 1) / chunk;
    MUSTER_ASSERT(chunks < shm::kPhaseLast);
    for (std::uint64_t c = 0; c < chunks; ++c) {
      if (const Outcome done = reduce(c); done != Outcome::kDone) return done;
      MUSTER_FAULT_POINT("slices.reduced");
      channel_.phases().set(channel_.at(), c + 1);
      const Waited met = channel_.phases().await(channel_.at(), c + 1, policy_);
      if (met != Waited::kMet) return outcome_of(met);
      MUSTER_FAULT_POINT("slices.met");
      if (const Outcome done = collect(c); done != Outcome::kDone) return done;
    }
    MUSTER_FAULT_POINT("slices.collected");
    channel_.phases().set(channel_.at(), shm::kPhaseLast);
    return Outcome::kDone;
  }

 private:
  struct Range {
    std::uint64_t first;
    std::uint64_t bytes;
  };
  Range slice_of(std::uint64_t c, std::uint32_t member) const {
    const std::uint64_t first = std::min(total_, (c * channel_.members() + member) * slice_);
    return {first, std::min(slice_, total_ - first)};
  }

  Outcome reduce(std::uint64_t c) {
    const Range range = slice_of(c, channel_.index());
    if (range.bytes == 0) return Outcome::kDone;
    for (std::uint32_t i = 0; i < channel_.members(); ++i) {
      sources_[i] = payloads_.read(i, range.first, range.bytes);
      if (sources_[i] == nullptr) return Outcome::kCorrupt;
    }
    std::byte* const to = payloads_.stage().data + (c & 1) * kHalfBytes;
    math::carry_out(plan_.what, std::span(sources_).first(channel_.members()), std::span(&to, 1),
                    range.bytes / element_, math::kNeverStream);
    return payloads_.all_intact() ? Outcome::kDone : Outcome::kBroken;
  }

  Outcome collect(std::uint64_t c) {
    if (plan_.mine.target_blocks.empty()) return Outcome::kDone;
    std::byte* target = plan_.mine.target + plan_.mine.target_blocks.front().offset * element_;
    const bool in_place = plan_.mine.source == plan_.mine.target;
    const std::size_t streaming_from =
        in_place ? math::kNeverStream : math::streaming_from(total_ * channel_.members());
    for (std::uint32_t k = 0; k < channel_.members(); ++k) {
      const std::uint32_t i = (channel_.index() + k) % channel_.members();
      const Range range = slice_of(c, i);
      if (range.bytes == 0) continue;
      std::uint32_t stage = 0;
      const std::byte* base = stage_of(i, &stage);
      if (base == nullptr) return Outcome::kCorrupt;
      math::copy(target + range.first, base + (c & 1) * kHalfBytes, range.bytes, streaming_from);
      if (!stage_intact(i)) return Outcome::kBroken;
    }
    return Outcome::kDone;
  }

  shm::PayloadLocation announced(std::uint32_t i) const {
    return shm::unpack_location(channel_.arrivals().of(i).said<Announced::Stage>().location);
  }
  const std::byte* stage_of(std::uint32_t i, std::uint32_t* index) const {
    if (i == channel_.index()) return payloads_.stage().data;
    *index = announced(i).index;
    return *index < shm::kStages ? channel_.peer(i).stages + *index * shm::kStageBytes : nullptr;
  }
  bool stage_intact(std::uint32_t i) const {
    return i == channel_.index() || payloads_.stage_intact(i, announced(i));
  }

  const DirectPlan& plan_;
  Channel& channel_;
  Payloads& payloads_;
  WaitPolicy& policy_;
  std::size_t element_;
  std::uint64_t slice_;
  std::uint64_t total_;
  std::array<const std::byte*, kRanksOnNodeMax> sources_;
};

}  // namespace

Outcome run_sliced(const DirectPlan& plan, DirectMemory& memory, Stages& stages, WaitPolicy& policy) {
  Payloads payloads(plan, memory, stages, policy);
  const Outcome met = payloads.meet();
  return met == Outcome::kDone ? Slices(plan, payloads, policy).run() : met;
}

}  // namespace muster::client
