// The clients and packets that the supervisor accepts, over its real socket.
#include "daemon/supervisor/program/supervisor.hpp"

#include "tests/support/folder.hpp"
#include "tests/support/node.hpp"
#include "tests/support/users.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/socket.h>
#include <sys/wait.h>

namespace muster::supervisor {
namespace {

using control::Json;
using ::testing::HasSubstr;

class SupervisorTest : public ::testing::Test {
 protected:
  Instant soon() const { return clock_.now() + std::chrono::seconds(20); }
  shm::Descriptor connect() const {
    auto socket = shm::connect_to(node_.door(), soon(), clock_);
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

  // 0: there is no such job.
  pid_t engine_of(const shm::Descriptor& socket, const std::string& name) const {
    const auto status = ask(socket, {{"command", "status"}});
    EXPECT_TRUE(status);
    for (const Json& job : status ? status->at("jobs") : Json::array())
      if (job.at("name") == name) return job.at("engine_pid");
    return 0;
  }
  // Until so many jobs are left.
  bool await_jobs(const shm::Descriptor& socket, std::size_t count) const {
    for (const Instant end = soon(); clock_.now() < end;) {
      const auto status = ask(socket, {{"command", "status"}});
      if (status && status->at("jobs").size() == count) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  SteadyClock clock_;
  const test::Folder own_;
  const std::filesystem::path folder_ = own_.path();
  test::Node node_;
};

TEST_F(SupervisorTest, LeavesLimitsToTheAdministrator) {
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

// Goal:   a number that is no rank of the job is refused, and voids no other rank's token.
TEST_F(SupervisorTest, IssuesATokenForARankOfTheJobOnly) {
  node_.start();
  const auto socket = connect();
  const auto created = ask(socket, create({{"claim", "token"}}));
  ASSERT_TRUE(created);
  const Json token{{"command", "token"}, {"job", "job"}};
  const Json absent{{"command", "absent"}, {"job", "job"}, {"text", "it will not come"}};
  for (const Json& rank : {Json(1), Json(-1), Json(1ull << 32), Json("0"), Json(nullptr)})
    for (Json question : {token, absent}) {
      question["rank"] = rank;
      const auto refused = ask(socket, question);
      ASSERT_FALSE(refused) << question;
      EXPECT_EQ(refused.error().code(), Code::kBadArgument) << question;
    }
  for (const Json& question : {token, absent}) EXPECT_FALSE(ask(socket, question)) << "no rank at all";
  muster_open_options options = node_.rank("job", 0, 1);
  const auto text = created->at("tokens").at(0).get<std::string>();
  options.token = text.c_str();
  muster_session* session = nullptr;
  EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_close(session), MUSTER_OK);
}

// The daemon neither reads nor closes a file of an unknown client, whatever it is.
TEST_F(SupervisorTest, TakesNoDescriptorFromAStranger) {
  node_.start();
  const auto socket = connect();
  const auto refused =
      ask(socket, {{"command", "version"}, {"text", std::string(shm::kMessageBytesMax, 'x')}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kProtocol);
  EXPECT_THAT(refused.error().message(), HasSubstr("descriptors"));
  EXPECT_TRUE(ask(connect(), {{"command", "version"}})) << "the daemon goes on";
}

TEST_F(SupervisorTest, RefusesAWorldThatNoNodeHolds) {
  node_.start();
  muster_open_options options = node_.rank("job", 0, INT32_MAX);
  muster_session* session = nullptr;
  EXPECT_EQ(muster_open(&options, &session), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("limits.ranks_per_job_max"));
}

// Goal:   a crowd of connections that say nothing turns nobody away.
TEST_F(SupervisorTest, LetsNewcomersPastSilentOnes) {
  node_.start();
  std::vector<shm::Descriptor> silent;
  for (std::size_t i = 0; i < Connections::kSilent.all + 8; ++i) silent.push_back(connect());
  muster_open_options options = node_.rank("job", 0, 1);
  muster_session* session = nullptr;
  EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_close(session), MUSTER_OK);
  const auto turned_away = control::receive_packet(silent.front(), soon(), clock_);
  EXPECT_FALSE(turned_away) << "the oldest made room";
}

// Goal:   one user's connections, silent or not, shut nobody else out.
// Method: as many as there are in all, of a process that has become another user and keeps them.
TEST_F(SupervisorTest, GivesNoUserMoreThanAShare) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  test::start_for_everybody(node_);
  std::vector<shm::Descriptor> kept;
  test::Taker crowd(node_, 65534, [this, &kept] {
    std::uint64_t let_in = 0;
    for (std::size_t i = 0; i < Connections::kCommands.all; ++i) {
      kept.push_back(connect());
      if (ask(kept.back(), {{"command", "version"}})) ++let_in;
    }
    for (std::size_t i = 0; i < 2 * Connections::kSilent.all; ++i) kept.push_back(connect());
    return let_in;
  });
  EXPECT_EQ(crowd.taken(), Connections::kCommands.of_one);
  EXPECT_TRUE(ask(connect(), {{"command", "version"}})) << "root";
  EXPECT_EQ(test::as_user(node_, 65533,
                          [this] {
                            return ask(connect(), {{"command", "version"}}) ? 0 : 1;
                          }),
            0);
  EXPECT_EQ(test::as_user(node_, 65534,
                          [this] {
                            const auto refused = ask(connect(), {{"command", "version"}});
                            if (refused || refused.error().code() != Code::kBusy) return 1;
                            return refused.error().message().find("a user's share") == std::string::npos ? 2
                                                                                                         : 0;
                          }),
            0);
}

TEST_F(SupervisorTest, LetsGoOfConnectionsThatNeitherOwnNorAsk) {
  node_.options.idle_timeout = std::chrono::milliseconds(20);
  node_.start();
  const auto owner = connect();
  Json command = create();
  command["keep"] = false;
  ASSERT_TRUE(ask(owner, command));
  const auto idle = connect();
  ASSERT_TRUE(ask(idle, {{"command", "version"}}));
  const auto over = control::receive_packet(idle, soon(), clock_);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code(), Code::kDaemonLost);
  const auto jobs = ask(owner, {{"command", "status"}});
  ASSERT_TRUE(jobs) << "its job ends with it: " << jobs.error().text();
  EXPECT_EQ(jobs->at("jobs").size(), 1u);
}

// Goal:   jobs that launchers make by attaching do not fill the node.
// Method: more of them, one after the other, than there may be, beside one that was asked for.
TEST_F(SupervisorTest, EndsAMadeJobAfterItsLastRank) {
  node_.options.jobs_max = 2;
  node_.options.made_job_linger = Nanos(0);
  node_.start();
  const auto socket = connect();
  ASSERT_TRUE(ask(socket, create()));
  for (int i = 0; i < 6; ++i) {
    const std::string name = fmt::format("slurm-{}", i);
    muster_open_options options = node_.rank(name.c_str(), 0, 1);
    muster_session* session = nullptr;
    ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << i << ": " << muster_last_error();
    ASSERT_EQ(muster_close(session), MUSTER_OK);
    EXPECT_TRUE(await_jobs(socket, 1)) << i;
  }
  const auto left = ask(socket, {{"command", "status"}});
  ASSERT_TRUE(left);
  EXPECT_EQ(left->at("jobs").at(0).at("name"), "job") << "who was asked for stays";
}

// Goal:   ranks that come back while their former job ends get a new one, and no refusal.
TEST_F(SupervisorTest, MakesAJobAnewForRanksThatComeBack) {
  node_.options.made_job_linger = Nanos(0);
  node_.start();
  for (int i = 0; i < 8; ++i) {
    muster_open_options options = node_.rank("again", 0, 1);
    muster_session* session = nullptr;
    ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << i << ": " << muster_last_error();
    ASSERT_EQ(muster_close(session), MUSTER_OK);
  }
}

TEST_F(SupervisorTest, KeepsAMadeJobWarmForAWhile) {
  node_.options.made_job_linger = std::chrono::hours(1);
  node_.start();
  const auto socket = connect();
  std::uint64_t epoch = 0;
  for (int i = 0; i < 2; ++i) {
    muster_open_options options = node_.rank("warm", 0, 1);
    muster_session* session = nullptr;
    ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
    ASSERT_EQ(muster_close(session), MUSTER_OK);
    const auto status = ask(socket, {{"command", "status"}});
    ASSERT_TRUE(status);
    ASSERT_EQ(status->at("jobs").size(), 1u);
    const auto now = status->at("jobs").at(0).at("epoch").get<std::uint64_t>();
    EXPECT_EQ(now, i == 0 ? now : epoch) << "the same job";
    epoch = now;
  }
}

TEST_F(SupervisorTest, WritesTheMeshOfAMadeJobAsEverybodyDoes) {
  node_.start();
  muster_open_options options = node_.rank("made", 0, 1, "dp_shard=1");
  muster_session* session = nullptr;
  ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
  const auto status = ask(connect(), {{"command", "status"}});
  ASSERT_TRUE(status);
  EXPECT_EQ(status->at("jobs").at(0).at("mesh"), "pp=1,dp_replicate=1,dp_shard=1,cp=1,tp=1");
  EXPECT_EQ(muster_close(session), MUSTER_OK);
}

TEST_F(SupervisorTest, CountsConnectionsThatSendCommands) {
  node_.start();
  std::vector<shm::Descriptor> talkers;
  for (std::size_t i = 0; i < Connections::kCommands.all; ++i) {
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

// A packet as printf(1) writes it to the supervisor.
std::string printed(shm::MessageKind kind, std::uint32_t serial, const Json& body) {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const shm::Descriptor ours(ends[0]), theirs(ends[1]);
  EXPECT_TRUE(control::send_packet(ours, kind, serial, body).ok());
  std::array<unsigned char, 4096> bytes;
  const ssize_t size = read(theirs.get(), bytes.data(), bytes.size());
  std::string text = "printf '";
  for (ssize_t i = 0; i < size; ++i) text += fmt::format("\\{:03o}", bytes[static_cast<std::size_t>(i)]);
  return text + "' >&3\n";
}

// Goal:   an engine, which runs as its job's user, can say what it likes: the supervisor and its other jobs
//         go on.
// Method: a program in the engine's place that answers well once and then says things of other types than
//         expected, and text that is no UTF-8.
TEST_F(SupervisorTest, SurvivesAnEngineThatSaysAnything) {
  const std::string await = "until dd bs=65536 count=1 <&3 >/dev/null 2>&1; do sleep 0.01; done\n";
  const auto event = [](const Json& body) { return printed(shm::MessageKind::kCommand, 0, body); };
  const auto reply = [](std::uint32_t serial, const Json& body) {
    return printed(shm::MessageKind::kReply, serial, body);
  };
  const std::string program = (folder_ / "engine").string();
  std::ofstream(program) << "#!/bin/sh\n"
                         << await << reply(1, control::success({{"groups", 1}}))
                         << event({{"event", "failed"}, {"error", "\xff\xfe"}}) << event({{"event", 5}})
                         << event({{"event", "detached"}, {"rank", "none"}})
                         << event({{"event", "detached"}, {"rank", UINT64_MAX}}) << await
                         << reply(2, control::success(5)) << await << reply(3, {{"ok", "maybe"}}) << await
                         << reply(4, {{"ok", false}, {"status", 0}, {"error", "no"}}) << await
                         << reply(5, control::success(Json::array({1, 2}))) << await;
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  node_.options.engine_program = program;
  node_.start();
  const auto socket = connect();
  ASSERT_TRUE(ask(socket, create()));
  for (int i = 0; i < 4; ++i) {
    const auto jobs = ask(socket, {{"command", "jobs"}});
    ASSERT_TRUE(jobs) << jobs.error().text();
    EXPECT_EQ(jobs->at("jobs").size(), 1u);
  }
  EXPECT_TRUE(ask(connect(), {{"command", "version"}}));
}

// Goal:   a job that its engine refuses to make does not keep its name, nor a place.
// Method: a program in the engine's place that refuses, and lives on.
TEST_F(SupervisorTest, EndsAnEngineThatMakesNoJob) {
  const std::string program = (folder_ / "engine").string();
  const auto refused = control::failed(failure(Code::kNoResource, "no memory for that many ranks"));
  std::ofstream(program) << "#!/bin/sh\nuntil dd bs=65536 count=1 <&3 >/dev/null 2>&1; do sleep 0.01; done\n"
                         << printed(shm::MessageKind::kReply, 1, refused) << "exec sleep 600\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  node_.options.engine_program = program;
  node_.start();
  const auto socket = connect();
  const auto created = ask(socket, create());
  ASSERT_FALSE(created);
  EXPECT_THAT(created.error().message(), HasSubstr("no memory for that many ranks"));
  EXPECT_TRUE(await_jobs(socket, 0));
}

// Goal:   one run after another finds a place where there is one only, though the job before is still ending.
// Input:  jobs that a command makes, and one that its first rank makes.
TEST_F(SupervisorTest, WaitsForThePlaceOfAJobThatIsEnding) {
  node_.options.jobs_max = 1;
  node_.start();
  const auto socket = connect();
  for (const char* name : {"first", "second", "third"}) {
    const auto created = ask(socket, create({{"name", name}}));
    EXPECT_TRUE(created) << name << ": " << created.error().text();
    const auto full = ask(connect(), create({{"name", "another"}}));
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().code(), Code::kNoResource);
    EXPECT_TRUE(ask(socket, {{"command", "job_destroy"}, {"job", name}}));
  }
  const muster_open_options options = node_.rank("made", 0, 1);
  muster_session* session = nullptr;
  EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_close(session), MUSTER_OK);
}

// Goal:   the ranks of a job need one place, and none of them waits for a second.
// Input:  two jobs that are ending, one of which does not: its engine is stopped.
TEST_F(SupervisorTest, LetsTheRanksOfAJobInWhereOneHasMadeIt) {
  node_.options.jobs_max = 2;
  node_.start();
  const auto socket = connect();
  for (const char* name : {"ends", "lasts"}) ASSERT_TRUE(ask(socket, create({{"name", name}})));
  const pid_t lasting = engine_of(socket, "lasts");
  ASSERT_GT(lasting, 0);
  ASSERT_EQ(kill(lasting, SIGSTOP), 0);
  for (const char* name : {"lasts", "ends"})
    EXPECT_TRUE(ask(socket, {{"command", "job_destroy"}, {"job", name}}));
  const auto attach = [this](int rank) {
    const muster_open_options options = node_.rank("made", rank, 2);
    muster_session* session = nullptr;
    EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_close(session), MUSTER_OK);
  };
  std::thread rank_1(attach, 1);
  attach(0);
  rank_1.join();
  const auto after = ask(socket, {{"command", "status"}});
  ASSERT_TRUE(after);
  EXPECT_THAT(after->at("jobs").dump(), HasSubstr("lasts")) << "it is not gone yet";
  kill(lasting, SIGCONT);
}

// Goal:   a report that waits for an engine without an answer does not delay the other jobs' reports.
// Method: a stopped engine beside one with many ranks, rounds of questions, and what the daemon's heap, which
//         is this process's, holds before and after. A sanitizer's heap is not counted.
TEST_F(SupervisorTest, KeepsNoReportForAnEngineThatSaysNothing) {
  constexpr std::uint32_t kRounds = 8, kAtOnce = 8;  // answers fit into the socket
  node_.start();
  const auto socket = connect();
  ASSERT_TRUE(ask(socket, create({{"name", "talks"}, {"world", 64}, {"mesh", "dp_shard=64"}})));
  ASSERT_TRUE(ask(socket, create({{"name", "silent"}})));
  const pid_t silent = engine_of(socket, "silent");
  ASSERT_GT(silent, 0);
  ASSERT_EQ(kill(silent, SIGSTOP), 0);
  const auto held = [] {
    const auto heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
  };
  const std::size_t before = held();
  const Json jobs{{"command", "jobs"}, {"wait_ns", 200'000'000}};
  std::size_t reports = 0;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    for (std::uint32_t i = 0; i < kAtOnce; ++i)
      ASSERT_TRUE(control::send_packet(socket, shm::MessageKind::kCommand, 1 + i, jobs).ok());
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      const auto answer = control::receive_packet(socket, soon(), clock_);
      ASSERT_TRUE(answer) << answer.error().text();
      for (const Json& job : answer->body.at("result").at("jobs")) reports += job.at("ranks").size();
    }
  }
  EXPECT_GE(reports, kRounds * kAtOnce * 64 / 2) << "of the job that answers";
  EXPECT_LT(held(), before + (std::size_t{1} << 20));
  kill(silent, SIGCONT);
}

