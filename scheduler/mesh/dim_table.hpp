// The names of a mesh: which dims there are, in which order, and what is derived from them. One declaration
// per fact; parser, mesh, group list and manifest read this table.
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

// Always resolvable, whatever the degrees. `domain` is in non_pp alone: parameters are replicated over it, so
// a sum of squares over `weight` would count each copy, and a loss is summed over `domain` before it is
// averaged over `dp_cp`.
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

// The candidate that a person who typed `name` most likely meant: at most two edits away and not a different
// word of the same length (edits < length - 1). Empty if none. Ties go to the first.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

// True if `name` is one of the derived dims, their aliases, efsdp or world.
bool is_derived_name(std::string_view name);

}  // namespace muster::mesh
