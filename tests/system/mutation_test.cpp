// Agreement on both paths: what one rank says otherwise is found on every rank before a byte moves, and what
// all say alike is never taken for a difference.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <barrier>
#include <random>

namespace {

using muster::test::Member;
using muster::test::Vector;

constexpr std::size_t kRoom = 512;  // floats
constexpr float kUntouched = -77.0f;

// Whoever leaves a test in its middle is waited for by nobody.
struct Attendance {
  explicit Attendance(std::barrier<>& barrier) : meeting(barrier) {}
  ~Attendance() { meeting.arrive_and_drop(); }
  std::barrier<>& meeting;
};

// A collective in full, with lists of its own.
struct Said {
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  std::vector<std::uint64_t> counts;

  const muster_collective& in(const Member& member, muster_buffer source, muster_buffer target) {
    c.group = member.group;
    c.source = {source, 0};
    c.target = {target, 0};
    auto& blocks = c.op == MUSTER_ALL_GATHER ? c.target_blocks : c.source_blocks;
    blocks.counts = counts.empty() ? nullptr : counts.data();
    return c;
  }
};

Said draw(std::mt19937_64& random, int world) {
  constexpr muster_op kOps[] = {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_BROADCAST,
                                MUSTER_REDUCE};
  Said said;
  said.c.op = kOps[random() % std::size(kOps)];
  said.c.dtype = static_cast<muster_dtype>(1 + random() % 10);
  const bool reduces =
      said.c.op == MUSTER_ALL_REDUCE || said.c.op == MUSTER_REDUCE_SCATTER || said.c.op == MUSTER_REDUCE;
  if (reduces) said.c.redop = static_cast<muster_redop>(1 + random() % 6);
  if (said.c.redop == MUSTER_PREMUL_SUM) said.c.scale = static_cast<double>(1 + random() % 3);
  said.c.count = 1 + random() % 60;
  if (said.c.op == MUSTER_BROADCAST || said.c.op == MUSTER_REDUCE)
    said.c.peer = static_cast<std::int32_t>(random() % static_cast<unsigned>(world));
  const bool blocks = said.c.op == MUSTER_ALL_GATHER || said.c.op == MUSTER_REDUCE_SCATTER;
  if (blocks && random() % 2 == 0)
    for (int i = 0; i < world; ++i) said.counts.push_back(random() % 60);
  return said;
}

// Changes one thing. False: it would be the same operation after all, or one that no rank may ask for.
bool mutate(Said& said, std::mt19937_64& random, int world) {
  const Said before = said;
  switch (random() % 6) {
    case 0:
      said.c.op = before.c.op == MUSTER_ALL_REDUCE       ? MUSTER_REDUCE
                  : before.c.op == MUSTER_ALL_GATHER     ? MUSTER_REDUCE_SCATTER
                  : before.c.op == MUSTER_REDUCE         ? MUSTER_ALL_REDUCE
                  : before.c.op == MUSTER_REDUCE_SCATTER ? MUSTER_ALL_GATHER
                                                         : MUSTER_BARRIER;
      if (said.c.op == MUSTER_ALL_GATHER) said.c.redop = 0;
      if (said.c.op == MUSTER_REDUCE_SCATTER) said.c.redop = MUSTER_SUM;
      return true;
    case 1:
      said.c.dtype = static_cast<muster_dtype>(1 + random() % 10);
      return said.c.dtype != before.c.dtype;
    case 2:
      if (before.c.redop == 0) return false;
      said.c.redop = static_cast<muster_redop>(1 + random() % 6);
      return said.c.redop != before.c.redop;
    case 3:
      if (before.c.op != MUSTER_BROADCAST && before.c.op != MUSTER_REDUCE) return false;
      said.c.peer = static_cast<std::int32_t>(random() % static_cast<unsigned>(world));
      return said.c.peer != before.c.peer;
    case 4:
      if (before.c.redop != MUSTER_PREMUL_SUM) return false;
      said.c.scale += 1.0;
      return true;
    default:
      if (said.counts.empty()) {
        said.c.count += 1 + random() % 3;
      } else {
        auto& count = said.counts[random() % said.counts.size()];
        count = count > 0 && random() % 2 == 0 ? count - 1 : count + 1;
      }
      return true;
  }
}

class Mutation : public muster::test::RunningRanks {
 protected:
  static muster_status_t on_engine(Member& member, const muster_collective& c) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_REDUCE;
    muster_plan plan = 0;
    muster_point point = 0;
    muster_status_t status = muster_plan_collective(member.session, &c, &plan);
    if (status == MUSTER_OK) status = muster_plan_start(member.session, plan, &submit, &point);
    if (status == MUSTER_OK) status = muster_point_wait(member.session, point, -1);
    member.error = muster_last_error();
    if (status < 0) {
      EXPECT_EQ(muster_lane_reset(member.session, MUSTER_LANE_REDUCE), MUSTER_OK);
    }
    if (plan != 0) {
      EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK) << muster_last_error();
    }
    return status;
  }
  static muster_status_t directly(Member& member, const muster_collective& c) {
    muster_plan plan = 0;
    muster_status_t status = muster_plan_collective(member.session, &c, &plan);
    if (status == MUSTER_OK) status = muster_plan_run(member.session, plan, 0);
    member.error = muster_last_error();
    if (plan != 0) {
      EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK) << muster_last_error();
    }
    return status;
  }
};

