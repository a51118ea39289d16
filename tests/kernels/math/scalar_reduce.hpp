// The slow honest twin of reduce(): one element at a time, by the text of reduce.hpp and muster.h, sharing no
// code with it.
#pragma once

#include <muster/muster.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

namespace muster::math::test {

// The fields of a small float. Without an infinity the highest exponent holds numbers too, and only its last
// mantissa is NaN.
struct Fields {
  int mantissa_bits;
  int exponent_bits;
  bool has_infinity = true;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr std::uint32_t sign() const { return 1u << (mantissa_bits + exponent_bits); }
  // Above all numbers: infinity, or the NaN that stands in its place.
  constexpr std::uint32_t overflow() const {
    return has_infinity ? ((1u << exponent_bits) - 1) << mantissa_bits : sign() - 1;
  }
  constexpr std::uint32_t nan() const {
    return has_infinity ? overflow() | (1u << (mantissa_bits - 1)) : overflow();
  }
};

// Value of a pattern, by arithmetic on its parts.
inline double decode_small(std::uint32_t bits, const Fields& f) {
  const int exponent = static_cast<int>(bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << f.mantissa_bits) - 1);
  const double sign = (bits & f.sign()) != 0 ? -1.0 : 1.0;
  const std::uint32_t magnitude = bits & (f.sign() - 1);
  if (f.has_infinity && magnitude == f.overflow()) return sign * std::numeric_limits<double>::infinity();
  if (magnitude >= f.overflow()) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - f.bias() - f.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias() - f.mantissa_bits);
}

// Pattern of the nearest value, ties to even (nearbyint in the default rounding mode).
inline std::uint32_t encode_small(float value, const Fields& f) {
  if (std::isnan(value)) return f.nan();
  const std::uint32_t sign = std::signbit(value) ? f.sign() : 0;
  const std::uint32_t overflow = f.has_infinity ? sign | f.overflow() : f.nan();
  const double a = std::fabs(static_cast<double>(value));
  if (std::isinf(a)) return overflow;
  const int m = f.mantissa_bits;
  if (a < std::ldexp(1.0, 1 - f.bias()))
    return sign | static_cast<std::uint32_t>(std::nearbyint(std::ldexp(a, m + f.bias() - 1)));
  const int exponent = std::ilogb(a);
  const auto mantissa = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(a, m - exponent)));
  const std::uint32_t bits = (static_cast<std::uint32_t>(exponent + f.bias()) << m) + (mantissa - (1u << m));
  return bits < f.overflow() ? sign | bits : overflow;
}

inline constexpr Fields kBf16{7, 8};
inline constexpr Fields kF16{10, 5};
inline constexpr Fields kF8E4m3{3, 4, false};
inline constexpr Fields kF8E5m2{2, 5};

// How elements become values of the accumulation type, and back.
struct F32Element {
  using Value = float;
  static constexpr std::size_t kBytes = 4;
  static float decode(const std::byte* from) {
    float v;
    std::memcpy(&v, from, 4);
    return v;
  }
  static void encode(float v, std::byte* to) {
    std::uint32_t bits;
    std::memcpy(&bits, &v, 4);
    if (std::isnan(v)) bits = 0x7FC00000;
    std::memcpy(to, &bits, 4);
  }
};
struct F64Element {
  using Value = double;
  static constexpr std::size_t kBytes = 8;
  static double decode(const std::byte* from) {
    double v;
    std::memcpy(&v, from, 8);
    return v;
  }
  static void encode(double v, std::byte* to) {
    std::uint64_t bits;
    std::memcpy(&bits, &v, 8);
    if (std::isnan(v)) bits = 0x7FF8000000000000u;
    std::memcpy(to, &bits, 8);
  }
};
template<const Fields& fields>
struct SmallElement {
  using Value = float;
  using Bits = std::conditional_t<(fields.sign() > 0x80), std::uint16_t, std::uint8_t>;
  static constexpr std::size_t kBytes = sizeof(Bits);
  static float decode(const std::byte* from) {
    static const std::vector<float> kValues = [] {
      std::vector<float> values(2 * fields.sign());
      for (std::uint32_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(decode_small(i, fields));
      return values;
    }();
    Bits bits;
    std::memcpy(&bits, from, kBytes);
    return kValues[bits];
  }
  static void encode(float v, std::byte* to) {
    const auto bits = static_cast<Bits>(encode_small(v, fields));
    std::memcpy(to, &bits, kBytes);
  }
};

// The documented tree: split at the largest power of two below n.
template<class T, class Combine>
T in_order(const T* values, std::size_t n, Combine combine) {
  if (n == 1) return values[0];
  std::size_t left = 1;
  while (left * 2 < n) left *= 2;
  return combine(in_order(values, left, combine), in_order(values + left, n - left, combine));
}

template<class T>
T larger(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;
  return a < b ? b : a;
}

template<class T>
T reduce_values(muster_redop redop, T* values, std::size_t n, double scale) {
  switch (redop) {
    case MUSTER_MAX:
      return in_order(values, n, larger<T>);
    case MUSTER_MIN:
      return in_order(values, n, [](T a, T b) { return -larger(-a, -b); });
    case MUSTER_PROD:
      return in_order(values, n, [](T a, T b) { return static_cast<T>(a * b); });
    case MUSTER_PREMUL_SUM:
      for (std::size_t k = 0; k < n; ++k) values[k] = static_cast<T>(values[k] * static_cast<T>(scale));
      break;
    default:
      break;
  }
  const T sum = in_order(values, n, [](T a, T b) { return static_cast<T>(a + b); });
  return redop == MUSTER_AVG ? static_cast<T>(sum / static_cast<T>(n)) : sum;
}

template<class Element>
void scalar_floats(muster_redop redop, std::span<const std::byte* const> sources, std::byte* target,
                   std::size_t count, double scale) {
  std::vector<typename Element::Value> values(sources.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < sources.size(); ++k)
      values[k] = Element::decode(sources[k] + i * Element::kBytes);
    Element::encode(reduce_values(redop, values.data(), values.size(), scale), target + i * Element::kBytes);
  }
}

