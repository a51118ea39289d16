// Which parameters a unit takes: what is refused has a way out, and is refused on any number of ranks.
#include <muster/units.h>

#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <string>

#include <gmock/gmock.h>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using UnitParameters = RunningRanks;

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
      muster_layout_options cut = MUSTER_LAYOUT_OPTIONS_INIT;
      cut.dims = 1;
      cut.shape[0] = 8;
      cut.axis_count = wish.sharded ? 1 : 0;
      cut.axes[0].name = "dp_shard";
      cut.axes[0].placement = MUSTER_SHARD;
      muster_layout* layout = nullptr;
      ok(muster_layout_create(member.session, &cut, &layout));
      muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
      set.flags = wish.accumulates ? MUSTER_UNITS_ACCUMULATE : 0;
      muster_units* units = nullptr;
      ok(muster_units_create(member.session, &set, &units));
      const muster_parameter parameter{"a", layout, MUSTER_F64, 0};
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
      ok(muster_layout_destroy(layout));
    }
    meet_and_leave(member);
  });
}

}  // namespace
}  // namespace muster::test
