#include "kernels/device/pool.hpp"

#include "tests/kernels/device/pool_rig.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace muster::device::host::test {
namespace {

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

// Runs all that is ready inside its first part, as a second worker would beside it.
struct Beside {
  Pool* pool;
  std::string* text;
  static void run(const void* self, std::uint32_t part) {
    const auto* beside = static_cast<const Beside*>(self);
    while (part == 0 && beside->pool->run_once() > 0) {
    }
    beside->text->push_back('w');
  }
  Task task(std::uint32_t parts) const { return {&run, this, parts}; }
};

// Goal:   a chain of tasks does not wait for parts of a wide task that another worker is busy with.
// Method: a wide task is served; the chain comes, of equal priority, behind it in the order of turns.
// Values: the chain's three tasks first, the rest of the wide task then.
TEST(ManualPool, PrefersAmongEqualsTheStreamThatFewestServe) {
  Bench bench(Pool::open_manual({}));
  std::string text;
  auto wide = bench.stream();
  auto chain = bench.stream();
  const Beside many{bench.pool.get(), &text};
  const Letter link{&text, 'c'};
  ASSERT_TRUE(enqueue(*wide, many.task(4)).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(enqueue(*chain, link.task()).ok());
  while (bench.pool->run_once() > 0) {
  }
  EXPECT_EQ(text, "cccwwww");
}

TEST(ManualPool, PassesTasksOfNoPartsAndRecordsWithTheNextLook) {
  Bench bench(Pool::open_manual({}));
  auto s = bench.stream();
  auto e = bench.event();
  Counter counter;
  ASSERT_TRUE(enqueue(*s, counter.task(0)).ok());
  ASSERT_TRUE(s->record(*e).ok());
  EXPECT_EQ(bench.pool->run_once(), 0u) << "no part was run";
  EXPECT_TRUE(e->query());
  EXPECT_EQ(counter.count, 0u);
}

TEST(ManualPool, CountsNothingAgainstItsDepthThatWaitsForNothing) {
  Bench bench(Pool::open_manual({.depth = 2}));
  auto s = bench.stream();
  auto e = bench.event();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(s->record(*e).ok());
  Counter counter;
  EXPECT_TRUE(enqueue(*s, counter.task()).ok());
  EXPECT_TRUE(s->record(*e).ok());
  EXPECT_EQ(s->record(*e).code(), Code::kBusy);
}

class CountingDuty final : public IdleProgress {
 public:
  std::size_t do_work() override { return ++turns % 3 == 0 ? 0 : 7; }
  bool arm() override { return true; }
  void wait(Nanos) override {}
  void wake() noexcept override {}
  std::size_t turns = 0;
};

TEST(ManualPool, DoesATurnOfDutyOnlyWhenNoPartIsReady) {
  CountingDuty progress;
  Bench bench(Pool::open_manual({.progress = &progress}));
  auto s = bench.stream();
  Counter counter;
  ASSERT_TRUE(enqueue(*s, counter.task(2)).ok());
  EXPECT_EQ(bench.pool->run_once(), 1u);
  EXPECT_EQ(bench.pool->run_once(), 1u);
  EXPECT_EQ(progress.turns, 0u);
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
  Rounds rounds(500);
  while (rounds.next()) {
    ASSERT_TRUE(enqueue(*free, counter.task()).ok());
    ASSERT_TRUE(free->synchronize().ok());
  }
  EXPECT_EQ(counter.count, rounds.done());
  gate.open = true;
  ASSERT_TRUE(held->synchronize().ok());  // the gate must outlive its task
}

TEST(PoolThreads, NeverLoseAWakeOfSleepingWorkers) {
  for (const std::uint32_t workers : {1u, 2u, 6u}) {
    Bench bench(sleepy(workers));
    auto s = bench.stream();
    auto e = bench.event();
    Counter counter;
    std::uint64_t parts = 0;
    for (Rounds rounds(1500); rounds.next();) {
      const auto now = static_cast<std::uint32_t>(1 + rounds.done() % 3);
      parts += now;
      ASSERT_TRUE(enqueue(*s, counter.task(now)).ok());
      ASSERT_TRUE(s->record(*e).ok());
      e->synchronize();
      ASSERT_TRUE(e->query());
      ASSERT_EQ(counter.count, parts);
    }
  }
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
  for (Rounds rounds(200); rounds.next();) {
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

// Goal:   threads that issue at once, and open and close their streams meanwhile, lose nothing and wake whom
//         they need.
// Method: each looks only at its own; most streams are empty when work comes, and most workers asleep.
TEST(PoolThreads, ServeManyIssuersAtOnce) {
  constexpr std::uint32_t kIssuers = 4;
  for (const Nanos spin : {Nanos{0}, Nanos{20'000}}) {
    PoolOptions options = sleepy(3);
    options.spin = spin;
    Bench bench(options);
    const auto issue = [&bench](std::uint32_t seed) {
      std::mt19937 random(seed);
      std::unique_ptr<Event> e = bench.event();
      Counter counter;
      std::uint64_t parts = 0;
      for (Rounds rounds(150); rounds.next();) {
        std::unique_ptr<Stream> s = bench.stream(static_cast<Priority>(random() % 4));
        for (auto task = random() % 5; task > 0; --task) {
          const auto now = static_cast<std::uint32_t>(random() % 4);
          parts += now;
          ASSERT_TRUE(enqueue(*s, counter.task(now)).ok());
          ASSERT_TRUE(s->record(*e).ok());
          if (random() % 2 == 0) e->synchronize();
        }
        ASSERT_TRUE(s->synchronize().ok());
        ASSERT_TRUE(e->query());
        ASSERT_EQ(counter.count, parts);
      }
    };
    std::vector<std::thread> issuers;
    for (std::uint32_t seed = 1; seed <= kIssuers; ++seed) issuers.emplace_back(issue, seed);
    for (std::thread& issuer : issuers) issuer.join();
  }
}

// Goal:   a thread that issues while the pool ends gets an error, and waits for no dropped task.
TEST(PoolEnd, MeetsThoseWhoStillIssue) {
  for (Rounds rounds(100); rounds.next();) {
    Bench bench(sleepy(2));
    std::atomic<std::uint32_t> issuing{0};
    const auto issue = [&issuing](std::unique_ptr<Stream> s, std::unique_ptr<Event> e) {
      Counter counter;
      Status status;
      while (status.ok() || status.code() == Code::kBusy) {
        status = enqueue(*s, counter.task());
        if (status.ok()) status = s->record(*e);
        issuing.fetch_add(1);
        if (status.code() == Code::kBusy) std::this_thread::yield();
      }
      EXPECT_EQ(status.code(), Code::kState) << status.text();
      EXPECT_EQ(s->synchronize().code(), Code::kAborted);
      e->synchronize();
    };
    std::thread first(issue, bench.stream(), bench.event());
    std::thread second(issue, bench.stream(), bench.event());
    while (issuing.load() < 2 + rounds.done() % 50) std::this_thread::yield();
    bench.pool->halt();
    first.join();
    second.join();
  }
}

// Goal:   any mixture of tasks, records and waits keeps the order it promised.
// Method: seeded. A shadow clock counts what was issued; each task checks on running that what its stream
//         waited for ran.
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
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
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
    for (int i = 0; i < 1500; ++i) {
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
}  // namespace muster::device::host::test
