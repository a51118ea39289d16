// What the supervisor's door lets in, and whom: packets over its real socket.
#include "daemon/supervisor/supervisor.hpp"

#include "tests/support/node.hpp"

#include <filesystem>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

namespace muster::supervisor {
namespace {

using control::Json;
using ::testing::HasSubstr;

class SupervisorDoor : public ::testing::Test {
 protected:
  Instant soon() const { return clock_.now() + std::chrono::seconds(20); }
  shm::Descriptor connect() const {
    auto socket = shm::connect_to(node_.endpoint(), soon(), clock_);
    EXPECT_TRUE(socket) << socket.error().text();
    return socket ? *std::move(socket) : shm::Descriptor();
  }
  Result<Json> ask(const shm::Descriptor& socket, const Json& command) const {
    MUSTER_RETURN_IF_ERROR(control::send_packet(socket, shm::MessageKind::kCommand, 1, command));
    MUSTER_ASSIGN_OR_RETURN(const auto answer, control::receive_packet(socket, soon(), clock_));
    return control::result_of(answer);
  }
  static Json create(const Json& more = Json::object()) {
    Json spec{{"name", "job"}, {"world", 1}, {"mesh", "dp_shard=1"}};
    spec.update(more);
    return {{"command", "job_create"}, {"spec", spec}, {"keep", true}};
  }

  SteadyClock clock_;
  test::Node node_;
};

TEST_F(SupervisorDoor, LeavesLimitsToTheAdministrator) {
  node_.start();
  const auto socket = connect();
  for (const char* field : {"arena_bytes_max", "segment_bytes", "workers", "plans_max", "buffers_max",
                            "idle_spin_ns", "deadline_ns", "owner_uid", "epoch"}) {
    const auto refused = ask(socket, create({{field, 1}}));
    ASSERT_FALSE(refused) << field;
    EXPECT_EQ(refused.error().code(), Code::kBadArgument) << field;
    EXPECT_THAT(refused.error().message(), HasSubstr(field));
  }
  EXPECT_TRUE(ask(socket, create({{"claim", "token"}})));
}

// Whatever file a stranger sends, the daemon neither reads nor closes it.
TEST_F(SupervisorDoor, TakesNoDescriptorFromAStranger) {
  node_.start();
  const auto socket = connect();
  const auto refused = ask(socket, {{"command", "version"}, {"text", std::string(100'000, 'x')}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kProtocol);
  EXPECT_THAT(refused.error().message(), HasSubstr("descriptors"));
  EXPECT_TRUE(ask(connect(), {{"command", "version"}})) << "the daemon goes on";
}

TEST_F(SupervisorDoor, RefusesAWorldThatNoNodeHolds) {
  node_.start();
  muster_open_options options = node_.rank("job", 0, INT32_MAX);
  muster_session* session = nullptr;
  EXPECT_EQ(muster_open(&options, &session), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("65536"));
}

// Goal:   a crowd of connections that say nothing delays others but turns nobody away.
TEST_F(SupervisorDoor, LetsNewcomersWaitBehindSilentOnes) {
  node_.start();
  std::vector<shm::Descriptor> silent;
  for (std::size_t i = 0; i < Supervisor::kHandshakesMax + 8; ++i) silent.push_back(connect());
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    silent.clear();
  });
  muster_open_options options = node_.rank("job", 0, 1);
  muster_session* session = nullptr;
  EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
  ending.join();
  EXPECT_EQ(muster_close(session), MUSTER_OK);
}

TEST_F(SupervisorDoor, CountsConnectionsThatSendCommands) {
  node_.start();
  std::vector<shm::Descriptor> talkers;
  for (std::size_t i = 0; i < Supervisor::kCommandsMax; ++i) {
    talkers.push_back(connect());
    ASSERT_TRUE(ask(talkers.back(), {{"command", "version"}})) << i;
  }
  const auto refused = ask(connect(), {{"command", "version"}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kBusy);
  talkers.pop_back();
  bool again = false;  // once the daemon has seen that one has left
  for (const Instant end = soon(); !again && clock_.now() < end;)
    again = ask(connect(), {{"command", "version"}}).has_value();
  EXPECT_TRUE(again);
  EXPECT_TRUE(ask(talkers.front(), {{"command", "version"}})) << "the others are as they were";
}

// Goal:   users see and touch their own jobs only.
// Method: root's job, and a process that has become another user.
TEST_F(SupervisorDoor, HidesTheJobsOfOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  node_.options.socket_mode = 0666;
  node_.start();
  std::filesystem::permissions(std::filesystem::path(node_.endpoint()).parent_path(),
                               std::filesystem::perms(0755));
  ASSERT_TRUE(ask(connect(), create()));
  const auto mine = ask(connect(), {{"command", "status"}});
  ASSERT_TRUE(mine);
  EXPECT_EQ(mine->at("jobs").size(), 1u);
  const pid_t child = fork();
  if (child == 0) {
    if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    const auto socket = connect();
    const auto seen = ask(socket, {{"command", "status"}});
    if (!seen || !seen->at("jobs").empty()) _exit(2);
    const auto refused = ask(socket, create());
    if (refused || refused.error().code() != Code::kDenied) _exit(3);
    _exit(refused.error().message().find("belongs to user 0") == std::string::npos ? 4 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace muster::supervisor
