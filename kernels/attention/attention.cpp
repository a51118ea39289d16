#include "kernels/attention/attention.hpp"

#include "kernels/attention/shape.hpp"
#include "kernels/check.hpp"
#include "kernels/on_host.hpp"

#include <muster/kernels.h>

namespace muster::kernels::attention {
namespace {

constexpr std::array<Operand, 5> kForward{{{"q", Operand::kRead},
                                           {"key", Operand::kRead},
                                           {"v", Operand::kRead},
                                           {"out", Operand::kWrite},
                                           {"lse", Operand::kWrite}}};
constexpr std::array<Operand, 9> kBackward{{{"dout", Operand::kRead},
                                            {"q", Operand::kRead},
                                            {"key", Operand::kRead},
                                            {"v", Operand::kRead},
                                            {"out", Operand::kRead},
                                            {"lse", Operand::kRead},
                                            {"dq", Operand::kWrite},
                                            {"dkey", Operand::kWrite},
                                            {"dv", Operand::kWrite}}};

constexpr std::int64_t kPositionMax = std::int64_t{1} << 40;

// Checks q, the key and value behind it, lse, and scale, causal and positions. `q` and `lse` are indices.
Status check_problem(const Subject& s, std::size_t q, std::size_t lse) {
  const std::size_t key = q + 1;
  MUSTER_RETURN_IF_ERROR(expect_dims(s, q, 4));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, q, {MUSTER_F32, MUSTER_BF16}));
  // Without features, any number of keys would cost time but no memory.
  MUSTER_RETURN_IF_ERROR(expect_size_in(s, q, 3, 1, kFeaturesMax));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, key, 4));
  MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, key, q));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, key, 0, q, 0));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, key, 3, q, 3));
  MUSTER_RETURN_IF_ERROR(expect_like(s, {key + 1}, key));
  const std::int64_t heads = s.tensor(q).size[2];
  const std::int64_t key_heads = s.tensor(key).size[2];
  if (key_heads == 0 ? heads != 0 : heads % key_heads != 0)
    return failure(Code::kBadArgument,
                   "{}: q is {}, but key is {}: the {} heads of q must be a multiple of the {} heads of key",
                   s.kernel, shape_text(s.tensor(q)), shape_text(s.tensor(key)), heads, key_heads);
  MUSTER_RETURN_IF_ERROR(expect_dims(s, lse, 3));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, lse, {MUSTER_F32}));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, lse, 0, q, 0));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, lse, 1, q, 2));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, lse, 2, q, 1));
  MUSTER_RETURN_IF_ERROR(expect_finite(s, 0, "scale"));
  MUSTER_RETURN_IF_ERROR(expect_int(s, 0, "causal", 0, 1));
  MUSTER_RETURN_IF_ERROR(expect_int(s, 1, "q_position", 0, kPositionMax));
  return expect_int(s, 2, "k_position", 0, kPositionMax);
}

Status check_forward(const Args& args) {
  const Subject s{"attention_forward", kForward, args};
  MUSTER_RETURN_IF_ERROR(check_problem(s, 0, 4));
  return expect_like(s, {3}, 0);
}

Status check_backward(const Args& args) {
  const Subject s{"attention_backward", kBackward, args};
  MUSTER_RETURN_IF_ERROR(check_problem(s, 1, 5));
  MUSTER_RETURN_IF_ERROR(expect_like(s, {0, 4, 6}, 1));
  return expect_like(s, {7, 8}, 2);
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 2> kRows{
      {{MUSTER_KERNEL_ATTENTION_FORWARD, "attention_forward", kForward, 3, 1, check_forward, forward_parts,
        launchers(on_host<forward_part>)},
       {MUSTER_KERNEL_ATTENTION_BACKWARD, "attention_backward", kBackward, 3, 1, check_backward,
        backward_parts, launchers(on_host<backward_part>)}}};
  return kRows;
}

}  // namespace muster::kernels::attention
