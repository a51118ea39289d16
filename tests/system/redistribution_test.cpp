// Tensors that ranks carry from layout to layout through the C API. Each element has its number as its value,
// so a wrong one shows where it came from.
#include <muster/layouts.h>

#include "tests/api/base/layout/drawn_layout.hpp"
#include "tests/api/client/running_ranks.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace {

using Kind = muster::Placement::Kind;
using muster::test::drawn_number;
using muster::test::Items;
using muster::test::Member;
using muster::test::Random;
using muster::test::Rule;
using muster::test::SaidAxis;
using muster::test::SaidLayout;
using muster::test::Vector;

constexpr std::size_t kRoom = 4096;  // elements of each buffer
constexpr float kNothing = -1;
using LayoutHandle = std::unique_ptr<muster_layout, muster_status_t (*)(muster_layout*)>;

muster_layout_axis axis_of(const SaidAxis& said) {
  muster_layout_axis axis = MUSTER_LAYOUT_AXIS_INIT;
  axis.ranks = static_cast<std::int32_t>(said.ranks);
  axis.placement = said.kind == Kind::kShard     ? MUSTER_SHARD
                   : said.kind == Kind::kPartial ? MUSTER_PARTIAL
                                                 : MUSTER_REPLICATE;
  if (axis.placement == MUSTER_PARTIAL) axis.redop = said.redop;
  if (axis.placement != MUSTER_SHARD) return axis;
  axis.dim = static_cast<std::int32_t>(said.dim);
  axis.split = said.rule == Rule::kCeil       ? MUSTER_SPLIT_CEIL
               : said.rule == Rule::kBalanced ? MUSTER_SPLIT_BALANCED
               : said.rule == Rule::kAligned  ? MUSTER_SPLIT_ALIGNED
                                              : MUSTER_SPLIT_GIVEN;
  if (said.rule == Rule::kAligned) axis.grain = said.grain;
  if (said.rule == Rule::kGiven) axis.lengths = said.given.data();
  if (said.rule == Rule::kGiven) axis.length_count = static_cast<std::uint32_t>(said.given.size());
  if (!said.fused.empty()) axis.fused = said.fused.data();
  axis.fused_count = static_cast<std::uint32_t>(said.fused.size());
  return axis;
}

LayoutHandle layout_of(const SaidLayout& said) {
  muster_layout_options options = MUSTER_LAYOUT_OPTIONS_INIT;
  options.dims = static_cast<std::int32_t>(said.shape.size());
  std::copy(said.shape.begin(), said.shape.end(), options.shape);
  options.axis_count = static_cast<std::uint32_t>(said.axes.size());
  std::transform(said.axes.begin(), said.axes.end(), options.axes, axis_of);
  options.order = said.order == muster::Layout::Order::kOutermostFirst ? MUSTER_CUT_OUTERMOST_FIRST
                                                                       : MUSTER_CUT_INNERMOST_FIRST;
  muster_layout* layout = nullptr;
  EXPECT_EQ(muster_layout_create(nullptr, &options, &layout), MUSTER_OK) << muster_last_error();
  return LayoutHandle(layout, &muster_layout_destroy);
}

// A rank's array in a buffer: dims in any order in memory, the innermost three with gaps.
struct Array {
  muster_tensor view{};
  std::vector<std::size_t> places{};  // of the elements, in row-major order
};

Array array_in(const Vector& memory, const muster_layout* layout, std::int32_t rank, std::int32_t dims,
               Random& random) {
  std::int64_t shape[MUSTER_TENSOR_DIMS_MAX] = {};
  EXPECT_EQ(muster_layout_local_shape(layout, rank, shape), MUSTER_OK) << muster_last_error();
  Array array;
  array.view.buffer = memory.buffer;
  array.view.dtype = MUSTER_F32;
  array.view.dims = dims;
  std::vector<std::int32_t> inside_out;
  for (std::int32_t dim = dims; dim-- > 0;) inside_out.push_back(dim);
  if (random.below(2) == 0) std::reverse(inside_out.begin(), inside_out.end());
  std::int64_t gap = random.below(2) == 0 ? 0 : drawn_number(random, 1, 3);
  std::int64_t stride = 1;
  for (const std::int32_t dim : inside_out) {
    array.view.size[dim] = shape[dim];
    array.view.stride[dim] = stride;
    stride *= std::max<std::int64_t>(shape[dim], 1) + gap;
    if (dim == inside_out[std::min<std::size_t>(2, inside_out.size() - 1)])
      gap = 0;  // or eight dims fill any room
  }
  const std::int64_t before = drawn_number(random, 0, 7);
  array.view.offset_bytes = static_cast<std::uint64_t>(before) * sizeof(float);
  array.places = {static_cast<std::size_t>(before)};
  for (std::int32_t dim = 0; dim < dims; ++dim) {
    std::vector<std::size_t> more;
    for (const std::size_t place : array.places)
      for (std::int64_t i = 0; i < shape[dim]; ++i)
        more.push_back(place + static_cast<std::size_t>(i * array.view.stride[dim]));
    array.places = std::move(more);
  }
  return array;
}

