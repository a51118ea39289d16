#include "kernels/attention/shape.hpp"
#include "kernels/attention/tile.hpp"
#include "kernels/math/exponential.hpp"
#include "kernels/math/sum.hpp"
#include "kernels/wide.hpp"

#include <limits>
#include <utility>

namespace muster::kernels::attention {
namespace {

struct BackwardScratch;

// The extent of a part.
struct GradientExtent {
  enum Gradients : std::uint8_t { kAll, kQueries, kKeys };
  Gradients gradients;  // that it writes
  std::int64_t batch;
  std::int64_t key_head;
  Range heads;  // of the queries; all of that key head
  Range queries;
  Range keys;
};

struct Problem {
  const Args& args;
  AttentionShape shape;
  float scale;
  std::int64_t width;  // padded number of features

  const Tensor& dout() const { return args.tensors[0]; }
  const Tensor& q() const { return args.tensors[1]; }
  const Tensor& key() const { return args.tensors[2]; }
  const Tensor& value() const { return args.tensors[3]; }
  const Tensor& out() const { return args.tensors[4]; }
  const Tensor& dq() const { return args.tensors[6]; }
  const Tensor& dkey() const { return args.tensors[7]; }
  const Tensor& dvalue() const { return args.tensors[8]; }
  float lse(std::int64_t batch, std::int64_t head, std::int64_t query) const {
    const Tensor& t = args.tensors[5];
    return elements<float>(t)[batch * t.stride[0] + head * t.stride[1] + query * t.stride[2]];
  }
};

struct BackwardWorkspace {
  float* keys_turned;    // [features, kTileKeys]
  float* values_turned;  // [features, kTileKeys]
  float* keys;           // [kTileKeys, width]
  float* queries;        // [kTileQueries, width]
  float* douts;          // [kTileQueries, width]
  float* chances;        // [kTileQueries, kTileKeys]: probabilities
  float* slopes;         // [kTileQueries, kTileKeys]: gradients of the probabilities, then of the scores
  float* rows;           // [2, width]
  float* dkeys;          // [kTileKeys, width]
  float* dvalues;        // [kTileKeys, width]
  float* dqueries;       // [heads, queries, width] of the part

