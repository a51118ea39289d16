// Unit: one unit's shards, and the objects that gather it and reduce its gradients.
#pragma once

#include "api/base/result.hpp"
#include "api/client/set/resources.hpp"
#include "api/client/units/all_gather.hpp"
#include "api/client/units/facts.hpp"
#include "api/client/units/reduction.hpp"

#include <muster/units.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace muster::client {

//   shards -> (a copy in the whole dtype) -> whole -> kernels -> whole gradients -> (sums) -> gradient shards
//
// Owns    this rank's shards, and its objects.
// Thread  the session's.
// Bound   that of its objects.
// Fails   make() as muster_unit_create; views with kBadArgument and kState.
class Unit {
 public:
  // Places that the set gives to a unit.
  struct Places {
    muster_range whole{};
    muster_range slice{};
    muster_range gradients{};
    muster_group slice_group = MUSTER_GROUP_SELF;
  };

  // The unit of that number of a set with these flags and this name.
  static Result<std::unique_ptr<Unit>> make(muster_session* session, const muster_unit_options& options,
                                            std::uint32_t set_flags, const std::string& set_name,
                                            std::uint32_t number);
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const UnitFacts& facts() const { return facts_; }
  UnitAllGather& all_gather() { return all_gather_; }
  const UnitAllGather& all_gather() const { return all_gather_; }
  GradientReduction& reduction() { return reduction_; }
  const GradientReduction& reduction() const { return reduction_; }
  muster_buffer shards() const { return shards_; }
  std::uint64_t bytes() const { return memory_.bytes() + all_gather_.bytes() + reduction_.bytes(); }

  // Makes its plans, once it has places.
  Status prepare(const Places& places);
  // Gives its plans back, and with release() its memory too. Errors: BUSY.
  Status withdraw();
  Status release();

  Result<muster_tensor> tensor(std::uint32_t parameter, std::int32_t which) const;
  Result<std::vector<Layout::Piece>> boxes(std::uint32_t parameter, std::int32_t which) const;
  Result<const Layout*> layout(std::uint32_t parameter) const;
  Status set_unused(std::uint32_t parameter);

 private:
  Unit(muster_session* session, UnitFacts facts)
      : facts_(std::move(facts)),
        memory_(session),
        all_gather_(session, facts_),
        reduction_(session, facts_) {}
  // shared_name: of memory that its ranks have between them.
  Status allocate(const std::string& shared_name);
  muster_tensor shard_view(const UnitFacts::Parameter& p) const;
  Status check_view(std::uint32_t parameter, std::int32_t which) const;

  UnitFacts facts_;
  Resources memory_;
  muster_buffer shards_ = 0;
  UnitAllGather all_gather_;
  GradientReduction reduction_;
  bool prepared_ = false;
};

}  // namespace muster::client
