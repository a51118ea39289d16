#include "api/base/dtype.hpp"
#include "kernels/device/host/pool.hpp"
#include "transport/collective/communicator.hpp"
#include "transport/loopback/parts.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace muster::transport {
namespace {

constexpr std::size_t kLaunchesMax = 64;  // in flight, over all streams

// One collective in flight. `remaining` parts still touch it; whoever takes the last one away frees it.
struct Launch {
  mutable std::atomic<std::uint32_t> remaining{0};
  const Collective* collective = nullptr;
  std::int32_t ranks = 0;
  std::size_t member_count = 0;
  std::vector<Member> members;  // in order of index; room for all ranks

  bool free() const { return remaining.load(std::memory_order_acquire) == 0; }
};

void run_part(const void* context, std::uint32_t part) {
  const auto& launch = *static_cast<const Launch*>(context);
  loopback::execute_part(*launch.collective, std::span(launch.members).first(launch.member_count),
                         launch.ranks, part);
  launch.remaining.fetch_sub(1, std::memory_order_release);
}

bool is_transfer(const Collective& collective) {
  return collective.op == MUSTER_SEND || collective.op == MUSTER_RECV;
}

// Where a member's target must be if its source and target overlap at all.
const std::byte* in_place_target(const Collective& collective, const Member& member, std::int32_t ranks,
                                 std::size_t element_bytes) {
  const bool gather = collective.op == MUSTER_ALL_GATHER;
  if (!gather && collective.op != MUSTER_REDUCE_SCATTER) return member.source;
  const std::uint64_t offset = block_of(collective, member.index, ranks).offset * element_bytes;
  return gather ? member.source - offset : member.source + offset;
}

Status check_ranges(const Collective& collective, const Member& member, std::int32_t ranks) {
  const std::size_t element_bytes = dtype_bytes(collective.dtype);
  const std::uint64_t source_bytes = source_count(collective, member.index, ranks) * element_bytes;
  const std::uint64_t target_bytes = target_count(collective, member.index, ranks) * element_bytes;
  if (source_bytes > 0 && member.source == nullptr)
    return failure(Code::kBadArgument, "member {} has no source; {} bytes are read from it", member.index,
                   source_bytes);
  if (target_bytes > 0 && member.target == nullptr)
    return failure(Code::kBadArgument, "member {} has no target; {} bytes are written to it", member.index,
                   target_bytes);
  if (source_bytes == 0 || target_bytes == 0) return Status();
  const auto source = reinterpret_cast<std::uintptr_t>(member.source);
  const auto target = reinterpret_cast<std::uintptr_t>(member.target);
  const bool overlap = source < target + target_bytes && target < source + source_bytes;
  if (overlap && member.target != in_place_target(collective, member, ranks, element_bytes))
    return failure(Code::kBadArgument,
                   "source and target of member {} overlap by {} bytes' offset; in place means the same "
                   "start, or the own "
                   "block of the whole vector",
                   member.index, static_cast<std::int64_t>(target - source));
  return Status();
}

// Loopback: all members live here.
//
// Owns    kLaunchesMax records of launches, with room for every member; no memory of the members.
// Thread  launch: one issuing thread at a time, any number of streams. Parts run on the streams' workers.
// Bound   kRanksMax ranks; kLaunchesMax collectives in flight, then kBusy. launch allocates nothing but a
// failure's text. Fails   launch: kBadArgument (validate, members missing, doubled or without memory), kBusy.
// Destroy it when its streams
//         are idle.
class Loopback final : public Communicator {
 public:
  explicit Loopback(std::int32_t ranks) : ranks_(ranks), launches_(kLaunchesMax) {
    for (Launch& launch : launches_) {
      launch.ranks = ranks;
      launch.members.resize(static_cast<std::size_t>(ranks));
    }
  }

  std::int32_t ranks() const noexcept override { return ranks_; }

  Status launch(device::Stream& stream, const Collective& collective,
                std::span<const Member> members) override {
    MUSTER_RETURN_IF_ERROR(validate(collective, ranks_));
    Launch* launch = find_free();
    if (launch == nullptr)
      return failure(Code::kBusy, "{} collectives of this communicator are in flight; wait for one",
                     kLaunchesMax);
    MUSTER_RETURN_IF_ERROR(seat(collective, members, *launch));
    const std::uint32_t parts = loopback::part_count(collective, ranks_);
    launch->collective = &collective;
    launch->remaining.store(parts, std::memory_order_relaxed);  // the stream's own hand-over publishes it
    Status status = device::host::enqueue(stream, {.run = run_part, .context = launch, .parts = parts});
    if (!status.ok()) launch->remaining.store(0, std::memory_order_relaxed);
    return status;
  }

 private:
  Launch* find_free() {
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      Launch& launch = launches_[(next_ + i) % launches_.size()];
      if (!launch.free()) continue;
      next_ = (next_ + i + 1) % launches_.size();
      return &launch;
    }
    return nullptr;
  }

  // Puts the members into the launch in order of index, each exactly once.
  Status seat(const Collective& collective, std::span<const Member> members, Launch& launch) const {
    const std::size_t expected = is_transfer(collective) ? 2 : static_cast<std::size_t>(ranks_);
    if (members.size() != expected)
      return failure(Code::kBadArgument, "{} members are given; all {} of the operation must be local",
                     members.size(), expected);
    launch.member_count = expected;
    for (std::size_t k = 0; k < expected; ++k) launch.members[k].index = -1;
    for (const Member& member : members) {
      const std::int32_t place = place_of(collective, member.index);
      if (place < 0)
        return failure(Code::kBadArgument, "member index {} takes no part in the operation of {} ranks",
                       member.index, ranks_);
      Member& seated = launch.members[static_cast<std::size_t>(place)];
      if (seated.index != -1)
        return failure(Code::kBadArgument, "member index {} is given twice; each member once", member.index);
      MUSTER_RETURN_IF_ERROR(check_ranges(collective, member, ranks_));
      seated = member;
    }
    return Status();
  }

  // -1 for an index that takes no part.
  std::int32_t place_of(const Collective& collective, std::int32_t index) const {
    if (!is_transfer(collective)) return index >= 0 && index < ranks_ ? index : -1;
    if (index == collective.root) return 0;
    return index == collective.receiver ? 1 : -1;
  }

  std::int32_t ranks_;
  std::size_t next_ = 0;
  std::vector<Launch> launches_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> open_loopback(std::int32_t ranks) {
  if (ranks < 1 || ranks > loopback::kRanksMax)
    return fail(Code::kBadArgument, "a loopback communicator of {} ranks is not possible; 1..{} are", ranks,
                loopback::kRanksMax);
  return std::make_unique<Loopback>(ranks);
}

}  // namespace muster::transport
