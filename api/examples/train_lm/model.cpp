#include "api/examples/train_lm/model.hpp"

#include <cmath>

namespace train_lm {

using namespace training;

namespace {

constexpr double kNormEpsilon = 1e-5;
constexpr double kTheta = 10000.0;

// Positions in a unit, as model_units() lists them.
enum BlockParameter : std::size_t {
  kQuery,
  kKey,
  kValue,
  kOutput,
  kGate,
  kUp,
  kDown,
  kAttentionNorm,
  kMlpNorm
};
constexpr std::size_t kFinalNorm = 1;  // in the unit of the head

// Columns [first, first + count) of a matrix.
muster_tensor columns(muster_tensor matrix, std::int64_t first, std::int64_t count) {
  matrix.offset_bytes += static_cast<std::uint64_t>(first) * muster_dtype_bytes(matrix.dtype);
  matrix.size[1] = count;
  return matrix;
}

}  // namespace

Model::Model(Runtime& runtime, const Mesh& mesh, const Options& options, Units& units, std::int64_t rows)
    : runtime_(runtime),
      mesh_(mesh),
      units_(units),
      tied_(options.tied),
      dtype_(options.dtype),
      rows_(rows),
      context_(options.context),
      positions_(mesh.positions(options.context).count),
      width_(options.width),
      head_width_(options.width / options.heads),
      heads_(even_chunk(options.heads, mesh.tp.size, mesh.tp.coordinate).count),
      hidden_(ceil_chunk(options.hidden(), mesh.tp.size, mesh.tp.coordinate).count),
      vocabulary_(ceil_chunk(kVocabulary, mesh.tp.size, mesh.tp.coordinate).count),
      embedding_(runtime),
      head_(runtime),
      loss_(runtime),
      head_backward_(runtime),
      embedding_backward_(runtime) {
  const std::int64_t tokens = rows_ * positions_;
  ids_ = tensor(MUSTER_I32, tokens);
  targets_ = tensor(MUSTER_I32, tokens);
  for (std::int64_t layer = 0; layer <= options.layers; ++layer)
    stream_.push_back(tensor(dtype_, tokens, width_));
  for (std::int64_t layer = 0; layer < options.layers; ++layer) blocks_.push_back(make_block());
  normed_ = tensor(dtype_, tokens, width_);
  normed_rstd_ = tensor(MUSTER_F32, tokens);
  logits_ = tensor(dtype_, tokens, vocabulary_);
  row_max_ = tensor(MUSTER_F32, tokens);
  stats_ = tensor(MUSTER_F32, tokens, 2);
  losses_ = tensor(MUSTER_F32, tokens);
  mean_loss_ = tensor(MUSTER_F32, 1);
  d_stream_ = tensor(dtype_, tokens, width_);
  d_normed_ = tensor(dtype_, tokens, width_);
  d_qkv_ = tensor(dtype_, tokens, 3 * heads_ * head_width_);
  d_attended_ = tensor(dtype_, tokens, heads_ * head_width_);
  d_gate_up_ = tensor(dtype_, tokens, 2 * hidden_);
  d_activated_ = tensor(dtype_, tokens, hidden_);
  if (mesh.cp.size > 1) {
    own_keys_values_ = tensor(dtype_, tokens, 2 * heads_ * head_width_);
    d_keys_values_ = tensor(dtype_, rows_ * context_, 2 * heads_ * head_width_);
    const auto width = static_cast<std::uint64_t>(2 * heads_ * head_width_);
    for (std::int64_t rank = 0; rank < mesh.cp.size; ++rank) {
      context_counts_.push_back(static_cast<std::uint32_t>(rows_));
      for (std::int64_t row = 0; row < rows_; ++row)
        context_pieces_.push_back({static_cast<std::uint64_t>(row * context_ + rank * positions_) * width,
                                   static_cast<std::uint64_t>(positions_) * width});
    }
  }
  record_embedding();
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) record_block_forward(layer);
  record_head();
  record_loss();
  record_head_backward();
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    Program& program = block_backward_.emplace_back(runtime_);
    record_mlp_backward(program, layer);
    record_attention_backward(program, layer);
  }
  embedding_backward_.kernel(muster_embedding_backward(ids_, d_stream_, units_.gradient(0, kTable),
                                                       units_.first_row(0, kTable), tied_ ? 1 : 0));
}

muster_tensor Model::tensor(muster_dtype dtype, std::int64_t rows, std::int64_t columns) {
  const std::int64_t elements = rows * (columns == 0 ? 1 : columns);
  const Buffer buffer = runtime_.allocate(static_cast<std::uint64_t>(elements) * muster_dtype_bytes(dtype));
  return columns == 0 ? muster_view1(buffer.handle, 0, dtype, rows)
                      : muster_view2(buffer.handle, 0, dtype, rows, columns);
}

