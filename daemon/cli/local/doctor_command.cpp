#include "daemon/cli/local/doctor_command.hpp"

#include "api/base/words.hpp"
#include "api/shm/endpoint.hpp"
#include "api/shm/headroom.hpp"
#include "daemon/config/table.hpp"
#include "daemon/control/own_version.hpp"
#include "daemon/supervisor/program/startup.hpp"
#include "transport/endpoint/library.hpp"
#include "transport/endpoint/trial.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace muster::cli {
namespace {

using Verdict = Check::Verdict;

constexpr std::uint64_t kOpenFilesMin =
    4096;  // twice what the default limits need: 256 ranks of a job with eight each
constexpr Nanos kNetworkTime = std::chrono::seconds(5);  // to try one out
constexpr std::size_t kPathsShown = 16;                  // of those that are good
constexpr std::uint64_t kMemoryBytesMin = std::uint64_t{1} << 30;
constexpr unsigned kNoExecSeal = 0x0008U;  // MFD_NOEXEC_SEAL of Linux 6.3; older headers lack it
// Which pages the kernel uses for memory files that ask for huge ones, as host memory does.
constexpr char kSharedHugePages[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

// ---- the facts ---------------------------------------------------------------------------------

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::uint64_t limit(int resource, bool hard) {
  rlimit value{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &value) != 0) return 0;
  const rlim_t chosen = hard ? value.rlim_max : value.rlim_cur;
  return chosen == RLIM_INFINITY ? UINT64_MAX : chosen;
}

// "always [madvise] never" → "madvise".
std::string bracketed(const std::string& line) {
  const auto open = line.find('[');
  const auto close = line.find(']');
  return open == std::string::npos || close == std::string::npos ? ""
                                                                 : line.substr(open + 1, close - open - 1);
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// Version 2: "max 100000". Version 1: each number has its own file.
std::optional<double> quota_of(std::optional<double> quota, std::optional<double> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

std::optional<double> quota_at(const std::string& folder, bool version_1) {
  if (version_1)
    return quota_of(number(first_line(folder + "/cpu.cfs_quota_us")),
                    number(first_line(folder + "/cpu.cfs_period_us")));
  const std::string both = first_line(folder + "/cpu.max");
  const auto space = both.find(' ');
  if (space == std::string::npos) return std::nullopt;
  return quota_of(number(both), number(std::string_view(both).substr(space + 1)));
}

bool makes_memory(unsigned flags) {
  const shm::Descriptor memory(static_cast<int>(::syscall(SYS_memfd_create, "muster-doctor", flags)));
  return memory.valid() && ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0;
}

void read_system(MachineFacts& facts) {
  facts.open_files = limit(RLIMIT_NOFILE, false);
  facts.open_files_hard = limit(RLIMIT_NOFILE, true);
  facts.noexec_memory = makes_memory(MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal);
  // vm.memfd_noexec=2 refuses executable memory, which we do not need.
  facts.sealed_memory = facts.noexec_memory || makes_memory(MFD_CLOEXEC | MFD_ALLOW_SEALING);
  struct statvfs shm_facts {};
  if (::statvfs("/dev/shm", &shm_facts) == 0) facts.shm_bytes = shm_facts.f_bavail * shm_facts.f_frsize;
  facts.huge_pages = bracketed(first_line(kSharedHugePages));
  const shm::Headroom headroom = shm::memory_headroom();
  facts.memory_bytes = std::min(shm::memory_capacity(), headroom.bytes);
  if (headroom.bytes == facts.memory_bytes) facts.memory_remedy = headroom.limit + ": " + headroom.remedy;
  facts.machine_memory_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                               static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    facts.cores = static_cast<std::uint32_t>(CPU_COUNT(&set));
  facts.cpu_quota = cpu_quota();
  facts.clock_source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  utsname names{};
  if (::uname(&names) == 0) facts.kernel = names.release;
  facts.pidfd = shm::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))).valid();
  const std::uint32_t word = 0;
  facts.futex = ::syscall(SYS_futex, &word, 1 /* FUTEX_WAKE */, 1, nullptr, nullptr, 0) == 0;
  facts.governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
}

