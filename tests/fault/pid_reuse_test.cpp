// A process number that passes to another as soon as whoever had it is dead: the dead one is called dead, and
// the other has nothing of his. T-13.
#include "tests/support/piped_process.hpp"

#include "api/shm/peer.hpp"
#include "api/shm/socket.hpp"
#include "daemon/cli/question.hpp"
#include "tests/support/all_reduce.hpp"
#include "tests/support/holdings.hpp"
#include "tests/support/node.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <optional>

#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/prctl.h>

namespace muster {
namespace {

using test::PipedProcess;
using ::testing::HasSubstr;

constexpr int kNotAllowed = 77;
constexpr std::int64_t kLongNs = 20'000'000'000;

// The first process of a namespace of its own, with a /proc of its own, and what it has to do there.
[[noreturn]] void be_first(const std::function<void()>& what) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (mount("proc", "/proc", "proc", 0, nullptr) != 0) _exit(kNotAllowed);
  what();
  std::fflush(stdout);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

// In a namespace of process numbers, where the next number is this test's to say; else the reason why not.
std::optional<std::string> with_numbers_of_its_own(const std::function<void()>& what) {
  std::fflush(stdout);
  const pid_t outer = fork();
  if (outer == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) _exit(kNotAllowed);
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(kNotAllowed);
    const pid_t first = fork();
    if (first == 0) be_first(what);
    int status = 0;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  int status = 0;
  waitpid(outer, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code == kNotAllowed) return "no namespace of process numbers may be made here; needs CAP_SYS_ADMIN";
  EXPECT_EQ(code, 0) << "in the namespace: see above";
  return std::nullopt;
}

// Ends it and has its number free.
pid_t end(PipedProcess& process) {
  const pid_t number = process.pid();
  process.kill(SIGKILL);
  EXPECT_EQ(process.wait(), 128 + SIGKILL);
  return number;
}

// A node with a job of two, of which this process is the one and a process of its own the other.
class Pair {
 public:
  explicit Pair(const char* claim) {
    node_.start();
    const auto made =
        cli::ask({node_.endpoint()},
                 {{"command", "job_create"},
                  {"keep", true},
                  {"spec", {{"name", "job"}, {"world", 2}, {"mesh", "dp_shard=2"}, {"claim", claim}}}});
    EXPECT_TRUE(made) << made.error().text;
    if (made && made->result.contains("tokens")) tokens_ = made->result.at("tokens");
    muster_open_options options = node_.rank("job", 0, 2);
    if (!tokens_.empty()) options.token = tokens_[0].c_str();
    EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
    const auto all = test::engines();
    EXPECT_EQ(all.size(), 1u);
    engine_ = all.empty() ? 0 : all.front();
  }
  ~Pair() { EXPECT_EQ(muster_close(session), MUSTER_OK); }

