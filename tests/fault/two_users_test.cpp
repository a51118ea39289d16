// One user can take a share of a node's jobs, sessions, connections and memory, never all. Any other user,
// and above all root, can still start a job and attach. T-43.
#include "api/shm/message.hpp"
#include "daemon/control/packet.hpp"
#include "tests/support/node.hpp"
#include "tests/support/users.hpp"

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using control::Json;
using test::kOneUser;
using test::kOtherUser;
using test::kThirdUser;
using test::Taker;

constexpr std::uint64_t kOddly = 1'000'000;  // taken in vain: refused with other words than it should be

class TwoUsers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to become other users";
    node_.options.made_job_linger = Nanos(0);
  }
  // Whether a job can be started now, by attaching to it; it ends at once.
  int start_job(const char* name) const {
    muster_open_options options = node_.rank(name, 0, 1);
    muster_session* session = nullptr;
    if (muster_open(&options, &session) != MUSTER_OK) {
      std::fprintf(stderr, "%s: %s\n", name, muster_last_error());
      return 1;
    }
    return muster_close(session) == MUSTER_OK ? 0 : 2;
  }
  // Attaches as rank after rank, of job after job of so many ranks, until it is refused; it says how often it
  // was let in.
  std::uint64_t take_sessions(int world, const char* refusal) const {
    for (std::uint64_t count = 0;; ++count) {
      const auto number = static_cast<int>(count);
      const std::string name = fmt::format("job-{}-{}", getuid(), number / world);
      muster_open_options options = node_.rank(name.c_str(), number % world, world);
      muster_session* session = nullptr;
      if (muster_open(&options, &session) == MUSTER_OK) continue;
      if (std::strstr(muster_last_error(), refusal) != nullptr) return count;
      std::fprintf(stderr, "another refusal: %s\n", muster_last_error());
      return kOddly + count;
    }
  }
  void expect_room_for_others() const {
    EXPECT_EQ(start_job("of-root"), 0);
    EXPECT_EQ(test::as_user(node_, kOtherUser, [this] { return start_job("of-another"); }), 0);
  }
  Result<Json> ask(const Json& command) const {
    const Instant soon = clock_.now() + std::chrono::seconds(20);
    MUSTER_ASSIGN_OR_RETURN(const auto socket, shm::connect_to(node_.door(), soon, clock_));
    MUSTER_RETURN_IF_ERROR(control::send_packet(socket, shm::MessageKind::kCommand, 1, command));
    MUSTER_ASSIGN_OR_RETURN(const auto answer, control::receive_packet(socket, soon, clock_));
    return control::result_of(answer);
  }
  // The status shows the shares of two users with three jobs each.
  void expect_shares_shown() const {
    const auto roots = ask({{"command", "status"}});
    ASSERT_TRUE(roots) << roots.error().text();
    std::map<unsigned, Json> users;
    for (const Json& user : roots->at("users")) users[user.at("uid")] = user;
    for (const unsigned uid : {kOneUser, kOtherUser}) {
      ASSERT_TRUE(users.contains(uid)) << roots->at("users");
      EXPECT_EQ(users[uid].at("jobs"), 3);
      EXPECT_EQ(users[uid].at("jobs_share"), 3);
      EXPECT_EQ(users[uid].at("sessions"), 3);
      EXPECT_GT(users[uid].at("memory_bytes"), 0);
    }
    EXPECT_EQ(users[0].at("jobs_share"), 8) << "root governs";
    const auto own = [this] {
      const auto status = ask({{"command", "status"}});
      if (!status || status->at("users").size() != 1) return 1;
      return status->at("users")[0].at("uid") == kOneUser && status->at("users")[0].at("jobs") == 3 ? 0 : 2;
    };
    EXPECT_EQ(test::as_user(node_, kOneUser, own), 0) << "nobody sees what others have";
  }
  // Until no job is left.
  void await_no_jobs() const {
    for (int i = 0; i < 2000; ++i) {
      const auto status = ask({{"command", "status"}});
      ASSERT_TRUE(status) << status.error().text();
      if (status->at("jobs").empty()) return;
      usleep(5000);
    }
    FAIL() << "jobs stay";
  }

  SteadyClock clock_;
  test::Node node_;
};

