#include "kernels/activation/activation.hpp"

#include "kernels/check.hpp"
#include "kernels/math/normal.hpp"
#include "kernels/on_host.hpp"
#include "kernels/row.hpp"
#include "kernels/wide.hpp"

#include <muster/kernels.h>

namespace muster::kernels::activation {
namespace {

constexpr std::array<Operand, 2> kGeluForward{{{"x", Operand::kRead}, {"y", Operand::kWrite}}};
constexpr std::array<Operand, 3> kGeluBackward{
    {{"dy", Operand::kRead}, {"x", Operand::kRead}, {"dx", Operand::kWrite}}};
constexpr std::array<Operand, 3> kSwigluForward{
    {{"gate", Operand::kRead}, {"up", Operand::kRead}, {"y", Operand::kWrite}}};
constexpr std::array<Operand, 5> kSwigluBackward{{{"dy", Operand::kRead},
                                                  {"gate", Operand::kRead},
                                                  {"up", Operand::kRead},
                                                  {"dgate", Operand::kWrite},
                                                  {"dup", Operand::kWrite}}};

// 20 to 80 µs.
constexpr std::int64_t kElementsPerPart = 32 * 1024;
// Elements that go through a buffer at a time, if the run needs one. Five such buffers fit the first cache.
constexpr std::int64_t kChunk = 1024;

// The arithmetic of each kernel, on its input and output rows of n contiguous floats.
void gelu_forward(const float* const* in, float* const* out, std::int64_t n) {
  const float* x = in[0];
  float* y = out[0];
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * math::normal_at(x[i]).cdf;
}

// d/dx x·Φ(x) = Φ(x) + x·φ(x).
void gelu_backward(const float* const* in, float* const* out, std::int64_t n) {
  constexpr float kDensity = 0.398942280f;  // 1/√(2π)
  const float* dy = in[0];
  const float* x = in[1];
  float* dx = out[0];
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const math::Normal normal = math::normal_at(x[i]);
    dx[i] = dy[i] * (normal.cdf + x[i] * (kDensity * normal.bell));
  }
}

void swiglu_forward(const float* const* in, float* const* out, std::int64_t n) {
  const float* gate = in[0];
  const float* up = in[1];
  float* y = out[0];
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = gate[i] * math::sigmoid(gate[i]) * up[i];
}

// With s = sigmoid(gate): d/dgate gate·s = s·(1 + gate·(1 - s)).
void swiglu_backward(const float* const* in, float* const* out, std::int64_t n) {
  const float* dy = in[0];
  const float* gate = in[1];
  const float* up = in[2];
  float* dgate = out[0];
  float* dup = out[1];
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float s = math::sigmoid(gate[i]);
    dgate[i] = dy[i] * up[i] * (s * (1.0f + gate[i] * (1.0f - s)));
    dup[i] = dy[i] * (gate[i] * s);
  }
}

Status check_same(const char* kernel, std::span<const Operand> operands, const Args& args) {
  const Subject s{kernel, operands, args};
  if (args.tensors[0].dims == 0)
    return failure(Code::kBadArgument, "{}: {} is a scalar; it must have 1 to {} dims", kernel,
                   operands[0].name, MUSTER_TENSOR_DIMS_MAX);
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, 0, {MUSTER_F32, MUSTER_BF16}));
  for (std::size_t operand = 1; operand < operands.size(); ++operand)
    MUSTER_RETURN_IF_ERROR(expect_like(s, {operand}, 0));
  return {};
}

std::uint32_t parts(const Args& args) {
  return parts_of(args.tensors[0].count(), kElementsPerPart);
}

struct ChunkScratch;

template<std::size_t kInputs, std::size_t kOutputs,
         void (*kArithmetic)(const float* const* in, float* const* out, std::int64_t n)>
void run(const Args& args, std::uint32_t part) {
  constexpr std::size_t kViews = kInputs + kOutputs;
  std::array<const Tensor*, kViews> views{};
  for (std::size_t v = 0; v < kViews; ++v) views[v] = &args.tensors[v];
  const Walk<kViews> walk(views);
  const Range range = range_of(walk.count(), kElementsPerPart, part);
  float* buffer = scratch<ChunkScratch>(kChunk * static_cast<std::int64_t>(kViews));
  wide([&] {
    walk.over(range.begin, range.end, [&](const auto& at, std::int64_t length) {
      for (std::int64_t begin = 0; begin < length; begin += kChunk) {
        const std::int64_t n = std::min(kChunk, length - begin);
        const auto row = [&](std::size_t v) {
          return Row{*views[v], at[v] + begin * walk.step()[v], walk.step()[v], n};
        };
        std::array<const float*, kInputs> in{};
        std::array<float*, kOutputs> out{};
        for (std::size_t v = 0; v < kInputs; ++v) in[v] = read(row(v), buffer + v * kChunk);
        for (std::size_t v = kInputs; v < kViews; ++v)
          out[v - kInputs] = target(row(v), Write::kReplace, buffer + v * kChunk);
        kArithmetic(in.data(), out.data(), n);
        for (std::size_t v = kInputs; v < kViews; ++v) write(row(v), Write::kReplace, out[v - kInputs]);
      }
    });
  });
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 4> kRows{{
      {MUSTER_KERNEL_GELU_FORWARD, "gelu_forward", kGeluForward, 0, 0,
       [](const Args& args) { return check_same("gelu_forward", kGeluForward, args); }, parts,
       launchers(on_host<run<1, 1, gelu_forward>>)},
      {MUSTER_KERNEL_GELU_BACKWARD, "gelu_backward", kGeluBackward, 0, 0,
       [](const Args& args) { return check_same("gelu_backward", kGeluBackward, args); }, parts,
       launchers(on_host<run<2, 1, gelu_backward>>)},
      {MUSTER_KERNEL_SWIGLU_FORWARD, "swiglu_forward", kSwigluForward, 0, 0,
       [](const Args& args) { return check_same("swiglu_forward", kSwigluForward, args); }, parts,
       launchers(on_host<run<2, 1, swiglu_forward>>)},
      {MUSTER_KERNEL_SWIGLU_BACKWARD, "swiglu_backward", kSwigluBackward, 0, 0,
       [](const Args& args) { return check_same("swiglu_backward", kSwigluBackward, args); }, parts,
       launchers(on_host<run<3, 2, swiglu_backward>>)},
  }};
  return kRows;
}

}  // namespace muster::kernels::activation
