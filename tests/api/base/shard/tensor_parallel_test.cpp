// Tensor parallelism by names: cuts, and the collectives that belong to them.
#include "api/base/shard/tensor_parallel.hpp"

#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace muster::shard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

muster_tp_rule rule(const char* pattern, muster_tp_style style, muster_split split = MUSTER_SPLIT_CEIL,
                    std::int64_t grain = 0) {
  return {pattern, style, split, grain, nullptr, 0, 0};
}

TEST(TensorParallelNames, KnowALlama) {
  const auto style = [](const char* name) {
    const auto found = rule_of(llama_rules(), name);
    return found ? llama_rules()[*found].style : -1;
  };
  EXPECT_EQ(style("layers.3.attention.wq.weight"), MUSTER_TP_COLUMN);
  EXPECT_EQ(style("layers.3.attention.wo.weight"), MUSTER_TP_ROW);
  EXPECT_EQ(style("layers.3.feed_forward.w2.weight"), MUSTER_TP_ROW);
  EXPECT_EQ(style("tok_embeddings.weight"), MUSTER_TP_VOCABULARY);
  EXPECT_EQ(style("output.weight"), MUSTER_TP_COLUMN);
  EXPECT_EQ(style("layers.3.attention_norm.weight"), MUSTER_TP_REPLICATE);
  EXPECT_EQ(style("model.layers.0.self_attn.k_proj.bias"), MUSTER_TP_COLUMN);
  EXPECT_EQ(style("model.layers.0.mlp.down_proj.weight"), MUSTER_TP_ROW);
  EXPECT_EQ(style("model.embed_tokens.weight"), MUSTER_TP_VOCABULARY);
  EXPECT_EQ(style("model.layers.0.input_layernorm.weight"), MUSTER_TP_REPLICATE);
  EXPECT_EQ(style("model.layers.0.rotary.cache"), -1) << "unknown names are for the caller to list";
}

// The length of `dim` on each of `ranks`, for a parameter that the rule cuts.
std::vector<std::int64_t> lengths(const muster_tp_rule& rule, std::vector<std::int64_t> shape,
                                  std::int64_t ranks, std::size_t dim) {
  const auto layout = Layout::make(shape, {Layout::Axis{"tp", ranks, *tp_placement(rule, shape.size())}});
  std::vector<std::int64_t> lengths;
  for (std::int64_t rank = 0; rank < ranks; ++rank) lengths.push_back(layout->local_shape(rank)[dim]);
  return lengths;
}

// Goal:   cases T4 and X4: lengths by the names of parameters.
TEST(TensorParallelCuts, AreThoseOfTheirRules) {
  EXPECT_THAT(lengths(rule("*", MUSTER_TP_VOCABULARY), {10, 4}, 3, 0), ElementsAre(4, 4, 2));
  EXPECT_THAT(lengths(rule("*", MUSTER_TP_COLUMN, MUSTER_SPLIT_BALANCED), {10, 4}, 3, 0),
              ElementsAre(4, 3, 3));
  EXPECT_THAT(lengths(rule("*", MUSTER_TP_COLUMN), {129, 4}, 4, 0), ElementsAre(33, 33, 33, 30));
  EXPECT_THAT(lengths(rule("*", MUSTER_TP_COLUMN, MUSTER_SPLIT_BALANCED), {129, 4}, 4, 0),
              ElementsAre(33, 32, 32, 32));
  const muster_tp_rule heads = rule("*", MUSTER_TP_COLUMN, MUSTER_SPLIT_ALIGNED, 8);
  EXPECT_THAT(lengths(heads, {48, 4}, 4, 0), ElementsAre(16, 16, 8, 8)) << "6 heads of 8 over 4 ranks";
  const std::vector<std::int64_t> many = lengths(heads, {64, 4}, 16, 0);
  EXPECT_EQ(many[7], 8);
  EXPECT_EQ(many[8], 0) << "8 heads over 16 ranks: the last eight have none";
  EXPECT_THAT(lengths(rule("*", MUSTER_TP_ROW), {8, 6}, 2, 1), ElementsAre(3, 3));
  EXPECT_THAT(lengths(rule("*", MUSTER_TP_ROW), {8}, 2, 0), ElementsAre(8, 8)) << "a row layer's bias";
  EXPECT_THAT(lengths(rule("*", MUSTER_TP_COLUMN), {8}, 2, 0), ElementsAre(4, 4)) << "a column layer's bias";
}

