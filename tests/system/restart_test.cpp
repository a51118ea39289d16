// A supervisor that is killed and upgraded many times over, while ranks compute, come and go.
// MUSTER_RESTARTS says how often; the default is short.
#include "tests/system/ranks_fixture.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace muster::test {
namespace {

using ::testing::HasSubstr;

#if defined(MUSTER_SANITIZED)
constexpr int kRestarts = 12;
#else
constexpr int kRestarts = 40;
#endif
constexpr double kPromisedBackMs = 200;

int restarts() {
  const char* text = std::getenv("MUSTER_RESTARTS");
  return text == nullptr ? kRestarts : std::atoi(text);
}

// `promised`: of the p99, in ms; 0: nothing is.
void report(const char* what, std::vector<double>& ms, double promised) {
  ASSERT_FALSE(ms.empty()) << what << ": nothing was measured";
  std::sort(ms.begin(), ms.end());
  std::printf("%s: median %.1f ms, p99 %.1f ms, max %.1f ms over %zu\n", what, ms[ms.size() / 2],
              ms[ms.size() * 99 / 100], ms.back(), ms.size());
  if (promised > 0) expect_promised(ms[ms.size() * 99 / 100], promised, what);
}

class Restart : public RanksTest {
 protected:
  // A session that comes and goes, in a job that its first Hello creates.
  void visit() {
    while (!pause_visits()) {
      muster_session* session = nullptr;
      const bool opened = open("visited", 0, 1, &session) == MUSTER_OK;
      EXPECT_TRUE(opened) << muster_last_error();
      if (!opened || muster_close(session) != MUSTER_OK) ++failures_;
      ++visits_;
    }
  }
  // Each token lets one in, once, whoever issued it and whoever looks at it.
  void use_tokens() {
    while (!pause_visits()) {
      const Json issued = ask({{"command", "token"}, {"job", "closed"}, {"rank", 0}});
      if (!issued.is_object()) break;
      const auto token = issued.at("token").get<std::string>();
      muster_session* session = nullptr;
      EXPECT_EQ(open("closed", 0, 1, &session, token), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(muster_close(session), MUSTER_OK);
      session = nullptr;
      EXPECT_EQ(open("closed", 0, 1, &session, token), MUSTER_ERR_DENIED) << "twice with one token";
      muster_close(session);
      ++tokens_;
    }
  }
  // Runs that begin and end while the daemon does.
  void make_runs() {
    while (!pause_visits()) {
      const Ran ran =
          muster({"run", "-n", "2", "--endpoint", socket(), "--timeout", "60", "--", "/bin/true"});
      EXPECT_EQ(ran.code, 0) << ran.err << latest_log();
      EXPECT_THAT(ran.err, ::testing::MatchesRegex("muster run: joins the daemon at [^\n]*\n")) << "no more";
      ++runs_;
    }
  }
  // The end of the daemons' log, to find out why a run failed.
  std::string latest_log() {
    constexpr std::size_t kTail = 6000;
    const std::string log = steward().log();
    return log.size() > kTail ? log.substr(log.size() - kTail) : log;
  }
  bool pause_visits() {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return end_visits_;
  }
  double await_back(Steady::time_point since) {
    EXPECT_TRUE(within(std::chrono::seconds(30), [&] {
      const Json now = status();
      return has_ranks(now, "steady", kWorld) && has_ranks(now, run_job_, 2);
    })) << steward().log();
    return std::chrono::duration<double, std::milli>(Steady::now() - since).count();
  }
  void kill_and_restart() {
    auto killed = Steady::now();
    steward().end(SIGKILL);
    steward().start(kThis);
    if (random_() % 8 == 0) {  // again, in the middle of the takeover
      std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 12));
      killed = Steady::now();
      steward().end(SIGKILL);
      steward().start(kThis);
    }
    after_kill_.push_back(await_back(killed));
    EXPECT_EQ(status().at("state").at("version"), 1);
  }
  void upgrade_to_next() {
    const auto asked = Steady::now();
    const pid_t pid = steward().pid();
    ASSERT_EQ(upgrade(kNext), "") << steward().log();
    const double all = await_back(asked);
    const std::chrono::duration<double, std::milli> check = steward().heard_at("RELOADING=1") - asked;
    after_upgrade_.push_back(all - check.count());
    checks_.push_back(check.count());
    const Json now = status();
    EXPECT_EQ(now.at("pid"), pid) << "the same process";
    EXPECT_EQ(now.at("state").at("version"), 2);
  }

