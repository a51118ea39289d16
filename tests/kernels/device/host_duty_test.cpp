#include "kernels/device/pool.hpp"

#include "tests/kernels/device/pool_rig.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>

#include <sys/resource.h>

namespace muster::device::host::test {
namespace {

// The engine's progress in small: an inbox, a bell that is rung only while nobody polls, and tasks put on a
// stream. wait() has no timeout, so a lost wake is a test that hangs instead of one that is slow.
class Mailroom final : public IdleProgress {
 public:
  std::size_t do_work() override {
    EXPECT_EQ(inside_.fetch_add(1), 0) << "two workers are on duty";
    armed_.store(false);
    const std::size_t letters = inbox_.exchange(0);
    for (std::size_t i = 0; i < letters; ++i) {
      EXPECT_TRUE(enqueue(*stream, task).ok());
      EXPECT_TRUE(stream->record(*done).ok());
      enqueued.fetch_add(1);
    }
    turns.fetch_add(1);
    inside_.fetch_sub(1);
    return letters;
  }
  bool arm() override {
    EXPECT_EQ(inside_.fetch_add(1), 0) << "armed beside a turn of duty";
    armed_.store(true);
    arms.fetch_add(1);
    const bool quiet = inbox_.load() == 0;
    inside_.fetch_sub(1);
    return quiet;
  }
  void wait(Nanos) override {
    EXPECT_EQ(waiting_.fetch_add(1), 0) << "one sentinel is enough";
    bell_.wait();
    waiting_.fetch_sub(1);
  }
  void wake() noexcept override { bell_.ring(); }
  void post() {
    inbox_.fetch_add(1);
    if (armed_.load()) wake();
  }

  Stream* stream = nullptr;
  Event* done = nullptr;
  Task task;
  std::atomic<std::uint64_t> turns{0}, arms{0}, enqueued{0};

