// A rank that comes late is named within 100 operations, by `muster top`, `muster hang` and the engine's log,
// on both paths; and where nobody comes late nobody is named. T-14. MUSTER_CONTROL_STARTS says
// how many operations the control run on the engine path has.
#include "daemon/cli/question.hpp"

#include "api/shm/job_counters.hpp"
#include "tests/daemon/cli/program.hpp"
#include "tests/fault/captured_errors.hpp"
#include "tests/support/node.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

constexpr int kWorld = 4;
constexpr int kNobody = -1;
constexpr milliseconds kDelay(20);

// All ranks of a job, each a thread with a session of its own, that reduce over the world so often.
class Ranks {
 public:
  Ranks(const test::Node& node, std::string verb, int operations, int slow)
      : node_(node), verb_(std::move(verb)), operations_(operations), slow_(slow) {
    for (int rank = 0; rank < kWorld; ++rank) threads_.emplace_back([this, rank] { work(rank); });
  }
  // They stay attached until then.
  ~Ranks() {
    leave_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  bool done() const { return done_.load() == kWorld; }
  void wait() const {
    while (!done()) std::this_thread::sleep_for(milliseconds(5));
  }
  bool attached() const { return attached_.load() == kWorld; }

 private:
  void work(int rank) {
    const muster_open_options options = node_.rank("job", rank, kWorld, "dp_shard=4");
    muster_session* session = nullptr;
    EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
    if (session != nullptr) {
      ++attached_;
      reduce(session, rank);
    }
    ++done_;
    while (!leave_.load()) std::this_thread::sleep_for(milliseconds(5));
    if (session != nullptr) {
      EXPECT_EQ(muster_close(session), MUSTER_OK);
    }
  }
  void reduce(muster_session* session, int rank) const {
    muster_buffer buffer = 0;
    ASSERT_EQ(muster_buffer_alloc(session, 64, &buffer, nullptr), MUSTER_OK) << muster_last_error();
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    ASSERT_EQ(muster_mesh_group(session, "dp_shard", &what.group), MUSTER_OK) << muster_last_error();
    what.op = MUSTER_ALL_REDUCE;
    what.dtype = MUSTER_F32;
    what.redop = MUSTER_MAX;
    what.source = what.target = {buffer, 0};
    what.count = 4;
    muster_plan plan = 0;
    ASSERT_EQ(muster_plan_collective(session, &what, &plan), MUSTER_OK) << muster_last_error();
    for (int i = 0; i < operations_; ++i) {
      if (rank == slow_) std::this_thread::sleep_for(kDelay);
      ASSERT_EQ(operate(session, plan), MUSTER_OK) << "operation " << i << ": " << muster_last_error();
    }
  }
  muster_status_t operate(muster_session* session, muster_plan plan) const {
    if (verb_ == "run") return muster_plan_run(session, plan, 0);
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_ALLREDUCE;
    muster_point point = 0;
    const muster_status_t started = muster_plan_start(session, plan, &submit, &point);
    return started == MUSTER_OK ? muster_point_wait(session, point, -1) : started;
  }

  const test::Node& node_;
  const std::string verb_;
  const int operations_;
  const int slow_;
  std::atomic<int> attached_{0};
  std::atomic<int> done_{0};
  std::atomic<bool> leave_{false};
  std::vector<std::thread> threads_;
};

class Straggling : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { node_.start(); }
  Json ask(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--json", "--endpoint", node_.endpoint()});
    const test::Ran ran = test::muster(std::move(arguments));
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.json();
  }
  Json top() const { return ask({"top", "--job", "job", "--once", "--interval", "0.3"}); }
  Json hang() const { return ask({"hang", "--job", "job"}); }
  static std::vector<int> late_in(const Json& top) {
    std::vector<int> ranks;
    for (const Json& rank : top.at("ranks"))
      if (rank.at("late").get<bool>()) ranks.push_back(rank.at("rank"));
    return ranks;
  }
  // Looks at the job's counters until the ranks are done: the ranks that were called late at any time.
  std::vector<std::uint32_t> called_late_during(const Ranks& ranks) const {
    while (!ranks.attached()) std::this_thread::sleep_for(milliseconds(5));
    const auto answer = cli::ask({node_.endpoint()}, {{"command", "counters"}, {"job", "job"}});
    EXPECT_TRUE(answer && answer->descriptors.size() == 1);
    const auto counters = *shm::JobCountersReader::attach(answer->descriptors.front());
    std::vector<std::uint32_t> called;
    while (!ranks.done()) {
      std::this_thread::sleep_for(milliseconds(20));
      for (std::uint32_t rank = 0; rank < counters.ranks(); ++rank)
        if (counters.value(rank, shm::RankCount::kLateIn) > 0) called.push_back(rank);
    }
    return called;
  }

