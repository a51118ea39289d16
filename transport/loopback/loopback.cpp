#include "transport/loopback/loopback.hpp"

#include "api/base/assert.hpp"
#include "api/base/node_limits.hpp"
#include "kernels/device/host/device.hpp"
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

// Records of launches. The constructor takes the memory of the first ones, but a record is made only when all
// earlier ones are in flight. So a group is cheap to make: most groups use few records or none.
//
// Owns    the records. Thread  the issuing one.
// Bound   `most` records of at most `members` members each; no heap for the first `usual` ones.
// Fails   find_free: nullptr when all are in flight.
class Records {
 public:
  // One collective in flight. `remaining` parts are not over; the record is free when there are none.
  struct Launch {
    Launch(std::span<loopback::Member> room, std::span<std::uint64_t> job_room)
        : members(room), starts(job_room) {}

    std::span<loopback::Member> members;  // in order of index; room for all
    std::span<std::uint64_t> starts;      // for the job
    loopback::CollectiveRow job;
    mutable std::uint32_t remaining = 0;

    std::atomic_ref<std::uint32_t> left() const { return std::atomic_ref(remaining); }
    bool free() const { return left().load(std::memory_order_acquire) == 0; }
  };

  Records(std::size_t usual, std::size_t most, std::size_t members)
      : members_(members), most_(most), rooms_(usual, members) {
    launches_.reserve(most);
  }

  std::size_t size() const { return most_; }
  Launch* find_free() {
    const auto found =
        std::find_if(launches_.begin(), launches_.end(), [](const Launch& launch) { return launch.free(); });
    if (found != launches_.end()) return &*found;
    const std::size_t i = launches_.size();
    if (i == most_) return nullptr;
    if (i < rooms_.count) return rooms_.launch(launches_, i);
    more_.emplace_back(1, members_);
    return more_.back().launch(launches_, 0);
  }

 private:
  struct Rooms {
    Rooms(std::size_t of, std::size_t each)
        : count(of),
          members(each),
          rooms(std::make_unique_for_overwrite<loopback::Member[]>(of * each)),
          starts(std::make_unique_for_overwrite<std::uint64_t[]>(of * (each + 1))) {}
    Launch* launch(std::vector<Launch>& launches, std::size_t i) const {
      const std::span room(&rooms[i * members], members);
      return &launches.emplace_back(room, std::span(&starts[i * (members + 1)], members + 1));
    }

    std::size_t count, members;
    std::unique_ptr<loopback::Member[]> rooms;
    std::unique_ptr<std::uint64_t[]> starts;
  };

  std::size_t members_;
  std::size_t most_;
  Rooms rooms_;
  std::vector<Rooms> more_;
  std::vector<Launch> launches_;
};

void run_part(const void* context, std::uint32_t part) {
  const auto& launch = *static_cast<const Records::Launch*>(context);
  loopback::execute_part(launch.job, part);
  launch.left().fetch_sub(1, std::memory_order_release);
}

// Loopback: all members live here.
//
// Owns    kLaunchesMax records of collectives, with room for every member. Records of transfers: one for each
//         two lanes, because every lane may hold one, and at least kLaunchesMax. Records of exchanges, which
//         may be one for each lane, as each member may meet others in a launch of its own.
// Thread  launch: one issuing thread at a time, any number of streams. Parts run on the streams' workers.
// Bound   kRanksOnNodeMax ranks; as many launches in flight as there are records, then kBusy. launch
//         allocates nothing but a failure's text, and records of more than kLaunchesMax exchanges.
// Fails   prepare: kBadArgument (validate, members missing or given twice). launch: kBusy.
//
// Destroy it only when its streams are idle.
class Loopback final : public Communicator {
 public:
  explicit Loopback(std::int32_t ranks)
      : ranks_(ranks),
        collectives_(kLaunchesMax, kLaunchesMax, static_cast<std::size_t>(ranks)),
        transfers_(transfers_of(ranks), transfers_of(ranks), kTransferMembers),
        exchanges_(kLaunchesMax, std::max(kLaunchesMax, static_cast<std::size_t>(ranks) * MUSTER_LANES_MAX),
                   static_cast<std::size_t>(ranks)),
        seen_(static_cast<std::size_t>(ranks) + 1) {
    latest_.places.resize(seen_.size());
  }

  std::int32_t ranks() const noexcept override { return ranks_; }

