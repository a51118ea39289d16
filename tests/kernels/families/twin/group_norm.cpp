#include "tests/kernels/families/twin/group_norm.hpp"

#include <cmath>

namespace muster::kernels::twin {
namespace {

struct Moments {
  long double mean = 0, rstd = 0;
};

std::size_t place(const GroupNormSizes& s, std::int64_t n, std::int64_t p, std::int64_t c) {
  return static_cast<std::size_t>((n * s.points + p) * s.channels + c);
}

Moments moments_of(const GroupNormSizes& s, const Values& x, std::int64_t n, std::int64_t g, double epsilon) {
  const std::int64_t width = s.channels / s.groups;
  const auto count = static_cast<long double>(s.points * width);
  Moments m;
  long double variance = 0;
  for (std::int64_t p = 0; p < s.points; ++p)
    for (std::int64_t c = g * width; c < (g + 1) * width; ++c) m.mean += x[place(s, n, p, c)] / count;
  for (std::int64_t p = 0; p < s.points; ++p)
    for (std::int64_t c = g * width; c < (g + 1) * width; ++c)
      variance += (x[place(s, n, p, c)] - m.mean) * (x[place(s, n, p, c)] - m.mean) / count;
  m.rstd = 1 / std::sqrt(variance + epsilon);
  return m;
}

}  // namespace

Values group_norm_forward(const GroupNormSizes& s, const Values& x, const Values& weight, const Values& bias,
                          double epsilon) {
  Values y(x.size());
  for (std::int64_t n = 0; n < s.samples; ++n)
    for (std::int64_t c = 0; c < s.channels; ++c) {
      const Moments m = moments_of(s, x, n, c / (s.channels / s.groups), epsilon);
      for (std::int64_t p = 0; p < s.points; ++p)
        y[place(s, n, p, c)] = static_cast<double>((x[place(s, n, p, c)] - m.mean) * m.rstd *
                                                       weight[static_cast<std::size_t>(c)] +
                                                   bias[static_cast<std::size_t>(c)]);
    }
  return y;
}

GroupNormGradients group_norm_backward(const GroupNormSizes& s, const Values& dy, const Values& x,
                                       const Values& weight, double epsilon) {
  GroupNormGradients out{Values(x.size()), Values(weight.size()), Values(weight.size())};
  const std::int64_t width = s.channels / s.groups;
  const auto count = static_cast<long double>(s.points * width);
  for (std::int64_t n = 0; n < s.samples; ++n)
    for (std::int64_t g = 0; g < s.groups; ++g) {
      const Moments m = moments_of(s, x, n, g, epsilon);
      long double plain = 0, with_x = 0;
      const auto each = [&](auto visit) {
        for (std::int64_t p = 0; p < s.points; ++p)
          for (std::int64_t c = g * width; c < (g + 1) * width; ++c) {
            const std::size_t at = place(s, n, p, c), channel = static_cast<std::size_t>(c);
            visit(at, channel, (x[at] - m.mean) * m.rstd, static_cast<long double>(dy[at]) * weight[channel]);
          }
      };
      each([&](std::size_t at, std::size_t channel, long double normed, long double gradient) {
        plain += gradient;
        with_x += gradient * normed;
        out.dweight[channel] += static_cast<double>(dy[at] * normed);
        out.dbias[channel] += dy[at];
      });
      each([&](std::size_t at, std::size_t, long double normed, long double gradient) {
        out.dx[at] = static_cast<double>(m.rstd * (gradient - plain / count - normed * with_x / count));
      });
    }
  return out;
}

}  // namespace muster::kernels::twin
