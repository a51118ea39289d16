// What a plan's start costs between the call and its launch: no heap, no lock but the one of the stream that
// takes it, no system call. Counted, not timed.
#include <muster/kernels.h>

#include "daemon/engine/resolve.hpp"
#include "kernels/device/host/pool.hpp"
#include "scheduler/run/executor.hpp"
#include "tests/api/client/running_ranks.hpp"
#include "tests/support/cost.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>

#include <unistd.h>

namespace {

using muster::test::Cost;
using muster::test::CostCounter;
using muster::test::Member;
using muster::test::Vector;
namespace engine = muster::engine;
namespace scheduler = muster::scheduler;
namespace shm = muster::shm;

constexpr int kWarm = 200;  // starts before one is counted: what grows has grown

void expect_nothing(const Cost& cost, const char* what) {
  EXPECT_EQ(cost.allocations, 0u) << what;
  EXPECT_EQ(cost.locks, 0u) << what;
  EXPECT_EQ(cost.system_calls, 0u) << what << ": system call " << cost.first_system_call;
}

// From there on a test is about system calls alone.
void skip_where_calls_are_not_counted() {
  if (!muster::test::counts_system_calls())
    GTEST_SKIP() << "this kernel or build cannot tell of system calls";
}

// Goal:   a counter that counts nothing would find nothing.
TEST(CostCounter, CountsWhatThereIs) {
  std::mutex mutex;
  std::unique_ptr<int> made;
  CostCounter counter;
  made = std::make_unique<int>(1);
  std::atomic<void*> plain = std::malloc(16);  // atomic: not to be optimised away
  mutex.lock();
  const Cost heap_and_lock = counter.stop();
  mutex.unlock();
  std::free(plain);
#if defined(MUSTER_SANITIZED)
  EXPECT_EQ(heap_and_lock.allocations, 1u);
#else
  EXPECT_EQ(heap_and_lock.allocations, 2u);
  EXPECT_EQ(heap_and_lock.locks, 1u);
#endif
  EXPECT_EQ(heap_and_lock.system_calls, 0u);
  skip_where_calls_are_not_counted();
  if (IsSkipped()) return;
  CostCounter calls;
  static_cast<void>(::getppid());
  EXPECT_EQ(calls.stop().system_calls, 1u);
}

class StartCost : public muster::test::RunningRanks {};

// So many attempts must cost nothing; of the others each may meet a sleeper, whom to wake is a system call.
constexpr int kQuiet = 20;

// Neither heap nor lock ever, and no system call kQuiet times of at most `attempts`.
template<class Attempt>
void expect_mostly_nothing(int attempts, const char* what, Attempt attempt) {
  int quiet = 0;
  for (int i = 0; i < attempts && quiet < kQuiet; ++i) {
    const Cost cost = attempt();
    EXPECT_EQ(cost.allocations, 0u) << what;
    EXPECT_EQ(cost.locks, 0u) << what;
    if (cost.system_calls == 0) ++quiet;
  }
  EXPECT_EQ(quiet, kQuiet) << what << ", of " << attempts << " attempts";
}

// Goal:   the client's side: a start, also of several and with new counts, a test of a point, and a run whose
//         members are all there.
TEST_F(StartCost, IsNothingInTheClient) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 64);
    const muster_collective c = all_reduce(member, v, v, 64);
    muster_plan plan = 0;
    ASSERT_EQ(muster_plan_collective(member.session, &c, &plan), MUSTER_OK) << muster_last_error();
    const muster_submit submit = MUSTER_SUBMIT_INIT;
    muster_point point = 0;
    for (int i = 0; i < kWarm; ++i) {
      ASSERT_EQ(muster_plan_start(member.session, plan, &submit, &point), MUSTER_OK);
      ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK);
      ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK);
    }
    // The start before has woken the engine: a doorbell for a sleeper is a system call, and meant to be. It
    // may have fallen asleep again, so not every one counts.
    const auto after_a_start = [&](auto call) {
      EXPECT_EQ(muster_plan_start(member.session, plan, &submit, &point), MUSTER_OK);
      CostCounter counter;
      const muster_status_t status = call();
      const Cost cost = counter.stop();
      EXPECT_EQ(status, MUSTER_OK);
      EXPECT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK);
      return cost;
    };
    expect_mostly_nothing(200, "muster_plan_start", [&] {
      return after_a_start([&] { return muster_plan_start(member.session, plan, &submit, &point); });
    });
    muster_batch_entry entries[2] = {{plan, submit, 0}, {plan, submit, 0}};
    entries[1].submit.lane = MUSTER_LANE_SMALL;
    entries[1].submit.wait_count = 1;
    entries[1].submit.waits[0] = MUSTER_POINT_OF_ENTRY(0);
    ASSERT_EQ(muster_plan_start_batch(member.session, entries, std::size(entries)), MUSTER_OK);
    expect_mostly_nothing(200, "muster_plan_start_batch", [&] {
      const Cost cost =
          after_a_start([&] { return muster_plan_start_batch(member.session, entries, std::size(entries)); });
      EXPECT_EQ(muster_point_wait(member.session, entries[1].point, -1), MUSTER_OK);
      return cost;
    });
    std::uint64_t count = 64;
    expect_mostly_nothing(200, "muster_plan_start with new counts", [&] {
      count = 65 - count;
      EXPECT_EQ(muster_plan_recount(member.session, plan, count, nullptr, nullptr), MUSTER_OK);
      CostCounter counter;
      const muster_status_t status = muster_plan_start(member.session, plan, &submit, &point);
      const Cost cost = counter.stop();
      EXPECT_EQ(status, MUSTER_OK);
      EXPECT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK);
      return cost;
    });
    CostCounter test;
    EXPECT_EQ(muster_point_test(member.session, point), MUSTER_OK);
    expect_nothing(test.stop(), "muster_point_test");
    muster_group_info info = MUSTER_GROUP_INFO_INIT;
    std::size_t members = 0;
    ASSERT_EQ(muster_group_query(member.session, member.group, &info), MUSTER_OK);
    CostCounter query;
    EXPECT_EQ(muster_group_query(member.session, member.group, &info), MUSTER_OK);
    EXPECT_EQ(muster_group_ranks(member.session, member.group, nullptr, 0, &members), MUSTER_OK);
    expect_nothing(query.stop(), "queries of a group that is known");
    CostCounter run;
    const muster_status_t status = muster_plan_run(member.session, plan, 0);
    const Cost cost = run.stop();
    EXPECT_EQ(status, MUSTER_OK);
    expect_nothing(cost, "muster_plan_run");
  });
  skip_where_calls_are_not_counted();
}

