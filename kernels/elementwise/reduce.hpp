// Rows that reduce to a scalar, and the coefficient of clipping.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/kernel.hpp"

namespace muster::kernels::elementwise {

// For all sums.
std::uint32_t parts_reduction(const Args& args);
void fold_reduction(const Args& args);

Status check_sum(const Args& args);
void run_sum(const Args& args, std::uint32_t part);

Status check_sum_squares(const Args& args);
void run_sum_squares(const Args& args, std::uint32_t part);

Status check_count_zeros(const Args& args);
void run_count_zeros(const Args& args, std::uint32_t part);

Status check_clip_coefficient(const Args& args);
void run_clip_coefficient(const Args& args, std::uint32_t part);

// The one output element has one writer.
std::uint32_t one_part(const Args& args);

inline constexpr std::array<Operand, 2> kSumOperands{{{"x", Operand::kRead}, {"out", Operand::kReadWrite}}};
inline constexpr std::array<Operand, 2> kClipOperands{
    {{"square_sum", Operand::kRead}, {"out", Operand::kWrite}}};

}  // namespace muster::kernels::elementwise
