#include "tests/kernels/families/twin/dropout.hpp"

#include <cmath>

namespace muster::kernels::twin {
namespace {

constexpr std::uint64_t kLow = 0xffffffffu;

}  // namespace

// Section 4.3 of Salmon et al. 2011: two halves, each a left and a right word, swap places after each round.
// The key of round r is the key plus r times the golden ratio and the root of three less one.
std::uint32_t dropout_word(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t block = index / 4;
  std::vector<std::uint64_t> right{block & kLow, 0};
  std::vector<std::uint64_t> left{block >> 32, 0};
  for (std::uint64_t r = 0; r < 10; ++r) {
    const std::uint64_t key_of_0 = ((seed & kLow) + r * 0x9e3779b9u) & kLow;
    const std::uint64_t key_of_1 = ((seed >> 32) + r * 0xbb67ae85u) & kLow;
    const std::uint64_t product_0 = right[0] * 0xd2511f53u;
    const std::uint64_t product_1 = right[1] * 0xcd9e8d57u;
    right = {(product_1 >> 32) ^ left[0] ^ key_of_0, (product_0 >> 32) ^ left[1] ^ key_of_1};
    left = {product_1 & kLow, product_0 & kLow};
  }
  const std::vector<std::uint64_t> words{right[0], left[0], right[1], left[1]};
  return static_cast<std::uint32_t>(words[index % 4]);
}

std::vector<double> dropout(const std::vector<double>& x, double p, std::uint64_t seed,
                            std::uint64_t offset) {
  const std::int64_t threshold = std::llround(std::ldexp(p, 32));
  std::vector<double> y(x.size(), 0.0);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (dropout_word(seed, offset + i) >= threshold) y[i] = x[i] / (1.0 - p);
  return y;
}

}  // namespace muster::kernels::twin