// Goal:   who runs and finds its peer already there asks nobody for anything.
// Method: the peer says that it is about to run, and a while later the other does. Where that while was too
//         short or too long somebody has given a core away or slept, so not every run counts.
TEST_F(StartCost, IsNothingInARunWhosePeerHasArrived) {
  constexpr int kAttempts = 20'000;
  std::atomic<int> peer_at{0};
  std::atomic<bool> enough{false};
  with_ranks(2, [&](Member& member) {
    const Vector source = vector_of(member, 64);
    const Vector target = vector_of(member, 64);
    const muster_collective c = all_reduce(member, source, target, 64);
    muster_plan plan = 0;
    ASSERT_EQ(muster_plan_collective(member.session, &c, &plan), MUSTER_OK) << muster_last_error();
    for (int i = 0; i < kWarm; ++i) ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK);
    if (member.rank == 1) {
      // Who has enough says so before its last run.
      for (bool last = false; !last;) {
        ++peer_at;
        ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK);
        while (peer_at.load() > 0) std::this_thread::yield();
        last = enough;
      }
      return;
    }
    int runs = 0;
    expect_mostly_nothing(kAttempts, "muster_plan_run", [&] {
      while (peer_at.load() == 0) std::this_thread::yield();
      const auto begin = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - begin < std::chrono::microseconds(runs % 8)) {
      }
      ++runs;
      CostCounter counter;
      const muster_status_t status = muster_plan_run(member.session, plan, 0);
      const Cost cost = counter.stop();
      EXPECT_EQ(status, MUSTER_OK);
      peer_at = 0;
      return cost;
    });
    while (peer_at.load() == 0) std::this_thread::yield();
    ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK);
    enough = true;
    peer_at = 0;
    std::printf("%d runs beside a peer, until %d cost nothing\n", runs, kQuiet);
  });
  skip_where_calls_are_not_counted();
}

