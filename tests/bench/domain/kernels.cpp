// Convolutions of a rank's part beside oneDNN on a dense array of its size, on one thread: domain_kernels
// [QUICK]. Prints a line of JSON for each shape and direction: GFLOP/s of oneDNN, of a row cut and of a
// column cut, and the time of interior and boundary launches as a part of one launch's.
#include "kernels/check.hpp"
#include "kernels/convolution/convolution.hpp"
#include "kernels/device/host/device.hpp"
#include "kernels/onednn/convolution.hpp"
#include "kernels/onednn/this_thread.hpp"

#include <muster/field_kernels.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

namespace {

using muster::Status;
using muster::kernels::Args;
using muster::kernels::Kernel;
using muster::kernels::Tensor;
using Clock = std::chrono::steady_clock;

// Runs each task at once, on the calling thread.
class HereStream final : public muster::device::host::TaskStream {
 public:
  Status submit(const muster::device::host::Task& task) override {
    for (std::uint32_t part = 0; part < task.parts; ++part) task.run(task.context, part);
    return {};
  }
  Status record(muster::device::Event& /*event*/) override { return {}; }
  Status wait(const muster::device::Event& /*event*/) override { return {}; }
  Status synchronize() override { return {}; }
  Status health() const override { return {}; }
};

struct Problem {
  std::int64_t rows, columns, in, out, kernel, stride;
  std::int64_t pad() const { return (kernel - 1) / 2; }
  std::int64_t result(std::int64_t items) const { return (items + 2 * pad() - kernel) / stride + 1; }
  double operations() const {
    return 2.0 * static_cast<double>(result(rows) * result(columns) * in * out * kernel * kernel);
  }
};
constexpr std::array<Problem, 12> kProblems{{{120, 240, 32, 32, 3, 1},
                                             {60, 240, 32, 32, 3, 1},
                                             {30, 480, 16, 16, 3, 1},
                                             {120, 480, 16, 16, 3, 1},
                                             {120, 240, 16, 32, 3, 2},
                                             {60, 240, 32, 64, 3, 2},
                                             {60, 120, 64, 64, 3, 1},
                                             {30, 60, 128, 128, 3, 1},
                                             {120, 240, 32, 32, 5, 1},
                                             {60, 120, 64, 32, 3, 1},
                                             {120, 240, 64, 64, 1, 1},
                                             {60, 240, 48, 48, 3, 1}}};

using Body = std::function<void()>;

// The best time of each, in seconds. They take turns, so what else runs on the machine meets all alike.
template<std::size_t N>
std::array<double, N> best(int turns, const std::array<Body, N>& bodies) {
  std::array<double, N> least;
  least.fill(1e9);
  for (int turn = 0; turn < turns; ++turn)
    for (std::size_t i = 0; i < N; ++i) {
      const auto begin = Clock::now();
      bodies[i]();
      least[i] = std::min(least[i], std::chrono::duration<double>(Clock::now() - begin).count());
    }
  return least;
}

Tensor dense(std::vector<float>& values, std::initializer_list<std::int64_t> shape) {
  Tensor tensor;
  tensor.dtype = MUSTER_F32;
  tensor.dims = static_cast<std::int32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), tensor.size.begin());
  std::int64_t stride = 1;
  for (auto d = shape.size(); d-- > 0; stride *= tensor.size[d]) tensor.stride[d] = stride;
  values.assign(static_cast<std::size_t>(stride), 0.5F);
  tensor.data = reinterpret_cast<std::byte*>(values.data());
  return tensor;
}

// The middle one of three ranks along a dim: arrays with ghosts, and what each direction computes.
class Rank {
 public:
  Rank(const Problem& p, bool by_columns) : p_(p), dim_(by_columns ? 1 : 0) {
    std::array<std::int64_t, 2> held{p.rows, p.columns};
    results_ = {p.result(p.rows), p.result(p.columns)};
    const std::int64_t own = held[dim_];
    items_ = {0, 0};
    first_ = {0, 0};
    items_[dim_] = own;
    first_[dim_] = own / p.stride;
    results_[dim_] = (2 * own - 1) / p.stride - first_[dim_] + 1;
    x_first_ = items_;
    x_first_[dim_] -= p.pad();
    const std::int64_t end = (first_[dim_] + results_[dim_] - 1) * p.stride - p.pad() + p.kernel;
    held[dim_] = std::max(2 * own, end) - x_first_[dim_];
    x = dense(x_, {1, held[0], held[1], p.in});
    w = dense(w_, {p.out, p.kernel, p.kernel, p.in});
    y = dense(y_, {1, results_[0], results_[1], p.out});
    dx = dense(dx_, {1, held[0], held[1], p.in});
    dw = dense(dw_, {p.out, p.kernel, p.kernel, p.in});
    own_ = {p.rows, p.columns};
  }
  // direction: 0 forward, 1 by items, 2 by weights. The part [begin, end) of what is computed along the cut.
  Args args(int direction, std::int64_t begin, std::int64_t end) const {
    Args args;
    if (direction == 0) args.tensors = {x, w, Tensor{}, y};
    if (direction == 1) args.tensors = {y, w, dx};
    if (direction == 2) args.tensors = {y, x, dw, Tensor{}};
    std::array<std::int64_t, 2> offset = direction == 1 ? items_ : first_,
                                length = direction == 1 ? own_ : results_;
    offset[dim_] += begin;
    length[dim_] = end - begin;
    args.ints = {1,        0,         p_.stride, p_.stride,   1,           1,         1,         1,
                 p_.pad(), p_.pad(),  0,         x_first_[0], x_first_[1], 0,         first_[0], first_[1],
                 0,        offset[0], offset[1], 0,           length[0],   length[1], 0};
    return args;
  }
  std::int64_t extent(int direction) const { return direction == 1 ? own_[dim_] : results_[dim_]; }

