#include "api/base/mesh/group_list.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include <xxhash.h>

namespace muster::mesh {

// Finds the group with given ranks: an open-addressing table over the hashes of the sets. It exists only
// during construction.
class GroupList::SetIndex {
 public:
  // At most `sets_max` sets will be added.
  explicit SetIndex(std::size_t sets_max) : slots_(std::bit_ceil(2 * sets_max + 1)) {}

  // The group of the set. If the set is new it is kNone, and the caller writes it.
  std::uint32_t& find(std::span<const Rank> ranks, const GroupList& list) {
    const std::uint64_t hash = XXH3_64bits(ranks.data(), ranks.size_bytes());
    for (std::size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[i];
      if (slot.group == kNone) {
        slot.hash = hash;
        return slot.group;
      }
      if (slot.hash != hash) continue;
      const std::span<const Rank> other = list.group(GroupId(slot.group)).ranks;
      if (std::equal(ranks.begin(), ranks.end(), other.begin(), other.end())) return slot.group;
    }
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t group = kNone;
  };
  std::vector<Slot> slots_;
};

GroupList::GroupList(const Mesh& mesh) : mesh_(mesh), order_(mesh_.canonical_order()) {
  static_assert(kBasicDimCount + kDerivedDimCount + 3 + kFlattenCountMax <=
                std::numeric_limits<std::uint64_t>::digits);
  static_assert(sizeof(Rank) == sizeof(std::uint32_t) && std::is_trivially_copyable_v<Rank>);
  const std::size_t world = mesh_.world();
  group_of_.assign(mesh_.dim_count() * world, kNone);
  counts_.assign(world, 0);
  std::size_t sets_max = 0;
  for (const Mesh::DimId id : order_)
    if (mesh_.dim(id).size > 1) sets_max += world / mesh_.dim(id).size;
  SetIndex index(sets_max);
  groups_.reserve(sets_max);
  for (std::size_t i = 0; i < order_.size(); ++i)
    if (mesh_.dim(order_[i]).size > 1) add_dim(i, index);
  manifest_ = make_manifest();
  const XXH128_hash_t hash = XXH3_128bits(manifest_.data(), manifest_.size());
  hash_ = {hash.low64, hash.high64};
}

void GroupList::add_dim(std::size_t position, SetIndex& index) {
  const Mesh::DimId id = order_[position];
  const std::uint32_t size = mesh_.dim(id).size;
  std::uint32_t* const group_of = group_of_.data() + std::size_t{id.value} * mesh_.world();
  for (std::uint32_t rank = 0; rank < mesh_.world(); ++rank) {
    if (group_of[rank] != kNone) continue;  // ascending: the lowest rank of each set comes first
    const auto first = static_cast<std::uint32_t>(ranks_.size());
    for (std::uint32_t c = 0; c < size; ++c) ranks_.push_back(mesh_.moved(Rank(rank), id, c));
    const std::span<const Rank> set(ranks_.data() + first, size);
    std::uint32_t& group = index.find(set, *this);
    const bool is_new = group == kNone;
    if (is_new) {
      group = static_cast<std::uint32_t>(groups_.size());
      groups_.push_back({first, size, 0});
    }
    groups_[group].dims |= std::uint64_t{1} << position;
    for (const Rank member : set) {
      group_of[member.value] = group;
      if (is_new) ++counts_[member.value];
    }
    if (!is_new) ranks_.resize(first);
  }
}

GroupList::Group GroupList::group(GroupId id) const {
  MUSTER_ASSERT(id.value < groups_.size());
  const Entry& entry = groups_[id.value];
  Group group{id, {ranks_.data() + entry.first, entry.count}, {}};
  if (entry.dims != 0)
    group.name = mesh_.dim(order_[static_cast<std::size_t>(std::countr_zero(entry.dims))]).name;
  return group;
}

std::vector<std::string_view> GroupList::names(GroupId id) const {
  MUSTER_ASSERT(id.value < groups_.size());
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    if ((groups_[id.value].dims >> i & 1u) == 0) continue;
    const Mesh::Dim& dim = mesh_.dim(order_[i]);
    names.push_back(dim.name);
    if (!dim.alias.empty()) names.push_back(dim.alias);
  }
  return names;
}

std::optional<GroupId> GroupList::group_of(Rank rank, Mesh::DimId dim) const {
  MUSTER_ASSERT(rank.value < mesh_.world() && dim.value < mesh_.dim_count());
  const std::uint32_t group = group_of_[std::size_t{dim.value} * mesh_.world() + rank.value];
  if (group == kNone) return std::nullopt;
  return GroupId(group);
}

std::size_t GroupList::count_of(Rank rank) const {
  MUSTER_ASSERT(rank.value < mesh_.world());
  return counts_[rank.value];
}

std::string GroupList::make_manifest() const {
  std::string text =
      fmt::format("muster-mesh 1\nworld {}\ndegrees {}\n", mesh_.world(), mesh_.degrees().canonical());
  for (const Mesh::DimId id : order_) {
    const Mesh::Dim& dim = mesh_.dim(id);
    text += fmt::format("{} {}", dim_kind_name(dim.kind), dim.name);
    if (!dim.alias.empty()) text += fmt::format(" alias {}", dim.alias);
    text += fmt::format(" size {} inner {} of {}\n", dim.size, dim.inner, member_names(dim.members));
  }
  text += fmt::format("groups {}\n", groups_.size());
  return text;
}

}  // namespace muster::mesh
