#include "daemon/cli/merge/groups_merge.hpp"

#include "daemon/control/fields.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace muster::cli {
namespace {

using control::Fields;

constexpr std::size_t kListValuesMax = std::size_t{4} << 20;  // of a node's text
constexpr std::uint64_t kGroupsMax = std::uint64_t{1} << 32;
constexpr std::size_t kHashBytesMax = 64;

using MadeGroup = std::pair<std::string, std::vector<std::uint32_t>>;  // name, ranks

struct NodeGroups {
  Json mesh;  // that all nodes report alike
  std::vector<MadeGroup> made;
};

Json names_in(Fields& fields, const Json& group) {
  Json names = Json::array();
  for (const Json& name : fields.list(group, "names")) {
    if (!name.is_string()) fields.bad("names");
    names.push_back(name.is_string() ? name.get_ref<const std::string&>().substr(0, Fields::kTextBytesMax)
                                     : std::string());
  }
  return names;
}

Result<NodeGroups> groups_in(const NodeReport& report, std::uint32_t world) {
  const std::string what =
      report.node.empty() ? "the list of groups" : "the list of groups of " + report.node;
  MUSTER_ASSIGN_OR_RETURN(const Json said, control::json_in(report.text, kListValuesMax, what));
  Fields fields(what);
  NodeGroups read;
  Json groups = Json::array();
  for (const Json& group : fields.list(said, "groups"))
    groups.push_back({{"id", fields.word(group, "id")},
                      {"name", fields.text(group, "name")},
                      {"names", names_in(fields, group)},
                      {"ranks", fields.ranks(group, "ranks", world)}});
  Json per_rank = Json::array();
  for (const Json& count : fields.list(said, "per_rank")) {
    if (!count.is_number_unsigned() || count.get<std::uint64_t>() > kGroupsMax) fields.bad("per_rank");
    per_rank.push_back(count.is_number_unsigned() ? count : Json(0u));
  }
  if (per_rank.size() != world) fields.bad("per_rank");
  read.mesh = {{"hash", fields.text(said, "hash", kHashBytesMax)},
               {"total", fields.number(said, "total", kGroupsMax)},
               {"groups", std::move(groups)},
               {"per_rank", std::move(per_rank)}};
  for (const Json& group : fields.list(said, "made")) {
    MadeGroup made{fields.text(group, "name"), fields.ranks(group, "ranks", world)};
    const bool is_its = std::any_of(made.second.begin(), made.second.end(), [&](std::uint32_t rank) {
      return std::find(report.ranks.begin(), report.ranks.end(), rank) != report.ranks.end();
    });
    if (!is_its) fields.bad("made");
    read.made.push_back(std::move(made));
  }
  if (!fields.why().ok()) return fail(fields.why());
  return read;
}

// How many of the ranks are on each node.
Json places_of(const std::vector<NodeReport>& reports, const std::vector<std::uint32_t>& ranks) {
  const std::set<std::uint32_t> members(ranks.begin(), ranks.end());
  Json on = Json::array();
  for (const NodeReport& report : reports) {
    const auto here = std::count_if(report.ranks.begin(), report.ranks.end(),
                                    [&](std::uint32_t rank) { return members.contains(rank); });
    if (here > 0) on.push_back({{"node", report.node}, {"ranks", here}});
  }
  return on;
}

// The names of nodes that have it, by group; one may have several of that name and those ranks.
using MadeOn = std::map<MadeGroup, std::vector<std::vector<std::string>>>;

void add_made(const std::string& node, const std::vector<MadeGroup>& groups, MadeOn& made) {
  std::map<MadeGroup, std::size_t> its;
  for (const MadeGroup& group : groups) {
    auto& all = made[group];
    const std::size_t which = its[group]++;
    if (all.size() <= which) all.emplace_back();
    all[which].push_back(node);
  }
}

}  // namespace

Json merged_groups(std::vector<NodeReport>& reports) {
  std::uint32_t world = 0;
  for (const NodeReport& report : reports) world += static_cast<std::uint32_t>(report.ranks.size());
  const bool several = reports.size() > 1;
  Json merged;
  std::string first;
  MadeOn made;
  for (NodeReport& report : reports) {
    if (silent(report)) continue;
    auto read = groups_in(report, world);
    if (read && merged.is_null()) {
      merged = read->mesh;
      first = report.node;
    }
    if (!read)
      report.why = read.error().message();
    else if (read->mesh != merged)
      report.why =
          fmt::format("its groups of the mesh are not those of {}: hashes {} and {}", first,
                      read->mesh.at("hash").get<std::string>(), merged.at("hash").get<std::string>());
    else
      add_made(report.node, read->made, made);
  }
  if (merged.is_null()) return merged;
  if (several)
    for (Json& group : merged["groups"])
      group["on"] = places_of(reports, group.at("ranks").get<std::vector<std::uint32_t>>());
  Json list = Json::array();
  for (const auto& [group, all] : made)
    for (const std::vector<std::string>& nodes : all) {
      Json json{{"name", group.first}, {"ranks", group.second}};
      if (several) json.update({{"on", places_of(reports, group.second)}, {"nodes", nodes}});
      list.push_back(std::move(json));
    }
  merged["made"] = std::move(list);
  merged["unanswered"] = unanswered_json(reports);
  return merged;
}

}  // namespace muster::cli
