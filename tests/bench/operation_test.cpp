#include "tests/bench/operation.hpp"

#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

namespace muster::bench {
namespace {

using Vector = std::vector<int>;

// The source value of `rank` at `index`. Every value of every rank is unique, so a sum shows its summands.
int given(int rank, std::size_t index) {
  return (rank + 1) * 1'000'000 + static_cast<int>(index);
}

// The operation carried out by its definition, on the vectors of all ranks at once.
std::vector<Vector> carried_out(Operation operation, const std::vector<Shape>& shapes) {
  const std::size_t ranks = shapes.size();
  std::vector<Vector> sources(ranks);
  std::vector<Vector> targets(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < shapes[r].source; ++i) sources[r].push_back(given(static_cast<int>(r), i));
  const auto block = [&](std::size_t rank, std::size_t which) {
    const std::size_t begin = offsets_of(shapes[rank].source_blocks)[which];
    return Vector(
        sources[rank].begin() + static_cast<std::ptrdiff_t>(begin),
        sources[rank].begin() + static_cast<std::ptrdiff_t>(begin + shapes[rank].source_blocks[which]));
  };
  const auto append = [&](std::size_t rank, const Vector& part) {
    targets[rank].insert(targets[rank].end(), part.begin(), part.end());
  };
  Vector sum = sources[0];
  for (std::size_t r = 1; r < ranks; ++r)
    for (std::size_t i = 0; i < std::min(sum.size(), sources[r].size()); ++i) sum[i] += sources[r][i];
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::size_t left = (r + ranks - 1) % ranks;
    const std::size_t right = (r + 1) % ranks;
    switch (operation) {
      case Operation::kBarrier:
        break;
      case Operation::kAllReduce:
        targets[r] = sum;
        break;
      case Operation::kReduce:
        if (r == kRoot) targets[r] = sum;
        break;
      case Operation::kBroadcast:
        if (r != kRoot) targets[r] = sources[kRoot];
        break;
      case Operation::kAllGather:
      case Operation::kAllGatherShared:
      case Operation::kAllGatherV:
        for (const Vector& source : sources) append(r, source);
        break;
      case Operation::kGather:
      case Operation::kGatherV:
        for (const Vector& source : sources)
          if (r == kRoot) append(r, source);
        break;
      case Operation::kScatter:
      case Operation::kScatterV:
        append(r, block(kRoot, r));
        break;
      case Operation::kReduceScatter:
      case Operation::kReduceScatterV: {
        const std::size_t begin = offsets_of(shapes[r].source_blocks)[r];
        targets[r].assign(sum.begin() + static_cast<std::ptrdiff_t>(begin),
                          sum.begin() + static_cast<std::ptrdiff_t>(begin + shapes[r].source_blocks[r]));
        break;
      }
      case Operation::kAllToAll:
      case Operation::kAllToAllV:
        for (std::size_t giver = 0; giver < ranks; ++giver) append(r, block(giver, r));
        break;
      case Operation::kSendRecv:
        if ((r ^ 1) < ranks) targets[r] = sources[r ^ 1];
        break;
      case Operation::kHalo:
        append(r, block(left, 1));
        append(r, block(right, 0));
        break;
    }
  }
  return targets;
}

std::vector<Shape> shapes_of(Operation operation, std::size_t bytes, int ranks) {
  std::vector<Shape> shapes;
  for (int rank = 0; rank < ranks; ++rank) shapes.push_back(shape_of(operation, bytes, rank, ranks));
  return shapes;
}

class EachOperation : public testing::TestWithParam<Operation> {};
INSTANTIATE_TEST_SUITE_P(Bench, EachOperation,
                         testing::ValuesIn(all_operations().begin(), all_operations().end()),
                         [](const auto& which) { return std::string(name_of(which.param)); });

TEST_P(EachOperation, IsFoundByItsName) {
  EXPECT_EQ(operation_named(name_of(GetParam())), GetParam());
}

// Goal:   a result is held against what the operation means, not against what it happens to give.
// Method: carry the operation out by its definition, and ask for each element what was expected there.
TEST_P(EachOperation, ExpectsWhatItsDefinitionGives) {
  for (int ranks = 2; ranks <= 9; ++ranks)
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{100}, std::size_t{4096}}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << bytes << " bytes");
      const std::vector<Shape> shapes = shapes_of(GetParam(), bytes, ranks);
      const std::vector<Vector> results = carried_out(GetParam(), shapes);
      for (const Shape& shape : shapes) {
        Vector want(shape.target, 0);
        for (const Expected& part : expected_of(shape))
          for (std::size_t i = 0; i < part.count; ++i)
            for (int rank = 0; rank < ranks; ++rank)
              if (part.owner == rank || part.owner == Expected::kSum)
                want[part.begin + i] += given(rank, part.base + i);
        EXPECT_EQ(want, results[static_cast<std::size_t>(shape.rank)]) << "rank " << shape.rank;
      }
    }
}

TEST_P(EachOperation, HasTheSameVectorOnAllRanksAndOneElementForEach) {
  for (const int ranks : {2, 3, 8}) {
    const std::vector<Shape> shapes = shapes_of(GetParam(), 8, ranks);
    for (const Shape& shape : shapes) {
      EXPECT_EQ(shape.bytes(), shapes.front().bytes());
      for (const std::size_t block : shape.source_blocks) EXPECT_GE(block, 1u);
      for (const std::size_t block : shape.target_blocks) EXPECT_GE(block, 1u);
    }
  }
}

TEST(Operation, HasAsManyBytesAsWereAskedFor) {
  for (const Operation operation : all_operations()) {
    if (operation == Operation::kBarrier) continue;
    EXPECT_EQ(shape_of(operation, 65536, 1, 4).bytes(), 65536u) << name_of(operation);
  }
}

TEST(Operation, HasUnevenBlocksOnlyWhereItsNameSaysSo) {
  for (const Operation operation : all_operations()) {
    const Shape shape = shape_of(operation, 65536, 0, 4);
    std::vector<std::size_t> blocks = shape.source_blocks;
    blocks.insert(blocks.end(), shape.target_blocks.begin(), shape.target_blocks.end());
    if (blocks.empty()) continue;
    const auto [least, most] = std::minmax_element(blocks.begin(), blocks.end());
    EXPECT_EQ(*least < *most, std::string(name_of(operation)).ends_with("_v")) << name_of(operation);
  }
}

// Bytes of the whole node, per byte of the vector, on four ranks.
TEST(Operation, MovesEverySourceAndEveryResultOnce) {
  const std::map<std::string, std::size_t> times = {
      {"barrier", 0},        {"all_reduce", 8},       {"all_gather", 5}, {"all_gather_shared", 0},
      {"reduce_scatter", 5}, {"broadcast", 4},        {"reduce", 5},     {"gather", 2},
      {"scatter", 2},        {"all_to_all", 8},       {"send_recv", 4},  {"halo", 8},
      {"all_gather_v", 5},   {"reduce_scatter_v", 5}, {"gather_v", 2},   {"scatter_v", 2},
      {"all_to_all_v", 8}};
  for (const Operation operation : all_operations())
    EXPECT_EQ(bytes_moved(operation, 4096, 4), times.at(name_of(operation)) * 4096) << name_of(operation);
}

}  // namespace
}  // namespace muster::bench
