#include "api/examples/train_lm/layout.hpp"

#include "api/examples/train_lm/options.hpp"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace train_lm {
namespace {

Layout layout_of(std::int64_t dp_replicate, std::int64_t dp_shard, std::int64_t tp, std::int64_t rank) {
  Layout layout;
  layout.tp = {.size = tp, .coordinate = rank % tp};
  layout.dp_shard = {.size = dp_shard, .coordinate = rank / tp % dp_shard};
  layout.dp_replicate = {.size = dp_replicate, .coordinate = rank / tp / dp_shard};
  return layout;
}

struct MeshCase {
  std::int64_t dp_replicate, dp_shard, tp;
  std::int64_t world() const { return dp_replicate * dp_shard * tp; }
};
constexpr MeshCase kMeshes[] = {{1, 1, 1}, {1, 8, 1}, {8, 1, 1}, {1, 2, 4},
                                {2, 2, 2}, {1, 3, 1}, {1, 5, 2}, {1, 7, 3}};

TEST(CeilChunk, GivesFullChunksFirstThenTheRestThenNothing) {
  EXPECT_EQ(ceil_chunk(8, 4, 3), (Chunk{6, 2}));
  EXPECT_EQ(ceil_chunk(7, 4, 3), (Chunk{6, 1}));
  EXPECT_EQ(ceil_chunk(5, 4, 2), (Chunk{4, 1}));
  EXPECT_EQ(ceil_chunk(5, 4, 3), (Chunk{5, 0}));
  EXPECT_EQ(ceil_chunk(1, 8, 0), (Chunk{0, 1}));
  EXPECT_EQ(ceil_chunk(1, 8, 7), (Chunk{1, 0}));
  EXPECT_EQ(ceil_chunk(0, 3, 1), (Chunk{0, 0}));
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

// Goal:   every element of every parameter has exactly one owner in each replica; what tp does not cut has
// one on each tp
//         rank.
// Method: count owners in each replica of meshes with even, uneven and empty shards.
TEST(Layout, EveryElementHasItsOwners) {
  const Options options{.layers = 1, .width = 12, .heads = 6};
  for (const MeshCase& mesh : kMeshes) {
    for (const auto& unit : model_units(options))
      for (const Parameter& parameter : unit) {
        std::vector<int> owners(static_cast<std::size_t>(parameter.rows * parameter.columns), 0);
        for (std::int64_t rank = 0; rank < mesh.world(); ++rank) {
          const Box box = owned_box(parameter, layout_of(mesh.dp_replicate, mesh.dp_shard, mesh.tp, rank));
          for (std::int64_t r = box.rows.begin; r < box.rows.begin + box.rows.count; ++r)
            for (std::int64_t c = box.columns.begin; c < box.columns.begin + box.columns.count; ++c)
              ++owners[static_cast<std::size_t>(r * parameter.columns + c)];
        }
        const int expected =
            static_cast<int>(mesh.dp_replicate * (parameter.cut == Cut::kNone ? mesh.tp : 1));
        for (const int count : owners)
          ASSERT_EQ(count, expected) << parameter.name << " dp_shard " << mesh.dp_shard;
      }
  }
}

// Goal:   the pieces of all shards are the gathered parameters, each element once.
// Method: number the elements of the gathered parameters, lay each rank's rows into its shard as its Place
// says,
//         and let the pieces bring them back.
TEST(UnitLayout, PiecesBringEachShardToItsRows) {
  const Options options{.layers = 1, .width = 12, .heads = 6};
  for (const MeshCase& mesh : kMeshes)
    for (const auto& parameters : model_units(options)) {
      const UnitLayout unit(parameters, layout_of(mesh.dp_replicate, mesh.dp_shard, mesh.tp, 0));
      std::vector<std::int64_t> gathered(static_cast<std::size_t>(unit.gathered_elements), -1);
      std::size_t piece = 0;
      for (std::int64_t shard = 0; shard < mesh.dp_shard; ++shard) {
        const UnitLayout mine(parameters,
                              layout_of(mesh.dp_replicate, mesh.dp_shard, mesh.tp, shard * mesh.tp));
        std::vector<std::int64_t> packed(static_cast<std::size_t>(mine.shard_elements), -1);
        for (const Place& place : mine.places) {
          const std::int64_t first_row = place.owned.rows.begin - place.gathered.rows.begin;
          for (std::int64_t i = 0; i < place.owned.elements(); ++i)
            packed.at(static_cast<std::size_t>(place.shard_offset + i)) =
                place.gathered_offset + first_row * place.gathered.columns.count + i;
        }
        auto next = packed.begin();
        for (std::uint32_t k = 0; k < unit.piece_counts[static_cast<std::size_t>(shard)]; ++k, ++piece)
          for (std::uint64_t i = 0; i < unit.pieces[piece].count; ++i)
            gathered.at(unit.pieces[piece].offset + i) = *next++;
        EXPECT_EQ(next, packed.end());
      }
      std::vector<std::int64_t> expected(gathered.size());
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(gathered, expected) << "dp_shard " << mesh.dp_shard << " tp " << mesh.tp << " "
                                    << parameters[0].name;
    }
}

TEST(UnitLayout, OneShardIsTheGatheredUnitItself) {
  const Options options{};
  for (const auto& parameters : model_units(options)) {
    const UnitLayout unit(parameters, Layout{});
    EXPECT_EQ(unit.shard_elements, unit.gathered_elements);
    for (const Place& place : unit.places) EXPECT_EQ(place.shard_offset, place.gathered_offset);
  }
}

TEST(UnitLayout, KeepsNormsBehindMatrices) {
  const Options options{};
  for (const auto& parameters : model_units(options)) {
    const UnitLayout unit(parameters, layout_of(1, 3, 1, 0));
    for (std::size_t i = 0; i < parameters.size(); ++i)
      EXPECT_EQ(unit.places[i].shard_offset >= unit.matrix_elements, parameters[i].is_norm())
          << parameters[i].name;
  }
}

TEST(Layout, SharesTheBatchOverDataParallelRanksAndRepeatsItOverTp) {
  std::vector<std::int64_t> begins;
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    const Chunk rows = layout_of(2, 2, 2, rank).batch_rows(12);
    EXPECT_EQ(rows.count, 3);
    begins.push_back(rows.begin);
  }
  EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 0, 3, 3, 6, 6, 9, 9}));
}

}  // namespace
}  // namespace train_lm
