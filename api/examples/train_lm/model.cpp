#include "api/examples/train_lm/model.hpp"

#include <cmath>

namespace train_lm {
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
enum HeadParameter : std::size_t { kHead, kFinalNorm };
constexpr std::size_t kTable = 0;

// Columns [first, first + count) of a matrix.
muster_tensor columns(muster_tensor matrix, std::int64_t first, std::int64_t count) {
  matrix.offset_bytes += static_cast<std::uint64_t>(first) * muster_dtype_bytes(matrix.dtype);
  matrix.size[1] = count;
  return matrix;
}

}  // namespace

Model::Model(Runtime& runtime, const Layout& layout, const Options& options, std::span<Unit> units,
             Workspace& workspace, std::int64_t rows)
    : runtime_(runtime),
      layout_(layout),
      units_(units),
      workspace_(workspace),
      dtype_(options.dtype),
      rows_(rows),
      context_(options.context),
      width_(options.width),
      head_width_(options.width / options.heads),
      heads_(options.heads / layout.tp.size),
      hidden_(ceil_chunk(options.hidden(), layout.tp.size, layout.tp.coordinate).count),
      vocabulary_(ceil_chunk(kVocabulary, layout.tp.size, layout.tp.coordinate).count) {
  const std::int64_t tokens = rows_ * context_;
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
}

muster_tensor Model::tensor(muster_dtype dtype, std::int64_t rows, std::int64_t columns) {
  const std::int64_t elements = rows * (columns == 0 ? 1 : columns);
  const Buffer buffer = runtime_.allocate(static_cast<std::uint64_t>(elements) * muster_dtype_bytes(dtype));
  return columns == 0 ? muster_view1(buffer.handle, 0, dtype, rows)
                      : muster_view2(buffer.handle, 0, dtype, rows, columns);
}

Model::Block Model::make_block() {
  const std::int64_t tokens = rows_ * context_;
  Block block;
  block.normed = tensor(dtype_, tokens, width_);
  block.normed_rstd = tensor(MUSTER_F32, tokens);
  block.qkv = tensor(dtype_, tokens, 3 * heads_ * head_width_);
  block.attended = tensor(dtype_, tokens, heads_ * head_width_);
  const muster_tensor lse = tensor(MUSTER_F32, rows_ * heads_, context_);
  block.lse = muster_view3(lse.buffer, 0, MUSTER_F32, rows_, heads_, context_);
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
  muster_tensor view = muster_view4(matrix.buffer, 0, matrix.dtype, rows_, context_, count, head_width_);
  view.offset_bytes = static_cast<std::uint64_t>(first * head_width_) * muster_dtype_bytes(matrix.dtype);
  view.stride[1] = matrix.stride[0];
  view.stride[0] = matrix.stride[0] * context_;
  return view;
}

Mark Model::sum_over_tp(Program& program, const muster_tensor& partial) {
  return program.collective(MUSTER_LANE_SMALL, all_reduce(layout_.tp.group, MUSTER_SUM, partial));
}

// ---- forward -----------------------------------------------------------------------------------

void Model::forward(Program& program) {
  workspace_.begin();
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    units_[unit].prefetch(program);
    if (unit + 1 < units_.size()) units_[unit + 1].prefetch(program);  // is gathered while this unit computes
    units_[unit].unshard(program);
    if (unit == 0)
      embed(program);
    else if (unit <= blocks_.size())
      block_forward(program, unit - 1);
    else
      head_forward(program);
  }
}

void Model::embed(Program& program) {
  program.kernel(
      muster_embedding_forward(ids_, units_[0].weight(kTable), stream_[0], units_[0].first_row(kTable)));
  program.join(sum_over_tp(program, stream_[0]));
}

