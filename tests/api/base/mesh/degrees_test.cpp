#include "api/base/mesh/degrees.hpp"

#include <cstdint>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::mesh {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The sentence of a failure; a mark that no sentence contains if there was none.
template<class T>
std::string why(const Result<T>& result) {
  if (result) return "(no error)";
  EXPECT_EQ(result.error().code(), Code::kConfig);
  return result.error().message();
}

// ---- parse

TEST(DegreesParse, ReadsTheCommandLineFormInAnyOrderAndKeepsDefaults) {
  const auto degrees = Degrees::parse("tp=2,dp_shard=-1,dp_replicate=2");
  ASSERT_TRUE(degrees) << why(degrees);
  EXPECT_EQ(*degrees, (Degrees{.dp_replicate = 2, .dp_shard = -1, .tp = 2}));
  EXPECT_EQ(*Degrees::parse("ep=4,domain=3,cp=5,pp=7,dp_shard=6"),
            (Degrees{.pp = 7, .dp_shard = 6, .cp = 5, .domain = 3, .ep = 4}));
}

TEST(DegreesParse, LeavesTheMeaningOfNegativeNumbersToResolve) {
  EXPECT_EQ(Degrees::parse("dp_shard=-2")->dp_shard, -2);
  EXPECT_EQ(Degrees::parse("tp=0")->tp, 0);
}

TEST(DegreesParse, NamesColumnAndRemedyForEachMistake) {
  struct Case {
    std::string text;
    std::string expected;
  };
  const Case cases[] = {
      {"", "it names no dim"},
      {"dp_replicate=2,dp_shrd=2", "column 16: unknown dim \"dp_shrd\"; did you mean \"dp_shard\"?"},
      {"dp-replicate=2", "column 1: unknown dim \"dp-replicate\"; did you mean \"dp_replicate\"?"},
      {"tp=2, cp=2", "column 6: unknown dim \" cp\"; did you mean \"cp\"?"},
      {"tpp=2", "column 1: unknown dim \"tpp\"; did you mean \"tp\"?"},
      {"ppp=2", "column 1: unknown dim \"ppp\"; did you mean \"pp\"?"},
      {"zebra=2",
       "column 1: unknown dim \"zebra\"; the dims are pp, dp_replicate, dp_shard, cp, domain, tp, ep"},
      {"tp=2,dp=4", "column 6: \"dp\" is derived from the basic dims and takes no size"},
      {"fsdp=4", "column 1: \"fsdp\" is derived"},
      {"efsdp=4", "column 1: \"efsdp\" is derived"},
      {"world=4", "column 1: \"world\" is derived"},
      {"tp=2,cp=2,tp=4", "column 11: \"tp\" was given before, at column 1"},
      {"tp=2,pp", "column 6: \"pp\" has no size; write name=size"},
      {"tp=2,", "column 6: nothing between commas"},
      {",tp=2", "column 1: nothing between commas"},
      {"tp=", "column 4: the size of \"tp\" is \"\", which is not a whole number"},
      {"tp=-", "column 4: the size of \"tp\" is \"-\", which is not a whole number"},
      {"tp=two", "column 4: the size of \"tp\" is \"two\", which is not a whole number"},
      {"tp=2x", "column 4: the size of \"tp\" is \"2x\""},
      {"tp=+2", "column 4: the size of \"tp\" is \"+2\""},
      {"tp=2=3", "column 4: the size of \"tp\" is \"2=3\""},
      {"tp=010", "column 4: the size of \"tp\" is \"010\"; write it without leading zeros"},
      {"pp=1,tp=2147483648",
       "column 9: the size of \"tp\" is 2147483648, which is out of range; the largest size is 2147483647"},
      {"tp=99999999999999999999",
       "column 4: the size of \"tp\" is 99999999999999999999, which is out of range"},
      {"dp_shard=-99999999999999999999",
       "column 10: the size of \"dp_shard\" is -99999999999999999999, which is out"},
      {std::string(256, 't'), "the mesh text has 256 bytes; at most 255 are allowed"},
  };
  for (const Case& c : cases) EXPECT_THAT(why(Degrees::parse(c.text)), HasSubstr(c.expected)) << c.text;
}

TEST(DegreesParse, SuggestsNothingForAWordThatIsFarFromEveryDim) {
  EXPECT_THAT(why(Degrees::parse("x=2")), Not(HasSubstr("did you mean")));
  EXPECT_THAT(why(Degrees::parse("q9=2")), Not(HasSubstr("did you mean")));
}

