// The threads of a model: members of a group that run operations, and the engine that ends epochs.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "api/client/direct/algorithms.hpp"
#include "tests/models/job.hpp"

namespace muster::model {

// The engine's answers, each a turn with the engine lock.
//
// Owns    the engine lock. Thread  any of the model's. Bound  one end a call. Fails  never.
class Engine {
 public:
  explicit Engine(Job& job) : job_(job) {}

  // daemon/engine: an abort, a broken protocol.
  void abort(GroupId group) {
    const Turn turn(lock_);
    end(group, Code::kAborted, Why::kOther);
  }

  // daemon/engine/job/direct_service.cpp: overdue().
  void overdue(const engine::DirectQuestion& q) {
    const Turn turn(lock_);
    engine::DirectPages& board = job_.board();
    if (q.epoch != board.epochs().present(q.group) || board.records().missing(q).empty()) return;
    end(q.group, Code::kTimeout, Why::kOther);
  }

  // The rank's launcher reports that the rank will not come back.
  void absent(GroupId group) {
    const Turn turn(lock_);
    job_.board().epochs().set_absence(group, end(group, Code::kPeerLost, Why::kLoss));
  }

  // The rank's process is gone, and another takes its place.
  void depart(std::uint32_t rank, GroupId group) {
    const Turn turn(lock_);
    job_.board().segments().set_attached(Rank(rank), false);
    end(group, Code::kPeerLost, Why::kLoss);
  }
  std::unique_ptr<client::Channel> attach(std::uint32_t rank, std::uint32_t group, client::WaitHooks& hooks) {
    const Turn turn(lock_);
    job_.board().reset(Rank(rank), false);
    job_.board().segments().set_attached(Rank(rank), true);
    job_.board().epochs().set_absence(GroupId(group), nullptr);
    return job_.join(group, rank, hooks);
  }

  // daemon/engine/job/direct_service.cpp: end(). False: the epoch goes on.
  bool tell_end(GroupId group, client::Channel& channel) {
    const Turn turn(lock_);
    engine::DirectPages& board = job_.board();
    const std::uint64_t epoch = channel.view().epoch();
    if (board.epochs().cause_of(group, epoch) == nullptr) return false;
    const std::uint64_t next = board.epochs().move_on(group, channel.index(), epoch);
    if (next != epoch)
      channel.move_on(next, next == board.epochs().present(group) ? board.epochs().base(group) : 0);
    return true;
  }

 private:
  using Why = scheduler::Epochs::Why;
  scheduler::CausePtr end(GroupId group, Code code, Why why) {
    auto cause = std::make_shared<const scheduler::Cause>(scheduler::Cause{code, -1, "", ++faults_});
    job_.board().epochs().end(group, cause, why);
    return cause;
  }
  struct Turn {
    explicit Turn(rl::mutex& lock) : held(lock) { held.lock(rl::debug_info("engine lock")); }
    ~Turn() { held.unlock(rl::debug_info("engine lock")); }
    rl::mutex& held;
  };
  Job& job_;
  rl::mutex lock_;
  static inline std::uint64_t faults_ = 0;  // over all schedules, as the board's epochs
};

// How an operation gets its contributions across, which decides what the protocol has to protect.
enum class What {
  kInline,     // ALL_REDUCE, in the slot's header
  kSlot,       // ALL_GATHER, behind it
  kStage,      // ALL_GATHER, in a stage
  kArena,      // BROADCAST, read where it is
  kRead,       // ALL_REDUCE, read where it is
  kReadPlace,  // the same, in place and in two chunks
  kSliced,     // ALL_REDUCE by slices, three chunks
};

// A rank's place in one group, as a process has it. Each contribution names its member, epoch and
// operation, and every result is checked for them.
//
// Owns    its channel. Thread  one of the model's. Bound  operations of at most seven pieces.
// Fails   RL_ASSERT at a result that is not that of the operation, and at outcomes without a reason.
class Member final : public client::WaitHooks {
 public:
  Member(Job& job, Engine& engine, client::Stages& stages, std::uint32_t rank, std::uint32_t group = 0)
      : job_(job), engine_(engine), stages_(stages), rank_(rank), group_(group) {
    channel_ = job.join(group, rank, *this);
    first_ = channel_->view().epoch();
  }

