#include "tests/bench/operation.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace muster::bench {
namespace {

struct Entry {
  Operation operation;
  const char* name;
};
constexpr std::array kEntries = {
    Entry{Operation::kBarrier, "barrier"},
    Entry{Operation::kAllReduce, "all_reduce"},
    Entry{Operation::kAllGather, "all_gather"},
    Entry{Operation::kAllGatherShared, "all_gather_shared"},
    Entry{Operation::kReduceScatter, "reduce_scatter"},
    Entry{Operation::kBroadcast, "broadcast"},
    Entry{Operation::kReduce, "reduce"},
    Entry{Operation::kGather, "gather"},
    Entry{Operation::kScatter, "scatter"},
    Entry{Operation::kAllToAll, "all_to_all"},
    Entry{Operation::kSendRecv, "send_recv"},
    Entry{Operation::kHalo, "halo"},
    Entry{Operation::kAllGatherV, "all_gather_v"},
    Entry{Operation::kReduceScatterV, "reduce_scatter_v"},
    Entry{Operation::kGatherV, "gather_v"},
    Entry{Operation::kScatterV, "scatter_v"},
    Entry{Operation::kAllToAllV, "all_to_all_v"},
};

constexpr std::array<std::size_t, 2> kWeights = {1, 3};  // of the blocks of the uneven operations, in turn

using Blocks = std::vector<std::size_t>;

std::size_t sum_of(const Blocks& blocks) {
  return std::accumulate(blocks.begin(), blocks.end(), std::size_t{0});
}

Blocks even_blocks(std::size_t elements, std::size_t ranks) {
  return Blocks(ranks, std::max<std::size_t>(1, elements / ranks));
}

// One element each, and what is left in the proportion of the weights.
Blocks uneven_blocks(std::size_t elements, std::size_t ranks) {
  const std::size_t left = std::max(elements, ranks) - ranks;
  std::size_t all = 0;
  for (std::size_t i = 0; i < ranks; ++i) all += kWeights[i % kWeights.size()];
  Blocks blocks(ranks, 1);
  std::size_t weight = 0;
  for (std::size_t i = 0; i < ranks; ++i) {
    const std::size_t begin = left * weight / all;
    weight += kWeights[i % kWeights.size()];
    blocks[i] += left * weight / all - begin;
  }
  return blocks;
}

// Rank i sends block (i + j) of the list to rank j. All ranks send and receive the same amount. The two
// blocks that a pair of ranks exchange lie at different offsets.
Blocks turned(const Blocks& blocks, std::size_t rank) {
  Blocks row(blocks.size());
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = blocks[(rank + j) % blocks.size()];
  return row;
}

void take_source(Shape& shape, Blocks blocks) {
  shape.source_blocks = std::move(blocks);
  shape.source = sum_of(shape.source_blocks);
}
void take_target(Shape& shape, Blocks blocks) {
  shape.target_blocks = std::move(blocks);
  shape.target = sum_of(shape.target_blocks);
}

}  // namespace

std::span<const Operation> all_operations() {
  static const std::vector<Operation> all = [] {
    std::vector<Operation> list;
    for (const Entry& entry : kEntries) list.push_back(entry.operation);
    return list;
  }();
  return all;
}

const char* name_of(Operation operation) {
  const auto* found = std::find_if(kEntries.begin(), kEntries.end(),
                                   [&](const Entry& entry) { return entry.operation == operation; });
  return found->name;
}

std::optional<Operation> operation_named(std::string_view name) {
  const auto* found =
      std::find_if(kEntries.begin(), kEntries.end(), [&](const Entry& entry) { return name == entry.name; });
  if (found == kEntries.end()) return std::nullopt;
  return found->operation;
}

