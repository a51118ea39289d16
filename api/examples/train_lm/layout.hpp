// Layout: how the ranks of a mesh share the work and the parameters. Pure arithmetic; no call of the runtime.
//
// A parameter is a matrix (a norm's weight is one column). Tensor parallelism cuts it first, by rows or by
// columns. The part of a rank is then cut by rows over dp_shard. Both cuts take ceil-chunks: every part has
// ceil(total / parts) rows, except that the last parts may have fewer or none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <muster/muster.h>

namespace train_lm {

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

// One mesh dim as a rank sees it.
struct Axis {
  std::int64_t size = 1;
  std::int64_t coordinate = 0;
  muster_group group = MUSTER_GROUP_SELF;
};

// The whole mesh as a rank sees it. A default Layout is one rank with whole tensors and no collective at all.
struct Layout {
  Axis dp_replicate;
  Axis dp_shard;
  Axis tp;
  muster_group dp = MUSTER_GROUP_SELF;      // dp_replicate x dp_shard: ranks that share a batch
  muster_group weight = MUSTER_GROUP_SELF;  // dp_shard x tp: ranks that share the parameters

  std::int64_t dp_size() const { return dp_replicate.size * dp_shard.size; }
  std::int64_t dp_index() const { return dp_replicate.coordinate * dp_shard.size + dp_shard.coordinate; }
  // Rows of a global batch that this rank computes; all tp peers get the same. dp_size() divides `batch`.
  Chunk batch_rows(std::int64_t batch) const { return ceil_chunk(batch, dp_size(), dp_index()); }
};

// How tensor parallelism cuts a parameter. Rows of a weight [out, in] are output features, so a
// column-parallel layer is kRows here, and a row-parallel one kColumns.
enum class Cut : std::uint8_t { kRows, kColumns, kNone };

struct Parameter {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Cut cut = Cut::kNone;
  double deviation = 0.0;  // of its initial normal distribution; 0: it starts as ones

  // Norms start as ones, are not cut by tp, do not decay.
  bool is_norm() const { return deviation == 0.0; }
};

// A rectangle of a parameter.
struct Box {
  Chunk rows;
  Chunk columns;
  std::int64_t elements() const { return rows.count * columns.count; }
  friend bool operator==(const Box&, const Box&) = default;
};
// The part of a parameter that a tp rank has when its unit is gathered.
Box gathered_box(const Parameter& parameter, const Axis& tp);
// The part of a parameter that a rank owns: its rows of the gathered box, without padding.
Box owned_box(const Parameter& parameter, const Layout& layout);

// Where one parameter of a unit lies, in elements.
struct Place {
  Box gathered;
  Box owned;
  std::int64_t shard_offset = 0;     // in this rank's shard of the unit
  std::int64_t gathered_offset = 0;  // in the unit's gathered parameters
};

// The parameters that are gathered and reduced together. Gathered, they lie whole, one after the other. A
// shard has a rank's rows of each, one after the other.
struct UnitLayout {
  UnitLayout(const std::vector<Parameter>& parameters, const Layout& layout);

  std::vector<Place> places;  // as the parameters
  std::int64_t shards = 1;
  std::int64_t shard_elements = 0;   // of this rank's shard
  std::int64_t matrix_elements = 0;  // of it before the first norm: norms come last in a unit
  std::int64_t gathered_elements = 0;

  // Where the rows of each shard lie in the gathered parameters: a piece for each parameter.
  std::vector<std::uint32_t> piece_counts;  // by shard
  std::vector<muster_piece> pieces;
  muster_blocks blocks() const { return {nullptr, nullptr, piece_counts.data(), pieces.data()}; }
};

}  // namespace train_lm
