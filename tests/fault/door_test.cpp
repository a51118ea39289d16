// The door's answers to clients of other versions, to many claimants of one rank slot, and without a free
// descriptor. It also reveals no secret. T-30, T-34, T-41, T-42.
#include "tests/fault/raw_client.hpp"
#include "tests/support/users.hpp"

#include "api/base/log.hpp"
#include "daemon/control/packet.hpp"
#include "tests/fault/bystander.hpp"
#include "tests/fault/captured_errors.hpp"
#include "tests/fault/rounds.hpp"
#include "tests/support/contract.hpp"
#include "tests/support/holdings.hpp"

#include <barrier>
#include <csignal>
#include <ctime>
#include <fstream>
#include <iterator>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>

namespace muster {
namespace {

using control::Json;
using test::RawClient;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Door : public ::testing::Test {
 protected:
  Result<control::Packet> ask(const Json& command) const {
    MUSTER_ASSIGN_OR_RETURN(const auto socket,
                            shm::connect_to(node_.door(), clock_.now() + RawClient::kPatience, clock_));
    MUSTER_RETURN_IF_ERROR(control::send_packet(socket, shm::MessageKind::kCommand, 1, command));
    return control::receive_packet(socket, clock_.now() + RawClient::kPatience, clock_);
  }

  SteadyClock clock_;
  test::Node node_;
};

// Goal:   T-42. A library of another version is told so, with what both sides are; its neighbours notice
//         nothing.
// Method: Hellos as a release before and one after would say them. There is no earlier release to take
//         programs from yet.
TEST_F(Door, TellsOtherVersionsSo) {
  node_.start();
  test::Bystanders bystanders(node_);
  bystanders.await(10);
  const auto refused = [&](auto change) {
    shm::Hello hello = RawClient::hello_of("job", 0, 1);
    change(hello);
    RawClient client(node_.endpoint(), hello);
    EXPECT_FALSE(client.attached);
    EXPECT_EQ(client.refusal.code(), Code::kVersion) << client.refusal.text();
    const std::string both =
        hello.header.version != shm::kAbiVersion
            ? fmt::format("a message of version {} came, this side speaks version {}", hello.header.version,
                          shm::kAbiVersion)
            : fmt::format(
                  "the library speaks version {} with segments of {} and {} bytes, the daemon "
                  "version {} with {} and {}",
                  hello.abi_version, hello.submission_bytes, hello.completion_bytes, shm::kAbiVersion,
                  shm::kSubmissionBytes, shm::kCompletionBytes);
    EXPECT_THAT(client.refusal.message(), AllOf(HasSubstr(both), HasSubstr("install the same")));
    bystanders.await(10);
  };
  refused([](shm::Hello& hello) { hello.abi_version = shm::kAbiVersion + 1; });
  refused([](shm::Hello& hello) { hello.abi_version = shm::kAbiVersion - 1; });
  refused([](shm::Hello& hello) { hello.submission_bytes += 4096; });
  refused([](shm::Hello& hello) { hello.completion_bytes -= 4096; });
  refused([](shm::Hello& hello) { hello.header.version = shm::kAbiVersion + 1; });
  RawClient good(node_.endpoint(), RawClient::hello_of("job", 0, 1));
  EXPECT_TRUE(good.attached) << good.refusal.text();
  EXPECT_GE(bystanders.stop(), 60u);
}

// Goal:   T-30. Many clients claim one rank at once: one gets it; the others are told the holder.
TEST_F(Door, SeatsOneOfManyClaimants) {
  node_.start();
  constexpr int kClaimants = 8;
  for (int round = 0; round < test::rounds(2); ++round) {
    const std::string job = fmt::format("job{}", round);
    std::barrier start(kClaimants);
    std::atomic<int> seated{0}, turned_away{0};
    std::vector<std::unique_ptr<RawClient>> clients(kClaimants);
    std::vector<std::thread> threads;
    for (int i = 0; i < kClaimants; ++i)
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        clients[static_cast<std::size_t>(i)] =
            std::make_unique<RawClient>(node_.endpoint(), RawClient::hello_of(job.c_str(), 0, 2));
        const RawClient& client = *clients[static_cast<std::size_t>(i)];
        if (client.attached) ++seated;
        if (client.refusal.code() == Code::kDuplicate) ++turned_away;
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(seated, 1);
    EXPECT_EQ(turned_away, kClaimants - 1);
    RawClient other(node_.endpoint(), RawClient::hello_of(job.c_str(), 1, 2));
    EXPECT_TRUE(other.attached) << "the group still forms: " << other.refusal.text();
    // However many rounds there are, few jobs are there at a time.
    const auto ended = ask({{"command", "job_destroy"}, {"job", job}});
    EXPECT_TRUE(ended && control::result_of(*ended)) << job;
  }
}

double cpu_seconds() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) * 1e-9;
}

