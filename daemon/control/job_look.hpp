// JobLook: a copy of all counters of a job on one node at one moment (api/shm/job_counters.hpp), also as a
// message to other nodes.
#pragma once

#include "api/shm/job_counters.hpp"
#include "daemon/control/job.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::control {

struct JobLook {
  using Tallies = std::array<std::uint64_t, shm::kTallyValuesMax>;
  std::int32_t engine_pid = 0;
  // By the clock of the node.
  Instant at{0};
  Instant beat{0};
  std::vector<Tallies> ranks;
  std::vector<shm::JobCountersReader::GroupRow> groups;  // one without members is a free row
};

JobLook look_at(const shm::JobCountersReader& counters, Instant now);

// {"engine_pid", "beat_ns", "silent_ns", "ranks": [[count…]], "groups": [null or {"name", "values"}]}.
Json look_json(const JobLook& look);
// Reads such a text of the node that has these ranks. It may be anything: kProtocol names the field. `what`:
// the text, in words.
Result<JobLook> look_in(const std::string& text, const std::vector<std::uint32_t>& ranks,
                        const std::string& what);

}  // namespace muster::control
