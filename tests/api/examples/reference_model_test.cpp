#include "tests/api/examples/reference_model.hpp"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace reference {
namespace {

constexpr unsigned kSeed = 7;

struct Problem {
  Sizes sizes;
  Parameters parameters;
  std::vector<int> ids, targets;
};

Problem make_problem(std::size_t sequences) {
  Problem p;
  p.sizes = {.layers = 2, .width = 8, .heads = 2, .hidden = 12, .context = 5, .vocabulary = 11};
  std::mt19937 random(kSeed);
  std::normal_distribution<double> normal;
  const auto fill = [&](const std::string& name, std::size_t elements, double mean, double deviation) {
    auto& values = p.parameters[name];
    for (std::size_t i = 0; i < elements; ++i) values.push_back(mean + deviation * normal(random));
  };
  const std::size_t d = p.sizes.width;
  fill("embedding", p.sizes.vocabulary * d, 0.0, 1.0);
  for (std::size_t layer = 0; layer < p.sizes.layers; ++layer) {
    const std::string block = "block" + std::to_string(layer) + ".";
    for (const char* name : {"query", "key", "value", "output"}) fill(block + name, d * d, 0.0, 0.6);
    for (const char* name : {"gate", "up", "down"}) fill(block + name, d * p.sizes.hidden, 0.0, 0.5);
    for (const char* name : {"attention_norm", "mlp_norm"}) fill(block + name, d, 1.0, 0.2);
  }
  fill("head", p.sizes.vocabulary * d, 0.0, 0.5);
  fill("final_norm", d, 1.0, 0.2);
  for (std::size_t i = 0; i < sequences * p.sizes.context; ++i) {
    p.ids.push_back(static_cast<int>(random() % p.sizes.vocabulary));
    p.targets.push_back(static_cast<int>(random() % p.sizes.vocabulary));
  }
  return p;
}

// Goal:   the analytic gradient is the derivative of the loss.
// Method: central differences of every element of every parameter; their error is about h² and eps/h.
TEST(ReferenceModel, GradientIsTheDerivativeOfTheLoss) {
  const Problem p = make_problem(2);
  const Pass pass = run(p.sizes, p.parameters, p.ids, p.targets);
  constexpr double kStep = 1e-5;
  for (const auto& [name, values] : p.parameters) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      Parameters moved = p.parameters;
      moved[name][i] = values[i] + kStep;
      const double above = loss_of(p.sizes, moved, p.ids, p.targets);
      moved[name][i] = values[i] - kStep;
      const double below = loss_of(p.sizes, moved, p.ids, p.targets);
      ASSERT_NEAR(pass.gradients.at(name)[i], (above - below) / (2 * kStep), 1e-8)
          << name << " element " << i << ", seed " << kSeed;
    }
  }
}

TEST(ReferenceModel, LossOfAModelThatKnowsNothingIsTheLogarithmOfTheVocabulary) {
  Problem p = make_problem(1);
  p.parameters["head"].assign(p.parameters["head"].size(), 0.0);
  EXPECT_NEAR(run(p.sizes, p.parameters, p.ids, p.targets).loss, std::log(11.0), 1e-12);
}

TEST(ReferenceModel, LaterBytesDoNotChangeEarlierLosses) {
  const Problem p = make_problem(1);
  // With all later targets equal, the loss of a shorter context is the part of the first tokens.
  Sizes shorter = p.sizes;
  shorter.context = 3;
  const std::span<const int> ids(p.ids);
  const std::span<const int> targets(p.targets);
  const double first = 3 * loss_of(shorter, p.parameters, ids.first(3), targets.first(3));
  std::vector<int> changed = p.ids;
  changed[4] = (changed[4] + 1) % 11;
  shorter.context = 4;
  const double fourth = 4 * loss_of(shorter, p.parameters, ids.first(4), targets.first(4)) - first;
  const double before = 5 * loss_of(p.sizes, p.parameters, p.ids, p.targets) - first - fourth;
  const double after = 5 * loss_of(p.sizes, p.parameters, changed, p.targets) - first - fourth;
  EXPECT_NE(before, after);  // only the fifth token's loss is left, and it saw the change
  EXPECT_GT(before, 0.0);
  EXPECT_GT(after, 0.0);
}

TEST(ReferenceModel, BatchIsTheMeanOfItsSequences) {
  const Problem p = make_problem(2);
  const std::span<const int> ids(p.ids);
  const std::span<const int> targets(p.targets);
  const Pass both = run(p.sizes, p.parameters, p.ids, p.targets);
  const Pass one = run(p.sizes, p.parameters, ids.first(5), targets.first(5));
  const Pass two = run(p.sizes, p.parameters, ids.last(5), targets.last(5));
  EXPECT_NEAR(both.loss, (one.loss + two.loss) / 2, 1e-14);
  for (const auto& [name, values] : both.gradients)
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], (one.gradients.at(name)[i] + two.gradients.at(name)[i]) / 2, 1e-14) << name;
}

}  // namespace
}  // namespace reference
