#include "daemon/cli/local/config_command.hpp"

#include "daemon/config/cluster.hpp"
#include "daemon/config/document.hpp"
#include "daemon/config/load.hpp"
#include "daemon/config/render.hpp"
#include "daemon/config/schema.hpp"
#include "daemon/config/table.hpp"
#include "daemon/supervisor/program/cluster_jobs.hpp"
#include "daemon/supervisor/program/startup.hpp"

namespace muster::cli {
namespace {

bool is_cluster(const config::Source& source) {
  config::Diagnostics ignored;  // the check itself reports them
  const auto root = config::read_document(source, &ignored);
  if (!root) return source.name().find("cluster") != std::string::npos;
  return root->find("cluster") != nullptr || root->find("nodes") != nullptr || root->find("jobs") != nullptr;
}

struct Checked {
  std::string file;
  std::string kind;  // "musterd" or "cluster"; empty if it could not be read
  config::Diagnostics diagnostics;
  std::string unreadable;  // or another fault that has no place in the file
  std::string warning;

  supervisor::ClusterPlan::Limits limits;  // of a good "musterd" file

  bool good() const { return unreadable.empty() && diagnostics.empty(); }
};

supervisor::ClusterPlan::Limits limits_of(const config::Settings& settings) {
  return {settings.limits.jobs_max, settings.limits.ranks_per_job_max};
}

// All faults that `musterd --config FILE --check-config` finds, but for those of its environment.
void check_settings(const std::string& file, Checked& result) {
  auto source = config::load_file(file, config::Ownership::kTrusted);
  if (!source) {
    result.unreadable = source.error().message();
    return;
  }
  const auto resolved = config::resolve({{}, {}, *std::move(source)});
  if (!resolved) {
    result.diagnostics = resolved.error();
    return;
  }
  if (const auto options = supervisor::options_of(resolved->settings); !options) {
    result.unreadable = options.error().message();
    return;
  }
  if (const Status reports = supervisor::check_reports_directory(resolved->settings); !reports.ok())
    result.warning = fmt::format("{}: {}", file, reports.message());
  result.limits = limits_of(resolved->settings);
}

// `limits`: of the daemon for which a cluster file is meant.
Checked check_file(const std::string& file, const supervisor::ClusterPlan::Limits& limits) {
  Checked result;
  result.file = file;
  auto source = config::load_file(file, config::Ownership::kAny);
  if (!source) {
    result.unreadable = source.error().message();
    return result;
  }
  if (is_cluster(*source)) {
    result.kind = "cluster";
    const auto cluster = config::parse_cluster(*std::move(source));
    const auto plan =
        cluster ? supervisor::plan_of(*cluster, {}, {}, limits) : tl::unexpected(cluster.error());
    if (!plan) result.diagnostics = plan.error();
  } else {
    result.kind = "musterd";
    check_settings(file, result);
  }
  return result;
}

Json to_json(const Checked& checked) {
  Json errors = Json::array();
  if (!checked.unreadable.empty()) errors.push_back({{"message", checked.unreadable}});
  for (const auto& entry : checked.diagnostics.entries())
    errors.push_back({{"line", entry.line},
                      {"column", entry.column},
                      {"path", entry.path},
                      {"message", entry.message},
                      {"suggestion", entry.suggestion}});
  return {{"file", checked.file}, {"kind", checked.kind}, {"good", checked.good()}, {"errors", errors}};
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json to_json(const config::Explanation& explained) {
  const config::Key& key = *explained.key;
  Json below = Json::array();
  for (const config::Key* child : explained.below)
    below.push_back({{"key", child->path}, {"sentence", child->sentence}});
  const std::string path(key.path);
  const bool settable = explained.setting && key.leaf();
  const bool required = key.presence == config::Key::Presence::kRequired;
  return {{"key", path},
          {"kind", config::kind_name(key.kind)},
          {"type", config::type_text(key)},
          {"required", required},
          {"default", key.leaf() && !required ? Json(key.fallback) : Json(nullptr)},
          {"range", text_or_null(config::range_text(key))},
          {"choices", config::choices_of(key)},
          {"sentence", key.sentence},
          {"example", text_or_null(config::example_of(key))},
          {"file", explained.setting ? "musterd.yaml" : "cluster.yaml"},
          {"flag", settable ? Json("--set " + path + "=") : Json(nullptr)},
          {"environment", settable ? Json(config::variable_of(path)) : Json(nullptr)},
          {"read_by", explained.setting ? Json::array({"musterd"})
                                        : Json::array({"musterd (jobs_from)", "muster mesh --config",
                                                       "muster config check"})},
          {"keys", below}};
}

}  // namespace

int run_config_check(const std::vector<std::string>& files, Output output) {
  Json all = Json::array();
  std::string good, bad;
  // A musterd file given with a cluster file has its daemon's limits; else the defaults apply.
  supervisor::ClusterPlan::Limits limits = limits_of(config::resolve({})->settings);
  for (const std::string& file : files)
    if (const Checked checked = check_file(file, limits); checked.kind == "musterd" && checked.good())
      limits = checked.limits;
  for (const std::string& file : files) {
    const Checked checked = check_file(file, limits);
    all.push_back(to_json(checked));
    if (checked.good()) good += fmt::format("{}: a good {} file\n", file, checked.kind);
    if (!checked.warning.empty()) warn(checked.warning);
    if (!checked.unreadable.empty()) bad += checked.unreadable + "\n";
    if (!checked.diagnostics.empty()) bad += checked.diagnostics.text() + "\n";
  }
  const int printed = output == Output::kJson ? print_json({{"files", all}}) : print_text(good);
  if (bad.empty()) return printed;
  // Without a prefix: editors look for file:line:column at the start.
  if (output == Output::kText) print_error(bad);
  return kUsage;
}

int run_config_show(const std::string& file, const std::vector<std::string>& settings,
                    const std::vector<std::string>& environment, Output output) {
  supervisor::Sources sources;
  sources.environment = environment;
  if (!file.empty()) {
    sources.kind = supervisor::Sources::ConfigFile::kGiven;
    sources.path = file;
  }
  for (const std::string& text : settings) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return complain({kUsage, fmt::format("--set {}: write KEY=VALUE", text)});
    sources.flags.push_back(
        {text.substr(0, equals), text.substr(equals + 1), "--set " + text.substr(0, equals)});
  }
  const auto resolved = supervisor::load_settings(sources);
  if (!resolved) {
    print_error(resolved.error().message() + "\n");
    return kUsage;
  }
  return print_text(output == Output::kJson ? config::show_json(*resolved)
                                            : config::show(*resolved, config::screen_columns()));
}

int run_config_explain(const std::string& key, Output output) {
  const auto explained = config::explanation_of(key);
  if (!explained) {
    const std::string& suggestion = explained.error().suggestion;
    return complain({kNoObject, explained.error().message + (suggestion.empty() ? "" : "; " + suggestion)});
  }
  return output == Output::kJson ? print_json(to_json(*explained)) : print_text(*config::explain(key));
}

int run_config_schema(const std::string& which) {
  const bool cluster = which == "cluster";
  return print_text(
      cluster ? config::json_schema(config::cluster_keys(), "cluster.schema.json", "Muster cluster")
              : config::json_schema(config::settings_keys(), "musterd.schema.json", "musterd settings"));
}

}  // namespace muster::cli
