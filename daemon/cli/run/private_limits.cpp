#include "daemon/cli/run/private_limits.hpp"

#include "daemon/supervisor/program/descriptor_limit.hpp"
#include "daemon/supervisor/program/startup.hpp"

#include <algorithm>
#include <string_view>

#include <sys/resource.h>

namespace muster::cli {
namespace {

constexpr std::size_t kDescriptorsPerRank = 3;
constexpr std::size_t kDescriptorsBeside = 32;  // standard streams, event loop, connection, one start

// The most descriptors that a process of this user may have open.
std::uint64_t descriptors_max() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : RLIM_INFINITY;
}

std::uint64_t needed_by(const PrivateLimits& limits) {
  supervisor::Options options;
  options.transient = true;
  options.jobs_max = limits.jobs_max;
  options.sessions_max = limits.sessions_max;
  options.ranks_per_job_max = limits.ranks_per_job_max;
  return supervisor::descriptors_needed(options);
}

// Lowers `limit`, one of `limits`, until the descriptors are enough, but not below `least`.
void lower(std::uint32_t& limit, std::uint32_t least, const PrivateLimits& limits) {
  const std::uint64_t most = descriptors_max();
  while (limit > least && needed_by(limits) > most) --limit;
}

// Settings for which the descriptors are enough; empty: there are none.
std::string settings_that_fit(const PrivateLimits& limits, std::uint32_t ranks) {
  PrivateLimits fitting = limits;
  lower(fitting.sessions_max, ranks, fitting);
  lower(fitting.jobs_max, 1, fitting);
  if (needed_by(fitting) > descriptors_max()) return "";
  std::string remedy;
  if (fitting.sessions_max < limits.sessions_max)
    remedy += fmt::format("MUSTER_SET_limits__sessions_max={} ", fitting.sessions_max);
  if (fitting.jobs_max < limits.jobs_max)
    remedy += fmt::format("MUSTER_SET_limits__jobs_max={} ", fitting.jobs_max);
  return "set " + remedy + "in the environment, or ";
}

}  // namespace

Result<PrivateLimits> private_limits(const std::string& config, const std::vector<std::string>& environment,
                                     std::int64_t ranks) {
  supervisor::Sources sources;
  sources.kind =
      config.empty() ? supervisor::Sources::ConfigFile::kNone : supervisor::Sources::ConfigFile::kGiven;
  sources.path = config;
  sources.environment = environment;
  MUSTER_ASSIGN_OR_RETURN(const config::Resolved said, supervisor::load_settings(sources));
  const auto unsaid = [&said](std::string_view key) {
    return std::any_of(
        said.in_force.begin(), said.in_force.end(), [key](const config::Resolved::InForce& each) {
          return each.key == key && each.origin.kind == config::Resolved::Origin::Kind::kDefault;
        });
  };
  const auto least = static_cast<std::uint32_t>(ranks);
  const auto& given = said.settings.limits;
  PrivateLimits limits{given.jobs_max, std::max(given.sessions_max, least),
                       std::max(given.ranks_per_job_max, least)};
  if (unsaid("limits.sessions_max")) lower(limits.sessions_max, least, limits);
  if (unsaid("limits.jobs_max")) lower(limits.jobs_max, 1, limits);
  return limits;
}

Status make_room(std::size_t ranks, const PrivateLimits* daemon) {
  const std::uint64_t own = ranks * kDescriptorsPerRank + kDescriptorsBeside;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  if (limit.rlim_cur < own) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  // Each process has its own limit, so the largest need is enough for all.
  const std::uint64_t whole = std::max(own, daemon != nullptr ? needed_by(*daemon) : 0);
  if (limit.rlim_max >= whole) return {};
  const std::string who =
      daemon == nullptr ? fmt::format("{} ranks need {}", ranks, own)
                        : fmt::format(
                              "this run needs {}: {} ranks {}, and their private daemon with "
                              "limits.sessions_max={} and limits.jobs_max={} {}",
                              whole, ranks, own, daemon->sessions_max, daemon->jobs_max, needed_by(*daemon));
  const bool daemon_alone = daemon != nullptr && limit.rlim_max >= own;
  return failure(Code::kNoResource, "the open-files limit is {}, and {}; {}raise it as root: ulimit -n {}",
                 limit.rlim_max, who,
                 daemon_alone ? settings_that_fit(*daemon, static_cast<std::uint32_t>(ranks)) : "", whole);
}

}  // namespace muster::cli
