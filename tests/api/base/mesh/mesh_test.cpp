#include "api/base/mesh/mesh.hpp"

#include <initializer_list>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::mesh {
namespace {

using ViewId = Mesh::ViewId;
using DimId = Mesh::DimId;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Mesh built(const Degrees& degrees, std::int64_t world, std::vector<Mesh::Flatten> flattens = {}) {
  auto mesh = Mesh::build(degrees, world, flattens);
  if (!mesh) {
    ADD_FAILURE() << mesh.error().text();
    std::abort();
  }
  return *std::move(mesh);
}

template<class T>
std::string why(const Result<T>& result, Code code) {
  if (result) return "(no error)";
  EXPECT_EQ(result.error().code(), code) << result.error().text();
  return result.error().message();
}

// Whether the mesh has the dim, and uses it.
bool uses(const Mesh& mesh, std::string_view name) {
  const auto id = mesh.find(name);
  return id && mesh.dim(*id).enabled;
}

Result<ViewId> slice(Mesh& mesh, std::initializer_list<std::string_view> names) {
  return mesh.slice(std::vector<std::string_view>(names));
}

// The coordinate along each basic dim, in root order.
std::vector<std::uint32_t> coordinates(const Mesh& mesh, Rank rank) {
  std::vector<std::uint32_t> all;
  for (const std::string_view name : kBasicDimNames)
    all.push_back(mesh.coordinate(rank, mesh.find(name).value()));
  return all;
}

std::uint32_t size_of(const Mesh& mesh, std::string_view name) {
  return mesh.dim(mesh.find(name).value()).size;
}

std::vector<std::uint32_t> ranks(const Mesh& mesh, std::string_view name, std::uint32_t rank) {
  std::vector<std::uint32_t> values;
  const DimId id = mesh.find(name).value();
  for (std::uint32_t c = 0; c < mesh.dim(id).size; ++c) values.push_back(mesh.moved(Rank(rank), id, c).value);
  return values;
}

std::vector<std::string> in_use(const Mesh& mesh) {
  std::vector<std::string> names;
  for (const DimId id : mesh.canonical_order())
    if (mesh.dim(id).enabled) names.push_back(mesh.dim(id).name);
  return names;
}

// All ranks of the slice through `rank`, row-major in its shape.
std::vector<Rank> ranks_of_view(const Mesh& mesh, Rank rank, ViewId id) {
  std::vector<Rank> ranks{rank};
  for (const DimId along : mesh.view(id).dims) {
    std::vector<Rank> wider;
    for (const Rank from : ranks)
      for (std::uint32_t c = 0; c < mesh.dim(along).size; ++c) wider.push_back(mesh.moved(from, along, c));
    ranks = std::move(wider);
  }
  return ranks;
}

// ---- layout of the ranks

TEST(MeshRanks, AreRowMajorWithTpInnermost) {
  const Mesh mesh = built({.pp = 2, .dp_replicate = 2, .dp_shard = 3, .cp = 2, .domain = 2, .tp = 2}, 96);
  // ((((1·2 + 0)·3 + 2)·2 + 1)·2 + 0)·2 + 1
  EXPECT_THAT(coordinates(mesh, Rank(69)), ElementsAre(1, 0, 2, 1, 0, 1));
}

// Goal:   each rank has coordinates of its own, and every dim agrees with them.
// Method: random small degrees; the coordinates are compared with an odometer that counts through the grid.
TEST(MeshRanks, RoundTripThroughCoordinatesForRandomDegrees) {
  constexpr unsigned kSeed = 20240711;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 60; ++round) {
    const auto degree = [&random] { return static_cast<std::int64_t>(1 + random() % 3); };
    const Degrees degrees{degree(), degree(), degree(), degree(), degree(), degree(), 1};
    const std::int64_t world =
        degrees.pp * degrees.dp_replicate * degrees.dp_shard * degrees.cp * degrees.domain * degrees.tp;
    const Mesh mesh = built(degrees, world);
    SCOPED_TRACE(::testing::Message()
                 << "seed " << kSeed << " round " << round << " " << degrees.canonical());
    std::vector<std::uint32_t> odometer(kBasicDimCount);
    for (std::uint32_t rank = 0; rank < mesh.world(); ++rank) {
      ASSERT_EQ(coordinates(mesh, Rank(rank)), odometer);
      for (std::size_t i = 0; i < kBasicDimCount; ++i) {
        const DimId id = mesh.find(kBasicDimNames[i]).value();
        ASSERT_EQ(mesh.moved(Rank(rank), id, odometer[i]).value, rank);
      }
      for (std::size_t i = kBasicDimCount; i-- > 0;) {
        if (++odometer[i] < size_of(mesh, kBasicDimNames[i])) break;
        odometer[i] = 0;
      }
    }
  }
}