  BackwardWorkspace(const Problem& p, const GradientExtent& extent) {
    const std::int64_t dq_rows =
        extent.gradients == GradientExtent::kKeys
            ? 0
            : (extent.heads.end - extent.heads.begin) * (extent.queries.end - extent.queries.begin);
    float* at =
        scratch<BackwardScratch>(2 * p.shape.features * kTileKeys + 3 * kTileKeys * p.width +
                                 2 * kTileQueries * (p.width + kTileKeys) + 2 * p.width + dq_rows * p.width);
    const auto take = [&at](std::int64_t count) { return std::exchange(at, at + count); };
    keys_turned = take(p.shape.features * kTileKeys);
    values_turned = take(p.shape.features * kTileKeys);
    keys = take(kTileKeys * p.width);
    queries = take(kTileQueries * p.width);
    douts = take(kTileQueries * p.width);
    chances = take(kTileQueries * kTileKeys);
    slopes = take(kTileQueries * kTileKeys);
    rows = take(2 * p.width);
    dkeys = take(kTileKeys * p.width);
    dvalues = take(kTileKeys * p.width);
    dqueries = take(dq_rows * p.width);
    std::fill(dqueries, dqueries + dq_rows * p.width, 0.0f);
  }
};

// Turns the scores S of one query into probabilities P = e^(scale·S - lse), and the gradients dP into those
// of the scores, dS = scale·P·(dP - Σ dout·out). Writes zeros from `visible` to `columns`.
void differentiate(float* chance, float* slope, std::int64_t visible, std::int64_t columns, float scale,
                   float lse, float level) {
  if (lse == -std::numeric_limits<float>::infinity()) visible = 0;  // no key at all, here or on another rank
#pragma omp simd
  for (std::int64_t j = 0; j < visible; ++j) {
    const float p = math::exponential(chance[j] * scale - lse);
    chance[j] = p;
    slope[j] = scale * (p * (slope[j] - level));
  }
  std::fill(chance + visible, chance + columns, 0.0f);
  std::fill(slope + visible, slope + columns, 0.0f);
}

// One tile of queries against one tile of keys; dq points to the tile's first row of dqueries.
void pair(const Problem& p, const BackwardWorkspace& w, const GradientExtent& extent, std::int64_t head,
          Range tile, Range keys, Factor key_rows, float* dq) {
  const std::int64_t seen = p.shape.visible(tile.end - 1, keys);
  if (seen == 0) return;
  const std::int64_t rows = tile.end - tile.begin;
  const std::int64_t columns = padded(seen);
  const HeadView out(p.out(), extent.batch, head);
  const HeadView dout(p.dout(), extent.batch, head);
  const Factor queries = HeadView(p.q(), extent.batch, head).block(tile, w.queries);
  const Factor douts = dout.block(tile, w.douts);
  multiply(queries, {w.keys_turned, kTileKeys}, w.chances, kTileKeys, rows, p.shape.features, columns,
           Onto::kNothing);
  multiply(douts, {w.values_turned, kTileKeys}, w.slopes, kTileKeys, rows, p.shape.features, columns,
           Onto::kNothing);
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* o = read(out.row(tile.begin + i), w.rows);
    const float* d = douts.data + i * douts.row_step;
    const double level = math::sum_of(p.shape.features, [=](std::int64_t e) { return o[e] * d[e]; });
    differentiate(w.chances + i * kTileKeys, w.slopes + i * kTileKeys, p.shape.visible(tile.begin + i, keys),
                  columns, p.scale, p.lse(extent.batch, head, tile.begin + i), static_cast<float>(level));
  }
  if (extent.gradients != GradientExtent::kQueries) {
    multiply({w.chances, 1, kTileKeys}, douts, w.dvalues, p.width, seen, rows, p.width, Onto::kResult);
    multiply({w.slopes, 1, kTileKeys}, queries, w.dkeys, p.width, seen, rows, p.width, Onto::kResult);
  }
  if (extent.gradients != GradientExtent::kKeys)
    multiply({w.slopes, kTileKeys, 1}, key_rows, dq, p.width, rows, seen, p.width, Onto::kResult);
}

void write_rows(const HeadView& to, Range range, const float* from, std::int64_t width) {
  for (std::int64_t i = range.begin; i < range.end; ++i)
    write(to.row(i), Write::kReplace, from + (i - range.begin) * width);
}

void differentiate_extent(const Problem& p, const GradientExtent& extent) {
  const BackwardWorkspace w(p, extent);
  const std::int64_t key_head = extent.key_head;
  const std::int64_t queries = extent.queries.end - extent.queries.begin;
  const HeadView key(p.key(), extent.batch, key_head);
  for (std::int64_t k = extent.keys.begin; k < extent.keys.end; k += kTileKeys) {
    const Range keys{k, std::min(extent.keys.end, k + kTileKeys)};
    key.transpose(keys, w.keys_turned, kTileKeys, w.rows);
    HeadView(p.value(), extent.batch, key_head).transpose(keys, w.values_turned, kTileKeys, w.rows);
    const Factor key_rows = key.block(keys, w.keys);
    std::fill(w.dkeys, w.dkeys + kTileKeys * p.width, 0.0f);
    std::fill(w.dvalues, w.dvalues + kTileKeys * p.width, 0.0f);
    for (std::int64_t head = extent.heads.begin; head < extent.heads.end; ++head) {
      for (std::int64_t first = extent.queries.begin; first < extent.queries.end; first += kTileQueries) {
        const Range tile{first, std::min(extent.queries.end, first + kTileQueries)};
        const std::int64_t row = (head - extent.heads.begin) * queries + first - extent.queries.begin;
        pair(p, w, extent, head, tile, keys, key_rows, w.dqueries + row * p.width);
      }
    }
    if (extent.gradients != GradientExtent::kQueries) {
      write_rows({p.dkey(), extent.batch, key_head}, keys, w.dkeys, p.width);
      write_rows({p.dvalue(), extent.batch, key_head}, keys, w.dvalues, p.width);
    }
  }
  if (extent.gradients == GradientExtent::kKeys) return;
  for (std::int64_t head = extent.heads.begin; head < extent.heads.end; ++head)
    write_rows({p.dq(), extent.batch, head}, extent.queries,
               w.dqueries + (head - extent.heads.begin) * queries * p.width, p.width);
}

// Parts of a long backward: ranges of queries of each head, then ranges of keys of each key head.
std::uint32_t query_ranges(const AttentionShape& shape) {
  return parts_of(shape.queries, shape.queries_per_part());
}
std::uint32_t key_ranges(const AttentionShape& shape) {
  return parts_of(shape.keys, shape.keys_per_part());
}

GradientExtent extent_of(const AttentionShape& shape, std::uint32_t part) {
  const Range all_queries{0, shape.queries};
  const Range all_keys{0, shape.keys};
  const auto group_of = [&shape](std::int64_t key_head) {
    return Range{key_head * shape.group(), (key_head + 1) * shape.group()};
  };
  if (shape.backward_is_short()) {
    const std::int64_t key_head = part % shape.key_heads;
    return {
        GradientExtent::kAll, part / shape.key_heads, key_head, group_of(key_head), all_queries, all_keys};
  }
  const std::uint32_t per_head = query_ranges(shape);
  const auto query_parts = static_cast<std::uint32_t>(shape.batch * shape.heads) * per_head;
  if (part < query_parts) {
    const std::int64_t head = part / per_head % shape.heads;
    return {GradientExtent::kQueries,
            part / per_head / shape.heads,
            shape.key_head_of(head),
            {head, head + 1},
            range_of(shape.queries, shape.queries_per_part(), part % per_head),
            all_keys};
  }
  const std::uint32_t rest = part - query_parts;
  const std::uint32_t per_key_head = key_ranges(shape);
  const std::int64_t key_head = rest / per_key_head % shape.key_heads;
  return {GradientExtent::kKeys,
          rest / per_key_head / shape.key_heads,
          key_head,
          group_of(key_head),
          all_queries,
          range_of(shape.keys, shape.keys_per_part(), rest % per_key_head)};
}

}  // namespace

std::uint32_t backward_parts(const Args& args) {
  const AttentionShape shape = AttentionShape::of(args, 1);
  const auto key_heads = static_cast<std::uint32_t>(shape.batch * shape.key_heads);
  if (shape.backward_is_short()) return key_heads;
  return static_cast<std::uint32_t>(shape.batch * shape.heads) * query_ranges(shape) +
         key_heads * key_ranges(shape);
}

void backward_part(const Args& args, std::uint32_t part) {
  const AttentionShape shape = AttentionShape::of(args, 1);
  const Problem problem{args, shape, static_cast<float>(args.reals[0]), padded(shape.features)};
  const GradientExtent extent = extent_of(shape, part);
  wide([&] { differentiate_extent(problem, extent); });
}

}  // namespace muster::kernels::attention
