// All-reduce by a reduce-scatter that halves the row in each round, and an all-gather that doubles it: as few
// bytes as a ring, in as many rounds as the logarithm of the nodes. Where the number of nodes is no power of
// two, the surplus nodes hand theirs to a partner first, and get the result last. Rabenseifner, "Optimization
// of Collective Reduction Operations", ICCS 2004.
#include "api/base/nodes/schedule.hpp"

#include <bit>
#include <utility>

namespace muster::transport::span {
namespace {

// The slices of the row that part `part` of `parts` has.
std::uint32_t begin_of(std::uint32_t part, std::uint32_t parts, std::uint32_t slices) {
  return part * slices / parts;
}

}  // namespace

Schedule rabenseifner(std::uint32_t nodes, std::uint32_t here) {
  const std::uint32_t core = std::bit_floor(nodes);
  const bool surplus = here >= core;
  const auto slice = [&](std::uint32_t part) { return begin_of(part, core, nodes); };
  Schedule schedule;
  // A node keeps the half of its parts in which it is itself.
  std::uint32_t low = 0, high = core;
  for (std::uint32_t distance = core / 2; distance > 0; distance /= 2) {
    Round& round = schedule.emplace_back();
    if (surplus) continue;
    const std::uint32_t middle = (low + high) / 2;
    const bool upper = (here & distance) != 0;
    const std::uint32_t out_low = upper ? low : middle, out_high = upper ? middle : high;
    low = upper ? middle : low;
    high = upper ? high : middle;
    round.sends.push_back({here ^ distance, slice(out_low), slice(out_high), false});
    round.receives.push_back({here ^ distance, slice(low), slice(high), false});
  }
  for (std::uint32_t distance = 1; distance < core; distance *= 2) {
    Round& round = schedule.emplace_back();
    if (surplus) continue;
    const std::uint32_t peer = here ^ distance;
    const std::uint32_t mine = here / distance * distance, theirs = peer / distance * distance;
    round.sends.push_back({peer, slice(mine), slice(mine + distance), true});
    round.receives.push_back({peer, slice(theirs), slice(theirs + distance), true});
  }
  return with_surplus(nodes, here, std::move(schedule));
}

}  // namespace muster::transport::span
