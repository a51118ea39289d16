// Sets of units: whose they are, and how their ranks hear of what one of them alone was refused.
#include <muster/units.h>

#include "tests/api/client/one_unit.hpp"
#include "tests/api/client/running_ranks.hpp"
#include "tests/api/client/small_model.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <muster/kernels.h>
#include <unistd.h>

namespace {

using muster::test::Member;
using muster::test::ok;
using muster::test::OneUnit;
using muster::test::SmallModel;
using ::testing::HasSubstr;
using UnitSets = muster::test::RunningRanks;

// A set of units of one vector each, which name no dim.
class Plain {
 public:
  explicit Plain(Member& member, std::uint32_t flags = 0) : member_(member) {
    muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
    set.flags = flags;
    ok(muster_units_create(member.session, &set, &units));
  }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  ~Plain() { ok(muster_units_destroy(units)); }

  // axis: what cuts the vector; NULL: nothing.
  muster_status_t add(const char* name, const char* axis, const char* shard = nullptr,
                      const char* tensor = nullptr, const char* replicate = nullptr) {
    muster_layout_options said = MUSTER_LAYOUT_OPTIONS_INIT;
    said.dims = 1;
    said.shape[0] = 6;
    said.axis_count = axis == nullptr ? 0 : 1;
    said.axes[0].name = axis;
    said.axes[0].placement = MUSTER_SHARD;
    muster_layout* layout = nullptr;
    ok(muster_layout_create(member_.session, &said, &layout));
    const muster_parameter parameter{name, layout, MUSTER_F32, 0};
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = name;
    options.shard = shard;
    options.tensor = tensor;
    options.replicate = replicate;
    options.parameters = &parameter;
    options.parameter_count = 1;
    muster_unit unit = 0;
    const muster_status_t status = muster_unit_create(units, &options, &unit);
    ok(muster_layout_destroy(layout));
    return status;
  }
  std::vector<float*> elements(muster_unit unit, std::int32_t which) const {
    muster_tensor tensor{};
    ok(muster_unit_tensor(units, unit, 0, which, &tensor));
    muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
    ok(muster_buffer_query(member_.session, tensor.buffer, &info));
    auto* first = reinterpret_cast<float*>(static_cast<std::byte*>(info.address) + tensor.offset_bytes);
    std::vector<float*> all;
    for (std::int64_t i = 0; i < tensor.size[0]; ++i) all.push_back(first + i);
    return all;
  }
  // Forward and backward, whose gradients are `value`. after: of the backward.
  void use(muster_unit unit, float value, muster_point after = MUSTER_POINT_NONE) const {
    muster_point ready[2] = {};
    ok(muster_unit_forward_begin(units, unit, ready));
    ok(muster_unit_forward_end(units, unit, 0, MUSTER_POINT_NONE));
    ok(muster_unit_backward_begin(units, unit, ready));
    for (const muster_point point : ready) ok(muster_point_wait(member_.session, point, -1));
    for (float* gradient : elements(unit, MUSTER_UNIT_WHOLE_GRADIENT)) *gradient = value;
    ok(muster_unit_backward_end(units, unit, 0, after, 0, nullptr));
  }

  muster_units* units = nullptr;

