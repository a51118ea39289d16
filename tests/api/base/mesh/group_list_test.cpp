#include "api/base/mesh/group_list.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::mesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Set = std::vector<std::uint32_t>;

GroupList listed(const Degrees& degrees, std::int64_t world, std::vector<Mesh::Flatten> flattens = {}) {
  const auto mesh = Mesh::build(degrees, world, flattens);
  if (!mesh) {
    ADD_FAILURE() << mesh.error().text();
    std::abort();
  }
  return GroupList(*mesh);
}

Set ranks_of(const GroupList& list, GroupId id) {
  Set ranks;
  for (const Rank rank : list.group(id).ranks) ranks.push_back(rank.value);
  return ranks;
}

std::optional<GroupId> group_of(const GroupList& list, std::uint32_t rank, std::string_view dim) {
  return list.group_of(Rank(rank), list.mesh().find(dim).value());
}

Set ranks_of(const GroupList& list, std::string_view name, std::uint32_t rank) {
  const auto id = group_of(list, rank, name);
  return id ? ranks_of(list, *id) : Set{rank};
}

// Independent of the code under test: two ranks share a set of `members` if all their other coordinates are
// equal.
std::set<Set> sets_of(const Degrees& d, std::uint32_t world, const std::set<std::string>& members) {
  std::map<std::vector<std::int64_t>, Set> by_others;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    std::vector<std::int64_t> others;
    std::int64_t rest = rank;
    const std::pair<const char*, std::int64_t> innermost_first[] = {{"tp", d.tp},
                                                                    {"domain", d.domain},
                                                                    {"cp", d.cp},
                                                                    {"dp_shard", d.dp_shard},
                                                                    {"dp_replicate", d.dp_replicate},
                                                                    {"pp", d.pp}};
    for (const auto& [name, size] : innermost_first) {
      if (!members.contains(name)) others.push_back(rest % size);
      rest /= size;
    }
    by_others[others].push_back(rank);
  }
  std::set<Set> sets;
  for (auto& [others, ranks] : by_others)
    if (ranks.size() > 1) sets.insert(std::move(ranks));
  return sets;
}

const std::vector<std::pair<std::string, std::set<std::string>>> kMembers{
    {"pp", {"pp"}},
    {"dp_replicate", {"dp_replicate"}},
    {"dp_shard", {"dp_shard"}},
    {"cp", {"cp"}},
    {"domain", {"domain"}},
    {"tp", {"tp"}},
    {"dp", {"dp_replicate", "dp_shard"}},
    {"dp_shard_cp", {"dp_shard", "cp"}},
    {"dp_cp", {"dp_replicate", "dp_shard", "cp"}},
    {"weight", {"dp_shard", "cp", "tp"}},
    {"non_pp", {"dp_replicate", "dp_shard", "cp", "domain", "tp"}},
    {"world", {"pp", "dp_replicate", "dp_shard", "cp", "domain", "tp"}}};

std::set<Set> all_sets_of(const Degrees& degrees, std::uint32_t world) {
  std::set<Set> all;
  for (const auto& [name, members] : kMembers) all.merge(sets_of(degrees, world, members));
  return all;
}

std::set<Set> sets_in(const GroupList& list) {
  std::set<Set> sets;
  for (std::uint32_t i = 0; i < list.size(); ++i) sets.insert(ranks_of(list, GroupId(i)));
  return sets;
}

// ---- the table of communicator counts

struct Row {
  const char* name;
  Degrees degrees;
  std::int64_t world;
  std::size_t per_rank;
  std::size_t cluster_wide;
};

class GroupCounts : public ::testing::TestWithParam<Row> {};

// Goal:   case M6: so many groups has a rank, and so many all ranks have; aliases are one.
TEST_P(GroupCounts, AreThoseOfTheTable) {
  const Row& row = GetParam();
  const GroupList list = listed(row.degrees, row.world);
  EXPECT_EQ(list.size(), row.cluster_wide);
  for (std::uint32_t rank = 0; rank < list.mesh().world(); ++rank)
    EXPECT_EQ(list.count_of(Rank(rank)), row.per_rank) << "rank " << rank;
  EXPECT_EQ(sets_in(list), all_sets_of(list.mesh().degrees(), list.mesh().world()));
}