  // One operation: true if it is done, false if it failed and its cause has been heard.
  bool run(What what) {
    const client::DirectPlan plan = prepared(what);
    client::WaitPolicy policy(timeout, true);
    const client::Outcome outcome = client::run_direct(plan, job_.memory(rank_), stages_, policy);
    if (outcome == client::Outcome::kDone) {
      check(what);
      if (epoch() == 0) completed |= 1u << channel_->number();
      return true;
    }
    RL_ASSERT(outcome == client::Outcome::kBroken || outcome == client::Outcome::kRefused);
    hear();
    return false;
  }

  // api/client/run/direct_path.cpp: hear(). A member that ends without a reason would have to end the epoch.
  void hear() {
    RL_ASSERT(channel_->view().closed());
    const std::uint64_t due = channel_->view().epoch();
    RL_ASSERT(engine_.tell_end(GroupId(group_), *channel_));
    RL_ASSERT(channel_->view().epoch() > due);
    ++heard;
  }

  // As an application that asks again and again whether it may go on.
  void await_end() {
    while (!channel_->view().closed()) rl::yield(1, rl::debug_info("await_end"));
    hear();
  }

  // A message to, or from, another member; the number is the pair's.
  bool transfer(std::uint32_t other, bool sends) {
    const std::uint64_t number =
        1 + (sends ? channel_->messages().sent_to(other) : channel_->messages().received_from(other));
    client::Described said = described(1);
    said.what.op = sends ? MUSTER_SEND : MUSTER_RECV;
    said.what.root = static_cast<std::int32_t>(sends ? channel_->index() : other);
    said.what.receiver = static_cast<std::int32_t>(sends ? other : channel_->index());
    if (!sends) said.mine.source_blocks.clear();
    if (sends) said.mine.target_blocks.clear();
    source_[0] = stamp(channel_->index(), number, 0);
    const client::DirectPlan plan = client::make_direct_plan(1, said, *channel_, kMachine, 1);
    client::WaitPolicy policy(timeout, true);
    const client::Outcome outcome = client::run_direct(plan, job_.memory(rank_), stages_, policy);
    RL_ASSERT(outcome == client::Outcome::kDone || outcome == client::Outcome::kBroken ||
              outcome == client::Outcome::kRefused);
    if (outcome != client::Outcome::kDone) {
      hear();
      return false;
    }
    if (!sends) RL_ASSERT(*target_word(0) == stamp(other, number, 0));
    return true;
  }

  // Comes to the next operation and is lost there: nothing more is said.
  void arrive_and_vanish(What what) {
    if (!channel_->begin()) return;
    give(what, channel_->number());
    const client::DirectPlan plan = plan_for(what);
    client::Announced& draft = channel_->arrivals().draft();
    draft = {plan.signature.common};
    shm::PayloadLocation location;
    if (what == What::kInline) copy(draft.inside, source_.data(), sizeof source_[0]);
    if (what == What::kArena && channel_->index() == 0) location = plan.home;
    if (what == What::kSlot) {
      location.kind = shm::PayloadLocation::Kind::kSlot;
      copy(channel_->arrivals().payload(), source_.data(), 8 * sizeof source_[0]);
    }
    draft.location_bits = shm::pack_location(location);
    channel_->arrive(1);
  }

  // Another process takes the rank's place.
  void attach_anew() { channel_ = engine_.attach(rank_, group_, *this); }

  // Epochs since the schedule began, and operations begun in the present one.
  std::uint64_t epoch() const { return channel_->view().epoch() - first_; }
  std::uint64_t number() const { return channel_->number(); }

  Nanos timeout = Nanos::max();  // of each operation
  std::uint32_t completed = 0;   // bit n: operation n of the first epoch
  std::uint32_t heard = 0;       // ends

  // ---- WaitHooks -----------------------------------------------------------------------------------
  Instant now() const override { return kNap * naps().ticks[rank_]; }
  bool engine_gone() override { return false; }
  void overdue(const client::Wanted& wanted) override {
    engine_.overdue({GroupId(group_), channel_->index(), wanted.epoch, wanted.position, wanted.phase,
                     wanted.kind, wanted.peer});
  }
  static constexpr Nanos kNap = std::chrono::milliseconds(5);

 private:
  static constexpr Machine kMachine{1, 2, true};  // crowded: few looks before a nap
  static constexpr std::uint64_t kPieceCount = kArenaStep / sizeof(std::uint64_t);

  // 16 bits a member, so that a sum shows the part of each.
  std::uint64_t stamp(std::uint32_t index, std::uint64_t number, std::uint64_t piece) const {
    return (1 + epoch() * 256 + number * 8 + piece) << (16 * index);
  }
  static std::uint64_t pieces(What what) {
    if (what == What::kSliced) return 6;
    return what == What::kReadPlace ? 2 : 1;
  }
  static bool in_arena(What what) { return what >= What::kArena; }

