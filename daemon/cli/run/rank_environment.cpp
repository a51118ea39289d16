#include "daemon/cli/run/rank_environment.hpp"

#include "api/base/variables.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace muster::cli {
namespace {

// The job's key stays as it was given: a file remains one.
bool is_ours(std::string_view entry) {
  if (entry.starts_with("MUSTER_JOB_KEY")) return false;
  const auto ours = rank_variables();
  return std::any_of(ours.begin(), ours.end(), [name = entry.substr(0, entry.find('='))](const auto& each) {
    return each.name == name;
  });
}

}  // namespace

std::vector<std::string> unused_by_run(const std::vector<std::string>& environment) {
  const auto value = [&](std::string_view name) -> const std::string* {
    for (const std::string& entry : environment)
      if (entry.starts_with(fmt::format("{}=", name))) return &entry;
    return nullptr;
  };
  std::vector<std::string> texts;
  if (value("MUSTER_RANK") != nullptr) return texts;  // set by a launcher, whose rank starts this run
  if (const std::string* job = value("MUSTER_JOB"))
    texts.push_back(fmt::format("{} is not used: a run names its own job; say --job", *job));
  if (const std::string* mesh = value("MUSTER_MESH"))
    texts.push_back(fmt::format("{} is not used: a run gives its ranks their mesh; say --mesh", *mesh));
  return texts;
}

std::vector<std::string> rank_environment(const std::vector<std::string>& base, const RankIdentity& facts) {
  std::vector<std::string> all;
  const std::string check = fmt::format("{}=", kCheckVariable);
  for (const std::string& entry : base)
    if (!is_ours(entry) && !(facts.check && entry.starts_with(check))) all.push_back(entry);
  if (facts.check) all.push_back(check + "1");
  all.push_back("MUSTER_ENDPOINT=" + facts.endpoint);
  all.push_back("MUSTER_JOB=" + facts.job);
  all.push_back("MUSTER_MESH=" + facts.mesh);
  all.push_back(fmt::format("MUSTER_RANK={}", facts.rank));
  all.push_back(fmt::format("MUSTER_WORLD_SIZE={}", facts.world));
  all.push_back(fmt::format("MUSTER_LOCAL_RANK={}", facts.local_rank));
  all.push_back(fmt::format("MUSTER_LOCAL_SIZE={}", facts.local_size));
  if (!facts.token.empty()) all.push_back("MUSTER_TOKEN=" + facts.token);
  return all;
}

}  // namespace muster::cli