INSTANTIATE_TEST_SUITE_P(
    Table, GroupCounts,
    ::testing::Values(Row{"Fsdp8", {}, 8, 1, 1}, Row{"Ddp8", {.dp_replicate = 8}, 8, 1, 1},
                      Row{"Tp8", {.tp = 8}, 8, 1, 1}, Row{"HsdpR2F4", {.dp_replicate = 2}, 8, 3, 7},
                      Row{"F4Tp2", {.tp = 2}, 8, 3, 7},
                      Row{"HsdpR2F2Tp2", {.dp_replicate = 2, .tp = 2}, 8, 6, 17},
                      Row{"Pp2F2Tp2", {.pp = 2, .tp = 2}, 8, 5, 15},
                      Row{"F2Cp2Tp2", {.cp = 2, .tp = 2}, 8, 5, 15},
                      Row{"Pp2Tp4", {.pp = 2, .tp = 4}, 8, 3, 7},
                      Row{"Pp2R2F4Cp2Tp2", {.pp = 2, .dp_replicate = 2, .cp = 2, .tp = 2}, 64, 11, 171},
                      Row{"R4F8Tp8", {.dp_replicate = 4, .tp = 8}, 256, 6, 141},
                      Row{"Cp4", {.cp = 4}, 4, 1, 1}, Row{"One", {}, 1, 0, 0}),
    [](const ::testing::TestParamInfo<Row>& row) { return std::string(row.param.name); });

TEST(GroupList, HoldsTheRankSetsThatTheTableSpellsOut) {
  const GroupList hsdp = listed({.dp_replicate = 2, .tp = 2}, 8);
  EXPECT_EQ(ranks_of(hsdp, "dp_replicate", 0), (Set{0, 4}));
  EXPECT_EQ(ranks_of(hsdp, "dp_shard", 0), (Set{0, 2}));
  EXPECT_EQ(ranks_of(hsdp, "dp", 0), (Set{0, 2, 4, 6}));
  EXPECT_EQ(ranks_of(hsdp, "weight", 5), (Set{4, 5, 6, 7}));
  const GroupList fsdp_tp = listed({.tp = 2}, 8);
  EXPECT_EQ(ranks_of(fsdp_tp, "dp_shard", 3), (Set{1, 3, 5, 7}));
  EXPECT_EQ(group_of(fsdp_tp, 0, "weight"), group_of(fsdp_tp, 0, "world"));
  const GroupList pipeline = listed({.pp = 2, .tp = 2}, 8);
  EXPECT_EQ(group_of(pipeline, 5, "weight"), group_of(pipeline, 5, "non_pp"));
  EXPECT_EQ(ranks_of(pipeline, "non_pp", 5), (Set{4, 5, 6, 7}));
  const GroupList context = listed({.cp = 2, .tp = 2}, 8);
  EXPECT_EQ(ranks_of(context, "dp_shard_cp", 0), (Set{0, 2, 4, 6}));
}

// ---- names

TEST(GroupList, GivesOneGroupAllItsNames) {
  const GroupList list = listed({}, 8);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list.group(GroupId(0)).name, "dp_shard");
  EXPECT_THAT(list.names(GroupId(0)), ElementsAre("dp_shard", "dp", "batch", "dp_shard_cp", "fsdp", "dp_cp",
                                                  "loss", "weight", "non_pp", "efsdp", "world"));
}

TEST(GroupList, IsInCanonicalOrder) {
  const GroupList list = listed({.pp = 2, .dp_replicate = 2, .dp_shard = 4, .cp = 2, .tp = 2, .ep = 8}, 64,
                                {{"cp_tp", {"cp", "tp"}}, {"all_dp", {"dp_replicate", "dp_shard", "cp"}}});
  std::vector<std::string> order;
  std::uint32_t lowest_before = 0;
  for (std::uint32_t i = 0; i < list.size(); ++i) {
    const GroupList::Group group = list.group(GroupId(i));
    EXPECT_EQ(group.id.value, i);
    EXPECT_TRUE(std::is_sorted(group.ranks.begin(), group.ranks.end()));
    if (order.empty() || order.back() != group.name) {
      order.emplace_back(group.name);
      lowest_before = 0;
    }
    EXPECT_GE(group.ranks.front().value, lowest_before) << group.name;
    lowest_before = group.ranks.front().value;
  }
  // all_dp is dp_cp again, so it comes first nowhere.
  EXPECT_THAT(order, ElementsAre("pp", "dp_replicate", "dp_shard", "cp", "tp", "dp", "dp_shard_cp", "dp_cp",
                                 "weight", "non_pp", "cp_tp", "efsdp", "ep", "world"));
  EXPECT_EQ(group_of(list, 9, "all_dp"), group_of(list, 9, "loss"));
}