// ---- the engine's side: from the ring to the stream, with nothing of it left out but its threads

class Launcher final : public scheduler::Actions {
 public:
  void launch(std::uint32_t index, const scheduler::Step& step) override {
    launched += executor->launch(index, step).ok() ? 1 : 0;
  }
  void reached(muster::Rank, std::uint32_t, std::uint64_t) override {}
  void stopped(muster::Rank, std::uint32_t, std::uint64_t, const scheduler::Verdict&) override {}
  void resumed(muster::Rank, std::uint32_t, std::uint64_t) override {}
  void retired(muster::Rank, std::uint32_t, std::uint64_t, scheduler::Plan& plan, bool) override {
    --plan.starts_in_flight;
  }
  scheduler::Executor* executor = nullptr;
  int launched = 0;
};

struct Rank {
  std::unique_ptr<engine::Arena> arena;
  std::unique_ptr<engine::Session> session;
  std::optional<shm::RingWriter<>> ring;
  std::uint64_t plan = 0;
  std::uint64_t kernel = 0;
};

class EngineSide : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kRanks = 4;

  void SetUp() override {
    device_ = *muster::device::host::open_device(*pool_);
    std::vector<std::unique_ptr<muster::transport::Communicator>> communicators;
    communicators.push_back(*muster::transport::open_loopback(kRanks));
    scheduler::Group group{"world", {}};
    for (std::uint32_t r = 0; r < kRanks; ++r) group.ranks.push_back(muster::Rank(r));
    graph_.emplace(scheduler::GraphOptions{kRanks, 1024, 8}, std::vector{group}, launcher_);
    executor_.emplace(*scheduler::Executor::open(*device_, kRanks, kRanks * MUSTER_LANE_COUNT * 8,
                                                 std::move(communicators)));
    launcher_.executor = &*executor_;
    for (std::uint32_t r = 0; r < kRanks; ++r) ranks_.push_back(make_rank(r));
  }

  Rank make_rank(std::uint32_t r) {
    Rank rank;
    rank.arena = std::make_unique<engine::Arena>(*device_, engine::Arena::Options{8 << 20, 1 << 20});
    const shm::Headroom headroom;
    auto submission = *shm::SubmissionView::create(headroom);
    auto client = *shm::SubmissionView::attach(*read_write(submission.descriptor().get()));
    auto page = *shm::CompletionView::create(r + 1, 1, headroom);
    engine::SessionOptions options;
    options.rank = muster::Rank(r);
    options.id = muster::SessionId(r + 1);
    options.buffers_max = options.plans_max = 8;
    options.deadline = std::chrono::seconds(60);
    options.groups = &table_;
    rank.ring.emplace(shm::ring_writer(client, page));
    clients_.push_back(std::move(client));
    rank.session =
        std::make_unique<engine::Session>(options, std::move(submission), std::move(page), *rank.arena);
    graph_->attached(options.rank);
    shm::PlanCollective said;
    said.op = MUSTER_ALL_REDUCE;
    said.dtype = MUSTER_F32;
    said.redop = MUSTER_SUM;
    said.group = muster::Handle(0, 1).bits;
    said.count = 100;
    engine::Buffer memory;
    memory.grant = *rank.arena->allocate(400);
    memory.bytes = 400;
    const auto buffer = *rank.session->add_buffer(std::move(memory));
    said.source = said.target = {buffer.bits, 0};
    const engine::Scope scope{*rank.session, graph_->groups(), table_};
    rank.plan = rank.session->add_plan(*engine::resolve_collective(scope, said, {}), said)->bits;
    const muster_kernel fill = muster_fill(muster_view1(buffer.bits, 0, MUSTER_F32, 100), 1.0);
    rank.kernel = rank.session->add_plan(*engine::resolve_kernel(scope, fill))->bits;
    return rank;
  }
  static std::optional<shm::Descriptor> read_write(int memory) { return shm::Descriptor(::dup(memory)); }

  static void push(Rank& rank, std::uint64_t plan, muster_lane lane, muster_point wait = 0) {
    shm::Command command;
    command.kind = shm::CommandKind::kStart;
    command.lane = static_cast<std::uint16_t>(lane);
    command.plan = plan;
    command.waits[0] = wait;
    ASSERT_EQ(rank.ring->push(command), muster::Code::kOk);
  }
  // What it costs to take all commands out of the rings.
  Cost drain() {
    CostCounter counter;
    bool drained = true;
    for (Rank& rank : ranks_) drained = rank.session->drain(*graph_, now_).has_value() && drained;
    const Cost cost = counter.stop();
    EXPECT_TRUE(drained);
    return cost;
  }
  // What it costs to hear of what has run, and to launch what waited for it.
  Cost hear() {
    while (pool_->run_once() > 0) {
    }
    CostCounter counter;
    executor_->poll([&](const scheduler::Finished& f) { graph_->finished(f.step_index, now_); });
    return counter.stop();
  }
  static void expect_no_heap_or_system_call(const Cost& cost) {
    EXPECT_EQ(cost.allocations, 0u);
    EXPECT_EQ(cost.system_calls, 0u) << "system call " << cost.first_system_call;
  }

  muster::Instant now_{std::chrono::hours(1)};
  std::unique_ptr<muster::device::host::Pool> pool_ = muster::device::host::Pool::open_manual({});
  std::unique_ptr<muster::device::Device> device_;
  Launcher launcher_;
  engine::GroupTable table_{{1, 2, 0}, 1};
  std::optional<scheduler::Graph> graph_;
  std::optional<scheduler::Executor> executor_;
  std::vector<shm::SubmissionView> clients_;
  std::vector<Rank> ranks_;
};

