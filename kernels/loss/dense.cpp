#include "kernels/loss/token.hpp"
#include "kernels/wide.hpp"

#include <cmath>

namespace muster::kernels::loss {
namespace {

struct DenseScratch;

void losses(const Args& args, Range tokens) {
  const Tensor& logits = args.tensors[0];
  const Tensor& targets = args.tensors[1];
  const Tensor& loss = args.tensors[2];
  const Tensor& lse = args.tensors[3];
  const std::int64_t columns = logits.size[1];
  float* buffer = scratch<DenseScratch>(columns);
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    const float* x = read(row_of(logits, t), buffer);
    const float largest = row_max(x, columns);
    // If all logits are -inf, or there are none, the sum is zero and its logarithm -inf.
    const double sum = std::isinf(largest) && largest < 0.0f ? 0.0 : sum_exp(x, columns, largest);
    const double log_sum = std::log(sum);
    statistic(lse, t) = static_cast<float>(static_cast<double>(largest) + log_sum);
    const std::int32_t target = target_at(targets, t);
    float& out = statistic(loss, t);
    if (target == kIgnored)
      out = 0.0f;
    else if (target < 0 || target >= columns)
      out = kNan;
    else
      out = static_cast<float>(log_sum - static_cast<double>(x[target] - largest));
  }
}

void gradients(const Args& args, Range tokens) {
  const Tensor& logits = args.tensors[0];
  const Tensor& targets = args.tensors[1];
  const Tensor& lse = args.tensors[2];
  const Tensor& dlogits = args.tensors[3];
  const std::int64_t columns = logits.size[1];
  const auto scale = static_cast<float>(args.reals[0]);
  float* buffer = scratch<DenseScratch>(2 * columns);
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    const Row out = row_of(dlogits, t);
    float* dx = target(out, Write::kReplace, buffer + columns);
    const std::int32_t hot = target_at(targets, t);
    if (hot < 0 || hot >= columns) {
      std::fill_n(dx, columns, hot == kIgnored ? 0.0f : kNan);
    } else {
      const float* x = read(row_of(logits, t), buffer);
      const float shift = statistic(lse, t);
      const float at_target = scale * (math::exponential(x[hot] - shift) - 1.0f);  // before dx overwrites x
#pragma omp simd
      for (std::int64_t k = 0; k < columns; ++k) dx[k] = scale * math::exponential(x[k] - shift);
      dx[hot] = at_target;
    }
    write(out, Write::kReplace, dx);
  }
}

}  // namespace

void dense_forward(const Args& args, Range tokens) {
  wide([&] { losses(args, tokens); });
}
void dense_backward(const Args& args, Range tokens) {
  wide([&] { gradients(args, tokens); });
}

}  // namespace muster::kernels::loss