template<class T>
void scalar_integers(muster_redop redop, std::span<const std::byte* const> sources, std::byte* target,
                     std::size_t count, double scale) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t sum = 0;
    std::uint64_t product = 1;
    T largest = std::numeric_limits<T>::min();
    T smallest = std::numeric_limits<T>::max();
    for (const std::byte* source : sources) {
      T element;
      std::memcpy(&element, source + i * sizeof(T), sizeof(T));
      const auto wide = static_cast<std::uint64_t>(static_cast<std::int64_t>(element));
      sum += wide;
      product *= wide;
      largest = element > largest ? element : largest;
      smallest = element < smallest ? element : smallest;
    }
    const auto n = static_cast<std::int64_t>(sources.size());
    T result{};
    if (redop == MUSTER_SUM) result = static_cast<T>(sum);
    if (redop == MUSTER_AVG) result = static_cast<T>(static_cast<std::int64_t>(sum) / n);
    if (redop == MUSTER_MAX) result = largest;
    if (redop == MUSTER_MIN) result = smallest;
    if (redop == MUSTER_PROD) result = static_cast<T>(product);
    if (redop == MUSTER_PREMUL_SUM)
      result = static_cast<T>(sum * static_cast<std::uint64_t>(static_cast<std::int64_t>(scale)));
    std::memcpy(target + i * sizeof(T), &result, sizeof(T));
  }
}

// The same contract as reduce(), but the target may not be a source.
inline void scalar_reduce(muster_dtype dtype, muster_redop redop, std::span<const std::byte* const> sources,
                          std::byte* target, std::size_t count, double scale) {
  switch (dtype) {
    case MUSTER_F32:
      return scalar_floats<F32Element>(redop, sources, target, count, scale);
    case MUSTER_BF16:
      return scalar_floats<SmallElement<kBf16>>(redop, sources, target, count, scale);
    case MUSTER_F16:
      return scalar_floats<SmallElement<kF16>>(redop, sources, target, count, scale);
    case MUSTER_F64:
      return scalar_floats<F64Element>(redop, sources, target, count, scale);
    case MUSTER_F8_E4M3:
      return scalar_floats<SmallElement<kF8E4m3>>(redop, sources, target, count, scale);
    case MUSTER_F8_E5M2:
      return scalar_floats<SmallElement<kF8E5m2>>(redop, sources, target, count, scale);
    case MUSTER_I32:
      return scalar_integers<std::int32_t>(redop, sources, target, count, scale);
    case MUSTER_I64:
      return scalar_integers<std::int64_t>(redop, sources, target, count, scale);
    case MUSTER_I8:
      return scalar_integers<std::int8_t>(redop, sources, target, count, scale);
    default:
      return scalar_integers<std::uint8_t>(redop, sources, target, count, scale);
  }
}

}  // namespace muster::math::test
