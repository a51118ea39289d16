#include "api/client/direct/seating.hpp"

#include "api/base/dtype.hpp"
#include "api/base/node_limits.hpp"
#include "api/client/direct/algorithms.hpp"
#include "api/client/direct/shared_target.hpp"

#include <algorithm>

namespace muster::client {
namespace {

bool seat_fits(const shm::DirectMember& member, std::size_t members, std::size_t segment_bytes) {
  const std::size_t need = shm::seat_bytes(static_cast<std::uint32_t>(members));
  return member.seat % shm::kLineBytes == 0 && member.seat >= shm::kDirectSeatsOffset &&
         need <= segment_bytes && member.seat <= segment_bytes - need;
}

Peer peer_of(const std::byte* segment, const shm::DirectMember& member, const std::uint64_t* life) {
  const std::byte* seat = segment + member.seat;
  return {member.rank,
          reinterpret_cast<const shm::DirectHeader*>(segment),
          segment + shm::kDirectHeaderBytes,
          reinterpret_cast<const shm::DirectSeat*>(seat),
          seat + shm::kSlotsOffset,
          life,
          reinterpret_cast<const shm::DirectPair*>(seat + shm::kPairsOffset)};
}

bool stands_end_to_end(const std::vector<Block>& blocks) {
  std::uint64_t end = 0;
  for (const Block& block : blocks) {
    if (block.count > 0 && block.offset != end) return false;
    end += block.count;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<Channel>> open_channel(DirectMemory& memory, const Seating& seating,
                                              WaitHooks& hooks) {
  const std::size_t members = seating.members.size();
  if (members == 0 || members > kRanksOnNodeMax || seating.index >= members ||
      seating.line >= memory.group_count())
    return fail(Code::kProtocol,
                "the daemon's answer about a group cannot be: {} members, this rank's index {}, line {}",
                members, seating.index, seating.line);
  std::vector<Peer> peers;
  for (std::size_t i = 0; i < members; ++i) {
    const shm::DirectMember& member = seating.members[i];
    DirectMemory::View view{memory.own(), memory.own_bytes()};
    if (i != seating.index) {
      MUSTER_ASSIGN_OR_RETURN(view, memory.segment_of(member.rank));
    }
    if (!seat_fits(member, members, view.bytes))
      return fail(Code::kProtocol, "the daemon's answer about the seat of rank {} cannot be: byte {} of {}",
                  member.rank, member.seat, view.bytes);
    const std::uint64_t* life = memory.life_of(member.rank);
    if (life == nullptr)
      return fail(Code::kProtocol, "rank {} is not on the daemon's group page", member.rank);
    peers.push_back(peer_of(view.data, member, life));
  }
  std::byte* seat = memory.own() + seating.members[seating.index].seat;
  const auto* lines = reinterpret_cast<const shm::GroupLine*>(memory.groups() + shm::kGroupLinesOffset);
  const Channel::Words words{seating.group,
                             seating.index,
                             reinterpret_cast<shm::DirectHeader*>(memory.own()),
                             reinterpret_cast<shm::DirectSeat*>(seat),
                             seat + shm::kSlotsOffset,
                             reinterpret_cast<shm::DirectPair*>(seat + shm::kPairsOffset),
                             seating.line,
                             &lines[seating.line],
                             seating.epoch,
                             seating.base};
  return std::make_unique<Channel>(words, std::move(peers), hooks);
}

DirectPlan make_direct_plan(std::uint64_t handle, const Described& described, Channel& channel,
                            const Machine& machine, std::uint32_t cores) {
  const auto ranks = static_cast<std::int32_t>(channel.members());
  const std::size_t element = dtype_bytes(described.what.dtype);
  DirectPlan plan;
  plan.element = element;
  plan.handle = handle;
  plan.channel = &channel;
  plan.what = described.what;
  plan.mine = described.mine;
  plan.signature = signature_of(plan.what, plan.mine, ranks);
  plan.choice = choose(plan.what, ranks, machine);
  plan.home = described.home;
  plan.sends = described.sends;
  plan.end_to_end = stands_end_to_end(plan.mine.source_blocks);
  plan.crowded = machine.local_ranks > std::min(machine.cores, cores);
  plan.given_bytes = given_count(plan.mine) * element;
  plan.got_bytes = got_count(plan.mine) * element;
  plan.target_bytes =
      plan.choice.algorithm == Algorithm::kShared ? shared_bytes(plan) : got_count(plan.mine) * element;
  if (plan.what.op == MUSTER_REDUCE_SCATTER)
    for (std::uint32_t i = 0; i < channel.index(); ++i)
      plan.my_offset += plan.mine.source_blocks[i].count * element;
  const bool uneven = !plan.what.counts.empty();
  const auto dtype = static_cast<std::uint8_t>(plan.what.dtype | (uneven ? shm::kRecordUneven : 0));
  plan.record = {shm::pack_what({channel.line(), static_cast<std::uint8_t>(plan.what.op), dtype, 0}),
                 plan.given_bytes, plan.got_bytes};
  plan.body = body_of(plan.what, plan.choice);
  if (plan.choice.algorithm == Algorithm::kSmall) prepare_small(plan);
  return plan;
}

}  // namespace muster::client
