#include "daemon/cli/rank_environment.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace muster::cli {
namespace {

constexpr std::array<std::string_view, 9> kOurs{
    "MUSTER_ENDPOINT=",   "MUSTER_JOB=",  "MUSTER_RANK=",  "MUSTER_WORLD_SIZE=", "MUSTER_LOCAL_RANK=",
    "MUSTER_LOCAL_SIZE=", "MUSTER_MESH=", "MUSTER_TOKEN=", "MUSTER_BOOTSTRAP="};

bool is_ours(const std::string& entry) {
  return std::any_of(kOurs.begin(), kOurs.end(),
                     [&](std::string_view name) { return entry.starts_with(name); });
}

}  // namespace

std::vector<std::string> rank_environment(const std::vector<std::string>& base, const RankFacts& facts) {
  std::vector<std::string> all;
  for (const std::string& entry : base)
    if (!is_ours(entry)) all.push_back(entry);
  all.push_back("MUSTER_ENDPOINT=" + facts.endpoint);
  all.push_back("MUSTER_JOB=" + facts.job);
  all.push_back("MUSTER_MESH=" + facts.mesh);
  all.push_back(fmt::format("MUSTER_RANK={}", facts.rank));
  all.push_back(fmt::format("MUSTER_WORLD_SIZE={}", facts.world));
  all.push_back(fmt::format("MUSTER_LOCAL_RANK={}", facts.rank));
  all.push_back(fmt::format("MUSTER_LOCAL_SIZE={}", facts.world));
  if (!facts.token.empty()) all.push_back("MUSTER_TOKEN=" + facts.token);
  return all;
}

}  // namespace muster::cli
