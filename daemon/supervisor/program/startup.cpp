#include "daemon/supervisor/program/startup.hpp"

#include "api/base/bootstrap.hpp"
#include "api/base/log.hpp"
#include "api/shm/endpoint.hpp"
#include "daemon/config/load.hpp"
#include "daemon/supervisor/program/cluster_jobs.hpp"
#include "daemon/supervisor/takeover/trusted_program.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

constexpr std::size_t kGroupBytes = 65536;
constexpr std::size_t kGroupBytesMax = std::size_t{64} << 20;

Result<std::uint32_t> group_id(const std::string& name) {
  struct group entry {};
  struct group* found = nullptr;
  std::vector<char> buffer(kGroupBytes);  // for the members' names, which are not used
  int error = 0;
  do {
    error = getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (error == ERANGE) buffer.resize(2 * buffer.size());
  } while (error == EINTR || (error == ERANGE && buffer.size() <= kGroupBytesMax));
  if (found == nullptr && error != 0)
    return fail(Code::kNoResource, "node.group: the system does not say who group {} is: {}", name,
                std::strerror(error));
  if (found == nullptr)
    return fail(Code::kNotFound, "node.group: there is no group {}; create it (groupadd {}) or name another",
                name, name);
  return found->gr_gid;
}

// A rate that is given is not rounded to 0, which means measured.
NodeCosts costs_of(const config::Settings& settings) {
  constexpr std::uint64_t kUsPerSecond = 1'000'000;
  const auto per_us = [](std::uint64_t rate) {
    return static_cast<std::uint32_t>((rate + kUsPerSecond - 1) / kUsPerSecond);
  };
  return {static_cast<std::uint32_t>(settings.costs.meeting.count()),
          static_cast<std::uint32_t>(settings.costs.turn.count()), per_us(settings.costs.cached_rate),
          per_us(settings.costs.memory_rate)};
}

// In one form, however it is written.
std::string directory_of(const config::Settings& settings) {
  const std::filesystem::path directory = std::filesystem::path(settings.node.runtime_directory) / "";
  return directory.lexically_normal().parent_path();
}

control::JobSpec defaults_of(const config::Settings& settings) {
  control::JobSpec spec;
  spec.owner = geteuid();
  spec.deadline = settings.defaults.deadline;
  spec.workers = settings.node.workers;
  spec.cores = settings.node.cores == "daemon" ? control::CoreRule::kDaemon : control::CoreRule::kRanks;
  spec.idle_spin = settings.liveness.idle_spin;
  spec.arena_bytes_max = settings.limits.arena_per_rank_max;
  spec.segment_bytes = settings.limits.arena_segment;
  spec.buffers_max = settings.limits.buffers_per_rank_max;
  spec.plans_max = settings.limits.plans_per_rank_max;
  spec.starts_per_lane_max = settings.limits.starts_per_lane_max;
  spec.groups_made_max = settings.limits.groups_made_max;
  spec.digests = settings.defaults.digests;
  spec.reports_directory = settings.log.reports_directory;
  spec.networks_directory = networks_folder();
  const std::string directory = directory_of(settings);
  if (directory != shm::directory_of(bootstrap::kDefaultEndpoint)) spec.endpoint = directory;
  return spec;
}

Result<std::string> load_text(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const config::Source source, config::load_file(path, config::Ownership::kTrusted));
  return source.text();
}

// A secret that others can read is none.
Result<std::string> load_secret(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) == 0 && (facts.st_mode & 0077) != 0)
    return fail(Code::kDenied, "{}: mode {:04o} lets others read it; run: chmod 600 {}", path,
                facts.st_mode & 07777u, path);
  return load_text(path);
}

Result<Roster::OwnCredentials> load_certificates(const std::string& folder, const std::string& cluster,
                                                 const std::string& node) {
  const std::string own = fmt::format("{}/{}", folder, node);
  MUSTER_ASSIGN_OR_RETURN(const std::string authority, load_text(folder + "/authority.pem"));
  control::CertifiedKey pair;
  MUSTER_ASSIGN_OR_RETURN(pair.certificate, load_text(own + ".pem"));
  MUSTER_ASSIGN_OR_RETURN(pair.key, load_secret(own + "-key.pem"));
  MUSTER_ASSIGN_OR_RETURN(const control::Validity validity, control::validity_of(pair.certificate));
  MUSTER_ASSIGN_OR_RETURN(auto credentials, control::Credentials::of_certificates(cluster, authority, pair));
  return Roster::OwnCredentials{std::make_shared<const control::Credentials>(std::move(credentials)),
                                validity};
}

