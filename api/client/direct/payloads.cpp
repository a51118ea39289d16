#include "api/client/direct/payloads.hpp"
#include "api/client/direct/shared_target.hpp"

#include "api/base/assert.hpp"
#include "api/base/collective/path.hpp"
#include "api/base/dtype.hpp"
#include "api/base/fault_point.hpp"
#include "api/shm/untrusted.hpp"
#include "kernels/math/copy.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace muster::client {
namespace {

using Kind = shm::PayloadLocation::Kind;

// kCopiedBytesMax where ranks outnumber cores: a meeting costs microseconds there, and a tenth of a
// microsecond elsewhere.
constexpr std::uint64_t kCopiedBytesMaxCrowded = 64 << 10;

static_assert(kBlocksMax * sizeof(std::uint64_t) <= shm::kSlotPayloadBytes);

// Each member gets a block of its own, and only the giver knows where it lies.
bool has_table(const Collective& c) {
  return is_pairwise(c.op) && has_source_blocks(c.op, true);
}

// Whether the block from some member lands where the block for it is given from. The vectors themselves may
// begin at different addresses.
bool changes_places(const DirectPlan& plan) {
  const Share& mine = plan.mine;
  const std::size_t element = dtype_bytes(plan.what.dtype);
  const std::size_t blocks = std::min(mine.source_blocks.size(), mine.target_blocks.size());
  for (std::size_t k = 0; k < blocks; ++k) {
    const Block& from = mine.source_blocks[k];
    const Block& to = mine.target_blocks[k];
    const bool both = from.count > 0 && to.count > 0;
    if (both && mine.source + from.offset * element == mine.target + to.offset * element) return true;
  }
  return false;
}

// Whether this member, in place, overwrites data that its peers may still read. It does so in ALL_TO_ALL and
// ALL_REDUCE. In other operations it changes only data that no peer reads.
bool overwritten(const DirectPlan& plan) {
  const OperationRow& row = row_of(plan.what.op);
  if (row.gives == Portion::kBlocks && row.gets == Portion::kBlocks) return changes_places(plan);
  const bool in_place = plan.mine.source != nullptr && plan.mine.source == plan.mine.target;
  return in_place && row.reduces && row.same_for_all && plan.choice.algorithm == Algorithm::kWhole;
}

}  // namespace

// ---- giving ------------------------------------------------------------------------------------

std::size_t Payloads::table_bytes() const {
  const bool giver = !plan_.mine.source_blocks.empty();
  return giver && has_table(plan_.what) ? channel_.members() * sizeof(std::uint64_t) : 0;
}

shm::PayloadLocation Payloads::choose_location(std::uint64_t bytes) const {
  if (bytes == 0) return {};
  if (plan_.choice.algorithm == Algorithm::kShared) {
    // In a gather, a member announces only whether it has a block to write. A root in place gives nothing.
    if (has_target_blocks(plan_.what.op, false)) return {Kind::kNone, 0, brings_block(plan_) ? 1u : 0u};
    return plan_.mine.source == plan_.mine.target ? shm::PayloadLocation{} : plan_.home;
  }
  if (plan_.choice.algorithm != Algorithm::kWhole) return plan_.home;
  if (table_bytes() + bytes <= shm::kSlotPayloadBytes) return {Kind::kSlot, 0, 0};
  const std::uint64_t copied_max = plan_.crowded ? kCopiedBytesMaxCrowded : kCopiedBytesMax;
  if (bytes <= copied_max || (overwritten(plan_) && bytes <= shm::kStageBytes)) return {Kind::kStage, 0, 0};
  return plan_.home;
}

