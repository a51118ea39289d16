// Sharded units whose lanes are slow: what is computed stays the same, and prefetching hides gathers.
#include "tests/api/client/units_model.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

namespace muster::test {
namespace {

// A start that does nothing, after some points and what its lane has.
muster_point nothing_on(muster_session* session, muster_lane lane, std::span<const muster_point> after) {
  muster_collective barrier = MUSTER_COLLECTIVE_INIT;
  barrier.op = MUSTER_BARRIER;
  barrier.group = MUSTER_GROUP_SELF;
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = lane;
  for (const muster_point point : after)
    if (point != MUSTER_POINT_NONE) submit.waits[submit.wait_count++] = point;
  muster_point point = MUSTER_POINT_NONE;
  ok(muster_collect(session, &barrier, &submit, &point));
  return point;
}

// A lane on which nothing begins between hold() and release().
class HeldLane {
 public:
  HeldLane(const Member& member, muster_lane lane) : session_(member.session), lane_(lane) {
    ok(muster_timeline_create(session_, &timeline_));
  }
  void hold() {
    const muster_point released = muster_timeline_point(timeline_, ++value_);
    nothing_on(session_, lane_, {&released, 1});
  }
  void release() { ok(muster_timeline_signal(session_, timeline_, value_)); }

 private:
  muster_session* session_;
  muster_lane lane_;
  std::uint32_t timeline_ = 0;
  std::uint64_t value_ = 0;
};

// A lane on which what follows a hold() takes a tick of a clock. It is ready when the points of hold() are
// done, and what the lane has; it begins with the next tick.
class TickingLane {
 public:
  TickingLane(const Member& member, muster_lane lane) : session_(member.session), lane_(lane) {
    ok(muster_timeline_create(session_, &timeline_));
  }
  void hold(std::span<const muster_point> after) {
    ready_.push_back(nothing_on(session_, lane_, after));
    const muster_point ticked = muster_timeline_point(timeline_, ready_.size());
    nothing_on(session_, lane_, {&ticked, 1});
  }
  bool ready() const {
    return ticks_ < ready_.size() && muster_point_test(session_, ready_[ticks_]) == MUSTER_OK;
  }
  void tick() { ok(muster_timeline_signal(session_, timeline_, ++ticks_)); }

 private:
  muster_session* session_;
  muster_lane lane_;
  std::uint32_t timeline_ = 0;
  std::vector<muster_point> ready_;  // of each hold
  std::size_t ticks_ = 0;
};

// The lanes of a set take the next numbers, in this order.
enum class SetLane : std::uint32_t { kGather, kReduce, kAllReduce, kCompute };
constexpr SetLane kSetLanes[] = {SetLane::kGather, SetLane::kReduce, SetLane::kAllReduce, SetLane::kCompute};

muster_lane next_lane(const Member& member) {
  muster_lane lane = MUSTER_LANE_NONE;
  ok(muster_lane_create(member.session, MUSTER_LANE_COPY, "probe", &lane));
  ok(muster_lane_destroy(member.session, lane));
  return lane;
}

HeldLane held(const Member& member, muster_lane first, SetLane which) {
  return {member, which == SetLane::kCompute ? muster_lane{MUSTER_LANE_COMPUTE}
                                             : first + static_cast<muster_lane>(which)};
}

constexpr std::uint64_t kBlockBytes = 256;

// A root and blocks of kBlockBytes each, in two parameters.
std::vector<UnitSpec> equal_units(int blocks, std::int32_t after_forward = MUSTER_RESHARD_DEFAULT) {
  std::vector<UnitSpec> specs{{"root", {{{8, 8}}}, after_forward, MUSTER_UNIT_ROOT}};
  for (int i = 0; i < blocks; ++i)
    specs.push_back({"block." + std::to_string(i), {{{9, 6}}, {{10}}}, after_forward, 0});
  return specs;
}

class SlowLanes : public RunningRanks {
 protected:
  // The ranks' shards of all gradients after a second step. If `slow`, a lane stood still in its backward.
  using Shards = std::vector<std::vector<float>>;
  Shards gradients(bool slow) {
    Shards found(4);
    mesh = "dp_replicate=2,dp_shard=2";
    with_ranks(4, [&](Member& member) {
      const muster_lane first = next_lane(member);
      Setting setting;
      setting.reduce_dtype = MUSTER_BF16;
      Model model(member, equal_units(6), setting);
      model.initialise();
      model.step(1.0 / 64);
      model.wait();
      HeldLane lane = held(member, first, SetLane::kAllReduce);
      ok(muster_step_begin(model.units, MUSTER_POINT_NONE, 0));
      for (std::size_t u = 0; u < 7; ++u) model.forward(u);
      if (slow) lane.hold();
      for (std::size_t u = 7; u-- > 0;) model.backward(u, 0, 0);
      muster_point done[2];
      ok(muster_step_end(model.units, model.latest(), done));
      model.wait();  // gradients are written, into places that reductions have left
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (slow) {
        EXPECT_EQ(muster_point_test(member.session, done[0]), MUSTER_PENDING) << "the lane is held";
        lane.release();
      }
      for (const muster_point point : done) ok(muster_point_wait(member.session, point, -1));
      found[static_cast<std::size_t>(member.rank)] = model.shards(MUSTER_UNIT_GRADIENT_SHARD);
      meet_and_leave(member);
    });
    return found;
  }
  // Whether nothing begins on that lane of that rank until all of that step has been started.
  using Slow = std::function<bool(SetLane lane, int rank, int step)>;
  static Slow none() {
    return [](SetLane, int, int) { return false; };
  }
  static Slow only(SetLane slow) {
    return [slow](SetLane lane, int, int) { return lane == slow; };
  }
  // Half of the lanes, at each rank and in each step others.
  static Slow drawn(std::uint32_t seed) {
    return [seed](SetLane lane, int rank, int step) {
      std::seed_seq from{seed, static_cast<std::uint32_t>(lane), static_cast<std::uint32_t>(rank),
                         static_cast<std::uint32_t>(step)};
      return std::mt19937(from)() % 2 == 0;
    };
  }