  std::byte* target(What what) {
    static std::array<std::vector<std::byte>, 8> memory;
    if (what == What::kReadPlace) return job_.arena(rank_);
    if (memory[rank_].empty()) memory[rank_].resize(kArenaBytes);
    return memory[rank_].data();
  }
  std::uint64_t* target_word(std::uint64_t offset) {
    return reinterpret_cast<std::uint64_t*>(target(What::kInline) + offset);
  }

  client::Described described(std::uint64_t count) {
    client::Described said;
    said.group = group_;
    said.what.op = MUSTER_ALL_REDUCE;
    said.what.dtype = MUSTER_I64;
    said.what.redop = MUSTER_SUM;
    said.what.count = count;
    said.mine.index = static_cast<std::int32_t>(channel_->index());
    said.mine.source = reinterpret_cast<const std::byte*>(source_.data());
    said.mine.target = target(What::kInline);
    said.mine.source_blocks = {{0, count}};
    said.mine.target_blocks = {{0, count}};
    said.home = {shm::PayloadLocation::Kind::kArena, 0, 0};
    return said;
  }

  client::DirectPlan prepared(What what) {
    give(what, channel_->number() + 1);
    return plan_for(what);
  }
  // An application writes its source once it has the operation before behind it.
  void give(What what, std::uint64_t number) {
    source_[0] = stamp(channel_->index(), number, 0);
    if (!in_arena(what) || (what == What::kArena && channel_->index() != 0)) return;
    for (std::uint64_t piece = 0; piece < pieces(what); ++piece) {
      const std::uint64_t value = stamp(channel_->index(), number, piece);
      copy(job_.arena(rank_) + piece * kArenaStep, &value, sizeof value);
    }
  }

  client::DirectPlan plan_for(What what) {
    const std::uint64_t counts[] = {1, 8, 1024, kPieceCount, kPieceCount, 2 * kPieceCount, 6 * kPieceCount};
    const std::uint64_t count = counts[static_cast<std::size_t>(what)];
    client::Described said = described(count);
    said.mine.target = target(what);
    if (in_arena(what)) said.mine.source = job_.arena(rank_);
    if (what == What::kSlot || what == What::kStage) {
      said.what.op = MUSTER_ALL_GATHER;
      said.mine.target_blocks.clear();
      for (std::uint64_t i = 0; i < channel_->members(); ++i)
        said.mine.target_blocks.push_back({i * count, count});
    }
    if (what == What::kArena) {
      said.what.op = MUSTER_BROADCAST;
      if (channel_->index() != 0) said.mine.source_blocks.clear();
      if (channel_->index() == 0) said.mine.target_blocks.clear();
    }
    client::DirectPlan plan = client::make_direct_plan(1, said, *channel_, kMachine, 1);
    plan.choice.algorithm = what == What::kInline                             ? Algorithm::kSmall
                            : what == What::kRead || what == What::kReadPlace ? Algorithm::kRead
                            : what == What::kSliced                           ? Algorithm::kSliced
                                                                              : Algorithm::kWhole;
    plan.body = client::body_of(plan.what, plan.choice);
    return plan;
  }

  // Every part of the result is what its member gave to this very operation.
  void check(What what) {
    const std::uint64_t number = channel_->number();
    const std::uint32_t members = channel_->members();
    if (what == What::kArena) {
      if (channel_->index() != 0) RL_ASSERT(*target_word(0) == stamp(0, number, 0));
      return;
    }
    for (std::uint64_t piece = 0; piece < pieces(what); ++piece) {
      std::uint64_t sum = 0;
      for (std::uint32_t i = 0; i < members; ++i) {
        if (what == What::kSlot || what == What::kStage)
          RL_ASSERT(*target_word(i * (what == What::kSlot ? 64 : 8192)) == stamp(i, number, 0));
        sum += stamp(i, number, piece);
      }
      if (what == What::kSlot || what == What::kStage) continue;
      std::uint64_t found = 0;
      copy(&found, target(what) + piece * kArenaStep, sizeof found);
      RL_ASSERT(found == sum);
    }
  }

  Job& job_;
  Engine& engine_;
  client::Stages& stages_;
  std::uint32_t rank_;
  std::uint32_t group_;
  std::unique_ptr<client::Channel> channel_;
  std::uint64_t first_ = 0;
  std::array<std::uint64_t, 1024> source_{};
};

}  // namespace muster::model
