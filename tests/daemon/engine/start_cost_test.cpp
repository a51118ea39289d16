// The cost of a start in the engine, from its command in the ring to its launch. It counts whole turns of a
// real engine, whose pool the test drives by hand. Nothing is warm: the first start of each lane, plan and
// pair counts like any other, and each turn looks at its timers too.
#include "daemon/engine/job/engine.hpp"

#include "kernels/device/host/device.hpp"
#include "kernels/device/registry.hpp"
#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/daemon/engine/ring_client.hpp"
#include "tests/support/cost.hpp"
#include "tests/support/manual_clock.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <muster/kernels.h>
#include <sys/syscall.h>

namespace muster::engine {
namespace {

using muster::test::Cost;
using muster::test::CostCounter;

constexpr std::uint32_t kWorld = 4;
constexpr std::uint64_t kCount = 24;       // elements of a vector, or of a block
constexpr std::uint64_t kRoom = 16 << 10;  // bytes of each vector
constexpr std::uint64_t kUneven[kWorld] = {3, 0, 7, 5};
constexpr Nanos kTimersPeriod = std::chrono::milliseconds(100);  // all of them are due in each turn

// The engine's lock, at the turn's beginning, before it reads a start.
constexpr std::uint64_t kLocksOfATurn = 1;
#if defined(MUSTER_SANITIZED)
constexpr bool kCountsLocks = false;
#else
constexpr bool kCountsLocks = true;
#endif

// One rank's client, with a vector for each side.
struct Seat {
  Seat(Engine& engine, Session& session)
      : client(session), source(client.buffer(engine, kRoom)), target(client.buffer(engine, kRoom)) {}
  test::RingClient client;
  std::uint64_t source;
  std::uint64_t target;
};

// A start of one rank, and what its operation is for messages.
struct Part {
  std::uint32_t rank = 0;
  std::uint64_t plan = 0;
};
struct Operation {
  std::string name;
  std::vector<Part> parts;
};

class StartCost : public ::testing::Test {
 protected:
  void SetUp() override {
    auto engine = Engine::create(test::small_job(kWorld), clock_, nullptr, Engine::Pooling::kByHand);
    ASSERT_TRUE(engine) << engine.error().text();
    engine_ = *std::move(engine);
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
      auto attached = engine_->attach(Rank(rank), 1);
      ASSERT_TRUE(attached) << attached.error().text();
      seats_.push_back(std::make_unique<Seat>(*engine_, *attached->session));
    }
  }

