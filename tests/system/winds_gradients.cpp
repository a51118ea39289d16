// Compares the gradient of winds with differences of its loss, unit by unit: muster run --private -n 1 --
// winds_gradients. The loss moves along each unit's gradient as far as that says. Prints a line for each
// unit, and ends with 1 if one is off.
#include "api/examples/winds/trainer.hpp"

#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

namespace {

using winds::Trainer;

constexpr double kStep = 5e-3;  // of the weights, along the gradient
constexpr double kTolerance =
    0.03;  // of the expected difference: third derivatives, and rounding of the loss

void each(Trainer& trainer, std::size_t unit, std::int32_t which, const std::function<void(float&)>& body) {
  for (std::size_t i = 0; i < trainer.units().parameters(unit).size(); ++i)
    trainer.units().each(unit, i, which, [&](float& element, std::int64_t, std::int64_t) { body(element); });
}

double loss_at(Trainer& trainer, std::size_t unit, const std::vector<float>& direction, double step) {
  const auto move = [&](double by) {
    std::size_t i = 0;
    each(trainer, unit, MUSTER_UNIT_SHARD, [&](float& weight) {
      weight = static_cast<float>(static_cast<double>(weight) + by * static_cast<double>(direction[i++]));
    });
  };
  move(step);
  trainer.submit(0);
  const double loss = static_cast<double>(trainer.collect(0).loss);
  move(-step);
  return loss;
}

}  // namespace

int main() {
  training::Runtime runtime = training::Runtime::open({});
  winds::Options options;
  options.batch = 1;
  options.width = 4;
  options.learning_rate = 0.0;  // so that weights stay
  options.clip = 0.0;
  const auto field = winds::make_vortices(3);
  const winds::Samples samples(*field, 0, 3);
  const winds::Sharing whole;
  Trainer trainer(runtime, whole, options, samples);
  trainer.submit(0);
  trainer.collect(0);
  std::vector<std::vector<float>> gradients(trainer.units().count());
  for (std::size_t unit = 0; unit < gradients.size(); ++unit)
    each(trainer, unit, MUSTER_UNIT_GRADIENT_SHARD, [&](float& value) { gradients[unit].push_back(value); });
  int result = 0;
  for (std::size_t unit = 0; unit < gradients.size(); ++unit) {
    double squares = 0.0;
    for (const float value : gradients[unit])
      squares += static_cast<double>(value) * static_cast<double>(value);
    const double norm = std::sqrt(squares), step = kStep / norm;
    const double expected = 2.0 * kStep * norm;
    const double measured =
        loss_at(trainer, unit, gradients[unit], step) - loss_at(trainer, unit, gradients[unit], -step);
    const bool right = std::abs(measured - expected) <= kTolerance * expected;
    std::printf("%s: %s, expected %.6g, measured %.6g\n", right ? "right" : "wrong",
                trainer.units().parameters(unit).front().name.c_str(), expected, measured);
    result = right ? result : 1;
  }
  return result;
}
