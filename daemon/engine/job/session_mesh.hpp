// SessionMesh: the additions of one session to a mesh: flattened names with their groups, and slices.
#pragma once

#include "api/base/ids.hpp"
#include "api/base/mesh/mesh.hpp"

#include <cstdint>
#include <map>

namespace muster::engine {

// The dims of the mesh keep their DimId in the copy; flattened ones follow. Bound: that of the mesh.
struct SessionMesh {
  mesh::Mesh mesh;
  std::map<std::uint32_t, GroupId> groups;       // of flattened dims of size > 1, by DimId
  std::map<std::uint64_t, mesh::ViewId> slices;  // by handle
};

}  // namespace muster::engine