TEST_F(TwoUsers, OneLeavesJobsToTheOthers) {
  node_.options.jobs_max = 8;  // 1 is reserved, 3 are one user's
  test::start_for_everybody(node_);
  const auto take = [this] { return take_sessions(1, "3 jobs, its share (limits.jobs_per_user_max)"); };
  Taker one(node_, kOneUser, take);
  EXPECT_EQ(one.taken(), 3u);
  expect_room_for_others();
  Taker other(node_, kOtherUser, take);
  EXPECT_EQ(other.taken(), 3u);
  expect_shares_shown();
  Taker third(node_, kThirdUser, [this] { return take_sessions(1, "(limits.jobs_max)"); });
  EXPECT_EQ(third.taken(), 1u);
  EXPECT_EQ(start_job("of-root"), 0) << "whoever else there is";
  for (Taker* taker : {&one, &other, &third}) taker->let_go();
  await_no_jobs();
  EXPECT_EQ(Taker(node_, kOneUser, take).taken(), 3u) << "nothing of them is counted still";
}

TEST_F(TwoUsers, OneLeavesSessionsToTheOthers) {
  node_.options.sessions_max = 16;  // 2 are reserved, 7 are one user's
  test::start_for_everybody(node_);
  const auto take = [this] { return take_sessions(4, "its share (limits.sessions_per_user_max)"); };
  Taker one(node_, kOneUser, take);
  EXPECT_EQ(one.taken(), 7u);
  expect_room_for_others();
  Taker other(node_, kOtherUser, take);
  EXPECT_EQ(other.taken(), 7u);
  EXPECT_EQ(start_job("of-root"), 0) << "whoever else there is";
  for (Taker* taker : {&one, &other}) taker->let_go();
  await_no_jobs();
  EXPECT_EQ(Taker(node_, kOneUser, take).taken(), 7u) << "nothing of them is counted still";
}

// Goal:   a job whose ranks can never all attach is refused when it is made, and not rank by rank.
TEST_F(TwoUsers, OneHearsAtOnceThatAJobIsTooLarge) {
  node_.options.sessions_max = 16;  // 7 are one user's
  test::start_for_everybody(node_);
  const auto create = [this](int world) {
    const Json spec{{"name", "large"}, {"world", world}, {"mesh", "dp_shard=-1"}, {"claim", "token"}};
    return ask({{"command", "job_create"}, {"spec", spec}, {"keep", true}});
  };
  const auto refused = [&create] {
    const auto created = create(8);
    if (created || created.error().code() != Code::kNoResource) return 1;
    const std::string& text = created.error().message();
    const char* expected = "8 sessions are too many: user 65531 may have 7 (limits.sessions_per_user_max)";
    return text.find(expected) == std::string::npos ? 2 : create(7) ? 0 : 3;
  };
  EXPECT_EQ(test::as_user(node_, kOneUser, refused), 0);
  const muster_open_options options = node_.rank("made-by-attaching", 0, 8);
  EXPECT_EQ(test::as_user(node_, kOtherUser,
                          [&options] {
                            muster_session* session = nullptr;
                            return muster_open(&options, &session) == MUSTER_ERR_NO_RESOURCE ? 0 : 1;
                          }),
            0);
}

// Method: connections that say nothing, that have sent commands, that own jobs, and claims to a held rank
//         that are tried again.
TEST_F(TwoUsers, OneLeavesConnectionsToTheOthers) {
  test::start_for_everybody(node_);
  std::vector<shm::Descriptor> kept;
  const auto connect = [this, &kept] {
    auto socket = shm::connect_to(node_.endpoint(), clock_.now() + std::chrono::seconds(20), clock_);
    if (socket) kept.push_back(*std::move(socket));
    return socket.has_value();
  };
  Taker one(node_, kOneUser, [&] {
    std::uint64_t refused = 0;
    for (int i = 0; i < 256 && connect(); ++i) {
      const Json version{{"command", "version"}};
      static_cast<void>(control::send_packet(kept.back(), shm::MessageKind::kCommand, 1, version));
      if (!control::receive_packet(kept.back(), clock_.now() + std::chrono::seconds(20), clock_)) ++refused;
    }
    auto hello = shm::make_message<shm::Hello>(shm::MessageKind::kHello, 1);
    static_cast<void>(shm::set_text(hello.job, "held", "job"));
    hello.rank = 0;
    hello.world_size = 1;
    for (int i = 0; i < 256 && connect(); ++i)
      static_cast<void>(shm::send_message(kept.back(), shm::bytes_of(hello)));
    for (int i = 0; i < 256 && connect(); ++i) {
    }
    return refused;
  });
  EXPECT_EQ(one.taken(), 256 - supervisor::Connections::kCommands.of_one);
  expect_room_for_others();
  EXPECT_TRUE(ask({{"command", "status"}})) << "root";
  EXPECT_EQ(test::as_user(node_, kOtherUser, [this] { return ask({{"command", "version"}}) ? 0 : 1; }), 0);
}