  PipedProcess rank(const char* job, int rank, int world, const std::string& token, pid_t number = 0) const {
    PipedProcess::Options options;
    options.number = number;
    if (!token.empty()) options.settings.push_back("MUSTER_TOKEN=" + token);
    return PipedProcess(MUSTER_RANK_PROGRAM,
                        {"scripted_rank", node_.endpoint(), job, std::to_string(rank), std::to_string(world),
                         fmt::format("dp_shard={}", world), "20000", "listen"},
                        std::move(options));
  }
  // An all-reduce that needs the other.
  muster_point reduce() const {
    const test::AllReduce sum(session, 2);
    std::fill_n(sum.source, 2, 1.0f);  // as a scripted rank has them, and checks the sum
    muster_point point = 0;
    EXPECT_EQ(sum.start(MUSTER_LANE_SMALL, &point), MUSTER_OK) << muster_last_error();
    return point;
  }
  void expect_lost(muster_point point, pid_t number) {
    EXPECT_EQ(muster_point_wait(session, point, kLongNs), MUSTER_ERR_PEER_LOST);
    EXPECT_THAT(muster_last_error(), HasSubstr(fmt::format("rank 1 (pid {}) died", number)));
  }
  // The engine's state of rank 1.
  cli::Json other() const {
    const auto answer = cli::ask({node_.endpoint()}, {{"command", "jobs"}});
    EXPECT_TRUE(answer) << answer.error().text;
    for (const auto& job : answer->result.at("jobs"))
      if (job.at("name") == "job") return job.at("ranks").at(1);
    return {};
  }
  std::string fresh_token() const {
    const auto answer = cli::ask({node_.endpoint()}, {{"command", "token"}, {"job", "job"}, {"rank", 1}});
    EXPECT_TRUE(answer) << answer.error().text;
    return answer ? answer->result.at("token").get<std::string>() : "";
  }
  // A stopped engine notices no death.
  void stop_engine() const {
    kill(engine_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(waitpid(engine_, &status, WUNTRACED), engine_);
  }
  void let_engine_go() const { kill(engine_, SIGCONT); }
  const std::string& token(std::size_t rank) const { return tokens_[rank]; }

  muster_session* session = nullptr;

 private:
  test::Node node_;
  std::vector<std::string> tokens_;
  pid_t engine_ = 0;
};

// Rank 1 has attached and died beside what rank 0 waits for, and the engine is stopped since before its
// death.
struct Loss {
  muster_point point;
  pid_t number;  // that the rank had
};
Loss lose_a_rank(Pair& pair) {
  PipedProcess victim = pair.rank("job", 1, 2, "");
  EXPECT_EQ(victim.line(), "attached");
  const muster_point point = pair.reduce();
  pair.stop_engine();
  return {point, end(victim)};
}

// Goal:   an engine that looks only after the number is another's knows all the same that its rank is dead.
// Method: it is stopped from before the kill until the other process runs, which lives on beside it.
void strangers_number() {
  Pair pair("owner");
  const auto [point, number] = lose_a_rank(pair);
  PipedProcess stranger = pair.rank("other", 0, 1, "", number);
  EXPECT_EQ(stranger.pid(), number);
  EXPECT_EQ(stranger.line(), "attached");
  pair.let_engine_go();
  pair.expect_lost(point, number);
  EXPECT_EQ(pair.other().at("attached"), false);
  EXPECT_EQ(kill(number, 0), 0) << "the other lives, or this test is blind";
  EXPECT_TRUE(stranger.tell("run:@"));
  EXPECT_THAT(stranger.line(), HasSubstr("run:@ MUSTER_OK")) << "in a job of its own it is somebody else";
}

// Goal:   a process that takes the same rank with the dead one's number is a new one. The dead one's starts
//         are lost, and later starts include the new one.
void successors_number() {
  Pair pair("owner");
  const auto [point, number] = lose_a_rank(pair);
  PipedProcess successor = pair.rank("job", 1, 2, "", number);
  EXPECT_EQ(successor.pid(), number);
  EXPECT_TRUE(successor.silent_for(100)) << "nobody sits in a seat that is not yet known to be free";
  pair.let_engine_go();
  pair.expect_lost(point, number);
  EXPECT_EQ(successor.line(), "attached");
  const cli::Json seat = pair.other();
  EXPECT_EQ(seat.at("attached"), true);
  EXPECT_EQ(seat.at("pid"), number);
  EXPECT_EQ(seat.at("attachments"), 2u);
  EXPECT_TRUE(successor.tell("start:world"));
  EXPECT_EQ(muster_lane_reset(pair.session, MUSTER_LANE_SMALL), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_point_wait(pair.session, pair.reduce(), kLongNs), MUSTER_OK) << muster_last_error();
  EXPECT_THAT(successor.line(), HasSubstr("start:world MUSTER_OK"));
}

// Goal:   a number is no claim: without a token of its own it opens nothing, nor does the token of the dead.
void claimants_number() {
  Pair pair("token");
  PipedProcess victim = pair.rank("job", 1, 2, pair.token(1));
  EXPECT_EQ(victim.line(), "attached");
  const muster_point point = pair.reduce();
  const pid_t number = end(victim);
  for (const std::string& token : {std::string(), pair.token(1)}) {
    PipedProcess claimant = pair.rank("job", 1, 2, token, number);
    EXPECT_EQ(claimant.pid(), number);
    EXPECT_THAT(claimant.line(), HasSubstr("rank 1 of job job needs a fresh token"));
    EXPECT_EQ(claimant.wait(), 1);
  }
  pair.expect_lost(point, number);
  PipedProcess invited = pair.rank("job", 1, 2, pair.fresh_token(), number);
  EXPECT_EQ(invited.line(), "attached");
  EXPECT_EQ(pair.other().at("attachments"), 2u);
}

// Goal:   a process dies before the daemon looks at its connection, which another process still holds open.
//         The daemon never takes the next process with that number for the peer.
void connectors_number() {
  const SteadyClock clock;
  const std::string path = ::testing::TempDir() + fmt::format("/muster-reuse-{}.sock", clock.now().count());
  auto listener = shm::Listener::open(path, {});
  ASSERT_TRUE(listener) << listener.error().text();
  for (const bool held : {false, true}) {
    SCOPED_TRACE(held ? "the connection is held by a child" : "nobody holds the connection");
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t victim = fork();
    if (victim == 0) {
      const auto socket = shm::connect_to(path, clock.now() + std::chrono::seconds(5), clock);
      const pid_t child = held ? fork() : 0;
      if (held && child == 0) pause();
      if (!socket || write(ends[1], &child, sizeof child) != sizeof child) _exit(1);
      pause();
    }
    pid_t child = 0;
    ASSERT_EQ(read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
    ASSERT_EQ(kill(victim, SIGKILL), 0);
    ASSERT_EQ(waitpid(victim, nullptr, 0), victim);
    PipedProcess::Options options;
    options.number = victim;
    const PipedProcess stranger("/bin/cat", {"cat"}, std::move(options));
    ASSERT_EQ(stranger.pid(), victim);
    const auto connection = listener->accept();
    ASSERT_TRUE(connection);
    const auto peer = shm::peer_identity(*connection, shm::PeerIdentity::Source::kSocket);
    const bool old_kernel = !peer && peer.error().code() == Code::kUnsupported;
    EXPECT_TRUE(!peer || shm::has_ended(peer->pidfd)) << "the other with number " << victim;
    if (!held) {
      const auto by_number = shm::peer_identity(*connection, shm::PeerIdentity::Source::kNumber);
      EXPECT_FALSE(by_number) << "its connection has ended";
    } else if (!old_kernel) {
      const auto best = shm::peer_identity(*connection);
      EXPECT_TRUE(!best || shm::has_ended(best->pidfd));
    }
    if (held) kill(child, SIGKILL);
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

TEST(PidReuse, DoesNotHideADeathFromAnEngineThatLooksLater) {
  if (const auto why = with_numbers_of_its_own(strangers_number)) GTEST_SKIP() << *why;
}

TEST(PidReuse, MakesNobodyWhatTheDeadOneWas) {
  if (const auto why = with_numbers_of_its_own(successors_number)) GTEST_SKIP() << *why;
}

TEST(PidReuse, IsNoClaim) {
  if (const auto why = with_numbers_of_its_own(claimants_number)) GTEST_SKIP() << *why;
}

TEST(PidReuse, IsNotWhoHasConnected) {
  if (const auto why = with_numbers_of_its_own(connectors_number)) GTEST_SKIP() << *why;
}

}  // namespace
}  // namespace muster
