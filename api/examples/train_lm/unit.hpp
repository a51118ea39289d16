// Unit: the parameters that are gathered, used and reduced together: the embedding, one block, or the head.
//
//   master shard (f32) --all-gather--> whole parameters --kernels--> whole gradients
//        ^                                                                |
//        +----- AdamW <-- gradient shard <--all-reduce-- <--reduce-scatter-+
//
// The blocks of both collectives are pieces of the whole tensors, so nothing is packed or padded. If
// parameters are not sharded, both ends of each row are one buffer, and nothing moves.
#pragma once

#include "api/examples/train_lm/workspace.hpp"

#include <vector>

namespace train_lm {

// Owns    this rank's shard: master weights, gradient, moments of AdamW; with bf16 also the rounded weights.
// Thread  one.
// Bound   its layout.
// Fails   with RuntimeError.
class Unit {
 public:
  Unit(Runtime& runtime, const Layout& layout, std::vector<Parameter> parameters, std::size_t index,
       Workspace& workspace, muster_dtype dtype);

  // Writes the initial weights: functions of (seed, name, position in the whole parameter).
  void initialise(std::uint64_t seed);

  // ---- views for kernels, valid from unshard() until another unit takes the place
  // Parameters [first, first + count), which lie one below the other, as one matrix. A norm's weight is a
  // vector.
  muster_tensor weight(std::size_t first, std::size_t count = 1) const;
  muster_tensor gradient(std::size_t first, std::size_t count = 1) const;  // f32
  std::int64_t first_row(std::size_t parameter) const {
    return layout_.places[parameter].gathered.rows.begin;
  }

  // ---- recorded into a step --------------------------------------------------------------------
  void prefetch(Program& program);         // begins to gather the parameters, unless they are there
  void unshard(Program& program);          // kernels recorded after it find the parameters whole
  void begin_gradients(Program& program);  // kernels recorded after it may write whole gradients
  void reduce(Program& program);           // averages the complete gradients over dp
  void join_reduced(Program& program) { program.join(reduced_); }
  // Adds the squares of the gradient's elements that no other rank of the weight group counts.
  void square_sum(Program& program, const muster_tensor& sum, bool first);
  void update(Program& program, const muster_tensor& state, double learning_rate);
  void round_weights(Program& program);  // bf16: from the master weights; update() does it too

  // ---- for reading from outside ----------------------------------------------------------------
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const UnitLayout& layout() const { return layout_; }
  std::span<const float> gradient_shard() const { return gradient_.as<const float>(); }

 private:
  muster_tensor rows_of(const Buffer& buffer, muster_dtype dtype, std::size_t first, std::size_t count) const;
  muster_tensor shard(const Buffer& buffer, muster_dtype dtype) const;
  const Buffer& rounded() const { return dtype_ == MUSTER_F32 ? master_ : low_; }
  bool sharded() const { return layout_.shards > 1; }

  Axis dp_replicate_;
  Axis dp_shard_;
  Axis tp_;
  std::vector<Parameter> parameters_;
  UnitLayout layout_;
  std::size_t index_;
  Workspace& workspace_;
  muster_dtype dtype_;
  Buffer master_, gradient_, first_moment_, second_moment_, low_;
  Mark reduced_;
};

}  // namespace train_lm