Outcome Payloads::prepare() {
  const std::uint64_t bytes = count_of(plan_.mine.source_blocks) * plan_.element;
  given_ = choose_location(bytes);
  const bool reads_in_place =
      plan_.choice.algorithm == Algorithm::kRead && plan_.mine.source == plan_.mine.target;
  const bool needs_stage =
      given_.kind == Kind::kStage || plan_.choice.algorithm == Algorithm::kSliced || reads_in_place;
  if (needs_stage && take_stage().data == nullptr) return Outcome::kInterrupted;
  if (given_.kind == Kind::kStage) given_ = stage_.location;
  const bool must_move = given_.kind == Kind::kArena && overwritten(plan_);
  return must_move && !move_to_scratch(bytes) ? Outcome::kNoMemory : Outcome::kDone;
}

// For an operation in place, which would overwrite the contribution before peers have read it.
bool Payloads::move_to_scratch(std::uint64_t bytes) {
  const auto scratch = memory_.scratch(bytes);
  if (!scratch) return false;
  pack(scratch->data);
  given_ = scratch->location;
  return true;
}

void Payloads::pack(std::byte* to) const {
  const std::size_t element = plan_.element;
  for (const Block& block : plan_.mine.source_blocks) {
    math::copy(to, plan_.mine.source + block.offset * element, block.count * element, math::kNeverStream);
    to += block.count * element;
  }
}

// Byte offsets of the blocks: in the source itself, or end to end if they were packed.
void Payloads::write_table(bool packed) {
  const std::size_t element = plan_.element;
  std::byte* table = channel_.arrivals().payload();
  std::uint64_t end = 0;
  for (const Block& block : plan_.mine.source_blocks) {
    const std::uint64_t offset = packed ? end : block.offset * element;
    std::memcpy(table, &offset, sizeof offset);
    table += sizeof offset;
    end += block.count * element;
  }
  MUSTER_FAULT_POINT("payload.table_written");
}

shm::PayloadLocation Payloads::announce(Announced* announced) {
  const bool in_source = given_.kind == Kind::kArena && pack_location(given_) == pack_location(plan_.home);
  if (given_.kind == Kind::kSlot) pack(channel_.arrivals().payload() + table_bytes());
  if (given_.kind == Kind::kStage) pack(stage_.data);
  if (plan_.pairwise) {
    if (table_bytes() > 0 && given_.kind != Kind::kNone) write_table(!in_source);
    announced->say(Announced::Balance{plan_.signature.balance});
  } else if (!plan_.what.first_piece.empty()) {
    const bool in_pieces = has_source_blocks(plan_.what.op, false) || plan_.mine.source == plan_.mine.target;
    announced->say(Announced::Pieces{in_source && in_pieces});
  } else if (has_source_blocks(plan_.what.op, false) && in_source && !plan_.end_to_end) {
    write_table(false);
    announced->say(Announced::Table{1});
  } else if (plan_.choice.algorithm == Algorithm::kSliced) {
    announced->say(Announced::Stage{pack_location(stage_.location)});
  } else if (plan_.choice.algorithm == Algorithm::kRead && plan_.mine.source == plan_.mine.target) {
    announced->say(Announced::InPlace{1});
  }
  MUSTER_FAULT_POINT("payload.packed");
  return given_;
}

Outcome Payloads::meet() {
  if (const Outcome prepared = prepare(); prepared != Outcome::kDone) return prepared;
  MUSTER_FAULT_POINT("payload.prepared");
  return meet_with([this](Announced* announced) { return announce(announced); });
}

Outcome Payloads::end() {
  if (!must_say_done()) return Outcome::kDone;
  channel_.phases().set(channel_.at(), shm::kPhaseLast);
  if (given_.kind != Kind::kArena) return Outcome::kDone;
  return outcome_of(channel_.phases().await_readers(channel_.at(), shm::kPhaseLast, policy_));
}

// ---- reading -----------------------------------------------------------------------------------