  // ---- plans
  std::uint64_t plan(std::uint32_t rank, shm::PlanCollective said, const CollectiveLists& lists = {}) {
    Seat& seat = *seats_[rank];
    if (said.group == 0) said.group = kAll;
    if (said.op != MUSTER_BARRIER) said.dtype = MUSTER_F32;
    if (has_reduction(said.op)) said.redop = MUSTER_SUM;
    if (said.op != MUSTER_BARRIER && said.op != MUSTER_EXCHANGE) {
      said.source = {seat.source, 0};
      if (said.target.offset_bytes != 0) said.target.buffer = seat.source;
      if (said.target.offset_bytes == 0) said.target = {seat.target, 0};
    }
    const auto made = engine_->plans().collective(seat.client.session(), said, lists);
    EXPECT_TRUE(made) << op_name(said.op) << ": " << made.error().text();
    return made ? made->bits : 0;
  }
  // With equally long blocks, or with a list of lengths where there are some. target_offset: not 0 for a
  // target in the source's buffer.
  Operation collective(muster_op op, bool uneven, std::uint64_t target_offset = 0) {
    Operation operation{std::string(op_name(op)) + (uneven ? " with counts" : ""), {}};
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
      shm::PlanCollective said;
      said.op = op;
      said.count = op == MUSTER_BARRIER || op == MUSTER_EXCHANGE ? 0 : kCount;
      said.target.offset_bytes = target_offset;
      const bool is_root = rank == kRoot;
      if (has_root(op)) said.peer = kRoot;
      CollectiveLists lists;
      if (uneven) {
        std::vector<std::uint64_t> lengths(std::begin(kUneven), std::end(kUneven));
        if (op == MUSTER_ALL_TO_ALL)
          for (std::uint64_t& length : lengths) length += kUneven[rank];
        if (has_source_blocks(op, is_root)) lists.source_counts = lengths;
        if (has_target_blocks(op, is_root)) lists.target_counts = lengths;
        if (is_pairwise(op) && !is_root) said.count = kUneven[rank];
      }
      if (op == MUSTER_EXCHANGE) {
        lists.sends = {face((rank + 1) % kWorld, seats_[rank]->source)};
        lists.receives = {face((rank + kWorld - 1) % kWorld, seats_[rank]->target)};
      }
      operation.parts.push_back({rank, plan(rank, said, lists)});
    }
    return operation;
  }
  static muster_face face(std::uint32_t peer, std::uint64_t buffer) {
    return {static_cast<std::int32_t>(peer), 0, muster_view1(buffer, 0, MUSTER_F32, kCount)};
  }
  Operation message(std::uint32_t sender, std::uint32_t receiver) {
    Operation operation{fmt::format("send from {} to {}", sender, receiver), {}};
    shm::PlanCollective said;
    said.count = kCount;
    said.op = MUSTER_SEND;
    said.peer = static_cast<std::int32_t>(receiver);
    operation.parts.push_back({sender, plan(sender, said)});
    said.op = MUSTER_RECV;
    said.peer = static_cast<std::int32_t>(sender);
    operation.parts.push_back({receiver, plan(receiver, said)});
    return operation;
  }
  Operation kernel() {
    Operation operation{"fill", {}};
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
      Seat& seat = *seats_[rank];
      const muster_kernel fill = muster_fill(muster_view1(seat.source, 0, MUSTER_F32, kCount), 1.0);
      const auto made = engine_->plans().kernel(seat.client.session(), fill);
      EXPECT_TRUE(made) << made.error().text();
      operation.parts.push_back({rank, made->bits});
    }
    return operation;
  }
  std::vector<Operation> every_operation() {
    std::vector<Operation> all{kernel()};
    for (const muster_op op :
         {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_BROADCAST, MUSTER_BARRIER,
          MUSTER_REDUCE, MUSTER_GATHER, MUSTER_SCATTER, MUSTER_ALL_TO_ALL, MUSTER_EXCHANGE})
      all.push_back(collective(op, false));
    for (const muster_op op :
         {MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_GATHER, MUSTER_SCATTER, MUSTER_ALL_TO_ALL})
      all.push_back(collective(op, true));
    for (std::uint32_t sender = 0; sender < kWorld; ++sender)
      for (std::uint32_t receiver = 0; receiver < kWorld; ++receiver)
        if (sender != receiver) all.push_back(message(sender, receiver));
    return all;
  }

  // ---- what the clients do
  void start(const Operation& operation, muster_lane lane, std::uint64_t wait = 0) {
    for (const Part& part : operation.parts) seats_[part.rank]->client.start(part.plan, lane, wait);
  }
  // New counts for the part of one rank: `count` of each block, or lists.
  void recount(const Part& part, std::uint64_t count, const std::vector<std::uint64_t>& sources,
               const std::vector<std::uint64_t>& targets) {
    shm::Command last;
    last.kind = shm::Command::Kind::kRecount;
    last.plan = part.plan;
    last.deadline_ns = count;
    const auto list = [&](shm::Command::CountList which, const std::vector<std::uint64_t>& numbers) {
      if (numbers.empty()) return;
      ASSERT_LE(numbers.size(), std::size_t{MUSTER_WAITS_MAX});
      shm::Command command;
      command.kind = shm::Command::Kind::kNumbers;
      command.lane = static_cast<std::uint16_t>(which);
      std::copy(numbers.begin(), numbers.end(), command.waits);
      seats_[part.rank]->client.push(command);
      last.waits[static_cast<std::size_t>(which)] = numbers.size();
    };
    list(shm::Command::CountList::kSourceCounts, sources);
    list(shm::Command::CountList::kTargetCounts, targets);
    seats_[part.rank]->client.push(last);
  }

  // ---- what the engine does
  Cost turn() {
    clock_.advance(kTimersPeriod);
    CostCounter counter;
    static_cast<void>(engine_->run_once());
    return counter.stop();
  }
  void run_parts(std::size_t parts) {
    for (std::size_t i = 0; i < parts; ++i) ASSERT_EQ(engine_->run_once(), 1u);
  }
  // Runs all there is, and looks whether all starts have come to their end.
  void settle(const std::string& what) {
    while (engine_->run_once() > 0) {
    }
    for (const auto& seat : seats_)
      for (muster_lane lane = 0; lane < MUSTER_LANE_CLASSES; ++lane)
        ASSERT_EQ(seat->client.latest(lane), Code::kOk) << what << " on lane " << lane;
  }
  static void expect_free(const Cost& cost, const std::string& what) {
    EXPECT_EQ(cost.allocations, 0u) << what;
    EXPECT_EQ(cost.system_calls, 0u) << what << ": system call " << cost.first_system_call;
    EXPECT_EQ(cost.locks, kCountsLocks ? kLocksOfATurn : 0) << what;
  }

  static constexpr std::uint64_t kAll = Handle(0, 77).bits;
  static constexpr std::uint32_t kRoot = 1;
  muster::test::ManualClock clock_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::unique_ptr<Seat>> seats_;
};

