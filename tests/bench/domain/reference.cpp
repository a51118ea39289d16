#include "tests/bench/domain/reference.hpp"

#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

namespace muster::bench::domain {
namespace {

using Values = std::vector<double>;

Values doubles_of(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

std::size_t size_of(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

// The item that a window reads at `at`, or -1 in a pad of zeros.
std::int64_t item_at(std::int64_t at, std::int64_t items, bool is_circular) {
  if (is_circular) return (at % items + items) % items;
  return at < 0 || at >= items ? -1 : at;
}

// Visits each result with each item that it reads: places of their first channels, and the tap.
template<class Visit>
void each_pair(const StackLayer& l, Visit visit) {
  for (std::int64_t row = 0; row < l.after.rows; ++row)
    for (std::int64_t column = 0; column < l.after.columns; ++column)
      for (std::int64_t tap = 0; tap < l.kernel * l.kernel; ++tap) {
        const std::int64_t i = item_at(row * l.stride - l.pad + tap / l.kernel, l.before.rows, l.is_circular);
        const std::int64_t j =
            item_at(column * l.stride - l.pad + tap % l.kernel, l.before.columns, l.is_circular);
        if (i < 0 || j < 0) continue;
        visit(size_of((row * l.after.columns + column) * l.out),
              size_of((i * l.before.columns + j) * l.before.channels), size_of(tap));
      }
}

Values convolved(const StackLayer& l, const Values& x, const Values& w) {
  const std::size_t in = size_of(l.before.channels), out = size_of(l.out),
                    taps = size_of(l.kernel * l.kernel);
  Values turned(w.size());  // [tap, channel, out]
  for (std::size_t k = 0; k < out; ++k)
    for (std::size_t i = 0; i < taps * in; ++i) turned[i * out + k] = w[k * taps * in + i];
  Values y(size_of(l.after.elements()));
  each_pair(l, [&](std::size_t result, std::size_t item, std::size_t tap) {
    for (std::size_t c = 0; c < in; ++c)
      for (std::size_t k = 0; k < out; ++k) y[result + k] += turned[(tap * in + c) * out + k] * x[item + c];
  });
  return y;
}

Values convolved_back(const StackLayer& l, const Values& dy, const Values& w) {
  const std::size_t in = size_of(l.before.channels), out = size_of(l.out),
                    taps = size_of(l.kernel * l.kernel);
  Values dx(size_of(l.before.elements()));
  each_pair(l, [&](std::size_t result, std::size_t item, std::size_t tap) {
    for (std::size_t k = 0; k < out; ++k)
      for (std::size_t c = 0; c < in; ++c) dx[item + c] += w[(k * taps + tap) * in + c] * dy[result + k];
  });
  return dx;
}

Values weighed(const StackLayer& l, const Values& x, const Values& dy) {
  const std::size_t in = size_of(l.before.channels), out = size_of(l.out),
                    taps = size_of(l.kernel * l.kernel);
  Values dw(size_of(l.parameters()));
  each_pair(l, [&](std::size_t result, std::size_t item, std::size_t tap) {
    for (std::size_t k = 0; k < out; ++k)
      for (std::size_t c = 0; c < in; ++c) dw[(k * taps + tap) * in + c] += x[item + c] * dy[result + k];
  });
  return dw;
}

// A norm of one field, with its groups' mean and 1/deviation.
class Norm {
 public:
  Norm(const StackLayer& l, const Values& x, const Values& parameters)
      : channels_(size_of(l.before.channels)),
        per_group_(channels_ / size_of(l.groups)),
        count_(static_cast<double>(x.size() / size_of(l.groups))),
        x_(x),
        parameters_(parameters),
        mean_(size_of(l.groups)),
        rstd_(mean_.size()) {
    each([&](std::size_t i, std::size_t, std::size_t g) { mean_[g] += x_[i] / count_; });
    each([&](std::size_t i, std::size_t, std::size_t g) {
      rstd_[g] += (x_[i] - mean_[g]) * (x_[i] - mean_[g]) / count_;
    });
    for (double& each : rstd_) each = 1 / std::sqrt(each + kNormEpsilon);
  }
  Values forward() const {
    Values y(x_.size());
    each([&](std::size_t i, std::size_t c, std::size_t g) {
      y[i] = normal(i, g) * parameters_[c] + parameters_[channels_ + c];
    });
    return y;
  }
  // Also the gradients of scales, and of shifts behind them.
  std::pair<Values, Values> backward(const Values& dy) const {
    Values dx(x_.size()), gradients(2 * channels_), of_dy(mean_.size()), of_both(mean_.size());
    each([&](std::size_t i, std::size_t c, std::size_t g) {
      of_dy[g] += dy[i] * parameters_[c] / count_;
      of_both[g] += dy[i] * parameters_[c] * normal(i, g) / count_;
      gradients[c] += dy[i] * normal(i, g);
      gradients[channels_ + c] += dy[i];
    });
    each([&](std::size_t i, std::size_t c, std::size_t g) {
      dx[i] = rstd_[g] * (dy[i] * parameters_[c] - of_dy[g] - normal(i, g) * of_both[g]);
    });
    return {std::move(dx), std::move(gradients)};
  }

 private:
  double normal(std::size_t i, std::size_t group) const { return (x_[i] - mean_[group]) * rstd_[group]; }
  template<class Visit>
  void each(Visit visit) const {
    for (std::size_t i = 0; i < x_.size(); ++i) visit(i, i % channels_, i % channels_ / per_group_);
  }

  std::size_t channels_, per_group_;
  double count_;
  const Values& x_;
  const Values& parameters_;
  Values mean_, rstd_;
};

}  // namespace

StackResult reference_of(const Stack& stack) {
  std::vector<Values> fields{doubles_of(stack.input(0, stack.field.elements()))}, parameters;
  for (std::size_t i = 0; i < stack.layers.size(); ++i) {
    const StackLayer& layer = stack.layers[i];
    parameters.push_back(doubles_of(stack.parameters_of(i)));
    fields.push_back(layer.kind == StackLayer::Kind::kNorm
                         ? Norm(layer, fields.back(), parameters.back()).forward()
                         : convolved(layer, fields.back(), parameters.back()));
  }
  StackResult result;
  result.y = fields.back();
  Values gradient = doubles_of(stack.mean_weights(0, stack.result().elements()));
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] /= static_cast<double>(gradient.size());
    result.mean += result.y[i] * gradient[i];
  }
  for (std::size_t i = stack.layers.size(); i-- > 0;) {
    const StackLayer& layer = stack.layers[i];
    Values of_parameters;
    if (layer.kind == StackLayer::Kind::kNorm) {
      std::tie(gradient, of_parameters) = Norm(layer, fields[i], parameters[i]).backward(gradient);
    } else {
      of_parameters = weighed(layer, fields[i], gradient);
      gradient = convolved_back(layer, gradient, parameters[i]);
    }
    result.parameter_gradients.insert(result.parameter_gradients.begin(), of_parameters.begin(),
                                      of_parameters.end());
  }
  result.dx = std::move(gradient);
  return result;
}

}  // namespace muster::bench::domain
