// Which parameters a unit takes: what is refused has a way out, and is refused on any number of ranks.
#include <muster/units.h>

#include "tests/api/client/made_layouts.hpp"
#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"
#include "tests/api/client/saved_arrays.hpp"
#include "tests/support/folder.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using UnitParameters = RunningRanks;

// All elements of a view of a parameter of the only unit of a set, which has no gaps.
template<class T>
std::vector<T*> elements_of(muster_session* session, muster_units* units, std::uint32_t parameter,
                            std::int32_t which) {
  muster_tensor tensor{};
  muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
  ok(muster_unit_tensor(units, 0, parameter, which, &tensor));
  std::int64_t count = 1;
  for (std::int32_t d = 0; d < tensor.dims; ++d) count *= tensor.size[d];
  std::vector<T*> all;
  if (count == 0) return all;
  ok(muster_buffer_query(session, tensor.buffer, &info));
  auto* first = reinterpret_cast<T*>(static_cast<std::byte*>(info.address) + tensor.offset_bytes);
  for (std::int64_t i = 0; i < count; ++i) all.push_back(first + i);
  return all;
}

// A step in which each backward adds `gradient` to the parameters that it uses: all but `unused`.
template<class T>
void step_of(muster_session* session, muster_units* units, std::uint32_t parameters, T gradient,
             int microbatches = 1, int unused = -1) {
  muster_point points[2] = {};
  const auto wait = [&] {
    for (const muster_point point : points) ok(muster_point_wait(session, point, -1));
  };
  ok(muster_step_begin(units, MUSTER_POINT_NONE, 0));
  for (int m = 0; m < microbatches; ++m) {
    ok(muster_unit_forward_begin(units, 0, points));
    ok(muster_unit_forward_end(units, 0, 0, MUSTER_POINT_NONE));
    ok(muster_unit_backward_begin(units, 0, points));
    wait();
    for (std::uint32_t p = 0; p < parameters; ++p)
      for (T* element : elements_of<T>(session, units, p, MUSTER_UNIT_WHOLE_GRADIENT))
        *element = gradient + (m > 0 ? *element : 0);
    if (unused >= 0) ok(muster_unit_unused(units, 0, static_cast<std::uint32_t>(unused)));
    ok(muster_unit_backward_end(units, 0, 0, MUSTER_POINT_NONE,
                                m + 1 < microbatches ? MUSTER_BACKWARD_KEEP_GRADIENTS : 0, nullptr));
  }
  ok(muster_step_end(units, MUSTER_POINT_NONE, points));
  wait();
}

// Goal:   a parameter without dims cannot be sharded on any number of ranks, and the reader hears what to do.
TEST_F(UnitParameters, RefuseAScalarOnAnyNumberOfRanks) {
  for (const int world : {1, 2}) {
    mesh = "dp_shard=" + std::to_string(world);
    with_ranks(world, [&](Member& member) {
      muster_layout_options scalar = MUSTER_LAYOUT_OPTIONS_INIT;
      muster_layout* layout = nullptr;
      muster_units* units = nullptr;
      ok(muster_layout_create(member.session, &scalar, &layout));
      ok(muster_units_create(member.session, nullptr, &units));
      const muster_parameter parameter{"logit_scale", layout, MUSTER_F32, 0};
      muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
      options.name = "head";
      options.shard = "dp_shard";
      options.parameters = &parameter;
      options.parameter_count = 1;
      muster_unit unit = 0;
      EXPECT_EQ(muster_unit_create(units, &options, &unit), MUSTER_ERR_BAD_ARGUMENT);
      EXPECT_THAT(muster_last_error(),
                  AllOf(HasSubstr("\"logit_scale\""), HasSubstr("give it the shape [1]")));
      options.shard = nullptr;
      options.replicate = "dp_shard";
      EXPECT_EQ(muster_unit_create(units, &options, &unit), MUSTER_OK) << "the way out";
      ok(muster_units_destroy(units));
      ok(muster_layout_destroy(layout));
      meet_and_leave(member);
    });
  }
}

