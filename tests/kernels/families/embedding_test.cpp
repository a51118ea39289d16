#include "kernels/embedding/embedding.hpp"

#include "tests/kernels/families/tensor_fixture.hpp"
#include "tests/kernels/families/twin/embedding.hpp"
#include "tests/kernels/families/twin/finite_difference.hpp"

#include <muster/kernels.h>

#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

const Kernel& forward() {
  return row_of(embedding::rows(), MUSTER_KERNEL_EMBEDDING_FORWARD);
}
const Kernel& backward() {
  return row_of(embedding::rows(), MUSTER_KERNEL_EMBEDDING_BACKWARD);
}

struct Case {
  std::int64_t tokens, rows, columns, offset;
};
// Zero sizes, odd sizes, more than one range of tokens, and more than one tile in both directions.
const std::vector<Case> kCases{{1, 1, 1, 0},     {3, 17, 3, 0},     {17, 3, 129, 5},
                               {0, 5, 7, 0},     {5, 0, 7, 0},      {5, 7, 0, 0},
                               {129, 17, 17, 9}, {1200, 40, 65, 3}, {64, 2100, 150, 9}};

// Owned ids, ids of both neighbouring shards, and -1.
Values some_ids(const Case& c, Random& random) {
  Values ids(static_cast<std::size_t>(c.tokens));
  for (double& id : ids) id = static_cast<double>(c.offset + random.integer(-3, c.rows + 3));
  if (!ids.empty()) ids[0] = -1.0;
  return ids;
}

std::string name_of(const Case& c, Layout layout, muster_dtype dtype) {
  return testing::PrintToString(Shape{c.tokens, c.rows, c.columns, c.offset}) + " " + layout_name(layout) +
         " dtype " + std::to_string(dtype);
}

twin::Shard shard_of(const Case& c) {
  return {static_cast<std::size_t>(c.rows), static_cast<std::size_t>(c.columns),
          static_cast<double>(c.offset)};
}

TEST(EmbeddingForward, GathersOwnedRowsAndZerosTheOthers) {
  Random random(51);
  for (const Case& c : kCases) {
    for (const Layout layout : kLayouts) {
      for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16}) {
        SCOPED_TRACE(name_of(c, layout, dtype));
        OwnedTensor ids(MUSTER_I32, {c.tokens}, layout, some_ids(c, random));
        OwnedTensor table(dtype, {c.rows, c.columns}, layout,
                          random.uniforms(static_cast<std::size_t>(c.rows * c.columns)));
        OwnedTensor out(dtype, {c.tokens, c.columns}, Layout::kPaddedRows);
        run_in_any_order(forward(), args_of({ids.view(), table.view(), out.view()}, {c.offset}), {&out});
        EXPECT_EQ(out.values(), twin::embedding_forward(shard_of(c), ids.values(), table.values()));
      }
    }
  }
}

// Goal: the sum over the shards of a vocabulary is the lookup in the whole table.
TEST(EmbeddingForward, ShardsAddUpToTheWholeTable) {
  Random random(52);
  OwnedTensor table(MUSTER_F32, {29, 5}, Layout::kDense, random.uniforms(29 * 5));
  Values ids(40);
  for (double& id : ids) id = static_cast<double>(random.integer(0, 28));
  OwnedTensor tokens(MUSTER_I32, {40}, Layout::kDense, ids);
  Values total(40 * 5, 0.0);
  for (const auto& [first, rows] : {std::pair<std::int64_t, std::int64_t>{0, 13}, {13, 16}}) {
    Tensor shard = table.view();
    shard.data += first * 5 * 4;
    shard.size[0] = rows;
    OwnedTensor out(MUSTER_F32, {40, 5});
    run(forward(), args_of({tokens.view(), shard, out.view()}, {first}));
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += out.values()[i];
  }
  EXPECT_EQ(total, twin::embedding_forward({29, 5, 0.0}, ids, table.values()));
}

TEST(EmbeddingTwin, BackwardIsTheGradientOfForward) {
  Random random(53);
  const Case c{9, 5, 3, 2};
  const Values ids = some_ids(c, random);
  const Values dout = random.uniforms(9 * 3);
  const auto loss = [&](const Values& table) {
    return twin::dot(twin::embedding_forward(shard_of(c), ids, table), dout);
  };
  expect_close(twin::embedding_backward(shard_of(c), ids, dout),
               twin::finite_difference(loss, random.uniforms(5 * 3)), {1e-9, 0.0});
}