// ---- canonical text

TEST(DegreesCanonical, OmitsOnlyDomainAndExpertsAtOne) {
  EXPECT_EQ((Degrees{.dp_replicate = 2, .dp_shard = 2, .tp = 2}.canonical()),
            "pp=1,dp_replicate=2,dp_shard=2,cp=1,tp=2");
  EXPECT_EQ((Degrees{.dp_shard = 4, .domain = 2, .tp = 2, .ep = 4}.canonical()),
            "pp=1,dp_replicate=1,dp_shard=4,cp=1,domain=2,tp=2,ep=4");
}

TEST(DegreesCanonical, IsReadBackByParse) {
  const Degrees degrees{.pp = 2, .dp_replicate = 3, .dp_shard = 5, .cp = 7, .domain = 11, .tp = 13, .ep = 65};
  EXPECT_EQ(*Degrees::parse(degrees.canonical()), degrees);
  EXPECT_EQ(*Degrees::parse(Degrees{}.canonical()), Degrees{});
}

TEST(DegreesCanonical, FitsTheFieldOfTheSessionInfo) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  const Degrees degrees{kLargest, kLargest, kLargest, kLargest, kLargest, kLargest, kLargest};
  EXPECT_LT(degrees.canonical().size(), sizeof(muster_session_info::mesh));
  EXPECT_EQ(kDegreesTextBytesMax, sizeof(muster_session_info::mesh));
  EXPECT_EQ(*Degrees::parse(degrees.canonical()), degrees);
}

// ---- resolve

// Goal:   case M1: dp_shard -1 is what the other degrees leave of the world.
TEST(DegreesResolve, InfersTheShardDegree) {
  EXPECT_EQ(Degrees{}.resolve(8)->dp_shard, 8);
  EXPECT_EQ((Degrees{.dp_replicate = 2, .tp = 2}.resolve(8)->dp_shard), 2);
  EXPECT_EQ((Degrees{.dp_replicate = 4}.resolve(8)->dp_shard), 2);
  EXPECT_EQ((Degrees{.pp = 2, .cp = 2, .domain = 3, .tp = 2}.resolve(48)->dp_shard), 2);
  EXPECT_EQ((Degrees{.tp = 8}.resolve(8)->dp_shard), 1);
}

TEST(DegreesResolve, KeepsGivenDegreesAsTheyAre) {
  const Degrees degrees{.pp = 2, .dp_replicate = 1, .dp_shard = 2, .tp = 2};
  EXPECT_EQ(*degrees.resolve(8), degrees);
}

// Goal:   case M2, with the two that the wrong-variable check let through (dp_shard 0 and -2).
TEST(DegreesResolve, RefusesEachImpossibleDegreeWithItsValue) {
  struct Case {
    Degrees degrees;
    std::int64_t world;
    std::string expected;
  };
  const Case cases[] = {
      {{.dp_shard = 0}, 8, "dp_shard is 0; it must be -1 (what is left of the world) or at least 1"},
      {{.dp_shard = -2}, 8, "dp_shard is -2; it must be -1"},
      {{.dp_shard = -3}, 8, "dp_shard is -3; it must be -1"},
      {{.dp_replicate = -1}, 8, "dp_replicate is -1; it must be at least 1 (only dp_shard may be -1)"},
      {{.dp_replicate = 0}, 8, "dp_replicate is 0; it must be at least 1"},
      {{.cp = 0}, 8, "cp is 0; it must be at least 1"},
      {{.tp = 0}, 8, "tp is 0; it must be at least 1"},
      {{.tp = -1}, 8, "tp is -1; it must be at least 1"},
      {{.pp = -4}, 8, "pp is -4; it must be at least 1"},
      {{.ep = 0}, 8, "ep is 0; it must be at least 1"},
      {{.domain = 0}, 8, "domain is 0; it must be at least 1"},
      {{.dp_replicate = 2, .dp_shard = 2, .tp = 2},
       10,
       "pp 1 x dp_replicate 2 x dp_shard 2 x cp 1 x domain 1 x tp 2 = 8, but the world has 10 ranks;"},
      {{.dp_replicate = 2, .tp = 2},
       10,
       "pp 1 x dp_replicate 2 x dp_shard 2 x cp 1 x domain 1 x tp 2 = 8, but the world has 10 ranks "
       "(dp_shard -1 was "
       "taken as 10 div 4)"},
      {{.dp_replicate = 2, .tp = 2},
       2,
       "dp_shard is -1, but dp_replicate 2 x cp 1 x domain 1 x tp 2 x pp 1 = 4 already needs more than the 2 "
       "ranks"},
      {{.dp_shard = 8, .ep = 3}, 8, "ep is 3; it must divide dp_shard 8 x cp 1 x tp 1 = 8"},
      {{.dp_replicate = 2, .dp_shard = 2, .ep = 3},
       4,
       "ep is 3; it must divide dp_shard 2 x cp 1 x tp 1 = 2"},
      {{.dp_shard = 2, .domain = 4, .ep = 4}, 8, "ep is 4; it must divide dp_shard 2 x cp 1 x tp 1 = 2"},
      {{}, 0, "the world has 0 ranks; it must have 1 to 65536"},
      {{}, -8, "the world has -8 ranks"},
      {{}, kRankCountMax + 1, "the world has 65537 ranks"},
  };
  for (const Case& c : cases)
    EXPECT_THAT(why(c.degrees.resolve(c.world)), HasSubstr(c.expected))
        << c.degrees.canonical() << " in " << c.world;
}

