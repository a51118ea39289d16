#include "api/examples/train_lm/mesh.hpp"

#include "api/examples/train_lm/options.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <gtest/gtest.h>

namespace train_lm {

using namespace training;

namespace {

Mesh mesh_of(std::int64_t dp_replicate, std::int64_t dp_shard, std::int64_t tp, std::int64_t rank) {
  Mesh mesh;
  mesh.tp = {.size = tp, .coordinate = rank % tp};
  mesh.dp_shard = {.size = dp_shard, .coordinate = rank / tp % dp_shard};
  mesh.dp_replicate = {.size = dp_replicate, .coordinate = rank / tp / dp_shard};
  return mesh;
}

TEST(CeilChunk, GivesFullChunksFirstThenTheRestThenNothing) {
  EXPECT_EQ(ceil_chunk(8, 4, 3), (Chunk{6, 2}));
  EXPECT_EQ(ceil_chunk(7, 4, 3), (Chunk{6, 1}));
  EXPECT_EQ(ceil_chunk(5, 4, 2), (Chunk{4, 1}));
  EXPECT_EQ(ceil_chunk(5, 4, 3), (Chunk{5, 0}));
  EXPECT_EQ(ceil_chunk(1, 8, 0), (Chunk{0, 1}));
  EXPECT_EQ(ceil_chunk(1, 8, 7), (Chunk{1, 0}));
  EXPECT_EQ(ceil_chunk(0, 3, 1), (Chunk{0, 0}));
}

TEST(EvenChunk, SpreadsTheRest) {
  EXPECT_EQ(even_chunk(4, 3, 0), (Chunk{0, 2}));
  EXPECT_EQ(even_chunk(4, 3, 1), (Chunk{2, 1}));
  EXPECT_EQ(even_chunk(4, 3, 2), (Chunk{3, 1}));
}

TEST(CeilChunk, CoversTheWholeWithoutOverlap) {
  for (std::int64_t total = 0; total < 40; ++total)
    for (std::int64_t parts = 1; parts < 12; ++parts) {
      std::int64_t next = 0;
      for (std::int64_t i = 0; i < parts; ++i) {
        const Chunk chunk = ceil_chunk(total, parts, i);
        EXPECT_EQ(chunk.begin, next) << total << " in " << parts;
        EXPECT_LE(chunk.count, ceil_div(total, parts));
        next += chunk.count;
      }
      EXPECT_EQ(next, total);
    }
}

TEST(Mesh, SharesTheBatchOverDataParallelRanksAndRepeatsItOverTp) {
  std::vector<std::int64_t> begins;
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    const Chunk rows = mesh_of(2, 2, 2, rank).batch_rows(12);
    EXPECT_EQ(rows.count, 3);
    begins.push_back(rows.begin);
  }
  EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 0, 3, 3, 6, 6, 9, 9}));
}

TEST(Mesh, SharesPositionsOverContextParallelRanks) {
  Mesh mesh;
  EXPECT_EQ(mesh.positions(8), (Chunk{0, 8}));
  mesh.cp = {.size = 4, .coordinate = 3};
  EXPECT_EQ(mesh.positions(8), (Chunk{6, 2}));
}

TEST(ModelUnits, KeepNormsBehindMatrices) {
  for (const bool tied : {false, true})
    for (const auto& unit : model_units(Options{.tied = tied}))
      EXPECT_TRUE(std::ranges::is_partitioned(unit, [](const Parameter& p) { return !p.is_vector(); }))
          << unit.front().name;
}

TEST(ModelUnits, HaveNoHeadIfItIsTheEmbedding) {
  EXPECT_EQ(model_units(Options{.layers = 3}).size(), 5U);
  EXPECT_EQ(model_units(Options{.layers = 3, .tied = true}).size(), 4U);
}

// Goal:   after a loss of ranks, the mesh keeps cp and tp, and as many ranks as possible.
TEST(SmallerMesh, KeepsWhatItCan) {
  const auto smaller = [](const char* degrees, std::int64_t ranks, std::int64_t batch) {
    Mesh mesh;
    int sizes[4] = {};
    EXPECT_EQ(std::sscanf(degrees, "%d x %d x %d x %d", &sizes[0], &sizes[1], &sizes[2], &sizes[3]), 4);
    mesh.dp_replicate.size = sizes[0];
    mesh.dp_shard.size = sizes[1];
    mesh.cp.size = sizes[2];
    mesh.tp.size = sizes[3];
    return smaller_mesh(mesh, ranks, [&](const Mesh& m) { return batch % m.dp_size() == 0; }).text();
  };
  EXPECT_EQ(smaller("1 x 4 x 1 x 1", 3, 12), "dp_replicate=1,dp_shard=3,cp=1,tp=1");
  EXPECT_EQ(smaller("1 x 4 x 1 x 1", 3, 8), "dp_replicate=1,dp_shard=2,cp=1,tp=1")
      << "3 do not divide 8 rows";
  EXPECT_EQ(smaller("2 x 2 x 1 x 2", 7, 12), "dp_replicate=1,dp_shard=3,cp=1,tp=2");
  EXPECT_EQ(smaller("2 x 2 x 1 x 2", 7, 8), "dp_replicate=1,dp_shard=2,cp=1,tp=2") << "shards stay as small";
  EXPECT_EQ(smaller("4 x 2 x 1 x 1", 7, 24), "dp_replicate=3,dp_shard=2,cp=1,tp=1");
  EXPECT_EQ(smaller("1 x 2 x 2 x 2", 5, 8), "dp_replicate=1,dp_shard=1,cp=2,tp=2");
  EXPECT_EQ(smaller("1 x 2 x 2 x 2", 3, 8), "dp_replicate=1,dp_shard=1,cp=1,tp=2");
  EXPECT_EQ(smaller("1 x 1 x 2 x 4", 3, 8), "dp_replicate=1,dp_shard=2,cp=1,tp=1");
  EXPECT_EQ(smaller("8 x 1 x 1 x 1", 1, 7), "dp_replicate=1,dp_shard=1,cp=1,tp=1");
}

}  // namespace
}  // namespace train_lm
