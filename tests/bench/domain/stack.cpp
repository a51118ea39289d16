#include "tests/bench/domain/stack.hpp"

#include "api/examples/training/random.hpp"

#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

namespace muster::bench::domain {
namespace {

constexpr std::uint64_t kSeed = 23;
constexpr double kNormReach = 0.125;  // of scales around 1, and of shifts around 0

StackLayer layer_of(const nlohmann::json& said, const FieldSize& before) {
  StackLayer layer;
  layer.before = layer.after = before;
  if (said.at("op") == "norm") {
    layer.kind = StackLayer::Kind::kNorm;
    layer.groups = said.at("groups");
    return layer;
  }
  layer.out = said.at("out");
  layer.kernel = said.at("kernel");
  layer.stride = said.at("stride");
  layer.pad = said.at("pad");
  layer.is_circular = said.at("circular");
  const auto results = [&](std::int64_t items) {
    return (items + 2 * layer.pad - layer.kernel) / layer.stride + 1;
  };
  layer.after = {results(before.rows), results(before.columns), layer.out};
  return layer;
}

Stack stack_of(const nlohmann::json& said) {
  Stack stack;
  stack.name = said.at("name");
  stack.field = {said.at("rows"), said.at("columns"), said.at("channels")};
  stack.lengths = said.at("lengths").get<std::vector<std::int64_t>>();
  stack.base = said.at("base");
  stack.spread = said.at("spread");
  stack.is_weighted = said.at("weighted");
  stack.steps = said.at("steps");
  for (const nlohmann::json& layer : said.at("layers"))
    stack.layers.push_back(layer_of(layer, stack.result()));
  return stack;
}

}  // namespace

std::vector<Stack> stacks_in(const std::string& path) {
  std::ifstream file(path);
  std::vector<Stack> stacks;
  for (const nlohmann::json& said : nlohmann::json::parse(file)) stacks.push_back(stack_of(said));
  return stacks;
}

std::int64_t Stack::parameters() const {
  std::int64_t all = 0;
  for (const StackLayer& layer : layers) all += layer.parameters();
  return all;
}

std::vector<float> Stack::uniforms(std::string_view stream, std::int64_t first, std::int64_t count,
                                   double middle, double reach) const {
  const training::CounterRandom random(kSeed, name + "." + std::string(stream));
  std::vector<float> values(static_cast<std::size_t>(count));
  auto at = static_cast<std::uint64_t>(first);
  for (float& value : values) value = static_cast<float>(middle + reach * (2 * random.uniform(at++) - 1));
  return values;
}

std::vector<float> Stack::input(std::int64_t first, std::int64_t count) const {
  return uniforms("input", first, count, base, spread);
}

std::vector<float> Stack::mean_weights(std::int64_t first, std::int64_t count) const {
  return is_weighted ? uniforms("mean", first, count, 0, 1)
                     : std::vector<float>(static_cast<std::size_t>(count), 1.0F);
}

std::vector<float> Stack::parameters_of(std::size_t index) const {
  const StackLayer& layer = layers[index];
  const std::string stream = "layer" + std::to_string(index);
  if (layer.kind == StackLayer::Kind::kConvolution) {
    const auto terms = static_cast<double>(layer.parameters() / layer.out);
    return uniforms(stream, 0, layer.parameters(), 0, std::sqrt(3 / terms));
  }
  std::vector<float> scales = uniforms(stream + ".scale", 0, layer.before.channels, 1, kNormReach);
  const std::vector<float> shifts = uniforms(stream + ".shift", 0, layer.before.channels, 0, kNormReach);
  scales.insert(scales.end(), shifts.begin(), shifts.end());
  return scales;
}

}  // namespace muster::bench::domain
