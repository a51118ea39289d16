#include "api/base/variables.hpp"

#include "api/base/spelling.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <unistd.h>

namespace muster {
namespace {

constexpr std::array kRankVariables{
    Variable{"MUSTER_ENDPOINT", "The daemon's directory, or its socket for ranks; else /run/muster."},
    Variable{"MUSTER_JOB", "The job's name; else one made of the launcher's own id."},
    Variable{"MUSTER_RANK", "The rank of this process, from 0 on; together with MUSTER_WORLD_SIZE."},
    Variable{"MUSTER_WORLD_SIZE", "How many ranks the job has."},
    Variable{"MUSTER_LOCAL_RANK", "The rank among those of this node."},
    Variable{"MUSTER_LOCAL_SIZE", "How many ranks this node has."},
    Variable{"MUSTER_MESH", "The job's mesh, as in dp_shard=2,tp=2; else dp_shard=-1."},
    Variable{"MUSTER_TOKEN", "The claim on the rank, where the job asks for one."},
    Variable{"MUSTER_JOB_KEY",
             "A secret that makes ranks of any container and node one job; 16 bytes or more."},
    Variable{"MUSTER_JOB_KEY_FILE", "A file that has this key, on one line."},
    Variable{"MUSTER_BOOTSTRAP",
             "Takes this launcher's variables alone: muster, torchrun, openmpi, slurm or mpich."},
};

constexpr std::array kSessionVariables{
    Variable{kCheckVariable, "1: check mode, which finds wrong uses of memory (muster run --check); else 0."},
};

constexpr std::string_view kOurs = "MUSTER_";
// Variables that the daemon sets for its engines.
constexpr std::array<std::string_view, 2> kInternal{"MUSTER_LOG", "MUSTER_LOG_FORMAT"};

bool is_known(std::string_view name) {
  const auto same = [name](const Variable& variable) { return variable.name == name; };
  return name.starts_with(kSettingPrefix) ||
         std::any_of(kRankVariables.begin(), kRankVariables.end(), same) ||
         std::any_of(kSessionVariables.begin(), kSessionVariables.end(), same) ||
         std::find(kInternal.begin(), kInternal.end(), name) != kInternal.end();
}

// The variable that was probably meant. Compares the names without their common prefix MUSTER_.
std::string meant(std::string_view name) {
  const std::string_view word = name.substr(kOurs.size());
  // Only names of settings have two underscores: MUSTER_node__workers, MUSTER_SETT_node__workers.
  if (word.find("__") != std::string_view::npos) {
    const std::string_view first = word.substr(0, word.find('_'));
    const std::array<std::string, 1> set{"SET"};
    const bool slip = closest(first, set).has_value();
    return fmt::format("{}{}", kSettingPrefix, slip ? word.substr(first.size() + 1) : word);
  }
  std::vector<std::string> words;
  for (const auto& known : {rank_variables(), session_variables()})
    for (const Variable& variable : known) words.emplace_back(variable.name.substr(kOurs.size()));
  const auto near = closest(word, words);
  // closest() lets half of a short word be wrong: it would take MUSTER_TEST for MUSTER_MESH.
  const auto same = [](char a, char b) { return (a | 0x20) == (b | 0x20); };
  const bool alike = near && (same(near->front(), word.front()) || same(near->back(), word.back()));
  return alike ? std::string(kOurs) + *near : "";
}

}  // namespace

std::span<const Variable> rank_variables() {
  return kRankVariables;
}

std::span<const Variable> session_variables() {
  return kSessionVariables;
}

std::vector<std::string> misspelt_variables(std::span<const std::string> environment) {
  std::vector<std::string> told;
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (!name.starts_with(kOurs) || is_known(name)) continue;
    if (const std::string near = meant(name); !near.empty())
      told.push_back(fmt::format("{} is no variable of Muster; {}", name, did_you_mean(near)));
  }
  return told;
}

std::vector<std::string> process_variables() {
  std::vector<std::string> all;
  // clearenv(3) leaves no list at all.
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) all.emplace_back(*entry);
  return all;
}

}  // namespace muster
