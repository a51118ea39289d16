// The names of descriptors while they are kept: "channel-1f3a…" is the channel of the engine of the job with
// that epoch. A successor knows the descriptors by these names alone.
#pragma once

#include "daemon/control/identity.hpp"

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace muster::supervisor {

inline constexpr const char* kStateName = "state";

inline std::string channel_name(std::uint64_t epoch) {
  return fmt::format("channel-{:x}", epoch);
}
inline std::string pidfd_name(std::uint64_t epoch) {
  return fmt::format("pidfd-{:x}", epoch);
}
inline std::string counters_name(std::uint64_t epoch) {
  return fmt::format("counters-{:x}", epoch);
}
// The namespaces of the job's owner, if he is foreign.
inline std::string pid_namespace_name(std::uint64_t epoch) {
  return fmt::format("pids-{:x}", epoch);
}
inline std::string user_namespace_name(std::uint64_t epoch) {
  return fmt::format("users-{:x}", epoch);
}
// The memory page of the jobs of one account.
inline std::string memory_name(const control::Account& account) {
  return fmt::format("memory-{:x}-{:x}", account.uid, account.container);
}
// A connection that owns jobs.
inline std::string owner_name(std::uint64_t connection) {
  return fmt::format("owner-{:x}", connection);
}

}  // namespace muster::supervisor
