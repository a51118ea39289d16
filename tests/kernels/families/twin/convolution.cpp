#include "tests/kernels/families/twin/convolution.hpp"

#include <functional>

namespace muster::kernels::twin {
namespace {

using Index = std::vector<std::int64_t>;

std::int64_t product(const Index& sizes) {
  std::int64_t all = 1;
  for (const std::int64_t size : sizes) all *= size;
  return all;
}

std::int64_t place(const Index& index, const Index& sizes) {
  std::int64_t place = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) place = place * sizes[d] + index[d];
  return place;
}

void each(const Index& sizes, const std::function<void(const Index&)>& visit) {
  for (std::int64_t i = 0; i < product(sizes); ++i) {
    Index index(sizes.size());
    std::int64_t rest = i;
    for (std::size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) index[d] = rest % sizes[d];
    visit(index);
  }
}

// Calls body(places of x, w and y) for each product that a whole convolution adds up.
void each_product(const ConvolutionSizes& s,
                  const std::function<void(std::size_t, std::size_t, std::size_t)>& body) {
  const Index results = s.results();
  const std::int64_t inputs = s.channels / s.groups, of_group = s.outputs / s.groups;
  for (std::int64_t n = 0; n < s.samples; ++n)
    each(results, [&](const Index& o) {
      each(s.kernel, [&](const Index& tap) {
        Index item(s.dims());
        for (std::size_t d = 0; d < s.dims(); ++d) {
          item[d] = o[d] * s.stride[d] - s.before[d] + tap[d] * s.dilation[d];
          if (item[d] < 0 || item[d] >= s.items[d]) return;
        }
        for (std::int64_t k = 0; k < s.outputs; ++k)
          for (std::int64_t c = 0; c < inputs; ++c) {
            const std::int64_t channel = k / of_group * inputs + c;
            body(static_cast<std::size_t>((n * product(s.items) + place(item, s.items)) * s.channels +
                                          channel),
                 static_cast<std::size_t>((k * product(s.kernel) + place(tap, s.kernel)) * inputs + c),
                 static_cast<std::size_t>((n * product(results) + place(o, results)) * s.outputs + k));
          }
      });
    });
}

}  // namespace

std::vector<std::int64_t> ConvolutionSizes::results() const {
  Index results;
  for (std::size_t d = 0; d < dims(); ++d)
    results.push_back((items[d] + before[d] + after[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1);
  return results;
}

Values convolution_forward(const ConvolutionSizes& s, const Values& x, const Values& w, const Values& bias) {
  Values y(static_cast<std::size_t>(s.samples * product(s.results()) * s.outputs), 0.0);
  for (std::size_t i = 0; i < y.size() && !bias.empty(); ++i) y[i] = bias[i % bias.size()];
  each_product(s, [&](std::size_t a, std::size_t b, std::size_t c) { y[c] += x[a] * w[b]; });
  return y;
}

Values convolution_dgrad(const ConvolutionSizes& s, const Values& dy, const Values& w) {
  Values dx(static_cast<std::size_t>(s.samples * product(s.items) * s.channels), 0.0);
  each_product(s, [&](std::size_t a, std::size_t b, std::size_t c) { dx[a] += dy[c] * w[b]; });
  return dx;
}

Values convolution_wgrad(const ConvolutionSizes& s, const Values& dy, const Values& x) {
  Values dw(static_cast<std::size_t>(s.outputs * product(s.kernel) * (s.channels / s.groups)), 0.0);
  each_product(s, [&](std::size_t a, std::size_t b, std::size_t c) { dw[b] += dy[c] * x[a]; });
  return dw;
}

Values convolution_dbias(const ConvolutionSizes& s, const Values& dy) {
  Values dbias(static_cast<std::size_t>(s.outputs), 0.0);
  for (std::size_t i = 0; i < dy.size(); ++i) dbias[i % dbias.size()] += dy[i];
  return dbias;
}

}  // namespace muster::kernels::twin