 private:
  Member& member_;
};

// Goal:   layouts over tp are enough for figures and broadcasts to go over tp.
TEST_F(UnitSets, AreAllRanksAlsoWhereUnitsNameNoDim) {
  mesh = "dp_shard=1,tp=2";
  with_ranks(2, [&](Member& member) {
    Plain set(member);
    ok(set.add("cut", "tp"));
    ok(set.add("whole", nullptr, nullptr, "tp"));
    for (const muster_unit unit : {0U, 1U})
      for (float* element : set.elements(unit, MUSTER_UNIT_SHARD))
        *element = static_cast<float>(member.rank + 1);
    muster_point done[2] = {};
    ok(muster_units_broadcast(set.units, MUSTER_POINT_NONE, done));
    ok(muster_point_wait(member.session, done[0], -1));
    for (const float* element : set.elements(0, MUSTER_UNIT_SHARD)) EXPECT_EQ(*element, member.rank + 1);
    for (const float* element : set.elements(1, MUSTER_UNIT_SHARD)) EXPECT_EQ(*element, 1);

    ok(muster_step_begin(set.units, MUSTER_POINT_NONE, 0));
    set.use(0, static_cast<float>(member.rank + 1));
    set.use(1, 1);
    ok(muster_step_end(set.units, MUSTER_POINT_NONE, done));
    muster_buffer buffer = 0;
    void* address = nullptr;
    ok(muster_buffer_alloc(member.session, sizeof(double), &buffer, &address));
    const muster_tensor out = muster_view1(buffer, 0, MUSTER_F64, 1);
    ok(muster_units_square_sum(set.units, &out, done));
    ok(muster_point_wait(member.session, done[0], -1));
    EXPECT_EQ(*static_cast<const double*>(address), 3 * 1 + 3 * 4 + 6 * 1);
    meet_and_leave(member);
  });
}

// Goal:   what domain, dp_replicate, or a product of dims cuts has other replicas than what they do not cut:
//         figures count each element once, and a broadcast leaves each rank its own part.
TEST_F(UnitSets, KnowReplicasWhateverDimCutsAParameter) {
  struct Case {
    const char* mesh;
    int world;
    const char* axis;       // of "cut"
    const char* replicate;  // of "cut"
    const char* all;        // the ranks that have the same of "whole"
    int parts;              // ranks of the axis, the innermost of the mesh
    double squares;         // of a gradient that is part + 1 in "cut", and 1 in "whole"
  };
  for (const Case& c : {Case{"dp_shard=1,domain=2", 2, "domain", nullptr, "domain", 2, 3 * 1 + 3 * 4 + 6},
                        Case{"dp_replicate=2,dp_shard=1,domain=2", 4, "domain", "dp_replicate", "non_pp", 2,
                             3 * 1 + 3 * 4 + 6},
                        Case{"dp_replicate=2,dp_shard=1,domain=2", 4, "non_pp", nullptr, "non_pp", 4,
                             2 * 1 + 2 * 4 + 2 * 9 + 6}}) {
    SCOPED_TRACE(testing::Message() << c.mesh << " cut by " << c.axis);
    mesh = c.mesh;
    with_ranks(c.world, [&](Member& member) {
      Plain set(member);
      ok(set.add("cut", c.axis, nullptr, nullptr, c.replicate));
      ok(set.add("whole", nullptr, nullptr, nullptr, c.all));
      for (const muster_unit unit : {0U, 1U})
        for (float* element : set.elements(unit, MUSTER_UNIT_SHARD))
          *element = static_cast<float>(member.rank + 1);
      muster_point done[2] = {};
      ok(muster_units_broadcast(set.units, MUSTER_POINT_NONE, done));
      ok(muster_point_wait(member.session, done[0], -1));
      const auto part = static_cast<float>(member.rank % c.parts);
      for (const float* element : set.elements(0, MUSTER_UNIT_SHARD)) EXPECT_EQ(*element, part + 1);
      for (const float* element : set.elements(1, MUSTER_UNIT_SHARD)) EXPECT_EQ(*element, 1);

      ok(muster_step_begin(set.units, MUSTER_POINT_NONE, 0));
      set.use(0, part + 1);
      set.use(1, 1);
      ok(muster_step_end(set.units, MUSTER_POINT_NONE, done));
      muster_buffer buffer = 0;
      void* address = nullptr;
      ok(muster_buffer_alloc(member.session, 2 * sizeof(double), &buffer, &address));
      const auto* figures = static_cast<const double*>(address);
      const muster_tensor square = muster_view1(buffer, 0, MUSTER_F64, 1);
      ok(muster_units_square_sum(set.units, &square, done));
      ok(muster_point_wait(member.session, done[0], -1));
      EXPECT_EQ(figures[0], c.squares);
      const muster_tensor zeros = muster_view1(buffer, 0, MUSTER_F64, 2);
      ok(muster_units_zero_count(set.units, &zeros, done));
      ok(muster_point_wait(member.session, done[0], -1));
      EXPECT_EQ(figures[0], 0);
      EXPECT_EQ(figures[1], 12);
      meet_and_leave(member);
    });
  }
}

// Goal:   case T4: 6 elements over 8 ranks, as heads of which there are too few, leave two ranks nothing.
//         That is a warning, and gradients are right.
TEST_F(UnitSets, WarnOfRanksThatHaveNoPartOfAParameter) {
  mesh = "dp_shard=1,tp=8";
  with_ranks(8, [&](Member& member) {
    Plain set(member);
    ok(set.add("whole", nullptr, nullptr, "tp"));
    muster_units_info info = MUSTER_UNITS_INFO_INIT;
    ok(muster_units_query(set.units, &info));
    EXPECT_STREQ(info.warning, "");
    ok(set.add("heads", "tp"));
    ok(muster_units_query(set.units, &info));
    EXPECT_STREQ(info.warning,
                 "parameter \"heads\" of unit \"heads\": 2 of the 8 ranks of its layout have no part of it");
    ok(muster_step_begin(set.units, MUSTER_POINT_NONE, 0));
    set.use(1, static_cast<float>(member.rank + 1));
    muster_point done[2] = {};
    ok(muster_step_end(set.units, MUSTER_POINT_NONE, done));
    for (const muster_point point : done) ok(muster_point_wait(member.session, point, -1));
    const std::vector<float*> gradients = set.elements(1, MUSTER_UNIT_GRADIENT_SHARD);
    EXPECT_EQ(gradients.size(), member.rank < 6 ? 1U : 0U);
    for (const float* gradient : gradients) EXPECT_EQ(*gradient, member.rank + 1);
    meet_and_leave(member);
  });
}

TEST_F(UnitSets, OfOneRankAloneNameNobodyElse) {
  with_ranks(2, [&](Member& member) {
    Plain set(member, MUSTER_UNITS_ALONE);
    EXPECT_EQ(set.add("sharded", "dp_shard", "dp_shard"), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(),
                HasSubstr("unit \"sharded\" names the dim \"dp_shard\", but its set is"));
    EXPECT_EQ(set.add("cut", "dp_shard"), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("its layout has axes, but its set is this rank's alone"));
    ok(set.add("own", nullptr));
    if (member.rank == 1) return;  // nobody waits for it
    muster_point done[2] = {};
    ok(muster_step_begin(set.units, MUSTER_POINT_NONE, 0));
    set.use(0, 1);
    ok(muster_step_end(set.units, MUSTER_POINT_NONE, done));
  });
}

// Goal:   a rank without units does not leave the others waiting where sets are compared.
TEST_F(UnitSets, WithoutUnitsAreAnErrorOfAllRanks) {
  with_ranks(2, [&](Member& member) {
    Plain set(member);
    if (member.rank == 0) ok(set.add("unit", "dp_shard", "dp_shard"));
    EXPECT_EQ(muster_step_begin(set.units, MUSTER_POINT_NONE, 0), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(), HasSubstr("rank 1: the set has no units"));
    meet_and_leave(member);
  });
}

// Goal:   two points stand for all gradients, on however many timelines these are.
TEST_F(UnitSets, EndAStepAfterTheKernelsOfAllLanes) {
  with_ranks(1, [&](Member& member) {
    Plain set(member, MUSTER_UNITS_ALONE);
    std::uint32_t timelines[4] = {};
    for (const char* name : {"a", "b", "c", "d"}) ok(set.add(name, nullptr));
    ok(muster_step_begin(set.units, MUSTER_POINT_NONE, 0));
    for (const muster_unit unit : {0U, 1U, 2U, 3U}) {
      ok(muster_timeline_create(member.session, &timelines[unit]));
      set.use(unit, 1, muster_timeline_point(timelines[unit], 1));
    }
    muster_point done[2] = {};
    ok(muster_step_end(set.units, MUSTER_POINT_NONE, done));
    for (int i = 0; i < 3; ++i) ok(muster_timeline_signal(member.session, timelines[i], 1));
    ok(muster_point_wait(member.session, done[0], -1));
    EXPECT_EQ(muster_point_wait(member.session, done[1], 50'000'000), MUSTER_ERR_WAIT_TIMEOUT);
    ok(muster_timeline_signal(member.session, timelines[3], 1));
    ok(muster_point_wait(member.session, done[1], -1));
  });
}

// Goal:   a rank that shares its shards on the node hears when others have read them, also in a step that
//         reduced nothing: an evaluation.
TEST_F(UnitSets, EndAStepWhenAllHaveReadWhatTheyShare) {
  std::atomic<bool> waited{false};
  with_ranks(2, [&](Member& member) {
    muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
    set.flags = MUSTER_UNITS_SHARE_ON_NODE;
    OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT, set);
    std::uint32_t slow = 0;  // the kernels of rank 1
    ok(muster_timeline_create(member.session, &slow));
    ok(unit.step());
    ok(unit.forward());
    const muster_point read = member.rank == 1 ? muster_timeline_point(slow, 1) : MUSTER_POINT_NONE;
    ok(muster_unit_forward_end(unit.units, 0, 0, read));
    ok(unit.step_end());
    ASSERT_NE(unit.done[0], MUSTER_POINT_NONE);
    if (member.rank == 0) {
      EXPECT_EQ(muster_point_wait(member.session, unit.done[0], 50'000'000), MUSTER_ERR_WAIT_TIMEOUT);
      waited = true;
    } else {
      await([&] { return waited.load(); });
      ok(muster_timeline_signal(member.session, slow, 1));
    }
    for (const muster_point point : unit.done) ok(muster_point_wait(member.session, point, -1));
    meet_and_leave(member);
  });
}

