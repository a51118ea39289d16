// The ranks of one group in one process, each with its own view of the shared memory, as if each were a
// process: real segments, a board for the engine's part, and no engine.
#pragma once

#include "api/client/direct/member_regions.hpp"
#include "api/client/direct/planning.hpp"
#include "daemon/engine/direct/direct_pages.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::client::test {

inline constexpr std::uint64_t kGroup = 77;  // its handle: nobody here looks into it
inline constexpr Nanos kDefaultDeadline = std::chrono::seconds(60);
inline const GroupId kGroupId{0};

// Owns    the board, an arena that stands for the arenas of all ranks, and each rank's mappings and channel.
// Thread  each rank's run() on one thread at a time; different ranks on different threads.
// Bound   arena_bytes.
// Fails   the constructor fails the test.
class DirectWorld {
 public:
  DirectWorld(std::uint32_t ranks, std::uint64_t arena_bytes, const Machine& machine) : machine_(machine) {
    scheduler::Group group{"world", {}};
    for (std::uint32_t rank = 0; rank < ranks; ++rank) group.ranks.push_back(Rank(rank));
    const shm::Headroom headroom = shm::memory_headroom();
    board_ = std::make_unique<engine::DirectPages>(
        *engine::DirectPages::create(std::span(&group, 1), ranks, 0, 1, headroom));
    // Behind what the test sees, a part for each rank's scratch.
    arena_ = *shm::create_memory("arena", 2 * arena_bytes, headroom);
    view_ = *shm::Mapping::map(arena_, 2 * arena_bytes, shm::Mapping::Access::kReadWrite);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      board_->segments().set_attached(Rank(rank), true);
      seats_.push_back(std::make_unique<Seat>(*this, rank));
    }
  }

  std::uint32_t ranks() const { return static_cast<std::uint32_t>(seats_.size()); }
  engine::DirectPages& board() { return *board_; }
  std::byte* arena() { return view_.writable(); }
  std::uint64_t arena_bytes() const { return view_.size() / 2; }
  Channel& channel(std::uint32_t rank) { return *seats_[rank]->channel; }
  // Attaches the rank anew, as the engine does for a process that takes its place.
  void reattach(std::uint32_t rank) {
    board_->segments().set_attached(Rank(rank), false);
    board_->reset(Rank(rank), false);
    board_->segments().set_attached(Rank(rank), true);
    seats_[rank] = std::make_unique<Seat>(*this, rank);
  }

  // The engine's part: the group's epoch ends by a fault of its own.
  void end(scheduler::Cause cause, scheduler::Epochs::Why why = scheduler::Epochs::Why::kOther) {
    cause.fault = ++faults_;
    board_->epochs().end(kGroupId, std::make_shared<const scheduler::Cause>(std::move(cause)), why);
  }
  void lose(scheduler::Cause cause) { end(std::move(cause), scheduler::Epochs::Why::kLoss); }
  // The member hears how its epoch has ended, as from the engine. Its cause's text; empty: it goes on.
  std::string hear(std::uint32_t rank) {
    Channel& member = channel(rank);
    const std::uint64_t epoch = member.view().epoch();
    const scheduler::CausePtr cause = board_->epochs().cause_of(kGroupId, epoch);
    const std::uint64_t next = board_->epochs().move_on(kGroupId, rank, epoch);
    if (next != epoch)
      member.move_on(next, next == board_->epochs().present(kGroupId) ? board_->epochs().base(kGroupId) : 0);
    return cause != nullptr ? cause->text : "";
  }

  DirectMemory& memory(std::uint32_t rank) { return seats_[rank]->memory; }

  // A plan for a share whose memory lies in the arena.
  DirectPlan plan(std::uint32_t rank, const Collective& what, const Share& mine) {
    Described described{kGroup, &kDefaultDeadline, what, mine, location_of(mine.source), {}};
    for (const Face& face : mine.sends) described.sends.push_back(location_of(face.data));
    return make_direct_plan(rank + 1, described, channel(rank), machine_, machine_.cores);
  }
  Outcome run(std::uint32_t rank, const DirectPlan& plan) {
    WaitPolicy policy(timeout, plan.crowded);
    return run_direct(plan, seats_[rank]->memory, seats_[rank]->stages, policy);
  }

  Nanos timeout = std::chrono::seconds(20);
  std::atomic<bool> engine_gone = false;
  std::atomic<bool> interrupted = false;  // whoever waits
  bool arenas_gone = false;               // the engine knows no memory of a peer
  // Called when a rank is about to read a peer's arena for the first time, if set.
  std::function<void(std::uint32_t rank)> on_first_look;
  // Called at a deadline, with who asked. The default fails the test and ends everybody's wait.
  std::function<void(std::uint32_t rank, const Wanted& wanted)> on_overdue = [this](std::uint32_t rank,
                                                                                    const Wanted&) {
    ADD_FAILURE() << "rank " << rank << " waited in vain";
    end({Code::kTimeout, -1, "waited in vain"});
  };

 private:
  struct Seat final : DirectMemory::Registrar, WaitHooks {
    Seat(DirectWorld& w, std::uint32_t r)
        : world(w),
          rank(r),
          memory(*DirectMemory::open(
              w.map(w.board_->segments().descriptor(Rank(r)), w.board_->segments().bytes(Rank(r)),
                    shm::Mapping::Access::kReadWrite),
              w.map(w.board_->segments().page_descriptor(), w.board_->segments().page_bytes(),
                    shm::Mapping::Access::kRead),
              *this)),
          stages(memory.own(), memory.flight()) {
      const MemberRegions regions{kGroup,
                                  kGroupId.value,
                                  r,
                                  w.board_->segments().members(kGroupId),
                                  w.board_->epochs().present(kGroupId),
                                  w.board_->epochs().base(kGroupId)};
      channel = *open_channel(memory, regions, *this);
    }
    Result<shm::Mapping> direct_segment(std::int32_t peer) override {
      const Rank p(static_cast<std::uint32_t>(peer));
      return world.map(world.board_->segments().descriptor(p), world.board_->segments().bytes(p),
                       shm::Mapping::Access::kRead);
    }
    Result<shm::Mapping> arena_segment(std::int32_t, std::uint32_t) override {
      if (world.on_first_look) world.on_first_look(rank);
      if (world.arenas_gone) return fail(Code::kBadArgument, "there is no such segment");
      return world.map(world.arena_.get(), world.view_.size(), shm::Mapping::Access::kRead);
    }
    Result<Scratch> scratch(std::uint64_t bytes) override {
      const std::uint64_t part = world.arena_bytes() / world.board_->segments().members(kGroupId).size();
      if (bytes > part) return fail(Code::kNoResource, "a scratch of {} bytes in a part of {}", bytes, part);
      std::byte* data = world.arena() + world.arena_bytes() + rank * part;
      return Scratch{data, world.location_of(data)};
    }
    Instant now() const override { return clock.now(); }
    std::uint32_t core() const override { return rank % 2; }
    bool engine_gone() override { return world.engine_gone; }
    bool interrupted() const override { return world.interrupted; }
    void overdue(const Wanted& wanted) override { world.on_overdue(rank, wanted); }

    DirectWorld& world;
    std::uint32_t rank;
    SteadyClock clock;
    DirectMemory memory;
    Stages stages;
    std::unique_ptr<Channel> channel;
  };

  shm::Mapping map(int descriptor, std::uint64_t bytes, shm::Mapping::Access access) const {
    return *shm::Mapping::map(shm::Descriptor(::dup(descriptor)), bytes, access);
  }
  shm::PayloadLocation location_of(const std::byte* data) const {
    if (data == nullptr) return {};
    return {shm::PayloadLocation::Kind::kArena, 0, static_cast<std::uint64_t>(data - view_.data())};
  }

  Machine machine_;
  std::unique_ptr<engine::DirectPages> board_;
  shm::Descriptor arena_;
  shm::Mapping view_;
  std::vector<std::unique_ptr<Seat>> seats_;
  std::atomic<std::uint64_t> faults_ = 0;
};

}  // namespace muster::client::test