// A rank's array without gaps.
Array dense_in(const Vector& memory, const muster_layout* layout, std::int32_t rank, std::int32_t dims) {
  Array array;
  array.view = {memory.buffer, 0, MUSTER_F32, dims, {}, {}};
  EXPECT_EQ(muster_layout_local_shape(layout, rank, array.view.size), MUSTER_OK) << muster_last_error();
  std::int64_t elements = 1;
  for (std::int32_t dim = dims; dim-- > 0;) {
    array.view.stride[dim] = elements;
    elements *= array.view.size[dim];
  }
  for (std::int64_t i = 0; i < elements; ++i) array.places.push_back(static_cast<std::size_t>(i));
  return array;
}

// One rank's part in all that the ranks carry.
class Carrier {
 public:
  explicit Carrier(Member& member)
      : member_(member), source_(memory_of(member)), target_(memory_of(member)) {}

  // Nothing but the elements that are to come is written.
  void carry(const SaidLayout& from, const SaidLayout& to, std::uint64_t seed) {
    SCOPED_TRACE(fmt::format("seed {}, rank {}: {} -> {}", seed, member_.rank, from.text(), to.text()));
    Random random(seed * 64 + static_cast<std::uint64_t>(member_.rank));
    const LayoutHandle old = layout_of(from);
    const LayoutHandle fresh = layout_of(to);
    const auto dims = static_cast<std::int32_t>(from.shape.size());
    const Array source = array_in(source_, old.get(), member_.rank, dims, random);
    const Array target = array_in(target_, fresh.get(), member_.rank, dims, random);
    write(source_, source, from.array(member_.rank));
    write(target_, target, {});
    muster_plan plan = 0;
    ASSERT_EQ(muster_plan_redistribution(member_.session, member_.group, old.get(), &source.view, fresh.get(),
                                         &target.view, &plan),
              MUSTER_OK)
        << muster_last_error();
    carry_out(plan, random_path(seed));
    EXPECT_EQ(muster_plan_destroy(member_.session, plan), MUSTER_OK) << muster_last_error();
    expect(target_, target, to.array(member_.rank));
    expect(source_, source, from.array(member_.rank));
  }
  // Addends that are 1, 2, … times the elements: the sum is so many times them.
  void reduce(const SaidLayout& from, const SaidLayout& to, std::uint64_t seed) {
    SCOPED_TRACE(fmt::format("seed {}, rank {}: {} -> {}", seed, member_.rank, from.text(), to.text()));
    const LayoutHandle old = layout_of(from);
    const LayoutHandle fresh = layout_of(to);
    const auto dims = static_cast<std::int32_t>(from.shape.size());
    const Array source = dense_in(source_, old.get(), member_.rank, dims);
    const Array target = dense_in(target_, fresh.get(), member_.rank, dims);
    const auto times = [](Items elements, std::int64_t factor) {
      for (std::int64_t& element : elements) element *= factor;
      return elements;
    };
    write(source_, source, times(from.array(member_.rank), member_.rank + 1));
    write(target_, target, {});
    muster_plan plan = 0;
    ASSERT_EQ(muster_plan_redistribution(member_.session, member_.group, old.get(), &source.view, fresh.get(),
                                         &target.view, &plan),
              MUSTER_OK)
        << muster_last_error();
    carry_out(plan, random_path(seed));
    EXPECT_EQ(muster_plan_destroy(member_.session, plan), MUSTER_OK) << muster_last_error();
    expect(target_, target, times(to.array(member_.rank), member_.world * (member_.world + 1) / 2));
  }

 private:
  static Vector memory_of(const Member& member) {
    Vector v;
    void* address = nullptr;
    EXPECT_EQ(muster_buffer_alloc(member.session, kRoom * sizeof(float), &v.buffer, &address), MUSTER_OK)
        << muster_last_error();
    v.data = static_cast<float*>(address);
    return v;
  }
  // The same at all members.
  static bool random_path(std::uint64_t seed) { return Random(seed).below(2) == 0; }

  static std::vector<float> image(const Array& array, const Items& elements) {
    std::vector<float> image(kRoom, kNothing);
    EXPECT_TRUE(elements.empty() || elements.size() == array.places.size());
    for (std::size_t i = 0; i < elements.size(); ++i)
      image.at(array.places[i]) = static_cast<float>(elements[i]);
    return image;
  }
  static void write(const Vector& memory, const Array& array, const Items& elements) {
    const std::vector<float> bytes = image(array, elements);
    std::copy(bytes.begin(), bytes.end(), memory.data);
  }
  static void expect(const Vector& memory, const Array& array, const Items& elements) {
    EXPECT_EQ(std::vector<float>(memory.data, memory.data + kRoom), image(array, elements));
  }

