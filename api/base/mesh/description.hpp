// MeshDescription: a mesh and its groups as plain data, for code that prints them.
#pragma once

#include "api/base/mesh/group_list.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace muster::mesh {

struct MeshDescription {
  struct Dim {
    std::string name;
    std::string alias;  // empty: none
    std::string kind;   // basic, derived, flatten, expert, world
    std::uint32_t size = 1;
    bool enabled = false;
    std::vector<std::string> members;  // basic dims, outermost first
  };

  struct Group {
    std::uint32_t id = 0;
    std::string name;
    std::vector<std::string> names;  // all of its names; the first is `name`
    std::vector<std::uint32_t> ranks;
  };

  std::string canonical;      // "pp=1,dp_replicate=2,…"
  std::string data_parallel;  // none, ddp, fsdp, hsdp
  std::uint32_t world = 1;
  std::vector<Dim> dims;  // canonical order
  std::vector<Group> groups;
  std::uint32_t groups_per_rank_min = 0;
  std::uint32_t groups_per_rank_max = 0;
  std::string hash;  // of the manifest, 32 hex digits
};

MeshDescription describe(const GroupList& groups);

}  // namespace muster::mesh
