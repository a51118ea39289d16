// kill -9, SIGSTOP and a frozen cgroup at each fault point: the verdicts that ranks get, and when. T-10,
// T-12. MUSTER_FAULT_ONLY=ring.tail_due tries that point alone.
#include "api/base/fault_point.hpp"

#include "tests/fault/fault_job.hpp"
#include "tests/fault/fault_steps.hpp"
#include "tests/support/contract.hpp"
#include "tests/support/freezer.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include <gmock/gmock.h>

namespace muster {
namespace {

using test::Ending;
using test::FaultJob;
using test::is_unknown;
using test::told_of;
using test::Way;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr std::size_t kPointsLeast = 60;
constexpr auto kDeadline = std::chrono::milliseconds(1500);
constexpr double kPromisedMs = 50;         // from a death to the knowledge of it, 99 times in 100
constexpr double kPromisedAfterMs = 1000;  // from a deadline to its verdict, always
constexpr std::int64_t kDeadlineNs = Nanos(kDeadline).count();

bool of_a_client(std::string_view point) {
  return !point.starts_with("engine.") && !point.starts_with("checkpoint.");  // checkpoint_kill_test.cpp
}
// Steps with a deadline of their own, fault_rank.cpp's kPatienceNs.
constexpr std::int64_t kPatienceNs = 20'000'000'000;
bool is_patient(const std::string& step) {
  return step == "early" || step == "late" || step == "early_start";
}
bool is_leaving(const Way& way) {
  return way.point.starts_with("goodbye.");
}

class AtEachPoint : public ::testing::Test {
 protected:
  // The comparison of digests after each result must end as the result does.
  void SetUp() override { node_.options.job_defaults.digests = 1; }

