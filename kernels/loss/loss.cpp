#include "kernels/loss/loss.hpp"

#include "kernels/check.hpp"
#include "kernels/loss/token.hpp"
#include "kernels/on_host.hpp"

#include <muster/kernels.h>

namespace muster::kernels::loss {
namespace {

constexpr std::array<Operand, 4> kDenseForward{{{"logits", Operand::kRead},
                                                {"targets", Operand::kRead},
                                                {"loss", Operand::kWrite},
                                                {"lse", Operand::kWrite}}};
constexpr std::array<Operand, 4> kDenseBackward{{{"logits", Operand::kRead},
                                                 {"targets", Operand::kRead},
                                                 {"lse", Operand::kRead},
                                                 {"dlogits", Operand::kReadWrite}}};
constexpr std::array<Operand, 2> kVocabMax{{{"logits", Operand::kRead}, {"row_max", Operand::kWrite}}};
constexpr std::array<Operand, 4> kVocabSumExp{{{"logits", Operand::kRead},
                                               {"targets", Operand::kRead},
                                               {"row_max", Operand::kRead},
                                               {"stats", Operand::kWrite}}};
constexpr std::array<Operand, 3> kVocabLoss{
    {{"stats", Operand::kRead}, {"targets", Operand::kRead}, {"loss", Operand::kWrite}}};
constexpr std::array<Operand, 5> kVocabBackward{{{"logits", Operand::kRead},
                                                 {"targets", Operand::kRead},
                                                 {"row_max", Operand::kRead},
                                                 {"stats", Operand::kRead},
                                                 {"dlogits", Operand::kReadWrite}}};

// [T, V], F32 or BF16. Always operand 0.
Status check_logits(const Subject& s) {
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 0, 2));
  MUSTER_RETURN_IF_ERROR(expect_size_in(s, 0, 1, 0, kRowElementsMax));
  return expect_dtype_in(s, 0, {MUSTER_F32, MUSTER_BF16});
}

// [T] of one dtype, T being the first size of operand 0.
Status check_per_token(const Subject& s, std::size_t operand, muster_dtype dtype) {
  MUSTER_RETURN_IF_ERROR(expect_dims(s, operand, 1));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, operand, 0, 0, 0));
  return expect_dtype_in(s, operand, {dtype});
}

// [T, 2] F32.
Status check_stats(const Subject& s, std::size_t operand) {
  MUSTER_RETURN_IF_ERROR(expect_dims(s, operand, 2));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, operand, 0, 0, 0));
  MUSTER_RETURN_IF_ERROR(expect_size(s, operand, 1, 2));
  return expect_dtype_in(s, operand, {MUSTER_F32});
}

Status check_gradient(const Subject& s, std::size_t operand) {
  MUSTER_RETURN_IF_ERROR(expect_like(s, {operand}, 0));
  return expect_finite(s, 0, "scale");
}

Status check_offset(const Subject& s) {
  return expect_int(s, 0, "vocab_offset", 0, std::numeric_limits<std::int32_t>::max());
}

Status check_dense_forward(const Args& args) {
  const Subject s{"cross_entropy_forward", kDenseForward, args};
  MUSTER_RETURN_IF_ERROR(check_logits(s));
  MUSTER_RETURN_IF_ERROR(check_per_token(s, 1, MUSTER_I32));
  MUSTER_RETURN_IF_ERROR(check_per_token(s, 2, MUSTER_F32));
  return check_per_token(s, 3, MUSTER_F32);
}

Status check_dense_backward(const Args& args) {
  const Subject s{"cross_entropy_backward", kDenseBackward, args};
  MUSTER_RETURN_IF_ERROR(check_logits(s));
  MUSTER_RETURN_IF_ERROR(check_per_token(s, 1, MUSTER_I32));
  MUSTER_RETURN_IF_ERROR(check_per_token(s, 2, MUSTER_F32));
  return check_gradient(s, 3);
}

