// Parameters that a backward does not use, where gradients of several backwards come together.
#include <muster/units.h>

#include "tests/api/client/made_layouts.hpp"
#include "tests/api/client/running_ranks.hpp"
#include "tests/api/client/small_model.hpp"

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::test::LayoutHandle;
using muster::test::made;
using muster::test::Member;
using muster::test::ok;
using muster::test::shard;
using muster::test::SmallModel;
using UnitsUnused = muster::test::RunningRanks;

constexpr std::uint32_t kColumn = SmallModel::kColumn, kRow = SmallModel::kRow, kNorm = SmallModel::kNorm;

// A step of two microbatches. Each adds `microbatch + 1` times the rank's number to what it uses.
struct Case {
  std::uint32_t flags;  // of the first backward
  bool used[2];         // the norm, by microbatch
};

void run(const SmallModel& model, const Member& member, const Case& at) {
  ok(muster_step_begin(model.units, MUSTER_POINT_NONE, 0));
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    muster_point ready[2] = {};
    ok(muster_unit_forward_begin(model.units, 0, ready));
    ok(muster_unit_forward_end(model.units, 0, 0, MUSTER_POINT_NONE));
    ok(muster_unit_backward_begin(model.units, 0, ready));
    for (const muster_point point : ready) ok(muster_point_wait(member.session, point, -1));
    const bool adds = microbatch == 1 && at.flags == MUSTER_BACKWARD_KEEP_GRADIENTS;
    for (const std::uint32_t p : {kColumn, kRow, kNorm})
      for (float* gradient : model.elements(p, MUSTER_UNIT_WHOLE_GRADIENT)) {
        const bool used = p != kNorm || at.used[microbatch];
        const auto own = static_cast<float>((microbatch + 1) * (member.rank + 1));
        if (used)
          *gradient = adds ? *gradient + own : own;
        else if (!adds)
          *gradient = 99;  // whatever lies there
      }
    if (!at.used[microbatch]) ok(muster_unit_unused(model.units, 0, kNorm));
    ok(muster_unit_backward_end(model.units, 0, 0, MUSTER_POINT_NONE, microbatch == 0 ? at.flags : 0,
                                nullptr));
  }
  model.end();
}

// Goal:   the gradient of a parameter is the mean of what the backwards that used it have left, whichever
//         these were and however they come together.
// Method: the norm is used in the first backward, in the last, in both or in none. All cases follow each
//         other, so what one leaves behind would be seen by the next.
TEST_F(UnitsUnused, HaveTheGradientsOfTheBackwardsThatUsedThem) {
  for (const auto& [world, shape] :
       {std::pair{4, "dp_replicate=2,dp_shard=2"}, {2, "dp_replicate=2,dp_shard=1"}, {3, "dp_shard=3"}}) {
    mesh = shape;
    with_ranks(world, [&](Member& member) {
      SmallModel model(member, {.set_flags = MUSTER_UNITS_ACCUMULATE | MUSTER_UNITS_KEEP_GRADIENTS});
      for (const std::uint32_t flags :
           {0U, std::uint32_t{MUSTER_BACKWARD_KEEP_GRADIENTS}, std::uint32_t{MUSTER_BACKWARD_SHARDS_ONLY}})
        for (const Case& at :
             {Case{flags, {true, false}}, Case{flags, {false, true}}, Case{flags, {false, false}},
              Case{flags, {true, true}}, Case{flags, {true, false}}}) {
          SCOPED_TRACE(mesh + ", flags " + std::to_string(flags) + ", used " + std::to_string(at.used[0]) +
                       std::to_string(at.used[1]));
          run(model, member, at);
          const float mean = static_cast<float>(member.world + 1) / 2;  // of the ranks' numbers
          model.expect(kColumn, MUSTER_UNIT_GRADIENT_SHARD, 3 * mean);
          model.expect(kNorm, MUSTER_UNIT_GRADIENT_SHARD,
                       mean * static_cast<float>((at.used[0] ? 1 : 0) + (at.used[1] ? 2 : 0)));
        }
      meet_and_leave(member);
    });
  }
}

