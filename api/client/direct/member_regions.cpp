#include "api/client/direct/member_regions.hpp"

#include "api/base/node_limits.hpp"

namespace muster::client {
namespace {

bool fits(const shm::DirectMember& member, std::size_t members, std::size_t segment_bytes) {
  const std::size_t need = shm::member_region_bytes(static_cast<std::uint32_t>(members));
  return member.region % shm::kLineBytes == 0 && member.region >= shm::kMemberRegionsOffset &&
         need <= segment_bytes && member.region <= segment_bytes - need;
}

Peer peer_of(const std::byte* segment, const shm::DirectMember& member, const std::uint64_t* life) {
  const std::byte* region = segment + member.region;
  return {member.rank,
          reinterpret_cast<const shm::DirectHeader*>(segment),
          segment + shm::kDirectHeaderBytes,
          reinterpret_cast<const shm::MemberRegion*>(region),
          region + shm::kSlotsOffset,
          life,
          reinterpret_cast<const shm::DirectPair*>(region + shm::kPairsOffset)};
}

}  // namespace

Result<std::unique_ptr<Channel>> open_channel(DirectMemory& memory, const MemberRegions& regions,
                                              WaitHooks& hooks) {
  const std::size_t members = regions.members.size();
  if (members == 0 || members > kRanksOnNodeMax || regions.index >= members ||
      regions.line >= memory.group_count())
    return fail(Code::kProtocol,
                "the daemon's answer about a group cannot be: {} members, this rank's index {}, line {}",
                members, regions.index, regions.line);
  std::vector<Peer> peers;
  for (std::size_t i = 0; i < members; ++i) {
    const shm::DirectMember& member = regions.members[i];
    DirectMemory::View view{memory.own(), memory.own_bytes()};
    if (i != regions.index) {
      MUSTER_ASSIGN_OR_RETURN(view, memory.segment_of(member.rank));
    }
    if (!fits(member, members, view.bytes))
      return fail(Code::kProtocol, "the daemon's answer about the seat of rank {} cannot be: byte {} of {}",
                  member.rank, member.region, view.bytes);
    const std::uint64_t* life = memory.life_of(member.rank);
    if (life == nullptr)
      return fail(Code::kProtocol, "rank {} is not on the daemon's group page", member.rank);
    peers.push_back(peer_of(view.data, member, life));
  }
  std::byte* region = memory.own() + regions.members[regions.index].region;
  const auto* lines = reinterpret_cast<const shm::GroupLine*>(memory.groups() + shm::kGroupLinesOffset);
  const Channel::Words words{regions.group,
                             regions.index,
                             reinterpret_cast<shm::DirectHeader*>(memory.own()),
                             reinterpret_cast<shm::MemberRegion*>(region),
                             regions.line,
                             &lines[regions.line],
                             regions.epoch,
                             regions.base};
  return std::make_unique<Channel>(words, std::move(peers), hooks);
}

}  // namespace muster::client
