#include "daemon/cli/local/mesh_command.hpp"

#include "api/base/mesh/description.hpp"
#include "daemon/cli/render.hpp"
#include "daemon/config/load.hpp"
#include "daemon/supervisor/program/cluster_jobs.hpp"

#include <algorithm>

namespace muster::cli {
namespace {

OrTrouble<mesh::Mesh> mesh_from_file(const MeshQuestion& question) {
  if (question.world != 0 || !question.mesh.empty() || !question.flattens.empty())
    return usage("--config already says world, mesh and flattens; leave the other options out");
  auto source = config::load_file(question.config, config::Ownership::kAny);
  if (!source) return usage("--config " + source.error().message());
  const auto cluster = config::parse_cluster(*std::move(source));
  if (!cluster) return usage(cluster.error().text());
  if (question.job.empty() && cluster->jobs.size() != 1)
    return usage(fmt::format("{} has {} jobs; choose one with --job", question.config, cluster->jobs.size()));
  for (const auto& job : cluster->jobs) {
    if (!question.job.empty() && job.name.value != question.job) continue;
    auto mesh = supervisor::mesh_of(*cluster, job);
    if (!mesh) return usage(mesh.error().text());
    return *std::move(mesh);
  }
  return tl::unexpected(Trouble{kNoObject, fmt::format("{} has no job '{}'", question.config, question.job)});
}

OrTrouble<mesh::Mesh> mesh_of(const MeshQuestion& question) {
  if (!question.config.empty()) return mesh_from_file(question);
  if (!question.job.empty()) return usage("--job names a job of a cluster file; give --config too");
  if (question.world == 0) return usage("give --world, or --config with a cluster file");
  return build_mesh(question.mesh.empty() ? mesh::kUnsaidDegrees : question.mesh, question.world,
                    question.flattens);
}

Json to_json(const mesh::GroupList& groups) {
  const mesh::MeshDescription mesh = mesh::describe(groups);
  Json dims = Json::array(), all = Json::array(), per_rank = Json::array();
  for (const auto& dim : mesh.dims)
    dims.push_back({{"name", dim.name},
                    {"alias", dim.alias},
                    {"kind", dim.kind},
                    {"size", dim.size},
                    {"enabled", dim.enabled},
                    {"members", dim.members}});
  for (const auto& group : mesh.groups)
    all.push_back({{"id", group.id}, {"name", group.name}, {"names", group.names}, {"ranks", group.ranks}});
  for (std::uint32_t rank = 0; rank < mesh.world; ++rank) per_rank.push_back(groups.count_of(Rank(rank)));
  return {{"mesh", mesh.canonical}, {"data_parallel", mesh.data_parallel},
          {"world", mesh.world},    {"dims", dims},
          {"groups", all},          {"per_rank", per_rank},
          {"total", groups.size()}, {"hash", mesh.hash}};
}

std::string mesh_text(const Json& mesh, std::size_t columns) {
  std::string out =
      fmt::format("{}: {} ranks, data parallelism {}\n\n", mesh.at("mesh").get<std::string>(),
                  mesh.at("world").get<std::uint32_t>(), mesh.at("data_parallel").get<std::string>());
  std::vector<config::Cells> rows;
  for (const Json& dim : mesh.at("dims")) {
    std::string members;
    for (const Json& member : dim.at("members"))
      members += (members.empty() ? "" : " x ") + member.get<std::string>();
    const std::string name = dim.at("name").get<std::string>();
    rows.push_back({name, dim.at("alias").get<std::string>(), dim.at("kind").get<std::string>(),
                    fmt::format("{}", dim.at("size").get<std::uint32_t>()),
                    dim.at("enabled").get<bool>() ? "yes" : "no", members == name ? "" : members});
  }
  return out +
         config::table({"DIM", "ALSO", "KIND", "SIZE", "IN USE", "MADE OF"}, rows,
                       {columns, {"KIND", "ALSO"}}) +
         "\n" + groups_text(mesh, columns);
}

}  // namespace

OrTrouble<std::vector<mesh::Mesh::Flatten>> parse_flattens(const std::vector<std::string>& texts) {
  std::vector<mesh::Mesh::Flatten> flattens;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
      return usage(fmt::format("--flatten '{}': write NAME=DIM,DIM", text));
    mesh::Mesh::Flatten flatten{text.substr(0, equals), {}};
    for (std::size_t at = equals + 1; at <= text.size();) {
      const std::size_t end = std::min(text.find(',', at), text.size());
      flatten.members.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    flattens.push_back(std::move(flatten));
  }
  return flattens;
}

OrTrouble<mesh::Mesh> build_mesh(const std::string& degrees, std::int64_t world,
                                 const std::vector<std::string>& flattens) {
  const auto parsed = mesh::Degrees::parse(degrees);
  if (!parsed) return usage(fmt::format("--mesh: {}", parsed.error().message()));
  const auto named = parse_flattens(flattens);
  if (!named) return tl::unexpected(named.error());
  auto mesh = mesh::Mesh::build(*parsed, world);
  if (!mesh) return usage(fmt::format("--mesh {}: {}", degrees, mesh.error().message()));
  for (const mesh::Mesh::Flatten& flatten : *named)
    if (const auto added = mesh->flatten(flatten.name, flatten.members); !added)
      return usage(fmt::format("--flatten: {}", added.error().message()));
  return *std::move(mesh);
}

int run_mesh(const MeshQuestion& question, Output output) {
  const auto mesh = mesh_of(question);
  if (!mesh) return complain(mesh.error());
  const mesh::GroupList groups(*mesh);
  if (question.manifest)
    return output == Output::kJson ? print_json({{"manifest", groups.manifest()}})
                                   : print_text(groups.manifest());
  const Json object = to_json(groups);
  return output == Output::kJson ? print_json(object)
                                 : print_text(mesh_text(object, config::screen_columns()));
}

}  // namespace muster::cli