  Result<std::shared_ptr<Prepared>> prepare(const Collective& collective,
                                            std::span<const LocalMember> members) override {
    MUSTER_RETURN_IF_ERROR(validate(collective, ranks_));
    const bool faces = has_faces(collective.op);  // any members are enough for them
    const std::size_t expected = faces                        ? members.size()
                                 : is_transfer(collective.op) ? kTransferMembers
                                                              : static_cast<std::size_t>(ranks_);
    if (members.size() != expected || members.empty())
      return fail(Code::kBadArgument, "{} members are given; all {} of the operation must be local",
                  members.size(), expected);
    std::fill(seen_.begin(), seen_.end(), false);
    for (std::size_t i = 0; i < expected; ++i) {
      const std::int32_t index = members[i].share->index;
      const std::int32_t place = place_of(collective, index);
      if (place < 0)
        return fail(Code::kBadArgument, "member index {} takes no part in the operation of {} ranks", index,
                    ranks_);
      if (seen_[static_cast<std::size_t>(place)])
        return fail(Code::kBadArgument, "member index {} is given twice; each member once", index);
      seen_[static_cast<std::size_t>(place)] = true;
      latest_.places[i] = static_cast<std::uint32_t>(place);
    }
    // Without the places of members that are not given.
    if (faces && expected < static_cast<std::size_t>(ranks_))
      for (std::size_t i = 0; i < expected; ++i)
        latest_.places[i] = static_cast<std::uint32_t>(
            std::count(seen_.begin(), seen_.begin() + members[i].share->index, true));
    latest_.collective = &collective;
    latest_.members = expected;
    return std::shared_ptr<Prepared>(std::shared_ptr<void>(), &latest_);  // which nobody frees
  }
  bool keeps_prepared() const override { return false; }

  Status launch(const std::shared_ptr<Prepared>& prepared, std::span<const LocalMember> members,
                const MatchKey& /*key*/, device::Priority /*priority*/, StepOutcome& /*outcome*/) override {
    const auto& here = static_cast<const PreparedHere&>(*prepared);
    const muster_op op = here.collective->op;
    Records& records = is_transfer(op) ? transfers_ : has_faces(op) ? exchanges_ : collectives_;
    Records::Launch* launch = records.find_free();
    if (launch == nullptr)
      return failure(Code::kBusy, "{} collectives of this communicator are in flight; wait for one",
                     records.size());
    MUSTER_ASSERT(members.size() == here.members);
    for (std::size_t i = 0; i < members.size(); ++i)
      launch->members[here.places[i]] = {members[i].share, members[i].bases.source, members[i].bases.target,
                                         members[i].passive};
    launch->job = loopback::cut(*here.collective, launch->members.first(members.size()), launch->starts);
    // Relaxed, because the stream's hand-over of the task publishes the count to the workers.
    launch->left().store(launch->job.parts, std::memory_order_relaxed);
    Status status = device::host::enqueue(*members.front().stream,
                                          {.run = run_part, .context = launch, .parts = launch->job.parts});
    if (!status.ok()) launch->left().store(0, std::memory_order_relaxed);
    return status;
  }

 private:
  struct PreparedHere final : Prepared {
    const Collective* collective = nullptr;
    std::size_t members = 0;
    std::vector<std::uint32_t> places;  // by member as it is given, its place in the order of members
  };

  static std::size_t transfers_of(std::int32_t ranks) {
    return std::max(kLaunchesMax, static_cast<std::size_t>(ranks) * MUSTER_LANES_MAX / 2);
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
  Records exchanges_;
  std::vector<bool> seen_;  // by place
  PreparedHere latest_;
};

// Owns    nothing. Thread  any. Bound  -. Fails  as open_loopback().
class LoopbackFactory final : public CommunicatorFactory {
 public:
  bool takes(const Span& span, Devices /*devices*/) const override { return span.is_local(); }
  Result<std::unique_ptr<Communicator>> open(const Span& span, Devices /*devices*/) override {
    return open_loopback(span.ranks());
  }
};

}  // namespace

Result<std::unique_ptr<Communicator>> open_loopback(std::int32_t ranks) {
  if (ranks < 1 || ranks > std::int32_t{kRanksOnNodeMax})
    return fail(Code::kBadArgument, "a loopback communicator of {} ranks is not possible; 1..{} are", ranks,
                kRanksOnNodeMax);
  return std::make_unique<Loopback>(ranks);
}

std::unique_ptr<CommunicatorFactory> loopback_factory() {
  return std::make_unique<LoopbackFactory>();
}

}  // namespace muster::transport
