// What a rank finds in its environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

struct RankIdentity {
  std::string endpoint;
  std::string job;
  std::string mesh;
  std::string token;  // empty: the job asks for none
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
};

// `base` without what another launcher of ours said, and with MUSTER_RANK and its companions.
std::vector<std::string> rank_environment(const std::vector<std::string>& base, const RankIdentity& facts);

// What is to be said of variables that were set by hand and that `muster run` does not use.
std::vector<std::string> unused_by_run(const std::vector<std::string>& environment);

}  // namespace muster::cli