// ---- failures of one rank alone ----------------------------------------------------------------
// What aborts a group ends the next run of it too, so these tests do not run a barrier.

// Goal:   tp peers hear of it too, and meet afterwards.
TEST_F(UnitSets, TellRanksThatSumOverTp) {
  mesh = "dp_shard=1,tp=2";
  with_ranks(2, [&](Member& member) {
    SmallModel model(member, {.norm_flags = MUSTER_PARAMETER_SUMMED_OVER_TP});
    model.begin();
    await_all(member);
    ok(muster_unit_forward_end(model.units, 0, 0, MUSTER_POINT_NONE));
    muster_point ready[2] = {};
    ok(muster_unit_backward_begin(model.units, 0, ready));
    if (member.rank == 0) {
      EXPECT_EQ(muster_unit_reshard(model.units, 0, MUSTER_POINT_NONE), MUSTER_ERR_STATE);
    } else {
      muster_point reduced = MUSTER_POINT_NONE;
      ok(muster_unit_backward_end(model.units, 0, 0, MUSTER_POINT_NONE, 0, &reduced));
      EXPECT_EQ(muster_point_wait(member.session, reduced, -1), MUSTER_ERR_ABORTED);
      EXPECT_THAT(muster_last_error(), HasSubstr("its forward or backward has not ended"));
    }
    ok(muster_step_abandon(model.units));
    model.step({1, 1, 3});
    model.expect(SmallModel::kNorm, MUSTER_UNIT_GRADIENT_SHARD, 6);
    await_all(member);
  });
}