void skip_where_calls_are_not_counted() {
  if (!muster::test::counts_system_calls())
    GTEST_SKIP() << "this kernel or build cannot tell of system calls";
}

TEST_F(StartCost, IsNoHeapNoSystemCallAndNoLockButTheTurnsBaton) {
  const std::vector<Operation> all = every_operation();
  for (const Operation& operation : all)
    for (muster_lane lane = 0; lane < MUSTER_LANE_CLASSES; ++lane) {
      start(operation, lane);
      expect_free(turn(), fmt::format("{} on lane {}", operation.name, lane));
      settle(operation.name);
      if (HasFailure()) return;
    }
  skip_where_calls_are_not_counted();
}

// Goal:   offsets are checked, blocks and all, without heap.
TEST_F(StartCost, IsTheSameWithOffsets) {
  for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_BROADCAST,
                             MUSTER_REDUCE, MUSTER_GATHER, MUSTER_SCATTER, MUSTER_ALL_TO_ALL})
    for (const bool uneven : {false, true}) {
      const bool has_blocks = has_source_blocks(op, true) || has_target_blocks(op, true);
      if (uneven && !has_blocks) continue;
      const Operation operation = collective(op, uneven, kRoom / 2);
      for (muster_lane lane = 0; lane < MUSTER_LANE_CLASSES; ++lane) {
        for (const Part& part : operation.parts)
          seats_[part.rank]->client.start_at(part.plan, lane, 64 * (lane + part.rank), kRoom / 4);
        expect_free(turn(), fmt::format("{} with offsets on lane {}", operation.name, lane));
        settle(operation.name);
        if (HasFailure()) return;
      }
    }
  skip_where_calls_are_not_counted();
}

// Goal:   the same in a turn that hears of ends, for a start that has waited for one of them.
TEST_F(StartCost, IsTheSameForWhatHasWaited) {
  const Operation fill = kernel();
  const Operation reduce = collective(MUSTER_ALL_REDUCE, false);
  for (std::uint64_t i = 1; i <= 2 * FlightLog::kEntriesPerLane; ++i) {
    start(fill, MUSTER_LANE_COMPUTE);
    start(reduce, MUSTER_LANE_SMALL, shm::make_point(MUSTER_LANE_COMPUTE, i));
    expect_free(turn(), "kernels");
    run_parts(kWorld);
    expect_free(turn(), "who waited for them");
    run_parts(1);
    expect_free(turn(), "a turn that hears of the end");
    settle("fill, then all_reduce");
    if (HasFailure()) return;
  }
  skip_where_calls_are_not_counted();
}

