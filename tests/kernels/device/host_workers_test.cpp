#include "kernels/device/host/workers.hpp"

#include "tests/kernels/device/pool_rig.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include <pthread.h>

namespace muster::device::host::test {
namespace {

// ---- working and woken workers -----------------------------------------------------------------

TEST(Workers, LetsAtLeastOneWorkAndAtMostAll) {
  Workers workers(3);
  EXPECT_EQ(workers.working(), 3u) << "as long as nobody says otherwise";
  EXPECT_FALSE(workers.set_working(3));
  EXPECT_FALSE(workers.set_working(9));
  EXPECT_TRUE(workers.set_working(0));
  EXPECT_EQ(workers.working(), 1u);
  EXPECT_TRUE(workers.works(workers.of(0)));
  EXPECT_FALSE(workers.works(workers.of(1)));
  EXPECT_TRUE(workers.set_working(2));
  EXPECT_TRUE(workers.works(workers.of(1)));
  Workers none(0);
  EXPECT_FALSE(none.set_working(4)) << "driven by hand";
  EXPECT_EQ(none.working(), 0u);
}

TEST(Workers, RousesOnlyThoseThatWorkTheLastToLieDownFirst) {
  Workers workers(4);
  for (std::uint32_t i = 0; i < 4; ++i) workers.lie_down(workers.of(i));
  ASSERT_TRUE(workers.set_working(2));
  EXPECT_EQ(workers.rouse_sleeper(), &workers.of(1));
  EXPECT_EQ(workers.rouse_sleeper(), &workers.of(0));
  EXPECT_EQ(workers.rouse_sleeper(), nullptr);
  EXPECT_FALSE(workers.of(3).awake);
  ASSERT_TRUE(workers.set_working(4));
  EXPECT_EQ(workers.rouse_sleeper(), &workers.of(3)) << "it works again, and has slept all the time";
  EXPECT_EQ(workers.rouse_sleeper(), &workers.of(2));
  EXPECT_EQ(workers.rouse_sleeper(), nullptr) << "0 and 1 are awake";
}

TEST(Workers, KeepsASentinelThatDoesNotWorkUntilItIsRoused) {
  Workers workers(2);
  EXPECT_FALSE(workers.any_to_rouse());
  workers.set_sentinel(workers.of(1));
  ASSERT_TRUE(workers.set_working(1));
  EXPECT_TRUE(workers.any_to_rouse());
  ASSERT_TRUE(workers.set_working(2));
  EXPECT_EQ(workers.rouse_sleeper(), nullptr) << "a sentinel sleeps on no bell";
  EXPECT_TRUE(workers.rouse_sentinel());
  EXPECT_TRUE(workers.of(1).awake);
  EXPECT_FALSE(workers.rouse_sentinel());
}

TEST(Workers, RousesAllAtTheEnd) {
  Workers workers(4);
  workers.set_sentinel(workers.of(0));
  for (std::uint32_t i = 1; i < 4; ++i) workers.lie_down(workers.of(i));
  ASSERT_TRUE(workers.set_working(2));
  EXPECT_EQ(workers.rouse_all(), 3u);
  EXPECT_FALSE(workers.of(0).awake) << "the sentinel sleeps elsewhere";
}

// ---- a pool of which fewer work ----------------------------------------------------------------

// Goal:   no more of a pool's workers run parts than the set number, and more as soon as that number grows.
// Method: parts that end only once they are let, so that whoever may run one is inside one.
TEST(WorkingPool, RunsAsManyPartsAtOnceAsItHasWorkingWorkers) {
  Bench bench(sleepy(4));
  auto s = bench.stream();
  Gate gate;
  bench.pool->work_with(1);
  ASSERT_TRUE(enqueue(*s, gate.task(4)).ok());
  gate.await(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // in which another would come
  EXPECT_EQ(gate.inside, 1u);
  bench.pool->work_with(3);
  gate.await(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(gate.inside, 3u);
  bench.pool->work_with(4);
  gate.await(4);
  gate.open = true;
  ASSERT_TRUE(s->synchronize().ok());
  EXPECT_EQ(bench.pool->workers(), 4u) << "they are all still there";
}

// Goal:   a worker that is not to work any more leaves its task to the others after the part that it runs.
TEST(WorkingPool, LeavesTheRestOfATaskToThoseThatWork) {
  struct Who {
    mutable std::atomic<std::uint32_t> inside{0}, most{0}, ran{0};
    static void run(const void* self, std::uint32_t) {
      const auto* who = static_cast<const Who*>(self);
      const std::uint32_t now = who->inside.fetch_add(1) + 1;
      if (now > who->most.load()) who->most = now;
      std::this_thread::yield();
      who->inside.fetch_sub(1);
      who->ran.fetch_add(1);
    }
  };
  Bench bench(sleepy(4));
  auto s = bench.stream();
  Gate gate;
  ASSERT_TRUE(enqueue(*s, gate.task(4)).ok());
  gate.await(4);  // all four are awake
  bench.pool->work_with(1);
  Who who;
  ASSERT_TRUE(enqueue(*s, {&Who::run, &who, 500}).ok());
  gate.open = true;
  ASSERT_TRUE(s->synchronize().ok());
  EXPECT_EQ(who.ran, 500u);
  EXPECT_EQ(who.most, 1u);
}

// Letters, each of which is one more to count. wait() has no timeout, so a lost wake is a test that hangs.
class Letters final : public IdleProgress {
 public:
  std::size_t do_work() override {
    armed_.store(false);
    const std::size_t letters = inbox_.exchange(0);
    read.fetch_add(letters);
    return letters;
  }
  bool arm() override {
    armed_.store(true);
    return inbox_.load() == 0;
  }
  void wait(Nanos) override { bell_.wait(); }
  void wake() noexcept override { bell_.ring(); }
  void post() {
    inbox_.fetch_add(1);
    if (armed_.load()) wake();
  }

  std::atomic<std::uint64_t> read{0};

 private:
  std::atomic<std::size_t> inbox_{0};
  std::atomic<bool> armed_{false};
  Bell bell_;
};

// Goal:   neither a letter nor a task is lost while workers are sent to sleep and called again, the one that
//         waits for letters among them.
// Method: one thread posts letters, one enqueues tasks, one changes the number all the time.
TEST(WorkingPool, LosesNothingWhileTheNumberChanges) {
  for (const Nanos spin : {Nanos{0}, Nanos{20'000}}) {
    Letters progress;
    PoolOptions options = sleepy(5, &progress);
    options.spin = spin;
    Bench bench(options);
    std::atomic<bool> done{false};
    std::thread changing([&] {
      for (std::uint32_t i = 0; !done.load(); ++i) {
        bench.pool->work_with(1 + i * 7 % 5);
        std::this_thread::sleep_for(std::chrono::microseconds(i % 3 * 50));
      }
    });
    std::thread enqueuing([&] {
      auto s = bench.stream();
      Counter counter;
      Rounds rounds(1000);
      while (rounds.next()) {
        EXPECT_TRUE(enqueue(*s, counter.task(3)).ok());
        EXPECT_TRUE(s->synchronize().ok());
      }
      EXPECT_EQ(counter.count, 3 * rounds.done());
    });
    Rounds rounds(1000);
    while (rounds.next()) {
      progress.post();
      while (progress.read.load() < rounds.done()) std::this_thread::yield();
    }
    enqueuing.join();
    done = true;
    changing.join();
    bench.pool.reset();
  }
}

// The first worker is held between its look for letters and its sleep.
class HeldAtItsSleep final : public IdleProgress {
 public:
  std::size_t do_work() override {
    const std::size_t letters = inbox.exchange(0);
    read.fetch_add(letters);
    return letters;
  }
  bool arm() override {
    char name[16];
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (name != std::string("muster-w0")) return inbox.load() == 0;
    if (!other_waits.load()) return false;  // the other one is to be the sentinel
    const bool quiet = inbox.load() == 0;
    held = true;
    while (!let_go.load()) std::this_thread::yield();
    return quiet;
  }
  void wait(Nanos) override {
    other_waits = true;
    bell_.wait();
  }
  void wake() noexcept override { bell_.ring(); }

  std::atomic<std::size_t> inbox{0}, read{0};
  std::atomic<bool> other_waits{false}, held{false}, let_go{false};

 private:
  Bell bell_;
};

// Goal:   a letter is read although its bell wakes a worker that does not work any more, just when the one
//         that does has looked and is about to sleep.
TEST(WorkingPool, LooksAgainForWhatAWorkerThatLeavesWasTold) {
  HeldAtItsSleep progress;
  Bench bench(sleepy(2, &progress));
  while (!progress.held.load()) std::this_thread::yield();
  bench.pool->work_with(1);
  progress.inbox = 1;
  progress.wake();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // in which the other one wakes, and leaves
  progress.let_go = true;
  while (progress.read.load() == 0) std::this_thread::yield();
  bench.pool.reset();
}

// Goal:   a pool ends whoever of its workers sleeps.
TEST(WorkingPool, EndsWithWorkersThatDoNotWork) {
  for (int i = 0; i < 50; ++i) {
    Letters progress;
    Bench bench(sleepy(3, i % 2 == 0 ? &progress : nullptr));
    bench.pool->work_with(1 + static_cast<std::uint32_t>(i) % 3);
    if (i % 3 == 0) progress.post();
    bench.pool.reset();
  }
}

}  // namespace
}  // namespace muster::device::host::test