Model::Block Model::make_block() {
  const std::int64_t tokens = rows_ * positions_;
  Block block;
  block.normed = tensor(dtype_, tokens, width_);
  block.normed_rstd = tensor(MUSTER_F32, tokens);
  block.qkv = tensor(dtype_, tokens, 3 * heads_ * head_width_);
  block.attended = tensor(dtype_, tokens, heads_ * head_width_);
  const muster_tensor lse = tensor(MUSTER_F32, rows_ * heads_, positions_);
  block.lse = muster_view3(lse.buffer, 0, MUSTER_F32, rows_, heads_, positions_);
  if (mesh_.cp.size > 1) block.keys_values = tensor(dtype_, rows_ * context_, 2 * heads_ * head_width_);
  block.middle = tensor(dtype_, tokens, width_);
  block.middle_normed = tensor(dtype_, tokens, width_);
  block.middle_rstd = tensor(MUSTER_F32, tokens);
  block.gate_up = tensor(dtype_, tokens, 2 * hidden_);
  block.activated = tensor(dtype_, tokens, hidden_);
  return block;
}

// Heads [first, first + count) of a matrix with one row for each token, as attention takes them: [row,
// position, head, feature].
muster_tensor Model::heads(const muster_tensor& matrix, std::int64_t first, std::int64_t count) const {
  muster_tensor view = muster_view4(matrix.buffer, 0, matrix.dtype, rows_, positions_, count, head_width_);
  view.offset_bytes = static_cast<std::uint64_t>(first * head_width_) * muster_dtype_bytes(matrix.dtype);
  view.stride[1] = matrix.stride[0];
  view.stride[0] = matrix.stride[0] * positions_;
  return view;
}

muster_tensor Model::all_heads(const muster_tensor& keys_values, std::int64_t first) const {
  muster_tensor view =
      muster_view4(keys_values.buffer, 0, keys_values.dtype, rows_, context_, heads_, head_width_);
  view.offset_bytes = static_cast<std::uint64_t>(first * head_width_) * muster_dtype_bytes(keys_values.dtype);
  view.stride[1] = keys_values.stride[0];
  view.stride[0] = keys_values.stride[0] * context_;
  return view;
}

muster_blocks Model::context_blocks() const {
  return {nullptr, nullptr, context_counts_.data(), context_pieces_.data()};
}

// ---- a pass ------------------------------------------------------------------------------------

void Model::forward() {
  const muster_point table = units_.begin_forward(0);
  muster_point last = embedding_.replay(std::span(&table, 1));
  if (!tied_) units_.end_forward(0, last);
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    const muster_point embedded = layer == 0 ? embedding_.point(embedded_) : MUSTER_POINT_NONE;
    const std::array ready{units_.begin_forward(block_unit(layer)), embedded};
    units_.end_forward(block_unit(layer), block_forward_[layer].replay(ready));
  }
  const muster_point ready = tied_ ? MUSTER_POINT_NONE : units_.begin_forward(head_unit());
  last = head_.replay(std::span(&ready, 1));
  units_.end_forward(head_unit(), last);
}

void Model::loss() {
  loss_.replay();
}

// Units in reverse: the gradients of each are sent off while the next one computes.
void Model::backward() {
  muster_point last = head_backward_.replay(units_.begin_backward(head_unit()));
  if (!tied_) units_.end_backward(head_unit(), last);
  for (std::size_t layer = blocks_.size(); layer-- > 0;) {
    const std::array<muster_point, 2> ready = units_.begin_backward(block_unit(layer));
    units_.end_backward(block_unit(layer), block_backward_[layer].replay(ready));
  }
  std::array<muster_point, 2> ready{};
  if (!tied_) ready = units_.begin_backward(0);
  units_.end_backward(0, embedding_backward_.replay(ready));
}

std::size_t Model::commands() const {
  std::size_t count =
      embedding_.size() + head_.size() + loss_.size() + head_backward_.size() + embedding_backward_.size();
  for (const Program& program : block_forward_) count += program.size();
  for (const Program& program : block_backward_) count += program.size();
  return count;
}

// ---- forward -----------------------------------------------------------------------------------

Mark Model::sum_over_tp(Program& program, const muster_tensor& partial) {
  return program.collective(MUSTER_LANE_SMALL, all_reduce(mesh_.tp.group, MUSTER_SUM, partial));
}

