// Elementwise rows: every output element depends on its own inputs only.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/kernel.hpp"

namespace muster::kernels::elementwise {

Status check_copy(const Args& args);
std::uint32_t parts_copy(const Args& args);
void run_copy(const Args& args, std::uint32_t part);

Status check_fill(const Args& args);
std::uint32_t parts_fill(const Args& args);
void run_fill(const Args& args, std::uint32_t part);

Status check_axpby(const Args& args);
std::uint32_t parts_axpby(const Args& args);
void run_axpby(const Args& args, std::uint32_t part);

inline constexpr std::array<Operand, 2> kCopyOperands{
    {{"source", Operand::kRead}, {"target", Operand::kWrite}}};
inline constexpr std::array<Operand, 1> kFillOperands{{{"target", Operand::kWrite}}};
inline constexpr std::array<Operand, 2> kAxpbyOperands{{{"x", Operand::kRead}, {"y", Operand::kReadWrite}}};

}  // namespace muster::kernels::elementwise