// Goal:   gradients of f64 are reduced as they are, and whoever asks for more hears what cannot be had.
TEST_F(UnitParameters, SayWhatGradientsOfF64CannotHave) {
  with_ranks(2, [&](Member& member) {
    struct Wish {
      bool sharded, accumulates;
      double divisor;
      muster_dtype reduce;
      const char* text;  // of the refusal; empty: it is taken
    };
    for (const Wish& wish : {Wish{true, false, 0, 0, ""},
                             {true, false, 3, 0, ""},
                             {false, false, 0, 0, ""},
                             {true, true, 0, 0, "MUSTER_UNITS_ACCUMULATE"},
                             {true, false, 0, MUSTER_F32, "reduce_dtype is f32"},
                             {false, false, 3, 0, "the divisor 3; divide the loss"}}) {
      SCOPED_TRACE(wish.text);
      const LayoutHandle layout =
          made({8}, Axes(wish.sharded ? 1 : 0, shard("dp_shard", 0, 0)), member.session);
      muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
      set.flags = wish.accumulates ? MUSTER_UNITS_ACCUMULATE : 0;
      muster_units* units = nullptr;
      ok(muster_units_create(member.session, &set, &units));
      const muster_parameter parameter{"a", layout.get(), MUSTER_F64, 0};
      muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
      options.name = "u";
      options.shard = wish.sharded ? "dp_shard" : nullptr;
      options.divisor = wish.divisor;
      options.reduce_dtype = wish.reduce;
      options.parameters = &parameter;
      options.parameter_count = 1;
      muster_unit unit = 0;
      const muster_status_t status = muster_unit_create(units, &options, &unit);
      EXPECT_EQ(status, *wish.text == 0 ? MUSTER_OK : MUSTER_ERR_UNSUPPORTED);
      if (status != MUSTER_OK) EXPECT_THAT(muster_last_error(), HasSubstr(wish.text));
      ok(muster_units_destroy(units));
    }
    meet_and_leave(member);
  });
}

struct F64Case {
  int world;
  const char* mesh;
  std::vector<muster_layout_axis> axes;
  const char* shard = "dp_shard";
  std::uint32_t set_flags = 0, flags = 0;
  muster_dtype whole = 0;
  std::int32_t after_forward = MUSTER_RESHARD_DEFAULT;
  int microbatches = 1, unused = -1;
  double ranks = 0;  // of which the gradient is the mean; 0: all
};

std::vector<F64Case> f64_cases() {
  const muster_layout_axis rows = shard("dp_shard", 0, 0), columns = shard("tp", 0, 1);
  return {{2, "dp_shard=2", {rows}},
          {3, "dp_shard=3", {rows}, "dp_shard", MUSTER_UNITS_SHARE_ON_NODE},
          {4, "dp_replicate=2,dp_shard=2", {rows}},
          {2, "dp_replicate=2,dp_shard=1", {}, nullptr},
          {4, "dp_shard=4", {rows}, "dp_shard", 0, 0, 0, 2},
          {2, "dp_shard=2", {rows}, "dp_shard", 0, 0, MUSTER_BF16},
          {2, "dp_shard=2", {rows}, "dp_shard", MUSTER_UNITS_KEEP_GRADIENTS, 0, 0, MUSTER_RESHARD_NEVER, 3},
          {2, "dp_shard=2", {rows}, "dp_shard", 0, 0, 0, 0, 1, 1},
          {4, "dp_shard=2,tp=2", {rows, columns}},
          {2, "tp=2", {}, nullptr, 0, MUSTER_PARAMETER_SUMMED_OVER_TP, 0, 0, 1, -1, 1}};
}

class F64Parameters : public RunningRanks, public ::testing::WithParamInterface<F64Case> {};

// Goal:   what f64 is taken for works: units that are sharded, replicated, sliced, shared, cut by tp, summed
//         over it, kept over microbatches, without a parameter, and gathered in bf16.
TEST_P(F64Parameters, Train) {
  mesh = GetParam().mesh;
  with_ranks(GetParam().world, [&, of = &GetParam()](Member& member) {
    const LayoutHandle layout = made({5, 3}, of->axes, member.session);
    muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
    set.flags = of->set_flags;
    muster_units* units = nullptr;
    ok(muster_units_create(member.session, &set, &units));
    const muster_parameter parameters[] = {{"a", layout.get(), MUSTER_F64, of->flags},
                                           {"b", layout.get(), MUSTER_F64, of->flags}};
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = "u";
    options.shard = of->shard;
    options.replicate = of->shard == nullptr ? "dp" : "dp_replicate";
    options.tensor = "tp";
    options.whole_dtype = of->whole;
    options.after_forward = of->after_forward;
    options.parameters = parameters;
    options.parameter_count = 2;
    muster_unit unit = 0;
    ASSERT_EQ(muster_unit_create(units, &options, &unit), MUSTER_OK) << muster_last_error();
    const int tp = std::string(of->mesh).ends_with("tp=2") && of->ranks == 0 ? 2 : 1;
    step_of<double>(member.session, units, 2, 1e-12 + member.rank / tp, of->microbatches, of->unused);
    const double ranks = of->ranks == 0 ? of->world / tp : of->ranks;
    const int count = member.world / tp;  // whose gradients are summed
    const double sum = of->microbatches * (count * 1e-12 + count * (count - 1) / 2.0);
    for (std::uint32_t p = 0; p < 2; ++p)
      for (const double* element : elements_of<double>(member.session, units, p, MUSTER_UNIT_GRADIENT_SHARD))
        EXPECT_DOUBLE_EQ(*element, static_cast<int>(p) == of->unused ? 0 : sum / ranks) << p;
    const Vector out = vector_of(member, 4);
    const muster_tensor figure{out.buffer, 0, MUSTER_F64, 1, {2}, {1}};
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_units_zero_count(units, &figure, &done));
    ok(muster_point_wait(member.session, done, -1));
    EXPECT_EQ(reinterpret_cast<const double*>(out.data)[0], of->unused >= 0 ? 15 : 0);
    EXPECT_EQ(reinterpret_cast<const double*>(out.data)[1], 30);
    ok(muster_units_broadcast(units, MUSTER_POINT_NONE, &done));
    ok(muster_point_wait(member.session, done, -1));
    ok(muster_units_destroy(units));
    meet_and_leave(member);
  });
}

