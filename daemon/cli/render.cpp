#include "daemon/cli/render.hpp"

#include "api/base/words.hpp"
#include "daemon/control/identity.hpp"

#include <algorithm>

namespace muster::cli {
namespace {

constexpr std::int64_t kQuietNanos = 1'000'000'000;  // nodes that are well are never silent for so long

std::string text(const Json& object, const char* name) {
  return object.at(name).get<std::string>();
}

std::string joined(const Json& names) {
  std::string all;
  for (const Json& name : names) all += (all.empty() ? "" : ", ") + name.get<std::string>();
  return all;
}

// "1000", or "container 4026532190".
std::string account_text(const Json& user) {
  const control::Account account(user.at("uid").get<std::uint32_t>(),
                                 user.value("container", std::uint64_t{0}));
  return account.container == 0 ? fmt::format("{}", account.uid) : control::text_of(account);
}

// Each user that the daemon shows, unless all of them govern it and so have everything as their share.
std::string users_text(const Json& status, std::size_t columns) {
  const std::uint64_t all = status.at("limits").value("memory_max", std::uint64_t{0});
  std::vector<config::Cells> rows;
  bool shared = false;
  for (const Json& user : status.value("users", Json::array())) {
    const auto number = [&user](const char* name) { return user.at(name).get<std::uint64_t>(); };
    shared = shared || number("memory_share_bytes") < all;
    rows.push_back({account_text(user), fmt::format("{} of {}", number("jobs"), number("jobs_share")),
                    fmt::format("{} of {}", number("sessions"), number("sessions_share")),
                    fmt::format("{} of {}", bytes_text(number("memory_bytes")),
                                bytes_text(number("memory_share_bytes")))});
  }
  return shared ? config::table({"USER", "JOBS", "SESSIONS", "MEMORY"}, rows, {columns, {"SESSIONS"}}) : "";
}

// Why a node is not there, and since when it is silent.
std::string why_text(const Json& peer) {
  std::string why = text(peer, "why");
  const auto heard_ns = peer.value("heard_ns", std::int64_t{0});
  if (heard_ns <= kQuietNanos) return why;
  return fmt::format("{}{}last heard {} ago", why, why.empty() ? "" : "; ", config::duration_text(heard_ns));
}

// The other nodes, the jobs that wait for them, and the nodes that were turned away.
std::string cluster_text(const Json& cluster, std::size_t columns) {
  const auto seconds = [](const Json& entry, const char* name) {
    return config::duration_text(entry.at(name).get<std::int64_t>());
  };
  const bool certified = cluster.contains("certificate_days");
  const std::string fault = cluster.value("certificate_fault", std::string());
  std::string out =
      fmt::format("node {} of cluster {}, port {}, by {}{}\n", text(cluster, "node"),
                  text(cluster, "cluster"), cluster.at("port").get<std::uint32_t>(), text(cluster, "trust"),
                  !fault.empty() ? " (" + fault + ")"
                  : certified ? fmt::format(" (good for {} days)", cluster.at("certificate_days").get<int>())
                              : "");
  std::vector<config::Cells> rows;
  for (const Json& peer : cluster.at("peers"))
    rows.push_back({text(peer, "node"), text(peer, "state"), seconds(peer, "for_ns"), text(peer, "address"),
                    text(peer, "version"), why_text(peer)});
  out += config::table({"NODE", "STATE", "SINCE", "ADDRESS", "VERSION", "WHY"}, rows,
                       {columns, {"VERSION", "ADDRESS", "SINCE"}});
  for (const Json& refusal : cluster.at("refusals"))
    out += fmt::format("turned away {} ago: {}{}: {}\n", seconds(refusal, "ago_ns"), text(refusal, "from"),
                       text(refusal, "node").empty() ? "" : ", node " + text(refusal, "node"),
                       text(refusal, "why"));
  for (const Json& job : cluster.at("waiting")) out += text(job, "why") + "\n";
  return out;
}

// For a job of several nodes: the attached ranks on each node, and the nodes of which nothing is known.
std::string nodes_text(const Json& job) {
  std::string known;
  std::string unknown;
  for (const Json& node : job.at("nodes")) {
    int ranks = 0;
    int attached = 0;
    for (const Json& rank : job.at("ranks")) {
      if (rank.at("node") != node) continue;
      ++ranks;
      attached += rank.at("attached").get<bool>() ? 1 : 0;
    }
    if (ranks > 0)
      known +=
          fmt::format("{}{}/{} on {}", known.empty() ? "" : ", ", attached, ranks, node.get<std::string>());
  }
  for (const Json& node : job.at("unanswered"))
    unknown += fmt::format("job {}: nothing is known of ranks {} on {}: {}\n", text(job, "name"),
                           rank_list(node.at("ranks").get<std::vector<std::uint32_t>>()), text(node, "node"),
                           text(node, "why"));
  return (known.empty() ? "" : fmt::format("job {}: attached {}\n", text(job, "name"), known)) + unknown;
}

// The members of a group on each node of a job.
std::string places_text(const Json& group) {
  std::string all;
  for (const Json& place : group.at("on"))
    all += fmt::format("{}{}:{}", all.empty() ? "" : " ", text(place, "node"),
                       place.at("ranks").get<std::uint64_t>());
  return all;
}

std::string has_text(const Json& nodes) {
  return fmt::format("{} {}", joined(nodes), nodes.size() == 1 ? "has" : "have");
}

}  // namespace

std::string version_text(const Json& versions) {
  std::string out =
      fmt::format("muster {} (interface {})\n", text(versions, "version"), versions.at("abi").get<int>());
  if (versions.contains("daemon_trouble")) return out + text(versions, "daemon_trouble") + "\n";
  const Json& daemon = versions.at("daemon");
  return out + fmt::format("musterd {} (interface {}), process {}\n", text(daemon, "version"),
                           daemon.at("abi").get<int>(), daemon.at("pid").get<int>());
}

std::string status_text(const Json& status, std::size_t columns, const std::string& at) {
  const Json& limits = status.at("limits");
  std::string out = fmt::format("musterd {} at {}, process {}, up {}{}\n", text(status, "version"),
                                text(status, "socket"), status.at("pid").get<int>(),
                                config::duration_text(status.at("uptime_ns").get<std::int64_t>()),
                                status.value("draining", false) ? ", shutting down" : "");
  // The limit counts jobs of all users; those of other users are not listed.
  const std::size_t own = status.at("jobs").size();
  const auto total = status.value("jobs_total", own);
  const std::string others = total > own ? fmt::format(" ({} of other users)", total - own) : "";
  out += fmt::format(
      "{} of {} jobs{}, {} of {} sessions\n", total, limits.at("jobs_max").get<std::uint32_t>(), others,
      status.at("sessions").get<std::uint32_t>(), limits.at("sessions_max").get<std::uint32_t>());
  out += users_text(status, columns);
  if (status.contains("cluster")) out += cluster_text(status.at("cluster"), columns);
  if (!status.at("jobs").empty()) out += jobs_text(status, columns, at);
  return out;
}

std::string jobs_text(const Json& result, std::size_t columns, const std::string& at) {
  std::vector<config::Cells> rows;
  std::string places, others, silent;
  bool asked = result.at("jobs").empty();  // the engines, which know the memory; status asks none
  for (const Json& job : result.at("jobs")) {
    asked = asked || job.contains("ranks") || job.contains("answered");
    const bool told = job.contains("ranks") && job.value("answered", true);
    // While a job starts or ends, its state explains the silence.
    if (!job.value("answered", true) && text(job, "state") == "ready")
      silent += fmt::format(
          "job {}: its engine (process {}) does not answer; `muster hang{} --job {}` says what it does\n",
          text(job, "name"), job.at("engine_pid").get<int>(), at, text(job, "name"));
    if (job.contains("unanswered") && text(job, "state") == "ready") others += nodes_text(job);
    for (const Json& origin : job.value("origins", Json::array()))
      places +=
          fmt::format("job {}, ranks {}: {}\n", text(job, "name"),
                      rank_list(origin.at("ranks").get<std::vector<std::uint32_t>>()), text(origin, "text"));
    std::uint64_t used = 0;  // on this node
    for (const Json& rank : job.value("ranks", Json::array()))
      if (rank.value("node", "") == job.value("node", ""))
        used += rank.at("arena_used_bytes").get<std::uint64_t>();
    rows.push_back({text(job, "name"), text(job, "state"),
                    fmt::format("{}/{}", job.at("attached").get<std::uint32_t>(),
                                job.value("here", job.at("world").get<std::uint32_t>())),
                    told ? bytes_text(used) : "-",
                    fmt::format("{}", job.at("owner_uid").get<std::uint32_t>()), text(job, "claim"),
                    fmt::format("{}", job.at("engine_pid").get<int>()), text(job, "mesh")});
  }
  config::Cells head{"JOB", "STATE", "RANKS", "MEMORY", "OWNER", "CLAIM", "ENGINE", "MESH"};
  constexpr std::ptrdiff_t kMemory = 3;
  if (!asked) {
    head.erase(head.begin() + kMemory);
    for (config::Cells& row : rows) row.erase(row.begin() + kMemory);
  }
  return config::table(head, rows, {columns, {"CLAIM", "OWNER", "ENGINE", "MEMORY"}}) + places + others +
         silent;
}

std::string group_table(const Json& groups, std::size_t columns) {
  std::vector<config::Cells> rows;
  bool several = false;
  for (const Json& group : groups) {
    rows.push_back({fmt::format("{}", group.at("id").get<std::uint32_t>()),
                    rank_list(group.at("ranks").get<std::vector<std::uint32_t>>(), ','),
                    fmt::format("{}", group.at("ranks").size()), joined(group.at("names"))});
    several = several || group.contains("on");
    if (several) rows.back().insert(rows.back().end() - 1, places_text(group));
  }
  if (several) return config::table({"GROUP", "RANKS", "SIZE", "NODES", "NAMES"}, rows, {columns, {"SIZE"}});
  return config::table({"GROUP", "RANKS", "SIZE", "NAMES"}, rows, {columns, {"SIZE"}});
}

std::string groups_text(const Json& result, std::size_t columns) {
  const auto per_rank = result.at("per_rank").get<std::vector<std::uint32_t>>();
  const auto [low, high] = std::minmax_element(per_rank.begin(), per_rank.end());
  std::string each = "0";
  if (low != per_rank.end())
    each = *low == *high ? fmt::format("{}", *low) : fmt::format("{} to {}", *low, *high);
  std::string made;
  for (const Json& group : result.value("made", Json::array()))
    made += fmt::format("made while it runs: {} of ranks {}{}\n", text(group, "name"),
                        rank_list(group.at("ranks").get<std::vector<std::uint32_t>>(), ','),
                        group.contains("on")
                            ? fmt::format(" on {}; {} it", places_text(group), has_text(group.at("nodes")))
                            : "");
  return group_table(result.at("groups"), columns) + made +
         fmt::format("{} groups, {} per rank; agreed on as {}\n", result.at("total").get<std::uint64_t>(),
                     each, text(result, "hash"));
}

}  // namespace muster::cli
