#include "api/client/direct/memory.hpp"

#include "api/base/fault_point.hpp"
#include "api/client/direct/channel.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace muster::client {

using shm::Published;
using shm::Untrusted;

// ---- mappings ----------------------------------------------------------------------------------

Result<DirectMemory> DirectMemory::open(shm::Mapping own, shm::Mapping groups, Registrar& registrar) {
  if (own.size() < shm::kMemberRegionsOffset || groups.size() < shm::kGroupLinesOffset)
    return fail(Code::kProtocol, "the daemon's direct segment has {} bytes and its group page {}: too few",
                own.size(), groups.size());
  shm::GroupPageHeader header;
  std::memcpy(&header, groups.data(), sizeof header);
  const std::uint64_t lines_bytes =
      header.groups * sizeof(shm::GroupLine) + header.ranks * sizeof(shm::RankLine);
  const bool fits = lines_bytes <= groups.size() - shm::kGroupLinesOffset;
  if (header.magic != shm::kMagicGroupPage || header.abi_version != shm::kAbiVersion || !fits)
    return fail(Code::kVersion, "the daemon's group page has version {}, this library {}", header.abi_version,
                shm::kAbiVersion);
  const std::byte* line = groups.data() + shm::kGroupLinesOffset + header.groups * sizeof(shm::GroupLine);
  std::vector<std::int32_t> ranks;
  for (std::uint32_t i = 0; i < header.ranks; ++i) {
    const auto* of = reinterpret_cast<const shm::RankLine*>(line) + i;
    ranks.push_back(static_cast<std::int32_t>(Untrusted<std::uint32_t>(&of->rank).load()));
    if (ranks.back() < 0 || (i > 0 && ranks[i] <= ranks[i - 1]))
      return fail(Code::kProtocol, "the ranks on the daemon's group page do not rise");
  }
  return DirectMemory(std::move(own), std::move(groups), header.groups, std::move(ranks), registrar);
}

const shm::RankLine* DirectMemory::rank_line(std::int32_t rank) const {
  auto at = static_cast<std::size_t>(rank);  // where it lies if all ranks are on this node
  if (rank < 0 || at >= ranks_.size() || ranks_[at] != rank) {
    const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
    if (found == ranks_.end() || *found != rank) return nullptr;
    at = static_cast<std::size_t>(found - ranks_.begin());
  }
  const std::byte* lines = groups() + shm::kGroupLinesOffset + group_count_ * sizeof(shm::GroupLine);
  return reinterpret_cast<const shm::RankLine*>(lines) + at;
}

Result<DirectMemory::View> DirectMemory::segment_of(std::int32_t rank) {
  auto known = segments_.find(rank);
  if (known == segments_.end()) {
    MUSTER_ASSIGN_OR_RETURN(shm::Mapping mapping, registrar_->direct_segment(rank));
    if (mapping.size() < shm::kMemberRegionsOffset)
      return fail(Code::kProtocol, "the direct segment of rank {} has {} bytes: too few", rank,
                  mapping.size());
    known = segments_.emplace(rank, std::move(mapping)).first;
    MUSTER_FAULT_POINT("peer.mapped");
  }
  return View{known->second.data(), known->second.size()};
}

const std::byte* DirectMemory::arena(std::int32_t rank, std::uint32_t segment, std::uint64_t offset,
                                     std::uint64_t bytes) {
  const shm::RankLine* line = rank_line(rank);
  if (line == nullptr) return nullptr;
  Arena& arena = arenas_[rank];
  const std::uint64_t retired = Untrusted<std::uint64_t>(&line->retired).load_acquire();
  if (retired != arena.retired) arena = {retired, {}};
  auto known = arena.segments.find(segment);
  if (known == arena.segments.end()) {
    auto mapping = registrar_->arena_segment(rank, segment);
    if (!mapping) {
      trouble_ = mapping.error();
      return nullptr;
    }
    known = arena.segments.emplace(segment, *std::move(mapping)).first;
    MUSTER_FAULT_POINT("arena.mapped");
  }
  const std::uint64_t size = known->second.size();
  if (offset > size || bytes > size - offset) return nullptr;
  return known->second.data() + offset;
}

std::optional<DirectMemory::Registrar::Scratch> DirectMemory::scratch(std::uint64_t bytes) {
  auto scratch = registrar_->scratch(bytes);
  if (scratch) return *scratch;
  trouble_ = scratch.error();
  return std::nullopt;
}

// ---- stages ------------------------------------------------------------------------------------

Stages::Stages(std::byte* segment, FlightRing& flight) : segment_(segment), flight_(flight) {}

void Stages::drain(Channel& channel, const WaitPolicy& policy) {
  for (Use& use : uses_) {
    if (use.channel != &channel) continue;
    static_cast<void>(await_readers(use, policy));
    use = {};
  }
}

void Stages::forget_unbegun(const Channel& channel) {
  for (Use& use : uses_)
    if (use.channel == &channel && use.at.position > channel.at().position) use = {};
}

// The wait ends at the deadline. A peer that is still reading then finds the stage changed, and fails.
Waited Stages::await_readers(const Use& use, const WaitPolicy& policy) {
  if (use.channel == nullptr) return Waited::kMet;
  flight_.awaits_readers_of(use.record);
  MUSTER_FAULT_POINT("stage.waiting");
  WaitPolicy bounded = policy.giving_up();
  const Waited met = use.channel->phases().await_readers(use.at, shm::kPhaseLast, bounded);
  flight_.awaits_readers_of(0);
  return met;
}

Stages::Stage Stages::take(Channel& channel, const WaitPolicy& policy) {
  const std::uint32_t index = next_;
  Use& use = uses_[index];
  if (await_readers(use, policy) == Waited::kInterrupted) return {};
  next_ = (next_ + 1) % shm::kStages;
  use = {&channel, {channel.at().epoch, channel.at().position + 1}, flight_.next()};
  auto* header = reinterpret_cast<shm::DirectHeader*>(segment_);
  // The fence keeps later stores into the stage behind the new use count.
  Published<std::uint64_t>(&header->stage_uses[index]).add_ordered(1);
  std::atomic_thread_fence(std::memory_order_release);
  const std::uint64_t count = Untrusted<std::uint64_t>(&header->stage_uses[index]).load();
  MUSTER_FAULT_POINT("stage.taken");
  return {segment_ + shm::kDirectHeaderBytes + index * shm::kStageBytes,
          {shm::PayloadLocation::Kind::kStage, index, count & shm::kLocationValueMask}};
}

}  // namespace muster::client
