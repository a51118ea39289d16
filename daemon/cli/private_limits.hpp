// What a private daemon may hold, and how many descriptors a run needs for that.
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

// What is said about them stands, unless it is too little for the ranks. What nobody has said leaves them
// room for jobs of their own, as far as this process may open files. Fails where the settings cannot be read:
// they are the daemon's to complain of, as it does for everybody.
Result<PrivateLimits> private_limits(const std::string& config, const std::vector<std::string>& environment,
                                     std::int64_t ranks);

// Raises the open-files limit of this process as far as it may, if so many ranks' pipes need it. kNoResource
// if that is too little for them, or for the daemon of these limits (null: none is started): with the number
// that is enough for the whole run, and what else may help.
Status make_room(std::size_t ranks, const PrivateLimits* daemon);

}  // namespace muster::cli