// Goal:   every single difference is found by every member, before any target is written.
TEST_F(Mutation, FindsEveryMutatedField) {
  const std::uint64_t cases = muster::test::property_cases(2000);
  for (const int world : {2, 3}) {
    std::barrier between(world);
    with_ranks(world, [&](Member& member) {
      const Attendance attendance(between);
      const Vector source = vector_of(member, kRoom);
      const Vector target = vector_of(member, kRoom);
      std::fill_n(target.data, kRoom, kUntouched);
      std::mt19937_64 random(static_cast<std::uint64_t>(world));  // all ranks draw alike
      for (std::uint64_t i = 0; i < cases / 2; ++i) {
        Said right = draw(random, world);
        Said wrong = right;
        while (!mutate(wrong, random, world)) wrong = right;
        const int odd = static_cast<int>(random() % static_cast<unsigned>(world));
        const bool engine = random() % 2 == 0;
        Said& mine = member.rank == odd ? wrong : right;
        const muster_collective& c = mine.in(member, source.buffer, target.buffer);
        const muster_status_t status = engine ? on_engine(member, c) : directly(member, c);
        ASSERT_EQ(status, MUSTER_ERR_MISMATCH)
            << "case " << i << (engine ? " on the engine" : " directly") << ", op " << right.c.op << " and "
            << wrong.c.op << ": " << member.error;
        ASSERT_TRUE(std::all_of(target.data, target.data + kRoom, [](float x) { return x == kUntouched; }))
            << "case " << i << ": " << member.error;
        between.arrive_and_wait();
      }
    });
  }
}

// Goal:   no false alarm.
TEST_F(Mutation, TakesNothingThatMatchesForADifference) {
  const std::uint64_t cases = muster::test::property_cases(5000);
  with_ranks(2, [&](Member& member) {
    const Vector source = vector_of(member, kRoom);
    const Vector target = vector_of(member, kRoom);
    std::mt19937_64 random(11);
    std::vector<muster_plan> plans;
    for (int i = 0; i < 200; ++i) {
      Said said = draw(random, 2);
      muster_plan plan = 0;
      ASSERT_EQ(muster_plan_collective(member.session, &said.in(member, source.buffer, target.buffer), &plan),
                MUSTER_OK)
          << muster_last_error();
      plans.push_back(plan);
    }
    for (std::uint64_t i = 0; i < cases; ++i) {
      const muster_plan plan = plans[random() % plans.size()];
      if (random() % 8 != 0) {
        ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << i << ": " << muster_last_error();
        continue;
      }
      muster_submit submit = MUSTER_SUBMIT_INIT;
      muster_point point = 0;
      ASSERT_EQ(muster_plan_start(member.session, plan, &submit, &point), MUSTER_OK);
      ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << i << ": " << muster_last_error();
    }
  });
}

}  // namespace
