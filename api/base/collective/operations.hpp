// The table of operations (decision D23): one row says what a collective is, and all code that depends on the
// operation reads its row. A new operation is a new row, and its arithmetic if the row does not say enough.
#pragma once

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace muster {

// One member's input or output of an operation. The root of a transfer is the sender.
enum class Portion : std::uint8_t {
  kNothing,
  kBlock,  // one block, at every member
  kBlockAtRoot,
  kBlockAtReceiver,
  kBlocks,  // a block for each member, at every member
  kBlocksAtRoot,
  kFaces,  // strided views, each with a peer
};

struct OperationRow {
  // The member that muster_collective::peer names.
  enum class Peer : std::uint8_t { kNobody, kRoot, kReceiver, kSender };

  // The counts that members must agree on: that of the vector; those of all blocks; or, for each pair, the
  // count that one sends to the other.
  enum class Agreement : std::uint8_t { kCount, kCountsOfBlocks, kPairByPair };

  muster_op op = 0;
  const char* name = "unknown_op";
  Portion gives = Portion::kNothing;
  Portion gets = Portion::kNothing;
  Peer peer = Peer::kNobody;
  Agreement agrees = Agreement::kCount;
  bool reduces = false;
  // Every member gets the same result, so members may share one target.
  bool same_for_all = false;
  // The lane if the caller names none; the other one is for small operations, which latency bounds.
  muster_lane lane = MUSTER_LANE_COPY;
  muster_lane lane_if_small = MUSTER_LANE_COPY;
  // Its names in PyTorch's analyser of flight records, the second for uneven blocks; nullptr: `name`.
  const char* recorded_as = nullptr;
  const char* recorded_uneven_as = nullptr;
};

// In the order of their numbers, from 1.
inline constexpr OperationRow kOperationRows[] = {
    {.op = MUSTER_ALL_REDUCE,
     .name = "all_reduce",
     .gives = Portion::kBlock,
     .gets = Portion::kBlock,
     .reduces = true,
     .same_for_all = true,
     .lane = MUSTER_LANE_ALLREDUCE,
     .lane_if_small = MUSTER_LANE_SMALL},
    {.op = MUSTER_ALL_GATHER,
     .name = "all_gather",
     .gives = Portion::kBlock,
     .gets = Portion::kBlocks,
     .agrees = OperationRow::Agreement::kCountsOfBlocks,
     .same_for_all = true,
     .lane = MUSTER_LANE_GATHER,
     .lane_if_small = MUSTER_LANE_GATHER,
     .recorded_uneven_as = "_all_gather_base"},
    {.op = MUSTER_REDUCE_SCATTER,
     .name = "reduce_scatter",
     .gives = Portion::kBlocks,
     .gets = Portion::kBlock,
     .agrees = OperationRow::Agreement::kCountsOfBlocks,
     .reduces = true,
     .lane = MUSTER_LANE_REDUCE,
     .lane_if_small = MUSTER_LANE_REDUCE,
     .recorded_uneven_as = "REDUCE_SCATTER_coalesced"},
    {.op = MUSTER_BROADCAST,
     .name = "broadcast",
     .gives = Portion::kBlockAtRoot,
     .gets = Portion::kBlock,
     .peer = OperationRow::Peer::kRoot,
     .same_for_all = true},
    {.op = MUSTER_BARRIER, .name = "barrier", .lane = MUSTER_LANE_SMALL, .lane_if_small = MUSTER_LANE_SMALL},
    {.op = MUSTER_SEND,
     .name = "send",
     .gives = Portion::kBlockAtRoot,
     .gets = Portion::kBlockAtReceiver,
     .peer = OperationRow::Peer::kReceiver},
    {.op = MUSTER_RECV,
     .name = "recv",
     .gives = Portion::kBlockAtRoot,
     .gets = Portion::kBlockAtReceiver,
     .peer = OperationRow::Peer::kSender},
    {.op = MUSTER_REDUCE,
     .name = "reduce",
     .gives = Portion::kBlock,
     .gets = Portion::kBlockAtRoot,
     .peer = OperationRow::Peer::kRoot,
     .reduces = true,
     .lane = MUSTER_LANE_REDUCE,
     .lane_if_small = MUSTER_LANE_REDUCE},
    {.op = MUSTER_GATHER,
     .name = "gather",
     .gives = Portion::kBlock,
     .gets = Portion::kBlocksAtRoot,
     .peer = OperationRow::Peer::kRoot,
     .agrees = OperationRow::Agreement::kPairByPair,
     .lane = MUSTER_LANE_GATHER,
     .lane_if_small = MUSTER_LANE_GATHER},
    {.op = MUSTER_SCATTER,
     .name = "scatter",
     .gives = Portion::kBlocksAtRoot,
     .gets = Portion::kBlock,
     .peer = OperationRow::Peer::kRoot,
     .agrees = OperationRow::Agreement::kPairByPair},
    {.op = MUSTER_ALL_TO_ALL,
     .name = "all_to_all",
     .gives = Portion::kBlocks,
     .gets = Portion::kBlocks,
     .agrees = OperationRow::Agreement::kPairByPair},
    {.op = MUSTER_EXCHANGE,
     .name = "exchange",
     .gives = Portion::kFaces,
     .gets = Portion::kFaces,
     .agrees = OperationRow::Agreement::kPairByPair,
     .lane = MUSTER_LANE_HALO,
     .lane_if_small = MUSTER_LANE_HALO,
     .recorded_as = "all_to_all"},
};
inline constexpr OperationRow kUnknownOperation{};
inline constexpr auto kOperations = static_cast<muster_op>(std::size(kOperationRows));

constexpr bool is_operation(muster_op op) noexcept {
  return op >= 1 && op <= kOperations;
}
// A number that is no operation has no peer, no blocks and no reduction.
constexpr const OperationRow& row_of(muster_op op) noexcept {
  return is_operation(op) ? kOperationRows[op - 1] : kUnknownOperation;
}
static_assert([] {
  for (muster_op op = 1; op <= kOperations; ++op)
    if (row_of(op).op != op) return false;
  return true;
}());

constexpr const char* op_name(muster_op op) noexcept {  // "all_reduce"
  return row_of(op).name;
}
// Whether two members alone meet (SEND and RECV). Every other operation takes all members.
constexpr bool is_transfer(muster_op op) noexcept {
  return row_of(op).gets == Portion::kBlockAtReceiver;
}
// SEND at one side and RECV at the other are one operation.
constexpr muster_op agreed_op(muster_op op) noexcept {
  return op == MUSTER_RECV ? MUSTER_SEND : op;
}
constexpr bool has_root(muster_op op) noexcept {
  return row_of(op).peer == OperationRow::Peer::kRoot;
}
constexpr bool has_reduction(muster_op op) noexcept {
  return row_of(op).reduces;
}
constexpr bool has_agreed_blocks(muster_op op) noexcept {
  return row_of(op).agrees == OperationRow::Agreement::kCountsOfBlocks;
}
constexpr bool is_pairwise(muster_op op) noexcept {
  return row_of(op).agrees == OperationRow::Agreement::kPairByPair;
}
constexpr bool may_share_target(muster_op op) noexcept {
  return row_of(op).same_for_all;
}
// True also for a number that is no operation: it must not pass for a BARRIER, which needs no checks.
constexpr bool has_data(muster_op op) noexcept {
  return !is_operation(op) || row_of(op).gives != Portion::kNothing;
}
constexpr bool has_faces(muster_op op) noexcept {
  return row_of(op).gives == Portion::kFaces;
}
// Whether source and target are vectors of elements.
constexpr bool has_vectors(muster_op op) noexcept {
  return has_data(op) && !has_faces(op);
}
// Whether each member brings one vector and all are reduced into one: ALL_REDUCE, REDUCE.
constexpr bool reduces_vectors(muster_op op) noexcept {
  return row_of(op).reduces && row_of(op).gives == Portion::kBlock;
}
// Whether a member's source, or target, has a block for each member of the group. `is_root` matters only if
// the operation has a root.
constexpr bool has_source_blocks(muster_op op, bool is_root) noexcept {
  const Portion gives = row_of(op).gives;
  return gives == Portion::kBlocks || (gives == Portion::kBlocksAtRoot && is_root);
}
constexpr bool has_target_blocks(muster_op op, bool is_root) noexcept {
  const Portion gets = row_of(op).gets;
  return gets == Portion::kBlocks || (gets == Portion::kBlocksAtRoot && is_root);
}
// Whether a member's source, or target, is one block. The root of a transfer is the sender.
constexpr bool has_source_block(muster_op op, bool is_root) noexcept {
  const Portion gives = row_of(op).gives;
  return gives == Portion::kBlock || (gives == Portion::kBlockAtRoot && is_root);
}
constexpr bool has_target_block(muster_op op, bool is_root, bool is_receiver) noexcept {
  const Portion gets = row_of(op).gets;
  return gets == Portion::kBlock || (gets == Portion::kBlockAtRoot && is_root) ||
         (gets == Portion::kBlockAtReceiver && is_receiver);
}
// Whether the root alone gives, or gets. The root of a transfer is the sender.
constexpr bool gives_at_root(muster_op op) noexcept {
  return row_of(op).gives == Portion::kBlockAtRoot || row_of(op).gives == Portion::kBlocksAtRoot;
}
constexpr bool gets_at_root(muster_op op) noexcept {
  return row_of(op).gets == Portion::kBlockAtRoot || row_of(op).gets == Portion::kBlocksAtRoot;
}

}  // namespace muster
