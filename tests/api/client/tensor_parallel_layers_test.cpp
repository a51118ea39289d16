// Layers over tp, forward and backward, by the kernels and the collectives of the C API, against the same
// layers in plain loops and double precision.
#include <muster/tensor_parallel.h>

#include "tests/api/client/running_ranks.hpp"
#include "tests/api/client/small_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <muster/kernels.h>

namespace {

using muster::test::Member;
using muster::test::ok;
using Matrix = std::vector<std::vector<double>>;  // by row

constexpr double kTolerance = 1e-5;

Matrix drawn(std::int64_t rows, std::int64_t columns, int seed) {
  Matrix matrix(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < matrix.size(); ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      matrix[i].push_back(std::sin(1.7 * static_cast<double>(i) + 2.3 * static_cast<double>(j) +
                                   0.9 * static_cast<double>(seed)));
  return matrix;
}

Matrix transposed(const Matrix& a) {
  Matrix result(a.front().size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a.front().size(); ++j) result[j][i] = a[i][j];
  return result;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result(a.size(), std::vector<double>(b.front().size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b.front().size(); ++j)
      for (std::size_t k = 0; k < b.size(); ++k) result[i][j] += a[i][k] * b[k][j];
  return result;
}

Matrix column_sums(const Matrix& a) {
  Matrix sums(1, std::vector<double>(a.front().size()));
  for (const std::vector<double>& row : a)
    for (std::size_t j = 0; j < row.size(); ++j) sums[0][j] += row[j];
  return sums;
}

void add_to_rows(Matrix& a, const Matrix& row) {
  for (std::vector<double>& each : a)
    for (std::size_t j = 0; j < each.size(); ++j) each[j] += row[0][j];
}

// A rectangle of a whole matrix: what one rank has of it.
struct Part {
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;
};

Part all_of(const Matrix& matrix) {
  return {0, static_cast<std::int64_t>(matrix.size()), 0, static_cast<std::int64_t>(matrix.front().size())};
}

// One rank's tensors of a layer, and what it does with them. Each call waits.
class Rank {
 public:
  explicit Rank(Member& member) : member_(member) {
    ok(muster_mesh_group(member.session, "tp", &tp_));
    ok(muster_mesh_coords(member.session, "tp", &index_, &size_));
  }

  std::int64_t index() const { return index_; }
  std::int64_t size() const { return size_; }
  // Rows of a sequence that this rank has with sequence parallelism.
  Part sequence_part(const Matrix& whole) const {
    Part part = all_of(whole);
    part.rows /= size_;
    part.row = index_ * part.rows;
    return part;
  }
  // The part of `whole` that the rules of a Llama give to this rank. A bias is one row.
  Part part_of(const char* name, const Matrix& whole) const {
    const bool is_bias = whole.size() == 1;
    const std::int64_t shape[] = {static_cast<std::int64_t>(is_bias ? whole[0].size() : whole.size()),
                                  static_cast<std::int64_t>(whole[0].size())};
    muster_layout* layout = nullptr;
    ok(muster_tp_layout(member_.session, nullptr, 0, name, shape, is_bias ? 1 : 2, nullptr, "tp", &layout));
    muster_box box{};
    std::size_t boxes = 0;
    ok(muster_layout_boxes(layout, index_, &box, 1, &boxes));
    EXPECT_EQ(boxes, 1U);
    ok(muster_layout_destroy(layout));
    if (is_bias) return {0, 1, box.offset[0], box.length[0]};
    return {box.offset[0], box.length[0], box.offset[1], box.length[1]};
  }

  muster_tensor zeros(std::int64_t rows, std::int64_t columns, muster_dtype dtype = MUSTER_F32) const {
    muster_buffer buffer = 0;
    ok(muster_buffer_alloc(member_.session,
                           static_cast<std::uint64_t>(std::max<std::int64_t>(1, rows * columns)) * 4, &buffer,
                           nullptr));
    return muster_view2(buffer, 0, dtype, rows, columns);
  }
  muster_tensor tensor(const Matrix& whole, const Part& part) const {
    const muster_tensor made = zeros(part.rows, part.columns);
    for (std::int64_t i = 0; i < part.rows; ++i)
      for (std::int64_t j = 0; j < part.columns; ++j)
        at<float>(made, i, j) = static_cast<float>(
            whole[static_cast<std::size_t>(part.row + i)][static_cast<std::size_t>(part.column + j)]);
    return made;
  }
  muster_tensor ints(const std::vector<std::int32_t>& values) const {
    muster_tensor made = zeros(1, static_cast<std::int64_t>(values.size()), MUSTER_I32);
    for (std::size_t i = 0; i < values.size(); ++i)
      at<std::int32_t>(made, 0, static_cast<std::int64_t>(i)) = values[i];
    return vector_of(made);
  }
  // The one row of a matrix.
  static muster_tensor vector_of(const muster_tensor& matrix) {
    return muster_view1(matrix.buffer, 0, matrix.dtype, matrix.size[0] * matrix.size[1]);
  }
  template<class T = float>
  T& at(const muster_tensor& matrix, std::int64_t row, std::int64_t column) const {
    muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
    ok(muster_buffer_query(member_.session, matrix.buffer, &info));
    return static_cast<T*>(info.address)[row * matrix.size[1] + column];
  }
  void expect(const char* what, const muster_tensor& own, const Matrix& whole, const Part& part) const {
    ASSERT_EQ(own.size[0], part.rows) << what;
    ASSERT_EQ(own.size[1], part.columns) << what;
    for (std::int64_t i = 0; i < part.rows; ++i)
      for (std::int64_t j = 0; j < part.columns; ++j)
        ASSERT_NEAR(at(own, i, j),
                    whole[static_cast<std::size_t>(part.row + i)][static_cast<std::size_t>(part.column + j)],
                    kTolerance)
            << what << "[" << i << ", " << j << "] of rank " << member_.rank;
  }

  void run(const muster_kernel& kernel) const {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_COMPUTE;
    muster_point done = MUSTER_POINT_NONE;
    ok(muster_launch(member_.session, &kernel, &submit, &done));
    ok(muster_point_wait(member_.session, done, -1));
  }
  void all_reduce(const muster_tensor& tensor, muster_redop redop) const {
    muster_collective c = collective(MUSTER_ALL_REDUCE, redop);
    c.count = static_cast<std::uint64_t>(tensor.size[0] * std::max<std::int64_t>(1, tensor.size[1]));
    c.source = c.target = {tensor.buffer, 0};
    ok(muster_run(member_.session, &c, 0));
  }
  // Runs the collective that muster_tp_collective names for this moment. Returns its result, or `tensor` if
  // there is none.
  muster_tensor moved(muster_tp_style style, muster_tp_moment moment, bool sequence_parallel,
                      const muster_tensor& tensor) const {
    muster_op op = 0;
    ok(muster_tp_collective(style, moment, sequence_parallel ? 1 : 0, &op));
    if (op == 0) return tensor;
    if (op == MUSTER_ALL_REDUCE) {
      all_reduce(tensor, MUSTER_SUM);
      return tensor;
    }
    const bool gathers = op == MUSTER_ALL_GATHER;
    EXPECT_TRUE(gathers || op == MUSTER_REDUCE_SCATTER);
    const muster_tensor result =
        zeros(gathers ? tensor.size[0] * size_ : tensor.size[0] / size_, tensor.size[1]);
    muster_collective c = collective(op, gathers ? 0 : MUSTER_SUM);
    c.count = static_cast<std::uint64_t>(std::min(tensor.size[0], result.size[0]) * tensor.size[1]);
    c.source = {tensor.buffer, 0};
    c.target = {result.buffer, 0};
    ok(muster_run(member_.session, &c, 0));
    return result;
  }

 private:
  muster_collective collective(muster_op op, muster_redop redop) const {
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = op;
    c.group = tp_;
    c.dtype = MUSTER_F32;
    c.redop = redop;
    return c;
  }

  Member& member_;
  muster_group tp_ = MUSTER_GROUP_SELF;
  std::int32_t index_ = 0, size_ = 1;
};

constexpr const char* kUp = "layers.0.feed_forward.w1.weight";
constexpr const char* kUpBias = "layers.0.feed_forward.w1.bias";
constexpr const char* kDown = "layers.0.feed_forward.w2.weight";
constexpr const char* kDownBias = "layers.0.feed_forward.w2.bias";

// y = gelu(x·w1ᵀ + b1)·w2ᵀ + b2, and gradients of everything for a given dy.
struct Mlp {
  Matrix x, w1, b1, w2, b2, dy;
  Matrix y = {}, dx = {}, dw1 = {}, db1 = {}, dw2 = {}, db2 = {};

  void compute() {
    Matrix hidden = product(x, transposed(w1));
    add_to_rows(hidden, b1);
    Matrix active = hidden;
    Matrix slope = hidden;
    for (std::size_t i = 0; i < hidden.size(); ++i)
      for (std::size_t j = 0; j < hidden[i].size(); ++j) {
        const double h = hidden[i][j];
        const double below = 0.5 * (1 + std::erf(h / std::numbers::sqrt2));
        active[i][j] = h * below;
        slope[i][j] = below + h * std::exp(-h * h / 2) / std::sqrt(2 * std::numbers::pi);
      }
    y = product(active, transposed(w2));
    add_to_rows(y, b2);
    dw2 = product(transposed(dy), active);
    db2 = column_sums(dy);
    Matrix d_hidden = product(dy, w2);
    for (std::size_t i = 0; i < d_hidden.size(); ++i)
      for (std::size_t j = 0; j < d_hidden[i].size(); ++j) d_hidden[i][j] *= slope[i][j];
    dw1 = product(transposed(d_hidden), x);
    db1 = column_sums(d_hidden);
    dx = product(d_hidden, w1);
  }
};

// The same over tp: a column layer, then a row layer whose bias is added once, after the sum.
void expect_as_dense(const Rank& rank, const Mlp& dense, bool sequence_parallel) {
  const auto part = [&](const Matrix& whole) {
    return sequence_parallel ? rank.sequence_part(whole) : all_of(whole);
  };
  const Part w1_part = rank.part_of(kUp, dense.w1), b1_part = rank.part_of(kUpBias, dense.b1);
  const Part w2_part = rank.part_of(kDown, dense.w2), b2_part = rank.part_of(kDownBias, dense.b2);
  const auto tokens = static_cast<std::int64_t>(dense.x.size());
  const muster_tensor w1 = rank.tensor(dense.w1, w1_part), b1 = rank.tensor(dense.b1, b1_part);
  const muster_tensor w2 = rank.tensor(dense.w2, w2_part), b2 = rank.tensor(dense.b2, b2_part);

  const muster_tensor x =
      rank.moved(MUSTER_TP_COLUMN, MUSTER_TP_INPUT, sequence_parallel, rank.tensor(dense.x, part(dense.x)));
  const muster_tensor hidden = rank.zeros(tokens, w1_part.rows), active = rank.zeros(tokens, w1_part.rows);
  const muster_tensor partial = rank.zeros(tokens, w2_part.rows);
  rank.run(muster_linear_forward(x, w1, Rank::vector_of(b1), hidden));
  rank.run(muster_gelu_forward(hidden, active));
  rank.run(muster_linear_forward(active, w2, muster_none(), partial));
  const muster_tensor y = rank.moved(MUSTER_TP_ROW, MUSTER_TP_OUTPUT, sequence_parallel, partial);
  for (std::int64_t i = 0; i < y.size[0]; ++i)
    for (std::int64_t j = 0; j < y.size[1]; ++j) rank.at(y, i, j) += rank.at(b2, 0, j);
  rank.expect("y", y, dense.y, part(dense.y));

  const muster_tensor own_dy = rank.tensor(dense.dy, part(dense.dy));
  const muster_tensor dy = rank.moved(MUSTER_TP_ROW, MUSTER_TP_OUTPUT_GRADIENT, sequence_parallel, own_dy);
  const muster_tensor dw2 = rank.zeros(w2_part.rows, w2_part.columns), db2 = rank.zeros(1, b2_part.columns);
  const muster_tensor d_active = rank.zeros(tokens, w1_part.rows),
                      d_hidden = rank.zeros(tokens, w1_part.rows);
  const muster_tensor dw1 = rank.zeros(w1_part.rows, w1_part.columns), db1 = rank.zeros(1, b1_part.columns);
  const muster_tensor partial_dx = rank.zeros(tokens, w1_part.columns);
  rank.run(muster_linear_wgrad(dy, active, dw2, Rank::vector_of(db2), 0));
  rank.run(muster_linear_dgrad(dy, w2, d_active, 0));
  rank.run(muster_gelu_backward(d_active, hidden, d_hidden));
  rank.run(muster_linear_wgrad(d_hidden, x, dw1, Rank::vector_of(db1), 0));
  rank.run(muster_linear_dgrad(d_hidden, w1, partial_dx, 0));
  const muster_tensor dx =
      rank.moved(MUSTER_TP_COLUMN, MUSTER_TP_INPUT_GRADIENT, sequence_parallel, partial_dx);
  rank.expect("dx", dx, dense.dx, part(dense.dx));
  rank.expect("dw1", dw1, dense.dw1, w1_part);
  rank.expect("db1", db1, dense.db1, b1_part);
  rank.expect("dw2", dw2, dense.dw2, w2_part);
  rank.expect("db2", db2, dense.db2, b2_part);
}

using TensorParallelLayers = muster::test::RunningRanks;

// Goal:   case T1. A column layer of weight [8, 4] and a row layer after it are the dense layers, forward and
//         backward, and sequence parallelism changes nothing (case T2).
// Method: cuts and collectives are those of the C API. Over 3 ranks the parts are uneven: 3, 3 and 2.
TEST_F(TensorParallelLayers, MakeTheDenseMlp) {
  for (const int tp : {1, 2, 3, 4}) {
    mesh = "dp_shard=1,tp=" + std::to_string(tp);
    with_ranks(tp, [&](Member& member) {
      Mlp dense{.x = drawn(12, 4, 1),
                .w1 = drawn(8, 4, 2),
                .b1 = drawn(1, 8, 3),
                .w2 = drawn(4, 8, 4),
                .b2 = drawn(1, 4, 5),
                .dy = drawn(12, 4, 6)};
      dense.compute();
      const Rank rank(member);
      EXPECT_EQ(rank.part_of(kUp, dense.w1).rows, tp == 3 ? (rank.index() < 2 ? 3 : 2) : 8 / tp);
      for (const bool sequence_parallel : {false, true}) expect_as_dense(rank, dense, sequence_parallel);
      meet_and_leave(member);
    });
  }
}

// Goal:   case T1, the bias of a row layer: 1 over 4 ranks adds 1 to the output, and not 4.
TEST_F(TensorParallelLayers, AddTheBiasOfARowLayerOnce) {
  mesh = "dp_shard=1,tp=4";
  with_ranks(4, [&](Member& member) {
    const auto constant = [](std::size_t rows, std::size_t columns, double value) {
      return Matrix(rows, std::vector<double>(columns, value));
    };
    Mlp dense{.x = constant(4, 4, 0),
              .w1 = drawn(8, 4, 2),
              .b1 = constant(1, 8, 0),
              .w2 = drawn(4, 8, 4),
              .b2 = constant(1, 4, 1),
              .dy = drawn(4, 4, 6)};
    dense.compute();
    EXPECT_EQ(dense.y, constant(4, 4, 1));
    const Rank rank(member);
    for (const bool sequence_parallel : {false, true}) expect_as_dense(rank, dense, sequence_parallel);
    meet_and_leave(member);
  });
}

constexpr const char* kTable = "tok_embeddings.weight";
constexpr const char* kHead = "output.weight";

// Mean cross-entropy of table[id]·headᵀ over the tokens that count, and gradients.
struct LanguageModel {
  std::vector<std::int32_t> ids, targets;
  Matrix table, head;
  Matrix features = {}, losses = {}, d_features = {}, d_table = {}, d_head = {};

  std::int64_t counted() const {
    return std::ranges::count_if(targets, [](std::int32_t t) { return t >= 0; });
  }

  void compute() {
    features.clear();
    for (const std::int32_t id : ids) features.push_back(table[static_cast<std::size_t>(id)]);
    Matrix d_logits = product(features, transposed(head));
    losses.clear();
    for (std::size_t t = 0; t < ids.size(); ++t) {
      std::vector<double>& row = d_logits[t];
      const double largest = std::ranges::max(row);
      double sum = 0;
      for (const double logit : row) sum += std::exp(logit - largest);
      const bool counts = targets[t] >= 0;
      const auto target = static_cast<std::size_t>(std::max(targets[t], 0));
      losses.push_back({counts ? std::log(sum) - (row[target] - largest) : 0});
      for (std::size_t v = 0; v < row.size(); ++v)
        row[v] = counts ? (std::exp(row[v] - largest) / sum - (v == target ? 1 : 0)) /
                              static_cast<double>(counted())
                        : 0;
    }
    d_head = product(transposed(d_logits), features);
    d_features = product(d_logits, head);
    d_table = Matrix(table.size(), std::vector<double>(table[0].size()));
    for (std::size_t t = 0; t < ids.size(); ++t)
      for (std::size_t d = 0; d < d_features[t].size(); ++d)
        d_table[static_cast<std::size_t>(ids[t])][d] += d_features[t][d];
  }
};

// Goal:   case T5. Embedding and loss over a vocabulary of 10 that 3 ranks share as [4, 4, 2] are the dense
//         ones, forward and backward. Logits stay where they are.
// Method: ids and targets lie in all three parts; a repeated id adds up; a target of -1 counts nowhere.
TEST_F(TensorParallelLayers, ShareAVocabulary) {
  for (const int tp : {1, 2, 3}) {
    mesh = "dp_shard=1,tp=" + std::to_string(tp);
    with_ranks(tp, [&](Member& member) {
      LanguageModel dense{.ids = {0, 3, 4, 9, 4, 7},
                          .targets = {9, 0, -1, 4, 8, 3},
                          .table = drawn(10, 5, 7),
                          .head = drawn(10, 5, 8)};
      dense.compute();
      const auto tokens = static_cast<std::int64_t>(dense.ids.size());
      const Rank rank(member);
      const Part table_part = rank.part_of(kTable, dense.table), head_part = rank.part_of(kHead, dense.head);
      EXPECT_EQ(table_part.rows, tp == 3 ? (rank.index() < 2 ? 4 : 2) : 10 / tp);
      const muster_tensor ids = rank.ints(dense.ids), targets = rank.ints(dense.targets);
      const muster_tensor table = rank.tensor(dense.table, table_part),
                          head = rank.tensor(dense.head, head_part);

      const muster_tensor features = rank.zeros(tokens, 5);
      rank.run(muster_embedding_forward(ids, table, features, table_part.row));
      rank.moved(MUSTER_TP_VOCABULARY, MUSTER_TP_OUTPUT, false, features);
      rank.expect("features", features, dense.features, all_of(dense.features));

      const muster_tensor logits = rank.zeros(tokens, head_part.rows);
      const muster_tensor row_max = rank.zeros(tokens, 1), stats = rank.zeros(tokens, 2),
                          losses = rank.zeros(tokens, 1);
      rank.run(muster_linear_forward(features, head, muster_none(), logits));
      rank.run(muster_vocab_max(logits, Rank::vector_of(row_max)));
      rank.all_reduce(row_max, MUSTER_MAX);
      rank.run(muster_vocab_sum_exp(logits, targets, Rank::vector_of(row_max), stats, head_part.row));
      rank.all_reduce(stats, MUSTER_SUM);
      rank.run(muster_vocab_loss(stats, targets, Rank::vector_of(losses)));
      rank.expect("losses", losses, dense.losses, all_of(dense.losses));

      const muster_tensor d_head = rank.zeros(head_part.rows, 5), d_features = rank.zeros(tokens, 5);
      const muster_tensor d_table = rank.zeros(table_part.rows, 5);
      rank.run(muster_vocab_backward(logits, targets, Rank::vector_of(row_max), stats, logits, head_part.row,
                                     1.0 / static_cast<double>(dense.counted())));
      rank.run(muster_linear_wgrad(logits, features, d_head, muster_none(), 0));
      rank.run(muster_linear_dgrad(logits, head, d_features, 0));
      rank.moved(MUSTER_TP_COLUMN, MUSTER_TP_INPUT_GRADIENT, false, d_features);
      rank.moved(MUSTER_TP_VOCABULARY, MUSTER_TP_OUTPUT_GRADIENT, false, d_features);
      rank.run(muster_embedding_backward(ids, d_features, d_table, table_part.row, 0));
      rank.expect("d_features", d_features, dense.d_features, all_of(dense.d_features));
      rank.expect("d_head", d_head, dense.d_head, head_part);
      rank.expect("d_table", d_table, dense.d_table, table_part);
      meet_and_leave(member);
    });
  }
}

}  // namespace
