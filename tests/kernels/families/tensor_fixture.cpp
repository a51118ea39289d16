#include "tests/kernels/families/tensor_fixture.hpp"

#include "api/base/assert.hpp"
#include "kernels/check.hpp"
#include "kernels/device/host/device.hpp"
#include "kernels/element.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::kernels::test {
namespace {

// Read as a float of any width this is a large odd number, which a kernel that reads padding cannot hide.
constexpr std::byte kPoison{0x5b};
constexpr std::size_t kBorderBytes = 64;

template<class F>
void with_element(muster_dtype dtype, F&& f) {
  dispatch_any(dtype, std::forward<F>(f));
}

void store_value(muster_dtype dtype, std::byte* p, double value) {
  with_element(dtype, [&]<class E>(std::type_identity<E>) {
    E element{};
    if constexpr (std::is_integral_v<E>)
      element = static_cast<E>(value);
    else
      store(&element, value);
    std::memcpy(p, &element, sizeof element);
  });
}

double load_value(muster_dtype dtype, const std::byte* p) {
  double value = 0.0;
  with_element(dtype, [&]<class E>(std::type_identity<E>) {
    E element{};
    std::memcpy(&element, p, sizeof element);
    if constexpr (std::is_integral_v<E>)
      value = static_cast<double>(element);
    else
      value = static_cast<double>(load(&element));
  });
  return value;
}

Shape strides_of(const Shape& shape, Layout layout) {
  const std::size_t dims = shape.size();
  Shape stride(dims, 1);
  std::int64_t step = layout == Layout::kSpacedInner ? 2 : 1;
  for (std::size_t i = 0; i < dims; ++i) {
    const std::size_t d = layout == Layout::kTransposed ? i : dims - 1 - i;
    stride[d] = step;
    step *= std::max<std::int64_t>(shape[d], 1);
    if (layout != Layout::kDense && i == 0) step += 5;  // the gap behind a row
  }
  return stride;
}

using Order = std::vector<std::uint32_t>;

// Keeps what is launched on it: first all parts, then what folds them.
class KeptTasks final : public device::host::TaskStream {
 public:
  Status submit(const device::host::Task& task) override {
    tasks.push_back(task);
    return {};
  }
  Status record(device::Event&) override { return {}; }
  Status wait(const device::Event&) override { return {}; }
  Status synchronize() override { return {}; }
  Status health() const override { return {}; }

  std::vector<device::host::Task> tasks;
};

void run_here(const device::host::Task& task, const Order& order) {
  for (const std::uint32_t part : order) task.run(task.context, part);
}
// Even positions of the order on one thread, odd ones on another.
void run_on_two_threads(const device::host::Task& task, const Order& order) {
  Order mine;
  Order theirs;
  for (std::size_t i = 0; i < order.size(); ++i) (i % 2 == 0 ? mine : theirs).push_back(order[i]);
  std::thread other([&] { run_here(task, theirs); });
  run_here(task, mine);
  other.join();
}

template<class Runner>
void run_parts(const Kernel& kernel, Args args, const Order& order, Runner runner) {
  prepare(kernel, args);
  KeptTasks stream;
  const Status launched = kernel.launchers[static_cast<std::size_t>(stream.kind())](stream, kernel, args);
  MUSTER_ASSERT(launched.ok() && stream.tasks.size() <= 2);
  if (stream.tasks.front().parts > 0) runner(stream.tasks.front(), order);
  if (stream.tasks.size() == 2) run_here(stream.tasks.back(), {0});
}

}  // namespace

std::uint64_t Random::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::uniform(double low, double high) {
  return low + (high - low) * (static_cast<double>(next() >> 11) * 0x1p-53);
}

std::int64_t Random::integer(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
}

Values Random::uniforms(std::size_t count, double low, double high) {
  Values values(count);
  for (double& value : values) value = uniform(low, high);
  return values;
}

std::string layout_name(Layout layout) {
  switch (layout) {
    case Layout::kDense:
      return "dense";
    case Layout::kPaddedRows:
      return "padded rows";
    case Layout::kSpacedInner:
      return "spaced inner";
    case Layout::kTransposed:
      return "transposed";
  }
  return "?";
}

OwnedTensor::OwnedTensor(muster_dtype dtype, Shape shape, Layout layout)
    : dtype_(dtype), shape_(std::move(shape)), stride_(strides_of(shape_, layout)) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < shape_.size(); ++d)
    last += std::max<std::int64_t>(shape_[d] - 1, 0) * stride_[d];
  const auto elements = static_cast<std::size_t>(last + 1);
  storage_.assign(2 * kBorderBytes + elements * static_cast<std::size_t>(element_bytes(dtype)), kPoison);
}

OwnedTensor::OwnedTensor(muster_dtype dtype, Shape shape, Layout layout, const Values& values)
    : OwnedTensor(dtype, std::move(shape), layout) {
  set(values);
}

std::int64_t OwnedTensor::count() const {
  return std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>());
}

const std::byte* OwnedTensor::at(std::int64_t element) const {
  std::int64_t offset = 0;
  for (std::size_t d = shape_.size(); d-- > 0;) {
    offset += element % shape_[d] * stride_[d];
    element /= shape_[d];
  }
  return storage_.data() + kBorderBytes + offset * element_bytes(dtype_);
}

std::byte* OwnedTensor::at(std::int64_t element) {
  return const_cast<std::byte*>(static_cast<const OwnedTensor*>(this)->at(element));
}