void Model::block_forward(Program& program, std::size_t layer) {
  const Unit& unit = units_[layer + 1];
  const Block& b = blocks_[layer];
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_width_));
  const muster_tensor& in = stream_[layer];
  const muster_tensor& out = stream_[layer + 1];

  program.kernel(
      muster_rms_norm_forward(in, unit.weight(kAttentionNorm), b.normed, b.normed_rstd, kNormEpsilon));
  // Query, key and value lie one below the other, so one product makes all three.
  program.kernel(muster_linear_forward(b.normed, unit.weight(kQuery, 3), muster_none(), b.qkv));
  const muster_tensor queries_and_keys = heads(b.qkv, 0, 2 * heads_);
  program.kernel(muster_rope(queries_and_keys, queries_and_keys, 0, kTheta, +1));
  program.kernel(muster_attention_forward(heads(b.qkv, 0, heads_), heads(b.qkv, heads_, heads_),
                                          heads(b.qkv, 2 * heads_, heads_), heads(b.attended, 0, heads_),
                                          b.lse, scale, 1, 0, 0));
  program.kernel(muster_linear_forward(b.attended, unit.weight(kOutput), muster_none(), b.middle));
  program.join(sum_over_tp(program, b.middle));
  program.kernel(muster_axpby(1.0, in, 1.0, b.middle));

  program.kernel(
      muster_rms_norm_forward(b.middle, unit.weight(kMlpNorm), b.middle_normed, b.middle_rstd, kNormEpsilon));
  program.kernel(muster_linear_forward(b.middle_normed, unit.weight(kGate, 2), muster_none(), b.gate_up));
  program.kernel(muster_swiglu_forward(columns(b.gate_up, 0, hidden_), columns(b.gate_up, hidden_, hidden_),
                                       b.activated));
  program.kernel(muster_linear_forward(b.activated, unit.weight(kDown), muster_none(), out));
  program.join(sum_over_tp(program, out));
  program.kernel(muster_axpby(1.0, b.middle, 1.0, out));
}

void Model::head_forward(Program& program) {
  const Unit& unit = units_.back();
  program.kernel(
      muster_rms_norm_forward(stream_.back(), unit.weight(kFinalNorm), normed_, normed_rstd_, kNormEpsilon));
  program.kernel(muster_linear_forward(normed_, unit.weight(kHead), muster_none(), logits_));
}

// ---- loss: the vocabulary is cut over tp; maxima and sums of exponentials are reduced, not logits

void Model::loss(Program& program) {
  program.kernel(muster_vocab_max(logits_, row_max_));
  program.join(program.collective(MUSTER_LANE_SMALL, all_reduce(layout_.tp.group, MUSTER_MAX, row_max_)));
  program.kernel(muster_vocab_sum_exp(logits_, targets_, row_max_, stats_, vocab_offset()));
  program.join(sum_over_tp(program, stats_));
  program.kernel(muster_vocab_loss(stats_, targets_, losses_));
  // Every rank has equally many tokens, so the mean over all tokens is the mean of the ranks' means.
  program.kernel(muster_sum(losses_, mean_loss_, 1.0 / static_cast<double>(rows_ * context_), 0));
  loss_ready_ = program.collective(MUSTER_LANE_SMALL, all_reduce(layout_.dp, MUSTER_AVG, mean_loss_));
}

// ---- backward: units in reverse, each one's gradients sent off while the next one computes -----

void Model::backward(Program& program) {
  for (std::size_t unit = units_.size() - 1; unit > 0; --unit) {
    if (unit > 1) units_[unit - 1].prefetch(program);  // the embedding's backward does not read its table
    units_[unit].unshard(program);
    units_[unit].begin_gradients(program);
    if (unit == units_.size() - 1) {
      head_backward(program);
    } else {
      mlp_backward(program, unit - 1);
      attention_backward(program, unit - 1);
    }
    units_[unit].reduce(program);
  }
  units_[0].begin_gradients(program);
  program.kernel(
      muster_embedding_backward(ids_, d_stream_, units_[0].gradient(kTable), units_[0].first_row(kTable), 0));
  units_[0].reduce(program);
}

