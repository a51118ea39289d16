#include "daemon/cli/merge/top_nodes.hpp"

#include "api/base/words.hpp"
#include "daemon/cli/merge/top_rates.hpp"

#include <algorithm>
#include <utility>

namespace muster::cli {
namespace {

constexpr const char* kOfEngine[] = {"interval_s", "engine_pid", "engine_silent_s", "engine_stuck"};

// Adds a node's figures of a group, which cover the node's own members. A group of the mesh has one number on
// all nodes, so it gets one row; made groups have a row for each node.
void add_group(const std::string& node, const Json& group, Json& all) {
  const bool made = group.at("made").get<bool>();
  const auto known = std::find_if(all.begin(), all.end(), [&](const Json& row) {
    return !made && !row.at("made").get<bool>() && row.at("id") == group.at("id") &&
           row.at("group") == group.at("group") && row.at("ranks") == group.at("ranks");
  });
  if (known == all.end()) {
    all.push_back(group);
    if (made) all.back()["node"] = node;
    return;
  }
  Json& row = *known;
  const auto sum = [&](const char* name) {
    row[name] = row[name].get<double>() + group.at(name).get<double>();
  };
  sum("bytes_per_s");
  for (const char* part : {"exposed", "busy"}) {
    sum(part);
    row[part] = std::min(1.0, row[part].get<double>());
  }
  for (const char* count : {"in_flight", "failed", "late_messages", "sent_bytes"})
    row[count] = row[count].get<std::uint64_t>() + group.at(count).get<std::uint64_t>();
  // An operation counts once for all members of a node.
  row["ops_per_s"] = std::max(row["ops_per_s"].get<double>(), group.at("ops_per_s").get<double>());
  row["bulk_ahead_bytes"] = std::max(row["bulk_ahead_bytes"].get<std::uint64_t>(),
                                     group.at("bulk_ahead_bytes").get<std::uint64_t>());
}

// `of`: the rates of that node.
void add_node(const std::string& node, const Json& of, Json& now) {
  Json its{{"node", node}};
  for (const char* name : kOfEngine) its[name] = of.at(name);
  now["nodes"].push_back(std::move(its));
  for (Json rank : of.at("ranks")) {
    rank["node"] = node;
    now["ranks"].push_back(std::move(rank));
  }
  for (const Json& group : of.at("groups")) add_group(node, group, now["groups"]);
}

}  // namespace

std::optional<Trouble> TopNodes::look(const DaemonAddress& address, const std::string& job, Instant now,
                                      Attention& attention) {
  if (asked_ && now - *asked_ < period_) return std::nullopt;
  asked_ = now;
  // The nodes have half of it.
  DaemonAddress soon = address;
  soon.timeout = std::min(address.timeout, 2 * kPatience);
  auto reports = ask_reports(soon, job, "figures", &attention);
  if (!reports && reports.error().code == Code::kWaitInterrupted) return reports.error();
  reports ? take(*std::move(reports)) : take_silence(reports.error().text);
  return std::nullopt;
}

void TopNodes::take(std::vector<NodeReport> reports) {
  silence_.clear();
  for (NodeReport& report : reports) {
    if (report.node == own_) continue;
    Seen& seen = seen_[report.node];
    seen.ranks = report.ranks;
    auto look = silent(report)
                    ? fail(Code::kDaemonLost, "{}", report.why)
                    : control::look_in(report.text, report.ranks, "what node " + report.node + " says");
    if (!look) {
      seen.latest.reset();
      seen.why = look.error().message();
      continue;
    }
    seen.why.clear();
    const bool same = seen.latest && seen.latest->engine_pid == look->engine_pid &&
                      seen.latest->groups.size() == look->groups.size();
    seen.rates = rates(same ? *seen.latest : *look, *look);
    seen.latest = *std::move(look);
  }
}

void TopNodes::take_silence(const std::string& why) {
  silence_ = why;
  for (auto& [node, seen] : seen_) {
    seen.latest.reset();
    seen.why = why;
  }
}

void TopNodes::add_to(Json& now) const {
  const Json own = now;
  now["node"] = own_;
  for (const char* list : {"nodes", "ranks", "groups", "unanswered"}) now[list] = Json::array();
  add_node(own_, own, now);
  for (const auto& [node, seen] : seen_) {
    if (seen.why.empty())
      add_node(node, seen.rates, now);
    else
      now["unanswered"].push_back({{"node", node}, {"ranks", seen.ranks}, {"why", seen.why}});
  }
  std::sort(now["ranks"].begin(), now["ranks"].end(),
            [](const Json& a, const Json& b) { return a.at("rank") < b.at("rank"); });
  if (seen_.empty() && !silence_.empty()) now["others"] = silence_;
}

std::string top_nodes_text(const Json& now) {
  if (!now.contains("nodes")) return "";
  std::string lines;
  for (const Json& node : now.at("nodes")) {
    if (node.at("node") == now.at("node")) continue;
    lines +=
        fmt::format("{}   engine {}", node.at("node").get<std::string>(), node.at("engine_pid").get<int>());
    if (node.at("engine_stuck").get<bool>())
      lines += fmt::format(", SILENT for {:.1f} s: what follows is the last of it",
                           node.at("engine_silent_s").get<double>());
    lines += "\n";
  }
  for (const Json& node : now.at("unanswered"))
    lines += fmt::format("nothing is known of ranks {} on {}: {}\n",
                         rank_list(node.at("ranks").get<std::vector<std::uint32_t>>()),
                         node.at("node").get<std::string>(), node.at("why").get<std::string>());
  if (now.contains("others"))
    lines += fmt::format("nothing is known of other nodes: {}\n", now.at("others").get<std::string>());
  return lines;
}

}  // namespace muster::cli
