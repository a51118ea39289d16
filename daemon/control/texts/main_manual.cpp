#include "daemon/control/texts/main_manual.hpp"

#include "api/base/collective/path.hpp"
#include "api/base/dtype.hpp"
#include "daemon/config/cluster.hpp"
#include "daemon/config/settings.hpp"

#include <fmt/format.h>

namespace muster::control {
namespace {

std::vector<std::string> numbered(std::int32_t last, const char* (*name)(std::int32_t)) {
  std::vector<std::string> words;
  for (std::int32_t i = 1; i <= last; ++i) words.emplace_back(name(i));
  return words;
}

std::vector<std::string> all_keys() {
  std::vector<std::string> words;
  for (const auto keys : {config::settings_keys(), config::cluster_keys()})
    for (const config::Key& key : keys) words.emplace_back(key.path);
  return words;
}

std::vector<std::string> assignments() {
  std::vector<std::string> words;
  for (const config::Key& key : config::settings_keys())
    if (key.leaf()) words.push_back(std::string(key.path) + "=");
  return words;
}

}  // namespace

std::string help_footer(const Manual& manual) {
  std::string out;
  for (const Fact& example : manual.examples)
    out +=
        fmt::format("{}  {}\n      {}\n", out.empty() ? "Examples:\n" : "", example.name, example.sentence);
  if (!manual.environment.empty()) out += "\nEnvironment:\n";
  for (const Fact& variable : manual.environment)
    out += fmt::format("  {:<17}  {}\n", variable.name, variable.sentence);
  out += "\nExit codes:\n";
  for (const Fact& code : manual.exit_codes) out += fmt::format("  {:<3}  {}\n", code.name, code.sentence);
  out.pop_back();  // --help ends the line itself
  return out;
}

std::optional<Values> values_named(const std::string& name) {
  using Kind = Values::Kind;
  if (name == kFile) return Values{Kind::kFile, {}};
  if (name == kFolder) return Values{Kind::kFolder, {}};
  if (name == kJob) return Values{Kind::kJob, {}};
  if (name == kOp) return Values{Kind::kWords, numbered(kOperations, op_name)};
  if (name == kDtype) return Values{Kind::kWords, numbered(MUSTER_F8_E5M2, dtype_name)};
  if (name == kKey) return Values{Kind::kWords, all_keys()};
  if (name == kSetting) return Values{Kind::kWords, assignments()};
  if (name == kSchema) return Values{Kind::kWords, {"musterd", "cluster"}};
  return std::nullopt;
}

}  // namespace muster::control