void Model::head_backward(Program& program) {
  const Unit& unit = units_.back();
  program.kernel(muster_vocab_backward(logits_, targets_, row_max_, stats_, logits_, vocab_offset(),
                                       1.0 / static_cast<double>(rows_ * context_)));
  program.kernel(muster_linear_dgrad(logits_, unit.weight(kHead), d_normed_, 0));
  const Mark summed = sum_over_tp(program, d_normed_);  // runs beside the next product
  program.kernel(muster_linear_wgrad(logits_, normed_, unit.gradient(kHead), muster_none(), 0));
  program.join(summed);
  program.kernel(muster_rms_norm_backward(d_normed_, stream_.back(), unit.weight(kFinalNorm), normed_rstd_,
                                          d_stream_, unit.gradient(kFinalNorm), 0, 0));
}

void Model::mlp_backward(Program& program, std::size_t layer) {
  const Unit& unit = units_[layer + 1];
  const Block& b = blocks_[layer];
  program.kernel(muster_linear_dgrad(d_stream_, unit.weight(kDown), d_activated_, 0));
  program.kernel(muster_linear_wgrad(d_stream_, b.activated, unit.gradient(kDown), muster_none(), 0));
  program.kernel(muster_swiglu_backward(d_activated_, columns(b.gate_up, 0, hidden_),
                                        columns(b.gate_up, hidden_, hidden_), columns(d_gate_up_, 0, hidden_),
                                        columns(d_gate_up_, hidden_, hidden_)));
  program.kernel(muster_linear_dgrad(d_gate_up_, unit.weight(kGate, 2), d_normed_, 0));
  const Mark summed = sum_over_tp(program, d_normed_);
  program.kernel(muster_linear_wgrad(d_gate_up_, b.middle_normed, unit.gradient(kGate, 2), muster_none(), 0));
  program.join(summed);
  // The gradient goes through the norm and past it: the norm adds its part to d_stream.
  program.kernel(muster_rms_norm_backward(d_normed_, b.middle, unit.weight(kMlpNorm), b.middle_rstd,
                                          d_stream_, unit.gradient(kMlpNorm), 1, 0));
}

void Model::attention_backward(Program& program, std::size_t layer) {
  const Unit& unit = units_[layer + 1];
  const Block& b = blocks_[layer];
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_width_));
  const auto part = [this](const muster_tensor& qkv, std::int64_t which) {
    return heads(qkv, which * heads_, heads_);
  };
  program.kernel(muster_linear_dgrad(d_stream_, unit.weight(kOutput), d_attended_, 0));
  program.kernel(muster_linear_wgrad(d_stream_, b.attended, unit.gradient(kOutput), muster_none(), 0));
  program.kernel(muster_attention_backward(heads(d_attended_, 0, heads_), part(b.qkv, 0), part(b.qkv, 1),
                                           part(b.qkv, 2), heads(b.attended, 0, heads_), b.lse,
                                           part(d_qkv_, 0), part(d_qkv_, 1), part(d_qkv_, 2), scale, 1, 0,
                                           0));
  const muster_tensor queries_and_keys = heads(d_qkv_, 0, 2 * heads_);
  program.kernel(muster_rope(queries_and_keys, queries_and_keys, 0, kTheta, -1));
  program.kernel(muster_linear_dgrad(d_qkv_, unit.weight(kQuery, 3), d_normed_, 0));
  const Mark summed = sum_over_tp(program, d_normed_);
  program.kernel(muster_linear_wgrad(d_qkv_, b.normed, unit.gradient(kQuery, 3), muster_none(), 0));
  program.join(summed);
  program.kernel(muster_rms_norm_backward(d_normed_, stream_[layer], unit.weight(kAttentionNorm),
                                          b.normed_rstd, d_stream_, unit.gradient(kAttentionNorm), 1, 0));
}

}  // namespace train_lm