TEST(GroupList, KnowsEachRanksGroupByName) {
  const GroupList list = listed({.dp_replicate = 2, .tp = 2}, 8);
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    for (const auto& [name, members] : kMembers) {
      const Set ranks = ranks_of(list, name, rank);
      EXPECT_TRUE(std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) << name;
      for (const std::uint32_t other : ranks) EXPECT_EQ(ranks_of(list, name, other), ranks) << name;
    }
  }
  EXPECT_FALSE(group_of(list, 3, "cp").has_value());
  EXPECT_FALSE(group_of(list, 3, "ep").has_value());
  EXPECT_EQ(group_of(list, 3, "batch"), group_of(list, 3, "dp"));
  const auto bogus = list.mesh().find("bogus");
  ASSERT_FALSE(bogus);
  EXPECT_EQ(bogus.error().code(), Code::kNotFound);
  EXPECT_THAT(bogus.error().message(), HasSubstr("valid names: pp,"));
}

// Goal:   case M10: the groups of ep and efsdp.
TEST(GroupList, HasTheExpertViewOrWithoutExpertsTheWeightRanks) {
  const GroupList experts = listed({.dp_shard = 4, .tp = 2, .ep = 4}, 8);
  EXPECT_EQ(ranks_of(experts, "ep", 6), (Set{4, 5, 6, 7}));
  EXPECT_EQ(ranks_of(experts, "efsdp", 6), (Set{2, 6}));
  EXPECT_EQ(experts.size(), 7u + 2u + 4u);
  EXPECT_EQ(experts.count_of(Rank(0)), 5u);
  const GroupList none = listed({.dp_shard = 4, .tp = 2}, 8);
  EXPECT_EQ(group_of(none, 5, "efsdp"), group_of(none, 5, "weight"));
  EXPECT_FALSE(group_of(none, 5, "ep"));
}

// Goal:   sets of efsdp and ep that coincide with other dims' sets are the same groups.
TEST(GroupList, SharesTheGroupsOfExpertsWithTensorParallelism) {
  const GroupList list = listed({.dp_shard = 4, .tp = 2, .ep = 2}, 8);
  EXPECT_EQ(list.size(), 7u);
  EXPECT_EQ(group_of(list, 5, "ep"), group_of(list, 5, "tp"));
  EXPECT_EQ(group_of(list, 5, "efsdp"), group_of(list, 5, "dp_shard"));
}

// Goal:   the list is the union of all sets, each once, for shapes that nobody chose.
// Method: random degrees; sets computed from coordinates alone.
TEST(GroupList, EqualsTheSetsFromCoordinatesForRandomDegrees) {
  constexpr unsigned kSeed = 77003;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 40; ++round) {
    const auto degree = [&random] { return static_cast<std::int64_t>(1 + random() % 3); };
    const Degrees degrees{degree(), degree(), degree(), degree(), degree(), degree(), 1};
    const std::int64_t world =
        degrees.pp * degrees.dp_replicate * degrees.dp_shard * degrees.cp * degrees.domain * degrees.tp;
    SCOPED_TRACE(::testing::Message()
                 << "seed " << kSeed << " round " << round << " " << degrees.canonical());
    const GroupList list = listed(degrees, world);
    const std::set<Set> expected = all_sets_of(degrees, static_cast<std::uint32_t>(world));
    ASSERT_EQ(list.size(), expected.size());
    ASSERT_EQ(sets_in(list), expected);
    for (const auto& [name, members] : kMembers)
      for (const Set& set : sets_of(degrees, static_cast<std::uint32_t>(world), members))
        ASSERT_EQ(ranks_of(list, name, set.back()), set) << name;
  }
}