TEST_F(EngineSide, TakesAStartToItsStreamWithoutHeapOrSystemCall) {
  for (int i = 0; i < kWarm; ++i) {
    for (Rank& rank : ranks_) push(rank, rank.plan, MUSTER_LANE_SMALL);
    const int before = launcher_.launched;
    const Cost cost = drain();
    ASSERT_EQ(launcher_.launched, before + 1);
    hear();
    if (i < kWarm / 2) continue;
    expect_no_heap_or_system_call(cost);
    // The stream's own: one for the work, one for the mark behind it. Never contended for longer than a list
    // operation.
    EXPECT_LE(cost.locks, 2u);
  }
  skip_where_calls_are_not_counted();
}

// Goal:   the same for kernels, and for starts that wait for them on another lane.
TEST_F(EngineSide, TakesKernelsAndWhoWaitsForThemWithoutHeapOrSystemCall) {
  for (int i = 0; i < kWarm; ++i) {
    const auto value = static_cast<std::uint64_t>(i) + 1;
    for (Rank& rank : ranks_) {
      push(rank, rank.kernel, MUSTER_LANE_COMPUTE);
      push(rank, rank.plan, MUSTER_LANE_SMALL, shm::make_point(MUSTER_LANE_COMPUTE, value));
    }
    const int before = launcher_.launched;
    const Cost of_kernels = drain();
    ASSERT_EQ(launcher_.launched, before + static_cast<int>(kRanks)) << "the collective waits";
    const Cost of_the_waiting = hear();
    ASSERT_EQ(launcher_.launched, before + static_cast<int>(kRanks) + 1);
    hear();
    if (i < kWarm / 2) continue;
    expect_no_heap_or_system_call(of_kernels);
    expect_no_heap_or_system_call(of_the_waiting);
    EXPECT_LE(of_kernels.locks, 2u * kRanks);
    EXPECT_LE(of_the_waiting.locks, 2u);
  }
  skip_where_calls_are_not_counted();
}

}  // namespace
