#include "daemon/cli/run/run_absences.hpp"

#include "tests/daemon/cli/run/scripted_link.hpp"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

JobJoiner::Job job_of_ranks(bool stays) {
  JobJoiner::Job job;
  job.name = "train";
  job.stays = stays;
  return job;
}

// A daemon that hears of an absence only when it is told so often.
test::ScriptedDaemon::Script deaf_until(std::atomic<int>& times) {
  return [&times](const std::string& command) {
    return command == "absent" && --times > 0
               ? control::failed(failure(Code::kBusy, "the engine owes 4096 answers"))
               : Json::object();
  };
}

TEST(RunAbsences, AreToldUntilTheyAreHeard) {
  std::atomic<int> times = 3;
  test::ScriptedLink scripted(deaf_until(times));
  RunAbsences absences(scripted.loop(), scripted.link(), job_of_ranks(true));
  absences.tell(1, "rank 1 ended");
  EXPECT_TRUE(scripted.turn_until([&] { return times == 0; }));
  bool ended = false;
  absences.end([&] { ended = true; });
  EXPECT_TRUE(scripted.turn_until([&] { return ended; }));
  EXPECT_EQ(scripted.daemon().count("absent"), 3);
  EXPECT_EQ(scripted.daemon().count("expect_all"), 1) << "the job stays";
}

TEST(RunAbsences, AreNotToldOnceAllRanksHaveEnded) {
  std::atomic<int> times = 1000;
  test::ScriptedLink scripted(deaf_until(times));
  RunAbsences absences(scripted.loop(), scripted.link(), job_of_ranks(false));
  absences.tell(1, "rank 1 ended");
  EXPECT_TRUE(scripted.turn_until([&] { return times == 999; }));
  bool ended = false;
  absences.end([&] { ended = true; });
  EXPECT_TRUE(ended) << "the job ends with the run";
  absences.tell(0, "rank 0 ended");
  bool later = false;
  scripted.loop().after(std::chrono::milliseconds(400), [&] { later = true; });
  EXPECT_TRUE(scripted.turn_until([&] { return later; }));
  EXPECT_EQ(scripted.daemon().count("absent"), 1);
  EXPECT_EQ(scripted.daemon().count("expect_all"), 0);
}

}  // namespace
}  // namespace muster::cli