void read_runtime_directory(const DaemonAddress& address, MachineFacts& facts) {
  // Found as the socket is: a bare name lies in the working directory.
  facts.runtime_directory = shm::directory_of(address.endpoint);
  struct stat info {};
  if (::stat(facts.runtime_directory.c_str(), &info) != 0)
    facts.runtime_trouble = std::strerror(errno);
  else if (!S_ISDIR(info.st_mode))
    facts.runtime_trouble = "it is no directory";
  else if ((info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) == 0)
    facts.runtime_trouble = "everybody may write to it";
  else if (::access(facts.runtime_directory.c_str(), X_OK) != 0)
    facts.runtime_trouble = "this user may not enter it";
  else if (::geteuid() == 0 && info.st_uid != 0) {
    facts.runtime_trouble =
        fmt::format("user {} owns it, who may put another socket in the place of root's daemon", info.st_uid);
    facts.runtime_serves = true;
  } else if ((info.st_mode & S_IWGRP) != 0 && (info.st_mode & S_ISVTX) == 0) {
    facts.runtime_trouble = fmt::format(
        "group {} may write to it, and so put another socket in the place of the daemon's", info.st_gid);
    facts.runtime_serves = true;
  } else if ((info.st_mode & S_IROTH) != 0) {
    facts.runtime_trouble = "everybody may read it, and so hold its lock and keep a daemon from starting";
    facts.runtime_serves = true;
  }
}

void read_daemon(const DaemonAddress& address, MachineFacts& facts) {
  const auto version = ask(address, {{"command", "version"}});
  if (!version) {
    facts.daemon_trouble = version.error().text;
    facts.daemon_speaks_other = version.error().code == Code::kVersion;
    return;
  }
  facts.daemon_version = version->result.value("version", "?");
  const auto status = ask(address, {{"command", "status"}});
  if (!status) return;
  for (const Json& job : status->result.value("jobs", Json::array()))
    facts.ranks = std::max(facts.ranks, job.value("world", 0u));
  if (const auto cluster = status->result.find("cluster"); cluster != status->result.end())
    facts.cluster = try_paths(*cluster, address.timeout);
}

// ---- the checks --------------------------------------------------------------------------------

std::string amount(std::uint64_t bytes) {
  return bytes == UINT64_MAX ? "unlimited" : bytes_text(bytes);
}

Check check(const char* name, bool good, Verdict otherwise, std::string says, std::string fix) {
  return {name, good ? Verdict::kGood : otherwise, std::move(says), good ? std::string() : std::move(fix)};
}

void examine_limits(const MachineFacts& f, std::vector<Check>& checks) {
  checks.push_back(check("open files", f.open_files_hard >= kOpenFilesMin, Verdict::kWarning,
                         fmt::format("{} (may be raised to {})", f.open_files, f.open_files_hard),
                         "raise the hard limit: LimitNOFILE=65536 in the unit, or ulimit -n 65536 as root"));
  checks.push_back(
      check("sealed memory", f.sealed_memory, Verdict::kFailure,
            f.sealed_memory ? "memfd_create with seals works" : "memfd_create with seals does not work",
            "use a kernel of 3.17 or later, and allow memfd_create in the container's seccomp profile"));
  checks.push_back(
      check("MFD_NOEXEC_SEAL", f.noexec_memory, Verdict::kWarning, f.noexec_memory ? "there" : "not there",
            "a kernel of 6.3 or later has it; without it memory files could be made executable"));
  if (f.shm_bytes)
    checks.push_back({"/dev/shm", Verdict::kGood,
                      fmt::format("{} free; not used: memory files have no name there", amount(*f.shm_bytes)),
                      ""});
}

void examine_memory(const MachineFacts& f, std::vector<Check>& checks) {
  const bool refused = f.huge_pages == "never" || f.huge_pages == "deny";
  checks.push_back(
      check("huge pages", !refused, Verdict::kWarning,
            f.huge_pages.empty() ? "not to be seen here" : "for ranks' shared memory: " + f.huge_pages,
            fmt::format("echo advise > {}: buffers are granted and read faster", kSharedHugePages)));
  checks.push_back(check(
      "memory", f.memory_bytes >= kMemoryBytesMin, Verdict::kWarning,
      fmt::format("{} of the machine's {} may be used here", amount(f.memory_bytes),
                  amount(f.machine_memory_bytes)),
      f.memory_remedy.empty() ? "raise the cgroup's limit (MemoryMax=, docker --memory)" : f.memory_remedy));
}

