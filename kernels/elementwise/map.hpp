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
    {{"source", Intent::kRead, false}, {"target", Intent::kWrite, false}}};
inline constexpr std::array<Operand, 1> kFillOperands{{{"target", Intent::kWrite, false}}};
inline constexpr std::array<Operand, 2> kAxpbyOperands{
    {{"x", Intent::kRead, false}, {"y", Intent::kReadWrite, false}}};

}  // namespace muster::kernels::elementwise