// Goal:   a question has one answer, whatever an engine says once the caller's patience is over.
// Method: a stopped engine. It goes on after the first answer, and answers both questions in their order.
TEST_F(SupervisorTest, AnswersOnceWhateverAnEngineSaysLater) {
  node_.start();
  const auto socket = connect();
  ASSERT_TRUE(ask(socket, create()));
  const pid_t engine = engine_of(socket, "job");
  ASSERT_GT(engine, 0);
  ASSERT_EQ(kill(engine, SIGSTOP), 0);
  const auto answer_of = [&](std::uint32_t serial, std::int64_t patience_ns) {
    const Json jobs{{"command", "jobs"}, {"wait_ns", patience_ns}};
    EXPECT_TRUE(control::send_packet(socket, shm::MessageKind::kCommand, serial, jobs).ok());
    const auto answer = control::receive_packet(socket, soon(), clock_);
    EXPECT_TRUE(answer) << answer.error().text();
    EXPECT_EQ(answer->serial, serial) << "an answer to a question that had one";
    return answer->body.at("result").at("jobs").at(0).at("answered").get<bool>();
  };
  EXPECT_FALSE(answer_of(7, 1'000'000));
  ASSERT_EQ(kill(engine, SIGCONT), 0);
  EXPECT_TRUE(answer_of(8, 20'000'000'000));
  EXPECT_TRUE(answer_of(9, 20'000'000'000));
}

// Goal:   a user who has stopped an engine of its own does not keep the daemon from its end, and the answer
//         says when that is at the latest.
TEST_F(SupervisorTest, EndsWhereAUserHasStoppedAnEngine) {
  node_.start();
  const auto socket = connect();
  ASSERT_TRUE(ask(socket, create()));
  const pid_t engine = engine_of(socket, "job");
  ASSERT_GT(engine, 0);
  ASSERT_EQ(kill(engine, SIGSTOP), 0);
  const auto ending = ask(socket, {{"command", "shutdown"}, {"drain", true}});
  ASSERT_TRUE(ending) << ending.error().text();
  EXPECT_EQ(ending->at("drain_timeout_ns"), Drain::times_of(node_.options.drain_timeout).latest().count());
  for (const Instant end = soon(); kill(engine, 0) == 0 && clock_.now() < end; usleep(1000)) {
  }
  EXPECT_EQ(kill(engine, 0), -1) << "it is gone";
}

// Goal:   a program that could not give its directory to node.group says so before it takes over.
TEST_F(SupervisorTest, KnowsToWhichGroupItMayGiveItsDirectory) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const auto may = [](std::uint32_t gid) {
    Options options;
    options.runtime_directory = "/run/muster";
    options.directory_gid = gid;
    return RuntimeDirectory::may_give(options.runtime_directory, listeners_of(options).access);
  };
  EXPECT_TRUE(may(4711).ok()) << "root";
  EXPECT_EQ(test::as_user(node_, 65534,
                          [&may] {
                            if (!may(65534).ok()) return 1;
                            const Status denied = may(4711);
                            if (denied.code() != Code::kDenied) return 2;
                            return denied.message().find("node.group") == std::string::npos ? 3 : 0;
                          }),
            0);
}

// Goal:   root may attach to any user's job, also at the ranks' door.
TEST_F(SupervisorTest, LetsWhoGovernsAttachToAnothersJob) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  test::start_for_everybody(node_);
  EXPECT_EQ(test::as_user(node_, 65534, [this] { return ask(connect(), create()) ? 0 : 1; }), 0);
  const muster_open_options options = node_.rank("job@65534", 0, 1);
  muster_session* session = nullptr;
  EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_close(session), MUSTER_OK);
}

// Goal:   users see and touch their own jobs only.
// Method: root's job, and a process that has become another user.
TEST_F(SupervisorTest, HidesTheJobsOfOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  test::start_for_everybody(node_);
  ASSERT_TRUE(ask(connect(), create()));
  const auto mine = ask(connect(), {{"command", "status"}});
  ASSERT_TRUE(mine);
  EXPECT_EQ(mine->at("jobs").size(), 1u);
  const auto look = [this] {
    const auto socket = connect();
    const auto seen = ask(socket, {{"command", "status"}});
    if (!seen || !seen->at("jobs").empty()) return 2;
    if (seen->at("jobs_total") != 1) return 3;  // of the limit that is shown beside it
    const Json ends{{"command", "job_destroy"}, {"job", "job"}};
    const auto refused = ask(socket, ends);  // he has none of that name
    if (refused || refused.error().code() != Code::kNotFound) return 4;
    if (!ask(socket, create())) return 5;  // a name is his who gives it
    const auto own = ask(socket, {{"command", "status"}});
    if (!own || own->at("jobs").size() != 1 || own->at("jobs").at(0).at("name") != "job") return 6;
    return ask(socket, ends) ? 0 : 7;
  };
  EXPECT_EQ(test::as_user(node_, 65534, look), 0);
  const auto left = ask(connect(), {{"command", "status"}});
  ASSERT_TRUE(left);
  for (const Json& job : left->at("jobs"))
    EXPECT_EQ(job.at("state") == "ending", job.at("name") == "job@65534") << job;
}

}  // namespace
}  // namespace muster::supervisor
