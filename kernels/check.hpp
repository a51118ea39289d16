// Checks of operands, each a sentence when it fails: kernel, operand by its name in the table, its shape,
// what was expected.
//
// Pure functions. An absent optional operand passes every check on it. Operands are named by their index in
// the kernel's table.
#pragma once

#include "kernels/kernel.hpp"

#include <initializer_list>
#include <string>

namespace muster::kernels {

// What is checked: the name and operand table of a row, and one set of arguments.
struct Subject {
  const char* kernel;
  std::span<const Operand> operands;
  const Args& args;

  const Tensor& tensor(std::size_t operand) const { return args.tensors[operand]; }
  const char* name(std::size_t operand) const { return operands[operand].name; }
};

// "[128, 64]"; "a scalar" for no dims.
std::string shape_text(const Tensor& tensor);
// "f32"; "dtype 9" for a number that is none.
std::string dtype_text(muster_dtype dtype);

// The operand has exactly this many dims.
Status expect_dims(const Subject& s, std::size_t operand, std::int32_t dims);
// One of these dtypes.
Status expect_dtype_in(const Subject& s, std::size_t operand, std::initializer_list<muster_dtype> allowed);
// The dtype of another operand.
Status expect_same_dtype(const Subject& s, std::size_t operand, std::size_t like);
// The dims and sizes of another operand.
Status expect_same_shape(const Subject& s, std::size_t operand, std::size_t like);
// Size `dim` (0-based) is `value`.
Status expect_size(const Subject& s, std::size_t operand, std::int32_t dim, std::int64_t value);
// Size `dim` lies in low..high; a negative dim counts from the last.
Status expect_size_in(const Subject& s, std::size_t operand, std::int32_t dim, std::int64_t low,
                      std::int64_t high);
// Size `dim` equals size `like_dim` of operand `like`; a negative dim counts from the last.
Status expect_equal_size(const Subject& s, std::size_t operand, std::int32_t dim, std::size_t like,
                         std::int32_t like_dim);
// The operand has this many elements, in whatever dims.
Status expect_count(const Subject& s, std::size_t operand, std::int64_t value);
// ints[index] lies in low..high.
Status expect_int(const Subject& s, std::size_t index, const char* name, std::int64_t low, std::int64_t high);
// reals[index] is finite.
Status expect_finite(const Subject& s, std::size_t index, const char* name);

// Checks operand count, presence, kernel.check, and that what is written lies apart from the rest. What the
// engine calls before it makes a plan.
Status validate(const Kernel& kernel, const Args& args);

// Makes room for what the parts leave for their fold, of checked args. Once, before they are launched.
void make_room(const Kernel& kernel, Args& args);

}  // namespace muster::kernels