// Goal:   the end of a step reduces what was kept; who is refused there tells the others.
TEST_F(UnitSets, TellOfAnEndOfAStepThatFailed) {
  with_ranks(2, [&](Member& member) {
    OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT);
    ok(unit.step());
    await_all(member);
    for (const std::uint32_t flags : {0U, std::uint32_t{MUSTER_BACKWARD_KEEP_GRADIENTS}}) {
      ok(unit.forward());
      ok(unit.forward_end());
      ok(unit.backward());
      ok(unit.backward_end(flags));
    }
    if (member.rank == 0) {
      EXPECT_EQ(unit.step_end(), MUSTER_ERR_STATE);
      EXPECT_THAT(muster_last_error(), HasSubstr("is reduced twice in a step"));
    } else {
      muster_point ready = MUSTER_POINT_NONE;
      ok(muster_unit_forward_begin(unit.units, 0, &ready));
      EXPECT_EQ(muster_point_wait(member.session, ready, -1), MUSTER_ERR_ABORTED);
    }
    ok(muster_step_abandon(unit.units));
    ok(unit.step());
    muster_point ready = MUSTER_POINT_NONE;
    ok(muster_unit_forward_begin(unit.units, 0, &ready));
    ok(muster_point_wait(member.session, ready, -1));
    ok(unit.step_end());
    await_all(member);
  });
}

