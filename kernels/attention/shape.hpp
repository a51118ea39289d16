// Sizes and mask of one attention problem, and the cut into parts, for forward and backward alike.
#pragma once

#include "api/base/assert.hpp"
#include "kernels/element.hpp"

#include <algorithm>
#include <cstdint>

namespace muster::kernels::attention {

// A tile of scores: 24 KiB, and whole strips of a product.
inline constexpr std::int64_t kTileQueries = 48;
inline constexpr std::int64_t kTileKeys = 128;
// A part works in up to 4 KiB for each feature.
inline constexpr std::int64_t kFeaturesMax = 4096;

struct AttentionShape {
  std::int64_t batch, queries, keys, heads, key_heads, features;
  bool causal;
  std::int64_t q_position, k_position;

  std::int64_t group() const { return key_heads == 0 ? 0 : heads / key_heads; }
  // The key head of a query head. Heads without keys are refused before a part runs.
  std::int64_t key_head_of(std::int64_t head) const {
    MUSTER_ASSERT(group() > 0);
    return head / group();
  }

  // `q`: its place among the operands; the keys come next. Without queries the number of heads is 0, so that
  // no loop counts empty heads one by one.
  static AttentionShape of(const Args& args, std::size_t q) {
    const auto& queries = args.tensors[q].size;
    const auto& keys = args.tensors[q + 1].size;
    const std::int64_t heads = queries[1] == 0 ? 0 : queries[2];
    return {queries[0], queries[1],        keys[1],      heads,       keys[2],
            queries[3], args.ints[0] != 0, args.ints[1], args.ints[2]};
  }

  // How many keys query `q` sees of `of`, from the first one on.
  std::int64_t visible(std::int64_t q, Range of) const {
    const std::int64_t all = of.end - of.begin;
    return causal ? std::clamp<std::int64_t>(q_position + q - (k_position + of.begin) + 1, 0, all) : all;
  }

  // A multiple of the tile for which a part has about 8 million operations: 4 for each query, key and
  // feature.
  std::int64_t queries_per_part() const {
    constexpr std::int64_t kOperations = std::int64_t{1} << 23;
    const std::int64_t per_query = std::max<std::int64_t>(1, 4 * keys * features);
    return std::clamp<std::int64_t>(kOperations / per_query / kTileQueries, 1, 5) * kTileQueries;
  }

  // Keys of a backward's part for dkey and dv, which takes 8 operations for each key, query of the group and
  // feature. Whole strips of a product, at most one tile.
  std::int64_t keys_per_part() const {
    constexpr std::int64_t kOperations = std::int64_t{1} << 26;
    constexpr std::int64_t kStep = 32;
    const std::int64_t per_key = std::max<std::int64_t>(1, 8 * group() * queries * features);
    return std::clamp<std::int64_t>(kOperations / per_key / kStep * kStep, kStep, kTileKeys);
  }

  // Whether the backward of one batch entry and key head is short enough, in time and in memory for dq, to be
  // one part.
  bool backward_is_short() const {
    constexpr std::int64_t kPairsMax = std::int64_t{1} << 22;
    constexpr std::int64_t kGradientsMax = std::int64_t{1} << 20;
    const std::int64_t rows = group() * queries * features;
    return rows <= kGradientsMax && rows * keys <= kPairsMax;
  }
};

void forward_part(const Args& args, std::uint32_t part);
std::uint32_t forward_parts(const Args& args);
void backward_part(const Args& args, std::uint32_t part);
std::uint32_t backward_parts(const Args& args);

}  // namespace muster::kernels::attention
