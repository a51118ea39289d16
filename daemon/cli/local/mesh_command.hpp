// `muster mesh`: shows what a mesh is made of, without a daemon.
#pragma once

#include "api/base/mesh/group_list.hpp"
#include "daemon/cli/outcome.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

struct MeshQuestion {
  std::int64_t world = 0;             // 0: not given
  std::string mesh;                   // "dp_shard=-1,tp=2"
  std::vector<std::string> flattens;  // "name=a,b"
  std::string config;                 // a cluster file, instead of the three above
  std::string job;                    // a job of that file; may be empty if the file has only one
  bool manifest = false;              // prints only the lines behind the hash
};

// `muster run` uses it too. kUsage with the mesh's own message.
OrTrouble<mesh::Mesh> build_mesh(const std::string& degrees, std::int64_t world,
                                 const std::vector<std::string>& flattens);
OrTrouble<std::vector<mesh::Mesh::Flatten>> parse_flattens(const std::vector<std::string>& texts);

int run_mesh(const MeshQuestion& question, Output output);

}  // namespace muster::cli