  // The ranks' shards of all parameters after ten steps. The first step finds the order of the units.
  Shards trained(const std::string& shape, std::int32_t after_forward, const Slow& slow,
                 std::uint32_t prefetch = 1) {
    Shards found(4);
    mesh = shape;
    with_ranks(4, [&](Member& member) {
      const muster_lane first = next_lane(member);
      Setting setting;
      setting.prefetch = prefetch;
      Model model(member, equal_units(4, after_forward), setting);
      model.initialise();
      model.step(1.0 / 64);
      std::vector<HeldLane> lanes;
      for (const SetLane lane : kSetLanes) lanes.push_back(held(member, first, lane));
      for (int step = 1; step < 10; ++step) {
        std::vector<HeldLane*> slowed;
        for (const SetLane lane : kSetLanes)
          if (slow(lane, member.rank, step)) slowed.push_back(&lanes[static_cast<std::size_t>(lane)]);
        for (HeldLane* lane : slowed) lane->hold();
        model.step(1.0 / 64);
        for (HeldLane* lane : slowed) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));  // for what would begin too early
          lane->release();
        }
      }
      model.wait();
      found[static_cast<std::size_t>(member.rank)] = model.shards();
      const bool all_are_freed =
          after_forward == MUSTER_RESHARD_ALWAYS || after_forward == MUSTER_RESHARD_DEFAULT;
      if (all_are_freed) {
        EXPECT_EQ(model.info().place_bytes, (2 + prefetch) * kBlockBytes)
            << "the root, and 1 + prefetch blocks";
      }
      EXPECT_EQ(model.info().gradient_bytes, 3 * kBlockBytes) << "the root's, and two blocks'";
      meet_and_leave(member);
    });
    return found;
  }
  void expect_equal_bits(const std::string& shape, std::int32_t after_forward) {
    const Shards usual = trained(shape, after_forward, none());
    for (const SetLane slow : kSetLanes)
      EXPECT_EQ(trained(shape, after_forward, only(slow)), usual)
          << "after_forward " << after_forward << ", lane " << static_cast<std::uint32_t>(slow);
    for (const std::uint32_t prefetch : {0U, 1U, 2U}) {
      const std::uint32_t seed = static_cast<std::uint32_t>(after_forward) * 4 + prefetch;
      EXPECT_EQ(trained(shape, after_forward, drawn(seed), prefetch), usual)
          << "after_forward " << after_forward << ", prefetch " << prefetch << ", seed " << seed;
    }
  }

  static constexpr int kUnits = 5;
  // How often a clock ticks in a step in which a gather takes a tick, and computing with a unit takes one.
  std::uint64_t ticks(std::uint32_t prefetch) {
    std::atomic<int> finished{0};
    std::atomic<std::uint64_t> most{0};
    mesh = "dp_shard=2";
    with_ranks(2, [&](Member& member) {
      const muster_lane first = next_lane(member);
      Setting setting;
      setting.prefetch = prefetch;
      Model model(member, equal_units(kUnits - 1, MUSTER_RESHARD_ALWAYS), setting);
      model.initialise();
      model.step(1.0 / 64);
      model.wait();
      TickingLane gather(member, first);
      TickingLane compute(member, MUSTER_LANE_COMPUTE);
      model.before_computing = [&](std::span<const muster_point> ready) { compute.hold(ready); };
      ok(muster_step_begin(model.units, MUSTER_POINT_NONE, 0));
      for (int pass = 0; pass < 2 * kUnits; ++pass) {
        // The next gathered unit needs the place of the unit that was computed with last.
        const muster_point latest = pass == 0 ? MUSTER_POINT_NONE : model.latest();
        gather.hold({&latest, 1});
        if (pass < kUnits)
          model.forward(static_cast<std::size_t>(pass));
        else
          model.backward(static_cast<std::size_t>(2 * kUnits - 1 - pass), 0, 0);
      }
      muster_point done[2];
      ok(muster_step_end(model.units, model.latest(), done));
      bool mine = false;
      for (std::uint64_t tick = 0; !HasFailure(); ++tick) {
        if (!mine && muster_point_test(member.session, model.latest()) != MUSTER_PENDING) {
          mine = true;
          ++finished;
        }
        await_all(member);
        most = tick;
        if (finished == 2) break;
        std::vector<TickingLane*> ready;
        for (TickingLane* lane : {&gather, &compute})
          if (lane->ready()) ready.push_back(lane);
        for (TickingLane* lane : ready) lane->tick();
        await_all(member);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until what may run has run
      }
      for (const muster_point point : done) ok(muster_point_wait(member.session, point, -1));
      meet_and_leave(member);
    });
    return most;
  }
};

