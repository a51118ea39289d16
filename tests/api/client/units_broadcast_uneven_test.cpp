// Replicas made equal in units of which ranks have parts of different sizes, so that what they share lies at
// other places at each.
#include <muster/units.h>

#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

using muster::test::Member;
using muster::test::ok;

struct Axis {
  const char* name;
  std::int32_t dim;  // which it cuts
};

struct Parameter {
  std::vector<std::int64_t> shape;
  std::vector<Axis> axes{};
  muster_dtype dtype = MUSTER_F32;
  std::uint32_t flags = MUSTER_PARAMETER_FROZEN;
};

struct Case {
  int world;
  const char* mesh;
  std::vector<Parameter> parameters;
  const char* shard = nullptr;
  std::uint32_t set_flags = 0;
  muster_dtype whole_dtype = 0;
  const char* replicate = nullptr;
  const char* tensor = nullptr;
};

// The unit of a case at one rank.
class UnevenUnit {
 public:
  UnevenUnit(Member& member, const Case& of) : member_(member), of_(of) {
    muster_units_options set = MUSTER_UNITS_OPTIONS_INIT;
    set.flags = of.set_flags;
    ok(muster_units_create(member.session, &set, &units_));
    std::vector<muster_parameter> parameters;
    for (std::size_t p = 0; p < of.parameters.size(); ++p) {
      names_.push_back("p" + std::to_string(p));
      layouts_.push_back(layout_of(of.parameters[p]));
    }
    for (std::size_t p = 0; p < of.parameters.size(); ++p)
      parameters.push_back({names_[p].c_str(), layouts_[p], of.parameters[p].dtype, of.parameters[p].flags});
    muster_unit_options options = MUSTER_UNIT_OPTIONS_INIT;
    options.name = "uneven";
    options.shard = of.shard;
    options.replicate = of.replicate;
    options.tensor = of.tensor;
    options.whole_dtype = of.whole_dtype;
    options.parameters = parameters.data();
    options.parameter_count = static_cast<std::uint32_t>(parameters.size());
    muster_unit unit = 0;
    ok(muster_unit_create(units_, &options, &unit));
  }
  UnevenUnit(const UnevenUnit&) = delete;
  UnevenUnit& operator=(const UnevenUnit&) = delete;
  ~UnevenUnit() {
    ok(muster_units_destroy(units_));
    for (muster_layout* layout : layouts_) ok(muster_layout_destroy(layout));
  }