// Keys and values of this rank's positions, to all cp ranks.
void Model::gather_context(Program& program, const Block& block) {
  program.kernel(
      muster_copy(columns(block.qkv, heads_ * head_width_, 2 * heads_ * head_width_), own_keys_values_));
  program.join(program.collective(
      MUSTER_LANE_GATHER,
      all_gather(mesh_.cp.group, own_keys_values_, {block.keys_values.buffer, 0}, context_blocks())));
}

// The sums of all cp ranks' gradients of keys and values, of this rank's positions.
void Model::scatter_context(Program& program) {
  program.join(program.collective(
      MUSTER_LANE_REDUCE,
      reduce_scatter(mesh_.cp.group, {d_keys_values_.buffer, 0}, context_blocks(), own_keys_values_)));
  program.kernel(
      muster_copy(own_keys_values_, columns(d_qkv_, heads_ * head_width_, 2 * heads_ * head_width_)));
}

void Model::record_embedding() {
  embedding_.kernel(
      muster_embedding_forward(ids_, units_.weight(0, kTable), stream_[0], units_.first_row(0, kTable)));
  embedded_ = sum_over_tp(embedding_, stream_[0]);
}

void Model::record_block_forward(std::size_t layer) {
  Program& program = block_forward_.emplace_back(runtime_);
  const Block& b = blocks_[layer];
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_width_));
  const muster_tensor& in = stream_[layer];
  const muster_tensor& out = stream_[layer + 1];

  program.kernel(muster_rms_norm_forward(in, block_weight(layer, kAttentionNorm), b.normed, b.normed_rstd,
                                         kNormEpsilon));
  // Query, key and value lie one below the other, so one product makes all three.
  program.kernel(muster_linear_forward(b.normed, block_weight(layer, kQuery, 3), muster_none(), b.qkv));
  const muster_tensor queries_and_keys = heads(b.qkv, 0, 2 * heads_);
  const std::int64_t position = mesh_.positions(context_).begin;
  program.kernel(muster_rope(queries_and_keys, queries_and_keys, position, kTheta, +1));
  const bool is_split = mesh_.cp.size > 1;
  if (is_split) gather_context(program, b);
  program.kernel(muster_attention_forward(
      heads(b.qkv, 0, heads_), is_split ? all_heads(b.keys_values, 0) : heads(b.qkv, heads_, heads_),
      is_split ? all_heads(b.keys_values, heads_) : heads(b.qkv, 2 * heads_, heads_),
      heads(b.attended, 0, heads_), b.lse, scale, 1, position, 0));
  program.kernel(muster_linear_forward(b.attended, block_weight(layer, kOutput), muster_none(), b.middle));
  program.join(sum_over_tp(program, b.middle));
  program.kernel(muster_axpby(1.0, in, 1.0, b.middle));

  program.kernel(muster_rms_norm_forward(b.middle, block_weight(layer, kMlpNorm), b.middle_normed,
                                         b.middle_rstd, kNormEpsilon));
  program.kernel(
      muster_linear_forward(b.middle_normed, block_weight(layer, kGate, 2), muster_none(), b.gate_up));
  program.kernel(muster_swiglu_forward(columns(b.gate_up, 0, hidden_), columns(b.gate_up, hidden_, hidden_),
                                       b.activated));
  program.kernel(muster_linear_forward(b.activated, block_weight(layer, kDown), muster_none(), out));
  program.join(sum_over_tp(program, out));
  program.kernel(muster_axpby(1.0, b.middle, 1.0, out));
}

void Model::record_head() {
  head_.kernel(muster_rms_norm_forward(stream_.back(), units_.weight(head_unit(), kFinalNorm), normed_,
                                       normed_rstd_, kNormEpsilon));
  head_.kernel(muster_linear_forward(normed_, units_.weight(head_unit(), kTable), muster_none(), logits_));
}

// ---- loss: the vocabulary is cut over tp; maxima and sums of exponentials are reduced, not logits

void Model::record_loss() {
  loss_.kernel(muster_vocab_max(logits_, row_max_));
  loss_.join(loss_.collective(MUSTER_LANE_SMALL, all_reduce(mesh_.tp.group, MUSTER_MAX, row_max_)));
  loss_.kernel(muster_vocab_sum_exp(logits_, targets_, row_max_, stats_, vocab_offset()));
  loss_.join(sum_over_tp(loss_, stats_));
  loss_.kernel(muster_vocab_loss(stats_, targets_, losses_));
  // Every rank has equally many tokens, so the mean over all tokens is the mean of the ranks' means.
  loss_.kernel(muster_sum(losses_, mean_loss_, 1.0 / static_cast<double>(rows_ * positions_), 0));
  loss_reduced_ = loss_.collective(MUSTER_LANE_SMALL, all_reduce(mesh_.loss, MUSTER_AVG, mean_loss_));
}