// Goal:   the same first complaint on every rank, whatever else is wrong.
// Method: break several rules at once and repair them one by one.
TEST(DegreesResolve, ChecksInTheDocumentedOrder) {
  Degrees degrees{.pp = 0, .dp_replicate = 0, .dp_shard = -2, .cp = 0, .domain = 0, .tp = 0, .ep = 0};
  const auto next = [&](const std::string& expected) {
    EXPECT_THAT(why(degrees.resolve(4)), HasSubstr(expected));
  };
  next("dp_replicate is 0");
  degrees.dp_replicate = 2;
  next("cp is 0");
  degrees.cp = 1;
  next("tp is 0");
  degrees.tp = 1;
  next("pp is 0");
  degrees.pp = 8;
  next("ep is 0");
  degrees.ep = 3;
  next("domain is 0");
  degrees.domain = 1;
  next("dp_shard is -2");
  degrees.dp_shard = -1;
  next("= 16 already needs more than the 4 ranks");
  degrees.pp = 1;
  degrees.dp_shard = 3;
  next("= 6, but the world has 4 ranks");
  degrees.dp_shard = 2;
  next("ep is 3; it must divide");
  degrees.ep = 2;
  EXPECT_TRUE(degrees.resolve(4));
}

TEST(DegreesResolve, SurvivesProductsBeyondSixtyFourBits) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  EXPECT_THAT(why(Degrees{kLargest, kLargest, kLargest, kLargest, 1, kLargest, 1}.resolve(8)),
              HasSubstr("= more than 9.2e18, but the world has 8 ranks"));
  EXPECT_THAT(why(Degrees{kLargest, kLargest, -1, kLargest, 1, kLargest, 1}.resolve(8)),
              HasSubstr("= more than 9.2e18 already needs more"));
}

TEST(DegreesResolve, AcceptsReplicatedDataParallelismWithTensorParallelism) {
  const auto degrees = Degrees{.dp_replicate = 4, .dp_shard = 1, .tp = 2}.resolve(8);
  ASSERT_TRUE(degrees) << why(degrees);
  EXPECT_EQ(degrees->data_parallel(), Degrees::DataParallel::kDdp);
}

// ---- predicates and sequence length

TEST(Degrees, NamesTheKindOfDataParallelism) {
  const auto mode = [](Degrees degrees, std::int64_t world) {
    return std::string(data_parallel_name(degrees.resolve(world)->data_parallel()));
  };
  EXPECT_EQ(mode({.dp_replicate = 8}, 8), "ddp");
  EXPECT_EQ(mode({}, 8), "fsdp");
  EXPECT_EQ(mode({.dp_replicate = 2}, 8), "hsdp");
  EXPECT_EQ(mode({.pp = 2, .tp = 4}, 8), "none");
  EXPECT_EQ(mode({}, 1), "none");
  EXPECT_EQ(mode({.dp_replicate = 2, .cp = 2}, 4), "hsdp");  // weights are sharded over cp
}

// Goal:   case M8: cp alone shards parameters.
TEST(Degrees, ShardsParametersOverContextParallelismAlone) {
  const Degrees degrees = *Degrees{.cp = 4}.resolve(4);
  EXPECT_EQ(degrees.dp_shard, 1);
  EXPECT_TRUE(degrees.fsdp_enabled());
  EXPECT_EQ(degrees.data_parallel(), Degrees::DataParallel::kFsdp);
}

}  // namespace
}  // namespace muster::mesh