 private:
  Problem p_;
  std::size_t dim_;
  std::array<std::int64_t, 2> items_{}, first_{}, results_{}, own_{}, x_first_{};
  std::vector<float> x_, w_, y_, dx_, dw_;
  Tensor x, w, y, dx, dw;
};

Body body_of(int direction, std::vector<Args> launches) {
  const Kernel& row = muster::kernels::convolution::rows()[static_cast<std::size_t>(direction)];
  for (const Args& args : launches)
    if (const Status status = muster::kernels::validate(row, args); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.text().c_str());
      std::exit(1);
    }
  return [&row, launches = std::move(launches)] {
    HereStream stream;
    for (const Args& args : launches) static_cast<void>(row.launchers[0](stream, row, args));
  };
}

// oneDNN on a dense array.
class Dense {
 public:
  explicit Dense(const Problem& p) {
    c_.dims = 2;
    c_.channels = p.in;
    c_.outputs = p.out;
    c_.source = {p.rows, p.columns, 0};
    c_.result = {p.result(p.rows), p.result(p.columns), 0};
    c_.kernel = {p.kernel, p.kernel, 0};
    c_.stride = {p.stride, p.stride, 0};
    c_.dilation = {1, 1, 0};
    c_.before = {p.pad(), p.pad(), 0};
    c_.after = {(c_.result[0] - 1) * p.stride + p.kernel - p.rows - p.pad(),
                (c_.result[1] - 1) * p.stride + p.kernel - p.columns - p.pad(), 0};
    dense(x_, {1, p.rows, p.columns, p.in});
    dense(w_, {p.out, p.kernel, p.kernel, p.in});
    dense(y_, {1, c_.result[0], c_.result[1], p.out});
  }
  void run(int direction) {
    namespace onednn = muster::kernels::onednn;
    if (direction == 0) onednn::convolve(c_, x_.data(), w_.data(), nullptr, y_.data());
    if (direction == 1) onednn::convolve_back(c_, y_.data(), w_.data(), x_.data());
    if (direction == 2) onednn::weigh(c_, x_.data(), y_.data(), w_.data());
  }

 private:
  muster::kernels::onednn::Convolution c_;
  std::vector<float> x_, w_, y_;
};

}  // namespace

int main(int argc, char** /*argv*/) {
  const int turns = argc > 1 ? 2 : 60;
  const std::size_t problems = argc > 1 ? 1 : kProblems.size();
  static constexpr std::array kDirections{"forward", "by items", "by weights"};
  for (std::size_t i = 0; i < problems; ++i) {
    const Problem& p = kProblems[i];
    const Rank rows(p, false), columns(p, true);
    Dense alone(p);
    for (int direction = 0; direction < 3; ++direction) {
      const std::int64_t end = rows.extent(direction);
      const std::vector<Args> parts{rows.args(direction, 1, end - 1), rows.args(direction, 0, 1),
                                    rows.args(direction, end - 1, end)};
      const auto [dense_time, whole, split, sideways] =
          best<4>(turns, {[&] { alone.run(direction); }, body_of(direction, {rows.args(direction, 0, end)}),
                          body_of(direction, parts),
                          body_of(direction, {columns.args(direction, 0, columns.extent(direction))})});
      const double giga = p.operations() * 1e-9;
      std::printf(
          "{\"shape\": \"%lldx%lld %lld->%lld k%lld s%lld\", \"direction\": \"%s\", \"onednn\": %.2f, "
          "\"rows\": %.2f, "
          "\"columns\": %.2f, \"split\": %.4f}\n",
          static_cast<long long>(p.rows), static_cast<long long>(p.columns), static_cast<long long>(p.in),
          static_cast<long long>(p.out), static_cast<long long>(p.kernel), static_cast<long long>(p.stride),
          kDirections[static_cast<std::size_t>(direction)], giga / dense_time, giga / whole, giga / sideways,
          split / whole);
    }
  }
  return 0;
}