// Goal:   a rank whose muster_step_abandon was interrupted calls it again, and all meet.
TEST_F(UnitSets, MeetAfterAnInterrupt) {
  mesh = "dp_shard=2";
  std::atomic<bool> interrupted{false};
  with_ranks(2, [&](Member& member) {
    OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT);
    ok(unit.step());
    await_all(member);
    if (member.rank == 0) {
      std::atomic<bool> done{false};
      std::thread watchdog([&] {
        while (!done) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          if (!done) ok(muster_interrupt(member.session));
        }
      });
      EXPECT_EQ(muster_step_abandon(unit.units), MUSTER_ERR_WAIT_INTERRUPTED);
      done = true;
      watchdog.join();
      interrupted = true;
    } else {
      await([&] { return interrupted.load(); });
    }
    muster_status_t abandoned = muster_step_abandon(unit.units);
    if (abandoned == MUSTER_ERR_WAIT_INTERRUPTED) abandoned = muster_step_abandon(unit.units);
    ok(abandoned);
    unit.reduced(1);
    meet_and_leave(member);
  });
}

// Goal:   ranks that hear of a loss while they meet do not wait for whoever is gone.
// Method: nothing is in flight that could fail, so the first to hear of it is the meeting.
TEST_F(UnitSets, HearOfALossWhileTheyMeet) {
  mesh = "dp_shard=3";
  with_ranks(3, [&](Member& member) {
    auto unit = std::make_unique<OneUnit>(member, muster_unit_options MUSTER_UNIT_OPTIONS_INIT);
    ok(unit->step());
    await_all(member);
    if (member.rank == 2) {
      unit.reset();
      return;
    }
    EXPECT_EQ(muster_step_abandon(unit->units), MUSTER_ERR_PEER_LOST);
    EXPECT_THAT(muster_last_error(), HasSubstr("rank 2"));
  });
}

// Goal:   likewise where a figure of all gradients fails.
TEST_F(UnitSets, TellOfAFigureThatFailed) {
  mesh = "dp_shard=2";
  with_ranks(2, [&](Member& member) {
    SmallModel model(member);
    model.step({1, 1, 1});
    muster_buffer buffer = 0;
    void* address = nullptr;
    ok(muster_buffer_alloc(member.session, sizeof(double), &buffer, &address));
    const muster_tensor out = muster_view1(buffer, 0, MUSTER_F64, 1);
    muster_point done = MUSTER_POINT_NONE;
    if (member.rank == 0) {
      muster_buffer gone = 0;
      ok(muster_buffer_alloc(member.session, sizeof(double), &gone, nullptr));
      ok(muster_buffer_free(member.session, gone));
      const muster_tensor stale = muster_view1(gone, 0, MUSTER_F64, 1);
      EXPECT_EQ(muster_units_square_sum(model.units, &stale, &done), MUSTER_ERR_STALE);
    } else {
      ok(muster_units_square_sum(model.units, &out, &done));
      EXPECT_EQ(muster_point_wait(member.session, done, -1), MUSTER_ERR_ABORTED);
    }
    ok(muster_step_abandon(model.units));
    model.step({1, 1, 1});
    ok(muster_units_square_sum(model.units, &out, &done));
    ok(muster_point_wait(member.session, done, -1));
    EXPECT_EQ(*static_cast<const double*>(address), 27);
    await_all(member);
  });
}