Shape shape_of(Operation operation, std::size_t bytes, int rank, int ranks) {
  Shape shape{operation, rank, ranks, bytes / sizeof(float), 0, 0, {}, {}};
  const auto own = static_cast<std::size_t>(rank);
  const Blocks even = even_blocks(shape.total, static_cast<std::size_t>(ranks));
  const Blocks uneven = uneven_blocks(shape.total, static_cast<std::size_t>(ranks));
  const bool is_root = rank == kRoot;
  switch (operation) {
    case Operation::kBarrier:
      return {operation, rank, ranks, 0, 0, 0, {}, {}};
    case Operation::kAllReduce:
      shape.source = shape.target = shape.total;
      return shape;
    case Operation::kBroadcast:
      (is_root ? shape.source : shape.target) = shape.total;
      return shape;
    case Operation::kReduce:
      shape.source = shape.total;
      shape.target = is_root ? shape.total : 0;
      return shape;
    case Operation::kSendRecv:
      shape.source = shape.target = partner_of(rank, ranks) < 0 ? 0 : shape.total;
      return shape;
    case Operation::kHalo:
      take_source(shape, even_blocks(shape.total, 2));
      take_target(shape, shape.source_blocks);
      shape.total = shape.source;
      return shape;
    case Operation::kAllGather:
    case Operation::kAllGatherShared:
    case Operation::kAllGatherV:
      take_target(shape, operation == Operation::kAllGatherV ? uneven : even);
      shape.source = shape.target_blocks[own];
      shape.total = shape.target;
      return shape;
    case Operation::kReduceScatter:
    case Operation::kReduceScatterV:
      take_source(shape, operation == Operation::kReduceScatter ? even : uneven);
      shape.target = shape.source_blocks[own];
      shape.total = shape.source;
      return shape;
    case Operation::kGather:
    case Operation::kGatherV: {
      const Blocks& blocks = operation == Operation::kGather ? even : uneven;
      if (is_root) take_target(shape, blocks);
      shape.source = blocks[own];
      shape.total = sum_of(blocks);
      return shape;
    }
    case Operation::kScatter:
    case Operation::kScatterV: {
      const Blocks& blocks = operation == Operation::kScatter ? even : uneven;
      if (is_root) take_source(shape, blocks);
      shape.target = blocks[own];
      shape.total = sum_of(blocks);
      return shape;
    }
    case Operation::kAllToAll:
    case Operation::kAllToAllV:
      take_source(shape, operation == Operation::kAllToAll ? even : turned(uneven, own));
      take_target(shape, shape.source_blocks);
      shape.total = shape.source;
      return shape;
  }
  return shape;
}

std::vector<std::size_t> offsets_of(std::span<const std::size_t> blocks) {
  std::vector<std::size_t> offsets;
  std::size_t offset = 0;
  for (const std::size_t block : blocks) {
    offsets.push_back(offset);
    offset += block;
  }
  return offsets;
}

int partner_of(int rank, int ranks) {
  const int partner = rank ^ 1;
  return partner < ranks ? partner : -1;
}

std::vector<Expected> expected_of(const Shape& shape) {
  if (shape.target == 0) return {};
  std::vector<Expected> parts;
  const auto own = static_cast<std::size_t>(shape.rank);
  const std::vector<std::size_t> begins = offsets_of(shape.target_blocks);
  // Where this rank's block begins in the source of `giver`.
  const auto base_at = [&](int giver) {
    return offsets_of(shape_of(shape.operation, shape.bytes(), giver, shape.ranks).source_blocks)[own];
  };
  switch (shape.operation) {
    case Operation::kBarrier:
      break;
    case Operation::kAllReduce:
    case Operation::kReduce:
      parts.push_back({0, shape.target, Expected::kSum, 0});
      break;
    case Operation::kBroadcast:
      parts.push_back({0, shape.target, kRoot, 0});
      break;
    case Operation::kReduceScatter:
    case Operation::kReduceScatterV:
      parts.push_back({0, shape.target, Expected::kSum, base_at(shape.rank)});
      break;
    case Operation::kScatter:
    case Operation::kScatterV:
      parts.push_back({0, shape.target, kRoot, base_at(kRoot)});
      break;
    case Operation::kSendRecv:
      parts.push_back({0, shape.target, partner_of(shape.rank, shape.ranks), 0});
      break;
    case Operation::kHalo:  // the left neighbour's right face, then the right neighbour's left one
      parts.push_back(
          {0, begins[1], (shape.rank + shape.ranks - 1) % shape.ranks, shape.source_blocks.front()});
      parts.push_back({begins[1], shape.target_blocks[1], (shape.rank + 1) % shape.ranks, 0});
      break;
    case Operation::kAllGather:
    case Operation::kAllGatherShared:
    case Operation::kAllGatherV:
    case Operation::kGather:
    case Operation::kGatherV:
      for (std::size_t giver = 0; giver < begins.size(); ++giver)
        parts.push_back({begins[giver], shape.target_blocks[giver], static_cast<int>(giver), 0});
      break;
    case Operation::kAllToAll:
    case Operation::kAllToAllV:
      for (std::size_t giver = 0; giver < begins.size(); ++giver)
        parts.push_back({begins[giver], shape.target_blocks[giver], static_cast<int>(giver),
                         base_at(static_cast<int>(giver))});
      break;
  }
  return parts;
}

bool all_wait_for_all(Operation operation) {
  switch (operation) {
    case Operation::kBroadcast:
    case Operation::kReduce:
    case Operation::kGather:
    case Operation::kGatherV:
    case Operation::kScatter:
    case Operation::kScatterV:
    case Operation::kSendRecv:
      return false;
    default:
      return true;
  }
}

int times_in_a_run(Operation operation) {
  return operation == Operation::kSendRecv ? 2 : 1;
}

std::size_t bytes_moved(Operation operation, std::size_t bytes, int ranks) {
  if (operation == Operation::kAllGatherShared) return 0;
  std::size_t elements = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Shape shape = shape_of(operation, bytes, rank, ranks);
    elements += shape.source + shape.target;
  }
  return elements * sizeof(float) / static_cast<std::size_t>(times_in_a_run(operation));
}

}  // namespace muster::bench