// Goal:   a user's jobs hold no more than its share, however they grow: what they are made of, buffers, named
//         buffers and imports; and what has gone is given back.
TEST_F(TwoUsers, OneLeavesMemoryToTheOthers) {
  node_.options.memory_max = std::uint64_t{512} << 20;  // 64 MiB are reserved, 224 MiB are one user's
  node_.options.job_defaults.arena_bytes_max = std::uint64_t{1} << 30;
  test::start_for_everybody(node_);
  const auto take = [this] {
    std::uint64_t taken = 0;
    for (const char* job : {"first", "second"}) {
      const std::string name = fmt::format("{}-{}", job, getuid());
      const muster_open_options options = node_.rank(name.c_str(), 0, 1);
      muster_session* session = nullptr;
      if (muster_open(&options, &session) != MUSTER_OK) return kOddly;
      muster_buffer buffer = 0;
      for (const std::uint64_t bytes : {std::uint64_t{32} << 20, std::uint64_t{4} << 20})
        while (muster_buffer_alloc(session, bytes, &buffer, nullptr) == MUSTER_OK) taken += bytes >> 20;
      if (std::strstr(muster_last_error(), "limits.memory_per_user_max") == nullptr) return kOddly + 1;
      if (std::strstr(muster_last_error(), "ask an administrator (root)") == nullptr) return kOddly + 2;
    }
    return taken;
  };
  Taker one(node_, kOneUser, take);
  EXPECT_GE(one.taken(), 200u);
  EXPECT_LE(one.taken(), 224u);
  expect_room_for_others();
  Taker other(node_, kOtherUser, take);
  EXPECT_GE(other.taken(), 200u) << "its own share";
  EXPECT_LE(other.taken(), 224u);
  EXPECT_EQ(start_job("of-root"), 0) << "whoever else there is";
  Taker third(node_, kThirdUser, [this]() -> std::uint64_t {
    const muster_open_options options = node_.rank("too-large", 0, 32);
    muster_session* session = nullptr;
    if (muster_open(&options, &session) != MUSTER_ERR_NO_RESOURCE) return 1;
    return std::strstr(muster_last_error(), "limits.memory_max") == nullptr ? 2 : 0;
  });
  EXPECT_EQ(third.taken(), 0u) << "a job is refused where what it is made of is too much";
  for (Taker* taker : {&one, &other, &third}) taker->let_go();
  await_no_jobs();
  EXPECT_GE(Taker(node_, kOneUser, take).taken(), 200u) << "nothing of them is counted still";
}

// Goal:   memory in one user's buffers is not given to others: limits follow while no job comes or goes.
// Method: root's job asks again and again for what the node has no longer.
TEST_F(TwoUsers, OneIsSeenToGrow) {
  node_.options.memory_max = std::uint64_t{128} << 20;  // 56 MiB are one user's
  test::start_for_everybody(node_);
  const muster_open_options options = node_.rank("of-root", 0, 1);
  muster_session* session = nullptr;
  ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
  const auto take_80 = [session] {
    muster_buffer_options named = MUSTER_BUFFER_OPTIONS_INIT;  // whose memory comes back when it is freed
    named.name = "large";
    named.bytes = 80 << 20;
    muster_buffer buffer = 0;
    const muster_status_t status = muster_buffer_create(session, &named, &buffer, nullptr);
    if (status != MUSTER_OK) return status;
    EXPECT_EQ(muster_buffer_free(session, buffer), MUSTER_OK);
    return status;
  };
  EXPECT_EQ(take_80(), MUSTER_OK) << muster_last_error();
  Taker one(node_, kOneUser, [this] {
    const muster_open_options mine = node_.rank("grows", 0, 1);
    muster_session* grows = nullptr;
    muster_buffer buffer = 0;
    if (muster_open(&mine, &grows) != MUSTER_OK) return kOddly;
    std::uint64_t taken = 0;
    while (muster_buffer_alloc(grows, 4 << 20, &buffer, nullptr) == MUSTER_OK) taken += 4;
    return taken;
  });
  EXPECT_GE(one.taken(), 48u);
  muster_status_t status = MUSTER_OK;
  for (int i = 0; i < 400 && status == MUSTER_OK; ++i) {
    status = take_80();
    usleep(20'000);
  }
  EXPECT_EQ(status, MUSTER_ERR_NO_RESOURCE);
  EXPECT_NE(std::strstr(muster_last_error(), "limits.memory_max"), nullptr) << muster_last_error();
  EXPECT_EQ(muster_close(session), MUSTER_OK);
}

}  // namespace
}  // namespace muster
