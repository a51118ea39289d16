// A supervisor that is killed and upgraded many times over, while ranks compute, come and go.
// MUSTER_RESTARTS says how often; the default is short.
#include "tests/system/restart_fixture.hpp"

#include "tests/support/contract.hpp"
#include "tests/system/steady_rank.hpp"

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
constexpr int kWorld = 3;
constexpr std::size_t kRanks = kWorld + 2;  // those of `muster run` too
constexpr double kPromisedBackMs = 200;
constexpr double kPromisedOperationMs = 1000;
constexpr double kOperationMsMax = 20'000;  // however busy the machine is: a third of its deadline

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

class Restart : public RestartTest {
 protected:
  void start_ranks() {
    for (int rank = 0; rank < kWorld; ++rank)
      ranks_.push_back(std::make_unique<Running>(Start{{MUSTER_RANK_PROGRAM, stop_file(), socket(), "steady",
                                                        std::to_string(rank), std::to_string(kWorld)},
                                                       {},
                                                       {}}));
    run_ = std::make_unique<Running>(Start{{program("muster"), "run", "-n", "2", "--endpoint", socket(),
                                            "--timeout", "60", "--", MUSTER_RANK_PROGRAM, stop_file()},
                                           {},
                                           {}});
    run_job_ = run_job_of(run_->pid());
    ASSERT_TRUE(await_ranks("steady", kWorld)) << status();
    ASSERT_TRUE(await_ranks(run_job_, 2)) << status() << run_->err();
  }
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
      EXPECT_EQ(ran.err, "");
      ++runs_;
    }
  }
  // What the daemons said last, for whoever has to find out why a run failed.
  std::string latest_log() {
    constexpr std::size_t kTail = 6000;
    const std::string log = steward().log();
    return log.size() > kTail ? log.substr(log.size() - kTail) : log;
  }
  bool pause_visits() {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return end_visits_;
  }
  std::string stop_file() const { return folder_.path() + "/stop"; }

  void watch_ranks() {
    ASSERT_TRUE(within(std::chrono::seconds(30),
                       [this] {
                         progress_.clear();
                         for (const auto& file : std::filesystem::directory_iterator(folder_.path()))
                           if (file.path().string().ends_with(kProgressSuffix)) watch(file.path());
                         return progress_.size() == kRanks;
                       }))
        << progress_.size() << " ranks show how far they are";
  }
  void watch(const std::string& path) {
    const shm::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat what {};
    if (file.get() < 0 || fstat(file.get(), &what) != 0 || what.st_size < off_t{sizeof(Progress)}) return;
    void* address = mmap(nullptr, sizeof(Progress), PROT_READ, MAP_SHARED, file.get(), 0);
    ASSERT_NE(address, MAP_FAILED);
    progress_.emplace_back(static_cast<const Progress*>(address), [](const Progress* progress) {
      munmap(const_cast<Progress*>(progress), sizeof(Progress));
    });
  }
  std::vector<std::uint64_t> operations() const {
    std::vector<std::uint64_t> all;
    for (const auto& progress : progress_) all.push_back(progress->operations);
    return all;
  }
  // Each rank has gone on since a restart; it did so all the time, so that this does not wait for long.
  void expect_more_than(const std::vector<std::uint64_t>& before) {
    EXPECT_TRUE(within(std::chrono::seconds(2),
                       [&] {
                         const auto now = operations();
                         for (std::size_t i = 0; i < now.size(); ++i)
                           if (now[i] <= before.at(i)) return false;
                         return true;
                       }))
        << "from " << ::testing::PrintToString(before) << " to " << ::testing::PrintToString(operations());
  }
  void end_ranks() {
    folder_.write("stop", "");
    for (auto& rank : ranks_) {
      const Ran ran = rank->wait();
      EXPECT_EQ(ran.code, 0) << ran.err;
      EXPECT_GE(std::atoll(ran.out.c_str()), restarts()) << ran.out;
      std::printf("a rank: %s", ran.out.c_str());
    }
    const Ran ran = run_->wait();
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("operations"));
    expect_short_operations();
  }
  void expect_short_operations() {
    double longest_ms = 0;
    for (const auto& progress : progress_)
      longest_ms = std::max(longest_ms, static_cast<double>(progress->longest_ns) / 1e6);
    std::printf("the longest operation: %.1f ms\n", longest_ms);
    EXPECT_LE(longest_ms, kOperationMsMax);
    expect_promised(longest_ms, kPromisedOperationMs, "ms that the longest operation took");
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
    if (random_() % 8 == 0) {  // again, in the middle of the adoption
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
  std::vector<std::unique_ptr<Running>> ranks_;
  std::unique_ptr<Running> run_;
  std::string run_job_;
  std::atomic<bool> end_visits_{false};
  std::atomic<int> visits_{0}, tokens_{0}, runs_{0}, failures_{0};
  std::vector<double> after_kill_, after_upgrade_, checks_;
  std::vector<std::shared_ptr<const Progress>> progress_;  // of each rank
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

  end_ranks();
  EXPECT_TRUE(within(std::chrono::seconds(20), [&] { return job(run_job_).is_null(); }))
      << "the job of `muster run` ends with it: " << status();
  EXPECT_THAT(steward().kept_with("owner-"), ::testing::IsEmpty());
  // A state, a socket, the page of their user, and three of each of the other jobs.
  EXPECT_EQ(steward().kept().size(), 3 + 3 * status().at("jobs").size());
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