// Goal:   gradients that were kept are reduced by the end of the step too.
TEST_F(UnitsUnused, AreReducedWithWhatWasKept) {
  with_ranks(2, [&](Member& member) {
    SmallModel model(member, {.set_flags = MUSTER_UNITS_KEEP_GRADIENTS});
    for (const bool used : {false, true, false}) {
      model.begin();
      ok(muster_unit_forward_end(model.units, 0, 0, MUSTER_POINT_NONE));
      muster_point ready[2] = {};
      ok(muster_unit_backward_begin(model.units, 0, ready));
      for (const muster_point point : ready) ok(muster_point_wait(member.session, point, -1));
      for (const std::uint32_t p : {kColumn, kRow, kNorm}) model.fill(p, MUSTER_UNIT_WHOLE_GRADIENT, 4);
      if (!used) ok(muster_unit_unused(model.units, 0, kNorm));
      ok(muster_unit_backward_end(model.units, 0, 0, MUSTER_POINT_NONE, MUSTER_BACKWARD_KEEP_GRADIENTS,
                                  nullptr));
      model.end();
      model.expect(kColumn, MUSTER_UNIT_GRADIENT_SHARD, 4);
      model.expect(kNorm, MUSTER_UNIT_GRADIENT_SHARD, used ? 4 : 0);
    }
    meet_and_leave(member);
  });
}

// A unit of three vectors of one size, over dp_shard and dp_replicate.
struct Experts {
  explicit Experts(const Member& member) : session(member.session) {
    const LayoutHandle layout = made({8}, {shard("dp_shard", 0, 0)}, session);
    ok(muster_units_create(session, nullptr, &units));
    const muster_parameter parameters[] = {{"a", layout.get(), MUSTER_F32, 0},
                                           {"b", layout.get(), MUSTER_F32, 0},
                                           {"c", layout.get(), MUSTER_F32, 0}};
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = "experts";
    options.shard = "dp_shard";
    options.replicate = "dp_replicate";
    options.parameters = parameters;
    options.parameter_count = 3;
    ok(muster_unit_create(units, &options, &unit));
  }
  Experts(const Experts&) = delete;
  Experts& operator=(const Experts&) = delete;
  ~Experts() { ok(muster_units_destroy(units)); }
  // A step in which the rank does not use those parameters. How it ended, and the thread's sentence.
  muster_status_t step(const std::vector<std::uint32_t>& unused) const {
    muster_point ready[2] = {}, done[2] = {};
    ok(muster_step_begin(units, MUSTER_POINT_NONE, 0));
    ok(muster_unit_forward_begin(units, unit, ready));
    ok(muster_unit_forward_end(units, unit, 0, ready[0]));
    ok(muster_unit_backward_begin(units, unit, ready));
    for (const muster_point point : ready) ok(muster_point_wait(session, point, -1));
    for (const std::uint32_t parameter : unused) ok(muster_unit_unused(units, unit, parameter));
    muster_status_t status = muster_unit_backward_end(units, unit, 0, MUSTER_POINT_NONE, 0, nullptr);
    if (status == MUSTER_OK) status = muster_step_end(units, MUSTER_POINT_NONE, done);
    for (int i = 0; i < 2 && status == MUSTER_OK; ++i) status = muster_point_wait(session, done[i], -1);
    return status;
  }

  muster_session* session;
  muster_units* units = nullptr;
  muster_unit unit = 0;
};

// Goal:   ranks that leave different parameters of one size unused hear so, and average nothing.
TEST_F(UnitsUnused, MustBeTheSameAtAllRanks) {
  using Unused = std::vector<std::uint32_t>;
  for (const auto& [world, shape] : {std::pair{2, "dp_shard=2"}, {3, "dp_replicate=3,dp_shard=1"}})
    for (const auto& [first, second, named] :
         {std::tuple<Unused, Unused, const char*>{{0, 2}, {1, 2}, "experts: b"},
          {{0}, {1}, "experts: b, c"},
          {{2}, {0}, "experts: a, b"},
          {{0, 2}, {0, 1}, "experts: b"},
          {{}, {0}, "experts: b, c"}}) {
      SCOPED_TRACE(shape);
      mesh = shape;
      with_ranks(world, [&, mine = &first, other = &second, parameters = named](Member& member) {
        const Experts experts(member);
        EXPECT_EQ(experts.step(member.rank == 0 ? *mine : *other), MUSTER_ERR_MISMATCH);
        EXPECT_THAT(muster_last_error(), ::testing::HasSubstr("experts"));
        // The report on a rank of another node has its tag alone.
        EXPECT_THAT(muster_last_error(), ::testing::HasSubstr(node_.several() ? "(experts" : parameters));
        ok(muster_step_abandon(experts.units));
        EXPECT_EQ(experts.step({0, 2}), MUSTER_OK) << "and the next step is well";
        EXPECT_EQ(experts.step({}), MUSTER_OK);
        meet_and_leave(member);
      });
    }
}

}  // namespace
