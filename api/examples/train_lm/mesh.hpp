// Mesh: how the ranks of a mesh share the work. Pure arithmetic; no call of the runtime.
//
// A batch is shared by rows over dp_replicate and dp_shard, and each sequence over cp.
#pragma once

#include "api/examples/training/runtime.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace train_lm {

using training::Axis;

constexpr std::int64_t ceil_div(std::int64_t total, std::int64_t parts) {
  return (total + parts - 1) / parts;
}

// Part `index` of `total` things: [begin, begin + count). A part past the end is empty and begins at the end.
struct Chunk {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};
Chunk ceil_chunk(std::int64_t total, std::int64_t parts, std::int64_t index);
// Likewise, but no part has more than one thing more than another: 4 in 3 parts are 2, 1, 1.
Chunk even_chunk(std::int64_t total, std::int64_t parts, std::int64_t index);

// The whole mesh as a rank sees it. A default Mesh is one rank with whole tensors and no collective at all.
struct Mesh {
  Axis dp_replicate;
  Axis dp_shard;
  Axis cp;
  Axis tp;
  muster_group loss = MUSTER_GROUP_SELF;  // dp_replicate x dp_shard x cp: ranks that share the tokens

  std::int64_t size() const { return dp_size() * cp.size * tp.size; }
  std::string text() const;  // "dp_replicate=2,dp_shard=2,cp=1,tp=2"
  std::int64_t dp_size() const { return dp_replicate.size * dp_shard.size; }
  std::int64_t dp_index() const { return dp_replicate.coordinate * dp_shard.size + dp_shard.coordinate; }
  // Rows of a global batch that this rank computes; all cp and tp peers get the same. dp_size() divides
  // `batch`.
  Chunk batch_rows(std::int64_t batch) const { return ceil_chunk(batch, dp_size(), dp_index()); }
  // Positions of each sequence that it computes; cp divides `context`.
  Chunk positions(std::int64_t context) const { return ceil_chunk(context, cp.size, cp.coordinate); }
};

// The mesh with which at most `ranks` ranks go on, if some of a mesh are lost: sizes only. cp and tp stay, as
// long as there are ranks for them; then as many ranks as can be, with dp_shard as it was if that divides
// them. Without tp, dp_shard is as large as can be: each rank has room for a part of the model alone. `suits`
// says which meshes can be at all; that of one rank can.
Mesh smaller_mesh(const Mesh& mesh, std::int64_t ranks, const std::function<bool(const Mesh&)>& suits);

}  // namespace train_lm
