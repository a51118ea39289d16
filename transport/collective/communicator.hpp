// The communicator seam: one group's collectives, enqueued on device streams. Backends: loopback (all members
// in this address space), later nccl and host groups over endpoints.
// tests/transport/communicator_conformance.hpp is the suite.
#pragma once

#include "api/base/result.hpp"
#include "kernels/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace muster::transport {

// What all members of a group agree on. Offsets of uneven blocks are the prefix sums of counts.
struct Collective {
  muster_op op = 0;
  muster_dtype dtype = 0;
  muster_redop redop = 0;
  std::int32_t root = 0;              // BROADCAST; SEND/RECV: index of the sender
  std::int32_t receiver = 0;          // SEND/RECV only
  std::uint64_t count = 0;            // elements; see muster_collective
  std::vector<std::uint64_t> counts;  // one per member, or empty for even blocks
  double scale = 1.0;                 // PREMUL_SUM
};

// Blocks of member `index`: offset and length in elements, for ALL_GATHER and REDUCE_SCATTER.
struct Block {
  std::uint64_t offset;
  std::uint64_t count;
};
Block block_of(const Collective& collective, std::int32_t index, std::int32_t ranks);
// Elements of the whole vector: all blocks together for gather and scatter, count otherwise, 0 for a barrier.
std::uint64_t total_count(const Collective& collective, std::int32_t ranks);
// Elements that a member reads and writes.
std::uint64_t source_count(const Collective& collective, std::int32_t index, std::int32_t ranks);
std::uint64_t target_count(const Collective& collective, std::int32_t index, std::int32_t ranks);

// kBadArgument naming field and value: op, dtype, redop, root, counts.size(), overflow of totals, scale of an
// integer that is not whole. Pure.
Status validate(const Collective& collective, std::int32_t ranks);

// One local member's part. An unused side (a receiver's source, a barrier) is null. In place: source is
// target, or the own block inside the other as muster_collective says.
struct Member {
  std::int32_t index = 0;  // in the group
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
};

// kBadArgument if the member lacks memory that it reads or writes, or if its source and target overlap
// otherwise than in place. Pure: pointers are compared, not followed.
Status check_member(const Collective& collective, const Member& member, std::int32_t ranks);
// SEND and RECV meet in pairs; everything else takes all members.
constexpr bool is_transfer(muster_op op) {
  return op == MUSTER_SEND || op == MUSTER_RECV;
}

// Owns    its links. Thread  one issuing thread at a time.
// Bound   ranks() fixed at creation; everything is connected and allocated then.
// Fails   launch: kBadArgument for what validate() refuses, kBusy when the stream is full.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::int32_t ranks() const noexcept = 0;
  // Enqueues one collective of all local members on `stream`. `collective` and `members` must live until the
  // work has finished. Members' earlier work must have finished, or be on the same stream.
  virtual Status launch(device::Stream& stream, const Collective& collective,
                        std::span<const Member> members) = 0;
};

// All members in this address space, on a host device: sources are read in place, targets written in place
// (decision D4). Chunks of a collective are parts of one task.
Result<std::unique_ptr<Communicator>> open_loopback(std::int32_t ranks);

}  // namespace muster::transport
