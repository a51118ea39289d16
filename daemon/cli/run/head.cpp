#include "daemon/cli/run/head.hpp"

#include "api/shm/endpoint.hpp"
#include "api/shm/socket.hpp"
#include "daemon/supervisor/program/startup.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>

#include <unistd.h>

namespace muster::cli {
namespace {

constexpr const char* kSshLauncher = "ssh {host} {command}";
constexpr int kAnswerPart = 10;  // of the time for an answer, left for its way

std::string seconds_text(Nanos time) {
  return fmt::format("{}", std::chrono::duration<double>(time).count());
}

// This program as the part of a host. `env` sets the variables: no launcher has to know of them.
std::vector<std::string> part_command(const std::string& host, const RunHead::PartFacts& facts,
                                      const std::vector<std::string>& variables) {
  std::vector<std::string> words;
  if (!variables.empty()) words.emplace_back("env");
  words.insert(words.end(), variables.begin(), variables.end());
  words.insert(words.end(), {std::filesystem::read_symlink("/proc/self/exe"), "run", "--part", host,
                             "--folder", std::filesystem::current_path(), "--job", facts.job, "--grace",
                             seconds_text(facts.grace), "--timeout", seconds_text(facts.timeout)});
  if (host == facts.node) words.insert(words.end(), {"--endpoint", facts.endpoint});
  if (facts.elastic) words.emplace_back("--elastic");
  if (facts.check) words.emplace_back("--check");
  if (facts.prefix == Ranks::Prefix::kNone) words.emplace_back("--no-prefix");
  words.emplace_back("--");
  words.insert(words.end(), facts.command.begin(), facts.command.end());
  return words;
}

}  // namespace

std::uint32_t RunHead::ranks() const {
  return std::accumulate(hosts.begin(), hosts.end(), 0u,
                         [](std::uint32_t sum, const HostShare& host) { return sum + host.ranks; });
}

OrTrouble<std::optional<RunHead>> plan_head(const RunHead::Request& request, std::int64_t ranks,
                                            const std::vector<std::string>& environment) {
  if (request.hosts.empty()) {
    if (request.launcher.empty() && request.variables.empty()) return std::nullopt;
    return usage(
        "run: --launcher and --env are for parts on other hosts; name those with --hosts, or leave them "
        "out");
  }
  if (std::any_of(environment.begin(), environment.end(),
                  [](const std::string& entry) { return entry.starts_with("MUSTER_JOB_KEY"); }))
    return usage(
        "run: a run over several hosts needs no job key, and the command lines of its parts would show it; "
        "unset MUSTER_JOB_KEY and MUSTER_JOB_KEY_FILE");
  auto hosts = parse_hosts(request.hosts);
  if (!hosts) return tl::unexpected(hosts.error());
  if (const Status proc = supervisor::check_proc(); !proc.ok()) return troubled(proc);
  auto launcher = parse_launcher(request.launcher.empty() ? kSshLauncher : request.launcher);
  if (!launcher) return tl::unexpected(launcher.error());
  auto variables = passed_on(environment, request.variables);
  if (!variables) return tl::unexpected(variables.error());
  RunHead head{*std::move(hosts), *std::move(launcher), *std::move(variables)};
  if (ranks != 0 && ranks != head.ranks())
    return usage(fmt::format("run: -n {}: --hosts gives {} ranks; leave -n out", ranks, head.ranks()));
  return head;
}

std::optional<Trouble> enter_folder(const PartFolder& part) {
  if (chdir(part.folder.c_str()) == 0) return std::nullopt;
  return Trouble{kFailed,
                 fmt::format("host {}: the run's folder {} cannot be entered: {}; start the run in a "
                             "folder that all hosts have",
                             part.host, part.folder, std::strerror(errno))};
}

std::optional<Trouble> part_trouble(const PartFolder& part, const std::string& node,
                                    const std::string& endpoint) {
  if (node == part.host) return std::nullopt;
  return Trouble{kFailed, fmt::format("host {}: the daemon at {} is that of {}; let the launcher set "
                                      "MUSTER_ENDPOINT to the socket of the host's own daemon",
                                      part.host, endpoint, node.empty() ? "no cluster" : "node " + node)};
}

std::string absence_text(const std::string& endpoint) {
  const shm::Absence absence = shm::absence_at(shm::ranks_socket_at(endpoint));
  return fmt::format("no daemon at {}: {}; {}", endpoint, shm::text_of(absence),
                     absence == shm::Absence::kNoSocket ? "name the socket of a musterd" : "start musterd");
}

Trouble no_daemon(const PartFolder& part, const std::string& endpoint) {
  if (part.host.empty())
    return {kUnreachable, fmt::format("{}, or name its socket with --endpoint", absence_text(endpoint))};
  return {kUnreachable,
          fmt::format("host {}: {} there, or let the launcher set MUSTER_ENDPOINT to its socket", part.host,
                      absence_text(endpoint))};
}

std::string headless_text(const PartFolder& part) {
  return fmt::format(
      "host {}: standard input has ended before a rank ran; the run has ended, or its launcher "
      "passes no input on",
      part.host);
}

std::string node_of(const Json& status) {
  return status.contains("cluster") ? status.at("cluster").at("node").get<std::string>() : "";
}

std::optional<Trouble> hosts_trouble(const RunHead& head, const Json& status, const std::string& endpoint) {
  const std::string here = node_of(status);
  if (here.empty())
    return Trouble{kUsage,
                   fmt::format("run: --hosts: the daemon at {} belongs to no cluster; jobs_from of its "
                               "musterd.yaml must name a cluster file with these hosts",
                               endpoint)};
  const Json& cluster = status.at("cluster");
  std::vector<std::string> known{here};
  for (const Json& peer : cluster.at("peers")) known.push_back(peer.at("node"));
  bool has_here = false;
  for (const HostShare& host : head.hosts) {
    has_here = has_here || host.name == here;
    if (std::find(known.begin(), known.end(), host.name) == known.end())
      return Trouble{
          kUsage,
          fmt::format("run: --hosts: cluster {} has no node {}; `muster status{}` lists them",
                      cluster.at("cluster").get<std::string>(), host.name, shm::endpoint_option(endpoint))};
  }
  if (has_here) return std::nullopt;
  return Trouble{kUsage,
                 fmt::format("run: --hosts: this node, {}, must be among them; name it too, or start the "
                             "run on one of them",
                             here)};
}

std::optional<Trouble> places_trouble(const RunHead& head, const Json& job) {
  const auto nodes = job.value("nodes", std::vector<std::string>());
  const auto shares = job.value("shares", std::vector<std::uint32_t>());
  std::vector<HostShare> its;
  for (std::size_t n = 0; n < std::min(nodes.size(), shares.size()); ++n)
    its.push_back({nodes[n], shares[n]});
  if (its == head.hosts) return std::nullopt;
  return Trouble{kUsage,
                 fmt::format("job {} has its ranks on {}, not on {}; name these hosts, or another job",
                             job.at("name").get<std::string>(),
                             its.empty() ? "this node alone" : hosts_text(its), hosts_text(head.hosts))};
}

std::string awaited(const Json& status, const std::string& job) {
  if (status.contains("cluster"))
    for (const Json& waiting : status.at("cluster").at("waiting"))
      if (waiting.at("job") == job) return waiting.at("why").get<std::string>();
  return "";
}

void ask_on_hosts(const RunHead& head, Nanos timeout, Json& job_create) {
  if (head.hosts.size() == 1) return;
  for (const HostShare& host : head.hosts)
    job_create["nodes"].push_back({{"node", host.name}, {"ranks", host.ranks}});
  job_create["wait_ns"] = (timeout - timeout / kAnswerPart).count();
}

Ranks::Options parts_of(const RunHead& head, const RunHead::PartFacts& facts) {
  Ranks::Options parts;
  parts.kind = Ranks::Kind::kParts;
  parts.prefix = Ranks::Prefix::kLines;
  parts.grace = facts.grace;
  parts.elastic = facts.elastic;
  for (const HostShare& host : head.hosts) {
    const bool here = host.name == facts.node;
    Ranks::Member part;
    part.host = host.name;
    part.environment = facts.environment;
    part.launcher = here ? "muster run" : launcher_text(head.launcher, host.name);
    part.command =
        here ? part_command(host.name, facts, {})
             : launcher_words(head.launcher, host.name, part_command(host.name, facts, head.variables));
    parts.members.push_back(std::move(part));
  }
  return parts;
}

}  // namespace muster::cli
