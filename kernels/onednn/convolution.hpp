// One convolution on one host thread: a dense problem of one sample in f32, channels last, and its gradients.
// The bits of an element do not depend on what else is computed with it, as long as the library takes the
// same code: it has several, and chooses by sizes and pads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace muster::kernels::onednn {

// Arrays are dense, row-major: source [source..., channels], result [result..., outputs], weights
// [outputs, kernel..., channels / groups], bias [outputs]. No size is zero, and no window lies in the pads
// alone.
struct Convolution {
  using Spatial = std::array<std::int64_t, 3>;
  std::size_t dims = 1;  // spatial ones, 1 to 3
  std::int64_t channels = 1;
  std::int64_t outputs = 1;
  std::int64_t groups = 1;
  Spatial source{};  // items
  Spatial result{};  // (source + before + after - dilation·(kernel-1) - 1) / stride + 1
  Spatial kernel{};
  Spatial stride{};
  Spatial dilation{};
  Spatial before{};  // pads of zeros
  Spatial after{};
  bool has_bias = false;
  friend bool operator==(const Convolution&, const Convolution&) = default;
};

enum class Pass : std::uint8_t { kForward, kBack, kWeigh };

// Generates the problem's code, which all threads of the process share, so that no launch waits for that. Any
// thread.
void prepare(const Convolution& c, Pass pass);

// convolve is the pass kForward, and so on. Each replaces its last argument. A thread keeps the primitives
// that it used last, and its work memory.
void convolve(const Convolution& c, const float* source, const float* weights, const float* bias,
              float* result);
void convolve_back(const Convolution& c, const float* gradients, const float* weights,
                   float* source_gradients);
void weigh(const Convolution& c, const float* source, const float* gradients, float* weight_gradients);

}  // namespace muster::kernels::onednn