void examine_cores(const MachineFacts& f, std::vector<Check>& checks) {
  const double granted = std::min<double>(f.cores, f.cpu_quota.value_or(f.cores));
  checks.push_back(
      check("cpu quota", granted + 0.01 >= f.cores, Verdict::kWarning,
            f.cpu_quota ? fmt::format("{:.2f} cores' worth on {} cores", *f.cpu_quota, f.cores)
                        : fmt::format("none; {} cores", f.cores),
            "a quota below the cores stops ranks in mid-wait: raise it (CPUQuota=, docker --cpus), or pin "
            "to as many cores as it pays for (docker --cpuset-cpus)"));
  checks.push_back(
      check("cores and ranks", f.ranks <= granted + 0.01, Verdict::kWarning,
            f.ranks == 0 ? fmt::format("no job; {} cores", f.cores)
                         : fmt::format("{} ranks on {:.4g} cores", f.ranks, granted),
            "more ranks than cores work, at the price of a context switch each meeting: start fewer "
            "ranks, or give more cores"));
}

void examine_kernel(const MachineFacts& f, std::vector<Check>& checks) {
  const bool fast_clock = f.clock_source.empty() || f.clock_source == "tsc" ||
                          f.clock_source == "kvm-clock" || f.clock_source == "arch_sys_counter" ||
                          f.clock_source == "hyperv_clocksource_tsc_page";
  checks.push_back(
      check("clock source", fast_clock, Verdict::kWarning,
            f.clock_source.empty() ? "not to be seen here" : f.clock_source,
            "a read of this clock is a system call: boot with clocksource=tsc tsc=reliable if the "
            "processor's is stable"));
  checks.push_back(check(
      "pidfd", f.pidfd, Verdict::kFailure,
      f.pidfd ? fmt::format("there (Linux {})", f.kernel) : fmt::format("missing in Linux {}", f.kernel),
      "use a kernel of 5.3 or later, and allow pidfd_open in the container's seccomp profile"));
  checks.push_back(check("futex", f.futex, Verdict::kFailure, f.futex ? "there" : "refused",
                         "allow futex in the container's seccomp profile"));
  const bool slow = f.governor == "powersave" || f.governor == "conservative" || f.governor == "ondemand";
  checks.push_back(check("cpu governor", !slow, Verdict::kWarning,
                         f.governor.empty() ? "not to be seen here" : f.governor,
                         "cpupower frequency-set -g performance: a core that sleeps deep wakes late"));
}

void examine_daemon(const MachineFacts& f, std::vector<Check>& checks) {
  const bool answers = f.daemon_trouble.empty();
  const Verdict absent = f.daemon_named ? Verdict::kFailure : Verdict::kWarning;
  const Verdict unfit = answers ? Verdict::kFailure : absent;
  checks.push_back(check("runtime directory", f.runtime_trouble.empty(),
                         f.runtime_serves ? Verdict::kWarning : unfit,
                         f.runtime_directory + (f.runtime_trouble.empty() ? "" : ": " + f.runtime_trouble),
                         "musterd makes its own where it may; by hand: install -d -m 0750 as its user, or "
                         "RuntimeDirectory= and RuntimeDirectoryMode=0750 in a unit"));
  constexpr const char* kSameRelease = "install the same release of both, and restart musterd";
  if (f.daemon_speaks_other)  // it answers, but in another version
    return checks.push_back({"versions", Verdict::kFailure, f.daemon_trouble, kSameRelease});
  checks.push_back(check("daemon", answers, absent,
                         answers ? "musterd " + f.daemon_version : f.daemon_trouble,
                         "start musterd; `muster run` starts a private one where none runs"));
  if (!answers) return;
  checks.push_back(check("versions", control::own_version() == f.daemon_version, Verdict::kWarning,
                         fmt::format("this program {}, daemon {}, interface {} of both",
                                     control::own_version(), f.daemon_version, shm::kAbiVersion),
                         kSameRelease));
}