Result<Roster::OwnCredentials> load_shared_secret(const std::string& file, const std::string& cluster,
                                                  const std::string& node) {
  MUSTER_ASSIGN_OR_RETURN(std::string secret, load_secret(file));
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  MUSTER_ASSIGN_OR_RETURN(auto credentials, control::Credentials::of_secret(cluster, node, secret));
  return Roster::OwnCredentials{std::make_shared<const control::Credentials>(std::move(credentials)),
                                std::nullopt};
}

// The host of the cluster file that this node is. Its name is that in its settings, else the system's, whole
// or up to its first dot.
Result<std::string> own_name(const config::Settings& settings,
                             const std::vector<config::Cluster::Host>& hosts) {
  std::array<char, HOST_NAME_MAX + 1> system{};
  gethostname(system.data(), HOST_NAME_MAX);
  const std::string whole = settings.node.name.empty() ? system.data() : settings.node.name;
  const std::string label = settings.node.name.empty() ? whole.substr(0, whole.find('.')) : whole;
  for (const std::string& name : {whole, label})
    for (const config::Cluster::Host& host : hosts)
      if (host.name == name) return name;
  return fail(Code::kConfig,
              "node.name: this node is called {}, and {} names no such host; set node.name to one of its "
              "hosts ({}{})",
              whole, settings.jobs_from, hosts.front().name, hosts.size() > 1 ? ", …" : "");
}

// The jobs of the cluster file, and the roster if it has several hosts.
Status load_cluster(const config::Settings& settings, Options& options) {
  auto source = config::load_file(settings.jobs_from, config::Ownership::kTrusted);
  if (!source) return failure(source.error().code(), "jobs_from: {}", source.error().message());
  const auto cluster = config::parse_cluster(*std::move(source));
  if (!cluster) return cluster.error().status();
  const std::vector<config::Cluster::Host> hosts = cluster->hosts();
  std::string here = hosts.front().name;
  if (hosts.size() > 1) {
    MUSTER_ASSIGN_OR_RETURN(here, own_name(settings, hosts));
  }
  options.job_defaults.link = cluster->link;
  options.job_defaults.interfaces = interfaces_of(*cluster, here);
  auto plan = plan_of(*cluster, options.job_defaults, here, {options.jobs_max, options.ranks_per_job_max});
  if (!plan) return plan.error().status();
  options.jobs = std::move(plan->jobs);
  if (hosts.size() == 1) return {};
  Roster& roster = options.roster = std::move(plan->roster);
  const std::string& secret = settings.peers.secret_file;
  const std::string& folder = settings.peers.certificates;
  if (settings.peers.plaintext) {
    roster.trust = Roster::Trust::kPlainText;
  } else if (!secret.empty()) {
    roster.trust = Roster::Trust::kSecret;
    roster.load_credentials = [secret, name = roster.cluster, here] {
      return load_shared_secret(secret, name, here);
    };
  } else {
    roster.load_credentials = [folder, name = roster.cluster, here] {
      return load_certificates(folder, name, here);
    };
  }
  return {};
}

// Whether the journal reads standard error (systemd.exec(5), JOURNAL_STREAM).
bool journal_reads() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat facts {};
  if (stream == nullptr || fstat(STDERR_FILENO, &facts) != 0) return false;
  return fmt::format("{}:{}", facts.st_dev, facts.st_ino) == stream;
}

// "nobody" is a user everywhere, also in a container without a list of users.
Result<EngineProcess::User> engine_user_of(const std::string& name) {
  constexpr std::uint32_t kNoUser = 65534;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  EngineProcess::User user{number, number};
  if (error != std::errc() || end != name.data() + name.size()) {
    const passwd* entry = getpwnam(name.c_str());  // before any other thread
    if (entry == nullptr && name != "nobody")
      return fail(Code::kNotFound,
                  "node.engine_user: there is no user {}; create it (useradd --system {}) or name another",
                  name, name);
    user = entry == nullptr ? EngineProcess::User{kNoUser, kNoUser}
                            : EngineProcess::User{entry->pw_uid, entry->pw_gid};
  }
  if (user.uid == 0)
    return fail(Code::kBadArgument, "node.engine_user: {} is root; name a user without rights", name);
  return user;
}

