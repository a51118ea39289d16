// SessionOptions: the parameters of a new session.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/ids.hpp"
#include "api/base/world.hpp"

#include <cstdint>

namespace muster::engine {

class GroupTable;

struct SessionOptions {
  Rank rank;
  World world;  // the job's, which has the rank
  SessionId id;
  std::int32_t pid = 0;
  std::uint32_t buffers_max = 0;
  std::uint32_t plans_max = 0;
  Nanos deadline{0};                   // default of a start whose group has none of its own
  const GroupTable* groups = nullptr;  // outlives the session
};

}  // namespace muster::engine
