// A warm restart: the ranks of a job are killed, all at once, and started anew for the same job.
#include "daemon/cli/question.hpp"
#include "tests/daemon/cli/program.hpp"

#include <csignal>
#include <sstream>
#include <string>
#include <vector>

namespace muster::test {
namespace {

constexpr std::size_t kWorld = 4;

class Warm : public testing::Test {
 protected:
  std::vector<std::string> run(std::vector<std::string> options, const std::string& what, int generation) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"--job", "train", "--endpoint", daemon_.socket(), "--",
                                   MUSTER_WARM_RANK_PROGRAM, what, std::to_string(generation)});
    return options;
  }
  // The processes that say "filled PID", whatever stands before it.
  static std::vector<pid_t> filled(const std::string& out) {
    std::vector<pid_t> pids;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);)
      if (const auto at = line.find("filled "); at != std::string::npos)
        pids.push_back(std::atoi(line.c_str() + at + 7));
    return pids;
  }
  pid_t engine() const {
    const auto answer = cli::ask({daemon_.socket(), std::chrono::seconds(30)}, {{"command", "status"}});
    EXPECT_TRUE(answer) << answer.error().text;
    if (!answer || answer->result.at("jobs").size() != 1) return 0;
    return answer->result.at("jobs").at(0).at("engine_pid").get<pid_t>();
  }

  Daemon daemon_;
};

// Goal:   a job outlives all of its ranks at once: who is started again finds groups, and memory with what
//         was in it, that of its own and that of all.
// Method: twice over, with other contents, in the middle of operations on both paths.
TEST_F(Warm, FindsItsMemoryAfterAllRanksWereKilled) {
  pid_t before = 0;
  for (int generation = 1; generation <= 2; ++generation) {
    SCOPED_TRACE(generation);
    std::vector<std::string> words =
        run(generation == 1 ? std::vector<std::string>{"-n", "4", "--mesh", "dp_shard=2,tp=2", "--keep"}
                            : std::vector<std::string>{},
            "fill", generation);
    words.insert(words.begin(), program("muster"));
    Running first({words, {}, {}});
    for (int waited = 0; waited < kPatienceMs && filled(first.out()).size() < kWorld; waited += 10)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::vector<pid_t> ranks = filled(first.out());
    ASSERT_EQ(ranks.size(), kWorld) << first.out() << first.err();
    if (before == 0) before = engine();
    ASSERT_NE(before, 0);
    // Stopped first, or who hears of the first death may leave before its own.
    for (const int signal : {SIGSTOP, SIGKILL})
      for (const pid_t rank : ranks) EXPECT_EQ(kill(rank, signal), 0);
    EXPECT_NE(first.wait().code, 0) << "its ranks were killed";
    const Ran second = muster(run({}, "find", generation));
    EXPECT_EQ(second.code, 0) << second.out << second.err;
    std::size_t found = 0;
    for (std::size_t at = 0; (at = second.out.find("found", at)) != std::string::npos; ++at) ++found;
    EXPECT_EQ(found, kWorld) << second.out;
    EXPECT_EQ(engine(), before) << "the engine stays";
  }
}

}  // namespace
}  // namespace muster::test
