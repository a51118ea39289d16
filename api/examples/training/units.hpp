// Units: a model's parameters as units of the runtime, such as one for each block. The runtime gathers them
// for use, frees them, and reduces their gradients. Only the optimiser remains for the program.
#pragma once

#include "api/examples/training/parameter.hpp"
#include "api/examples/training/program.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <muster/units.h>

namespace training {

// Names are those of units.h, and outlive the call.
struct UnitsOptions {
  const char* name = "model";          // of the set
  const char* shard = nullptr;         // dim of the mesh that shards rows; null: this rank has all of them
  const char* shard_of_cut = nullptr;  // of the units that have a cut parameter
  const char* replicate = nullptr;     // over which gradients are reduced as well
  const char* cut = nullptr;           // that cuts parameters as they say
  muster_split cut_split = MUSTER_SPLIT_CEIL;  // how it does
  double divisor = 0.0;                        // of the sum of gradients; 0: the ranks that it is over
  bool alone = false;                          // no other rank makes such a set
  bool share = false;                          // ranks of a node have one whole copy between them
  std::uint64_t budget = 0;                    // bytes of whole parameters; 0: what prefetch needs
  std::uint32_t prefetch = 1;                  // how many units ahead parameters are gathered
  std::int32_t reshard = MUSTER_RESHARD_DEFAULT;
  muster_dtype whole_dtype = MUSTER_F32;
  std::uint32_t first_flags = 0;  // MUSTER_UNIT_*, of the first unit
};

// Owns    the set of units, and the moments of AdamW.
// Thread  one.
// Bound   the budget of the options, for whole parameters.
// Fails   with RuntimeError.
class Units {
 public:
  // `parameters`: by unit; vectors come last in each.
  Units(Runtime& runtime, std::vector<std::vector<Parameter>> parameters, const UnitsOptions& options);

  // Writes the initial weights: functions of (seed, name, position in the whole parameter).
  void initialise(std::uint64_t seed);

  // ---- a step ----------------------------------------------------------------------------------
  // Weights may be read after `after`. unchanged: they are those of the step before.
  void begin_step(muster_point after, bool unchanged = false);
  muster_point begin_forward(std::size_t unit);
  void end_forward(std::size_t unit, muster_point after);
  std::array<muster_point, 2> begin_backward(std::size_t unit);
  void end_backward(std::size_t unit, muster_point after);
  std::array<muster_point, 2> end_step(muster_point after);

  // ---- views, from the first begin_step() on ---------------------------------------------------
  // Parameters [first, first + count), which lie one below the other, as one matrix; or a vector.
  muster_tensor weight(std::size_t unit, std::size_t first, std::size_t count = 1) const;
  muster_tensor gradient(std::size_t unit, std::size_t first, std::size_t count = 1) const;  // F32
  std::int64_t first_row(std::size_t unit,
                         std::size_t parameter) const;  // of the whole one that this rank has

  // ---- after a step ----------------------------------------------------------------------------
  // F64[1] becomes the sum of the squares of all gradients. Returns the point at which it is there.
  muster_point square_sum(const muster_tensor& sum);
  // Recorded: AdamW on this rank's shards.
  void update(Program& program, const muster_tensor& state, double learning_rate);

  // ---- for reading from outside ----------------------------------------------------------------
  std::size_t count() const { return parameters_.size(); }
  const std::vector<Parameter>& parameters(std::size_t unit) const { return parameters_[unit]; }
  muster_units_info info() const;
  // Bytes of whole parameters that this rank holds at once. Parameters that are not sharded are always whole.
  std::int64_t peak_whole_bytes() const;
  // Calls body(element of the shard, row, column) for every element of a parameter that this rank has.
  template<class Body>
  void each(std::size_t unit, std::size_t parameter, std::int32_t which, Body body) const;
  std::vector<muster_box> boxes(std::size_t unit, std::size_t parameter, std::int32_t which) const;

  // ---- for checkpoints -------------------------------------------------------------------------
  // This rank's parts of a parameter, and of its two moments.
  std::array<muster_tensor, 3> saved(std::size_t unit, std::size_t parameter) const;
  muster_layout* layout(std::size_t unit, std::size_t parameter) const;  // the caller's

 private:
  struct Destroy {
    void operator()(muster_units* units) const { muster_units_destroy(units); }
  };
  struct Moments {
    Buffer first, second;
  };
  void add(const std::vector<Parameter>& parameters, const UnitsOptions& options);
  muster_tensor view(std::size_t unit, std::size_t parameter, std::int32_t which) const;
  muster_tensor stacked(std::size_t unit, std::size_t first, std::size_t count, std::int32_t which) const;
  // The shards of the parameters [first, last), as few vectors as they lie in.
  std::vector<muster_tensor> shards(std::size_t unit, std::size_t first, std::size_t last,
                                    std::int32_t which) const;
  std::size_t matrices(std::size_t unit) const;  // vectors come last

  Runtime& runtime_;
  std::vector<std::vector<Parameter>> parameters_;
  std::unique_ptr<muster_units, Destroy> units_;
  std::vector<Moments> moments_;
};

template<class Body>
void Units::each(std::size_t unit, std::size_t parameter, std::int32_t which, Body body) const {
  auto* element = static_cast<float*>(runtime_.address(view(unit, parameter, which)));
  for (const muster_box& box : boxes(unit, parameter, MUSTER_UNIT_SHARD))
    for (std::int64_t row = 0; row < box.length[0]; ++row)
      for (std::int64_t column = 0; column < (parameters_[unit][parameter].is_vector() ? 1 : box.length[1]);
           ++column)
        body(*element++, box.offset[0] + row, box.offset[1] + column);
}

}  // namespace training
