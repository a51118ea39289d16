// The dims of a mesh: their names, their order, and the dims derived from them. The parser, the mesh, the
// group list and the manifest all read this table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace muster::mesh {

// Outermost first. The product of their sizes is the world, and a rank is the row-major index of its
// coordinates, so tp neighbours are adjacent ranks and get the fastest links.
enum class BasicDim : std::uint8_t { kPp, kDpReplicate, kDpShard, kCp, kDomain, kTp };
inline constexpr std::size_t kBasicDimCount = 6;
inline constexpr std::array<std::string_view, kBasicDimCount> kBasicDimNames{"pp", "dp_replicate", "dp_shard",
                                                                             "cp", "domain",       "tp"};

// A set of basic dims: bit i is BasicDim i. Members of a dim are always in root order, so a set is enough.
using DimMask = std::uint8_t;
constexpr DimMask bit(BasicDim dim) {
  return static_cast<DimMask>(1u << static_cast<unsigned>(dim));
}
inline constexpr DimMask kAllBasicDims = (1u << kBasicDimCount) - 1;

struct DerivedDim {
  std::string_view name;
  std::string_view alias;  // empty: none
  DimMask members;
};

// find() knows these at all degrees. Only non_pp contains `domain`. Parameters are replicated over `domain`,
// so a sum of squares over a `weight` with `domain` would count each copy. A loss is summed over `domain`
// before it is averaged over `dp_cp`.
inline constexpr std::size_t kDerivedDimCount = 5;
inline constexpr std::array<DerivedDim, kDerivedDimCount> kDerivedDims{{
    {"dp", "batch", bit(BasicDim::kDpReplicate) | bit(BasicDim::kDpShard)},
    {"dp_shard_cp", "fsdp", bit(BasicDim::kDpShard) | bit(BasicDim::kCp)},
    {"dp_cp", "loss", bit(BasicDim::kDpReplicate) | bit(BasicDim::kDpShard) | bit(BasicDim::kCp)},
    {"weight", "", bit(BasicDim::kDpShard) | bit(BasicDim::kCp) | bit(BasicDim::kTp)},
    {"non_pp", "", static_cast<DimMask>(kAllBasicDims & ~bit(BasicDim::kPp))},
}};

// The expert view: the ranks of `weight`, factored again as efsdp (outer) and ep (inner).
inline constexpr std::string_view kEfsdpName = "efsdp";
inline constexpr std::string_view kEpName = "ep";
inline constexpr std::string_view kWorldName = "world";

// "dp_replicate, dp_shard" for a set.
std::string member_names(DimMask members);

// The candidate nearest to a mistyped `name`: at most two edits away, and edits + 1 less than the longer
// name's length. Empty if there is none. Among equally near ones a name with the same first letter wins, then
// the first.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

// True if `name` is one of the derived dims, their aliases, efsdp or world.
bool is_derived_name(std::string_view name);

}  // namespace muster::mesh