// Jobs of one node need none, so one that is not there is no failure.
void examine_networks(const MachineFacts& f, std::vector<Check>& checks) {
  for (const MachineFacts::NetworkFacts& network : f.networks) {
    Check found = check("", network.trouble.empty(), Verdict::kWarning,
                        network.trouble.empty() ? network.says : network.trouble,
                        "jobs of several nodes will need one; install what is missing");
    found.name = "network " + network.name;
    checks.push_back(std::move(found));
  }
}

// A node that is away may be so on purpose.
void examine_paths(const ClusterPaths& cluster, std::vector<Check>& checks) {
  if (cluster.uses.empty()) return;
  checks.push_back(check("data interface", cluster.trouble.empty(), Verdict::kFailure,
                         cluster.trouble.empty() ? cluster.uses : cluster.trouble,
                         "correct cluster.interfaces (or nodes[].interfaces), and start musterd anew"));
  std::size_t good = 0;
  for (const Check& path : cluster.paths) {
    if (path.verdict == Verdict::kGood && ++good > kPathsShown) continue;
    checks.push_back(path);
    checks.back().name = "path to " + path.name;
  }
  if (good > kPathsShown)
    checks.push_back(
        {"more paths", Verdict::kGood, fmt::format("{} others are good", good - kPathsShown), ""});
}

void read_networks(MachineFacts& facts) {
  for (const std::string& name : transport::network_names()) {
    const auto tried =
        transport::try_network(supervisor::networks_folder(), name, SteadyClock(), kNetworkTime);
    facts.networks.push_back(
        {name, tried ? *tried : std::string(), tried ? std::string() : tried.error().message()});
  }
}

const char* verdict_word(Verdict verdict) {
  return verdict == Verdict::kGood ? "ok" : verdict == Verdict::kWarning ? "warning" : "failure";
}

}  // namespace

std::optional<double> cpu_quota(const shm::Headroom::Files& files) {
  std::ifstream file(files.cgroup_of_self);
  const std::string self((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::optional<double> tightest;
  for (const bool version_1 : {true, false}) {
    const auto path = shm::parse_cgroup_path(self, version_1 ? "cpu" : "");
    if (!path) continue;
    const std::string root = files.cgroup_root + (version_1 ? "/cpu" : "");
    // Each ancestor's quota binds. A container may see a path that does not exist here; then the root's quota
    // binds.
    for (std::string at = *path == "/" ? "" : *path;; at.resize(at.rfind('/'))) {
      if (const auto quota = quota_at(root + at, version_1))
        tightest = std::min(tightest.value_or(*quota), *quota);
      if (at.find('/') == std::string::npos) break;
    }
  }
  return tightest;
}

std::vector<Check> examine(const MachineFacts& facts) {
  std::vector<Check> checks;
  examine_limits(facts, checks);
  examine_memory(facts, checks);
  examine_cores(facts, checks);
  examine_kernel(facts, checks);
  examine_daemon(facts, checks);
  examine_networks(facts, checks);
  examine_paths(facts.cluster, checks);
  return checks;
}

int run_doctor(const DaemonAddress& address, DaemonNamed named, Output output) {
  MachineFacts facts;
  facts.daemon_named = named == DaemonNamed::kYes;
  read_system(facts);
  read_runtime_directory(address, facts);
  read_networks(facts);
  try {
    read_daemon(address, facts);
  } catch (const Json::exception& error) {  // a daemon of another version
    facts.daemon_trouble = fmt::format("its answer is not as expected: {}", error.what());
  }
  const std::vector<Check> checks = examine(facts);
  Json list = Json::array();
  std::vector<config::Cells> rows;
  bool failed = false;
  for (const Check& each : checks) {
    failed = failed || each.verdict == Verdict::kFailure;
    list.push_back({{"check", each.name},
                    {"verdict", verdict_word(each.verdict)},
                    {"says", each.says},
                    {"fix", each.fix}});
    rows.push_back({verdict_word(each.verdict), each.name, each.says});
    if (!each.fix.empty()) rows.push_back({"", "", "→ " + each.fix});
  }
  const int printed =
      output == Output::kJson
          ? print_json({{"healthy", !failed}, {"checks", list}})
          : print_text(config::table({"VERDICT", "CHECK", "FOUND"}, rows, {config::screen_columns(), {}}));
  return printed != kOk ? printed : failed ? kFailed : kOk;
}

}  // namespace muster::cli
