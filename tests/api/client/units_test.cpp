// Units by a real node's ranks: gathered, used, reduced and updated, against sums that this file computes.
#include "tests/api/client/units_model.hpp"

#include <gmock/gmock.h>

namespace muster::test {
namespace {

class Units : public RunningRanks {
 protected:
  // The mean factor over the ranks that share a parameter's gradient. tp peers have gradients of their own.
  static double mean_factor(const Member& member, const Setting& setting) {
    std::vector<std::int32_t> ranks;
    double sum = 0;
    int count = 0;
    std::int32_t tp = 1;
    ok(muster_mesh_coords(member.session, "tp", nullptr, &tp));
    for (int rank = 0; rank < member.world; ++rank)
      if (rank % tp == member.rank % tp) sum += rank + 1, ++count;
    return sum / (setting.divisor == 0 ? count : setting.divisor);
  }
  // Trains three steps and compares each element of each shard, and what each forward saw.
  void train(int world, const std::string& shape, const std::vector<UnitSpec>& specs, const Setting& setting,
             double tolerance = 1e-6) {
    mesh = shape;
    with_ranks(world, [&](Member& member) {
      Model model(member, specs, setting);
      model.initialise();
      constexpr double kRate = 1.0 / 64;
      double scale = 1;
      double seen = 1;
      for (int step = 0; step < 3; ++step) {
        model.step(kRate);
        seen = scale;
        scale *= 1 - kRate * setting.microbatches * mean_factor(member, setting);
      }
      model.wait();
      for (std::size_t u = 0; u < specs.size(); ++u)
        for (std::size_t p = 0; p < specs[u].parameters.size(); ++p) {
          const bool frozen = (specs[u].parameters[p].flags & MUSTER_PARAMETER_FROZEN) != 0;
          const float* shard = model.memory(model.view(u, p, MUSTER_UNIT_SHARD));
          model.each(u, p, MUSTER_UNIT_SHARD, [&](std::int64_t at, std::int64_t index) {
            const double expected = Model::initial(u, p, index) * (frozen ? 1 : scale);
            ASSERT_NEAR(shard[at], expected, tolerance * 16)
                << "unit " << u << " parameter " << p << " [" << index << "] of " << shape
                << ", backward flags " << setting.backward_flags;
          });
          const float* whole = model.copied(u, p);
          model.each(u, p, MUSTER_UNIT_WHOLE, [&](std::int64_t at, std::int64_t index) {
            const double expected = Model::initial(u, p, index) * (frozen ? 1 : seen);
            ASSERT_NEAR(whole[at], expected, tolerance * 16)
                << "unit " << u << " parameter " << p << " [" << index << "] of " << shape
                << ", backward flags " << setting.backward_flags;
          });
        }
      meet_and_leave(member);
    });
  }
};

TEST_F(Units, TrainOverShards) {
  train(3, "dp_shard=3", five_units(), {});
}

TEST_F(Units, TrainOverReplicasOfShards) {
  train(4, "dp_replicate=2,dp_shard=2", five_units(), {});
}

TEST_F(Units, TrainOverReplicasAlone) {
  train(3, "dp_replicate=3,dp_shard=1", five_units(), {});
}

TEST_F(Units, TrainOnOneRank) {
  train(1, "dp_shard=1", five_units(), {});
}

// Several dims are one dim of shards.
TEST_F(Units, TrainOverContextToo) {
  train(4, "dp_shard=2,cp=2", five_units(), {});
}

// tp cuts first, and units shard what tp has left.
TEST_F(Units, TrainInsideTensorParallelism) {
  train(4, "dp_shard=2,tp=2", five_units(MUSTER_RESHARD_DEFAULT, true), {});
}

TEST_F(Units, TrainInsideTensorParallelismWithReplicas) {
  train(6, "dp_replicate=2,dp_shard=1,tp=3", five_units(MUSTER_RESHARD_DEFAULT, true), {});
}

// Goal:   case M14 (ours): replicas of shards beside context and tensor parallelism.
TEST_F(Units, TrainOverReplicasBesideContextAndTensorParallelism) {
  train(8, "dp_replicate=2,cp=2,tp=2", five_units(MUSTER_RESHARD_DEFAULT, true), {});
}

TEST_F(Units, KeepSlicesForBackward) {
  train(4, "dp_shard=4", five_units(2), {});
}

// Goal:   ranks whose slices differ in size gather the same units at the same time.
// Method: rank 0 has slices of 256 bytes and rank 2 of 64, so that the budget would have room for a prefetch
//         at rank 2 alone. A later step leaves a unit out.
TEST_F(Units, KeepUnevenSlicesInOneOrder) {
  mesh = "dp_shard=4";
  std::vector<UnitSpec> specs;
  for (const char* name : {"a", "b", "c"}) specs.push_back({name, {{{5, 16}}}, 2, 0});
  Setting setting;
  setting.budget = 1100;
  with_ranks(4, [&](Member& member) {
    Model model(member, specs, setting);
    model.initialise();
    model.step(0);
    EXPECT_EQ(model.info().prefetch, 0U) << "rank " << member.rank;
    ok(muster_step_begin(model.units, model.latest(), 0));
    for (const std::size_t u : {0U, 2U}) model.forward(u);
    model.wait();
    for (const std::size_t u : {0U, 2U})
      model.each(u, 0, MUSTER_UNIT_WHOLE, [&](std::int64_t at, std::int64_t index) {
        ASSERT_EQ(model.copied(u, 0)[at], Model::initial(u, 0, index)) << u << " at rank " << member.rank;
      });
    muster_point done[2];
    ok(muster_step_end(model.units, model.latest(), done));
    meet_and_leave(member);
  });
}

TEST_F(Units, StayWholeUntilBackward) {
  train(2, "dp_shard=2", five_units(MUSTER_RESHARD_NEVER), {});
}

TEST_F(Units, AreGatheredAgainEvenTheRoot) {
  train(2, "dp_shard=2", five_units(MUSTER_RESHARD_ALWAYS), {});
}

TEST_F(Units, TrainAtAnyDepthOfPrefetch) {
  for (const std::uint32_t prefetch : {0U, 2U, 3U}) {
    Setting setting;
    setting.prefetch = prefetch;
    train(2, "dp_shard=2", five_units(MUSTER_RESHARD_ALWAYS), setting);
  }
}

TEST_F(Units, AreGatheredInBf16AndReducedInF32) {
  Setting setting;
  setting.whole_dtype = MUSTER_BF16;
  setting.reduce_dtype = MUSTER_F32;
  train(4, "dp_replicate=2,dp_shard=2", five_units(), setting, 5e-3);
}

TEST_F(Units, AreReducedInOtherDtypes) {
  for (const muster_dtype dtype : {MUSTER_BF16, MUSTER_F16}) {
    Setting setting;
    setting.reduce_dtype = dtype;
    train(4, "dp_replicate=2,dp_shard=2", five_units(), setting, 2e-2);
  }
}

TEST_F(Units, TakeAnotherDivisor) {
  for (const double divisor : {1.0, 2.0, 8.0}) {
    Setting setting;
    setting.divisor = divisor;
    train(4, "dp_replicate=2,dp_shard=2", five_units(), setting);
  }
}

// Goal:   ranks of a node that share one whole copy gather nothing. Over nodes they gather as ever.
TEST_F(Units, ShareOneCopyOnANode) {
  Setting setting;
  setting.flags = MUSTER_UNITS_SHARE_ON_NODE;
  train(3, "dp_shard=3", five_units(), setting);
  train(4, "dp_replicate=2,dp_shard=2", five_units(), setting);
  train(8, "dp_shard=2,cp=2,tp=2", five_units(MUSTER_RESHARD_DEFAULT, true), setting);
  mesh = "dp_shard=2";
  with_ranks(2, [&](Member& member) {
    Model model(member, five_units(), setting);
    model.initialise();
    model.step(0.5);
    model.wait();
    // Here each rank has a node of its own if there are several.
    EXPECT_EQ(model.info().place_bytes > 0, node_.several());
    EXPECT_EQ(model.info().whole_bytes_peak > 0, node_.several());
    meet_and_leave(member);
  });
}

// Goal:   ranks that can share get a mismatch if other ranks of the same dim cannot share. Each node has
//         three of the six ranks, so the middle group of shards spans both nodes.
TEST_F(Units, ShareInAllGroupsOrInNone) {
  mesh = "dp_replicate=3,dp_shard=2";
  with_ranks(6, [&](Member& member) {
    muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
    set.flags = MUSTER_UNITS_SHARE_ON_NODE;
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.replicate = "dp_replicate";
    OneUnit unit(member, options, set);
    ok(unit.created);
    EXPECT_EQ(unit.step(), node_.several() ? MUSTER_ERR_MISMATCH : MUSTER_OK);
    if (node_.several()) {
      EXPECT_THAT(muster_last_error(), ::testing::HasSubstr("place of unit \"unit\": 0 bytes"));
    } else {
      ok(unit.step_end());
    }
    meet_and_leave(member);
  });
}

// Goal:   case F10 (ours): however microbatches are accumulated, the sum is the same: each reduced, kept
//         whole, reduced over shards alone, and with parameters that stay whole between them.
TEST_F(Units, AddTheGradientsOfMicrobatches) {
  for (const std::uint32_t flags :
       {0U, std::uint32_t{MUSTER_BACKWARD_KEEP_GRADIENTS}, std::uint32_t{MUSTER_BACKWARD_SHARDS_ONLY},
        std::uint32_t{MUSTER_BACKWARD_KEEP_GRADIENTS | MUSTER_BACKWARD_KEEP_WHOLE}}) {
    Setting setting;
    setting.microbatches = 3;
    setting.flags = MUSTER_UNITS_ACCUMULATE | MUSTER_UNITS_KEEP_GRADIENTS;
    setting.backward_flags = flags;
    train(4, "dp_replicate=2,dp_shard=2", five_units(), setting);
    train(2, "dp_replicate=2,dp_shard=1", five_units(), setting);
    train(3, "dp_shard=3", five_units(), setting);
  }
}

}  // namespace
}  // namespace muster::test
