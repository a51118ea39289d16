// Where the shards of a parameter lie in its whole tensor: what a gather writes and a reduce-scatter reads
// (decision D25).
#pragma once

#include "api/base/layout/layout.hpp"
#include "api/base/result.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace muster::shard {

// A parameter whose layout has one axis along which units are sharded. Its whole tensor is what a rank has if
// that axis is replicated: with tensor parallelism, the rank's tp part.
//
// Owns    both layouts and the runs.
// Thread  a value; any.
// Bound   kRunsMax runs.
// Fails   make() with kBadArgument and kNoResource.
class ShardedParameter {
 public:
  // Elements [offset, offset + count) of a rank's whole tensor.
  struct Run {
    std::int64_t offset = 0;
    std::int64_t count = 0;
    friend bool operator==(const Run&, const Run&) = default;
  };

  static constexpr std::size_t kRunsMax = 4096;  // of one parameter's shards together

  // rank: this rank's index in the layout. Errors: kBadArgument (the axis does not shard; a dim other than 0
  // that the ranks do not divide; axes that cut a dim in another order), kNoResource (runs).
  static Result<ShardedParameter> make(Layout layout, std::size_t axis, std::int64_t rank);
  // Not sharded by the unit: its shard is the whole tensor.
  static ShardedParameter make_whole(Layout layout, std::int64_t rank);

  const Layout& layout() const { return layout_; }
  std::int64_t rank() const { return rank_; }
  Index shard_shape() const { return layout_.local_shape(rank_); }
  Index whole_shape() const { return whole_.local_shape(rank_); }
  const Layout& whole() const { return whole_; }
  std::int64_t shard_elements() const { return layout_.local_elements(rank_); }
  std::int64_t whole_elements() const { return whole_.local_elements(rank_); }
  // By member of the axis. The runs of a member are its shard from the first element to the last.
  const std::vector<std::vector<Run>>& runs() const { return runs_; }
  // Another axis shards it too: tensor parallelism.
  bool has_other_shards() const;

 private:
  ShardedParameter(Layout layout, Layout whole, std::int64_t rank)
      : layout_(std::move(layout)), whole_(std::move(whole)), rank_(rank) {}

  Layout layout_;
  Layout whole_;
  std::int64_t rank_;
  std::vector<std::vector<Run>> runs_;
  std::size_t axis_ = Layout::kAxesMax;
};

}  // namespace muster::shard
