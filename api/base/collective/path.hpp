// The rule of choice (decision D3): which path and which algorithm a collective takes when it runs. It is a
// pure function of the values that all members agree on and of facts that are the same for all of them. So
// every rank chooses alike without communication.
#pragma once

#include "api/base/collective/algorithms.hpp"
#include "api/base/collective/collective.hpp"

#include <cstdint>

namespace muster {

// Properties of the node, as the engine reports them to every client.
struct Machine {
  std::uint32_t cores = 1;        // granted to the job on this node
  std::uint32_t local_ranks = 1;  // of the job on this node
  bool host_memory = true;        // the job's device is a host device
  NodeCosts costs{};

  // Ranks outnumber cores: a meeting costs context switches.
  bool crowded() const { return local_ranks > cores; }
};

enum class Path : std::uint8_t { kDirect, kEngine };

const char* path_name(Path path) noexcept;  // "direct"

// On the direct path each member has to say where the blocks of so many others lie.
constexpr std::int32_t kBlocksMax = 128;

struct Choice {
  Path path = Path::kEngine;
  Algorithm algorithm = Algorithm::kWhole;
  const char* why = "";       // one sentence
  double predicted_ns = 0.0;  // of one operation, all members ready
};

// For a group whose members are all on this node: of the algorithms that can carry it out, the one that is
// estimated to take the least time.
Choice choose(const Collective& collective, std::int32_t ranks, const Machine& machine);

// Bytes of one member's slice of a chunk, for Algorithm::kSliced: whole cache lines, at most
// `slice_bytes_max`.
std::uint64_t slice_bytes(const Collective& collective, std::int32_t ranks, std::uint64_t slice_bytes_max);

}  // namespace muster
