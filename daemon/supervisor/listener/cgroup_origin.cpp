#include "daemon/supervisor/listener/cgroup_origin.hpp"

#include "api/shm/descriptor.hpp"

#include <algorithm>
#include <array>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

constexpr std::size_t kCgroupBytesMax = 8192;
constexpr std::size_t kUidLetters = 36;
constexpr std::string_view kSlurmJob = "job_", kSlurmStep = "step_";
constexpr std::size_t kContainerDigits = 64;
constexpr std::size_t kShownDigits = 12;  // as docker and podman show them

bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr std::string_view kHex = "0123456789abcdef";
constexpr std::string_view kDigits = "0123456789";

// "docker-3f2a….scope", "libpod-3f2a…", "cri-containerd-3f2a….scope", "3f2a…".
std::string container_in(std::string_view part) {
  if (const std::size_t end = part.find('.'); end != std::string_view::npos) part = part.substr(0, end);
  if (part.size() < kContainerDigits) return "";
  const std::string_view id = part.substr(part.size() - kContainerDigits);
  const bool begins = part.size() == kContainerDigits || part[part.size() - kContainerDigits - 1] == '-';
  return begins && all_of(id, kHex) ? std::string(id) : "";
}

// "pod1b4e2d…" and "kubepods-burstable-pod1b4e2d_….slice", whose '_' stand for '-'.
std::string pod_in(std::string_view part) {
  const std::size_t at = part.rfind("pod");
  if (at == std::string_view::npos || (at != 0 && part[at - 1] != '-')) return "";
  std::string uid(part.substr(at + 3, kUidLetters));
  std::replace(uid.begin(), uid.end(), '_', '-');
  constexpr std::array<std::size_t, 4> kDashes{8, 13, 18, 23};
  const auto is_dash = [&uid](std::size_t i) { return uid[i] == '-'; };
  const bool whole = uid.size() == kUidLetters && all_of(uid, "0123456789abcdef-") &&
                     std::all_of(kDashes.begin(), kDashes.end(), is_dash);
  return whole ? uid : "";
}

// "1234", "batch"; empty: neither.
std::string number_or_step(std::string_view text) {
  const bool known = text.size() <= kOriginBytesMax &&
                     (all_of(text, kDigits) || text == "batch" || text == "extern" || text == "interactive");
  return known ? std::string(text) : "";
}

void take(std::string& target, std::string found) {
  if (!found.empty()) target = std::move(found);
}

}  // namespace

CgroupOrigin origin_in(std::string_view cgroups) {
  CgroupOrigin origin;
  const auto ends_part = [](char c) { return c == '/' || c == '\n'; };
  for (cgroups = cgroups.substr(0, kCgroupBytesMax); !cgroups.empty();) {
    const auto* const stop = std::find_if(cgroups.begin(), cgroups.end(), ends_part);
    const auto end = static_cast<std::size_t>(stop - cgroups.begin());
    const std::string_view part = cgroups.substr(0, end);
    if (part.size() > kUidLetters) {  // else it has room for neither
      take(origin.container, container_in(part));
      take(origin.pod, pod_in(part));
    }
    if (part.starts_with(kSlurmJob)) take(origin.slurm_job, number_or_step(part.substr(kSlurmJob.size())));
    if (part.starts_with(kSlurmStep)) take(origin.slurm_step, number_or_step(part.substr(kSlurmStep.size())));
    cgroups.remove_prefix(std::min(end + 1, cgroups.size()));
  }
  if (origin.slurm_job.empty()) origin.slurm_step.clear();
  return origin;
}

CgroupOrigin origin_of(std::int32_t pid) {
  if (pid <= 0) return {};
  const shm::Descriptor file(
      ::open(fmt::format("/proc/{}/cgroup", pid).c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC));
  if (!file.valid()) return {};
  // Not zeroed, and read at once: each rank that attaches pays for it.
  std::array<char, kCgroupBytesMax> text;
  const ssize_t bytes = ::read(file.get(), text.data(), text.size());
  return bytes > 0 ? origin_in({text.data(), static_cast<std::size_t>(bytes)}) : CgroupOrigin();
}

CgroupOrigin origin_said(std::string_view slurm) {
  const std::size_t dot = std::min(slurm.find('.'), slurm.size());
  CgroupOrigin origin;
  origin.slurm_job = number_or_step(slurm.substr(0, dot));
  if (!all_of(origin.slurm_job, kDigits)) return {};
  if (dot < slurm.size()) origin.slurm_step = number_or_step(slurm.substr(dot + 1));
  return origin;
}

bool RankOrigin::empty() const {
  return *this == RankOrigin();
}

RankOrigin origin_of_rank(std::int32_t pid, const control::Identity& who, std::string_view slurm,
                          std::string_view host) {
  RankOrigin origin{origin_of(pid), origin_said(slurm), {}};
  const bool plain = all_of(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._");
  if (!who.is_home() && origin.seen.container.empty() && plain && host.size() <= kOriginBytesMax)
    origin.said_host = host;
  if (origin.said.slurm_job == origin.seen.slurm_job) origin.said = {};
  return origin;
}

std::string text_of(const CgroupOrigin& origin) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (!origin.pod.empty()) add("pod " + origin.pod);
  if (!origin.container.empty()) add("container " + origin.container.substr(0, kShownDigits));
  if (!origin.slurm_step.empty())
    add(fmt::format("step {} of Slurm job {}", origin.slurm_step, origin.slurm_job));
  else if (!origin.slurm_job.empty())
    add("Slurm job " + origin.slurm_job);
  return text;
}

std::string text_of(const RankOrigin& origin) {
  std::string said = text_of(origin.said);
  if (!origin.said_host.empty()) said += (said.empty() ? "host " : ", host ") + origin.said_host;
  const std::string seen = text_of(origin.seen);
  if (said.empty()) return seen;
  return fmt::format("{}as it says itself, {}", seen.empty() ? "" : seen + "; ", said);
}

}  // namespace muster::supervisor