  const test::CapturedErrors errors_;
  test::Node node_;
};

INSTANTIATE_TEST_SUITE_P(Paths, Straggling, ::testing::Values("run", "start"),
                         [](const auto& of) { return std::string(of.param); });

TEST_P(Straggling, IsNamedWithin100Operations) {
  constexpr int kSlow = 2;
  const Ranks ranks(node_, GetParam(), 100, kSlow);
  ranks.wait();
  const Json now = top();
  EXPECT_THAT(late_in(now), ElementsAre(kSlow)) << now.dump(1);
  const Json& lag = now.at("ranks").at(kSlow).at("lag");
  EXPECT_EQ(lag.at("group"), "dp_shard");
  EXPECT_GE(lag.at("median_ns").get<std::int64_t>(), std::chrono::nanoseconds(kDelay).count() / 2);
  EXPECT_LT(lag.at("others_ns").get<std::int64_t>(), lag.at("median_ns").get<std::int64_t>());
  const Json report = hang();
  EXPECT_EQ(report.at("verdict"), "healthy") << "nothing fails because a rank is late";
  ASSERT_EQ(report.at("stragglers").size(), 1u) << report.dump(1);
  EXPECT_EQ(report.at("stragglers").at(0).at("rank"), kSlow);
  EXPECT_EQ(report.at("stragglers").at(0).at("group"), "dp_shard");
  EXPECT_THAT(report.at("text").get<std::string>(),
              HasSubstr("late     group dp_shard: rank 2 comes late: median"));
  if (std::thread::hardware_concurrency() < 4) {
    EXPECT_THAT(errors_.text(), Not(HasSubstr("comes late"))) << "the ranks share cores";
    return;
  }
  EXPECT_THAT(errors_.text(), AllOf(HasSubstr("group dp_shard: rank 2 comes late: median"),
                                    Not(HasSubstr("rank 0 comes late")), Not(HasSubstr("rank 1 comes late")),
                                    Not(HasSubstr("rank 3 comes late"))));
}

TEST_P(Straggling, IsNobodyInAControlRun) {
  const bool direct = std::string(GetParam()) == "run";
  const char* starts = std::getenv("MUSTER_CONTROL_STARTS");
  const int operations = direct ? 100'000 : starts != nullptr ? std::atoi(starts) : 5'000;
  const auto begin = std::chrono::steady_clock::now();
  const Ranks ranks(node_, GetParam(), operations, kNobody);
  EXPECT_THAT(called_late_during(ranks), IsEmpty());
  const auto spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin);
  std::printf("%d operations took %.2f s\n", operations, spent.count());
  const Json now = top();
  EXPECT_THAT(late_in(now), IsEmpty()) << now.dump(1);
  EXPECT_FALSE(now.at("ranks").at(0).at("lag").is_null()) << "they were measured";
  EXPECT_THAT(hang().at("stragglers"), IsEmpty());
  EXPECT_THAT(errors_.text(), Not(HasSubstr("comes late")));
}

}  // namespace
}  // namespace muster
