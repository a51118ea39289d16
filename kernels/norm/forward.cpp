#include "kernels/math/sum.hpp"
#include "kernels/norm/shape.hpp"
#include "kernels/wide.hpp"

#include <cmath>

namespace muster::kernels::norm {
namespace {

struct ForwardScratch;

// Operands of both forms; bias and mean are null where the form has none.
struct Forward {
  const Tensor& x;
  const Tensor& weight;
  const Tensor* bias;
  const Tensor& y;
  const Tensor* mean;
  const Tensor& rstd;
  double epsilon;
};

Forward operands_of(Form form, const Args& args) {
  const auto& t = args.tensors;
  if (form == Form::kRms) return {t[0], t[1], nullptr, t[2], nullptr, t[3], args.reals[0]};
  return {t[0], t[1], t[2].present() ? &t[2] : nullptr, t[3], &t[4], t[5], args.reals[0]};
}

void normalise(const Forward& f, Range rows) {
  const std::int64_t features = f.x.size[1];
  const double terms = static_cast<double>(std::max<std::int64_t>(1, features));
  float* buffer = scratch<ForwardScratch>(4 * features);
  const float* weight = read(whole(f.weight), buffer);
  const float* bias = f.bias != nullptr ? read(whole(*f.bias), buffer + features) : nullptr;
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    const float* x = read(row_of(f.x, i), buffer + 2 * features);
    const Row out = row_of(f.y, i);
    float* y = target(out, Write::kReplace, buffer + 3 * features);
    float mean = 0.0f;
    if (f.mean != nullptr) {
      mean = static_cast<float>(math::sum_of(features, [x](std::int64_t k) { return x[k]; }) / terms);
      statistic(*f.mean, i) = mean;
    }
    const double squares = math::sum_of(features, [x, mean](std::int64_t k) {
      const float centred = x[k] - mean;
      return centred * centred;
    });
    const auto rstd = static_cast<float>(1.0 / std::sqrt(squares / terms + f.epsilon));
    statistic(f.rstd, i) = rstd;
    if (bias != nullptr) {
      for (std::int64_t k = 0; k < features; ++k) y[k] = (x[k] - mean) * rstd * weight[k] + bias[k];
    } else {
      for (std::int64_t k = 0; k < features; ++k) y[k] = (x[k] - mean) * rstd * weight[k];
    }
    write(out, Write::kReplace, y);
  }
}

}  // namespace

void forward_rows(Form form, const Args& args, Range rows) {
  const Forward f = operands_of(form, args);
  wide([&] { normalise(f, rows); });
}

}  // namespace muster::kernels::norm
