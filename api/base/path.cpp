#include "api/base/path.hpp"

#include "api/base/dtype.hpp"

#include <algorithm>
#include <numeric>

namespace muster {
namespace {

constexpr std::uint64_t kLineBytes = 64;
// Measured on two cores of a Zen 4: what a meeting costs where each rank has a core, and where ranks take
// turns on one; and what a core reads and writes together, in its caches and beyond them.
constexpr double kMeetingNs = 130.0;
constexpr double kCrowdedMeetingNs = 1300.0;  // for each rank that a core has
constexpr double kCachedBytesPerNs = 90.0;
constexpr double kMemoryBytesPerNs = 20.0;
constexpr double kCachedBytesMax = 8 << 20;  // touched by all members together
// From here on slices pay: one more meeting against reading all vectors whole.
constexpr std::uint64_t kWholeBytesMax = 8 << 10;
constexpr std::uint64_t kWholeBytesMaxCrowded = 16 << 10;

// From here on the engine's workers reduce in 0.6 to 0.9 of the time that the callers themselves take (2, 4
// and 8 ranks on two cores; 1 MiB still takes 1.4 of it).
constexpr std::uint64_t kEngineBytesMin = 16 << 20;
constexpr double kEngineNs = 5000.0;  // there and back

// Up to here reading everything beats reducing by slices, which writes what others read.
constexpr std::int32_t kReadingRanksMax = 3;

// For one core that reads and writes `moved` bytes of the `touched` ones.
double moving_ns(double moved, double touched) {
  return moved / (touched <= kCachedBytesMax ? kCachedBytesPerNs : kMemoryBytesPerNs);
}

// Bytes that one member gives at most. UINT64_MAX: the members do not agree on it.
std::uint64_t given_bytes_max(const Collective& c, std::int32_t ranks) {
  if (!has_data(c.op)) return 0;
  if (is_pairwise(c.op) || is_transfer(c.op)) return UINT64_MAX;
  std::uint64_t count = c.count;
  const bool gives_all_blocks = has_source_blocks(c.op, false);
  if (!c.counts.empty())
    count = gives_all_blocks ? std::accumulate(c.counts.begin(), c.counts.end(), std::uint64_t{0})
                             : *std::max_element(c.counts.begin(), c.counts.end());
  else if (gives_all_blocks)
    count *= static_cast<std::uint64_t>(ranks);
  return count * dtype_bytes(c.dtype);
}

double meeting_ns(const Machine& machine) {
  const double per_core = static_cast<double>(machine.local_ranks) / std::max(1u, machine.cores);
  return machine.crowded() ? kCrowdedMeetingNs * per_core : kMeetingNs;
}

}  // namespace

const char* path_name(Path path) noexcept {
  return path == Path::kDirect ? "direct" : "engine";
}

const char* algorithm_name(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kSmall:
      return "small";
    case Algorithm::kFaces:
      return "faces";
    case Algorithm::kRead:
      return "read";
    case Algorithm::kSliced:
      return "sliced";
    case Algorithm::kShared:
      return "shared";
    default:
      return "whole";
  }
}

std::uint64_t slice_bytes(const Collective& collective, std::int32_t ranks, std::uint64_t slice_bytes_max) {
  const std::uint64_t bytes = collective.count * dtype_bytes(collective.dtype);
  const auto members = static_cast<std::uint64_t>(ranks);
  const std::uint64_t even = (bytes / members / kLineBytes + 1) * kLineBytes;
  return std::min(even, slice_bytes_max / kLineBytes * kLineBytes);
}

Choice choose(const Collective& collective, std::int32_t ranks, const Machine& machine) {
  if (!machine.host_memory)
    return {Path::kEngine, Algorithm::kWhole, "the memory is on a device that callers cannot reach", 0};
  const OperationRow& row = row_of(collective.op);
  if (has_source_blocks(collective.op, true) && ranks > kBlocksMax)
    return {Path::kEngine, Algorithm::kWhole, "so many blocks are more than members tell each other of",
            kEngineNs};
  const bool reduces_all = reduces_vectors(collective.op);
  const auto bytes = static_cast<double>(collective.count * dtype_bytes(collective.dtype));
  const double members = ranks;
  const double cores = std::max(1u, std::min(machine.cores, static_cast<std::uint32_t>(ranks)));
  const double share = machine.crowded() ? members / cores : 1.0;  // of one core's time
  // Every source and every target of a reduction.
  const double touched = bytes * (members + (row.gets == Portion::kBlockAtRoot ? 1 : members));
  if (collective.shared_memory != 0) {
    const bool gathers = row.gets == Portion::kBlocks;
    const double read = row.reduces ? bytes * members : bytes;
    const double moved = gathers ? 0 : (read + bytes) / cores;
    return {Path::kDirect, Algorithm::kShared,
            gathers ? "one result for all: shards that lie in it are not moved"
                    : "one result for all, of which each rank writes its part",
            (gathers ? 1 : 2) * meeting_ns(machine) + moving_ns(moved, read + bytes)};
  }
  if (given_bytes_max(collective, ranks) <= kSmallBytesMax)
    return {Path::kDirect, Algorithm::kSmall, "what each rank gives travels with its arrival",
            meeting_ns(machine) + moving_ns(bytes * members * share, touched)};
  if (has_faces(collective.op))
    return {Path::kDirect, Algorithm::kFaces, "a meeting, and each rank takes the faces that are for it",
            meeting_ns(machine)};
  if (reduces_all && bytes >= static_cast<double>(kEngineBytesMin))
    return {Path::kEngine, Algorithm::kWhole,
            "so large a reduction is bound by memory, and the engine reads each source once for all ranks",
            kEngineNs + moving_ns(touched / cores, touched)};
  const std::uint64_t whole_max = machine.crowded() ? kWholeBytesMaxCrowded : kWholeBytesMax;
  if (reduces_all && row.same_for_all && ranks <= kReadingRanksMax && bytes > static_cast<double>(whole_max))
    return {Path::kDirect, Algorithm::kRead,
            "among so few, reading all sources in place moves least between cores",
            2 * meeting_ns(machine) + moving_ns(bytes * (members + 1) * share, touched)};
  if (reduces_all && collective.count * dtype_bytes(collective.dtype) > whole_max) {
    const double traffic = bytes * 3.0 * share;
    return {Path::kDirect, Algorithm::kSliced,
            "every source is read once, by the rank that reduces the slice",
            2 * meeting_ns(machine) + moving_ns(traffic, touched)};
  }
  const auto at_all = [](Portion portion) {
    return portion == Portion::kBlock || portion == Portion::kBlocks;
  };
  const double read = at_all(row.gives) && at_all(row.gets) ? bytes * members : bytes;
  return {Path::kDirect, Algorithm::kWhole, "a meeting, and each rank finishes alone",
          meeting_ns(machine) + moving_ns((read + bytes) * share, touched)};
}

}  // namespace muster