// Goal:   T-34. Out of descriptors the supervisor reports it, does not spin, and accepts clients again later.
// Method: this process, in which the supervisor runs, takes all there are; clients knock from a child.
TEST_F(Door, SaysThatItHasNoDescriptorLeft) {
  node_.start();
  int to_child[2], to_parent[2];
  ASSERT_EQ(pipe2(to_child, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(to_parent, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    ::close(to_child[1]);
    char go = 0;
    while (read(to_child[0], &go, 1) == 1) {
      const muster_open_options options = node_.rank("job", 0, 1);
      muster_session* session = nullptr;
      const muster_status_t said = muster_open(&options, &session);
      muster_close(session);
      if (write(to_parent[1], &said, sizeof said) != sizeof said) _exit(1);
    }
    _exit(0);
  }
  ::close(to_child[0]);
  const auto knock = [&] {
    muster_status_t said = 1;
    EXPECT_EQ(write(to_child[1], "k", 1), 1);
    EXPECT_EQ(read(to_parent[0], &said, sizeof said), static_cast<ssize_t>(sizeof said));
    return said;
  };
  EXPECT_EQ(knock(), MUSTER_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the connection is closed by then
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<shm::Descriptor> taken;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.emplace_back(fd);
  for (int i = 0; i < test::rounds(20); ++i) EXPECT_EQ(knock(), MUSTER_ERR_NO_RESOURCE) << i;
  const double cpu = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const double spent = cpu_seconds() - cpu;
  std::printf("out of descriptors the process spends %.1f %% of a core\n", spent / 0.5 * 100);
  EXPECT_LT(spent, 0.25) << "the loop spins on a listener that it cannot serve";
  test::expect_promised(spent / 0.5, 0.2, "of a core, out of descriptors");
  taken.clear();
  EXPECT_EQ(knock(), MUSTER_OK);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ::close(to_child[1]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ::close(to_parent[0]);
  ::close(to_parent[1]);
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Goal:   the log shows each user that tries a forbidden action. That user can neither fill the log nor hide.
// Method: more commands of another user than the log takes, and then an attachment; commands that merely
//         fail; and a wrong token.
TEST_F(Door, LogsWhoWasRefusedAndBoundsIt) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  log::configure(log::Level::kWarning, log::Format::kText);
  const test::CapturedErrors errors;
  test::start_for_everybody(node_);
  const Json spec{{"name", "job"}, {"world", 1}, {"mesh", "dp_shard=1"}, {"claim", "token"}};
  ASSERT_TRUE(ask({{"command", "job_create"}, {"spec", spec}, {"keep", true}}));
  RawClient(node_.endpoint(), RawClient::hello_of("job", 0, 1));
  const auto make = [this, &spec] {
    return ask({{"command", "job_create"}, {"spec", spec}, {"keep", true}}) ? 0 : 1;
  };
  EXPECT_EQ(test::as_user(node_, test::kOtherUser, make), 0);
  const auto attempt = [this] {
    const std::string anothers = fmt::format("job@{}", test::kOtherUser);
    static_cast<void>(ask({{"command", "one\nuser 0, process 1: \x1b[2J"}}));
    static_cast<void>(ask({{"command", "token"}, {"job", anothers}, {"rank", 0}}));
    for (int i = 0; i < 100; ++i) static_cast<void>(ask({{"command", "shutdown"}}));
    RawClient(node_.endpoint(), RawClient::hello_of(anothers.c_str(), 0, 1));
    return 0;
  };
  EXPECT_EQ(test::as_user(node_, test::kOneUser, attempt), 0);
  const auto last = fmt::format("user {}: and ", test::kOneUser);
  for (int i = 0; i < 1000 && errors.text().find(last) == std::string::npos; ++i) usleep(10'000);
  const std::string seen = errors.text();
  log::configure(log::Level::kOff, log::Format::kText);
  EXPECT_THAT(seen, HasSubstr(fmt::format("user 0, process {}: a rank is refused: ", getpid())));
  EXPECT_THAT(seen, HasSubstr("needs a fresh token"));
  const std::string whose = fmt::format("user {}, process ", test::kOneUser);
  for (const char* what : {"command shutdown", "command token", "a rank"})
    EXPECT_THAT(seen, ContainsRegex(fmt::format("{}[0-9]+: {} is refused: ", whose, what)));
  EXPECT_THAT(seen, HasSubstr(last)) << "how many there were is told though nothing follows";
  EXPECT_THAT(seen, Not(HasSubstr("[2J"))) << "what fails is no refusal";
  std::size_t lines = 0;
  for (std::size_t at = seen.find(whose); at != std::string::npos; at = seen.find(whose, at + 1)) ++lines;
  EXPECT_GE(lines, 10u);
  EXPECT_LT(lines, 60u) << "of 102: one a second after the first ten";
}

// Goal:   T-41. The user for whom a token is made sees it, and no other user does.
// Method: canaries for tokens, good and wrong ones used in every way there is; then logs at their most
//         talkative, reports, traces, refusals, and what the kernel shows of the processes are searched.
TEST_F(Door, KeepsTokensToItself) {
  const std::string canary = "5ec4e75ec4e75ec4e75ec4e7";
  const std::string wrong = "badbadbad0badbadbad0";
  int drawn = 0;
  node_.options.random_hex = [&] { return fmt::format("{}{:08x}", canary, ++drawn); };
  log::configure(log::Level::kDebug, log::Format::kText);
  const test::CapturedErrors errors;
  node_.start();
  const Json spec{{"name", "job"}, {"world", 2}, {"mesh", "dp_shard=2"}, {"claim", "token"}};
  const auto created = ask({{"command", "job_create"}, {"spec", spec}, {"keep", true}});
  ASSERT_TRUE(created) << created.error().text();
  const auto tokens = control::result_of(*created)->at("tokens").get<std::vector<std::string>>();
  ASSERT_EQ(tokens.size(), 2u);
  ASSERT_THAT(tokens[0], HasSubstr(canary)) << "or this test is blind";
  std::string seen;
  const auto claim = [&](int rank, const std::string& token) {
    shm::Hello hello = RawClient::hello_of("job", rank, 2);
    EXPECT_TRUE(shm::set_text(hello.token, token, "token").ok());
    auto client = std::make_unique<RawClient>(node_.endpoint(), hello);
    seen += client->refusal.message();
    if (client->attached)
      seen.append(reinterpret_cast<const char*>(&client->welcome), sizeof client->welcome);
    return client;
  };
  EXPECT_FALSE(claim(0, wrong)->attached);
  EXPECT_FALSE(claim(0, tokens[1])->attached) << "another rank's";
  const auto first = claim(0, tokens[0]);
  EXPECT_TRUE(first->attached) << first->refusal.text();
  EXPECT_FALSE(claim(0, tokens[0])->attached) << "used";
  const auto second = claim(1, tokens[1]);
  EXPECT_TRUE(second->attached) << second->refusal.text();
  const auto read_all = [&](const char* command) {
    const auto answer = ask({{"command", command}, {"job", "job"}});
    ASSERT_TRUE(answer) << answer.error().text();
    seen += answer->body.dump();
    for (const auto& descriptor : answer->descriptors) {
      const auto text = control::read_descriptor(descriptor, 1 << 24);
      ASSERT_TRUE(text) << text.error().text();
      seen += *text;
    }
  };
  for (const char* command : {"hang", "flight"}) {
    read_all(command);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_THAT(seen, AllOf(HasSubstr("culprits"), HasSubstr("entries"))) << "or this test is blind";
  for (const char* command : {"status", "jobs", "version"}) {
    const auto answer = ask({{"command", command}});
    ASSERT_TRUE(answer);
    seen += answer->body.dump();
  }
  ASSERT_TRUE(ask({{"command", "trace_begin"}, {"job", "job"}}));
  const auto trace = ask({{"command", "trace_end"}, {"job", "job"}});
  ASSERT_TRUE(trace && trace->descriptors.size() == 1);
  seen += *control::read_descriptor(trace->descriptors[0], 1 << 20);
  // Broken off in the middle, so that the engine says why.
  EXPECT_TRUE(shm::send_message(first->socket, std::as_bytes(std::span("nonsense"))).ok());
  EXPECT_TRUE(first->ended());
  for (const pid_t engine : test::engines())
    for (const char* file : {"cmdline", "environ", "comm"})
      seen += contents(fmt::format("/proc/{}/{}", engine, file));
  const std::string last = "broke the protocol";  // that is logged
  for (int i = 0; i < 500 && errors.text().find(last) == std::string::npos; ++i) usleep(10'000);
  seen += errors.text();
  log::configure(log::Level::kOff, log::Format::kText);
  // Not printed where it fails: who would look for secrets there?
  EXPECT_NE(seen.find(last), std::string::npos) << "nothing was captured";
  EXPECT_EQ(seen.find(canary), std::string::npos);
  EXPECT_EQ(seen.find(wrong), std::string::npos);
}

}  // namespace
}  // namespace muster
