// Operation: a measured collective, as a value. One place defines for each collective the source and the
// target of a rank. From these follow the right result and the number of bytes that must move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace muster::bench {

enum class Operation : std::uint8_t {
  kBarrier,
  kAllReduce,
  kAllGather,
  kAllGatherShared,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kSendRecv,
  kHalo,
  kAllGatherV,
  kReduceScatterV,
  kGatherV,
  kScatterV,
  kAllToAllV
};

constexpr int kRoot = 0;

std::span<const Operation> all_operations();  // in the order of the tables
const char* name_of(Operation operation);
std::optional<Operation> operation_named(std::string_view name);

// One rank's part of an operation on a full vector.
struct Shape {
  Operation operation = Operation::kBarrier;
  int rank = 0;
  int ranks = 1;
  std::size_t total = 0;                   // elements of the full vector
  std::size_t source = 0;                  // elements that this rank gives
  std::size_t target = 0;                  // elements that it gets
  std::vector<std::size_t> source_blocks;  // elements of each block, where the source is cut
  std::vector<std::size_t> target_blocks;

  std::size_t bytes() const { return total * sizeof(float); }
};

// Every rank has at least one element of a vector that is cut: 8 bytes on four ranks become 16. The uneven
// operations alternate short and long blocks, 1 to 3. A halo is half of the vector to each neighbour on a
// ring; an all_gather_shared is of shards that lie where all ranks see them; send_recv goes between ranks 0
// and 1, 2 and 3 and so on, there and back.
Shape shape_of(Operation operation, std::size_t bytes, int rank, int ranks);

std::vector<std::size_t> offsets_of(std::span<const std::size_t> blocks);
int partner_of(int rank, int ranks);  // of send_recv; -1: the last of an odd number has none

// Elements [begin, begin + count) of the target are the owner's source, or the sum of all sources, from
// `base` on.
struct Expected {
  static constexpr int kSum = -1;
  std::size_t begin = 0;
  std::size_t count = 0;
  int owner = kSum;
  std::size_t base = 0;
};
std::vector<Expected> expected_of(const Shape& shape);

// Whether no rank can go on to the next operation before every other has come to this one. In operations with
// a root, a rank may run ahead.
bool all_wait_for_all(Operation operation);
// The number of operations in one run: a run of send_recv is a message each way.
int times_in_a_run(Operation operation);
// The bytes that all ranks together must read and write in one operation: each source and each result once.
std::size_t bytes_moved(Operation operation, std::size_t bytes, int ranks);

}  // namespace muster::bench
