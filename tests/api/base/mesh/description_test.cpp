#include "api/base/mesh/description.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::mesh {
namespace {

using ::testing::ElementsAre;

MeshDescription described(const Degrees& degrees, std::int64_t world,
                          const std::vector<Mesh::Flatten>& flattens = {}) {
  return describe(GroupList(Mesh::build(degrees, world, flattens).value()));
}

TEST(MeshDescription, ShowsDimsWithTheirMembers) {
  const MeshDescription mesh = described({.dp_replicate = 2, .tp = 2}, 8, {{"dp_tp", {"dp", "tp"}}});
  EXPECT_EQ(mesh.canonical, "pp=1,dp_replicate=2,dp_shard=2,cp=1,tp=2");
  EXPECT_EQ(mesh.data_parallel, "hsdp");
  EXPECT_EQ(mesh.world, 8u);
  std::vector<std::string> names;
  for (const MeshDescription::Dim& dim : mesh.dims) names.push_back(dim.kind + " " + dim.name);
  EXPECT_THAT(names,
              ElementsAre("basic pp", "basic dp_replicate", "basic dp_shard", "basic cp", "basic domain",
                          "basic tp", "derived dp", "derived dp_shard_cp", "derived dp_cp", "derived weight",
                          "derived non_pp", "flatten dp_tp", "expert efsdp", "world world"));
  EXPECT_EQ(mesh.dims[6].alias, "batch");
  EXPECT_EQ(mesh.dims[6].size, 4u);
  EXPECT_TRUE(mesh.dims[6].enabled);
  EXPECT_FALSE(mesh.dims[3].enabled);
  EXPECT_THAT(mesh.dims[11].members, ElementsAre("dp_replicate", "dp_shard", "tp"));
}

TEST(MeshDescription, ShowsGroupsWithRanksNamesAndCounts) {
  const MeshDescription mesh = described({.dp_replicate = 2}, 8);
  ASSERT_EQ(mesh.groups.size(), 7u);
  EXPECT_EQ(mesh.groups_per_rank_min, 3u);
  EXPECT_EQ(mesh.groups_per_rank_max, 3u);
  EXPECT_EQ(mesh.groups[4].id, 4u);
  EXPECT_EQ(mesh.groups[4].name, "dp_shard");
  EXPECT_THAT(mesh.groups[4].names, ElementsAre("dp_shard", "dp_shard_cp", "fsdp", "weight", "efsdp"));
  EXPECT_THAT(mesh.groups[4].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(mesh.groups[6].name, "dp");
  EXPECT_EQ(mesh.hash, GroupList(Mesh::build({.dp_replicate = 2}, 8).value()).hash().hex());
}

TEST(MeshDescription, OfAWorldOfOneHasNoGroups) {
  const MeshDescription mesh = described({}, 1);
  EXPECT_TRUE(mesh.groups.empty());
  EXPECT_EQ(mesh.groups_per_rank_max, 0u);
  EXPECT_EQ(mesh.data_parallel, "none");
  EXPECT_TRUE(std::none_of(mesh.dims.begin(), mesh.dims.end(),
                           [](const MeshDescription::Dim& dim) { return dim.enabled; }));
}

TEST(MeshDescription, ShowsTheExpertViewWhereThereIsOne) {
  const MeshDescription mesh = described({.dp_shard = 4, .tp = 2, .ep = 4}, 8);
  const auto efsdp = std::find_if(mesh.dims.begin(), mesh.dims.end(),
                                  [](const MeshDescription::Dim& dim) { return dim.name == "efsdp"; });
  ASSERT_NE(efsdp, mesh.dims.end());
  EXPECT_EQ(efsdp->kind, "expert");
  EXPECT_EQ(efsdp->size, 2u);
  EXPECT_THAT(efsdp->members, ElementsAre("dp_shard", "cp", "tp"));
}

}  // namespace
}  // namespace muster::mesh
