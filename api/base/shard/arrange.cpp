#include "api/base/shard/arrange.hpp"

#include <algorithm>
#include <numeric>

namespace muster::shard {
namespace {

constexpr std::uint64_t kAlignment = 64;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The units of one module that share their place with other modules, end to end.
struct Module {
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
};

// Puts each module at the lowest offset that is free of those within `depth` of it, in the given order.
// Returns the bytes that all take.
std::uint64_t put(std::vector<Module>& modules, std::span<const std::size_t> order, std::size_t depth) {
  std::uint64_t bytes = 0;
  std::vector<std::size_t> placed;
  for (const std::size_t at : order) {
    std::vector<std::size_t> near;
    for (const std::size_t other : placed)
      if ((at > other ? at - other : other - at) <= depth && modules[other].bytes > 0) near.push_back(other);
    std::ranges::sort(near, {}, [&](std::size_t i) { return modules[i].offset; });
    std::uint64_t offset = 0;
    for (const std::size_t other : near) {
      if (offset + modules[at].bytes <= modules[other].offset) break;
      offset = std::max(offset, modules[other].offset + modules[other].bytes);
    }
    modules[at].offset = offset;
    bytes = std::max(bytes, offset + modules[at].bytes);
    placed.push_back(at);
  }
  return bytes;
}

// Two neighbours never need more than the larger of their sums: one lies at the bottom, the next at the top.
std::uint64_t put_in_turn(std::vector<Module>& modules) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < modules.size(); ++i)
    bytes = std::max(bytes, modules[i].bytes + (i > 0 ? modules[i - 1].bytes : 0));
  for (std::size_t i = 0; i < modules.size(); ++i)
    modules[i].offset = i % 2 == 0 ? 0 : bytes - modules[i].bytes;
  return bytes;
}

std::uint64_t put_all(std::vector<Module>& modules, std::size_t depth) {
  if (depth == 1) return put_in_turn(modules);
  std::vector<std::size_t> order(modules.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<Module> by_size = modules;
  const std::uint64_t in_order = put(modules, order, depth);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t i) { return by_size[i].bytes; });
  const std::uint64_t sorted = put(by_size, order, depth);
  if (sorted < in_order) modules = std::move(by_size);
  return std::min(sorted, in_order);
}

}  // namespace

bool overlap(std::uint64_t a, std::uint64_t a_bytes, std::uint64_t b, std::uint64_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

Result<Arrangement> arrange(std::span<const Arrangement::Unit> units, std::size_t depth,
                            std::uint64_t budget) {
  Arrangement made;
  std::vector<Module> modules;
  std::vector<std::size_t> module_of;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (i == 0 || units[i].module != units[i - 1].module) modules.emplace_back();
    module_of.push_back(modules.size() - 1);
    if (!units[i].apart) modules.back().bytes += aligned(units[i].bytes);
  }
  std::uint64_t apart = 0;
  for (const Arrangement::Unit& unit : units)
    if (unit.apart) apart += aligned(unit.bytes);
  const auto largest = std::ranges::max_element(modules, {}, &Module::bytes);
  made.least = apart + (modules.empty() ? 0 : largest->bytes);
  if (budget != 0 && budget < made.least) {
    std::string names;
    for (std::size_t i = 0; i < units.size(); ++i)
      if (units[i].bytes > 0 &&
          (units[i].apart || module_of[i] == static_cast<std::size_t>(largest - modules.begin())))
        names += (names.empty() ? "" : ", ") + units[i].name;
    return fail(Code::kNoResource,
                "the budget is {} bytes, but {} must be whole at once ({}): allow {} or more", budget,
                made.least, names, made.least);
  }
  made.depth = std::min(depth, modules.empty() ? std::size_t{0} : modules.size() - 1);
  std::uint64_t shared = put_all(modules, made.depth);
  while (made.depth > 0 && budget != 0 && apart + shared > budget) shared = put_all(modules, --made.depth);
  made.bytes = apart + shared;

  std::uint64_t next_apart = shared;
  std::vector<std::uint64_t> used(modules.size(), 0);
  for (std::size_t i = 0; i < units.size(); ++i) {
    std::uint64_t& next = units[i].apart ? next_apart : used[module_of[i]];
    made.offsets.push_back((units[i].apart ? 0 : modules[module_of[i]].offset) + next);
    next += aligned(units[i].bytes);
  }
  return made;
}

}  // namespace muster::shard
