// Mesh: the ranks of a job as a grid, and the named dims of that grid.
//
// Owns    the dims (basic, derived, expert, the user's flattens) and the cache of slices.
// Thread  const calls: any thread, while no thread is in flatten() or slice(). Those two: one thread.
// Bound   kRankCountMax ranks, kFlattenCountMax flattens, kViewCountMax slices.
// Fails   build() with MUSTER_ERR_CONFIG, look-ups with NOT_FOUND, flatten() and slice() with NOT_FOUND,
//         BAD_ARGUMENT and NO_RESOURCE.
//         A rank outside the world is the caller's bug and asserts. No communication: a mesh exists without
//         a cluster.
#pragma once

#include "api/base/bounded.hpp"
#include "api/base/ids.hpp"
#include "api/base/mesh/degrees.hpp"
#include "api/base/mesh/dim_table.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::mesh {

inline constexpr std::size_t kFlattenCountMax = 32;
inline constexpr std::size_t kViewCountMax = 4096;
inline constexpr std::size_t kDimNameBytesMax = 64;  // with the final zero: muster_group_info::name

class Mesh {
 public:
  // A name that the user gives to several neighbouring dims, in declaration order.
  struct Flatten {
    std::string name;
    std::vector<std::string> members;
  };

  // Handles into one mesh. Look-ups of the same names always give the same handle.
  using DimId = Id<struct DimTag>;
  using ViewId = Id<struct ViewTag>;

  // One named dim. The ranks along it differ only in the coordinates of its members. The expert view cuts the
  // members' row-major index once more: coordinate = index / inner % size. `inner` is 1 for all dims but
  // efsdp.
  struct Dim {
    enum class Kind : std::uint8_t { kBasic, kDerived, kFlatten, kExpert, kWorld };

    struct Factor {
      std::uint32_t size;
      std::uint32_t stride;  // in ranks
    };

    std::string name;
    std::string alias;  // empty: none
    Kind kind = Kind::kBasic;
    DimMask members = 0;
    // In use. Dims of size > 1 are. Two are at any size, because mixed precision uses them: dp_shard_cp if
    // world > 1, and efsdp if ep > 1.
    bool enabled = false;
    std::uint32_t size = 1;
    std::uint32_t inner = 1;
    BoundedVector<Factor, kBasicDimCount> factors;  // outermost first; members of size 1 left out
  };

  // A slice: some dims side by side, outermost first.
  struct View {
    std::vector<DimId> dims;
    std::vector<std::uint32_t> shape;
  };

  // Resolves the degrees against the world and adds the flattens in their order.
  static Result<Mesh> build(const Degrees& degrees, std::int64_t world,
                            std::span<const Flatten> flattens = {});

  const Degrees& degrees() const { return degrees_; }
  std::uint32_t world() const { return world_; }

  // ---- names to handles

  // Accepts any valid name, also of a dim of size 1. There each rank has coordinate 0 and is alone, so a data
  // loader can always ask for its coordinate along "dp". NOT_FOUND lists the valid names. If ep = 1, `efsdp`
  // has the ranks of `weight`, because experts are then sharded over all of them.
  Result<DimId> find(std::string_view name) const;
  // As find(), for a name of the slice: of one of its dims, or of a product of them.
  Result<DimId> find(ViewId slice, std::string_view name) const;

  const Dim& dim(DimId id) const;
  std::size_t dim_count() const { return dims_.size(); }
  // Basic dims outer to inner, derived in table order, flattens as declared, efsdp, ep if ep > 1, world.
  // Groups are created in this order, which is the same on all ranks.
  std::vector<DimId> canonical_order() const;

  // Gives one name to `members`: basic, derived or flattened names, ascending, and neighbours if dims of size
  // 1 are not counted. A repeated name with the same members gives the same handle. A repeated name with
  // other members, or a basic dim's name, is an error.
  Result<DimId> flatten(std::string_view name, std::span<const std::string> members);

  // Dims side by side, strictly ascending in root order; dims between two of them may be left out. efsdp and
  // ep combine only with pp, dp_replicate and domain, and with each other.
  Result<ViewId> slice(std::span<const std::string_view> names);
  const View& view(ViewId id) const;

  // ---- ranks

  std::uint32_t coordinate(Rank rank, DimId id) const;
  // The rank that differs from `rank` in its coordinate along the dim only.
  Rank moved(Rank rank, DimId id, std::uint32_t coordinate) const;

 private:
  Mesh(const Degrees& degrees, std::uint32_t world);

  void add_dim(std::string_view name, std::string_view alias, Dim::Kind kind, DimMask members);
  void add_expert_dims();
  std::optional<DimId> lookup(std::string_view name) const;
  Status not_found(std::string_view name) const;
  bool spans(const View& slice, DimId id) const;
  Result<DimMask> flatten_members(std::string_view name, std::span<const std::string> members) const;
  Status check_contiguous(std::string_view name, DimMask members) const;
  Result<DimId> check_taken(std::string_view name, DimId taken, DimMask members) const;
  Status check_slice_order(std::span<const DimId> ids) const;
  std::uint32_t index_along(Rank rank, const Dim& dim) const;

  Degrees degrees_;
  std::uint32_t world_ = 1;
  std::array<std::uint32_t, kBasicDimCount> sizes_{};
  std::array<std::uint32_t, kBasicDimCount> strides_{};
  std::vector<Dim> dims_;    // fixed dims first, then flattens; a DimId is an index
  std::vector<View> views_;  // a ViewId is an index
};
std::string_view dim_kind_name(Mesh::Dim::Kind kind);

}  // namespace muster::mesh
