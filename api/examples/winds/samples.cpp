#include "api/examples/winds/samples.hpp"

#include "api/examples/training/random.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace winds {

using namespace training;

Samples::Samples(const Field& field, std::int64_t month, std::uint64_t seed)
    : field_(field), grid_(field.grid()), month_(month), seed_(seed) {
  std::vector<float> values(static_cast<std::size_t>(grid_.columns));
  for (std::int64_t variable = 0; variable < kVariables; ++variable) {
    double weights = 0.0, sum = 0.0, squares = 0.0;
    for (std::int64_t row = 0; row < grid_.rows; ++row) {
      field.row(month, variable, row, values);
      for (const float value : values) {
        weights += grid_.weight(row);
        sum += grid_.weight(row) * static_cast<double>(value);
        squares += grid_.weight(row) * static_cast<double>(value) * static_cast<double>(value);
      }
    }
    const double mean = variable < kWinds ? 0.0 : sum / weights;
    const double deviation = std::sqrt(std::max(0.0, squares / weights - mean * mean));
    scales_[static_cast<std::size_t>(variable)] = {mean, deviation > 0.0 ? deviation : 1.0};
  }
}

// FNV-1a.
std::uint64_t Samples::digest() const {
  std::uint64_t digest = 0xcbf29ce484222325U;
  for (const Scale& scale : scales_)
    for (const double number : {scale.mean, scale.deviation})
      digest = (digest ^ std::bit_cast<std::uint64_t>(number)) * 0x100000001b3U;
  return digest;
}

Sample Samples::draw(std::int64_t step, std::int64_t batch, std::int64_t index) const {
  const training::CounterRandom random(seed_, "samples");
  constexpr std::uint64_t kDraws = 16;
  std::uint64_t next = static_cast<std::uint64_t>(step * batch + index) * kDraws;
  Sample sample{month_, {}, {}};
  for (Sample::Copy& copy : sample.copies) {
    const std::uint64_t bits = random.bits(next++);
    copy.turn = static_cast<std::int64_t>((bits >> 1) % static_cast<std::uint64_t>(grid_.columns));
    copy.mirrored = bits % 2 != 0;
  }
  sample.copies[0].weight = 0.6 + 0.8 * random.uniform(next++);
  sample.copies[1].weight = random.uniform(next++) - 0.5;
  for (double& lift : sample.lift) lift = 0.5 * random.normal(next++);
  return sample;
}

void Samples::read(const Sample& sample, const Patch& patch, float* inputs, float* winds) const {
  const auto points = static_cast<std::size_t>(patch.points());
  if (winds != nullptr) std::fill_n(winds, points * kWinds, 0.0F);
  for (std::size_t point = 0; inputs != nullptr && point < points; ++point) {
    const double latitude = grid_.latitude(patch.row + static_cast<std::int64_t>(point) / patch.columns);
    float* const to = inputs + point * kInputs;
    for (std::size_t level = 0; level < kHeights; ++level) to[level] = static_cast<float>(sample.lift[level]);
    to[kHeights] = static_cast<float>(std::sin(latitude));
    to[kHeights + 1] = static_cast<float>(std::cos(latitude));
  }
  for (const Sample::Copy& copy : sample.copies) {
    if (copy.weight == 0.0) continue;
    for (std::int64_t i = 0; inputs != nullptr && i < kHeights; ++i)
      add(sample.month, copy, patch, kWinds + i, inputs + i, kInputs);
    for (std::int64_t i = 0; winds != nullptr && i < kWinds; ++i)
      add(sample.month, copy, patch, i, winds + i, kWinds);
  }
}

void Samples::add(std::int64_t month, const Sample::Copy& copy, const Patch& patch, std::int64_t variable,
                  float* to, std::int64_t step) const {
  const Scale& scale = scales_[static_cast<std::size_t>(variable)];
  const bool is_northward = variable >= kLevels && variable < kWinds;
  const double weight = (copy.mirrored && is_northward ? -copy.weight : copy.weight) / scale.deviation;
  std::vector<float> values(static_cast<std::size_t>(grid_.columns));
  for (std::int64_t row = patch.row; row < patch.row + patch.rows; ++row) {
    field_.row(month, variable, copy.mirrored ? grid_.rows - 1 - row : row, values);
    for (std::int64_t column = 0; column < patch.columns; ++column, to += step) {
      const auto from = static_cast<std::size_t>((patch.column + column + copy.turn) % grid_.columns);
      *to = static_cast<float>(static_cast<double>(*to) +
                               weight * (static_cast<double>(values[from]) - scale.mean));
    }
  }
}

}  // namespace winds
