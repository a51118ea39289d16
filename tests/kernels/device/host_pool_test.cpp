#include "kernels/device/host/pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace muster::device::host {
namespace {

// Workers that lie down at once: every enqueue has to wake somebody.
PoolOptions sleepy(std::uint32_t workers, Duty* duty = nullptr) {
  PoolOptions options;
  options.workers = workers;
  options.spin = Nanos{0};
  options.duty = duty;
  return options;
}

// A pool, its device, and what a test opens from it.
struct Bench {
  explicit Bench(const PoolOptions& options)
      : pool(Pool::start(options).value()), device(open_device(*pool).value()) {}
  explicit Bench(std::unique_ptr<Pool> manual)
      : pool(std::move(manual)), device(open_device(*pool).value()) {}
  std::unique_ptr<Stream> stream(Priority priority = Priority::kNormal) {
    return device->open_stream(priority).value();
  }
  std::unique_ptr<Event> event() { return device->create_event().value(); }
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Device> device;
};

// Writes its letter once per part.
struct Letter {
  std::string* text;
  char letter;
  static void run(const void* self, std::uint32_t) {
    const auto* letter = static_cast<const Letter*>(self);
    letter->text->push_back(letter->letter);
  }
  Task task(std::uint32_t parts = 1) const { return {&run, this, parts}; }
};

struct Counter {
  mutable std::atomic<std::uint64_t> count{0};
  static void run(const void* self, std::uint32_t) { static_cast<const Counter*>(self)->count.fetch_add(1); }
  Task task(std::uint32_t parts = 1) const { return {&run, this, parts}; }
};

// Blocks its worker until opened.
struct Gate {
  mutable std::atomic<std::uint32_t> inside{0};
  std::atomic<bool> open{false};
  static void run(const void* self, std::uint32_t) {
    const auto* gate = static_cast<const Gate*>(self);
    gate->inside.fetch_add(1);
    while (!gate->open.load()) std::this_thread::yield();
  }
  Task task(std::uint32_t parts = 1) const { return {&run, this, parts}; }
  void await(std::uint32_t parts) const {
    while (inside.load() < parts) std::this_thread::yield();
  }
};

TEST(Pool, RefusesOptionsOutOfRange) {
  EXPECT_EQ(Pool::start({.workers = 100'000}).error().code(), Code::kBadArgument);
  EXPECT_EQ(Pool::start({.workers = 1, .streams_max = 0}).error().code(), Code::kBadArgument);
  EXPECT_EQ(Pool::start({.workers = 1, .streams_max = 40'000}).error().code(), Code::kBadArgument);
  EXPECT_EQ(Pool::start({.workers = 1, .depth = 0}).error().code(), Code::kBadArgument);
  EXPECT_EQ(Pool::start({.workers = 1, .spin = Nanos{-1}}).error().code(), Code::kBadArgument);
}

TEST(Pool, HasAWorkerPerCoreUnlessToldOtherwise) {
  EXPECT_GE(Pool::start({}).value()->workers(), 1u);
  EXPECT_EQ(Pool::start({.workers = 5}).value()->workers(), 5u);
  EXPECT_EQ(Pool::open_manual({})->workers(), 0u);
}

TEST(Pool, RefusesAStreamBeyondItsLimitAndTakesOneBack) {
  Bench bench(Pool::open_manual({.streams_max = 2}));
  auto first = bench.stream();
  auto second = bench.stream();
  auto third = bench.device->open_stream(Priority::kNormal);
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().code(), Code::kNoResource);
  EXPECT_THAT(third.error().message(), testing::HasSubstr("streams_max 2"));
  first.reset();
  EXPECT_TRUE(bench.device->open_stream(Priority::kNormal).has_value());
}

TEST(Pool, RefusesATaskWithoutAFunctionAndAnEventOfAnotherPool) {
  Bench bench(Pool::open_manual({}));
  Bench other(Pool::open_manual({}));
  auto s = bench.stream();
  EXPECT_EQ(enqueue(*s, {nullptr, nullptr, 1}).code(), Code::kBadArgument);
  EXPECT_TRUE(enqueue(*s, {nullptr, nullptr, 0}).ok()) << "nothing runs, so nothing is missing";
  auto foreign = other.event();
  EXPECT_EQ(s->record(*foreign).code(), Code::kBadArgument);
  EXPECT_EQ(s->wait(*foreign).code(), Code::kBadArgument);
}

TEST(Pool, TakesExactlyDepthPiecesOfWork) {
  Bench bench(Pool::open_manual({.depth = 3}));
  auto s = bench.stream();
  auto e = bench.event();
  Counter counter;
  ASSERT_TRUE(enqueue(*s, counter.task()).ok());
  ASSERT_TRUE(s->record(*e).ok());
  ASSERT_TRUE(enqueue(*s, counter.task()).ok());
  EXPECT_EQ(enqueue(*s, counter.task()).code(), Code::kBusy);
  EXPECT_EQ(s->record(*e).code(), Code::kBusy);
  EXPECT_EQ(bench.pool->run_once(), 1u);  // the task, and with it the record
  EXPECT_TRUE(e->query()) << "a refused record leaves the event's life as it was";
  EXPECT_TRUE(enqueue(*s, counter.task()).ok());
  EXPECT_TRUE(s->record(*e).ok());
  EXPECT_EQ(enqueue(*s, counter.task()).code(), Code::kBusy);
  ASSERT_TRUE(s->synchronize().ok()) << "with no worker, the caller runs the parts";
  EXPECT_EQ(counter.count, 3u);
}

TEST(ManualPool, RunsTheMostUrgentReadyStreamFirst) {
  Bench bench(Pool::open_manual({}));
  std::string text;
  std::vector<std::unique_ptr<Stream>> streams;
  const Letter low{&text, 'l'}, normal{&text, 'n'}, high{&text, 'h'}, urgent{&text, 'u'};
  const std::array<std::pair<Priority, const Letter*>, 4> all{{{Priority::kLow, &low},
                                                               {Priority::kNormal, &normal},
                                                               {Priority::kHigh, &high},
                                                               {Priority::kUrgent, &urgent}}};
  for (const auto& [priority, letter] : all) {
    streams.push_back(bench.stream(priority));
    ASSERT_TRUE(enqueue(*streams.back(), letter->task(2)).ok());
  }
  while (bench.pool->run_once() > 0) {
  }
  EXPECT_EQ(text, "uuhhnnll");
}

TEST(ManualPool, LetsUrgentWorkOvertakeBetweenTheParts) {
  Bench bench(Pool::open_manual({}));
  std::string text;
  auto bulk = bench.stream(Priority::kLow);
  auto urgent = bench.stream(Priority::kUrgent);
  const Letter b{&text, 'b'}, u{&text, 'u'};
  ASSERT_TRUE(enqueue(*bulk, b.task(4)).ok());
  EXPECT_EQ(bench.pool->run_once(), 1u);
  ASSERT_TRUE(enqueue(*urgent, u.task()).ok());
  while (bench.pool->run_once() > 0) {
  }
  EXPECT_EQ(text, "bubbb");
}

TEST(ManualPool, LetsEqualPrioritiesTakeTurns) {
  Bench bench(Pool::open_manual({}));
  std::string text;
  std::vector<std::unique_ptr<Stream>> streams;
  const Letter a{&text, 'a'}, b{&text, 'b'}, c{&text, 'c'};
  for (const Letter* letter : {&a, &b, &c}) {
    streams.push_back(bench.stream());
    ASSERT_TRUE(enqueue(*streams.back(), letter->task(2)).ok());
    ASSERT_TRUE(enqueue(*streams.back(), letter->task(1)).ok());
  }
  while (bench.pool->run_once() > 0) {
  }
  EXPECT_EQ(text, "abcabcabc");
}

TEST(ManualPool, PassesTasksOfNoPartsAndRecordsWithoutATurn) {
  Bench bench(Pool::open_manual({}));
  auto s = bench.stream();
  auto e = bench.event();
  Counter counter;
  ASSERT_TRUE(enqueue(*s, counter.task(0)).ok());
  ASSERT_TRUE(s->record(*e).ok());
  EXPECT_TRUE(e->query());
  EXPECT_EQ(bench.pool->run_once(), 0u);
  EXPECT_EQ(counter.count, 0u);
}

class CountingDuty final : public Duty {
 public:
  std::size_t do_work() override { return ++turns % 3 == 0 ? 0 : 7; }
  bool arm() override { return true; }
  void wait(Nanos) override {}
  void wake() noexcept override {}
  std::size_t turns = 0;
};

TEST(ManualPool, DoesATurnOfDutyOnlyWhenNoPartIsReady) {
  CountingDuty duty;
  Bench bench(Pool::open_manual({.duty = &duty}));
  auto s = bench.stream();
  Counter counter;
  ASSERT_TRUE(enqueue(*s, counter.task(2)).ok());
  EXPECT_EQ(bench.pool->run_once(), 1u);
  EXPECT_EQ(bench.pool->run_once(), 1u);
  EXPECT_EQ(duty.turns, 0u);
  EXPECT_EQ(bench.pool->run_once(), 7u);
  EXPECT_EQ(bench.pool->run_once(), 7u);
  EXPECT_EQ(bench.pool->run_once(), 0u);
}

// Goal:   each part runs exactly once, whoever runs it.
// Method: several streams, each with tasks of odd sizes; a bitmap per task; more workers than cores.
TEST(PoolThreads, RunEachPartExactlyOnce) {
  struct Bitmap {
    std::unique_ptr<std::atomic<std::uint8_t>[]> hits;
    static void run(const void* self, std::uint32_t part) {
      static_cast<const Bitmap*>(self)->hits[part].fetch_add(1);
    }
  };
  constexpr std::array<std::uint32_t, 6> kParts{1, 2, 3, 17, 1000, 4099};
  for (const std::uint32_t workers : {1u, 2u, 4u, 16u}) {
    Bench bench({.workers = workers});
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Bitmap>> maps;
    std::vector<std::uint32_t> parts_of;
    for (int s = 0; s < 4; ++s) {
      streams.push_back(bench.stream(static_cast<Priority>(s)));
      for (const std::uint32_t parts : kParts) {
        maps.push_back(
            std::make_unique<Bitmap>(Bitmap{std::make_unique<std::atomic<std::uint8_t>[]>(parts)}));
        parts_of.push_back(parts);
        ASSERT_TRUE(enqueue(*streams.back(), {&Bitmap::run, maps.back().get(), parts}).ok());
      }
    }
    for (auto& s : streams) ASSERT_TRUE(s->synchronize().ok());
    for (std::size_t m = 0; m < maps.size(); ++m)
      for (std::uint32_t p = 0; p < parts_of[m]; ++p)
        ASSERT_EQ(maps[m]->hits[p], 1) << workers << " workers, part " << p << " of " << parts_of[m];
  }
}

TEST(PoolThreads, SpreadThePartsOfOneTask) {
  Bench bench(sleepy(3));
  auto s = bench.stream();
  Gate gate;
  ASSERT_TRUE(enqueue(*s, gate.task(3)).ok());
  gate.await(3);  // all three inside at once, each on a worker that had to be woken
  gate.open = true;
  ASSERT_TRUE(s->synchronize().ok());
}

TEST(PoolThreads, FindANewStreamWhileOthersAreBusy) {
  Bench bench(sleepy(2));
  auto held = bench.stream();
  auto free = bench.stream();
  Gate gate;
  Counter counter;
  ASSERT_TRUE(enqueue(*held, gate.task()).ok());
  gate.await(1);
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(enqueue(*free, counter.task()).ok());
    ASSERT_TRUE(free->synchronize().ok());
  }
  EXPECT_EQ(counter.count, 500u);
  gate.open = true;
}

TEST(PoolThreads, NeverLoseAWakeOfSleepingWorkers) {
  for (const std::uint32_t workers : {1u, 2u, 6u}) {
    Bench bench(sleepy(workers));
    auto s = bench.stream();
    auto e = bench.event();
    Counter counter;
    for (std::uint32_t i = 0; i < 1500; ++i) {
      ASSERT_TRUE(enqueue(*s, counter.task(1 + i % 3)).ok());
      ASSERT_TRUE(s->record(*e).ok());
      e->synchronize();
      ASSERT_TRUE(e->query());
    }
    EXPECT_EQ(counter.count, 1500u * 2);
  }
}

// The engine's duty in small: an inbox, a bell that is rung only while nobody polls, and tasks put on a
// stream. wait() has no timeout, so a lost wake is a test that hangs instead of one that is slow.
class Mailroom final : public Duty {
 public:
  std::size_t do_work() override {
    EXPECT_EQ(inside_.fetch_add(1), 0) << "two workers have the baton";
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
    {
      std::unique_lock<std::mutex> lock(mutex_);
      bell_.wait(lock, [this] { return rung_; });
      rung_ = false;
    }
    waiting_.fetch_sub(1);
  }
  void wake() noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    rung_ = true;
    bell_.notify_one();
  }
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
  std::mutex mutex_;
  std::condition_variable bell_;
  bool rung_ = false;
};

// Goal:   a letter that arrives while all sleep, or while the last one lies down, is served.
// Method: post one, wait for the task that it causes, thousands of times, from a thread that is no worker.
TEST(PoolDuty, ServesEveryLetterWhetherWorkersSleepOrPoll) {
  for (const std::uint32_t workers : {1u, 2u, 5u}) {
    for (const Nanos spin : {Nanos{0}, Nanos{20'000}}) {
      Mailroom duty;
      Counter counter;
      // The duty needs a stream before its first letter, so the pool starts with an empty inbox.
      PoolOptions options = sleepy(workers, &duty);
      options.spin = spin;
      Bench bench(options);
      auto s = bench.stream();
      auto e = bench.event();
      duty.stream = s.get();
      duty.done = e.get();
      duty.task = counter.task();
      for (std::uint64_t i = 1; i <= 1000; ++i) {
        duty.post();
        while (counter.count.load() < i) std::this_thread::yield();
      }
      e->synchronize();
      EXPECT_EQ(duty.enqueued, 1000u);
      if (spin.count() == 0) {
        EXPECT_GT(duty.arms, 0u);
      }
      bench.pool.reset();  // before the stream: nobody uses the duty any more
    }
  }
}

// Goal:   work enqueued by a thread that is no worker reaches a pool whose workers sleep in duty or on their
// bells.
TEST(PoolDuty, IsWokenForWorkEnqueuedFromOutside) {
  for (const std::uint32_t workers : {1u, 3u}) {
    Mailroom duty;
    Bench bench(sleepy(workers, &duty));
    auto s = bench.stream();
    Counter counter;
    for (std::uint32_t i = 0; i < 1500; ++i) {
      ASSERT_TRUE(enqueue(*s, counter.task(1 + i % workers)).ok());
      ASSERT_TRUE(s->synchronize().ok());
    }
    EXPECT_GT(duty.arms, 0u);
    s.reset();
    bench.pool.reset();
  }
}

// Goal:   letters and outside work at the same time; neither starves, both wake.
TEST(PoolDuty, ServesLettersBesideWorkFromOutside) {
  Mailroom duty;
  Counter letters, direct;
  Bench bench(sleepy(2, &duty));
  auto s = bench.stream();
  auto e = bench.event();
  duty.stream = s.get();
  duty.done = e.get();
  duty.task = letters.task();
  std::thread outside([&] {
    auto mine = bench.stream(Priority::kHigh);
    for (int i = 0; i < 1000; ++i) {
      EXPECT_TRUE(enqueue(*mine, direct.task(3)).ok());
      EXPECT_TRUE(mine->synchronize().ok());
    }
  });
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    duty.post();
    while (letters.count.load() < i) std::this_thread::yield();
  }
  outside.join();
  EXPECT_EQ(direct.count, 3000u);
  bench.pool.reset();
}

// Goal:   a long task does not keep duty from its turns: an urgent command is seen at the end of a part.
// Method: one worker, a task that ends only once duty had a turn after the task began.
TEST(PoolDuty, HasATurnBetweenThePartsOfALongTask) {
  struct Probe {
    Mailroom* duty;
    mutable std::atomic<std::uint64_t> at_start{0};
    mutable std::atomic<bool> seen{false};
    static void run(const void* self, std::uint32_t part) {
      const auto* probe = static_cast<const Probe*>(self);
      if (part == 0) probe->at_start = probe->duty->turns.load();
      if (part > 0 && probe->duty->turns.load() > probe->at_start) probe->seen = true;
    }
  };
  Mailroom duty;
  Probe probe{&duty};
  Bench bench(sleepy(1, &duty));
  auto s = bench.stream();
  ASSERT_TRUE(enqueue(*s, {&Probe::run, &probe, 1000}).ok());
  ASSERT_TRUE(s->synchronize().ok());
  EXPECT_TRUE(probe.seen);
  s.reset();
  bench.pool.reset();
}

TEST(PoolEnd, DropsWhatHasNotStartedAndFinishesWhatRuns) {
  Bench bench({.workers = 1});
  auto s = bench.stream();
  auto waiting = bench.stream();
  auto e = bench.event();
  Gate gate;
  Counter dropped;
  ASSERT_TRUE(enqueue(*s, gate.task(3)).ok());
  ASSERT_TRUE(enqueue(*s, dropped.task(5)).ok());
  ASSERT_TRUE(s->record(*e).ok());
  ASSERT_TRUE(waiting->wait(*e).ok());
  ASSERT_TRUE(enqueue(*waiting, dropped.task()).ok());
  gate.await(1);
  std::thread end([&] { bench.pool.reset(); });
  std::thread blocked([&] { e->synchronize(); });
  while (s->health().ok()) std::this_thread::yield();  // until the pool is closing
  gate.open = true;
  end.join();
  blocked.join();  // nobody waits for ever for work that was dropped
  EXPECT_EQ(gate.inside, 1u) << "the parts that had not started stay so";
  EXPECT_EQ(dropped.count, 0u);
  EXPECT_TRUE(e->query());
  // Streams and events outlive the pool without harm, and say so.
  EXPECT_EQ(enqueue(*s, dropped.task()).code(), Code::kState);
  EXPECT_EQ(s->record(*e).code(), Code::kState);
  EXPECT_EQ(s->synchronize().code(), Code::kAborted);
  EXPECT_EQ(bench.device->open_stream(Priority::kLow).error().code(), Code::kState);
}

TEST(PoolEnd, DropsTheRestOfAClosedStreamAndLetsItsWaitersGoOn) {
  Bench bench(Pool::open_manual({}));
  auto s = bench.stream();
  auto waiting = bench.stream();
  auto e = bench.event();
  Counter ran, after;
  ASSERT_TRUE(enqueue(*s, ran.task(3)).ok());
  ASSERT_TRUE(enqueue(*s, ran.task()).ok());
  ASSERT_TRUE(s->record(*e).ok());
  ASSERT_TRUE(waiting->wait(*e).ok());
  ASSERT_TRUE(enqueue(*waiting, after.task()).ok());
  EXPECT_EQ(bench.pool->run_once(), 1u);
  EXPECT_FALSE(e->query());
  s.reset();
  EXPECT_EQ(ran.count, 1u) << "parts and tasks that had not started are dropped";
  EXPECT_TRUE(e->query()) << "what will never run is not waited for";
  EXPECT_EQ(bench.pool->run_once(), 1u);
  EXPECT_EQ(after.count, 1u);
  EXPECT_EQ(bench.pool->run_once(), 0u);
}

// Goal:   once a stream is closed, what its tasks used may go at once.
// Method: close it while its parts run; free their memory. A late touch is found by the sanitizers.
TEST(PoolEnd, WaitsForTheRunningPartsOfAClosedStream) {
  for (int round = 0; round < 200; ++round) {
    Bench bench({.workers = 2, .depth = 8});
    auto s = bench.stream();
    auto gate = std::make_unique<Gate>();
    auto queued = std::make_unique<Counter>();
    ASSERT_TRUE(enqueue(*s, gate->task(2)).ok());
    for (int i = 0; i < 6; ++i) ASSERT_TRUE(enqueue(*s, queued->task(3)).ok());
    gate->await(1);
    std::thread opener([&] { gate->open = true; });
    s.reset();
    opener.join();
    gate.reset();
    queued.reset();
  }
}

TEST(PoolEnd, LetsAStreamGoThatWaits) {
  Bench bench({.workers = 2});
  auto held = bench.stream();
  auto e = bench.event();
  Gate gate;
  Counter never;
  ASSERT_TRUE(enqueue(*held, gate.task()).ok());
  ASSERT_TRUE(held->record(*e).ok());
  for (int i = 0; i < 10; ++i) {
    auto waiting = bench.stream();
    ASSERT_TRUE(waiting->wait(*e).ok());
    ASSERT_TRUE(enqueue(*waiting, never.task()).ok());
  }
  gate.open = true;
  ASSERT_TRUE(held->synchronize().ok());
  EXPECT_EQ(never.count, 0u);
}

// Goal:   any mixture of tasks, records and waits keeps the order it promised.
// Method: seeded. A shadow clock counts what was issued; each task checks on running that what its stream
// waited for ran.
TEST(PoolThreads, KeepEveryPromisedOrderInARandomMixture) {
  constexpr std::uint32_t kStreams = 6, kEvents = 5;
  struct Step {
    std::vector<const Step*> after;  // tasks that must have finished before
    mutable std::atomic<std::uint32_t> parts_done{0};
    std::uint32_t parts = 1;
    std::atomic<std::uint32_t>* broken = nullptr;
    static void run(const void* self, std::uint32_t) {
      const auto* step = static_cast<const Step*>(self);
      for (const Step* before : step->after)
        if (before->parts_done.load() != before->parts) step->broken->fetch_add(1);
      step->parts_done.fetch_add(1);
    }
  };
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    std::atomic<std::uint32_t> broken{0};
    Bench bench({.workers = 1 + seed % 4, .spin = Nanos{seed % 2 == 0 ? 0 : 20'000}});
    std::vector<std::unique_ptr<Step>> steps;
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Event>> events;
    std::array<std::vector<const Step*>, kStreams> pending;  // what the stream's next task comes after
    std::array<std::vector<const Step*>, kEvents> recorded;  // what the event's last record comes after
    for (std::uint32_t s = 0; s < kStreams; ++s)
      streams.push_back(bench.stream(static_cast<Priority>(s % 4)));
    for (std::uint32_t e = 0; e < kEvents; ++e) events.push_back(bench.event());
    for (int i = 0; i < 3000; ++i) {
      const std::size_t s = random() % kStreams, e = random() % kEvents;
      Status status;
      switch (random() % 4) {
        case 0:
        case 1: {
          auto step = std::make_unique<Step>();
          step->after = pending[s];
          step->parts = random() % 4 == 0 ? 5 : 1;
          step->broken = &broken;
          status = enqueue(*streams[s], {&Step::run, step.get(), step->parts});
          if (status.ok()) pending[s] = {step.get()};
          steps.push_back(std::move(step));
          break;
        }
        case 2:
          status = streams[s]->record(*events[e]);
          if (status.ok()) recorded[e] = pending[s];
          break;
        case 3:
          status = streams[s]->wait(*events[e]);
          if (status.ok()) pending[s].insert(pending[s].end(), recorded[e].begin(), recorded[e].end());
          break;
      }
      if (status.code() == Code::kBusy) {
        ASSERT_TRUE(streams[s]->synchronize().ok());
      } else {
        ASSERT_TRUE(status.ok()) << status.text();
      }
    }
    for (auto& s : streams) ASSERT_TRUE(s->synchronize().ok());
    for (auto& e : events) EXPECT_TRUE(e->query());
    EXPECT_EQ(broken, 0u);
  }
}

}  // namespace
}  // namespace muster::device::host