Tensor OwnedTensor::view() {
  Tensor t;
  t.data = storage_.data() + kBorderBytes;
  t.dtype = dtype_;
  t.dims = static_cast<std::int32_t>(shape_.size());
  std::copy(shape_.begin(), shape_.end(), t.size.begin());
  std::copy(stride_.begin(), stride_.end(), t.stride.begin());
  return t;
}

void OwnedTensor::set(const Values& values) {
  ASSERT_EQ(static_cast<std::int64_t>(values.size()), count());
  for (std::int64_t i = 0; i < count(); ++i) store_value(dtype_, at(i), values[static_cast<std::size_t>(i)]);
}

Values OwnedTensor::values() const {
  Values values(static_cast<std::size_t>(count()));
  for (std::int64_t i = 0; i < count(); ++i) values[static_cast<std::size_t>(i)] = load_value(dtype_, at(i));
  return values;
}

bool OwnedTensor::padding_intact() const {
  std::vector<bool> is_element(storage_.size(), false);
  for (std::int64_t i = 0; i < count(); ++i)
    for (std::int64_t b = 0; b < element_bytes(dtype_); ++b)
      is_element[static_cast<std::size_t>(at(i) - storage_.data() + b)] = true;
  for (std::size_t b = 0; b < storage_.size(); ++b)
    if (!is_element[b] && storage_[b] != kPoison) return false;
  return true;
}

void OwnedTensor::restore(const std::vector<std::byte>& bytes) {
  ASSERT_EQ(bytes.size(), storage_.size());
  std::copy(bytes.begin(), bytes.end(), storage_.begin());  // in place: views keep their address
}

Values rounded(muster_dtype dtype, const Values& values) {
  OwnedTensor t(dtype, {static_cast<std::int64_t>(values.size())}, Layout::kDense, values);
  return t.values();
}

Args args_of(std::initializer_list<Tensor> tensors, std::initializer_list<std::int64_t> ints,
             std::initializer_list<double> reals) {
  Args args;
  args.tensors = tensors;
  args.ints = ints;
  args.reals = reals;
  return args;
}

const Kernel& row_of(std::span<const Kernel> rows, std::int32_t op) {
  const auto at = std::find_if(rows.begin(), rows.end(), [op](const Kernel& k) { return k.op == op; });
  if (at == rows.end()) {
    ADD_FAILURE() << "no row for op " << op;
    std::abort();
  }
  return *at;
}

void run(const Kernel& kernel, const Args& args) {
  const Status status = validate(kernel, args);
  ASSERT_TRUE(status.ok()) << status.text();
  Order order(kernel.parts(args));
  std::iota(order.begin(), order.end(), 0u);
  run_parts(kernel, args, order, run_here);
}

void run_in_any_order(const Kernel& kernel, const Args& args, std::initializer_list<OwnedTensor*> outputs) {
  std::vector<std::vector<std::byte>> before;
  for (const OwnedTensor* output : outputs) before.push_back(output->bytes());
  run(kernel, args);
  std::vector<std::vector<std::byte>> expected;
  for (const OwnedTensor* output : outputs) {
    expected.push_back(output->bytes());
    EXPECT_TRUE(output->padding_intact()) << kernel.name << " wrote outside its output";
  }

  Order order(kernel.parts(args));
  std::iota(order.rbegin(), order.rend(), 0u);
  const auto again = [&](const char* how, auto runner) {
    std::size_t i = 0;
    for (OwnedTensor* output : outputs) output->restore(before[i++]);
    run_parts(kernel, args, order, runner);
    i = 0;
    for (const OwnedTensor* output : outputs)
      EXPECT_TRUE(output->bytes() == expected[i++]) << kernel.name << ": other bits with the parts " << how;
  };
  again("reversed", run_here);
  if (order.size() < 2) return;
  Random random(0x5eed + order.size());
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1],
              order[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(i) - 1))]);
  again("shuffled", run_here);
  again("on two threads", run_on_two_threads);
}

void expect_refused(const Kernel& kernel, Args args, const std::string& needle) {
  if (args.ints.empty()) args.ints.resize(kernel.ints);
  if (args.reals.empty()) args.reals.resize(kernel.reals);
  const Status status = validate(kernel, args);
  EXPECT_EQ(status.code(), Code::kBadArgument);
  EXPECT_THAT(status.message(), testing::AllOf(testing::HasSubstr(kernel.name), testing::HasSubstr(needle)));
}

void expect_close(const Values& actual, const Values& expected, Tolerance tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const bool both_nan = std::isnan(actual[i]) && std::isnan(expected[i]);
    const double bound = tolerance.absolute + tolerance.relative * std::abs(expected[i]);
    const bool close = both_nan || actual[i] == expected[i] || std::abs(actual[i] - expected[i]) <= bound;
    if (!close && ++wrong <= 3)
      ADD_FAILURE() << "element " << i << " is " << actual[i] << ", expected " << expected[i] << " within "
                    << bound;
  }
  EXPECT_EQ(wrong, 0u) << "of " << actual.size() << " elements";
}

double half_ulp(muster_dtype dtype) {
  switch (dtype) {
    case MUSTER_BF16:
      return 0x1p-8;
    case MUSTER_F16:
      return 0x1p-11;
    case MUSTER_F32:
      return 0x1p-24;
    default:
      return 0x1p-53;
  }
}

}  // namespace muster::kernels::test
