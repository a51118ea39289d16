// Builds the environment of a rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

struct RankIdentity {
  std::string endpoint;
  std::string job;
  std::string mesh;
  std::string token;  // empty: the job needs none
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint32_t local_rank = 0;  // among those of its node
  std::uint32_t local_size = 1;
  bool check = false;  // its session is in check mode, whatever the environment says
};

// `base` without the variables of another launcher of ours, and with MUSTER_RANK and its companions.
std::vector<std::string> rank_environment(const std::vector<std::string>& base, const RankIdentity& facts);

// Warnings about variables that were set by hand and that `muster run` does not use.
std::vector<std::string> unused_by_run(const std::vector<std::string>& environment);

}  // namespace muster::cli
