#include "kernels/optimiser/optimiser.hpp"

#include "kernels/check.hpp"
#include "kernels/element.hpp"
#include "kernels/on_host.hpp"
#include "kernels/wide.hpp"

#include <muster/kernels.h>

#include <cmath>

namespace muster::kernels::optimiser {
namespace {

constexpr std::array<Operand, 5> kAdamwOperands{{{"param", Operand::kReadWrite},
                                                 {"grad", Operand::kRead},
                                                 {"m", Operand::kReadWrite},
                                                 {"v", Operand::kReadWrite},
                                                 {"state", Operand::kRead}}};

// Seven streams of f32: about 1 MiB of traffic, 100 µs.
constexpr std::int64_t kElementsPerPart = 32 * 1024;

Status check_adamw(const Args& args) {
  const Subject s{"adamw", kAdamwOperands, args};
  for (std::size_t operand = 0; operand < kAdamwOperands.size(); ++operand)
    MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, operand, {MUSTER_F32}));
  for (std::size_t operand = 1; operand < 4; ++operand)
    MUSTER_RETURN_IF_ERROR(expect_same_shape(s, operand, 0));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 4, 1));
  MUSTER_RETURN_IF_ERROR(expect_size(s, 4, 0, 3));
  static constexpr std::array<const char*, 5> kNames{"learning_rate", "beta1", "beta2", "epsilon",
                                                     "weight_decay"};
  for (std::size_t i = 0; i < kNames.size(); ++i) MUSTER_RETURN_IF_ERROR(expect_finite(s, i, kNames[i]));
  for (const std::size_t beta : {1, 2})
    if (args.reals[beta] < 0.0 || args.reals[beta] >= 1.0)
      return failure(Code::kBadArgument, "adamw: {} is {}; it must be at least 0 and below 1", kNames[beta],
                     args.reals[beta]);
  if (args.reals[3] < 0.0)
    return failure(Code::kBadArgument, "adamw: epsilon is {}; it must not be negative", args.reals[3]);
  return {};
}

std::uint32_t parts_adamw(const Args& args) {
  return parts_of(args.tensors[0].count(), kElementsPerPart);
}

// The scalars of one step, computed in double and rounded once.
struct StepScalars {
  float gradient_scale;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float m_correction;       // 1 / (1 - beta1^t)
  float root_v_correction;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
  float rate;
  float weight_decay;
};

StepScalars step_of(const Args& args) {
  const Tensor& state = args.tensors[4];
  const auto word = [&state](std::int64_t i) {
    return static_cast<double>(elements<float>(state)[i * state.stride[0]]);
  };
  const double t = word(1);
  const double beta1 = args.reals[1];
  const double beta2 = args.reals[2];
  StepScalars step{};
  step.gradient_scale = static_cast<float>(word(2));
  step.beta1 = static_cast<float>(beta1);
  step.one_minus_beta1 = static_cast<float>(1.0 - beta1);
  step.beta2 = static_cast<float>(beta2);
  step.one_minus_beta2 = static_cast<float>(1.0 - beta2);
  step.m_correction = static_cast<float>(1.0 / (1.0 - std::pow(beta1, t)));
  step.root_v_correction = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, t)));
  step.epsilon = static_cast<float>(args.reals[3]);
  step.rate = static_cast<float>(args.reals[0] * word(0));
  step.weight_decay = static_cast<float>(args.reals[4]);
  return step;
}

// Updates one element. sqrt(v/(1-b2^t)) is computed as sqrt(v)·root_v_correction, which saves a division.
inline void update(const StepScalars& s, float& param, float grad, float& m, float& v) {
  const float g = grad * s.gradient_scale;
  m = s.beta1 * m + s.one_minus_beta1 * g;
  v = s.beta2 * v + s.one_minus_beta2 * (g * g);
  const float direction = (m * s.m_correction) / (std::sqrt(v) * s.root_v_correction + s.epsilon);
  param -= s.rate * (direction + s.weight_decay * param);
}

void run_adamw(const Args& args, std::uint32_t part) {
  const Walk<4> walk({&args.tensors[0], &args.tensors[1], &args.tensors[2], &args.tensors[3]});
  const Range range = range_of(walk.count(), kElementsPerPart, part);
  const StepScalars step = step_of(args);
  const auto start = [&args](std::size_t operand) { return elements<float>(args.tensors[operand]); };
  wide([&] {
    walk.over(range.begin, range.end, [&](const auto& at, std::int64_t n) {
      float* param = start(0) + at[0];
      const float* grad = start(1) + at[1];
      float* m = start(2) + at[2];
      float* v = start(3) + at[3];
      if (walk.unit_step()) {
        for (std::int64_t i = 0; i < n; ++i) update(step, param[i], grad[i], m[i], v[i]);
        return;
      }
      const auto& by = walk.step();
      for (std::int64_t i = 0; i < n; ++i)
        update(step, param[i * by[0]], grad[i * by[1]], m[i * by[2]], v[i * by[3]]);
    });
  });
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 1> kRows{{{MUSTER_KERNEL_ADAMW, "adamw", kAdamwOperands, 0, 5,
                                                 check_adamw, parts_adamw, launchers(on_host<run_adamw>)}}};
  return kRows;
}

}  // namespace muster::kernels::optimiser
