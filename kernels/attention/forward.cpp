#include "kernels/attention/shape.hpp"
#include "kernels/attention/tile.hpp"
#include "kernels/math/exponential.hpp"
#include "kernels/math/sum.hpp"
#include "kernels/wide.hpp"

#include <cmath>
#include <limits>
#include <utility>

namespace muster::kernels::attention {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct ForwardScratch;

// The memory of one part; `width` is the padded number of features.
struct ForwardWorkspace {
  float* keys;     // [features, kTileKeys], transposed
  float* values;   // [kTileKeys, width]
  float* queries;  // [kTileQueries, width]
  float* scores;   // [kTileQueries, kTileKeys]
  float* row;      // [width]
  float* out;      // [queries of the part, width], not yet divided by the sums
  float* maxima;   // [queries of the part]
  float* sums;     // [queries of the part]

  ForwardWorkspace(std::int64_t queries_of_part, std::int64_t features) {
    const std::int64_t width = padded(features);
    float* at = scratch<ForwardScratch>((features + width) * kTileKeys + kTileQueries * (width + kTileKeys) +
                                        width + queries_of_part * (width + 2));
    const auto take = [&at](std::int64_t count) { return std::exchange(at, at + count); };
    keys = take(features * kTileKeys);
    values = take(kTileKeys * width);
    queries = take(kTileQueries * width);
    scores = take(kTileQueries * kTileKeys);
    row = take(width);
    out = take(queries_of_part * width);
    maxima = take(queries_of_part);
    sums = take(queries_of_part);
  }
};

// Turns a row's first `visible` scores into e^(scale·score - maximum so far), and the others into zeros up to
// `columns`. Scales the sums under the old maximum to the new one (the online softmax of Milakov and
// Gimelshein, 2018).
void absorb(float* score, std::int64_t visible, std::int64_t columns, float scale, float& maximum, float& sum,
            float* out, std::int64_t width) {
  std::fill(score + visible, score + columns, 0.0f);
  if (visible == 0) return;
  float largest = maximum;
#pragma omp simd reduction(max : largest)
  for (std::int64_t j = 0; j < visible; ++j) {
    score[j] *= scale;
    largest = score[j] > largest ? score[j] : largest;
  }
#pragma omp simd
  for (std::int64_t j = 0; j < visible; ++j) score[j] = math::exponential(score[j] - largest);
  const float block = math::sum_block(score, columns);
  if (maximum == kNothing) {
    sum = block;
  } else {
    const float shrink = math::exponential(maximum - largest);
    sum = sum * shrink + block;
    for (std::int64_t e = 0; e < width; ++e) out[e] *= shrink;
  }
  maximum = largest;
}

void attend(const Args& args, std::int64_t batch, std::int64_t head, Range queries) {
  const AttentionShape shape = AttentionShape::of(args, 0);
  const auto scale = static_cast<float>(args.reals[0]);
  const std::int64_t width = padded(shape.features);
  const HeadView q(args.tensors[0], batch, head);
  const HeadView key(args.tensors[1], batch, shape.key_head_of(head));
  const HeadView value(args.tensors[2], batch, shape.key_head_of(head));
  const ForwardWorkspace w(queries.end - queries.begin, shape.features);
  std::fill(w.out, w.out + (queries.end - queries.begin) * width, 0.0f);
  std::fill(w.maxima, w.maxima + (queries.end - queries.begin), kNothing);
  std::fill(w.sums, w.sums + (queries.end - queries.begin), 0.0f);

  for (std::int64_t k = 0; k < shape.keys; k += kTileKeys) {
    const Range keys{k, std::min(shape.keys, k + kTileKeys)};
    if (shape.visible(queries.end - 1, keys) == 0) break;  // nor does any query see later keys
    key.transpose(keys, w.keys, kTileKeys, w.row);
    const Factor values = value.block(keys, w.values);
    for (std::int64_t first = queries.begin; first < queries.end; first += kTileQueries) {
      const Range tile{first, std::min(queries.end, first + kTileQueries)};
      const std::int64_t seen = shape.visible(tile.end - 1, keys);  // by the last query, which sees most
      if (seen == 0) continue;
      const std::int64_t rows = tile.end - tile.begin;
      const std::int64_t columns = (seen + math::kSumLanes - 1) / math::kSumLanes * math::kSumLanes;
      multiply(q.block(tile, w.queries), {w.keys, kTileKeys}, w.scores, kTileKeys, rows, shape.features,
               columns, Onto::kNothing);
      float* out = w.out + (tile.begin - queries.begin) * width;
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t at = tile.begin - queries.begin + i;
        absorb(w.scores + i * kTileKeys, shape.visible(tile.begin + i, keys), columns, scale, w.maxima[at],
               w.sums[at], out + i * width, width);
      }
      multiply({w.scores, kTileKeys, 1}, values, out, width, rows, seen, width, Onto::kResult);
    }
  }

  const HeadView target_head(args.tensors[3], batch, head);
  const Tensor& lse = args.tensors[4];
  for (std::int64_t i = queries.begin; i < queries.end; ++i) {
    const std::int64_t at = i - queries.begin;
    const bool seen = w.maxima[at] != kNothing;
    const float inverse = seen ? 1.0f / w.sums[at] : 0.0f;
    float* out = w.out + at * width;
    for (std::int64_t e = 0; e < shape.features; ++e) out[e] *= inverse;
    write(target_head.row(i), Write::kReplace, out);
    elements<float>(lse)[batch * lse.stride[0] + head * lse.stride[1] + i * lse.stride[2]] =
        seen ? w.maxima[at] + std::log(w.sums[at]) : kNothing;
  }
}

}  // namespace

std::uint32_t forward_parts(const Args& args) {
  const AttentionShape shape = AttentionShape::of(args, 0);
  return static_cast<std::uint32_t>(shape.batch * shape.heads) *
         parts_of(shape.queries, shape.queries_per_part());
}

void forward_part(const Args& args, std::uint32_t part) {
  const AttentionShape shape = AttentionShape::of(args, 0);
  const std::uint32_t ranges = parts_of(shape.queries, shape.queries_per_part());
  const std::int64_t head = part / ranges;
  const Range queries = range_of(shape.queries, shape.queries_per_part(), part % ranges);
  wide([&] { attend(args, head / shape.heads, head % shape.heads, queries); });
}

}  // namespace muster::kernels::attention
