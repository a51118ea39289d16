// Shared parts of the kernel tests: seeded tensors in any memory layout with poison around every element,
// rows that run part by part in several orders, and comparison with a twin.
//
// A tensor's storage starts and ends with a border, and layouts other than kDense leave gaps between
// elements. All bytes that are no element hold poison; padding_intact() says whether they still do.
#pragma once

#include "kernels/kernel.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace muster::kernels::test {

using Shape = std::vector<std::int64_t>;
using Values = std::vector<double>;  // row-major, as the twins take them

// A reproducible source of numbers (SplitMix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  double uniform(double low, double high);
  std::int64_t integer(std::int64_t low, std::int64_t high);  // both included
  Values uniforms(std::size_t count, double low = -1.0, double high = 1.0);

 private:
  std::uint64_t state_;
};

enum class Layout {
  kDense,        // row-major, contiguous
  kPaddedRows,   // the last dim is contiguous, rows have a gap behind them
  kSpacedInner,  // every second element of a row, and a gap behind rows
  kTransposed,   // the first dim is the innermost in memory
};
inline constexpr std::initializer_list<Layout> kLayouts{Layout::kDense, Layout::kPaddedRows,
                                                        Layout::kSpacedInner, Layout::kTransposed};
std::string layout_name(Layout layout);

// Owns    its storage. Thread  one.
// Bound   by memory.  Fails  never.
class OwnedTensor {
 public:
  // All elements are poison until set() or fill().
  OwnedTensor(muster_dtype dtype, Shape shape, Layout layout = Layout::kDense);
  // Dense or laid out, holding `values` rounded to the dtype.
  OwnedTensor(muster_dtype dtype, Shape shape, Layout layout, const Values& values);

  Tensor view();
  const Shape& shape() const { return shape_; }
  std::int64_t count() const;

  void set(const Values& values);  // rounded to the dtype
  Values values() const;           // exact
  bool padding_intact() const;
  // The whole storage, for comparison bit by bit and for starting again.
  const std::vector<std::byte>& bytes() const { return storage_; }
  void restore(const std::vector<std::byte>& bytes);

 private:
  std::byte* at(std::int64_t element);
  const std::byte* at(std::int64_t element) const;

  muster_dtype dtype_;
  Shape shape_;
  Shape stride_;
  std::vector<std::byte> storage_;
};

// Values as the dtype would hold them: what a twin must start from to be compared fairly.
Values rounded(muster_dtype dtype, const Values& values);

Args args_of(std::initializer_list<Tensor> tensors, std::initializer_list<std::int64_t> ints = {},
             std::initializer_list<double> reals = {});

// The row of an op in a family's rows; fails the test and aborts if it is not there.
const Kernel& row_of(std::span<const Kernel> rows, std::int32_t op);

// validate() must say OK, then all parts run in order.
void run(const Kernel& kernel, const Args& args);

// The same, and again from equal starts: reversed, and where there are several parts shuffled and dealt to
// two threads; the outputs must be equal bit by bit and their padding untouched. Leaves the result in the
// outputs.
void run_in_any_order(const Kernel& kernel, const Args& args, std::initializer_list<OwnedTensor*> outputs);

// validate() must refuse with kBadArgument and a sentence that names the kernel and contains `needle`.
// Numbers that the test does not give are 0.
void expect_refused(const Kernel& kernel, Args args, const std::string& needle);

// |actual - expected| <= absolute + relative·|expected| for every element; NaN equals NaN.
struct Tolerance {
  double absolute = 0.0;
  double relative = 0.0;
};
void expect_close(const Values& actual, const Values& expected, Tolerance tolerance);

// One rounding of a result to the dtype: half a unit in the last place, relative to the value.
double half_ulp(muster_dtype dtype);

}  // namespace muster::kernels::test
