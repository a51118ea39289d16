// Unit: one unit's parameters, memory and plans, and the starts that gather and reduce it.
#pragma once

#include "api/base/result.hpp"
#include "api/base/shard/divide.hpp"
#include "api/base/shard/runs.hpp"
#include "api/base/shard/schedule.hpp"
#include "api/client/units/lanes.hpp"

#include <muster/units.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace muster::client {

// A dim of the mesh over which a unit's ranks lie.
struct UnitDim {
  std::string name;  // empty: none
  std::int32_t ranks = 1;
  std::int32_t coordinate = 0;
  muster_group group = MUSTER_GROUP_SELF;
};

// Places that the set gives to a unit.
struct UnitPlaces {
  muster_range whole{};
  muster_range slice{};
  muster_range gradients{};
  muster_group slice_group = MUSTER_GROUP_SELF;
};

// Memory of parameters, in their order: first those of the widest whole dtype, and of these the widest
// shards, and the trainable ones. So each lies aligned without gaps.
//
//   shards -> (copy in the whole dtype) -> whole -> kernels -> whole gradients -> (sums) -> gradient shards
//
// Owns    buffers for shards, for their copies in another dtype, for gradient shards, and for sums that are
// not
//         yet gradients; its plans.
// Thread  the session's.
// Bound   4096 pieces of all shards together.
// Fails   make() as muster_unit_create; the others as the calls of the C API that they make.
class Unit {
 public:
  static Result<std::unique_ptr<Unit>> make(muster_session* session, const muster_unit_options& options,
                                            bool accumulates);
  ~Unit() = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const std::string& name() const { return name_; }
  const std::string& module() const { return module_; }
  bool is_root() const { return root_; }
  std::uint32_t parts() const { return parts_; }
  const UnitDim& shard() const { return shard_; }
  const UnitDim& replicate() const { return replicate_; }
  bool has_parameter(std::string_view name) const;
  // All that ranks must agree on, a line for each fact.
  std::string description() const;

  // What it is for the schedule, without its places.
  shard::ScheduledUnit scheduled() const;
  std::uint64_t slice_bytes() const { return slice_bytes_; }
  std::int32_t slice_ranks() const { return slice_ranks_; }  // 0: it is not kept in slices
  Result<shard::AfterForward> after_forward(std::int32_t said) const;
  std::uint64_t shard_bytes() const { return own_bytes_; }

  // Makes its plans, once it has places.
  Status prepare(const UnitPlaces& places);
  // Gives its plans back, and with release() its memory too. Errors: BUSY.
  Status withdraw();
  Status release();

  Result<muster_tensor> tensor(std::uint32_t parameter, std::int32_t which) const;
  Result<std::vector<Layout::Piece>> pieces(std::uint32_t parameter, std::int32_t which) const;
  Status set_unused(std::uint32_t parameter);

  Result<muster_point> gather(UnitLanes& lanes, shard::GatherFrom from, std::span<const muster_point> waits);
  Result<muster_point> slice(UnitLanes& lanes, std::span<const muster_point> waits);
  Result<shard::Reduced> reduce(UnitLanes& lanes, shard::UnitReduction how,
                                std::span<const muster_point> waits);
  // Forgets a step that has failed.
  void reset();

 private:
  struct Parameter {
    std::string name;
    shard::ShardedParameter places;
    muster_dtype dtype = 0;
    muster_dtype whole_dtype = 0;
    bool trains = true;
    bool unused = false;                  // in the backward under way
    std::uint64_t shard_at = 0;           // bytes in the shards
    std::uint64_t copy_at = 0;            // bytes in their copy
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
  enum class Step : std::uint8_t { kScatter, kReduce, kFinish, kAdd, kKeepPartial, kAddPartial, kZero };
  using Pieces = std::vector<std::vector<muster_piece>>;  // by member

  explicit Unit(muster_session* session) : session_(session) {}
  Status take_dims(const muster_unit_options& options);
  Status take_parameters(const muster_unit_options& options);
  Result<Parameter> parameter_of(const muster_unit_options& options, std::uint32_t i) const;
  Result<std::int64_t> rank_in(const Layout& layout) const;
  void lay_out();
  Status take_gradients(const muster_unit_options& options, bool accumulates);
  Status take_after_forward(std::int32_t said);
  Status allocate();
  Status allocate(muster_buffer& buffer, std::uint64_t bytes);

  Pieces whole_pieces() const;
  Result<muster_plan> plan_gather(muster_group group, muster_range source, const Pieces& pieces);
  Status plan_copies();
  Status plan_slices();
  Result<muster_plan> plan(Step step, Segment segment, bool direct);
  Result<muster_plan> make_plan(Step step, Segment segment, bool direct);
  muster_plan keep(muster_plan plan) { return plans_.emplace_back(plan); }

  std::vector<Segment> used_segments() const;
  muster_tensor vector(muster_buffer buffer, muster_dtype dtype, Segment segment) const;
  std::uint64_t elements(Segment segment) const;
  Result<shard::Reduced> reduce(UnitLanes& lanes, shard::UnitReduction how, Segment segment,
                                std::span<const muster_point> waits);

  muster_session* session_;
  std::string name_, module_;
  UnitDim shard_, replicate_;
  bool root_ = false;
  bool whole_in_backward_ = true;
  std::uint32_t parts_ = 1;
  std::int32_t after_forward_ = MUSTER_RESHARD_DEFAULT;
  std::int32_t slice_ranks_ = 0;
  double divisor_ = 0;
  std::vector<Parameter> parameters_;
  std::vector<std::size_t> order_;      // of the parameters in memory
  std::vector<std::size_t> trainable_;  // likewise
  muster_dtype element_ = 0;            // of a gather: the whole dtype, or U8 if there are several
  bool copies_ = false;                 // shards are gathered from a copy in another dtype
  muster_dtype dtype_ = 0;              // of trainable parameters
  muster_dtype reduce_dtype_ = 0;
  shard::GradientDivision division_;
  bool keeps_sums_ = false;  // sums_ is there: what is reduced is not yet the gradient
  std::uint64_t shards_bytes_ = 0, copy_bytes_ = 0, whole_bytes_ = 0, slice_bytes_ = 0;
  std::uint64_t gradient_elements_ = 0, whole_gradient_elements_ = 0, own_bytes_ = 0;

  muster_buffer shards_ = 0, copy_ = 0, gradients_ = 0, sums_ = 0, partial_ = 0;
  UnitPlaces places_;
  bool prepared_ = false;
  std::vector<muster_plan> plans_;  // all of them
  muster_plan gather_ = 0, gather_slices_ = 0, slice_ = 0;
  std::vector<muster_plan> copy_plans_;
  std::map<std::tuple<Step, Segment, bool>, muster_plan> reduce_plans_;
  muster_point summed_ = MUSTER_POINT_NONE;  // the latest use of sums_
};

}  // namespace muster::client
