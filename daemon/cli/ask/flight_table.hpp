// A flight record as people read it: the latest operations of a job, and the ranks that are missing in them.
#pragma once

#include "daemon/cli/outcome.hpp"

#include <cstddef>
#include <string>

namespace muster::cli {

// `flight`: the JSON of MergedFlight. The latest `most` operations that are done, and the oldest `most` that
// are not, which hold up the others. Pure.
std::string flight_table(const Json& flight, std::size_t most, std::size_t columns);

}  // namespace muster::cli
