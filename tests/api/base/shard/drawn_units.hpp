// Random units: of several sizes, parts and kinds, in modules, placed within random budgets.
#pragma once

#include "api/base/shard/arrange.hpp"
#include "api/base/shard/schedule.hpp"
#include "tests/kernels/math/values.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::shard::test {

using math::test::Random;

inline std::size_t cells_of(std::uint64_t bytes) {
  return static_cast<std::size_t>((bytes + 63) / 64);
}

// The units of a random program, and their places in memory.
struct DrawnUnits {
  std::vector<UnitSchedule::Facts> units;
  std::size_t depth = 0;  // of the schedule
  std::uint64_t place_bytes = 0, gradient_bytes = 0;
  bool has_root = false;

  explicit DrawnUnits(Random& random) {
    has_root = random.below(3) != 0;
    std::size_t module = 0;
    for (std::uint64_t count = 1 + random.below(7); count > 0; --count) {
      UnitSchedule::Facts unit{.name = std::to_string(units.size()), .module = module};
      unit.bytes = random.below(10) == 0 ? 0 : 1 + random.below(640);
      unit.slice_bytes = unit.bytes / 4;
      unit.parts = random.below(4) == 0 ? static_cast<std::uint32_t>(2 + random.below(2)) : 1;
      constexpr UnitSchedule::AfterForward kKinds[] = {
          UnitSchedule::AfterForward::kFree, UnitSchedule::AfterForward::kFree,
          UnitSchedule::AfterForward::kKeep, UnitSchedule::AfterForward::kSlice};
      unit.after_forward = kKinds[random.below(4)];
      unit.whole_in_backward = random.below(5) != 0;
      unit.trains = random.below(6) != 0;
      units.push_back(unit);
      if (random.below(4) != 0 || units.size() == 1) ++module;
    }
    units[0].root = has_root;
    if (has_root) units[0].parts = 1;
    place(random);
    place_gradients(random);
  }

 private:
  std::vector<Arrangement::Unit> arranged(Random& random) const {
    std::vector<Arrangement::Unit> list;
    for (const UnitSchedule::Facts& unit : units)
      list.push_back({.name = unit.name,
                      .bytes = unit.bytes,
                      .module = unit.module,
                      .apart = unit.root || random.below(8) == 0});
    return list;
  }

  void place(Random& random) {
    const std::vector<Arrangement::Unit> list = arranged(random);
    const std::size_t wanted = random.below(4);
    const std::uint64_t least = arrange(list, 0, 0)->least;
    const std::uint64_t budget = random.below(3) == 0 || least == 0 ? 0 : least + random.below(2 * least + 1);
    const Arrangement places = arrange(list, wanted, budget).value();
    for (std::size_t i = 0; i < units.size(); ++i) units[i].offset = places.offsets[i];
    place_bytes = places.bytes;
    depth = random.below(2) == 0 ? places.depth : wanted;
  }

  void place_gradients(Random& random) {
    if (random.below(2) == 0) return;
    std::vector<Arrangement::Unit> list = arranged(random);
    for (std::size_t i = 0; i < units.size(); ++i)
      if (!units[i].trains) list[i].bytes = 0;
    const Arrangement places = arrange(list, random.below(2), 0).value();
    for (std::size_t i = 0; i < units.size(); ++i) {
      units[i].gradient_bytes = list[i].bytes;
      units[i].gradient_offset = places.offsets[i];
    }
    gradient_bytes = places.bytes;
  }
};

}  // namespace muster::shard::test
