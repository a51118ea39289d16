#include "api/shm/completion.hpp"

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace muster::shm {
namespace {

#ifdef MUSTER_SANITIZED
constexpr std::uint64_t kRounds = 3000;
#else
constexpr std::uint64_t kRounds = 20000;
#endif

// Goal:   no wake is lost between a client that sleeps at once and an engine that publishes, and what the
//         engine wrote before a verdict can be read after it.
// Method: ping-pong through the page one way and a plain atomic the other; without spins, so that each round
//         may sleep.
TEST(CompletionThreads, WakeASleepingClientEachTime) {
  auto page = std::make_unique<CompletionSegment>();
  SubmissionHeader submission;
  std::atomic<std::uint64_t> asked{0};
  std::uint64_t payload = 0;  // not atomic: the verdict orders it

  std::thread engine([&] {
    CompletionWriter writer(page.get(), &submission);
    for (std::uint64_t i = 1; i <= kRounds; ++i) {
      while (asked.load(std::memory_order::acquire) < i) std::this_thread::yield();
      payload = i * 7;
      writer.publish(MUSTER_LANE_SMALL, i);
      writer.wake();
    }
  });
  CompletionReader reader(page.get(), &submission);
  const SteadyClock clock;
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 1; i <= kRounds; ++i) {
    asked.store(i, std::memory_order::release);
    const Code code =
        reader.wait(make_point(MUSTER_LANE_SMALL, i), 0, clock.now() + std::chrono::minutes(5), clock);
    wrong += code != Code::kOk || payload != i * 7;
  }
  engine.join();
  EXPECT_EQ(wrong, 0u);
}

// Goal:   a failure is seen whole: status, culprit, interval and text belong to one episode.
// Method: the engine fails and resets a lane without end; all fields of episode e are derived from e.
TEST(CompletionThreads, SeeAFailureWhole) {
  auto page = std::make_unique<CompletionSegment>();
  SubmissionHeader submission;
  std::atomic<bool> done{false};
  const auto text_of = [](std::uint64_t e) {
    return std::string(e % kFailureTextBytes, static_cast<char>('a' + e % 26));
  };

  std::thread engine([&] {
    CompletionWriter writer(page.get(), &submission);
    for (std::uint64_t e = 1; e <= kRounds; ++e) {
      writer.fail(MUSTER_LANE_HALO, e * 2, e % 2 == 0 ? Code::kTimeout : Code::kPeerLost,
                  static_cast<std::int32_t>(e), text_of(e));
      if (e < kRounds) writer.reset(MUSTER_LANE_HALO, e * 2);
    }
    done.store(true);
  });
  CompletionReader reader(page.get(), &submission);
  std::uint64_t wrong = 0, seen = 0;
  for (bool last = false; !last;) {
    last = done.load();  // the failure of the last round stands: at least that one is seen
    const auto failure = reader.failure(MUSTER_LANE_HALO);
    if (!failure) {
      wrong += failure.error().code() != Code::kNotFound && failure.error().code() != Code::kPending;
      continue;
    }
    ++seen;
    const std::uint64_t e = failure->failed_from / 2;
    wrong += failure->culprit_rank != static_cast<std::int32_t>(e) || failure->text != text_of(e) ||
             failure->status != (e % 2 == 0 ? Code::kTimeout : Code::kPeerLost);
  }
  engine.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(seen, 0u);
}

// Goal: several engine threads may finish work on different timelines at once.
TEST(CompletionThreads, PublishOnSeveralTimelinesAtOnce) {
  auto page = std::make_unique<CompletionSegment>();
  SubmissionHeader submission;
  CompletionWriter writer(page.get(), &submission);
  CounterWriter counters(page.get());
  const auto work = [&](std::uint32_t lane) {
    for (std::uint64_t i = 1; i <= kRounds; ++i) {
      writer.publish(lane, i);
      counters.add(Counter::kStepsCompleted, 1);
      writer.wake();
    }
  };
  std::thread first(work, MUSTER_LANE_COMPUTE), second(work, MUSTER_LANE_HALO);
  CompletionReader reader(page.get(), &submission);
  const SteadyClock clock;
  for (const std::uint32_t lane : {MUSTER_LANE_COMPUTE, MUSTER_LANE_HALO})
    EXPECT_EQ(reader.wait(make_point(lane, kRounds), 10, clock.now() + std::chrono::minutes(5), clock),
              Code::kOk);
  first.join();
  second.join();
  EXPECT_EQ(CounterReader(page.get()).value(Counter::kStepsCompleted), 2 * kRounds);
  EXPECT_EQ(page->wake, 2 * kRounds);
}

}  // namespace
}  // namespace muster::shm