  // Each element as its rank and its place tell it apart, in all bytes of its dtype.
  void fill() {
    each_element(MUSTER_UNIT_SHARD, [&](std::size_t, std::int64_t index, std::byte* at, std::size_t bytes) {
      std::memset(at, value(member_.rank, index), bytes);
    });
  }
  void broadcast() {
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_units_broadcast(units_, MUSTER_POINT_NONE, &done));
    ok(muster_point_wait(member_.session, done, -1));
  }
  // That each parameter is that of the rank with coordinate 0 along all dims that do not cut it.
  void expect_those_of_the_first() {
    each_element(MUSTER_UNIT_SHARD,
                 [&](std::size_t p, std::int64_t index, const std::byte* at, std::size_t bytes) {
                   const int first = first_rank(of_.parameters[p]);
                   for (std::size_t i = 0; i < bytes; ++i)
                     EXPECT_EQ(static_cast<int>(at[i]), value(first, index))
                         << names_[p] << " at rank " << member_.rank << ", element " << index;
                 });
  }
  // A step of F32, which gathers each parameter's number. Each rank's whole gradients are `gradient` in each
  // element.
  void step(float gradient) {
    muster_point both[2]{};
    each_element(MUSTER_UNIT_SHARD, [](std::size_t p, std::int64_t, std::byte* at, std::size_t) {
      const auto number = static_cast<float>(p + 1);
      std::memcpy(at, &number, sizeof number);
    });
    ok(muster_step_begin(units_, MUSTER_POINT_NONE, 0));
    ok(muster_unit_forward_begin(units_, 0, both));
    ok(muster_point_wait(member_.session, both[0], -1));
    each_element(MUSTER_UNIT_WHOLE, [&](std::size_t p, std::int64_t, const std::byte* at, std::size_t) {
      float is = 0;
      std::memcpy(&is, at, sizeof is);
      EXPECT_EQ(is, static_cast<float>(p + 1)) << names_[p] << " at rank " << member_.rank;
    });
    ok(muster_unit_forward_end(units_, 0, 0, MUSTER_POINT_NONE));
    ok(muster_unit_backward_begin(units_, 0, both));
    for (const muster_point point : both) ok(muster_point_wait(member_.session, point, -1));
    each_element(MUSTER_UNIT_WHOLE_GRADIENT, [&](std::size_t, std::int64_t, std::byte* at, std::size_t) {
      std::memcpy(at, &gradient, sizeof gradient);
    });
    ok(muster_unit_backward_end(units_, 0, 0, MUSTER_POINT_NONE, 0, nullptr));
    ok(muster_step_end(units_, MUSTER_POINT_NONE, both));
    for (const muster_point point : both) ok(muster_point_wait(member_.session, point, -1));
  }
  // plain, summed: of parameters without and with MUSTER_PARAMETER_SUMMED_OVER_TP.
  void expect_gradients(float plain, float summed) {
    each_element(MUSTER_UNIT_GRADIENT_SHARD,
                 [&](std::size_t p, std::int64_t, const std::byte* at, std::size_t) {
                   float is = 0;
                   std::memcpy(&is, at, sizeof is);
                   EXPECT_EQ(is, of_.parameters[p].flags == 0 ? plain : summed)
                       << names_[p] << " at rank " << member_.rank;
                 });
  }

 private:
  static int value(int rank, std::int64_t index) { return 1 + rank * 20 + static_cast<int>(index % 20); }

  static void add_axes(muster_layout_options& said, const std::vector<Axis>& axes) {
    for (const Axis& axis : axes) {
      said.axes[said.axis_count].name = axis.name;
      said.axes[said.axis_count].placement = MUSTER_SHARD;
      said.axes[said.axis_count++].dim = axis.dim;
    }
  }
  muster_layout* layout_of(const Parameter& parameter) const {
    muster_layout_options said = MUSTER_LAYOUT_OPTIONS_INIT;
    said.dims = static_cast<std::int32_t>(parameter.shape.size());
    std::copy(parameter.shape.begin(), parameter.shape.end(), said.shape);
    add_axes(said, parameter.axes);
    muster_layout* layout = nullptr;
    ok(muster_layout_create(member_.session, &said, &layout));
    return layout;
  }

  int first_rank(const Parameter& parameter) const {
    int rank = 0;
    for (const char* dim : {"pp", "dp_replicate", "dp_shard", "cp", "domain", "tp"}) {
      std::int32_t coordinate = 0, size = 0;
      ok(muster_mesh_coords(member_.session, dim, &coordinate, &size));
      const bool cuts = std::any_of(parameter.axes.begin(), parameter.axes.end(),
                                    [&](const Axis& axis) { return std::string(axis.name) == dim; });
      rank = rank * size + (cuts ? coordinate : 0);
    }
    return rank;
  }

  // Calls body(parameter, place in the row-major order of the view, address, bytes).
  template<class Body>
  void each_element(std::int32_t which, Body body) {
    for (std::size_t p = 0; p < names_.size(); ++p) {
      muster_tensor view{};
      ok(muster_unit_tensor(units_, 0, static_cast<std::uint32_t>(p), which, &view));
      muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
      ok(muster_buffer_query(member_.session, view.buffer, &info));
      auto* first = static_cast<std::byte*>(info.address) + view.offset_bytes;
      const std::size_t bytes = muster_dtype_bytes(view.dtype);
      std::int64_t count = 1;
      for (std::int32_t d = 0; d < view.dims; ++d) count *= view.size[d];
      for (std::int64_t index = 0; index < count; ++index) {
        std::int64_t left = index, place = 0;
        for (std::int32_t d = view.dims; d-- > 0; left /= view.size[d])
          place += left % view.size[d] * view.stride[d];
        body(p, index, first + static_cast<std::size_t>(place) * bytes, bytes);
      }
    }
  }

  Member& member_;
  const Case& of_;
  muster_units* units_ = nullptr;
  std::vector<std::string> names_;
  std::vector<muster_layout*> layouts_;
};

class UnitsBroadcastUneven : public muster::test::RunningRanks {
 protected:
  void expect_broadcast(const Case& of) {
    SCOPED_TRACE(of.mesh);
    mesh = of.mesh;
    with_ranks(of.world, [&](Member& member) {
      {
        UnevenUnit unit(member, of);
        unit.fill();
        unit.broadcast();
        unit.expect_those_of_the_first();
        meet_and_leave(member);
      }
      meet_and_leave(member);
    });
  }
};

TEST_F(UnitsBroadcastUneven, WhereTensorParallelismCutsOneParameterAndNotTheNext) {
  expect_broadcast({2, "tp=2", {{{3}, {{"tp", 0}}}, {{5}}}});
}

TEST_F(UnitsBroadcastUneven, AlongEitherDim) {
  expect_broadcast(
      {2,
       "tp=2",
       {{{3, 4}, {{"tp", 0}}}, {{5}}, {{4, 3}, {{"tp", 1}}}, {{2, 2}}, {{3}}, {{1, 5}, {{"tp", 1}}}}});
}

