#include "daemon/cli/local/env_command.hpp"

#include "daemon/config/table.hpp"

namespace muster::cli {
namespace {

constexpr const char* kForce = "MUSTER_BOOTSTRAP";

// The variables of a launcher that are set.
Json variables_of(const bootstrap::Launcher& launcher, const bootstrap::Lookup& lookup) {
  Json found = Json::object();
  for (const char* variable : {launcher.rank, launcher.world_size, launcher.local_rank, launcher.local_size,
                               launcher.job, launcher.apart})
    if (variable != nullptr)
      if (const auto value = lookup(variable)) found[variable] = *value;
  return found;
}

std::string missing_of(const bootstrap::Launcher& launcher, const bootstrap::Lookup& lookup) {
  if (!lookup(launcher.rank)) return launcher.rank;
  return lookup(launcher.world_size) ? "" : launcher.world_size;
}

// Why a launcher was taken or not.
std::string why(const bootstrap::Launcher& launcher, const std::string& missing, const std::string& taken,
                const bootstrap::Lookup& lookup) {
  const bool forced = lookup(kForce).has_value();
  if (taken == launcher.name)
    return forced ? fmt::format("{} asks for it", kForce) : "the first that is complete";
  if (forced) return fmt::format("{} asks for another", kForce);
  return missing.empty() ? fmt::format("{} comes first", taken) : fmt::format("{} is not set", missing);
}

std::string env_text(const Json& env, std::size_t columns) {
  std::vector<config::Cells> rows;
  for (const Json& launcher : env.at("launchers")) {
    std::string variables;
    for (const auto& [name, value] : launcher.at("variables").items())
      variables += (variables.empty() ? "" : " ") + name + "=" + value.get<std::string>();
    rows.push_back({launcher.at("name").get<std::string>(), launcher.at("taken").get<bool>() ? "taken" : "-",
                    launcher.at("why").get<std::string>(), variables});
  }
  std::string out = config::table({"LAUNCHER", "", "BECAUSE", "FOUND"}, rows, {columns, {}}) + "\n";
  const Json& identity = env.at("identity");
  std::vector<config::Cells> facts;
  for (const char* name : {"rank", "world_size", "local_rank", "local_size"})
    facts.push_back({name, identity.at(name) == -1 ? "not known" : identity.at(name).dump()});
  for (const char* name : {"job", "mesh", "endpoint"}) {
    const auto value = identity.at(name).get<std::string>();
    facts.push_back({name, value.empty() ? "not set" : value});
  }
  facts.push_back({"token", identity.at("token_set").get<bool>() ? "set (not shown)" : "not set"});
  facts.push_back({"job key", identity.at("job_key_set").get<bool>() ? "set (not shown)" : "not set"});
  if (const auto doubt = identity.at("doubt").get<std::string>(); !doubt.empty())
    facts.push_back({"doubt", doubt});
  return out + config::table({"IDENTITY", ""}, facts, {columns, {}});
}

}  // namespace

int run_env(const bootstrap::Lookup& lookup, Output output) {
  const auto identity = bootstrap::identify(lookup);
  if (!identity) return complain(trouble_of(identity.error()));
  // Half a pair of variables is a mistake, if no other launcher has set anything.
  if (identity->launcher.empty())
    if (const auto half = bootstrap::missing_half(lookup)) return complain({kUsage, *half});
  Json launchers = Json::array();
  for (const bootstrap::Launcher& launcher : bootstrap::launchers()) {
    const std::string missing = missing_of(launcher, lookup);
    launchers.push_back({{"name", launcher.name},
                         {"complete", missing.empty()},
                         {"taken", identity->launcher == launcher.name},
                         {"why", why(launcher, missing, identity->launcher, lookup)},
                         {"variables", variables_of(launcher, lookup)}});
  }
  const Json env{{"launchers", launchers},
                 {"identity",
                  {{"launcher", identity->launcher},
                   {"doubt", identity->doubt.message()},
                   {"rank", identity->rank},
                   {"world_size", identity->world_size},
                   {"local_rank", identity->local_rank},
                   {"local_size", identity->local_size},
                   {"job", identity->job},
                   {"mesh", identity->mesh},
                   {"endpoint", identity->endpoint},
                   {"token_set", !identity->token.empty()},
                   {"job_key_set", !identity->key.empty()}}}};
  return output == Output::kJson ? print_json(env) : print_text(env_text(env, config::screen_columns()));
}

}  // namespace muster::cli