const std::byte* Payloads::read(std::uint32_t i, std::uint64_t offset, std::uint64_t bytes) {
  if (i == channel_.index()) {
    const std::size_t element = plan_.element;
    return plan_.mine.source + plan_.mine.source_blocks.front().offset * element + offset;
  }
  const shm::PayloadLocation location = channel_.arrivals().of(i).location();
  std::uint64_t room = 0;
  const std::byte* base = nullptr;
  switch (location.kind) {
    case Kind::kSlot: {
      const std::size_t table = has_table(plan_.what) ? channel_.members() * sizeof(std::uint64_t) : 0;
      base = channel_.arrivals().payload_of(i) + table;
      room = shm::kSlotPayloadBytes - table;
      break;
    }
    case Kind::kStage:
      if (location.index >= shm::kStages) return nullptr;
      base = channel_.peer(i).stages + location.index * shm::kStageBytes;
      room = shm::kStageBytes;
      break;
    case Kind::kArena: {
      std::uint64_t from = 0;
      if (__builtin_add_overflow(location.value, offset, &from)) return nullptr;
      return memory_.arena(channel_.peer(i).rank, location.index, from, bytes);
    }
    default:
      return nullptr;
  }
  return offset <= room && bytes <= room - offset ? base + offset : nullptr;
}

const std::byte* Payloads::block_for_me(std::uint32_t i, std::uint64_t bytes) {
  const std::uint32_t me = channel_.index();
  if (i == me) return plan_.mine.source + plan_.mine.source_blocks[me].offset * plan_.element;
  const Announced& theirs = channel_.arrivals().of(i);
  const bool in_table = has_table(plan_.what) || (theirs.location().kind == Kind::kArena &&
                                                  theirs.said<Announced::Table>().table != 0);
  if (!in_table) return read(i, plan_.my_offset, bytes);
  std::uint64_t offset = 0;
  std::memcpy(&offset, channel_.arrivals().payload_of(i) + me * sizeof offset, sizeof offset);
  return read(i, offset, bytes);
}

// A member reads the pieces in its own source where they lie. It reads those of a peer so if the peer
// announces that they lie in its source too. Otherwise they were packed, or stand end to end.
const std::byte* Payloads::fragment(std::uint32_t i, const Block::Fragment& fragment) {
  const std::size_t element = plan_.element;
  const bool cut = has_source_blocks(plan_.what.op, false);
  if (i == channel_.index())
    return plan_.mine.source +
           (cut ? fragment.cut_offset : own_offset(plan_.mine.source_blocks, fragment)) * element;
  const bool in_pieces = channel_.arrivals().of(i).said<Announced::Pieces>().in_source != 0;
  std::uint64_t offset = fragment.cut_offset * element;
  if (!in_pieces) offset = fragment.first * element + (cut ? plan_.my_offset : 0);
  return read(i, offset, fragment.count * element);
}

bool Payloads::intact(std::uint32_t i) const {
  if (i == channel_.index()) return true;
  const shm::PayloadLocation location = channel_.arrivals().of(i).location();
  switch (location.kind) {
    case Kind::kStage:
      return stage_intact(i, location);
    case Kind::kArena:
      // A giver that has moved on no longer waits for its readers, and may write there. Whether other members
      // have moved on, or are gone, does not matter.
      return channel_.awaits_readers(i);
    default:
      return true;
  }
}

bool Payloads::all_intact() const {
  for (std::uint32_t i = 0; i < channel_.members(); ++i)
    if (!intact(i)) return false;
  return channel_.sound();
}

bool Payloads::stage_intact(std::uint32_t i, shm::PayloadLocation stage) const {
  // The fence keeps the reads of the stage before the check.
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto* uses = &channel_.peer(i).header->stage_uses[stage.index];
  return (shm::Untrusted<std::uint64_t>(uses).load_acquire() & shm::kLocationValueMask) == stage.value;
}

bool Payloads::must_say_done() const {
  for (std::uint32_t i = 0; i < channel_.members(); ++i) {
    const Kind kind = i == channel_.index() ? given_.kind : channel_.arrivals().of(i).location().kind;
    if (kind == Kind::kStage || kind == Kind::kArena) return true;
  }
  return false;
}

}  // namespace muster::client
