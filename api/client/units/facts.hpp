// UnitFacts: the description of a unit by its creator, checked and laid out in memory.
#pragma once

#include "api/base/result.hpp"
#include "api/base/shard/divide.hpp"
#include "api/base/shard/runs.hpp"
#include "api/base/shard/schedule.hpp"

#include <muster/units.h>

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::client {

// The order in memory: the parameters of the widest whole dtype are first. Among them those of the widest
// dtype are first, and among these the trainable ones. So each parameter lies aligned, and without gaps
// wherever ranks exchange it.
struct UnitFacts {
  // A dim of the mesh over which a unit's ranks lie.
  struct Dim {
    std::string name;  // empty: none
    std::int32_t ranks = 1;
    std::int32_t coordinate = 0;
    muster_group group = MUSTER_GROUP_SELF;
  };

  struct Parameter {
    std::string name;
    shard::ShardedParameter places;
    muster_dtype dtype = 0;
    muster_dtype whole_dtype = 0;
    bool trains = true;
    bool summed_over_tp = false;          // its whole gradient is an addend
    bool local = false;                   // its replicas are meant to differ
    std::uint64_t shard_at = 0;           // bytes in the shards
    std::uint64_t copy_at = 0;            // bytes in their copy in the whole dtype
    std::uint64_t whole_at = 0;           // bytes in the whole unit
    std::uint64_t gradient_at = 0;        // elements in the gradient shard
    std::uint64_t whole_gradient_at = 0;  // elements in the whole gradients
  };

  // Trainable parameters [first, last), in the order of memory.
  struct Segment {
    std::size_t first = 0;
    std::size_t last = 0;
    auto operator<=>(const Segment&) const = default;
  };

  // By member of a group: where its block lies, in pieces.
  using Pieces = std::vector<std::vector<muster_piece>>;

  std::string name, module;
  std::uint32_t tag = 0;  // of its collectives, so that ranks do not take one unit for another
  Dim shard, replicate, tensor;
  bool root = false;
  bool whole_in_backward = true;
  std::uint32_t parts = 1;
  std::int32_t after_forward = MUSTER_RESHARD_DEFAULT;
  std::int32_t slice_ranks = 0;  // 0: it is not kept in slices
  double divisor = 0;
  std::vector<Parameter> parameters;
  std::vector<std::size_t> order;      // of the parameters in memory
  std::vector<std::size_t> trainable;  // likewise
  muster_dtype element = 0;            // of a gather: the whole dtype, or U8 if there are several
  bool copies = false;                 // a gather moves a copy of the shards in another dtype
  muster_dtype dtype = 0;              // of the trainable parameters
  muster_dtype reduce_dtype = 0;
  shard::GradientDivision division;
  bool keeps_sums = false;  // the result of a reduction is not yet the gradient
  bool shares = false;      // its shards lie in a whole copy that its ranks have between them
  std::uint64_t shards_bytes = 0, copy_bytes = 0, whole_bytes = 0;   // of this rank
  std::uint64_t gradient_elements = 0, whole_gradient_elements = 0;  // likewise
  // The largest numbers among all ranks. Places follow from them, and the times of gathers from places, so
  // all ranks need the same.
  std::uint64_t place_bytes = 0, slice_bytes = 0, gradient_place_elements = 0;

  // Errors: as muster_unit_create.
  static Result<UnitFacts> make(muster_session* session, const muster_unit_options& options,
                                std::uint32_t set_flags);

  bool has(std::string_view parameter) const;
  // The unit as the schedule sees it, without its places: the same at all ranks.
  shard::UnitSchedule::Facts scheduled() const;
  // All that ranks must agree on, a line for each fact.
  std::string description() const;

  Pieces whole_pieces() const;                    // of shards in the whole unit, in elements of a gather
  Pieces slice_pieces() const;                    // of slices, likewise
  Pieces gradient_pieces(Segment segment) const;  // of shards in the whole gradients of the segment
  // Where this rank's shard of a parameter lies in its shards, in bytes.
  std::vector<muster_piece> shard_pieces(const Parameter& parameter) const;
  std::uint64_t elements(Segment segment) const;  // of its gradient shard
};

// Blocks in the form of the C API.
//
// Owns    the lists.
// Thread  a value; any.
// Bound   that of its pieces.
// Fails   never.
class Blocks {
 public:
  explicit Blocks(const UnitFacts::Pieces& pieces);
  muster_blocks get() const { return {nullptr, nullptr, counts_.data(), pieces_.data()}; }

 private:
  std::vector<std::uint32_t> counts_;
  std::vector<muster_piece> pieces_;
};

}  // namespace muster::client