INSTANTIATE_TEST_SUITE_P(Units, F64Parameters, ::testing::ValuesIn(f64_cases()));

// Goal:   a scalar trains in a unit without shard, beside a sharded one, on any number of ranks; it is saved,
//         and another number of ranks loads it.
TEST_F(UnitParameters, OfNoDimsTrainAndAreSavedOnAnyNumberOfRanks) {
  const Folder folder;
  for (const int world : {1, 2, 3}) {
    mesh = "dp_shard=" + std::to_string(world);
    with_ranks(world, [&](Member& member) {
      const LayoutHandle layout = made(Numbers{}, {});
      muster_units* units = nullptr;
      ok(muster_units_create(member.session, nullptr, &units));
      const muster_parameter parameters[] = {{"logit_scale", layout.get(), MUSTER_F32, 0},
                                             {"logit_bias", layout.get(), MUSTER_F32, 0},
                                             {"step", layout.get(), MUSTER_I64, MUSTER_PARAMETER_FROZEN}};
      muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
      options.name = "head";
      options.replicate = "dp";
      options.parameters = parameters;
      options.parameter_count = 3;
      muster_unit unit = 0;
      ok(muster_unit_create(units, &options, &unit));
      step_of<float>(member.session, units, 2, static_cast<float>(12 * (member.rank + 1)), 1, 1);
      const auto value = [&](std::uint32_t p, std::int32_t which) {
        return *elements_of<float>(member.session, units, p, which).front();
      };
      EXPECT_EQ(value(0, MUSTER_UNIT_GRADIENT_SHARD), static_cast<float>(6 * (world + 1)));
      EXPECT_EQ(value(1, MUSTER_UNIT_GRADIENT_SHARD), 0);
      muster_tensor shard{};
      ok(muster_unit_tensor(units, unit, 0, MUSTER_UNIT_SHARD, &shard));
      float* scale = elements_of<float>(member.session, units, 0, MUSTER_UNIT_SHARD).front();
      RunFolder run(member, folder.path());
      if (world > 1) ok(run.load({{"logit_scale", layout.get(), shard}}));
      EXPECT_EQ(*scale, static_cast<float>(world - 1)) << "as the ranks before have saved it";
      *scale = static_cast<float>(world);
      ok(run.save(static_cast<std::uint64_t>(world), {{"logit_scale", layout.get(), shard}}));
      ok(muster_units_destroy(units));
      meet_and_leave(member);
    });
  }
}

// Goal:   whatever kind of scalar it is, one rank and two hear the same; and so they do of a parameter with
//         dims whose layout names no axis.
TEST_F(UnitParameters, AreRefusedOnOneRankAsOnTwo) {
  struct Case {
    Numbers shape;
    std::vector<muster_layout_axis> axes;
    muster_dtype dtype;
    std::uint32_t flags;
  };
  const muster_layout_axis tp = shard("tp", 0, 0);
  const std::vector<Case> cases{{{}, {}, MUSTER_I64, MUSTER_PARAMETER_FROZEN},
                                {{}, {}, MUSTER_F32, MUSTER_PARAMETER_SUMMED_OVER_TP},
                                {{}, {replicate("tp", 0)}, MUSTER_BF16, 0},
                                {{8}, {}, MUSTER_F32, 0},
                                {{8}, {tp}, MUSTER_F32, 0},
                                {{8}, {}, MUSTER_F32, MUSTER_PARAMETER_FROZEN}};
  std::vector<std::string> said(cases.size());
  for (const int world : {1, 2}) {
    mesh = "dp_shard=" + std::to_string(world);
    with_ranks(world, [&](Member& member) {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const LayoutHandle layout = made(cases[i].shape, cases[i].axes, member.session);
        muster_units* units = nullptr;
        ok(muster_units_create(member.session, nullptr, &units));
        const muster_parameter parameter{"x", layout.get(), cases[i].dtype, cases[i].flags};
        muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
        options.name = "head";
        options.shard = "dp_shard";
        options.tensor = "tp";
        options.parameters = &parameter;
        options.parameter_count = 1;
        muster_unit unit = 0;
        EXPECT_EQ(muster_unit_create(units, &options, &unit), MUSTER_ERR_BAD_ARGUMENT) << world << ": " << i;
        if (world == 1) said[i] = muster_last_error();
        EXPECT_EQ(muster_last_error(), said[i]) << i;
        ok(muster_units_destroy(units));
      }
      meet_and_leave(member);
    });
  }
}

}  // namespace
}  // namespace muster::test