  std::mt19937_64 random_{20260};
  std::atomic<bool> end_visits_{false};
  std::atomic<int> visits_{0}, tokens_{0}, runs_{0}, failures_{0};
  std::vector<double> after_kill_, after_upgrade_, checks_;
};

TEST_F(Restart, LosesNoOperationNoSessionAndNoDescriptor) {
  begin(kThis);
  ask({{"command", "job_create"},
       {"spec", {{"name", "closed"}, {"world", 1}, {"mesh", "dp_shard=1"}, {"claim", "token"}}},
       {"keep", true}});
  start_ranks();
  watch_ranks();
  std::thread visitor([this] { visit(); });
  std::thread tokens([this] { use_tokens(); });
  std::thread runs([this] { make_runs(); });
  const Json first = status();
  std::vector<std::pair<pid_t, Holdings>> engines_before;
  std::size_t daemon_before = 0;
  for (int i = 0; i < restarts() && !HasFailure(); ++i) {
    SCOPED_TRACE(::testing::Message() << "restart " << i);
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + random_() % 30));
    const auto before = operations();
    i % 2 == 0 ? kill_and_restart() : upgrade_to_next();
    expect_more_than(before);
    if (i == 3) {
      for (const char* job : {"steady", run_job_.c_str()})
        engines_before.emplace_back(this->job(job).at("engine_pid").get<pid_t>(), Holdings{});
      for (auto& [engine, holdings] : engines_before) holdings = holdings_of(engine);
      daemon_before = holdings_of(steward().pid()).descriptors;
    }
  }
  end_visits_ = true;
  visitor.join();
  tokens.join();
  runs.join();
  EXPECT_EQ(failures_, 0);
  EXPECT_GT(visits_, 0);
  EXPECT_GT(tokens_, 0);
  EXPECT_GT(runs_, 0);

  const Json last = status();
  EXPECT_EQ(last.at("epoch"), first.at("epoch"));
  EXPECT_GT(last.at("instance").get<int>(), restarts());
  EXPECT_EQ(job_in(last, "steady").at("epoch"), job_in(first, "steady").at("epoch")) << "the same job";
  for (const auto& [engine, before] : engines_before) {
    EXPECT_LE(await_descriptors(engine, before.descriptors), before.descriptors) << "engine " << engine;
    EXPECT_LE(holdings_of(engine).mappings, before.mappings) << "engine " << engine;
  }
  // Two more than what a visitor had just then.
  EXPECT_LE(await_descriptors(steward().pid(), daemon_before), daemon_before + 2);

  end_ranks(restarts());
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return job(run_job_).is_null(); }))
      << "the job of `muster run` ends with it: " << status();
  EXPECT_THAT(steward().kept_with("owner-"), ::testing::IsEmpty());
  // A state, two sockets, two locks, the page of their user, and three of each of the other jobs. One that is
  // ending gives its three back before it is gone.
  const auto kept_is_right = [&] { return steward().kept().size() == 6 + 3 * status().at("jobs").size(); };
  EXPECT_TRUE(within(std::chrono::seconds(10), kept_is_right))
      << ::testing::PrintToString(steward().kept()) << status();
  EXPECT_EQ(steward().end(SIGTERM), 0) << steward().log();
  EXPECT_THAT(steward().kept(), ::testing::IsEmpty());
  EXPECT_TRUE(within(std::chrono::seconds(10), [] {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    return engines().empty();
  }));
  report("kill -9 to all sessions shown again", after_kill_, kPromisedBackMs);
  report("exec to all sessions shown again", after_upgrade_, kPromisedBackMs);
  report("check of the next program before", checks_, 0);
  std::printf("%d visits, %d tokens, %d runs\n", visits_.load(), tokens_.load(), runs_.load());
}

}  // namespace
}  // namespace muster::test
