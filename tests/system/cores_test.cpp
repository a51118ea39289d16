// On which cores an engine runs: those of its ranks, or the daemon's.
#include "tests/support/cores.hpp"
#include "daemon/cli/question.hpp"
#include "tests/daemon/cli/program.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace muster::test {
namespace {

constexpr std::size_t kWorld = 2;
constexpr int kSamples = 200;

// The kernel's state of a thread.
struct Sight {
  std::string name;
  std::string allowed;     // Cpus_allowed_list
  int processor = -1;      // where it ran last
  std::uint64_t runs = 0;  // how often it gave up a core; a sleeping thread keeps its last processor
};

std::map<pid_t, Sight> threads_of(pid_t process) {
  std::map<pid_t, Sight> all;
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), gone)) {
    Sight sight;
    std::ifstream status(task.path() / "status");
    for (std::string name; status >> name; status.ignore(1 << 16, '\n')) {
      std::uint64_t number = 0;
      if (name == "Name:") status >> sight.name;
      if (name == "Cpus_allowed_list:") status >> sight.allowed;
      if (name.ends_with("ctxt_switches:") && status >> number) sight.runs += number;
    }
    std::ifstream file(task.path() / "stat");
    std::string stat;
    if (!std::getline(file, stat)) continue;  // it has ended
    std::istringstream fields(stat.substr(stat.rfind(')') + 1));
    std::string field;
    for (int number = 3; number <= 39; ++number) fields >> field;  // proc_pid_stat(5)
    sight.processor = std::atoi(field.c_str());
    all[std::atoi(task.path().filename().c_str())] = sight;
  }
  return all;
}

class EngineCores : public testing::Test {
 protected:
  void SetUp() override {
    if (cores_.size() < 2) GTEST_SKIP() << "with one core there is no other to keep off";
  }

  // Ranks that work on both paths until they are killed, from a launcher on these cores.
  std::unique_ptr<Running> work(const Daemon& daemon, bool first, const std::vector<int>& cores) {
    std::vector<std::string> words{program("muster"), "run", "--job", "train", "--endpoint", daemon.socket()};
    if (first) words.insert(words.end(), {"-n", std::to_string(kWorld), "--mesh", "dp_shard=2", "--keep"});
    words.insert(words.end(), {"--", MUSTER_RANK_PROGRAM, "fill", "1"});
    auto ranks = std::make_unique<Running>(Start{words, {}, [cores] { keep_to(cores); }});
    const auto working = [&] {
      const std::string out = ranks->out();
      std::size_t found = 0;
      for (std::size_t at = 0; (at = out.find("filled", at)) != std::string::npos; ++at) ++found;
      return found == kWorld;
    };
    for (int waited = 0; waited < kPatienceMs && !working(); waited += 10)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(working()) << ranks->out() << ranks->err();
    return ranks;
  }
  static pid_t engine(const Daemon& daemon) {
    const auto answer = cli::ask({daemon.socket(), std::chrono::seconds(30)}, {{"command", "status"}});
    EXPECT_TRUE(answer) << answer.error().text;
    if (!answer || answer->result.at("jobs").size() != 1) return 0;
    return answer->result.at("jobs").at(0).at("engine_pid").get<pid_t>();
  }
  // While the ranks work: all threads of the engine are kept to these cores, and run on no other.
  static void expect_on(const std::vector<int>& cores, pid_t engine) {
    std::vector<int> seen;
    std::size_t ran = 0;
    const auto begun = threads_of(engine);
    EXPECT_GE(begun.size(), 3u) << "a conductor, a watchdog and workers";
    for (int sample = 0; sample < kSamples; ++sample) {
      for (const auto& [thread, sight] : threads_of(engine)) {
        EXPECT_EQ(sight.allowed, list_of(cores)) << "thread " << thread;
        const auto before = begun.find(thread);
        if (before != begun.end() && before->second.runs == sight.runs) continue;
        ++ran;
        EXPECT_TRUE(std::count(cores.begin(), cores.end(), sight.processor))
            << "thread " << thread << " ran on " << sight.processor;
      }
      if (HasFailure()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_GT(ran, 0u) << "no thread of the engine ran";
    std::printf("cores %s: %zu sights of %zu threads\n", list_of(cores).c_str(), ran, begun.size());
  }
  // While the ranks work: so many of its workers run and no other, as soon as these have gone to sleep.
  static void expect_working(std::size_t workers, pid_t engine) {
    std::size_t ran = 0;
    for (int waited = 0; waited < kPatienceMs && (ran == 0 || ran > workers); waited += 200) {
      const auto begun = threads_of(engine);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      ran = 0;
      for (const auto& [thread, sight] : threads_of(engine)) {
        const auto before = begun.find(thread);
        if (!sight.name.starts_with("muster-w") || before == begun.end()) continue;
        if (sight.runs != before->second.runs) ++ran;
      }
    }
    EXPECT_GT(ran, 0u);
    EXPECT_LE(ran, workers);
  }
  // As the kernel writes it.
  static std::string list_of(const std::vector<int>& cores) {
    std::string text;
    for (std::size_t i = 0; i < cores.size(); ++i) {
      const std::size_t first = i;
      while (i + 1 < cores.size() && cores[i + 1] == cores[i] + 1) ++i;
      text += fmt::format("{}{}", text.empty() ? "" : ",", cores[first]);
      if (i > first) text += fmt::format("-{}", cores[i]);
    }
    return text;
  }

  const std::vector<int> cores_ = own_cores();
};

// Goal:   the engine of ranks that are bound to one core never runs on another, whichever it is, and that of
//         ranks that are bound to none runs on all.
// Method: ranks of one job that come after each other, bound each time to other cores.
TEST_F(EngineCores, AreThoseOfTheRanks) {
  const Daemon daemon;
  bool first = true;
  pid_t before = 0;
  for (const std::vector<int>& cores : {std::vector<int>{cores_.back()}, {cores_.front()}, cores_}) {
    SCOPED_TRACE(list_of(cores));
    const auto ranks = work(daemon, first, cores);
    const pid_t now = engine(daemon);
    ASSERT_NE(now, 0);
    if (!first) {
      EXPECT_EQ(now, before) << "the engine stays";
    }
    before = now;
    expect_on(cores, now);
    expect_working(cores.size(), now);
    ranks->signal(SIGTERM);
    static_cast<void>(ranks->wait());
    first = false;
  }
}

TEST_F(EngineCores, AreTheDaemonsIfSoIsTheSetting) {
  const Daemon daemon({"--set", "node.cores=daemon"});
  const auto ranks = work(daemon, true, {cores_.front()});
  expect_on(cores_, engine(daemon));
  ranks->signal(SIGTERM);
  static_cast<void>(ranks->wait());
}

}  // namespace
}  // namespace muster::test
