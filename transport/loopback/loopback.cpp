#include "kernels/device/host/pool.hpp"
#include "transport/collective/communicator.hpp"
#include "transport/loopback/parts.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace muster::transport {
namespace {

constexpr std::size_t kLaunchesMax = 64;  // in flight, over all streams
constexpr std::size_t kTransferMembers = 2;

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

// Launches of one width, used in turn.
//
// Owns    the records. Thread  the issuing one.  Bound  fixed at construction.  Fails  find_free: nullptr
// when
//         all are in flight.
class Records {
 public:
  Records(std::size_t count, std::size_t members, std::int32_t ranks) : launches_(count) {
    for (Launch& launch : launches_) {
      launch.ranks = ranks;
      launch.members.resize(members);
    }
  }

  std::size_t size() const { return launches_.size(); }
  Launch* find_free() {
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      Launch& launch = launches_[(next_ + i) % launches_.size()];
      if (!launch.free()) continue;
      next_ = (next_ + i + 1) % launches_.size();
      return &launch;
    }
    return nullptr;
  }

 private:
  std::vector<Launch> launches_;
  std::size_t next_ = 0;
};

// Loopback: all members live here.
//
// Owns    kLaunchesMax records of launches with room for every member, and for each rank and lane one of a
//         transfer, since every rank may have one on each of its lanes; no memory of the members.
// Thread  launch: one issuing thread at a time, any number of streams. Parts run on the streams' workers.
// Bound   kRanksMax ranks; as many launches in flight as there are records, then kBusy. launch allocates
//         nothing but a failure's text.
// Fails   launch: kBadArgument (validate, members missing, doubled or without memory), kBusy.
// Destroy it when its streams
//         are idle.
class Loopback final : public Communicator {
 public:
  explicit Loopback(std::int32_t ranks)
      : ranks_(ranks),
        collectives_(kLaunchesMax, static_cast<std::size_t>(ranks), ranks),
        transfers_(std::max(kLaunchesMax, static_cast<std::size_t>(ranks) * MUSTER_LANE_COUNT),
                   kTransferMembers, ranks) {}

  std::int32_t ranks() const noexcept override { return ranks_; }

  Status launch(device::Stream& stream, const Collective& collective,
                std::span<const Member> members) override {
    MUSTER_RETURN_IF_ERROR(validate(collective, ranks_));
    Records& records = is_transfer(collective.op) ? transfers_ : collectives_;
    Launch* launch = records.find_free();
    if (launch == nullptr)
      return failure(Code::kBusy, "{} collectives of this communicator are in flight; wait for one",
                     records.size());
    MUSTER_RETURN_IF_ERROR(seat(collective, members, *launch));
    const std::uint32_t parts = loopback::part_count(collective, ranks_);
    launch->collective = &collective;
    launch->remaining.store(parts, std::memory_order_relaxed);  // the stream's own hand-over publishes it
    Status status = device::host::enqueue(stream, {.run = run_part, .context = launch, .parts = parts});
    if (!status.ok()) launch->remaining.store(0, std::memory_order_relaxed);
    return status;
  }

 private:
  // Puts the members into the launch in order of index, each exactly once.
  Status seat(const Collective& collective, std::span<const Member> members, Launch& launch) const {
    const std::size_t expected = is_transfer(collective.op) ? 2 : static_cast<std::size_t>(ranks_);
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
      MUSTER_RETURN_IF_ERROR(check_member(collective, member, ranks_));
      seated = member;
    }
    return Status();
  }

  // -1 for an index that takes no part.
  std::int32_t place_of(const Collective& collective, std::int32_t index) const {
    if (!is_transfer(collective.op)) return index >= 0 && index < ranks_ ? index : -1;
    if (index == collective.root) return 0;
    return index == collective.receiver ? 1 : -1;
  }

  std::int32_t ranks_;
  Records collectives_;
  Records transfers_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> open_loopback(std::int32_t ranks) {
  if (ranks < 1 || ranks > loopback::kRanksMax)
    return fail(Code::kBadArgument, "a loopback communicator of {} ranks is not possible; 1..{} are", ranks,
                loopback::kRanksMax);
  return std::make_unique<Loopback>(ranks);
}

}  // namespace muster::transport