// Goal:   case T10: a linear layer of 128 to 128 with bias over 4 ranks.
TEST(TensorParallelCuts, LeaveAFourthOfALayer) {
  const auto parameters = [](muster_tp_style style) {
    const auto each = rule("*", style);
    return lengths(each, {128, 128}, 4, 0)[0] * lengths(each, {128, 128}, 4, 1)[0] +
           lengths(each, {128}, 4, 0)[0];
  };
  EXPECT_EQ(parameters(MUSTER_TP_COLUMN), 4128);
  EXPECT_EQ(parameters(MUSTER_TP_ROW), 4224);
}

// Goal:   case T11: fused query, key and value of 8, 4 and 4 rows over 2 ranks.
TEST(TensorParallelCuts, DivideEachOfFusedTensors) {
  const std::array<std::int64_t, 3> fused{8, 4, 4};
  muster_tp_rule qkv = rule("*", MUSTER_TP_COLUMN);
  qkv.fused = fused.data();
  qkv.fused_count = 3;
  const std::array<std::int64_t, 2> shape{16, 2};
  const auto layout = Layout::make(shape, {Layout::Axis{"tp", 2, *tp_placement(qkv, 2)}});
  std::vector<std::int64_t> first_rows;
  for (const Layout::Piece& piece : layout->pieces(0)) first_rows.push_back(piece.box.offset[0]);
  EXPECT_THAT(first_rows, ElementsAre(0, 8, 12));
}

TEST(TensorParallelCuts, RefuseWhatMakesNoSense) {
  const auto refused = [](const muster_tp_rule& wrong, std::size_t dims, const char* text) {
    const auto made = tp_placement(wrong, dims);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code(), Code::kBadArgument);
    EXPECT_THAT(made.error().message(), HasSubstr(text));
  };
  refused(rule("a", 7), 2, "style is 7");
  refused(rule("a", MUSTER_TP_COLUMN), 3, "cuts a parameter of 3 dims");
  refused(rule("a", MUSTER_TP_COLUMN, MUSTER_SPLIT_GIVEN), 2, "split is 3");
  muster_tp_rule fused = rule("a", MUSTER_TP_ROW);
  fused.fused_count = 2;
  refused(fused, 2, "fused is NULL");
}

// Goal:   case T2: a block is two column stages, each followed by a row stage.
TEST(TensorParallelCollectives, AreSoManyABlock) {
  const auto count = [](bool sequence_parallel, muster_op op, bool forward) {
    int found = 0;
    for (const muster_tp_style style : {MUSTER_TP_COLUMN, MUSTER_TP_ROW})
      for (const muster_tp_moment moment :
           forward ? std::array{MUSTER_TP_INPUT, MUSTER_TP_OUTPUT}
                   : std::array{MUSTER_TP_OUTPUT_GRADIENT, MUSTER_TP_INPUT_GRADIENT})
        found += tp_collective(style, moment, sequence_parallel) == op ? 2 : 0;
    return found;
  };
  EXPECT_EQ(count(false, MUSTER_ALL_REDUCE, true), 2);
  EXPECT_EQ(count(false, MUSTER_ALL_REDUCE, false), 2);
  EXPECT_EQ(count(false, MUSTER_ALL_GATHER, true), 0);
  EXPECT_EQ(count(true, MUSTER_ALL_GATHER, true), 2);
  EXPECT_EQ(count(true, MUSTER_REDUCE_SCATTER, true), 2);
  EXPECT_EQ(count(true, MUSTER_ALL_GATHER, false), 2)
      << "2, as gathered inputs were saved; 4 where they are not";
  EXPECT_EQ(count(true, MUSTER_REDUCE_SCATTER, false), 2);
  EXPECT_EQ(tp_collective(MUSTER_TP_VOCABULARY, MUSTER_TP_OUTPUT, false), MUSTER_ALL_REDUCE);
  EXPECT_EQ(tp_collective(MUSTER_TP_REPLICATE, MUSTER_TP_OUTPUT, true), 0);
}

}  // namespace
}  // namespace muster::shard
