#include "api/examples/training/random.hpp"

#include <cmath>
#include <numbers>

namespace training {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection whose output bits all depend on all
// input bits.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

}  // namespace

CounterRandom::CounterRandom(std::uint64_t seed, std::string_view stream) : key_(mix(seed + kGolden)) {
  for (const char c : stream) key_ = mix(key_ ^ (static_cast<unsigned char>(c) + kGolden));
}

std::uint64_t CounterRandom::bits(std::uint64_t index) const {
  return mix(key_ + kGolden * (index + 1));
}

double CounterRandom::uniform(std::uint64_t index) const {
  return static_cast<double>(bits(index) >> 11) * 0x1p-53;
}

// Box and Muller 1958, from two uniforms of this index alone. The first is moved off zero for the logarithm.
double CounterRandom::normal(std::uint64_t index) const {
  const double radius = std::sqrt(-2.0 * std::log(uniform(2 * index) + 0x1p-54));
  return radius * std::cos(2.0 * std::numbers::pi * uniform(2 * index + 1));
}

}  // namespace training
