// The limits of a private daemon, and the number of descriptors that a run needs for them.
#pragma once

#include "api/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

struct PrivateLimits {
  std::uint32_t jobs_max = 0;
  std::uint32_t sessions_max = 0;
  std::uint32_t ranks_per_job_max = 0;
};

// Configured limits stay, unless they are too low for the ranks. Other limits leave the ranks room for jobs
// of their own, as far as this process may open files. Fails if the settings cannot be read; the daemon then
// reports their faults, as it always does.
Result<PrivateLimits> private_limits(const std::string& config, const std::vector<std::string>& environment,
                                     std::int64_t ranks);

// Raises the open-files limit of this process, if the pipes of `ranks` ranks need it. kNoResource if the hard
// limit is too low for them, or for a daemon of these limits (null: none is started). The message says how
// many are enough for the whole run, and what else may help.
Status make_room(std::size_t ranks, const PrivateLimits* daemon);

}  // namespace muster::cli
