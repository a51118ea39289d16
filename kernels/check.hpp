// Checks of operands. A failed check gives a sentence with the kernel, the operand's name in the table, its
// shape, and what was expected.
//
// Pure functions. An absent optional operand passes every check. Callers pass an operand as its index in the
// kernel's table.
#pragma once

#include "kernels/kernel.hpp"

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace muster::kernels {

// The subject of a check: the name and operand table of a row, and one set of arguments.
struct Subject {
  const char* kernel;
  std::span<const Operand> operands;
  const Args& args;

  const Tensor& tensor(std::size_t operand) const { return args.tensors[operand]; }
  const char* name(std::size_t operand) const { return operands[operand].name; }
};

// "[128, 64]"; "a scalar" for no dims.
std::string shape_text(const Tensor& tensor);
// "f32"; "dtype 9" for an unknown number.
std::string dtype_text(muster_dtype dtype);

// The operand has exactly this many dims.
Status expect_dims(const Subject& s, std::size_t operand, std::int32_t dims);
// The operand has one of these dtypes.
Status expect_dtype_in(const Subject& s, std::size_t operand, std::initializer_list<muster_dtype> allowed);
// The operand has the dtype of operand `like`.
Status expect_same_dtype(const Subject& s, std::size_t operand, std::size_t like);
// The operand has the dims and sizes of operand `like`.
Status expect_same_shape(const Subject& s, std::size_t operand, std::size_t like);
// Each of the operands has the dims, sizes and dtype of operand `like`.
Status expect_like(const Subject& s, std::initializer_list<std::size_t> operands, std::size_t like);
// Size `dim` (0-based) is `value`.
Status expect_size(const Subject& s, std::size_t operand, std::int32_t dim, std::int64_t value);
// Size `dim` lies in low..high; a negative dim counts from the last.
Status expect_size_in(const Subject& s, std::size_t operand, std::int32_t dim, std::int64_t low,
                      std::int64_t high);
// Size `dim` equals size `like_dim` of operand `like`; a negative dim counts from the last.
Status expect_equal_size(const Subject& s, std::size_t operand, std::int32_t dim, std::size_t like,
                         std::int32_t like_dim);
// The operand has this many elements, in any dims.
Status expect_count(const Subject& s, std::size_t operand, std::int64_t value);
// ints[index] lies in low..high.
Status expect_int(const Subject& s, std::size_t index, const char* name, std::int64_t low, std::int64_t high);
// reals[index] is finite.
Status expect_finite(const Subject& s, std::size_t index, const char* name);

// Checks the operand count, presence, kernel.check, and that no output overlaps another operand. The engine
// calls this before it makes a plan.
Status validate(const Kernel& kernel, const Args& args);

// Makes room in args.partials for a fold, and what Kernel::prepare makes. Call it once, on checked args,
// before the first launch.
void prepare(const Kernel& kernel, Args& args);

}  // namespace muster::kernels
