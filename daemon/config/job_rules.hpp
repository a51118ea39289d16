// Rules that a configuration and a job's spec share: for claims of ranks and for cores of engines, and bounds
// of numbers.
#pragma once

#include "api/shm/layout.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace muster::config {

// kOwner: any process of the job's owner. kToken: the holder of that rank's single-use token.
enum class ClaimRule : std::uint8_t { kOwner, kToken };

// The cores of an engine: those that its ranks may use, or all that the daemon may.
enum class CoreRule : std::uint8_t { kRanks, kDaemon };

// The networks by which the nodes of a job may reach each other: modules of transport/, the usual one first.
inline constexpr std::array<std::string_view, 2> kNetworks{"ucx", "ofi"};

inline constexpr std::uint32_t kWorkersMax = 1024;                   // threads of an engine
inline constexpr std::uint32_t kGroupsMadeMax = 4096;                // of a job, beside those of its mesh
inline constexpr std::uint32_t kDigestsMax = 1'000'000;              // runs between two samples
inline constexpr std::uint32_t kStartsPerLaneMax = shm::kLaneDepth;  // of a rank, without an outcome yet

}  // namespace muster::config