  void carry_out(muster_plan plan, bool starts) {
    if (!starts) {
      EXPECT_EQ(muster_plan_run(member_.session, plan, 0), MUSTER_OK) << muster_last_error();
      return;
    }
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_HALO;
    muster_point point = 0;
    ASSERT_EQ(muster_plan_start(member_.session, plan, &submit, &point), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_point_wait(member_.session, point, -1), MUSTER_OK) << muster_last_error();
  }

  Member& member_;
  Vector source_;
  Vector target_;
};

SaidAxis shard(std::int64_t ranks, std::size_t dim) {
  return {ranks, Kind::kShard, dim};
}
SaidAxis replicate(std::int64_t ranks) {
  return {ranks};
}

class RedistributionTest : public muster::test::RunningRanks {
 protected:
  // There and back, run and started.
  void expect_round_trips(int world, const std::vector<SaidLayout>& layouts) {
    with_ranks(world, [&](Member& member) {
      Carrier carrier(member);
      std::uint64_t seed = 0;
      for (const SaidLayout& from : layouts)
        for (const SaidLayout& to : layouts)
          for (int times = 0; times < 4; ++times) carrier.carry(from, to, ++seed);
      await_all(member);
    });
  }
};

TEST_F(RedistributionTest, CarriesRowsToColumnsAndBack) {
  expect_round_trips(4, {{{7, 9}, {shard(4, 0)}}, {{7, 9}, {shard(4, 1)}}, {{7, 9}, {replicate(4)}}});
}

// Goal:   case T13: 7 items over 4 ranks.
TEST_F(RedistributionTest, CarriesAnUnevenDimThereAndBack) {
  SaidAxis given = shard(4, 0);
  given.rule = Rule::kGiven;
  given.given = {0, 1, 6, 0};
  SaidAxis balanced = shard(4, 0);
  balanced.rule = Rule::kBalanced;
  expect_round_trips(4, {{{7}, {shard(4, 0)}}, {{7}, {balanced}}, {{7}, {given}}, {{7}, {replicate(4)}}});
}

// Goal:   case X2: 9 rows, tp 2, FSDP 4, to what tp alone leaves, to other strides and to the whole.
TEST_F(RedistributionTest, CarriesStridedShardsOfEightRanks) {
  const Items shape = {9, 5};
  expect_round_trips(8, {{shape, {shard(4, 0), shard(2, 0)}},
                         {shape, {replicate(4), shard(2, 0)}},
                         {shape, {shard(4, 0), shard(2, 1)}},
                         {shape, {shard(2, 0), shard(4, 0)}, muster::Layout::Order::kOutermostFirst},
                         {shape, {replicate(8)}}});
}

// Goal:   layouts that nobody thought of, in views of any strides; no other byte is touched.
// Method: each rank's whole buffers are compared. A failing seed is printed.
TEST_F(RedistributionTest, CarriesAnyLayoutToAnyOther) {
  const std::uint64_t cases = muster::test::property_cases(2000);
  for (const int world : {2, 4, 6, 8}) {
    const std::vector<Items> meshes = {{world}, {2, world / 2}, {world / 2, 2}, {1, 2, world / 2}};
    with_ranks(world, [&](Member& member) {
      Carrier carrier(member);
      for (std::uint64_t i = 1; i <= cases / 4 && !HasFailure(); ++i) {
        const std::uint64_t seed = i * 16 + static_cast<std::uint64_t>(world);
        Random random(seed);
        Items shape;
        do shape = muster::test::drawn_shape(random);
        while (shape.size() > MUSTER_TENSOR_DIMS_MAX);
        const auto layout = [&] {
          return drawn_layout(random, shape, meshes[random.below(meshes.size())],
                              muster::test::Partials::kNone);
        };
        const SaidLayout from = layout();
        carrier.carry(from, layout(), seed);
      }
      await_all(member);
    });
  }
}

// Goal:   addends of all ranks become any shards and replicas, by one reduction.
TEST_F(RedistributionTest, ReducesToAnyLayout) {
  const std::uint64_t cases = muster::test::property_cases(2000);
  for (const int world : {2, 4, 6}) {
    const std::vector<Items> meshes = {{world}, {2, world / 2}, {world / 2, 2}, {1, 2, world / 2}};
    with_ranks(world, [&](Member& member) {
      Carrier carrier(member);
      for (std::uint64_t i = 1; i <= cases / 4 && !HasFailure(); ++i) {
        const std::uint64_t seed = i * 16 + static_cast<std::uint64_t>(world);
        Random random(seed);
        Items shape;
        do shape = muster::test::drawn_shape(random);
        while (shape.size() > MUSTER_TENSOR_DIMS_MAX);
        SaidLayout from;
        from.shape = shape;
        for (const std::int64_t ranks : meshes[random.below(meshes.size())])
          from.axes.push_back({ranks, Kind::kPartial});
        carrier.reduce(
            from,
            drawn_layout(random, shape, meshes[random.below(meshes.size())], muster::test::Partials::kNone),
            seed);
      }
      await_all(member);
    });
  }
}

}  // namespace
