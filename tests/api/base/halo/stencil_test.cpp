#include "api/base/halo/stencil.hpp"

#include "tests/api/base/halo/played.hpp"

#include <string>

#include <gtest/gtest.h>

namespace muster::halo::test {
namespace {

using Kind = Window::Kind;

const Window kSame{Kind::kConvolution, 3, 1, 1, 1, 1};

std::string refusal(const Layout& layout, const std::vector<Window>& windows,
                    const std::vector<Items>& lengths = {}) {
  const Result<Stencil> made = Stencil::make(layout, windows, lengths);
  EXPECT_FALSE(made.has_value());
  return made ? "" : made.error().text();
}

// Goal:   what a halo cannot be made of is refused, by dim and axis.
TEST(HaloStencil, RefusesWhatItCannotPlan) {
  const Layout rows = layout_of({8, 4}, {2, 1});
  EXPECT_NE(refusal(rows, {kSame}).find("1 windows for 2 dims"), std::string::npos);
  Window channels;
  channels.kind = Kind::kWhole;
  channels.length = 6;
  EXPECT_NE(refusal(rows, {channels, {}}).find("dim 0: axis 0 (axis0) cuts it, but each result reads all"),
            std::string::npos);
  Window wide = kSame;
  wide.pad = Window::Pad::kReflect;
  wide.before = wide.after = 4;
  EXPECT_NE(refusal(rows, {{}, wide}).find("dim 1: reflect pads of 4 and 4 are wider than the field"),
            std::string::npos);
  EXPECT_NE(refusal(rows, {kSame, {}}, {{3, 4}, {}})
                .find("dim 0: the lengths of the result do not add up to its 8"),
            std::string::npos);
  EXPECT_NE(
      refusal(rows, {kSame, {}}, {{8}, {}}).find("dim 0: 1 lengths of the result are given, but 2 ranks"),
      std::string::npos);
  const auto twice = Layout::make(Items{8}, {{"a", 2, Placement::shard(0)}, {"b", 2, Placement::shard(0)}});
  EXPECT_NE(refusal(*twice, {kSame}).find("dim 0: axis 0 (a) and axis 1 (b) both cut it"), std::string::npos);
  const auto partial = Layout::make(Items{8}, {{"a", 2, Placement::partial()}});
  EXPECT_NE(refusal(*partial, {kSame}).find("axis 0 (a) is partial"), std::string::npos);
  Window circular = kSame;
  circular.pad = Window::Pad::kCircular;
  EXPECT_NE(refusal(rows, {circular, {}, kSame, {}}).find("layer 0 has circular pads"), std::string::npos);
}

// Goal:   ranks that differ in an axis of replicas, or in one that cuts another dim, are nobody's neighbours.
TEST(HaloStencil, StaysAmongRanksOfEqualCoordinates) {
  const auto layout = Layout::make(
      Items{6, 8},
      {{"replicas", 2, {}}, {"batch", 3, Placement::shard(0)}, {"rows", 2, Placement::shard(1)}});
  const Result<Stencil> stencil = Stencil::make(*layout, std::vector<Window>{{}, kSame});
  ASSERT_TRUE(stencil.has_value());
  for (std::int64_t rank = 0; rank < 12; ++rank) {
    const Result<Halo> halo = stencil->halo(rank);
    ASSERT_TRUE(halo.has_value());
    ASSERT_EQ(halo->gets.size(), 1U);
    EXPECT_EQ(halo->gets[0].peer, rank ^ 1);
    EXPECT_EQ(halo->elements_in, 2);
    EXPECT_EQ(halo->own.length[0], 2);
  }
  EXPECT_EQ(stencil->result().axes()[0].name, "replicas");
  EXPECT_EQ(stencil->result().local_shape(3), (Index{2, 4}));
}

// Goal:   a channel dim has other lengths in the result, and travels whole.
TEST(HaloStencil, CarriesAllChannels) {
  const Layout layout = layout_of({8, 3}, {2, 1});
  Window channels;
  channels.kind = Kind::kWhole;
  channels.length = 5;
  const Result<Stencil> stencil = Stencil::make(layout, std::vector<Window>{kSame, channels});
  ASSERT_TRUE(stencil.has_value());
  EXPECT_EQ(stencil->result().local_shape(0), (Index{4, 5}));
  const Result<Halo> halo = stencil->halo(1);
  EXPECT_EQ(halo->elements_in, 3);
  EXPECT_EQ(halo->results.length[1], 5);
  const Result<Stencil> gradient = stencil->gradient();
  ASSERT_TRUE(gradient.has_value());
  EXPECT_EQ(gradient->halo(1)->elements_in, 5);
}

// Goal:   case C13: fields of more than 2^31 items are planned without touching one.
TEST(HaloStencil, PlansFieldsOfAnySize) {
  const Layout layout = layout_of({std::int64_t{1} << 40, 1 << 20}, {4, 2});
  const Result<Stencil> stencil = Stencil::make(layout, std::vector<Window>{kSame, kSame});
  ASSERT_TRUE(stencil.has_value());
  const Result<Halo> halo = stencil->halo(3);
  ASSERT_TRUE(halo.has_value());
  EXPECT_EQ(halo->held.length[0], (std::int64_t{1} << 38) + 2);
  EXPECT_EQ(halo->elements_in, 2 * (1 << 19) + (std::int64_t{1} << 38) + 2);
}

// Goal:   the results of a layer take the lengths that the caller gives: those of a skip connection. With
//         [7, 6, 5] rows, a stride of 2 leaves [4, 3, 2], and a transposed convolution of 2 would make [8, 6,
//         4].
TEST(HaloStencil, GivesResultsTheLengthsOfASkip) {
  const Layout skip = layout_of({18}, {3}, {{0, {7, 6, 5}}});
  const Result<Stencil> down = Stencil::make(skip, std::vector<Window>{{Kind::kConvolution, 3, 2, 1, 1, 1}});
  ASSERT_TRUE(down.has_value());
  for (std::int64_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(down->result().local_shape(rank)[0], (Items{4, 3, 2}[static_cast<std::size_t>(rank)]));
  const Window twice{Kind::kTransposed, 2, 2};
  const Result<Stencil> up = Stencil::make(down->result(), std::vector<Window>{twice});
  for (std::int64_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(up->result().local_shape(rank)[0], (Items{8, 6, 4}[static_cast<std::size_t>(rank)]));
  const Result<Stencil> fitting =
      Stencil::make(down->result(), std::vector<Window>{twice}, std::vector<Items>{{7, 6, 5}});
  ASSERT_TRUE(fitting.has_value());
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(fitting->result().local_shape(rank), skip.local_shape(rank));
    EXPECT_EQ(fitting->halo(rank)->elements_in, rank == 0 ? 0 : 1);  // the row at each cut
  }
}

// Goal:   a rank that has nothing that others read sends nothing; one that reads nothing gets nothing.
TEST(HaloStencil, SendsOnlyWhatIsRead) {
  const Layout layout = layout_of({12}, {4}, {{0, {3, 3, 3, 3}}});
  const Result<Stencil> strided = Stencil::make(layout, std::vector<Window>{{Kind::kConvolution, 1, 4}});
  ASSERT_TRUE(strided.has_value());
  for (const Halo& halo : halos_of(*strided)) EXPECT_EQ(halo.elements_in + halo.elements_out, 0);
  const Result<Stencil> all_at_the_first =
      Stencil::make(layout, std::vector<Window>{kSame}, std::vector<Items>{{12, 0, 0, 0}});
  ASSERT_TRUE(all_at_the_first.has_value());
  const std::vector<Halo> halos = halos_of(*all_at_the_first);
  EXPECT_EQ(halos[0].elements_in, 9);
  for (std::size_t rank = 1; rank < 4; ++rank) {
    EXPECT_EQ(halos[rank].elements_in, 0);
    EXPECT_EQ(halos[rank].elements_out, 3);
  }
}

}  // namespace
}  // namespace muster::halo::test
