// GroupList: every group that a mesh will ever need, found before the first one is created.
//
// Creating groups is collective, so it hangs if ranks disagree on the list. Each rank therefore computes the
// list alone, in one fixed order, and ranks compare its hash first. A set of ranks with several names is one
// group. A set of one rank is no group.
//
// Owns    a frozen copy of its mesh, the ranks of all groups, and which group a rank is in along each dim.
// Thread  immutable; any.
// Bound   by the mesh: dims x world entries.
// Fails   never.
#pragma once

#include "api/base/hash.hpp"
#include "api/base/ids.hpp"
#include "api/base/mesh/mesh.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::mesh {

class GroupList {
 public:
  // A view into its GroupList.
  struct Group {
    GroupId id;                   // position in the canonical order of creation
    std::span<const Rank> ranks;  // ascending; at least two
    std::string_view name;        // first name in canonical order
  };

  explicit GroupList(const Mesh& mesh);

  const Mesh& mesh() const { return mesh_; }
  std::size_t size() const { return groups_.size(); }  // cluster-wide
  Group group(GroupId id) const;
  // Every name of the group, aliases included, in canonical order.
  std::vector<std::string_view> names(GroupId id) const;

  // nullopt: the dim has size 1, so the rank is alone along it.
  std::optional<GroupId> group_of(Rank rank, Mesh::DimId dim) const;
  std::size_t count_of(Rank rank) const;

  // All nodes must agree on this text before they create a group: degrees, names, order, derived dims,
  // flattens and world. Each line holds one fact, so a diff of two manifests shows what differs.
  const std::string& manifest() const { return manifest_; }
  Hash128 hash() const { return hash_; }

 private:
  struct Entry {
    std::uint32_t first = 0;  // in ranks_
    std::uint32_t count = 0;
    std::uint64_t dims = 0;  // bit i: order_[i] names this group
  };
  class SetIndex;

  void add_dim(std::size_t position, SetIndex& index);
  std::string make_manifest() const;
  static constexpr std::uint32_t kNone = 0xffffffff;

  Mesh mesh_;
  std::vector<Mesh::DimId> order_;
  std::vector<Entry> groups_;
  std::vector<Rank> ranks_;
  std::vector<std::uint32_t> group_of_;  // [Mesh::DimId][rank], kNone where the rank is alone
  std::vector<std::uint32_t> counts_;    // groups per rank
  std::string manifest_;
  Hash128 hash_;
};

}  // namespace muster::mesh
