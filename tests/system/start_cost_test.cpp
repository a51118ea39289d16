// The cost of starts and runs in the client: no heap, no lock, and no system call but for a sleeper. It is
// counted, not timed. The engine's side is in tests/daemon/engine/start_cost_test.cpp.
#include <muster/kernels.h>

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

#include <sys/syscall.h>
#include <unistd.h>

namespace {

using muster::test::Cost;
using muster::test::CostCounter;
using muster::test::Member;
using muster::test::Vector;

constexpr int kWarm = 200;  // starts before one is counted: what grows has grown
constexpr int kRows = 20;

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

class StartCost : public muster::test::RunningRanks {
 protected:
  muster_plan small_reduction(const Member& member) {
    const Vector v = vector_of(member, 128);
    const muster_collective c = all_reduce(member, v, v, 64);
    muster_plan plan = 0;
    EXPECT_EQ(muster_plan_collective(member.session, &c, &plan), MUSTER_OK) << muster_last_error();
    return plan;
  }
};

// System calls for a peer that sleeps or has not come yet: they give a core away, begin or end a wait, or
// ring the doorbell.
bool is_for_a_sleeper(long system_call) {
  return system_call == SYS_sched_yield || system_call == SYS_futex || system_call == SYS_write;
}

// Attempts in a row, of which most must cost nothing. This need not hold for every row: on a busy machine the
// peer has often just lost its core.
constexpr int kRow = 40;

// Neither heap nor lock ever, no system call but for a sleeper, and mostly none at all in one of `rows` rows.
template<class Attempt>
void expect_mostly_nothing(int rows, const std::string& what, Attempt attempt) {
  int quiet = 0;
  for (int row = 0; row < rows && quiet <= kRow / 2; ++row) {
    quiet = 0;
    for (int i = 0; i < kRow; ++i) {
      const Cost cost = attempt();
      ASSERT_EQ(cost.allocations, 0u) << what;
      ASSERT_EQ(cost.locks, 0u) << what;
      if (cost.system_calls == 0) {
        ++quiet;
        continue;
      }
      ASSERT_TRUE(is_for_a_sleeper(cost.first_system_call))
          << what << ": system call " << cost.first_system_call;
    }
  }
  EXPECT_GT(quiet, kRow / 2) << what << ", of the last " << kRow << " attempts";
}

// Goal:   the client's side: a start, also of several, with offsets and with new counts, a test of a point,
//         and a run whose members are all there.
TEST_F(StartCost, IsNothingInTheClient) {
  with_ranks(1, [&](Member& member) {
    const muster_plan plan = small_reduction(member);
    muster_submit submit = MUSTER_SUBMIT_INIT;
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
    expect_mostly_nothing(kRows, "muster_plan_start", [&] {
      return after_a_start([&] { return muster_plan_start(member.session, plan, &submit, &point); });
    });
    muster_batch_entry entries[2] = {{plan, submit, 0}, {plan, submit, 0}};
    entries[1].submit.lane = MUSTER_LANE_SMALL;
    entries[1].submit.wait_count = 1;
    entries[1].submit.waits[0] = MUSTER_POINT_OF_ENTRY(0);
    ASSERT_EQ(muster_plan_start_batch(member.session, entries, std::size(entries)), MUSTER_OK);
    expect_mostly_nothing(kRows, "muster_plan_start_batch", [&] {
      const Cost cost =
          after_a_start([&] { return muster_plan_start_batch(member.session, entries, std::size(entries)); });
      EXPECT_EQ(muster_point_wait(member.session, entries[1].point, -1), MUSTER_OK);
      return cost;
    });
    // A control message would be a system call, and none for a sleeper.
    muster_submit moved = MUSTER_SUBMIT_INIT;
    moved.flags = MUSTER_SUBMIT_OFFSETS;
    expect_mostly_nothing(kRows, "muster_plan_start with offsets", [&] {
      moved.source_offset_bytes = moved.target_offset_bytes = 256 - moved.source_offset_bytes;
      return after_a_start([&] { return muster_plan_start(member.session, plan, &moved, &point); });
    });
    // Another plan: a start of `plan`, to wake the engine, would carry the new counts with it, uncounted.
    const muster_plan recounted = small_reduction(member);
    std::uint64_t count = 64;
    expect_mostly_nothing(kRows, "muster_plan_start with new counts", [&] {
      count = 65 - count;
      EXPECT_EQ(muster_plan_recount(member.session, recounted, count, nullptr, nullptr), MUSTER_OK);
      return after_a_start([&] { return muster_plan_start(member.session, recounted, &submit, &point); });
    });
  });
  skip_where_calls_are_not_counted();
}

// Goal:   nor on a lane that was never used before, nor for a look at what is known.
TEST_F(StartCost, IsNothingFromTheFirstCallOn) {
  with_ranks(1, [&](Member& member) {
    const muster_plan plan = small_reduction(member);
    muster_submit submit = MUSTER_SUBMIT_INIT;
    muster_point point = 0;
    for (submit.lane = 0; submit.lane < MUSTER_LANE_CLASSES; ++submit.lane) {
      CostCounter first;
      const muster_status_t status = muster_plan_start(member.session, plan, &submit, &point);
      const Cost cost = first.stop();
      EXPECT_EQ(status, MUSTER_OK);
      EXPECT_EQ(cost.allocations + cost.locks, 0u) << "the first start on lane " << submit.lane;
      ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK);
    }
    ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK);
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

// An operation of any kind, from `source` to `target`. Rank 0 receives a transfer.
struct Described {
  Described(const Member& member, muster_op op, const Vector& source, const Vector& target) {
    c.op = op;
    c.group = member.group;
    if (op == MUSTER_BARRIER) return;
    c.dtype = MUSTER_F32;
    if (op == MUSTER_ALL_REDUCE || op == MUSTER_REDUCE || op == MUSTER_REDUCE_SCATTER) c.redop = MUSTER_SUM;
    if (op == MUSTER_EXCHANGE) {
      const std::int32_t peer = member.world - 1 - member.rank;
      send = {peer, 0, muster_view1(source.buffer, 0, MUSTER_F32, kCount)};
      receive = {peer, 0, muster_view1(target.buffer, 0, MUSTER_F32, kCount)};
      c.sends = &send;
      c.receives = &receive;
      c.send_count = c.receive_count = 1;
      return;
    }
    if (op == MUSTER_SEND || op == MUSTER_RECV) {
      c.op = member.rank == 0 ? MUSTER_RECV : MUSTER_SEND;
      c.peer = 1 - member.rank;
    }
    if (c.op != MUSTER_RECV) c.source = {source.buffer, 0};
    if (c.op != MUSTER_SEND) c.target = {target.buffer, 0};
    c.count = kCount;
  }
  static constexpr std::uint64_t kCount = 64;
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  muster_face send{}, receive{};
};

// Goal:   a run of any kind, where nobody else is to be waited for.
TEST_F(StartCost, IsNothingInARunAlone) {
  with_ranks(1, [&](Member& member) {
    const Vector source = vector_of(member, Described::kCount);
    const Vector target = vector_of(member, Described::kCount);
    for (muster_op op = MUSTER_ALL_REDUCE; op <= MUSTER_EXCHANGE; ++op) {
      if (op == MUSTER_SEND || op == MUSTER_RECV) continue;
      const Described described(member, op, source, target);
      muster_plan plan = 0;
      ASSERT_EQ(muster_plan_collective(member.session, &described.c, &plan), MUSTER_OK)
          << muster_last_error();
      // The first finds its member regions and chooses its path.
      for (int i = 0; i < 2; ++i) ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK);
      CostCounter counter;
      const muster_status_t status = muster_plan_run(member.session, plan, 0);
      const Cost cost = counter.stop();
      EXPECT_EQ(status, MUSTER_OK);
      expect_nothing(cost, ("a run of op " + std::to_string(op)).c_str());
    }
  });
  skip_where_calls_are_not_counted();
}

// Goal:   a run that finds its peer already there costs no heap, no lock and no system call.
// Method: the peer says that it is about to run, and a while later the other does. Where that while was too
//         short or too long somebody has given a core away or slept, so not every run counts.
TEST_F(StartCost, IsNothingInARunWhosePeerHasArrived) {
  constexpr int kPeerRows = 500;
  for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_ALL_TO_ALL, MUSTER_EXCHANGE,
                             MUSTER_BARRIER, MUSTER_RECV}) {
    std::atomic<int> peer_at{0};
    std::atomic<bool> enough{false};
    with_ranks(2, [&](Member& member) {
      const Vector source = vector_of(member, 2 * Described::kCount);
      const Vector target = vector_of(member, 2 * Described::kCount);
      const Described described(member, op, source, target);
      muster_plan plan = 0;
      ASSERT_EQ(muster_plan_collective(member.session, &described.c, &plan), MUSTER_OK)
          << muster_last_error();
      for (int i = 0; i < kWarm; ++i) ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK);
      if (member.rank == 1) {
        // The other rank sets `enough` before its last run.
        for (bool last = false; !last;) {
          ++peer_at;
          ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK);
          while (peer_at.load() > 0) std::this_thread::yield();
          last = enough;
        }
        return;
      }
      int runs = 0;
      expect_mostly_nothing(kPeerRows, "a run of op " + std::to_string(op), [&] {
        while (peer_at.load() == 0) std::this_thread::yield();
        const auto begin = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - begin < std::chrono::microseconds(1 + runs % 8)) {
        }
        ++runs;
        CostCounter counter;
        const muster_status_t status = muster_plan_run(member.session, plan, 0);
        const Cost cost = counter.stop();
        EXPECT_EQ(status, MUSTER_OK) << muster_last_error();
        peer_at = 0;
        return cost;
      });
      while (peer_at.load() == 0) std::this_thread::yield();
      ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK);
      enough = true;
      peer_at = 0;
      std::printf("op %d: %d runs beside a peer, until most of %d cost nothing\n", op, runs, kRow);
    });
  }
  skip_where_calls_are_not_counted();
}

}  // namespace
