// GradientReduction: makes gradient shards of whole gradients.
#pragma once

#include "api/base/shard/schedule.hpp"
#include "api/client/set/lanes.hpp"
#include "api/client/set/resources.hpp"
#include "api/client/units/facts.hpp"

#include <muster/muster.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace muster::client {

// Whole gradients are summed among the shards, then among the replicas. The sums may not be the gradients yet
// (another dtype, a division that is left, gradients to add to). Then they lie in memory of their own, and a
// kernel finishes them.
//
// Owns    the gradient shard, sums, sums of shards that wait for their replicas, and plans.
// Thread  the session's.
// Bound   a plan for each step and each run of used parameters, and of collectives for each turn().
// Fails   as the calls of the C API that it makes; kState for a second reduction without memory for it.
class GradientReduction {
 public:
  using Reduced = shard::UnitOperations::Reduced;
  using Reduction = shard::UnitOperations::Reduction;

  // All outlive it.
  GradientReduction(muster_session* session, const UnitFacts& facts)
      : facts_(facts), memory_(session), plans_(session), unused_(facts.parameters.size()) {}

  Status allocate();
  std::uint64_t bytes() const { return memory_.bytes(); }
  // whole: the place that the set gives to whole gradients.
  void prepare(muster_range whole);
  Status withdraw();  // Errors: BUSY
  Status release();

  muster_buffer gradients() const { return gradients_; }
  // The place of whole gradients. A gradient that is neither sharded nor summed up elsewhere lies in its
  // gradient shard.
  muster_range whole() const { return whole_; }

  // The parameter has no gradient in the backward under way.
  void set_unused(std::size_t parameter) { unused_[parameter] = true; }
  bool is_unused(std::size_t parameter) const { return unused_[parameter]; }
  // Whether whole gradients are those of earlier backwards.
  bool keeps() const { return kept_; }
  // Keeps the whole gradients for later backwards to add to. Unused parameters get zeros, unless they have
  // earlier gradients. Returns the point at which these lie there; NONE if there are none.
  Result<muster_point> keep(SetLanes& lanes, std::span<const muster_point> waits);
  Result<Reduced> reduce(SetLanes& lanes, Reduction how, std::span<const muster_point> waits);
  // unchanged: shards are those of the step before.
  void begin_step(bool unchanged) {
    step_ = 1 - step_;
    backwards_ = 0;
    count(unchanged ? 7 : 5);
  }
  void begin_backward() {
    backwards_ = (backwards_ + 1) % kBackwards;
    count(1);
  }
  // Forgets a step that has failed.
  void reset();

 private:
  static constexpr std::uint32_t kBackwards = 2;
  static constexpr std::uint32_t kSince = 7;
  static constexpr std::size_t kCollectives = 3;  // over tp, shards and replicas
  using Segment = UnitFacts::Segment;
  enum class Step : std::uint8_t {
    kSumOverTp,    // addends of tp ranks become whole gradients
    kScatter,      // whole gradients are summed among the shards
    kTake,         // with one shard, the whole gradients are copied as the sums
    kReduce,       // sums are summed among the replicas
    kReduceWhole,  // whole gradients are, if there is one shard
    kFinish,       // sums become gradients
    kAdd,          // sums are added to gradients
    kKeepPartial,  // sums wait for the replicas
    kAddPartial,   // and are added to later ones
    kZero,         // there is no gradient
    kZeroWhole,    // there is none, but others are added to it
  };

  Result<Reduced> reduce(SetLanes& lanes, Reduction how, Segment segment,
                         std::span<const muster_point> waits);
  static std::size_t collective_of(Step step) {
    return step == Step::kSumOverTp ? 0 : step == Step::kScatter ? 1 : 2;
  }
  std::uint32_t turn(Step step) const {
    return (step_ * kBackwards + backwards_) * kSince + since_[collective_of(step)];
  }
  void count(std::uint32_t what) {
    for (std::uint32_t& since : since_) since = (since + what) % kSince;
  }
  Result<muster_plan> plan(Step step, Segment segment);
  Result<muster_plan> make_collective(Step step, Segment segment);
  Result<muster_plan> make_kernel(Step step, Segment segment);
  muster_range whole(Segment segment) const;
  std::uint64_t whole_elements(Segment segment) const;
  std::string site_of(Segment segment) const;
  muster_tensor vector(muster_buffer buffer, muster_dtype dtype, Segment segment) const;
  muster_tensor sums(Segment segment) const;

  const UnitFacts& facts_;
  Resources memory_;
  Resources plans_;
  muster_buffer gradients_ = 0, sums_ = 0, partial_ = 0;
  muster_range whole_{};
  std::vector<bool> unused_;  // by parameter, in the backward under way
  bool kept_ = false;         // whole gradients are those of earlier backwards, for all parameters
  // What ranks count alike: steps, modulo 2, backwards of this one, modulo kBackwards, and what has begun
  // since the last collective of each kind. A rank that leaves some out, or has more, counts differently.
  std::uint32_t step_ = 0;
  std::uint32_t backwards_ = 0;
  std::array<std::uint32_t, kCollectives> since_{};
  std::array<bool, kCollectives> sent_{};                                 // of the reduction under way
  std::map<std::tuple<Step, Segment, std::uint32_t>, muster_plan> made_;  // by turn() too; 0 of kernels
  muster_point latest_ = MUSTER_POINT_NONE;                               // the latest use of sums_
};

}  // namespace muster::client