TEST_F(UnitsBroadcastUneven, AlongTwoDimsOfTheMesh) {
  const std::vector<Parameter> parameters{
      {{7, 5}, {{"cp", 0}, {"tp", 1}}}, {{3}}, {{4, 2}, {{"cp", 0}}}, {{2}}, {{2, 3}, {{"tp", 1}}}, {{5}}};
  expect_broadcast({6, "dp_shard=1,cp=3,tp=2", parameters});
  expect_broadcast({8, "dp_replicate=2,dp_shard=1,cp=2,tp=2", parameters});
}

TEST_F(UnitsBroadcastUneven, WhereRanksHaveEmptyParts) {
  expect_broadcast({4, "tp=4", {{{2}, {{"tp", 0}}}, {{3}}, {{5, 1}, {{"tp", 0}}}, {{1}}, {{0}}, {{2, 2}}}});
  expect_broadcast({3, "tp=3", {{{1}, {{"tp", 0}}}, {{1}}}});
}

// Goal:   whatever the dtypes: bf16 beside f32, and an element that is wider than what lies before it, which
//         is aligned.
TEST_F(UnitsBroadcastUneven, InSeveralDtypes) {
  expect_broadcast({2, "tp=2", {{{3}, {{"tp", 0}}, MUSTER_BF16}, {{5}, {}, MUSTER_BF16}}});
  expect_broadcast({2,
                    "tp=2",
                    {{{3, 3}, {{"tp", 0}}, MUSTER_BF16},
                     {{3}, {}, MUSTER_F32},
                     {{5}, {}, MUSTER_BF16},
                     {{3}, {{"tp", 0}}, MUSTER_F32},
                     {{2}, {}, MUSTER_U8}}});
  Case wide{
      2,
      "tp=2",
      {{{3}, {{"tp", 0}}, MUSTER_I32}, {{3}, {}, MUSTER_I32}, {{3}, {}, MUSTER_F64}, {{3}, {}, MUSTER_BF16}}};
  wide.whole_dtype = MUSTER_BF16;
  expect_broadcast(wide);
}

// Goal:   shards between which others lie, in memory of one rank and in memory that ranks share.
TEST_F(UnitsBroadcastUneven, OfShards) {
  for (const std::uint32_t flags : {0U, std::uint32_t{MUSTER_UNITS_SHARE_ON_NODE}}) {
    Case shards{8,
                "dp_replicate=2,dp_shard=2,tp=2",
                {{{3, 4}, {{"dp_shard", 1}, {"tp", 0}}},
                 {{5, 2}, {{"dp_shard", 1}}},
                 {{3, 3}, {{"dp_shard", 0}, {"tp", 1}}},
                 {{3}, {{"dp_shard", 0}}},
                 {{1, 2}, {{"dp_shard", 0}}}}};
    shards.shard = "dp_shard";
    shards.set_flags = flags;
    expect_broadcast(shards);
  }
}

// Goal:   gathers and reductions of such units too. Their parameters are cut unevenly by tp, empty at a rank,
//         or not cut; among them are parameters that are summed over tp.
TEST_F(UnitsBroadcastUneven, AStepReducesThemToo) {
  constexpr std::uint32_t kSummed = MUSTER_PARAMETER_SUMMED_OVER_TP;
  for (const std::uint32_t flags : {std::uint32_t{0}, std::uint32_t{MUSTER_UNITS_ACCUMULATE},
                                    std::uint32_t{MUSTER_UNITS_SHARE_ON_NODE}}) {
    for (const char* shard : {static_cast<const char*>(nullptr), "dp_shard"}) {
      Case of{8,
              "dp_replicate=2,dp_shard=2,tp=2",
              {{{3, 3}, {{"tp", 0}}, MUSTER_F32, 0},
               {{5}, {}, MUSTER_F32, kSummed},
               {{3, 1}, {{"tp", 1}}, MUSTER_F32, 0},
               {{3}, {}, MUSTER_F32, kSummed},
               {{1}, {}, MUSTER_F32, kSummed}},
              shard,
              flags,
              0,
              shard == nullptr ? "dp" : "dp_replicate",
              "tp"};
      if (shard != nullptr)
        for (Parameter& parameter : of.parameters)
          parameter.axes.insert(parameter.axes.begin(), {"dp_shard", 0});
      mesh = of.mesh;
      with_ranks(of.world, [&](Member& member) {
        {
          UnevenUnit unit(member, of);
          const int tp = member.rank % 2;
          for (const int scale : {8, 16}) {
            unit.step(static_cast<float>(scale * member.rank));
            // The mean of ranks 0, 2, 4 and 6, or of ranks 1, 3, 5 and 7; then the sum of both means.
            unit.expect_gradients(static_cast<float>(scale * (3 + tp)), static_cast<float>(scale * 7));
          }
          meet_and_leave(member);
        }
        meet_and_leave(member);
      });
    }
  }
}

}  // namespace