// Tolerance: a row sums up to `tokens` values of at most 1 in f32, then rounds once.
TEST(EmbeddingBackward, AddsTokensAtOwnedRows) {
  Random random(54);
  for (const Case& c : kCases) {
    for (const Layout layout : kLayouts) {
      for (const auto& [in, out] : {std::pair{MUSTER_F32, MUSTER_F32}, std::pair{MUSTER_BF16, MUSTER_F32},
                                    std::pair{MUSTER_BF16, MUSTER_BF16}}) {
        for (const std::int64_t accumulate : {0, 1}) {
          SCOPED_TRACE(name_of(c, layout, out) + (accumulate != 0 ? " accumulate" : ""));
          const auto elements = static_cast<std::size_t>(c.rows * c.columns);
          OwnedTensor ids(MUSTER_I32, {c.tokens}, layout, some_ids(c, random));
          OwnedTensor dout(in, {c.tokens, c.columns}, layout,
                           random.uniforms(static_cast<std::size_t>(c.tokens * c.columns)));
          OwnedTensor dtable(out, {c.rows, c.columns}, layout, random.uniforms(elements));
          Values expected = twin::embedding_backward(shard_of(c), ids.values(), dout.values());
          const Values before = dtable.values();
          for (std::size_t i = 0; accumulate != 0 && i < elements; ++i) expected[i] += before[i];
          run_in_any_order(backward(),
                           args_of({ids.view(), dout.view(), dtable.view()}, {c.offset, accumulate}),
                           {&dtable});
          expect_close(dtable.values(), expected,
                       {static_cast<double>(c.tokens) * 4 * 0x1p-24, 1.001 * half_ulp(out)});
        }
      }
    }
  }
}

// Goal:   the order of a row's sum is the order of the tokens, whatever the tile or shard.
// Method: values whose f32 sum depends on order, added by hand in order.
TEST(EmbeddingBackward, AddsInTokenOrder) {
  Random random(55);
  const Values values = random.uniforms(100, -1e6, 1e6);
  OwnedTensor ids(MUSTER_I32, {100}, Layout::kDense, Values(100, 1.0));
  OwnedTensor dout(MUSTER_F32, {100, 1}, Layout::kDense, values);
  OwnedTensor dtable(MUSTER_F32, {2, 1});
  run(backward(), args_of({ids.view(), dout.view(), dtable.view()}, {0, 0}));
  float expected = 0.0f;
  for (const double value : dout.values()) expected += static_cast<float>(value);
  EXPECT_EQ(dtable.values()[1], static_cast<double>(expected));
}

TEST(Embedding, RefusesOperandsThatDoNotFit) {
  OwnedTensor ids(MUSTER_I32, {4});
  OwnedTensor table(MUSTER_F32, {10, 3});
  OwnedTensor out(MUSTER_F32, {4, 3});
  OwnedTensor five(MUSTER_F32, {5, 3});
  OwnedTensor wide(MUSTER_F32, {4, 6});
  OwnedTensor half(MUSTER_BF16, {4, 3});
  OwnedTensor flat(MUSTER_F32, {12});
  OwnedTensor pairs(MUSTER_I32, {4, 2});
  const auto look_up = [](OwnedTensor& a, OwnedTensor& b, OwnedTensor& c) {
    return args_of({a.view(), b.view(), c.view()});
  };
  expect_refused(forward(), look_up(flat, table, out), "ids is f32; it must be i32");
  expect_refused(forward(), look_up(pairs, table, out), "ids is [4, 2] and has 2 dims; it must have 1");
  expect_refused(backward(), look_up(pairs, out, table), "ids is [4, 2] and has 2 dims; it must have 1");
  expect_refused(forward(), look_up(ids, flat, out), "table is [12] and has 1 dims; it must have 2");
  expect_refused(forward(), look_up(ids, table, five), "out's first size must equal ids's first");
  expect_refused(forward(), look_up(ids, table, wide), "out is [4, 6], but table is [10, 3]");
  expect_refused(forward(), look_up(ids, table, half), "out is bf16, but table is f32");
  Args moved = look_up(ids, table, out);
  moved.ints = {-1};
  expect_refused(forward(), moved, "vocab_offset is -1");
  moved.ints = {std::int64_t{1} << 40};
  expect_refused(forward(), moved, "vocab_offset is 1099511627776");
  expect_refused(backward(), look_up(ids, five, table), "dout is [5, 3], but ids is [4]");
  expect_refused(backward(), look_up(ids, out, wide), "dtable's second size must equal dout's second");
  expect_refused(backward(), look_up(ids, out, half), "dtable is bf16, but dout is f32");
  Args args = look_up(ids, out, table);
  args.ints = {0, 3};
  expect_refused(backward(), args, "accumulate is 3");
}

}  // namespace
}  // namespace muster::kernels::test