// ---- backward ----------------------------------------------------------------------------------

void Model::record_head_backward() {
  Program& program = head_backward_;
  const auto weight = [&](std::size_t parameter) { return units_.weight(head_unit(), parameter); };
  const auto gradient = [&](std::size_t parameter) { return units_.gradient(head_unit(), parameter); };
  program.kernel(muster_vocab_backward(logits_, targets_, row_max_, stats_, logits_, vocab_offset(),
                                       1.0 / static_cast<double>(rows_ * positions_)));
  program.kernel(muster_linear_dgrad(logits_, weight(kTable), d_normed_, 0));
  const Mark summed = sum_over_tp(program, d_normed_);  // runs beside the next product
  program.kernel(muster_linear_wgrad(logits_, normed_, gradient(kTable), muster_none(), 0));
  program.join(summed);
  program.kernel(muster_rms_norm_backward(d_normed_, stream_.back(), weight(kFinalNorm), normed_rstd_,
                                          d_stream_, gradient(kFinalNorm), 0, 0));
}

void Model::record_mlp_backward(Program& program, std::size_t layer) {
  const Block& b = blocks_[layer];
  program.kernel(muster_linear_dgrad(d_stream_, block_weight(layer, kDown), d_activated_, 0));
  program.kernel(muster_linear_wgrad(d_stream_, b.activated, block_gradient(layer, kDown), muster_none(), 0));
  program.kernel(muster_swiglu_backward(d_activated_, columns(b.gate_up, 0, hidden_),
                                        columns(b.gate_up, hidden_, hidden_), columns(d_gate_up_, 0, hidden_),
                                        columns(d_gate_up_, hidden_, hidden_)));
  program.kernel(muster_linear_dgrad(d_gate_up_, block_weight(layer, kGate, 2), d_normed_, 0));
  const Mark summed = sum_over_tp(program, d_normed_);
  program.kernel(
      muster_linear_wgrad(d_gate_up_, b.middle_normed, block_gradient(layer, kGate, 2), muster_none(), 0));
  program.join(summed);
  // The gradient goes through the norm and past it: the norm adds its part to d_stream.
  program.kernel(muster_rms_norm_backward(d_normed_, b.middle, block_weight(layer, kMlpNorm), b.middle_rstd,
                                          d_stream_, block_gradient(layer, kMlpNorm), 1, 0));
}

void Model::record_attention_backward(Program& program, std::size_t layer) {
  const Block& b = blocks_[layer];
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_width_));
  const auto part = [this](const muster_tensor& qkv, std::int64_t which) {
    return heads(qkv, which * heads_, heads_);
  };
  program.kernel(muster_linear_dgrad(d_stream_, block_weight(layer, kOutput), d_attended_, 0));
  program.kernel(
      muster_linear_wgrad(d_stream_, b.attended, block_gradient(layer, kOutput), muster_none(), 0));
  const std::int64_t position = mesh_.positions(context_).begin;
  const bool is_split = mesh_.cp.size > 1;
  program.kernel(muster_attention_backward(
      heads(d_attended_, 0, heads_), part(b.qkv, 0), is_split ? all_heads(b.keys_values, 0) : part(b.qkv, 1),
      is_split ? all_heads(b.keys_values, heads_) : part(b.qkv, 2), heads(b.attended, 0, heads_), b.lse,
      part(d_qkv_, 0), is_split ? all_heads(d_keys_values_, 0) : part(d_qkv_, 1),
      is_split ? all_heads(d_keys_values_, heads_) : part(d_qkv_, 2), scale, 1, position, 0));
  if (is_split) scatter_context(program);
  const muster_tensor queries_and_keys = heads(d_qkv_, 0, 2 * heads_);
  program.kernel(muster_rope(queries_and_keys, queries_and_keys, position, kTheta, -1));
  program.kernel(muster_linear_dgrad(d_qkv_, block_weight(layer, kQuery, 3), d_normed_, 0));
  const Mark summed = sum_over_tp(program, d_normed_);
  program.kernel(muster_linear_wgrad(d_qkv_, b.normed, block_gradient(layer, kQuery, 3), muster_none(), 0));
  program.join(summed);
  program.kernel(muster_rms_norm_backward(d_normed_, stream_[layer], block_weight(layer, kAttentionNorm),
                                          b.normed_rstd, d_stream_, block_gradient(layer, kAttentionNorm), 1,
                                          0));
}

}  // namespace train_lm
