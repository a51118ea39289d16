#include "daemon/supervisor/program/descriptor_limit.hpp"

#include "daemon/control/descriptor_count.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/resource.h>

namespace muster::supervisor {
namespace {

constexpr std::uint64_t kPerPeer = 2;   // socket, pidfd
constexpr std::uint64_t kPerJob = 4;    // channel, pidfd, counters, and its account's memory page at most
constexpr std::uint64_t kPerPlace = 2;  // namespaces of a foreign owner
constexpr std::uint64_t kPerSession = control::kDescriptorsPerRank + 1;  // and one segment of its arena

}  // namespace

std::uint64_t descriptors_needed(const Options& options) {
  // A session is a peer too, from its claim to its engine's answer.
  const std::uint64_t peers =
      Connections::kSilent.all + Connections::kCommands.all + Retries::kLimits.all + options.sessions_max;
  // Kept descriptors move when another program takes over, and are there twice meanwhile.
  const std::uint64_t places = options.transient ? 0 : options.jobs_max + Identities::kPendingPlaces;
  const std::uint64_t of_jobs = kPerJob * options.jobs_max + kPerPlace * places;
  const std::uint64_t kept = of_jobs + Connections::kCommands.all;
  const std::uint64_t supervisor = kPerPeer * peers + of_jobs + 2 * kept;
  const std::uint64_t engine = kPerSession * options.sessions_max;
  return control::kDescriptorsOfProcess + std::max(supervisor, engine);
}

Status raise_descriptor_limit(const Options& options) {
  const std::uint64_t needed = descriptors_needed(options);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return failure(Code::kNoResource, "getrlimit: {}", std::strerror(errno));
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
    return failure(Code::kNoResource, "setrlimit: {}", std::strerror(errno));
  if (limit.rlim_cur >= needed) return {};
  return failure(
      Code::kNoResource,
      "the open-files limit is {}, but limits.sessions_max={} and limits.jobs_max={} need {}; raise it "
      "(LimitNOFILE={} in the unit, ulimit -n {} as root in a shell) or lower limits.sessions_max",
      limit.rlim_max, options.sessions_max, options.jobs_max, needed, needed, needed);
}

}  // namespace muster::supervisor
