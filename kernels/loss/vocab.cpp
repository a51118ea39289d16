#include "kernels/loss/token.hpp"
#include "kernels/wide.hpp"

#include <cmath>

namespace muster::kernels::loss {
namespace {

struct VocabScratch;

// The two values that VOCAB_SUM_EXP keeps of a token: the sum, and the target's logit minus the maximum.
float& word(const Tensor& stats, std::int64_t token, std::int64_t which) {
  return elements<float>(stats)[token * stats.stride[0] + which * stats.stride[1]];
}

// The shard's column of the target; -1: another rank owns it, or no rank does.
std::int64_t owned_column(std::int32_t target, const Tensor& logits, std::int64_t vocab_offset) {
  const std::int64_t column = target - vocab_offset;
  return target >= 0 && column >= 0 && column < logits.size[1] ? column : -1;
}

void maxima(const Args& args, Range tokens) {
  const Tensor& logits = args.tensors[0];
  const std::int64_t columns = logits.size[1];
  float* buffer = scratch<VocabScratch>(columns);
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t)
    statistic(args.tensors[1], t) = row_max(read(row_of(logits, t), buffer), columns);
}

void sums(const Args& args, Range tokens) {
  const Tensor& logits = args.tensors[0];
  const Tensor& targets = args.tensors[1];
  const Tensor& row_max = args.tensors[2];
  const Tensor& stats = args.tensors[3];
  const std::int64_t columns = logits.size[1];
  float* buffer = scratch<VocabScratch>(columns);
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    const float* x = read(row_of(logits, t), buffer);
    const float largest = statistic(row_max, t);
    const std::int64_t hot = owned_column(target_at(targets, t), logits, args.ints[0]);
    word(stats, t, 0) = static_cast<float>(sum_exp(x, columns, largest));
    word(stats, t, 1) = hot >= 0 ? x[hot] - largest : 0.0f;
  }
}

void losses(const Args& args, Range tokens) {
  const Tensor& stats = args.tensors[0];
  const Tensor& targets = args.tensors[1];
  const Tensor& loss = args.tensors[2];
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    const std::int32_t target = target_at(targets, t);
    const double value =
        std::log(static_cast<double>(word(stats, t, 0))) - static_cast<double>(word(stats, t, 1));
    statistic(loss, t) = target >= 0 ? static_cast<float>(value) : target == kIgnored ? 0.0f : kNan;
  }
}

void gradients(const Args& args, Range tokens) {
  const Tensor& logits = args.tensors[0];
  const Tensor& targets = args.tensors[1];
  const Tensor& row_max = args.tensors[2];
  const Tensor& stats = args.tensors[3];
  const Tensor& dlogits = args.tensors[4];
  const std::int64_t columns = logits.size[1];
  const auto scale = static_cast<float>(args.reals[0]);
  float* buffer = scratch<VocabScratch>(2 * columns);
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    const Row out = row_of(dlogits, t);
    float* dx = target(out, Write::kReplace, buffer + columns);
    const std::int32_t id = target_at(targets, t);
    if (id < 0) {
      std::fill_n(dx, columns, id == kIgnored ? 0.0f : kNan);
    } else {
      const float* x = read(row_of(logits, t), buffer);
      const float largest = statistic(row_max, t);
      const float inverse = 1.0f / word(stats, t, 0);
      const std::int64_t hot = owned_column(id, logits, args.ints[0]);
      // Before dx overwrites x.
      const float at_target =
          hot >= 0 ? scale * (math::exponential(x[hot] - largest) * inverse - 1.0f) : 0.0f;
#pragma omp simd
      for (std::int64_t k = 0; k < columns; ++k)
        dx[k] = scale * (math::exponential(x[k] - largest) * inverse);
      if (hot >= 0) dx[hot] = at_target;
    }
    write(out, Write::kReplace, dx);
  }
}

}  // namespace

void vocab_max(const Args& args, Range tokens) {
  wide([&] { maxima(args, tokens); });
}
void vocab_sum_exp(const Args& args, Range tokens) {
  wide([&] { sums(args, tokens); });
}
void vocab_loss(const Args& args, Range tokens) {
  losses(args, tokens);
}
void vocab_backward(const Args& args, Range tokens) {
  wide([&] { gradients(args, tokens); });
}

}  // namespace muster::kernels::loss
