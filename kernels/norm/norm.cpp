#include "kernels/norm/norm.hpp"

#include "kernels/check.hpp"
#include "kernels/norm/shape.hpp"
#include "kernels/on_host.hpp"

#include <muster/kernels.h>

namespace muster::kernels::norm {
namespace {

constexpr std::array<Operand, 4> kRmsForward{
    {{"x", Operand::kRead}, {"weight", Operand::kRead}, {"y", Operand::kWrite}, {"rstd", Operand::kWrite}}};
constexpr std::array<Operand, 6> kRmsBackward{{{"dy", Operand::kRead},
                                               {"x", Operand::kRead},
                                               {"weight", Operand::kRead},
                                               {"rstd", Operand::kRead},
                                               {"dx", Operand::kReadWrite},
                                               {"dweight", Operand::kReadWrite}}};
constexpr std::array<Operand, 6> kLayerForward{{{"x", Operand::kRead},
                                                {"weight", Operand::kRead},
                                                {"bias", Operand::kRead, true},
                                                {"y", Operand::kWrite},
                                                {"mean", Operand::kWrite},
                                                {"rstd", Operand::kWrite}}};
constexpr std::array<Operand, 8> kLayerBackward{{{"dy", Operand::kRead},
                                                 {"x", Operand::kRead},
                                                 {"weight", Operand::kRead},
                                                 {"mean", Operand::kRead},
                                                 {"rstd", Operand::kRead},
                                                 {"dx", Operand::kReadWrite},
                                                 {"dweight", Operand::kReadWrite},
                                                 {"dbias", Operand::kReadWrite, true}}};

// x is [T, D] of a compute dtype; `like_x` share its shape and dtype.
Status check_rows(const Subject& s, std::size_t x, std::initializer_list<std::size_t> like_x) {
  MUSTER_RETURN_IF_ERROR(expect_dims(s, x, 2));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, x, {MUSTER_F32, MUSTER_BF16}));
  MUSTER_RETURN_IF_ERROR(expect_size_in(s, x, 1, 0, kRowElementsMax));
  return expect_like(s, like_x, x);
}

// [D] of x's dtype.
Status check_parameters(const Subject& s, std::size_t x, std::initializer_list<std::size_t> parameters) {
  for (const std::size_t operand : parameters) {
    MUSTER_RETURN_IF_ERROR(expect_dims(s, operand, 1));
    MUSTER_RETURN_IF_ERROR(expect_equal_size(s, operand, 0, x, 1));
    MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, operand, x));
  }
  return {};
}

// [D], F32 or the weight's dtype.
Status check_gradients(const Subject& s, std::size_t x, std::size_t weight,
                       std::initializer_list<std::size_t> gradients) {
  for (const std::size_t operand : gradients) {
    MUSTER_RETURN_IF_ERROR(expect_dims(s, operand, 1));
    MUSTER_RETURN_IF_ERROR(expect_equal_size(s, operand, 0, x, 1));
    MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, operand, {MUSTER_F32, s.tensor(weight).dtype}));
  }
  return {};
}

// [T], F32.
Status check_statistics(const Subject& s, std::size_t x, std::initializer_list<std::size_t> statistics) {
  for (const std::size_t operand : statistics) {
    MUSTER_RETURN_IF_ERROR(expect_dims(s, operand, 1));
    MUSTER_RETURN_IF_ERROR(expect_equal_size(s, operand, 0, x, 0));
    MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, operand, {MUSTER_F32}));
  }
  return {};
}

Status check_epsilon(const Subject& s) {
  MUSTER_RETURN_IF_ERROR(expect_finite(s, 0, "epsilon"));
  if (s.args.reals[0] >= 0.0) return {};
  return failure(Code::kBadArgument, "{}: epsilon is {}; it must not be negative", s.kernel, s.args.reals[0]);
}

Status check_accumulate(const Subject& s) {
  MUSTER_RETURN_IF_ERROR(expect_int(s, 0, "accumulate_dx", 0, 1));
  return expect_int(s, 1, "accumulate_dweight", 0, 1);
}

Status check_rms_forward(const Args& args) {
  const Subject s{"rms_norm_forward", kRmsForward, args};
  MUSTER_RETURN_IF_ERROR(check_rows(s, 0, {2}));
  MUSTER_RETURN_IF_ERROR(check_parameters(s, 0, {1}));
  MUSTER_RETURN_IF_ERROR(check_statistics(s, 0, {3}));
  return check_epsilon(s);
}

