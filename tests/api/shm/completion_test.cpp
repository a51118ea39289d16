#include "api/shm/completion.hpp"

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace muster::shm {
namespace {

constexpr std::uint32_t kLane = MUSTER_LANE_REDUCE;

// A completion page whose timelines begin a page of memory, so that `closed` lies in the one before. The next
// look at `closed` is a fault, in which the engine does `act`.
//
// Owns    its memory, and what the process does at SIGSEGV. One at a time.
// Thread  the test's. Bound  one look.
// Fails   the test program, by an assert.
class WatchedPage {
 public:
  explicit WatchedPage(std::function<void(CompletionSegment* page)> act) : act_(std::move(act)) {
    constexpr std::size_t kBefore = offsetof(CompletionSegment, timelines);
    void* memory = mmap(nullptr, unit_ + sizeof(CompletionSegment), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUSTER_ASSERT(memory != MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
    page_ = new (memory_ + unit_ - kBefore) CompletionSegment;
    watched = this;
    struct sigaction look {};
    look.sa_handler = [](int) { watched->on_look(); };
    look.sa_flags = static_cast<int>(SA_RESETHAND);  // a second fault ends the program
    MUSTER_ASSERT(sigaction(SIGSEGV, &look, &before_) == 0);
    MUSTER_ASSERT(mprotect(memory_, unit_, PROT_NONE) == 0);
  }
  ~WatchedPage() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(memory_, unit_ + sizeof(CompletionSegment));
  }
  WatchedPage(const WatchedPage&) = delete;
  WatchedPage& operator=(const WatchedPage&) = delete;

  CompletionSegment* page() { return page_; }
  bool seen() const { return seen_; }

 private:
  void on_look() {
    MUSTER_ASSERT(mprotect(memory_, unit_, PROT_READ | PROT_WRITE) == 0);
    seen_ = true;
    act_(page_);
  }

  static inline WatchedPage* watched = nullptr;
  const std::size_t unit_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::function<void(CompletionSegment* page)> act_;
  std::byte* memory_ = nullptr;
  CompletionSegment* page_ = nullptr;
  struct sigaction before_ {};
  bool seen_ = false;
};

struct Session {
  std::unique_ptr<CompletionSegment> page = std::make_unique<CompletionSegment>();
  SubmissionHeader submission;
  CompletionWriter writer{page.get(), &submission};
  CompletionReader reader{page.get(), &submission};

  TimelineWord& word() { return page->timelines[kLane]; }
  Code test(std::uint64_t value) { return reader.test(make_point(kLane, value)); }
};

TEST(Completion, SaysPendingUntilAPointIsReached) {
  Session s;
  EXPECT_EQ(s.test(1), Code::kPending);
  s.writer.publish(kLane, 2);
  EXPECT_EQ(s.test(1), Code::kOk);
  EXPECT_EQ(s.test(2), Code::kOk);
  EXPECT_EQ(s.test(3), Code::kPending);
  EXPECT_EQ(s.reader.test(make_point(kLane + 1, 1)), Code::kPending) << "another lane is another timeline";
  s.writer.publish(kClientTimelineFirst, kPointValueMask);
  EXPECT_EQ(s.reader.test(make_point(kClientTimelineFirst, kPointValueMask)), Code::kOk);
}

TEST(Completion, KnowsNoPointAndPointsOfNoTimeline) {
  Session s;
  EXPECT_EQ(s.reader.test(MUSTER_POINT_NONE), Code::kOk);
  EXPECT_EQ(s.reader.test(make_point(kTimelinesMax, 1)), Code::kBadArgument);
  EXPECT_EQ(s.reader.test(5), Code::kBadArgument) << "a value without a timeline";
  EXPECT_EQ(s.reader.test(~std::uint64_t{0}), Code::kBadArgument);
}

TEST(Completion, FailsFromAPointOnAndKeepsWhatWasReached) {
  Session s;
  s.writer.publish(kLane, 3);
  s.writer.fail(kLane, 5, Code::kPeerLost, 6, "rank 6 (pid 4711) died in all_reduce");
  EXPECT_EQ(s.test(3), Code::kOk);
  EXPECT_EQ(s.test(4), Code::kPending) << "before the failure and still running";
  EXPECT_EQ(s.test(5), Code::kPeerLost);
  EXPECT_EQ(s.test(1000), Code::kPeerLost);
  s.writer.publish(kLane, 4);
  EXPECT_EQ(s.test(4), Code::kOk);

  const auto failure = s.reader.failure(kLane);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->status, Code::kPeerLost);
  EXPECT_EQ(failure->culprit_rank, 6);
  EXPECT_EQ(failure->failed_from, 5u);
  EXPECT_EQ(failure->text, "rank 6 (pid 4711) died in all_reduce");
  EXPECT_EQ(s.reader.failure(kLane + 1).error().code(), Code::kNotFound);
  EXPECT_EQ(s.reader.failure(kLanesMax).error().code(), Code::kBadArgument);
}

TEST(Completion, KeepsTheFirstFailureOfAStoppedLane) {
  Session s;
  s.writer.fail(kLane, 1, Code::kTimeout, 2, "first");
  s.writer.fail(kLane, 9, Code::kAborted, 3, "second");
  EXPECT_EQ(s.test(1), Code::kTimeout);
  EXPECT_EQ(s.test(9), Code::kTimeout);
  EXPECT_EQ(s.reader.failure(kLane)->text, "first");
}

// A step in flight when the lane stopped, or was reset, fails later: its value fails too, for good.
TEST(Completion, LetsAnEarlierValueFailLater) {
  for (const bool reset : {false, true}) {
    Session s;
    s.writer.publish(kLane, 1);
    s.writer.fail(kLane, 5, Code::kDependency, -1, "first");
    if (reset) s.writer.reset(kLane, 6);
    EXPECT_EQ(s.test(3), Code::kPending);
    s.writer.fail(kLane, 3, Code::kPeerLost, 2, "earlier");
    EXPECT_EQ(s.test(3), Code::kPeerLost);
    EXPECT_EQ(s.test(2), Code::kPending);
    s.writer.reset(kLane, 6);
    s.writer.publish(kLane, 7);
    EXPECT_EQ(s.test(3), Code::kPeerLost);
    EXPECT_EQ(s.test(7), Code::kOk);
  }
}

TEST(Completion, CutsALongTextAndClearsTheOldOne) {
  Session s;
  s.writer.fail(kLane, 1, Code::kTimeout, -1, std::string(1000, 'x'));
  EXPECT_EQ(s.reader.failure(kLane)->text, std::string(kFailureTextBytes, 'x'));
  s.writer.reset(kLane, 1);
  s.writer.fail(kLane, 2, Code::kTimeout, -1, "ab");
  EXPECT_EQ(s.reader.failure(kLane)->text, "ab");
  EXPECT_EQ(s.page->failures[kLane].text[2], '\0') << "nothing of the old text stays on the page";
}

TEST(Completion, RunsAgainAfterAReset) {
  Session s;
  s.writer.publish(kLane, 2);
  s.writer.fail(kLane, 3, Code::kMismatch, -1, "");
  s.writer.reset(kLane, 5);
  EXPECT_EQ(s.test(2), Code::kOk);
  EXPECT_EQ(s.test(3), Code::kMismatch);
  EXPECT_EQ(s.test(5), Code::kMismatch);
  EXPECT_EQ(s.test(6), Code::kPending);
  s.writer.publish(kLane, 6);
  EXPECT_EQ(s.test(5), Code::kMismatch) << "never OK because the timeline went past it";
  EXPECT_EQ(s.test(6), Code::kOk);
  EXPECT_EQ(s.reader.failure(kLane).error().code(), Code::kNotFound);
  s.writer.reset(kLane, 6);  // of a lane that runs: nothing
  EXPECT_EQ(s.test(6), Code::kOk);
}

// Goal:   points keep their verdict through any number of failures and resets, up to a bound that is said.
// Method: twice as many episodes as are remembered: one OK value and two failed ones in each.
TEST(Completion, RemembersEarlierFailures) {
  Session s;
  constexpr std::uint64_t kEpisodes = 2 * CompletionReader::kEpisodesMax;
  const auto status = [](std::uint64_t episode) {
    return episode % 2 == 0 ? Code::kPeerLost : Code::kTimeout;
  };
  for (std::uint64_t e = 0; e < kEpisodes; ++e) {
    const std::uint64_t base = e * 3;
    s.writer.publish(kLane, base + 1);
    s.writer.fail(kLane, base + 2, status(e), -1, "");
    ASSERT_EQ(s.reader.remember_reset(kLane, base + 3), Code::kOk);
    EXPECT_EQ(s.test(base + 4), Code::kPending)
        << "submitted after the reset, which the engine has not seen yet";
    EXPECT_EQ(s.reader.failure(kLane).error().code(), Code::kNotFound)
        << "reset, as far as this client is concerned";
    s.writer.reset(kLane, base + 3);

    for (std::uint64_t past = 0; past <= e; ++past) {
      const bool known = e - past < CompletionReader::kEpisodesMax;
      EXPECT_EQ(s.test(past * 3 + 2), known ? status(past) : Code::kStale) << past << " of " << e;
      EXPECT_EQ(s.test(past * 3 + 3), known ? status(past) : Code::kStale) << past << " of " << e;
    }
    EXPECT_EQ(s.test(base + 1), Code::kOk);
  }
}

// Goal: the verdict is kept whoever comes first, the engine with its reset or the client with its look.
TEST(Completion, RemembersAResetThatTheEngineHasDoneAlready) {
  Session s;
  s.writer.publish(kLane, 1);
  s.writer.fail(kLane, 2, Code::kPeerLost, -1, "");
  s.writer.reset(kLane, 3);
  EXPECT_EQ(s.reader.remember_reset(kLane, 3), Code::kOk);
  s.writer.publish(kLane, 4);
  EXPECT_EQ(s.reader.remember_reset(kLane, 4), Code::kOk) << "of a lane that runs, its failure known";
  s.writer.fail(kLane, 5, Code::kTimeout, -1, "");
  EXPECT_EQ(s.test(1), Code::kOk);
  EXPECT_EQ(s.test(2), Code::kPeerLost);
  EXPECT_EQ(s.test(3), Code::kPeerLost);
  EXPECT_EQ(s.test(4), Code::kOk);
  EXPECT_EQ(s.test(5), Code::kTimeout);
}

// Goal:   a look into the middle of a change costs no verdict.
// Method: the page is left in the middle of one for longer than a look tries.
TEST(Completion, RemembersAResetWhileThePageIsBeingChanged) {
  Session s;
  s.writer.fail(kLane, 1, Code::kPeerLost, -1, "");
  const std::uint64_t stable = s.word().revision;
  s.word().revision = stable + 1;
  std::thread engine([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::atomic_ref(s.word().revision).store(stable + 2, std::memory_order::release);
  });
  EXPECT_EQ(s.reader.remember_reset(kLane, 1), Code::kOk);
  engine.join();
  s.writer.reset(kLane, 1);
  s.writer.publish(kLane, 2);
  s.writer.fail(kLane, 3, Code::kTimeout, -1, "");
  EXPECT_EQ(s.test(1), Code::kPeerLost);
}

TEST(Completion, SaysHowFarALaneIsSettled) {
  Session s;
  EXPECT_EQ(s.reader.decided(kLane, 10), 0u);
  s.writer.publish(kLane, 3);
  EXPECT_EQ(s.reader.decided(kLane, 10), 3u);
  s.writer.fail(kLane, 5, Code::kTimeout, -1, "");
  EXPECT_EQ(s.reader.decided(kLane, 10), 10u) << "stopped: all fails as it comes";
  EXPECT_EQ(s.reader.remember_reset(kLane, 10), Code::kOk);
  EXPECT_EQ(s.reader.decided(kLane, 12), 10u) << "what came behind the reset will run";
  s.writer.reset(kLane, 10);
  EXPECT_EQ(s.reader.decided(kLane, 12), 10u);
  s.writer.publish(kLane, 11);
  EXPECT_EQ(s.reader.decided(kLane, 12), 11u);
  s.word().revision |= 1;
  EXPECT_EQ(s.reader.decided(kLane, 12), 0u) << "being changed: not known";
}

TEST(Completion, RemembersAResetOnlyOfALaneThatStands) {
  Session s;
  s.writer.publish(kLane, 4);
  EXPECT_EQ(s.reader.remember_reset(kLane, 4), Code::kOk);
  EXPECT_EQ(s.test(4), Code::kOk);
  s.writer.fail(kLane, 5, Code::kTimeout, -1, "");
  EXPECT_EQ(s.reader.remember_reset(kLane, 4), Code::kBadArgument) << "value 5 failed, so 5 was submitted";
  EXPECT_EQ(s.reader.remember_reset(kLane, 5), Code::kOk);
  EXPECT_EQ(s.reader.remember_reset(kLane, 7), Code::kOk)
      << "a second reset of the same failure adds nothing";
  EXPECT_EQ(s.test(6), Code::kPending);
  EXPECT_EQ(s.reader.remember_reset(kLanesMax, 1), Code::kBadArgument);
}

// Goal:   a client that resets only lanes it has seen stopped loses no verdict, even if a failure comes right
//         after it has looked.
// Method: 10 to 20 are in flight when the client looks; then 10 fails, before its command could be there.
TEST(Completion, TellsWhetherALaneHasAFailureThatIsNotReset) {
  Session s;
  bool stopped = true;
  ASSERT_EQ(s.reader.stopped(kLane, &stopped), Code::kOk);
  EXPECT_FALSE(stopped);
  s.writer.publish(kLane, 9);
  s.writer.fail(kLane, 10, Code::kTimeout, -1, "");
  ASSERT_EQ(s.reader.stopped(kLane, &stopped), Code::kOk);
  EXPECT_TRUE(stopped);
  ASSERT_EQ(s.reader.remember_reset(kLane, 20), Code::kOk);
  ASSERT_EQ(s.reader.stopped(kLane, &stopped), Code::kOk);
  EXPECT_FALSE(stopped) << "the engine has not come to it, but it is asked for";
  s.writer.reset(kLane, 20);
  s.writer.publish(kLane, 25);
  s.writer.fail(kLane, 26, Code::kAborted, -1, "");
  EXPECT_EQ(s.test(15), Code::kTimeout);
  EXPECT_EQ(s.test(25), Code::kOk);
  ASSERT_EQ(s.reader.stopped(kLane, &stopped), Code::kOk);
  EXPECT_TRUE(stopped) << "by another one";
  s.word().failed_to = 1;
  EXPECT_EQ(s.reader.stopped(kLane, &stopped), Code::kProtocol);
  EXPECT_EQ(s.reader.stopped(kLanesMax, &stopped), Code::kBadArgument);
}

// Goal: a page that cannot be true never reads as OK and never as something to wait for.
TEST(Completion, CallsAnImpossiblePageAProtocolError) {
  struct Case {
    const char* name;
    TimelineWord word;
  };
  const Case cases[] = {
      {"failed without a status", {.failed_from = 1}},
      {"failed with success", {.failed_from = 1, .status = MUSTER_OK}},
      {"failed with pending", {.failed_from = 1, .status = MUSTER_PENDING}},
      {"failed with a number that is no status", {.failed_from = 1, .status = -999}},
      {"ends before it starts", {.failed_from = 5, .failed_to = 4, .status = MUSTER_ERR_TIMEOUT}},
      {"ends without a start", {.failed_from = 0, .failed_to = 4}},
      {"reached what has failed", {.reached = 5, .failed_from = 5, .status = MUSTER_ERR_TIMEOUT}},
  };
  for (const Case& c : cases) {
    Session s;
    s.word() = c.word;
    EXPECT_EQ(s.test(1), Code::kProtocol) << c.name;
    EXPECT_EQ(s.test(7), Code::kProtocol) << c.name;
    EXPECT_EQ(s.reader.failure(kLane).error().code(), Code::kProtocol) << c.name;
    EXPECT_EQ(s.reader.remember_reset(kLane, 9), Code::kProtocol) << c.name;
  }
  Session s;
  s.writer.fail(kLane, 1, Code::kTimeout, -1, "text");
  s.page->failures[kLane].length = kFailureTextBytes + 1;
  EXPECT_EQ(s.reader.failure(kLane).error().code(), Code::kProtocol);
  EXPECT_EQ(s.test(1), Code::kTimeout) << "the verdict does not need the text";
}

TEST(Completion, DoesNotSpinForEverOnAPageInTheMiddleOfAChange) {
  Session s;
  s.writer.publish(kLane, 1);
  s.word().revision = 1;
  EXPECT_EQ(s.test(1), Code::kPending) << "a writer without a core is no corrupt page";
  std::uint32_t tests = 1;
  while (s.test(1) == Code::kPending) ++tests;
  EXPECT_EQ(tests, CompletionReader::kUnstableMax - 1);
  EXPECT_EQ(s.test(1), Code::kProtocol);
  s.word().revision = 2;
  EXPECT_EQ(s.test(1), Code::kOk);
}

TEST(Completion, EndsTheWaitOnAPageInTheMiddleOfAChange) {
  Session s;
  s.word().revision = 7;
  const SteadyClock clock;
  EXPECT_EQ(s.reader.wait(make_point(kLane, 1), 0, clock.now() + std::chrono::hours(1), clock),
            Code::kProtocol);
}

TEST(Completion, TellsWaitersThatTheSessionIsClosed) {
  Session s;
  s.writer.publish(kLane, 1);
  EXPECT_EQ(s.reader.closed(), Code::kOk);
  EXPECT_EQ(s.reader.closed_text(), "");
  s.writer.close(Code::kDaemonLost, "why " + std::string(200, 'x'));
  EXPECT_EQ(s.reader.closed(), Code::kDaemonLost);
  EXPECT_EQ(s.reader.closed_text(), "why " + std::string(kClosedTextBytes - 1 - 4, 'x')) << "as much as fits";
  s.writer.close(Code::kDaemonLost, "another reason");
  EXPECT_TRUE(s.reader.closed_text().starts_with("why ")) << "the first counts";
  std::memset(s.page->closed_text, 'y', sizeof s.page->closed_text);
  EXPECT_EQ(s.reader.closed_text(), std::string(kClosedTextBytes, 'y')) << "no end is believed";
  EXPECT_EQ(s.test(1), Code::kOk) << "what was reached stays reached";
  EXPECT_EQ(s.test(2), Code::kDaemonLost);
  const SteadyClock clock;
  EXPECT_EQ(s.reader.wait(make_point(kLane, 2), 0, clock.now() + std::chrono::hours(1), clock),
            Code::kDaemonLost);
  for (const std::uint32_t lie : {1u, 999u, 0x80000000u, 0xffffffffu}) {
    s.page->closed = lie;
    EXPECT_EQ(s.reader.closed(), Code::kProtocol) << lie;
  }
}

// Goal:   what the engine still reaches, or lets fail, before it closes is told as that, and not as the end.
// Method: it does so between the client's look at the lane and its look whether the session is closed.
TEST(Completion, TellsTheOutcomeThatCameRightBeforeTheEnd) {
  for (const bool reached : {true, false}) {
    SubmissionHeader submission;
    WatchedPage watched([&](CompletionSegment* page) {
      CompletionWriter writer(page, &submission);
      if (reached)
        writer.publish(kLane, 1);
      else
        writer.fail(kLane, 1, Code::kPeerLost, 2, "rank 2 died");
      writer.close(Code::kJobEnded);
    });
    CompletionReader reader(watched.page(), &submission);
    EXPECT_EQ(reader.test(make_point(kLane, 1)), reached ? Code::kOk : Code::kPeerLost);
    EXPECT_TRUE(watched.seen());
    EXPECT_EQ(reader.test(make_point(kLane + 1, 1)), Code::kJobEnded);
  }
}

TEST(Completion, WaitsNoLongerThanItsDeadline) {
  Session s;
  const SteadyClock clock;
  const Instant start = clock.now();
  const Instant deadline = start + std::chrono::milliseconds(5);
  EXPECT_EQ(s.reader.wait(make_point(kLane, 1), 3, deadline, clock), Code::kWaitTimeout);
  EXPECT_GE(clock.now(), deadline);
  EXPECT_EQ(s.submission.client_asleep, 0u);
  EXPECT_EQ(s.reader.wait(make_point(kLane, 1), 3, start, clock), Code::kWaitTimeout) << "past: one test";
  s.writer.publish(kLane, 1);
  EXPECT_EQ(s.reader.wait(make_point(kLane, 1), 0, start, clock), Code::kOk);
}

TEST(Completion, WakesOnlyASleeper) {
  Session s;
  Waker<> waker({.wake = &s.page->wake, .client_asleep = &s.submission.client_asleep});
  Sleeper<> sleeper({.wake = &s.page->wake, .client_asleep = &s.submission.client_asleep});
  EXPECT_FALSE(waker.raise());
  EXPECT_EQ(sleeper.begin(), 1u);
  EXPECT_TRUE(waker.raise());
  sleeper.end();
  EXPECT_FALSE(waker.raise());
  EXPECT_EQ(s.page->wake, 3u);
}

TEST(Completion, StampsItsHeartbeat) {
  Session s;
  EXPECT_EQ(s.reader.silence(std::chrono::seconds(93)), Nanos(0)) << "no turn was taken yet";
  s.writer.beat(std::chrono::seconds(90));
  EXPECT_EQ(s.page->heartbeat_ns, 90'000'000'000u);
  EXPECT_EQ(s.reader.silence(std::chrono::seconds(93)), std::chrono::seconds(3));
  EXPECT_EQ(s.reader.silence(std::chrono::seconds(89)), Nanos(0)) << "a page that lies";
}

TEST(Counters, AreReadByEnumAndByName) {
  Session s;
  CounterWriter writer(s.page.get());
  const CounterReader reader(s.page.get());
  writer.add(Counter::kCommands, 3);
  writer.add(Counter::kCommands, 4);
  writer.set(Counter::kBufferBytes, 1000);
  EXPECT_EQ(reader.value(Counter::kCommands), 7u);
  EXPECT_EQ(reader.value("commands").value(), 7u);
  EXPECT_EQ(reader.value("buffer_bytes").value(), 1000u);
  EXPECT_EQ(reader.value("buffer_bytes_peak").value(), 0u);
  const auto unknown = reader.value("comands");
  EXPECT_EQ(unknown.error().code(), Code::kNotFound);
  EXPECT_THAT(unknown.error().message(), testing::HasSubstr("bytes_moved"));
}

}  // namespace
}  // namespace muster::shm