Status check_vocab_max(const Args& args) {
  const Subject s{"vocab_max", kVocabMax, args};
  MUSTER_RETURN_IF_ERROR(check_logits(s));
  return check_per_token(s, 1, MUSTER_F32);
}

Status check_vocab_sum_exp(const Args& args) {
  const Subject s{"vocab_sum_exp", kVocabSumExp, args};
  MUSTER_RETURN_IF_ERROR(check_logits(s));
  MUSTER_RETURN_IF_ERROR(check_per_token(s, 1, MUSTER_I32));
  MUSTER_RETURN_IF_ERROR(check_per_token(s, 2, MUSTER_F32));
  MUSTER_RETURN_IF_ERROR(check_stats(s, 3));
  return check_offset(s);
}

Status check_vocab_loss(const Args& args) {
  const Subject s{"vocab_loss", kVocabLoss, args};
  MUSTER_RETURN_IF_ERROR(check_stats(s, 0));
  MUSTER_RETURN_IF_ERROR(check_per_token(s, 1, MUSTER_I32));
  return check_per_token(s, 2, MUSTER_F32);
}

Status check_vocab_backward(const Args& args) {
  const Subject s{"vocab_backward", kVocabBackward, args};
  MUSTER_RETURN_IF_ERROR(check_logits(s));
  MUSTER_RETURN_IF_ERROR(check_per_token(s, 1, MUSTER_I32));
  MUSTER_RETURN_IF_ERROR(check_per_token(s, 2, MUSTER_F32));
  MUSTER_RETURN_IF_ERROR(check_stats(s, 3));
  MUSTER_RETURN_IF_ERROR(check_offset(s));
  return check_gradient(s, 4);
}

std::uint32_t parts_by_logits(const Args& args) {
  return parts_of(args.tensors[0].size[0], tokens_per_part(args.tensors[0]));
}

std::uint32_t parts_by_tokens(const Args& args) {
  return parts_of(args.tensors[0].size[0], kTokensPerLossPart);
}

template<void (*kTokens)(const Args&, Range)>
void run_logits(const Args& args, std::uint32_t part) {
  const Tensor& logits = args.tensors[0];
  kTokens(args, range_of(logits.size[0], tokens_per_part(logits), part));
}

void run_loss(const Args& args, std::uint32_t part) {
  vocab_loss(args, range_of(args.tensors[0].size[0], kTokensPerLossPart, part));
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 6> kRows{{
      {MUSTER_KERNEL_CROSS_ENTROPY_FORWARD, "cross_entropy_forward", kDenseForward, 0, 0, check_dense_forward,
       parts_by_logits, launchers(on_host<run_logits<dense_forward>>)},
      {MUSTER_KERNEL_CROSS_ENTROPY_BACKWARD, "cross_entropy_backward", kDenseBackward, 0, 1,
       check_dense_backward, parts_by_logits, launchers(on_host<run_logits<dense_backward>>), 0},
      {MUSTER_KERNEL_VOCAB_MAX, "vocab_max", kVocabMax, 0, 0, check_vocab_max, parts_by_logits,
       launchers(on_host<run_logits<vocab_max>>)},
      {MUSTER_KERNEL_VOCAB_SUM_EXP, "vocab_sum_exp", kVocabSumExp, 1, 0, check_vocab_sum_exp, parts_by_logits,
       launchers(on_host<run_logits<vocab_sum_exp>>)},
      {MUSTER_KERNEL_VOCAB_LOSS, "vocab_loss", kVocabLoss, 0, 0, check_vocab_loss, parts_by_tokens,
       launchers(on_host<run_loss>)},
      {MUSTER_KERNEL_VOCAB_BACKWARD, "vocab_backward", kVocabBackward, 1, 1, check_vocab_backward,
       parts_by_logits, launchers(on_host<run_logits<vocab_backward>>), 0},
  }};
  return kRows;
}

}  // namespace muster::kernels::loss