// `installed`: the installed folder of the program, relative to this program's folder.
std::string program_beside(const std::string& name, const std::string& installed) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path beside = folder / name;
  if (access(beside.c_str(), X_OK) == 0) return beside;
  return (folder / installed / name).lexically_normal();
}

}  // namespace

Result<config::Resolved> load_settings(const Sources& sources) {
  config::Inputs inputs{sources.flags, sources.environment, std::nullopt};
  const bool given = sources.kind == Sources::ConfigFile::kGiven;
  const std::string path = given ? sources.path : kDefaultConfig;
  const bool wanted =
      given || (sources.kind == Sources::ConfigFile::kDefaultIfThere && access(path.c_str(), F_OK) == 0);
  if (wanted) {
    MUSTER_ASSIGN_OR_RETURN(inputs.file, config::load_file(path, config::Ownership::kTrusted));
  }
  auto resolved = config::resolve(inputs);
  if (!resolved) return fail(resolved.error().status());
  return *std::move(resolved);
}

Result<Options> options_of(const config::Settings& settings) {
  Options options;
  options.runtime_directory = directory_of(settings);
  options.socket_path = settings.node.socket_path;
  options.directory_mode = settings.node.directory_mode;
  if (!settings.node.group.empty()) {
    MUSTER_ASSIGN_OR_RETURN(options.directory_gid, group_id(settings.node.group));
  }
  MUSTER_ASSIGN_OR_RETURN(options.engine_user, engine_user_of(settings.node.engine_user));
  MUSTER_ASSIGN_OR_RETURN(options.program_folders, program_folders(settings.node.program_folders));
  options.jobs_max = settings.limits.jobs_max;
  options.jobs_per_user_max = settings.limits.jobs_per_user_max;
  options.sessions_max = settings.limits.sessions_max;
  options.sessions_per_user_max = settings.limits.sessions_per_user_max;
  options.memory_max = settings.limits.memory_max;
  options.memory_per_user_max = settings.limits.memory_per_user_max;
  options.ranks_per_job_max = settings.limits.ranks_per_job_max;
  options.auto_create_jobs = settings.auto_create_jobs;
  options.made_job_linger = settings.limits.made_job_linger;
  options.drain_timeout = settings.liveness.drain_timeout;
  options.costs = costs_of(settings);
  options.job_defaults = defaults_of(settings);
  if (!settings.jobs_from.empty()) MUSTER_RETURN_IF_ERROR(load_cluster(settings, options));
  return options;
}

void stand_alone(Options& options) {
  options.roster = {};
  options.job_defaults.ends_with_run = true;
  for (control::JobSpec& job : options.jobs) job.ends_with_run = true;
  std::erase_if(options.jobs, [](const control::JobSpec& job) { return job.world.nodes().size() > 1; });
}

Status check_reports_directory(const config::Settings& settings) {
  const std::string& path = settings.log.reports_directory;
  if (path.empty()) return {};
  struct stat facts {};
  errno = stat(path.c_str(), &facts) != 0 ? errno : S_ISDIR(facts.st_mode) ? 0 : ENOTDIR;
  if (errno == 0) return {};
  return failure(Code::kConfig,
                 "log.reports_directory {}: {}; make the directory, writable for the users of jobs, or leave "
                 "the key empty",
                 path, std::strerror(errno));
}

void apply_log(const config::Settings& settings) {
  const std::string format = settings.log.format != "auto" ? settings.log.format
                             : journal_reads()             ? "journal"
                                                           : "text";
  auto level_value = log::Level::kInfo;
  auto format_value = log::Format::kText;
  log::parse_level(settings.log.level, &level_value);
  log::parse_format(format, &format_value);
  log::configure(level_value, format_value);
  setenv("MUSTER_LOG", settings.log.level.c_str(), 1);
  setenv("MUSTER_LOG_FORMAT", format.c_str(), 1);
}

Status check_proc() {
  if (access("/proc/self/exe", F_OK) == 0) return {};
  return failure(Code::kNoResource,
                 "/proc is not mounted here, and Muster needs it to find its programs and the processes of "
                 "ranks; mount it: mount -t proc proc /proc");
}

std::string engine_program() {
  return program_beside("muster-engine", MUSTER_ENGINE_FROM_DAEMON);
}

std::string networks_folder() {
  return program_beside("networks", MUSTER_LIBRARIES_FROM_COMMAND);
}

std::string daemon_program() {
  return program_beside("musterd", MUSTER_DAEMON_FROM_COMMAND);
}

}  // namespace muster::supervisor