// Goal:   a group that comes later, whose name is too long to be copied without heap.
TEST_F(StartCost, IsTheSameInAGroupMadeLater) {
  constexpr std::int32_t kMembers[] = {3, 0, 2};
  Operation reduce{"all_reduce of a made group", {}};
  for (const std::int32_t member : kMembers) {
    const auto rank = static_cast<std::uint32_t>(member);
    const auto group = engine_->groups().make(seats_[rank]->client.session(),
                                              "those who are left after a departure", kMembers);
    ASSERT_TRUE(group) << group.error().text();
    shm::PlanCollective said;
    said.op = MUSTER_ALL_REDUCE;
    said.group = *group;
    said.count = kCount;
    reduce.parts.push_back({rank, plan(rank, said)});
  }
  for (muster_lane lane = 0; lane < MUSTER_LANE_CLASSES; ++lane) {
    start(reduce, lane);
    expect_free(turn(), fmt::format("lane {}", lane));
    run_parts(1);
    expect_free(turn(), fmt::format("the end on lane {}", lane));
    settle(reduce.name);
  }
  skip_where_calls_are_not_counted();
}

// Goal:   a rank that attaches anew, and pairs that have failed, leave nothing to be made later.
TEST_F(StartCost, IsTheSameForAnotherClientOfTheRank) {
  const std::uint32_t rank = kWorld - 1;
  engine_->detach(Rank(rank), "rank 3 left");
  auto attached = engine_->attach(Rank(rank), 1);
  ASSERT_TRUE(attached) << attached.error().text();
  seats_[rank] = std::make_unique<Seat>(*engine_, *attached->session);
  // The others are told of the departure with their next operation of each place.
  const Operation missed = collective(MUSTER_BARRIER, false);
  for (muster_lane lane = 0; lane < MUSTER_LANE_CLASSES; ++lane)
    for (const Part& part : missed.parts) {
      if (part.rank == rank) continue;
      seats_[part.rank]->client.start(part.plan, lane);
      seats_[part.rank]->client.reset(lane);
    }
  while (engine_->run_once() > 0) {
  }
  for (muster_lane lane = 0; lane < MUSTER_LANE_CLASSES; ++lane) {
    start(missed, lane);
    expect_free(turn(), fmt::format("a barrier on lane {}", lane));
    while (engine_->run_once() > 0) {
    }
  }
  skip_where_calls_are_not_counted();
}

// Goal:   new counts make the plan anew in the turn that takes them, which is what they cost; the start
//         behind them costs what a start costs.
TEST_F(StartCost, IsTheSameAfterNewCountsWhichCostHeapThemselves) {
  const Operation reduce = collective(MUSTER_ALL_REDUCE, false);
  const Operation exchange = collective(MUSTER_ALL_TO_ALL, true);
  const Operation gather = collective(MUSTER_ALL_GATHER, true);
  const Operation sent = message(0, 1);
  for (std::uint64_t i = 1; i <= 8; ++i) {
    const std::vector<std::uint64_t> lengths{i, 2, 0, 1};
    for (const Part& part : reduce.parts) recount(part, i, {}, {});
    for (const Part& part : sent.parts) recount(part, i, {}, {});
    for (const Part& part : gather.parts) recount(part, 0, {}, lengths);
    for (const Part& part : exchange.parts) {
      std::vector<std::uint64_t> own(kWorld, i);
      own[part.rank] = i + 1;
      recount(part, 0, own, own);
    }
    const Cost of_counts = turn();
    EXPECT_GT(of_counts.allocations, 0u);
    for (const Operation* operation : {&reduce, &exchange, &gather, &sent}) {
      start(*operation, MUSTER_LANE_COPY);
      expect_free(turn(), operation->name + " with new counts");
      settle(operation->name);
    }
    if (HasFailure()) return;
  }
  skip_where_calls_are_not_counted();
}

