// CgroupOrigin: the container, pod or Slurm step of a process, by its cgroup. RankOrigin: that of a rank,
// with the origin that the rank claims.
#pragma once

#include "daemon/control/identity.hpp"

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster::supervisor {

// Empty where the cgroup does not show it. A user may have made his cgroup himself, so this is for people to
// read; `muster end --of` finds jobs by it, among those that the caller may end anyway.
struct CgroupOrigin {
  std::string container;   // its id, of 64 hexadecimal digits in most runtimes
  std::string pod;         // the pod's uid, in Kubernetes
  std::string slurm_job;   // its number
  std::string slurm_step;  // its number, or "batch"
  friend auto operator<=>(const CgroupOrigin&, const CgroupOrigin&) = default;
};

// From the text of /proc/PID/cgroup. Pure. Each part has at most kOriginBytesMax letters, digits, '-' and
// '.'.
constexpr std::size_t kOriginBytesMax = 64;
CgroupOrigin origin_in(std::string_view cgroups);
// The caller holds the process by a pidfd, and looks afterwards whether it has ended. Empty if it cannot be
// read, and for pid 0.
CgroupOrigin origin_of(std::int32_t pid);
// The Slurm step that a rank claims: "1234.0" or "1234". Any other text gives an empty origin.
CgroupOrigin origin_said(std::string_view slurm);
// "container 3f2a…", "pod 1b4e…, container 3f2a…", "step 0 of Slurm job 1234"; empty: of none.
std::string text_of(const CgroupOrigin& origin);

struct RankOrigin {
  CgroupOrigin seen;
  CgroupOrigin said;      // by the rank, which may lie
  std::string said_host;  // the same; empty if its container is seen, or it is in none

  bool empty() const;
  bool is_of_slurm(std::string_view job) const { return seen.slurm_job == job || said.slurm_job == job; }
  friend auto operator<=>(const RankOrigin&, const RankOrigin&) = default;
};
// "container 3f2a…; as it says itself, step 0 of Slurm job 1234, host pod-7".
std::string text_of(const RankOrigin& origin);
// The origin of rank `who`. `host`: of letters, digits, '-', '.' and '_'; any other counts as none.
RankOrigin origin_of_rank(std::int32_t pid, const control::Identity& who, std::string_view slurm,
                          std::string_view host);

}  // namespace muster::supervisor