// Goal:   case F12: a slow all-reduce lane mixes up no layers' gradients, which are reduced in bf16 for
//         parameters in f32.
// Method: the lane is held until all gradients of seven layers are scattered, and 50 ms more.
TEST_F(SlowLanes, HaveTheSameGradientsHoweverSlowAllReducesAre) {
  const Shards usual = gradients(false);
  EXPECT_EQ(gradients(true), usual);
  EXPECT_NE(usual[0], usual[1]);
}

// Goal:   case F13: whichever lane is slow, or lanes that a seed draws; whatever is freed after forward, and
//         however far ahead units are gathered: parameters are the same to the bit after ten steps. So many
//         blocks are gathered as prefetch says, and one waits for its reduction.
TEST_F(SlowLanes, TrainToTheSameBits) {
  for (const std::int32_t after_forward :
       {MUSTER_RESHARD_ALWAYS, MUSTER_RESHARD_NEVER, MUSTER_RESHARD_DEFAULT})
    expect_equal_bits("dp_replicate=2,dp_shard=2", after_forward);
}

// Goal:   case F13, where two of four ranks keep what they do not free.
TEST_F(SlowLanes, TrainToTheSameBitsOfSlices) {
  expect_equal_bits("dp_shard=4", 2);
}

// Goal:   where a gather takes as long as computing, prefetching hides at least half of what is exposed
//         without.
// Method: nothing begins on either lane until a clock ticks, which is not the machine's. Computing alone
//         takes a tick for each unit in forward, and one in backward.
TEST_F(SlowLanes, ExposeAtMostHalfWithPrefetch) {
  constexpr std::uint64_t kComputing = 2 * kUnits;
  const std::uint64_t without = ticks(0) - kComputing;
  const std::uint64_t with = ticks(1) - kComputing;
  RecordProperty("exposed_without_prefetch", std::to_string(without));
  RecordProperty("exposed_with_prefetch", std::to_string(with));
  EXPECT_GE(without, kComputing) << "each gather is exposed";
  EXPECT_LE(2 * with, without);
}

// Goal:   case F15: how many gradients may wait for their reduction is one number for all modules of a set,
//         from 1 to 16. There is no number per module of which the largest would count.
// Method: no reduction ends. With 3, three modules' gradients wait, a fourth's are written, and no more.
TEST_F(SlowLanes, LetSoManyGradientsWaitForTheirReduction) {
  mesh = "dp_shard=2";
  with_ranks(2, [&](Member& member) {
    for (const std::uint32_t inputs : {0U, 17U}) {
      muster_units_options options = MUSTER_UNITS_OPTIONS_INIT;
      options.reduce_inputs = inputs;
      muster_units* units = nullptr;
      EXPECT_EQ(muster_units_create(member.session, &options, &units), MUSTER_ERR_BAD_ARGUMENT);
      EXPECT_EQ(muster_last_error(), "reduce_inputs is " + std::to_string(inputs) + "; 1 to 16 are possible");
    }
    const muster_lane first = next_lane(member);
    Setting setting;
    setting.reduce_inputs = 3;
    Model model(member, equal_units(6), setting);
    model.initialise();
    model.step(1.0 / 64);
    model.wait();
    EXPECT_EQ(model.info().gradient_bytes, (1 + 4) * kBlockBytes) << "the root's lie apart";
    HeldLane lane = held(member, first, SetLane::kReduce);
    lane.hold();
    ok(muster_step_begin(model.units, MUSTER_POINT_NONE, 0));
    for (std::size_t u = 0; u < 7; ++u) model.forward(u);
    for (std::size_t u = 6; u > 2; --u) model.backward(u, 0, 0);
    model.wait();
    model.backward(2, 0, 0);
    EXPECT_EQ(muster_point_test(member.session, model.latest()), MUSTER_PENDING);
    lane.release();
    muster_point done[2];
    ok(muster_step_end(model.units, model.latest(), done));
    model.wait();
    for (const muster_point point : done) ok(muster_point_wait(member.session, point, -1));
    meet_and_leave(member);
  });
}

}  // namespace
}  // namespace muster::test
