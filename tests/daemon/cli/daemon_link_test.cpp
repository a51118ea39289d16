#include "daemon/cli/daemon_link.hpp"

#include "daemon/control/own_version.hpp"
#include "tests/support/node.hpp"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

// Goal:   a link that has nothing to ask outlives the daemon's patience with such connections.
// Method: it is let go many times over; then a question is answered.
TEST(DaemonLink, OutlivesBeingLetGoForSilence) {
  constexpr auto kPatience = std::chrono::milliseconds(5);
  test::Node node;
  node.options.idle_timeout = kPatience;
  node.start();
  control::Loop loop;
  bool lost = false;
  std::string version;
  auto link = DaemonLink::open(loop, {node.endpoint(), std::chrono::seconds(30)}, [&] {
    lost = true;
    loop.stop();
  });
  ASSERT_TRUE(link) << link.error().text();
  loop.after(60 * kPatience, [&] {
    (*link)->ask({{"command", "version"}}, [&](const OrTrouble<DaemonAnswer>& answer) {
      version = answer ? answer->result.at("version").get<std::string>() : answer.error().text;
      loop.stop();
    });
  });
  // The first question shows the daemon whom it has there.
  (*link)->ask({{"command", "version"}}, [](const OrTrouble<DaemonAnswer>&) {});
  loop.run();
  EXPECT_FALSE(lost);
  EXPECT_EQ(version, control::own_version());
}

// Goal:   a question that cannot have reached the daemon is asked again, also if it must not be repeated.
// Method: a question that may not be repeated, to a connection that the daemon has ended and nobody has read.
TEST(DaemonLink, AsksAgainWhatNeverLeft) {
  test::Node node;
  node.options.idle_timeout = Nanos(0);
  node.start();
  const SteadyClock clock;
  control::Loop loop;
  auto link = DaemonLink::open(loop, {node.endpoint(), std::chrono::seconds(30)}, [&] { loop.stop(); });
  ASSERT_TRUE(link) << link.error().text();
  std::string text;
  (*link)->ask({{"command", "version"}}, [&](const OrTrouble<DaemonAnswer>&) {
    for (const Instant due = clock.now() + std::chrono::milliseconds(100); clock.now() < due;) {
    }
    (*link)->ask({{"command", "job_destroy"}, {"job", "none"}}, [&](const OrTrouble<DaemonAnswer>& answer) {
      text = answer ? "done" : answer.error().text;
      loop.stop();
    });
  });
  loop.run();
  EXPECT_NE(text.find("no job is named 'none'"), std::string::npos) << text;
}

// Goal:   what a question has come to can be looked at where it was asked.
TEST(DaemonLink, NamesItsDaemonWhereAnAnswerIsLost) {
  EXPECT_EQ(
      lost_in_the_middle({"/tmp/other/ranks/musterd.sock"}, {{"command", "job_create"}}).text,
      "the daemon was restarted in the middle of 'job_create'; whether it was done is not known: `muster "
      "status --endpoint /tmp/other/ranks/musterd.sock` and `muster jobs --endpoint "
      "/tmp/other/ranks/musterd.sock` show what is");
}

}  // namespace
}  // namespace muster::cli