// Goal:   where nothing is at stake, nobody's groups are aborted: between steps, and for arguments.
TEST_F(UnitSets, LeaveTheGroupsAloneWhereNothingIsAtStake) {
  mesh = "dp_shard=2";
  with_ranks(2, [&](Member& member) {
    SmallModel model(member, {.norm_flags = MUSTER_PARAMETER_FROZEN});
    model.begin();
    ok(muster_unit_forward_end(model.units, 0, 0, MUSTER_POINT_NONE));
    muster_point ready[2] = {};
    ok(muster_unit_backward_begin(model.units, 0, ready));
    EXPECT_EQ(muster_unit_unused(model.units, 0, SmallModel::kNorm), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("is frozen and has no gradient"));
    ok(muster_unit_backward_end(model.units, 0, 0, MUSTER_POINT_NONE, 0, nullptr));
    model.end();
    if (member.rank == 0) {
      EXPECT_EQ(muster_unit_forward_begin(model.units, 0, ready), MUSTER_ERR_STATE);
    }
    await_all(member);
    muster_collective barrier = member.barrier();
    ok(muster_mesh_group(member.session, "dp_shard_cp", &barrier.group));
    EXPECT_EQ(member.run(barrier), MUSTER_OK) << member.error;
    model.begin();
    ok(muster_unit_forward_end(model.units, 0, 0, MUSTER_POINT_NONE));
    model.end();
    meet_and_leave(member);
  });
}

// Goal:   a trace says of which unit each collective is, and which step has started it and what the caller
//         starts meanwhile.
TEST_F(UnitSets, NameUnitAndStepOfEachCollectiveInTraces) {
  const std::string path = ::testing::TempDir() + "muster-trace-" + std::to_string(getpid()) + ".json";
  with_ranks(2, [&](Member& member) {
    OneUnit unit(member, MUSTER_UNIT_OPTIONS_INIT);
    if (member.rank == 0) ok(muster_trace_begin(member.session));
    meet_and_leave(member);
    for (int step = 0; step < 3; ++step) EXPECT_EQ(unit.reduced(1.0), 1.0F);
    meet_and_leave(member);
    if (member.rank == 0) ok(muster_trace_end(member.session, path.c_str()));
  });
  std::ifstream file(path);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(unlink(path.c_str()), 0);
  const auto count_of = [&](const std::string& name, const std::string& args) {
    const std::regex event("\"name\":\"" + name + "\"[^\n]*\"pid\":0,[^\n]*" + args);
    return std::distance(std::sregex_iterator(json.begin(), json.end(), event), std::sregex_iterator());
  };
  for (const std::string step : {"1", "2", "3"}) {
    const std::string of_unit = "\"site\":\"unit\",\"step\":" + step + "\\}";
    EXPECT_EQ(count_of("all_gather", of_unit), 2) << "for forward and backward of step " << step << json;
    EXPECT_EQ(count_of("reduce_scatter", of_unit), 1) << step;
    EXPECT_EQ(count_of("fill", "\"step\":" + step + "\\}"), 2) << step;
  }
  EXPECT_EQ(count_of("all_gather", "\"site\""), 6);
}

}  // namespace