TEST(MeshRanks, OfAGroupDifferInTheMembersOnly) {
  const Mesh mesh = built({.dp_replicate = 2, .dp_shard = 2, .tp = 2}, 8);
  EXPECT_THAT(ranks(mesh, "dp_replicate", 5), ElementsAre(1, 5));
  EXPECT_THAT(ranks(mesh, "dp_shard", 5), ElementsAre(5, 7));
  EXPECT_THAT(ranks(mesh, "tp", 5), ElementsAre(4, 5));
  EXPECT_THAT(ranks(mesh, "dp", 5), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(ranks(mesh, "weight", 5), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ranks(mesh, "cp", 5), ElementsAre(5));
  EXPECT_EQ(ranks(mesh, "world", 5).size(), 8u);
}

// ---- derived dims

TEST(MeshDims, DerivedSizesAreTheProductsOfTheirMembers) {
  const Mesh mesh = built({.pp = 2, .dp_replicate = 2, .dp_shard = 4, .cp = 2, .tp = 2}, 64);
  EXPECT_EQ(size_of(mesh, "dp"), 8u);
  EXPECT_EQ(size_of(mesh, "dp_shard_cp"), 8u);
  EXPECT_EQ(size_of(mesh, "dp_cp"), 16u);
  EXPECT_EQ(size_of(mesh, "weight"), 16u);
  EXPECT_EQ(size_of(mesh, "non_pp"), 32u);
  EXPECT_EQ(size_of(mesh, "world"), 64u);
}

TEST(MeshDims, AliasesAreTheSameHandle) {
  const Mesh mesh = built({.dp_replicate = 2, .cp = 2}, 8);
  EXPECT_EQ(mesh.find("batch").value(), mesh.find("dp").value());
  EXPECT_EQ(mesh.find("fsdp").value(), mesh.find("dp_shard_cp").value());
  EXPECT_EQ(mesh.find("loss").value(), mesh.find("dp_cp").value());
}

// Goal:   case M5 (ours): dp resolves for FSDP, DDP and HSDP alike, beside the basic names.
TEST(MeshDims, DpAlwaysResolvesBesideTheBasicNames) {
  for (const std::int64_t replicate : {1, 2, 8}) {
    const Mesh mesh = built({.dp_replicate = replicate}, 8);
    EXPECT_EQ(size_of(mesh, "dp"), 8u);
    EXPECT_EQ(size_of(mesh, "dp_replicate"), replicate);
    EXPECT_EQ(size_of(mesh, "dp_shard"), 8u / replicate);
    EXPECT_TRUE(uses(mesh, "dp"));
    for (std::uint32_t rank = 0; rank < 8; ++rank)
      EXPECT_EQ(mesh.coordinate(Rank(rank), mesh.find("dp").value()), rank);
  }
}

TEST(MeshDims, LoaderPlaceIsReplicateTimesShardsPlusShard) {
  const Mesh mesh = built({.pp = 2, .dp_replicate = 2, .dp_shard = 4, .cp = 2, .tp = 2}, 64);
  const DimId dp = mesh.find("dp").value();
  for (std::uint32_t rank = 0; rank < 64; ++rank) {
    const std::vector<std::uint32_t> at = coordinates(mesh, Rank(rank));
    EXPECT_EQ(mesh.coordinate(Rank(rank), dp), at[1] * 4 + at[2]);
  }
}

// Goal:   parameters are replicated over domain, so weight and dp_cp leave it out and non_pp has it.
TEST(MeshDims, DomainMultipliesTheWorldAndOnlyNonPpContainsIt) {
  const Mesh mesh = built({.dp_shard = 2, .domain = 2, .tp = 2}, 8);
  EXPECT_THAT(ranks(mesh, "domain", 5), ElementsAre(5, 7));
  EXPECT_THAT(ranks(mesh, "weight", 2), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(ranks(mesh, "dp_cp", 3), ElementsAre(3, 7));
  EXPECT_EQ(size_of(mesh, "non_pp"), 8u);
}

// ---- absent dims

// Goal:   case M3: neither one dp nor two.
TEST(MeshLookup, HasNoDataParallelDimWhenTheWorldIsTpTimesPp) {
  const Mesh mesh = built({.pp = 2, .tp = 4}, 8);
  EXPECT_THAT(in_use(mesh), ElementsAre("pp", "tp", "dp_shard_cp", "weight", "non_pp", "efsdp", "world"));
  for (const char* name : {"dp", "dp_cp"}) EXPECT_FALSE(uses(mesh, name)) << name;
  const DimId dp = mesh.find("dp").value();
  EXPECT_EQ(mesh.dim(dp).size, 1u);
  for (std::uint32_t rank = 0; rank < 8; ++rank) EXPECT_EQ(mesh.coordinate(Rank(rank), dp), 0u);
}

// Goal:   case M4: one rank has no groups; names that are known and unknown ones.
TEST(MeshLookup, OfAWorldOfOneIsNullForEveryName) {
  const Mesh mesh = built({}, 1);
  EXPECT_TRUE(in_use(mesh).empty());
  for (const std::string_view name :
       {"pp", "dp_replicate", "dp_shard", "cp", "domain", "tp", "dp", "batch", "dp_shard_cp", "fsdp", "dp_cp",
        "loss", "weight", "non_pp", "efsdp", "ep", "world"}) {
    ASSERT_TRUE(mesh.find(name)) << name;
    EXPECT_FALSE(uses(mesh, name)) << name;
  }
  EXPECT_THAT(why(mesh.find("bogus"), Code::kNotFound), HasSubstr("no dim \"bogus\""));
}

TEST(MeshLookup, ListsTheValidNamesForAnInvalidOne) {
  const Mesh mesh = built({}, 8, {{"mine", {"dp_shard", "tp"}}});
  const std::string text = why(mesh.find("dp_shardd"), Code::kNotFound);
  EXPECT_THAT(text, HasSubstr("has no dim \"dp_shardd\"; did you mean \"dp_shard\"? Valid names: pp, "));
  EXPECT_THAT(
      text,
      HasSubstr("Valid names: pp, dp_replicate, dp_shard, cp, domain, tp, dp, batch, dp_shard_cp, fsdp, "
                "dp_cp, loss, weight, non_pp, efsdp, ep, world, mine"));
  EXPECT_FALSE(mesh.find(""));
}

TEST(MeshLookup, KeepsTheShardDimOfSizeOneAlive) {
  const Mesh mesh = built({.tp = 8}, 8);
  EXPECT_TRUE(uses(mesh, "fsdp"));
  EXPECT_EQ(size_of(mesh, "fsdp"), 1u);
  EXPECT_FALSE(uses(mesh, "dp_shard"));
}

// Goal:   case M8: cp 4 is a shard dim of 4, and the loader has degree 1.
TEST(MeshLookup, ContextParallelismAloneHasAShardDimAndNoLoaderDim) {
  const Mesh mesh = built({.cp = 4}, 4);
  EXPECT_EQ(size_of(mesh, "fsdp"), 4u);
  EXPECT_EQ(size_of(mesh, "loss"), 4u);
  EXPECT_EQ(size_of(mesh, "dp"), 1u);
  EXPECT_FALSE(uses(mesh, "dp"));
}

// ---- experts

// Goal:   case M10: ep 4 of dp_shard 4 and tp 2 leaves efsdp 2; ep 3 does not divide.
TEST(MeshExperts, CutTheWeightRanksAnew) {
  const Mesh mesh = built({.dp_shard = 4, .tp = 2, .ep = 4}, 8);
  EXPECT_EQ(size_of(mesh, "efsdp"), 2u);
  EXPECT_EQ(size_of(mesh, "ep"), 4u);
  EXPECT_THAT(ranks(mesh, "ep", 2), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ranks(mesh, "ep", 7), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ranks(mesh, "efsdp", 4), ElementsAre(0, 4));
  EXPECT_THAT(ranks(mesh, "efsdp", 3), ElementsAre(3, 7));
  EXPECT_THAT(why(Mesh::build({.dp_replicate = 2, .dp_shard = 2, .ep = 3}, 4), Code::kConfig),
              HasSubstr("ep is 3"));
}

TEST(MeshExperts, StayInsideTheirReplicaAndStage) {
  const Mesh mesh = built({.pp = 2, .dp_replicate = 2, .dp_shard = 4, .ep = 2}, 16);
  EXPECT_THAT(ranks(mesh, "ep", 13), ElementsAre(12, 13));
  EXPECT_THAT(ranks(mesh, "efsdp", 13), ElementsAre(13, 15));
}

// Goal:   with a domain dim between cp and tp the expert ranks are no longer evenly spaced; ep x efsdp still
//         covers exactly the weight ranks, each once.
TEST(MeshExperts, CoverTheWeightRanksOnceBesideADomainDim) {
  Mesh mesh = built({.dp_shard = 3, .domain = 2, .tp = 2, .ep = 3}, 12);
  EXPECT_THAT(ranks(mesh, "ep", 0), ElementsAre(0, 1, 4));
  EXPECT_THAT(ranks(mesh, "ep", 9), ElementsAre(5, 8, 9));
  EXPECT_THAT(ranks(mesh, "efsdp", 9), ElementsAre(4, 9));
  const ViewId view = slice(mesh, {"efsdp", "ep"}).value();
  std::vector<std::uint32_t> seen;
  for (const Rank rank : ranks_of_view(mesh, Rank(6), view)) seen.push_back(rank.value);
  EXPECT_EQ(seen, ranks(mesh, "weight", 6));
}

TEST(MeshExperts, KeepEfsdpOfSizeOneAliveAndOfAllWeightRanksWithoutExperts) {
  const Mesh experts = built({.dp_shard = 4, .ep = 4}, 4);
  EXPECT_TRUE(uses(experts, "efsdp"));
  EXPECT_EQ(size_of(experts, "efsdp"), 1u);
  const Mesh none = built({.dp_replicate = 2, .dp_shard = 2, .tp = 2}, 8);
  ASSERT_TRUE(uses(none, "efsdp"));
  EXPECT_EQ(size_of(none, "efsdp"), 4u);
  for (std::uint32_t rank = 0; rank < 8; ++rank)
    EXPECT_EQ(ranks(none, "efsdp", rank), ranks(none, "weight", rank)) << rank;
  const Mesh replicas = built({.dp_replicate = 4}, 4);
  EXPECT_EQ(size_of(replicas, "efsdp"), 1u);
  EXPECT_FALSE(uses(replicas, "efsdp"));
  EXPECT_EQ(size_of(none, "ep"), 1u);
}

// ---- flatten

TEST(MeshFlatten, IsIdempotentForTheSameMembers) {
  Mesh mesh =
      built({.dp_replicate = 2, .dp_shard = 2, .tp = 2}, 8, {{"dp_tp", {"dp_replicate", "dp_shard", "tp"}}});
  const std::vector<std::string> members{"dp_replicate", "dp_shard", "tp"};
  const DimId first = mesh.find("dp_tp").value();
  EXPECT_EQ(mesh.flatten("dp_tp", members).value(), first);
  EXPECT_EQ(mesh.dim(first).size, 8u);
  EXPECT_EQ(mesh.dim(first).kind, Mesh::Dim::Kind::kFlatten);
  const std::size_t dims = mesh.dim_count();
  const std::vector<std::string> dp{"dp_replicate", "dp_shard"};
  EXPECT_EQ(mesh.flatten("dp", dp).value(), mesh.find("dp").value());
  EXPECT_EQ(mesh.flatten("batch", dp).value(), mesh.find("dp").value());
  const std::vector<std::string> tp{"tp"};
  EXPECT_EQ(mesh.flatten("tp", tp).value(), mesh.find("tp").value());
  EXPECT_EQ(mesh.dim_count(), dims);
}

TEST(MeshFlatten, AcceptsFlattenedMembersAndDimsOfSizeOneBetweenThem) {
  Mesh mesh = built({.dp_replicate = 2, .dp_shard = 2, .tp = 2}, 8);
  const std::vector<std::string> members{"dp", "tp"};  // cp and domain have size 1
  const DimId id = mesh.flatten("dp_tp", members).value();
  EXPECT_EQ(mesh.dim(id).size, 8u);
  const std::vector<std::string> spelled{"dp_replicate", "dp_shard", "tp"};
  EXPECT_EQ(mesh.flatten("dp_tp", spelled).value(), id);
}

// Goal:   case M9, and every rule of the table of derived dims.
TEST(MeshFlatten, RefusesEachMistakeWithItsValues) {
  struct Case {
    Mesh::Flatten flatten;
    std::string expected;
  };
  const Case cases[] = {
      {{"", {"cp", "tp"}}, "is named \"\"; give it a name"},
      {{"Upper", {"cp", "tp"}}, "is named \"Upper\""},
      {{"9lives", {"cp", "tp"}}, "is named \"9lives\""},
      {{"with space", {"cp", "tp"}}, "is named \"with space\""},
      {{std::string(64, 'n'), {"cp", "tp"}}, "a name of 1 to 63"},
      {{"mine", {}}, "flatten \"mine\" has no members"},
      {{"mine", {"cp", "tpp"}},
       "flatten \"mine\": mesh pp=1,dp_replicate=2,dp_shard=2,cp=2,tp=2 has no dim \"tpp\""},
      {{"mine", {"tp", "cp"}}, "flatten \"mine\": \"cp\" may not follow \"tp\""},
      {{"mine", {"cp", "cp"}}, "\"cp\" may not follow \"cp\""},
      {{"mine", {"dp", "dp_shard"}}, "\"dp_shard\" may not follow \"dp\""},
      {{"mine", {"dp_shard", "tp"}}, "flatten \"mine\" of dp_shard, tp: cp (size 2) lies between them"},
      {{"mine", {"dp_replicate", "ep"}}, "\"ep\" belongs to the expert view"},
      {{"tp", {"cp", "tp"}}, "flatten \"tp\" of cp, tp: that is the name of a basic dim"},
      {{"pp", {"tp"}}, "that is the name of a basic dim"},
      {{"dp", {"dp_shard", "cp"}},
       "flatten \"dp\" of dp_shard, cp: the name stands for dp_replicate, dp_shard already"},
      {{"fsdp", {"cp", "tp"}}, "the name stands for dp_shard, cp already"},
      {{"world", {"cp", "tp"}}, "the name stands for pp, dp_replicate, dp_shard, cp, domain, tp already"},
      {{"ep", {"cp", "tp"}}, "that name belongs to the expert view"},
      {{"efsdp", {"dp_shard", "cp", "tp"}}, "that name belongs to the expert view"},
      {{"taken", {"cp", "tp"}}, "the name stands for dp_shard, cp already"},
  };
  for (const Case& c : cases) {
    const std::vector<Mesh::Flatten> flattens{{"taken", {"dp_shard", "cp"}}, c.flatten};
    EXPECT_THAT(
        why(Mesh::build({.dp_replicate = 2, .dp_shard = 2, .cp = 2, .tp = 2}, 16, flattens), Code::kConfig),
        HasSubstr(c.expected));
  }
}

// Goal:   an error of flatten() in a running job names the mistake: the name, the dims, or the room.
TEST(MeshFlatten, SortsMistakesByTheirCure) {
  Mesh mesh = built({.dp_replicate = 2, .dp_shard = 2, .cp = 2, .tp = 2}, 16);
  const auto why_not = [&mesh](const char* name, std::vector<std::string> members, Code code) {
    return why(mesh.flatten(name, members), code);
  };
  EXPECT_THAT(why_not("mine", {"dp", "tpp"}, Code::kNotFound), HasSubstr("Valid names: pp, dp_replicate,"));
  EXPECT_THAT(why_not("mine", {"tp", "dp"}, Code::kBadArgument), HasSubstr("\"dp\" may not follow \"tp\""));
  EXPECT_THAT(why_not("mine", {"dp", "tp"}, Code::kBadArgument), HasSubstr("cp (size 2) lies between"));
  EXPECT_THAT(why_not("tp", {"cp", "tp"}, Code::kBadArgument), HasSubstr("name of a basic dim"));
  EXPECT_FALSE(mesh.find("mine"));
  for (std::size_t i = 0; i < kFlattenCountMax; ++i)
    ASSERT_TRUE(mesh.flatten(fmt::format("flat_{}", i), std::vector<std::string>{"cp", "tp"}));
  EXPECT_THAT(why_not("mine", {"cp", "tp"}, Code::kNoResource), HasSubstr("has 32 flattens already"));
}

TEST(MeshFlatten, FoldsDomainIntoTheShardDim) {
  const Mesh mesh =
      built({.dp_shard = 2, .domain = 2, .tp = 2}, 8, {{"shard_domain", {"dp_shard", "cp", "domain"}}});
  EXPECT_THAT(ranks(mesh, "shard_domain", 5), ElementsAre(1, 3, 5, 7));
}

TEST(MeshFlatten, HasALimit) {
  std::vector<Mesh::Flatten> flattens;
  for (std::size_t i = 0; i < kFlattenCountMax; ++i)
    flattens.push_back({fmt::format("flat_{}", i), {"cp", "tp"}});
  EXPECT_TRUE(Mesh::build({}, 8, flattens));
  flattens.push_back({"one_more", {"cp", "tp"}});
  EXPECT_THAT(why(Mesh::build({}, 8, flattens), Code::kConfig),
              HasSubstr("\"one_more\": the mesh has 32 flattens already"));
}

// ---- slice

// Goal:   case M9: a slice of [dp_replicate, dp_shard_cp] has shape (2, 4).
TEST(MeshSlice, TakesAFlattenedDimBesideABasicOne) {
  Mesh mesh = built({.dp_replicate = 2, .dp_shard = 2, .cp = 2}, 8);
  const ViewId id = slice(mesh, {"dp_replicate", "dp_shard_cp"}).value();
  EXPECT_THAT(mesh.view(id).shape, ElementsAre(2, 4));
  EXPECT_THAT(ranks_of_view(mesh, Rank(6), id),
              ElementsAre(Rank(0), Rank(1), Rank(2), Rank(3), Rank(4), Rank(5), Rank(6), Rank(7)));
}

// Goal:   a slice knows its dims and the names of their products, whatever the degrees, and no other name.
TEST(MeshSlice, HasTheNamesOfItsDimsAndOfTheirProducts) {
  for (const std::int64_t cp : {1, 2}) {
    Mesh mesh = built({.pp = 2, .dp_replicate = 2, .dp_shard = 2, .cp = cp, .tp = 2}, 16 * cp,
                      {{"rows", {"dp_replicate", "dp_shard", "cp"}}, {"stages", {"pp", "dp_replicate"}}});
    const auto names = [&mesh](ViewId slice) {
      std::vector<std::string> known;
      for (std::uint32_t i = 0; i < mesh.dim_count(); ++i) {
        const Mesh::Dim& dim = mesh.dim(DimId(i));
        if (mesh.find(slice, dim.name)) known.push_back(dim.name);
        if (!dim.alias.empty() && mesh.find(slice, dim.alias)) known.push_back(dim.alias);
      }
      return known;
    };
    const ViewId hsdp = slice(mesh, {"dp_replicate", "dp_shard_cp"}).value();
    EXPECT_THAT(names(hsdp), ElementsAre("dp_replicate", "dp_shard_cp", "fsdp", "dp_cp", "loss", "rows"));
    EXPECT_EQ(mesh.find(hsdp, "loss").value(), mesh.find("dp_cp").value());
    EXPECT_THAT(names(slice(mesh, {"pp", "dp_replicate", "tp"}).value()),
                ElementsAre("pp", "dp_replicate", "tp", "stages"));
    EXPECT_THAT(names(slice(mesh, {"dp_replicate", "efsdp"}).value()), ElementsAre("dp_replicate", "efsdp"));
    EXPECT_THAT(names(slice(mesh, {"weight"}).value()), ElementsAre("weight"));
    for (const char* other : {"dp_shard", "bogus"})
      EXPECT_THAT(
          why(mesh.find(hsdp, other), Code::kNotFound),
          HasSubstr(fmt::format("slice [dp_replicate, dp_shard_cp] of mesh {} has no dim \"{}\"; valid "
                                "names: dp_replicate, dp_shard_cp, fsdp, dp_cp, loss, rows",
                                mesh.degrees().canonical(), other)));
  }
}

TEST(MeshSlice, GivesTheSameHandleForTheSameNames) {
  Mesh mesh = built({.dp_replicate = 2, .dp_shard = 2, .tp = 2}, 8);
  const ViewId first = slice(mesh, {"dp_replicate", "fsdp"}).value();
  const ViewId other = slice(mesh, {"dp_replicate", "tp"}).value();
  EXPECT_NE(first, other);
  EXPECT_EQ(slice(mesh, {"dp_replicate", "dp_shard_cp"}).value(), first);
  EXPECT_EQ(slice(mesh, {"dp_replicate", "tp"}).value(), other);
  EXPECT_THAT(ranks_of_view(mesh, Rank(7), other), ElementsAre(Rank(2), Rank(3), Rank(6), Rank(7)));
}

// Goal:   slices are bounded; what was sliced before still resolves when the table is full.
// Method: 16 names for pp and 16 for tp times the subsets of the four dims between fill the table exactly.
TEST(MeshSlice, HasALimit) {
  std::vector<Mesh::Flatten> flattens;
  for (int i = 0; i < 16; ++i) {
    flattens.push_back({fmt::format("outer_{}", i), {"pp"}});
    flattens.push_back({fmt::format("inner_{}", i), {"tp"}});
  }
  Mesh mesh = built({}, 8, flattens);
  const ViewId first = slice(mesh, {"outer_0", "inner_0"}).value();
  for (std::size_t i = 0; i < kViewCountMax; ++i) {
    std::vector<std::string> names{fmt::format("outer_{}", i % 16), fmt::format("inner_{}", i / 16 % 16)};
    for (std::size_t between = 0; between < 4; ++between)
      if ((i / 256 >> between & 1u) != 0)
        names.insert(names.end() - 1, std::string(kBasicDimNames[1 + between]));
    const std::vector<std::string_view> views(names.begin(), names.end());
    ASSERT_TRUE(mesh.slice(views)) << i;
  }
  EXPECT_THAT(why(slice(mesh, {"outer_0"}), Code::kNoResource), HasSubstr("has 4096 slices already"));
  EXPECT_EQ(slice(mesh, {"outer_0", "inner_0"}).value(), first);
}

TEST(MeshSlice, KeepsDimsOfSizeOneInItsShape) {
  Mesh mesh = built({.dp_shard = 4}, 4);
  EXPECT_THAT(mesh.view(slice(mesh, {"dp_replicate", "fsdp"}).value()).shape, ElementsAre(1, 4));
}

TEST(MeshSlice, TakesTheExpertViewWithWhatLiesOutsideOfIt) {
  Mesh mesh = built({.pp = 2, .dp_replicate = 2, .dp_shard = 4, .tp = 2, .ep = 4}, 32);
  const ViewId experts = slice(mesh, {"dp_replicate", "efsdp"}).value();
  EXPECT_THAT(mesh.view(experts).shape, ElementsAre(2, 2));
  EXPECT_THAT(ranks_of_view(mesh, Rank(17), experts), ElementsAre(Rank(17), Rank(21), Rank(25), Rank(29)));
  EXPECT_THAT(mesh.view(slice(mesh, {"pp", "dp_replicate", "efsdp", "ep"}).value()).shape,
              ElementsAre(2, 2, 2, 4));
}

TEST(MeshSlice, RefusesEachMistakeWithItsNames) {
  Mesh mesh = built({.dp_replicate = 2, .dp_shard = 2, .cp = 2, .tp = 2, .ep = 2}, 16);
  const auto why_not = [&mesh](std::initializer_list<std::string_view> names,
                               Code code = Code::kBadArgument) { return why(mesh.slice(names), code); };
  EXPECT_THAT(why_not({"tp", "dp_shard"}), HasSubstr("may not name \"dp_shard\" after \"tp\""));
  EXPECT_THAT(why_not({"tp", "dp"}), HasSubstr("may not name \"dp\" after \"tp\""));
  EXPECT_THAT(why_not({"tp", "tp"}), HasSubstr("may not name \"tp\" after \"tp\""));
  EXPECT_THAT(why_not({"dp", "dp_shard"}), HasSubstr("may not name \"dp_shard\" after \"dp\""));
  EXPECT_THAT(why_not({"dp", "dp_shard_cp"}), HasSubstr("may not name \"dp_shard_cp\" after \"dp\""));
  EXPECT_THAT(why_not({"ep", "efsdp"}), HasSubstr("may not name \"efsdp\" after \"ep\""));
  EXPECT_THAT(why_not({"efsdp", "efsdp"}), HasSubstr("may not name \"efsdp\" after \"efsdp\""));
  EXPECT_THAT(why_not({"efsdp", "dp_replicate"}), HasSubstr("may not name \"dp_replicate\" after \"efsdp\""));
  EXPECT_THAT(why_not({"efsdp", "tp"}), HasSubstr("may not combine \"tp\" with \"efsdp\""));
  EXPECT_THAT(why_not({"dp_shard", "ep"}), HasSubstr("may not combine \"dp_shard\" with \"ep\""));
  EXPECT_THAT(why_not({}), HasSubstr("needs at least one dim"));
  EXPECT_THAT(why_not({"pp", "tp", "tp", "tp", "tp", "tp", "tp"}), HasSubstr("a slice of 7 dims"));
  EXPECT_THAT(why_not({"pp", "dp_tp"}, Code::kNotFound), HasSubstr("no dim \"dp_tp\""));
}

}  // namespace
}  // namespace muster::mesh