 private:
  std::atomic<int> inside_{0}, waiting_{0};
  std::atomic<std::size_t> inbox_{0};
  std::atomic<bool> armed_{false};
  Bell bell_;
};

// Goal:   a letter that arrives while all sleep, or while the last one lies down, is served.
// Method: post one, wait for the task that it causes, a thousand times, from a thread that is no worker.
TEST(PoolDuty, ServesEveryLetterWhetherWorkersSleepOrPoll) {
  for (const std::uint32_t workers : {1u, 2u, 5u}) {
    for (const Nanos spin : {Nanos{0}, Nanos{20'000}}) {
      Mailroom progress;
      Counter counter;
      // The progress needs a stream before its first letter, so the pool starts with an empty inbox.
      PoolOptions options = sleepy(workers, &progress);
      options.spin = spin;
      Bench bench(options);
      auto s = bench.stream();
      auto e = bench.event();
      progress.stream = s.get();
      progress.done = e.get();
      progress.task = counter.task();
      Rounds rounds(1000);
      while (rounds.next()) {
        progress.post();
        while (counter.count.load() < rounds.done()) std::this_thread::yield();
      }
      e->synchronize();
      EXPECT_EQ(progress.enqueued, rounds.done());
      if (spin.count() == 0) {
        EXPECT_GT(progress.arms, 0u);
      }
      bench.pool.reset();  // before the stream: nobody uses the progress any more
    }
  }
}

// Goal:   work enqueued by a thread that is no worker reaches a pool whose workers sleep in progress or on
//         their bells.
TEST(PoolDuty, IsWokenForWorkEnqueuedFromOutside) {
  for (const std::uint32_t workers : {1u, 3u}) {
    Mailroom progress;
    Bench bench(sleepy(workers, &progress));
    auto s = bench.stream();
    Counter counter;
    for (Rounds rounds(1500); rounds.next();) {
      ASSERT_TRUE(enqueue(*s, counter.task(1 + static_cast<std::uint32_t>(rounds.done()) % workers)).ok());
      ASSERT_TRUE(s->synchronize().ok());
    }
    EXPECT_GT(progress.arms, 0u);
    s.reset();
    bench.pool.reset();
  }
}

// Goal:   letters and outside work at the same time; neither starves, both wake.
TEST(PoolDuty, ServesLettersBesideWorkFromOutside) {
  Mailroom progress;
  Counter letters, direct;
  Bench bench(sleepy(2, &progress));
  auto s = bench.stream();
  auto e = bench.event();
  progress.stream = s.get();
  progress.done = e.get();
  progress.task = letters.task();
  std::thread outside([&] {
    auto mine = bench.stream(Priority::kHigh);
    Rounds rounds(1000);
    while (rounds.next()) {
      EXPECT_TRUE(enqueue(*mine, direct.task(3)).ok());
      EXPECT_TRUE(mine->synchronize().ok());
    }
    EXPECT_EQ(direct.count, 3 * rounds.done());
  });
  for (Rounds rounds(1000); rounds.next();) {
    progress.post();
    while (letters.count.load() < rounds.done()) std::this_thread::yield();
  }
  outside.join();
  bench.pool.reset();
}

// Goal:   a long task does not keep progress from its turns: an urgent command is seen at the end of a part.
// Method: one worker, a task that ends only once progress had a turn after the task began.
TEST(PoolDuty, HasATurnBetweenThePartsOfALongTask) {
  struct Probe {
    Mailroom* progress;
    mutable std::atomic<std::uint64_t> at_start{0};
    mutable std::atomic<bool> seen{false};
    static void run(const void* self, std::uint32_t part) {
      const auto* probe = static_cast<const Probe*>(self);
      if (part == 0) probe->at_start = probe->progress->turns.load();
      if (part > 0 && probe->progress->turns.load() > probe->at_start) probe->seen = true;
    }
  };
  Mailroom progress;
  Probe probe{&progress};
  Bench bench(sleepy(1, &progress));
  auto s = bench.stream();
  ASSERT_TRUE(enqueue(*s, {&Probe::run, &probe, 1000}).ok());
  ASSERT_TRUE(s->synchronize().ok());
  EXPECT_TRUE(probe.seen);
  s.reset();
  bench.pool.reset();
}

// Waits in its first turn for a lock of whoever starts the pool.
class Locked final : public IdleProgress {
 public:
  std::size_t do_work() override {
    const std::lock_guard wait(lock);
    return 0;
  }
  bool arm() override { return true; }
  void wait(Nanos) override {}
  void wake() noexcept override {}
  std::mutex lock;
};

// Goal:   a pool that cannot start all its threads says so, though the caller holds a lock of the progress.
// Method: address space for two stacks.
TEST(PoolDuty, DoesNotBeginBeforeAllWorkersAreThere) {
#if defined(MUSTER_SANITIZED)
  GTEST_SKIP() << "the sanitizer's own address space does not fit into a limit";
#endif
  Locked progress;
  PoolOptions options = sleepy(64, &progress);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit little{pages * 4096 + (std::uint64_t{20} << 20), limit.rlim_max};
  const std::lock_guard held(progress.lock);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  const auto pool = Pool::start(options);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code(), Code::kNoResource);
  EXPECT_THAT(pool.error().message(), ::testing::HasSubstr("64 worker threads are needed"));
}

// Goal:   the end of an urgent task is told before the worker goes on with other parts.
// Method: a worker for which a turn is due in a year only. While it is held, an urgent task and a long one
//         come. Each part notes how many turns there were.
TEST(PoolDuty, HasATurnAfterAnUrgentTask) {
  struct Noted {
    const Mailroom* progress;
    mutable std::atomic<std::uint64_t> turns{0};
    static void run(const void* self, std::uint32_t) {
      const auto* noted = static_cast<const Noted*>(self);
      noted->turns.store(noted->progress->turns.load());
    }
    Task task() const { return {&run, this, 1}; }
  };
  Mailroom progress;
  PoolOptions options = sleepy(1, &progress);
  options.spin = std::chrono::hours(24 * 365);
  Bench bench(options);
  auto urgent = bench.stream(Priority::kUrgent), bulk = bench.stream(Priority::kLow);
  Gate gate;
  Noted first{&progress}, second{&progress};
  ASSERT_TRUE(enqueue(*bulk, gate.task()).ok());
  gate.await(1);
  ASSERT_TRUE(enqueue(*bulk, second.task()).ok());
  ASSERT_TRUE(enqueue(*urgent, first.task()).ok());
  gate.open = true;
  ASSERT_TRUE(bulk->synchronize().ok());
  EXPECT_EQ(second.turns, first.turns + 1);
  urgent.reset();
  bulk.reset();
  bench.pool.reset();
}

}  // namespace
}  // namespace muster::device::host::test