TEST(GroupList, ScalesToFourThousandRanks) {
  const GroupList list = listed({.pp = 4, .dp_replicate = 4, .cp = 4, .tp = 8, .ep = 16}, 4096);
  // F = 8. basic: 1024 + 1024 + 512 + 1024 + 512; dp 128, dp_shard_cp 128, dp_cp 32, weight 16, non_pp 4;
  // efsdp 256, ep 256; world 1.
  EXPECT_EQ(list.size(), 4096u + 128 + 128 + 32 + 16 + 4 + 256 + 256 + 1);
  for (const std::uint32_t rank : {0u, 1u, 2047u, 4095u}) EXPECT_EQ(list.count_of(Rank(rank)), 13u);
  EXPECT_EQ(ranks_of(list, "pp", 4095), (Set{1023, 2047, 3071, 4095}));
}

// ---- manifest

TEST(GroupListHash, IsEqualForEqualMeshesHoweverTheyWereWritten) {
  const Hash128 hash = listed({.dp_replicate = 2, .dp_shard = -1, .tp = 2}, 8).hash();
  EXPECT_EQ(listed(*Degrees::parse("tp=2,dp_shard=2,dp_replicate=2"), 8).hash(), hash);
  EXPECT_EQ(listed({.dp_replicate = 2, .tp = 2}, 8, {{"dp", {"dp_replicate", "dp_shard"}}}).hash(), hash);
  EXPECT_EQ(hash.hex().size(), 32u);
}

// Goal:   nothing that ranks could disagree about is left out, also where the rank sets are the same.
TEST(GroupListHash, DiffersForEveryDifferenceOfTheMesh) {
  std::set<std::string> hashes;
  const auto add = [&hashes](const GroupList& list) {
    EXPECT_TRUE(hashes.insert(list.hash().hex()).second) << list.manifest();
  };
  add(listed({}, 8));
  add(listed({}, 16));
  add(listed({.dp_replicate = 8}, 8));
  add(listed({.tp = 8}, 8));
  add(listed({.cp = 8}, 8));
  add(listed({.domain = 8}, 8));
  add(listed({.pp = 8}, 8));
  add(listed({.ep = 2}, 8));
  add(listed({.ep = 4}, 8));
  add(listed({}, 8, {{"mine", {"dp_shard", "cp"}}}));
  add(listed({}, 8, {{"yours", {"dp_shard", "cp"}}}));
  add(listed({}, 8, {{"mine", {"dp_shard"}}}));
  add(listed({}, 8, {{"mine", {"dp_shard"}}, {"yours", {"dp_shard"}}}));
  add(listed({}, 8, {{"yours", {"dp_shard"}}, {"mine", {"dp_shard"}}}));
}

TEST(GroupListHash, ComesFromAManifestThatAPersonCanCompare) {
  const GroupList list = listed({.dp_replicate = 2, .tp = 2}, 8, {{"dp_tp", {"dp", "tp"}}});
  EXPECT_THAT(list.manifest(), HasSubstr("world 8\ndegrees pp=1,dp_replicate=2,dp_shard=2,cp=1,tp=2\n"));
  EXPECT_THAT(list.manifest(),
              HasSubstr("derived dp alias batch size 4 inner 1 of dp_replicate, dp_shard\n"));
  EXPECT_THAT(list.manifest(), HasSubstr("flatten dp_tp size 8 inner 1 of dp_replicate, dp_shard, tp\n"));
  EXPECT_THAT(list.manifest(), HasSubstr("groups 17\n"));
}

// Goal:   a name given after the list was made has no group by accident.
TEST(GroupList, IsFrozenAgainstLaterFlattens) {
  Mesh mesh = Mesh::build({.tp = 2}, 8).value();
  const GroupList list(mesh);
  const std::vector<std::string> members{"dp_shard", "tp"};
  ASSERT_TRUE(mesh.flatten("late", members));
  EXPECT_FALSE(list.mesh().find("late"));
  EXPECT_EQ(group_of(GroupList(mesh), 0, "late"), group_of(GroupList(mesh), 0, "world"));
}

}  // namespace
}  // namespace muster::mesh
