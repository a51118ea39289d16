// Parameters that a backward does not use, where gradients of several backwards come together.
#include <muster/units.h>

#include "tests/api/client/running_ranks.hpp"
#include "tests/api/client/small_model.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace {

using muster::test::Member;
using muster::test::ok;
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

}  // namespace