// A turn that puts two tasks on a stream, and what that cost; the worker who does it sleeps between turns.
class Launcher final : public device::IdleProgress {
 public:
  static constexpr std::uint32_t kWorkers = 4;
  std::size_t do_work() override {
    if (!asked_.exchange(false)) return 0;
    CostCounter counter;
    put = device::host::enqueue(*stream, wide_).ok() && device::host::enqueue(*stream, wide_).ok();
    cost = counter.stop();
    has_launched_ = true;
    return 1;
  }
  bool arm() override { return !asked_; }
  void wait(Nanos bound) override {
    std::unique_lock lock(bell_);
    ringing_.wait_for(lock, bound, [this] { return std::exchange(rung_, false); });
  }
  void wake() noexcept override {
    const std::lock_guard lock(bell_);
    rung_ = true;
    ringing_.notify_one();
  }

  // Has the turn done, by whichever worker has it.
  void launch() {
    has_launched_ = false;
    asked_ = true;
    wake();
    while (!has_launched_) std::this_thread::yield();
  }

  device::Stream* stream = nullptr;
  bool put = false;
  Cost cost;

 private:
  // Ends when all parts are inside: on a worker each.
  static void meet(const void* self, std::uint32_t) {
    const auto* launcher = static_cast<const Launcher*>(self);
    const std::uint64_t mine = launcher->inside_.fetch_add(1);
    while (launcher->inside_ < (mine / kWorkers + 1) * kWorkers) std::this_thread::yield();
  }
  const device::host::Task wide_{&meet, this, kWorkers};
  mutable std::atomic<std::uint64_t> inside_{0};
  std::atomic<bool> asked_{false};
  std::atomic<bool> has_launched_{false};
  std::mutex bell_;
  std::condition_variable ringing_;
  bool rung_ = false;
};

// Goal:   with real workers too, most of which sleep, a launch in a turn of progress wakes none of them
//         there. They all come after it.
TEST(StartCostOfATurn, IsTheSameWhileOtherWorkersSleep) {
  Launcher launcher;
  const auto pool =
      *device::Pool::start({.workers = Launcher::kWorkers, .spin = Nanos{0}, .progress = &launcher});
  const auto device = *device::open({}, *pool);
  const auto stream = *device->open_stream(device::Priority::kNormal);
  launcher.stream = stream.get();
  for (int i = 0; i < 200; ++i) {
    launcher.launch();
    ASSERT_TRUE(launcher.put);
    EXPECT_EQ(launcher.cost.allocations, 0u);
    EXPECT_EQ(launcher.cost.locks, 0u);
    EXPECT_EQ(launcher.cost.system_calls, 0u) << "system call " << launcher.cost.first_system_call;
    ASSERT_TRUE(stream->synchronize().ok());
  }
  pool->halt();
  skip_where_calls_are_not_counted();
}

// Goal:   where work comes from outside for a worker that sleeps, what is called is its futex.
// Method: a pool whose workers lie down at once; by chance one may still be up.
TEST(StartCostOfASleeper, IsTheCallThatWakesIt) {
  const auto pool = *device::Pool::start({.workers = 1, .spin = Nanos{0}});
  const auto device = *device::open({}, *pool);
  const auto stream = *device->open_stream(device::Priority::kNormal);
  const device::host::Task nothing{[](const void*, std::uint32_t) {}, nullptr, 1};
  bool woken = false;
  for (int i = 0; i < 500 && !woken; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CostCounter counter;
    const Status status = device::host::enqueue(*stream, nothing);
    const Cost cost = counter.stop();
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_EQ(cost.allocations, 0u);
    woken = cost.system_calls > 0;
    if (woken) {
      EXPECT_EQ(cost.first_system_call, SYS_futex);
    }
    ASSERT_TRUE(stream->synchronize().ok());
  }
  EXPECT_TRUE(woken || !muster::test::counts_system_calls());
  skip_where_calls_are_not_counted();
}

}  // namespace
}  // namespace muster::engine