Status check_layer_forward(const Args& args) {
  const Subject s{"layer_norm_forward", kLayerForward, args};
  MUSTER_RETURN_IF_ERROR(check_rows(s, 0, {3}));
  MUSTER_RETURN_IF_ERROR(check_parameters(s, 0, {1, 2}));
  MUSTER_RETURN_IF_ERROR(check_statistics(s, 0, {4, 5}));
  return check_epsilon(s);
}

Status check_rms_backward(const Args& args) {
  const Subject s{"rms_norm_backward", kRmsBackward, args};
  MUSTER_RETURN_IF_ERROR(check_rows(s, 1, {0, 4}));
  MUSTER_RETURN_IF_ERROR(check_parameters(s, 1, {2}));
  MUSTER_RETURN_IF_ERROR(check_statistics(s, 1, {3}));
  MUSTER_RETURN_IF_ERROR(check_gradients(s, 1, 2, {5}));
  return check_accumulate(s);
}

Status check_layer_backward(const Args& args) {
  const Subject s{"layer_norm_backward", kLayerBackward, args};
  MUSTER_RETURN_IF_ERROR(check_rows(s, 1, {0, 5}));
  MUSTER_RETURN_IF_ERROR(check_parameters(s, 1, {2}));
  MUSTER_RETURN_IF_ERROR(check_statistics(s, 1, {3, 4}));
  MUSTER_RETURN_IF_ERROR(check_gradients(s, 1, 2, {6, 7}));
  return check_accumulate(s);
}

std::uint32_t parts_forward(const Args& args) {
  const Tensor& x = args.tensors[0];
  return parts_of(x.size[0], rows_per_part(x));
}

std::uint32_t parts_backward(const Args& args) {
  const Tensor& x = args.tensors[1];
  return parts_of(x.size[0], rows_per_part(x)) + parts_of(x.size[1], columns_per_part(x));
}

template<Form kForm>
void run_forward(const Args& args, std::uint32_t part) {
  const Tensor& x = args.tensors[0];
  forward_rows(kForm, args, range_of(x.size[0], rows_per_part(x), part));
}

Backward operands_of(Form form, const Args& args) {
  const auto& t = args.tensors;
  const Write dx = write_of(args.ints[0]);
  const Write dweight = write_of(args.ints[1]);
  if (form == Form::kRms) return {t[0], t[1], t[2], nullptr, t[3], t[4], t[5], nullptr, dx, dweight};
  return {t[0], t[1], t[2], &t[3], t[4], t[5], t[6], t[7].present() ? &t[7] : nullptr, dx, dweight};
}

template<Form kForm>
void run_backward(const Args& args, std::uint32_t part) {
  const Backward b = operands_of(kForm, args);
  const std::uint32_t row_parts = parts_of(b.x.size[0], rows_per_part(b.x));
  if (part < row_parts) {
    backward_rows(b, range_of(b.x.size[0], rows_per_part(b.x), part));
  } else {
    backward_columns(b, range_of(b.x.size[1], columns_per_part(b.x), part - row_parts));
  }
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 4> kRows{{
      {MUSTER_KERNEL_RMS_NORM_FORWARD, "rms_norm_forward", kRmsForward, 0, 1, check_rms_forward,
       parts_forward, launchers(on_host<run_forward<Form::kRms>>)},
      {MUSTER_KERNEL_RMS_NORM_BACKWARD, "rms_norm_backward", kRmsBackward, 2, 0, check_rms_backward,
       parts_backward, launchers(on_host<run_backward<Form::kRms>>)},
      {MUSTER_KERNEL_LAYER_NORM_FORWARD, "layer_norm_forward", kLayerForward, 0, 1, check_layer_forward,
       parts_forward, launchers(on_host<run_forward<Form::kLayer>>)},
      {MUSTER_KERNEL_LAYER_NORM_BACKWARD, "layer_norm_backward", kLayerBackward, 2, 0, check_layer_backward,
       parts_backward, launchers(on_host<run_backward<Form::kLayer>>)},
  }};
  return kRows;
}

}  // namespace muster::kernels::norm