  // Does `act` on each way, several at a time, each of those in a job of its own that stays warm.
  void for_all(int at_a_time,
               const std::function<void(const Way&, const std::string& job, int victim)>& act) {
    std::vector<Way> all = test::ways();
    if (const char* only = std::getenv("MUSTER_FAULT_ONLY"))
      std::erase_if(all, [only](const Way& way) { return way.point != only; });
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < at_a_time; ++t)
      threads.emplace_back([&, job = "job-" + std::to_string(t)] {
        for (std::size_t i = next++; i < all.size(); i = next++) {
          const int victim = static_cast<int>(i) % FaultJob::kWorld;
          SCOPED_TRACE(fmt::format("at {}, hit {}, in step {}, victim {}", all[i].point, all[i].hit,
                                   all[i].step, victim));
          act(all[i], job, victim);
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
  // When the victim came to the point; fails the test if it did not.
  static std::int64_t reached(FaultJob& job, const Way& way) {
    std::istringstream words(job.at_point());
    std::string at, point;
    std::int64_t when = 0;
    words >> at >> point >> when;
    EXPECT_EQ(at, "at") << words.str();
    EXPECT_EQ(point, way.point);
    return when;
  }
  static std::string fault(const Way& way, const char* act) {
    return fmt::format("{}:{}={}", way.point, way.hit, act);
  }
  // All waiting ranks get the verdict on a rank that neither comes nor goes, at the deadline and not before.
  void expect_overdue(FaultJob& job, const std::string& why) {
    std::int64_t longest = 0;
    for (test::FaultRank* rank : job.survivors()) {
      const Ending e = test::ending_of(rank->line());
      EXPECT_EQ(e.status, "MUSTER_ERR_TIMEOUT") << e.line;
      const std::int64_t deadline_ns = is_patient(e.step) ? kPatienceNs : kDeadlineNs;
      const auto after_ms = static_cast<double>(e.heard_ns - e.called_ns - deadline_ns) / 1e6;
      latest_ms_ = std::max(latest_ms_.load(), after_ms);
      test::expect_promised(after_ms, kPromisedAfterMs, "ms from a deadline to its verdict");
      EXPECT_THAT(e.text, HasSubstr(fmt::format("rank {} is {}", job.victim_rank, why)));
      EXPECT_THAT(rank->wait(), AnyOf(0, 42));
      longest = std::max(longest, e.heard_ns - e.called_ns);
    }
    EXPECT_GE(longest, kDeadlineNs) << "who came first has waited for the whole of it";
  }
  void print_latest() const { std::printf("deadline to verdict: max %.1f ms\n", latest_ms_.load()); }
  // A rank that was held up for less than the deadline completes, and so do the others.
  static void expect_no_failure(FaultJob& job, int victim, pid_t pid) {
    EXPECT_EQ(job.ending_of_victim().how, "left");
    EXPECT_EQ(job.victim().wait(), 0);
    for (test::FaultRank* rank : job.survivors()) {
      const Ending e = test::ending_of(rank->line());
      EXPECT_EQ(e.how, "parted") << e.line;
      EXPECT_THAT(e.text, HasSubstr(fmt::format("rank {} (pid {}) detached", victim, pid)));
      EXPECT_EQ(rank->wait(), 0);
    }
  }
  // A rank that was held up beyond the deadline never succeeds late. A rank that was leaving may leave.
  static void expect_no_late_success(FaultJob& job, const Way& way) {
    const Ending e = job.ending_of_victim();
    EXPECT_EQ(e.how, is_leaving(way) ? "left" : "lost") << e.line;
    EXPECT_EQ(job.victim().wait(), is_leaving(way) ? 0 : 42) << e.line;
  }

  test::Node node_;
  std::atomic<double> latest_ms_{0};  // of all verdicts of deadlines; a figure, so two at once may lose one
};

struct Times {
  void add(std::int64_t nanos, const Way& way) {
    const std::lock_guard lock(mutex);
    if (all.empty() || nanos > *std::max_element(all.begin(), all.end())) slowest = way.point;
    all.push_back(nanos);
  }
  double ms(std::size_t i) const { return static_cast<double>(all[std::min(i, all.size() - 1)]) / 1e6; }
  double p99_ms() const { return ms(all.size() * 99 / 100); }  // once it is printed
  void print(const char* what) {
    if (all.empty()) return;
    std::sort(all.begin(), all.end());
    std::printf("%s: median %.2f ms, p99 %.2f ms, max %.2f ms (%s) over %zu\n", what, ms(all.size() / 2),
                p99_ms(), ms(all.size() - 1), slowest.c_str(), all.size());
  }
  std::mutex mutex;
  std::vector<std::int64_t> all;
  std::string slowest;
};

TEST_F(AtEachPoint, ThereIsAWay) {
  std::set<std::string> there;
  for (const Way& way : test::ways()) there.insert(way.point);
  std::set<std::string> known;
  for (const std::string_view point : fault::kPoints)
    EXPECT_TRUE(!of_a_client(point) || known.emplace(point).second) << point << " stands twice in the list";
  EXPECT_EQ(there, known);
  EXPECT_GE(known.size(), kPointsLeast);
  std::printf("%zu fault points, %zu ways to them\n", known.size(), test::ways().size());
}

// Goal:   wherever a rank dies, all others hear that it was this one, and the job stays usable.
TEST_F(AtEachPoint, ADeathIsToldToAllWithItsName) {
  node_.start();
  Times told;
  Times told_by_launcher;
  for_all(1, [&](const Way& way, const std::string& name, int victim) {
    FaultJob job(node_, name, victim, {way.step}, fault(way, "kill"));
    const std::int64_t died = reached(job, way);
    const pid_t pid = job.victim().pid();
    EXPECT_EQ(job.victim().wait(), 128 + SIGKILL);
    const bool launcher = is_unknown(way) || way.point == "attach.hello_sent";
    const std::int64_t known = launcher ? test::now_ns() : died;  // to whoever has to tell it
    if (launcher) test::say_absent(node_, name, victim, pid);
    for (test::FaultRank* rank : job.survivors()) {
      const Ending e = test::ending_of(rank->line());
      EXPECT_EQ(e.status, "MUSTER_ERR_PEER_LOST") << e.line;
      EXPECT_THAT(e.text, HasSubstr(told_of(way, victim, pid)));
      EXPECT_THAT(rank->wait(), AnyOf(0, 42));
      (launcher ? told_by_launcher : told)
          .add(e.heard_ns - std::max(known, e.called_ns), way);  // of who waits
    }
    if (launcher) test::expect_all(node_, name);
  });
  told.print("death to knowledge, each survivor");
  told_by_launcher.print("the same where a launcher has to tell it, from its word on");
  for (const Times* times : {&told, &told_by_launcher})
    if (!times->all.empty())
      test::expect_promised(times->p99_ms(), kPromisedMs, "p99 of death to knowledge, in ms");
}

TEST_F(AtEachPoint, AStoppedRankIsCalledStoppedAtTheDeadlineAndNotBefore) {
  node_.options.job_defaults.deadline = kDeadline;
  node_.start();
  for_all(8, [&](const Way& way, const std::string& name, int victim) {
    FaultJob job(node_, name, victim, {way.step}, fault(way, "stop"));
    reached(job, way);
    ASSERT_TRUE(job.victim().await_stop());
    expect_overdue(job, is_unknown(way) ? "not attached" : "stopped by a signal");
    job.victim().kill(SIGCONT);
    expect_no_late_success(job, way);
  });
  print_latest();
}

TEST_F(AtEachPoint, AFrozenRankIsCalledFrozenAtTheDeadlineAndNotBefore) {
  if (!test::Freezer("try").valid()) GTEST_SKIP() << "no cgroup with a freezer can be made here";
  node_.options.job_defaults.deadline = kDeadline;
  node_.start();
  for_all(8, [&](const Way& way, const std::string& name, int victim) {
    FaultJob job(node_, name, victim, {way.step}, fault(way, "hold"));
    const test::Freezer freezer(name);
    reached(job, way);
    freezer.take(job.victim().pid());
    ASSERT_TRUE(freezer.freeze(true));
    expect_overdue(job, is_unknown(way) ? "not attached" : "frozen");
    ASSERT_TRUE(freezer.freeze(false));
    job.victim().kill(SIGUSR1);
    expect_no_late_success(job, way);
  });
  print_latest();
}

// Goal:   a rank that was stopped for half of the deadline completes, and so do the others.
TEST_F(AtEachPoint, AStopWithinTheDeadlineIsNoFailure) {
  node_.options.job_defaults.deadline = kDeadline;
  node_.start();
  for_all(8, [&](const Way& way, const std::string& name, int victim) {
    FaultJob job(node_, name, victim, {way.step}, fault(way, "stop"));
    reached(job, way);
    const pid_t pid = job.victim().pid();
    ASSERT_TRUE(job.victim().await_stop());
    std::this_thread::sleep_for(kDeadline / 2);
    job.victim().kill(SIGCONT);
    expect_no_failure(job, victim, pid);
  });
}

TEST_F(AtEachPoint, AFreezeWithinTheDeadlineIsNoFailure) {
  if (!test::Freezer("try").valid()) GTEST_SKIP() << "no cgroup with a freezer can be made here";
  node_.options.job_defaults.deadline = kDeadline;
  node_.start();
  for_all(8, [&](const Way& way, const std::string& name, int victim) {
    FaultJob job(node_, name, victim, {way.step}, fault(way, "hold"));
    const test::Freezer freezer(name);
    reached(job, way);
    const pid_t pid = job.victim().pid();
    freezer.take(pid);
    ASSERT_TRUE(freezer.freeze(true));
    std::this_thread::sleep_for(kDeadline / 2);
    ASSERT_TRUE(freezer.freeze(false));
    job.victim().kill(SIGUSR1);
    expect_no_failure(job, victim, pid);
  });
}

// Goal:   the verdict blames a stopped rank, not the rank that waits until the stopped one has read its data.
// Method: rank 0 stops while it reads what rank 1 gave; rank 1 waits for it, and rank 2 for rank 1.
TEST(WaitForReaders, NamesTheReaderThatIsStopped) {
  test::Node node;
  node.options.job_defaults.deadline = kDeadline;
  node.start();
  for (const std::string step : {"reader", "reader_in_place"}) {
    FaultJob job(node, step, 0, {step}, "operation.agreed:1=stop");
    EXPECT_THAT(job.at_point(), HasSubstr("at operation.agreed"));
    for (test::FaultRank* rank : job.survivors()) {
      const Ending e = test::ending_of(rank->line());
      EXPECT_EQ(e.status, "MUSTER_ERR_TIMEOUT") << e.line;
      EXPECT_THAT(e.text, HasSubstr("missing rank 1; rank 0 is stopped by a signal"));
      EXPECT_THAT(e.text, HasSubstr("group ranks 1 2:")) << "which has no name";
      EXPECT_EQ(rank->wait(), 42);
    }
    job.victim().kill(SIGCONT);
    EXPECT_EQ(job.ending_of_victim().how, "lost") << "it may have read what was overwritten";
  }
}

}  // namespace
}  // namespace muster
