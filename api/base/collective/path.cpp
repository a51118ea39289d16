#include "api/base/collective/path.hpp"

#include "api/base/dtype.hpp"

#include <algorithm>
#include <numeric>

namespace muster {
namespace {

constexpr std::uint64_t kLineBytes = 64;

// From here on the engine's workers reduce in 0.6 to 0.9 of the time that the callers themselves take (2, 4
// and 8 ranks on two cores of a Zen 4; 1 MiB still takes 1.4 of it).
constexpr std::uint64_t kEngineBytesMin = 16 << 20;
constexpr double kEngineNs = 5000.0;  // there and back

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

Terms terms_of(const Collective& collective, std::int32_t ranks, const Machine& machine) {
  Terms t{collective, row_of(collective.op), machine.costs};
  t.bytes = static_cast<double>(collective.count * dtype_bytes(collective.dtype));
  t.members = ranks;
  t.cores = std::max(1u, std::min(machine.cores, static_cast<std::uint32_t>(ranks)));
  t.ranks_per_core = static_cast<double>(machine.local_ranks) / std::max(1u, machine.cores);
  t.crowded = machine.crowded();
  t.given_max = given_bytes_max(collective, ranks);
  t.touched = t.bytes * (t.members + (t.row.gets == Portion::kBlockAtRoot ? 1 : t.members));
  return t;
}

}  // namespace

const char* path_name(Path path) noexcept {
  return path == Path::kDirect ? "direct" : "engine";
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
  if (has_source_blocks(collective.op, true) && ranks > kBlocksMax)
    return {Path::kEngine, Algorithm::kWhole, "so many blocks are more than members tell each other of",
            kEngineNs};
  const Terms terms = terms_of(collective, ranks, machine);
  if (terms.reduces_vectors() && !terms.shared() && terms.bytes >= static_cast<double>(kEngineBytesMin))
    return {Path::kEngine, Algorithm::kWhole,
            "so large a reduction is bound by memory, and the engine reads each source once for all ranks",
            kEngineNs + terms.touched / terms.cores * 1000.0 / machine.costs.memory_bytes_per_us};
  Choice best;
  Estimate least;
  for (std::size_t i = 0; i < kAlgorithms; ++i) {
    const Estimate estimate = kAlgorithmRows[i].estimate(terms);
    if (estimate.ns >= least.ns) continue;
    least = estimate;
    best = {Path::kDirect, static_cast<Algorithm>(i), estimate.why, estimate.ns};
  }
  return best;
}

}  // namespace muster
