// Ranks that launchers start on several nodes, and whose job nobody has made.
#include "tests/daemon/supervisor/cluster_fixture.hpp"

#include <atomic>
#include <cstdlib>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/wait.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kWorld = 6;  // rank r runs on node r % 3: members of dim dp_shard are on one node, of tp on all
constexpr const char* kMesh = "dp_shard=2,tp=3";

class GatheredJobsTest : public ClusterTest {
 protected:
  void start(std::size_t count) {
    prepare(count);
    for (const auto& node : nodes_) {
      node->options.jobs.clear();
      node->options.made_job_linger = 200ms;
    }
  }
  void start_and_meet() {
    start_all();
    ASSERT_TRUE(until([&] {
      for (std::size_t n = 0; n < nodes_.size(); ++n)
        for (std::size_t other = 0; other < nodes_.size(); ++other)
          if (n != other && peer(n, other).at("state") != "up") return false;
      return true;
    }));
  }
  std::size_t node_of(int rank) const { return static_cast<std::size_t>(rank) % nodes_.size(); }
  // Opens; a text that begins with the status if that fails.
  std::string open_rank(int rank, muster_session** session, Nanos timeout = 20s, int world = kWorld,
                        const char* mesh = kMesh, const std::string& job = "train") const {
    auto options = nodes_[node_of(rank)]->rank(job.c_str(), rank, world, mesh);
    options.timeout_ns = timeout.count();
    const muster_status_t status = muster_open(&options, session);
    return status == MUSTER_OK ? "" : fmt::format("{}: {}", muster_status_name(status), muster_last_error());
  }
  // All ranks at once.
  std::vector<muster_session*> open_world() const {
    std::vector<muster_session*> sessions(kWorld);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kWorld; ++rank)
      threads.emplace_back(
          [&, rank] { EXPECT_EQ(open_rank(rank, &sessions[static_cast<std::size_t>(rank)]), ""); });
    for (std::thread& thread : threads) thread.join();
    return sessions;
  }
  // Both ranks of each of these jobs of two, at once, open and leave; what each has heard.
  std::vector<std::string> visit(const std::vector<std::string>& jobs,
                                 const char* mesh = "dp_shard=2") const {
    std::vector<std::string> heard(2 * jobs.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < heard.size(); ++i)
      threads.emplace_back([&, i] {
        muster_session* session = nullptr;
        heard[i] = open_rank(static_cast<int>(i % 2), &session, 20s, 2, mesh, jobs[i / 2]);
        EXPECT_EQ(muster_close(session), MUSTER_OK);
      });
    for (std::thread& thread : threads) thread.join();
    return heard;
  }
  // Those ranks at once; what each has heard.
  std::vector<std::string> open_all(const std::vector<int>& ranks, Nanos timeout = 20s) const {
    std::vector<std::string> heard(ranks.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      threads.emplace_back([&, i] {
        muster_session* session = nullptr;
        heard[i] = open_rank(ranks[i], &session, timeout);
        EXPECT_EQ(muster_close(session), MUSTER_OK);
      });
    for (std::thread& thread : threads) thread.join();
    return heard;
  }
  void expect_adds() const {
    std::vector<std::thread> threads;
    std::atomic<int> done{0};
    for (int rank = 0; rank < kWorld; ++rank)
      threads.emplace_back([&, rank] {
        muster_session* session = nullptr;
        EXPECT_EQ(open_rank(rank, &session), "");
        muster_group group = 0;
        EXPECT_EQ(muster_mesh_group(session, "dp_shard", &group), MUSTER_OK) << muster_last_error();
        {
          const AllReduce reduce(session, 100, group, AllReduce::Place::kApart);
          std::fill_n(reduce.source, 100, static_cast<float>(rank + 1));
          EXPECT_EQ(reduce.start_and_wait(MUSTER_LANE_ALLREDUCE), MUSTER_OK) << muster_last_error();
          EXPECT_EQ(reduce.target[99], static_cast<float>(2 * (rank % 3 + 1) + 3));
        }
        ++done;
        while (done < kWorld) std::this_thread::sleep_for(1ms);
        EXPECT_EQ(muster_close(session), MUSTER_OK);
      });
    for (std::thread& thread : threads) thread.join();
  }
  bool all_gone() const {
    return until([this] {
      for (std::size_t n = 0; n < nodes_.size(); ++n)
        if (!job_at(n).empty() || !waiting(n).empty()) return false;
      return true;
    });
  }
};

// Goal:   the ranks of three nodes form one job, each rank where it has come, and the job is gone after them.
TEST_F(GatheredJobsTest, LastAsLongAsTheirRanks) {
  start(3);
  start_and_meet();
  for (int round = 0; round < 3; ++round) {
    expect_adds();
    ASSERT_TRUE(all_gone()) << waiting(0) << waiting(1) << waiting(2);
  }
}

// Goal:   a launcher that comes back with another number of ranks gets its job, though the former would stay
//         long: all nodes give it up, also those that have none of the new ranks.
TEST_F(GatheredJobsTest, MakeRoomForOneOfAnotherSize) {
  start(3);
  for (const auto& node : nodes_) node->options.made_job_linger = 1h;
  start_and_meet();
  for (const int world : {6, 3, 2, 6}) {
    const std::string mesh = fmt::format("dp_shard={}", world);
    std::vector<std::thread> threads;
    std::atomic<int> done{0};
    for (int rank = 0; rank < world; ++rank)
      threads.emplace_back([&, rank] {
        muster_session* session = nullptr;
        EXPECT_EQ(open_rank(rank, &session, 20s, world, mesh.c_str()), "") << world;
        ++done;
        while (done < world) std::this_thread::sleep_for(1ms);
        EXPECT_EQ(muster_close(session), MUSTER_OK);
      });
    for (std::thread& thread : threads) thread.join();
  }
}

// Goal:   jobs of two nodes that leave memory behind refuse no later one: they end on both nodes for it.
TEST_F(GatheredJobsTest, GiveTheirMemoryToTheNext) {
  constexpr std::uint64_t kShare = std::uint64_t{256} << 20;
  start(2);
  for (const auto& node : nodes_) {
    node->options.made_job_linger = 1h;
    node->options.memory_max = kShare;
  }
  start_and_meet();
  const char* count = std::getenv("MUSTER_SHORT_JOBS");
  const int jobs = count != nullptr ? std::atoi(count) : 8;
  for (int job = 0; job < jobs; ++job) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        muster_session* session = nullptr;
        const std::string name = fmt::format("step{}", job);
        const auto options = nodes_[node_of(rank)]->rank(name.c_str(), rank, 2, "dp_shard=2");
        EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << job << ": " << muster_last_error();
        muster_buffer_options named = MUSTER_BUFFER_OPTIONS_INIT;
        named.name = "state";
        named.bytes = kShare / 4;
        muster_buffer buffer = 0;
        void* address = nullptr;
        if (session != nullptr)
          EXPECT_EQ(muster_buffer_create(session, &named, &buffer, &address), MUSTER_OK)
              << job << ": " << muster_last_error();
        EXPECT_EQ(muster_close(session), MUSTER_OK);
      });
    for (std::thread& thread : threads) thread.join();
    // Three fit, and no more end than must.
    for (std::size_t n = 0; job >= 2 && n < nodes_.size(); ++n) {
      const Json all = status(n);
      EXPECT_GE(all.at("jobs").size(), 3u) << job;
    }
  }
}

// Goal:   idle jobs of two nodes that are full end on both for the next, the oldest first, and a job that
//         cannot be made ends none.
TEST_F(GatheredJobsTest, GiveTheirPlacesToTheNext) {
  start(2);
  for (const auto& node : nodes_) {
    node->options.made_job_linger = 1h;
    node->options.jobs_max = 3;
  }
  start_and_meet();
  for (int job = 0; job < 7; ++job) EXPECT_THAT(visit({fmt::format("step{}", job)}), Each("")) << job;
  const auto there = [this](std::size_t n) {
    std::vector<std::string> names;
    const Json all = status(n);
    for (const Json& each : all.at("jobs"))
      if (each.at("state") == "ready") names.push_back(each.at("name"));
    return names;
  };
  EXPECT_THAT(visit({"bent"}, "tp=3"), Each(HasSubstr("CONFIG")));
  for (const std::size_t n : {0u, 1u})
    EXPECT_THAT(there(n), ::testing::UnorderedElementsAre("step4", "step5", "step6")) << n;
  // A command line for two nodes needs room too, and its job gives way to none.
  const auto asked =
      ask(0, {{"command", "job_create"},
              {"spec", {{"name", "run"}, {"world", 2}, {"mesh", "dp_shard=2"}}},
              {"nodes", {{{"node", "node0"}, {"ranks", 1}}, {{"node", "node1"}, {"ranks", 1}}}}});
  ASSERT_TRUE(asked) << asked.error().text();
}

// Goal:   jobs of two nodes that come at the same time each get the place of one that is idle.
TEST_F(GatheredJobsTest, GiveTheirPlacesToSeveralAtOnce) {
  start(2);
  for (const auto& node : nodes_) {
    node->options.made_job_linger = 1h;
    node->options.jobs_max = 4;
  }
  start_and_meet();
  for (const std::string round : {"a", "b", "c"})
    EXPECT_THAT(visit({round + "0", round + "1"}), Each("")) << round;
}

// Goal:   an idle job of two nodes ends on both though only one of them is full, and for a job of that one
//         alone; its own ranks get it back, as a new one, in the place of the next that is idle.
TEST_F(GatheredJobsTest, EndOnAllNodesForAJobOfOne) {
  start(2);
  for (const auto& node : nodes_) node->options.made_job_linger = 1h;
  nodes_[0]->options.jobs_max = 2;
  start_and_meet();
  EXPECT_THAT(open_all({0, 1, 2, 3, 4, 5}), Each(""));
  const std::uint64_t epoch = epoch_at(1);
  ASSERT_NE(epoch, 0u);
  for (const char* job : {"alone", "another"}) {
    muster_session* session = nullptr;
    const auto options = nodes_[0]->rank(job, 0, 1, "dp_shard=1");
    EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << job << ": " << muster_last_error();
    EXPECT_EQ(muster_close(session), MUSTER_OK);
  }
  EXPECT_TRUE(until([this] { return job_at(0).empty() && job_at(1).empty(); })) << job_at(0) << job_at(1);
  EXPECT_THAT(open_all({0, 1, 2, 3, 4, 5}), Each(""));
  EXPECT_NE(epoch_at(1), epoch);
  EXPECT_THAT(status(0).dump(), AllOf(HasSubstr("\"another\""), ::testing::Not(HasSubstr("\"alone\""))));
}

// Goal:   an idle job that still has ranks on another node does not stand in the way of one that could end.
TEST_F(GatheredJobsTest, DoNotCountOnAJobThatHasRanksElsewhere) {
  start(2);
  for (const auto& node : nodes_) node->options.made_job_linger = 1h;
  nodes_[0]->options.jobs_max = 2;
  start_and_meet();
  std::vector<muster_session*> sessions = open_world();
  for (std::size_t rank = 0; rank < sessions.size(); rank += nodes_.size())  // those of node0
    EXPECT_EQ(muster_close(std::exchange(sessions[rank], nullptr)), MUSTER_OK);
  for (const char* job : {"first", "second", "third"}) {
    muster_session* session = nullptr;
    const auto options = nodes_[0]->rank(job, 0, 1, "dp_shard=1");
    EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << job << ": " << muster_last_error();
    EXPECT_EQ(muster_close(session), MUSTER_OK);
  }
  EXPECT_EQ(job_at(0), "ready") << "it has ranks";
  EXPECT_EQ(job_at(1), "ready");
  for (muster_session* session : sessions)
    if (session != nullptr) EXPECT_EQ(muster_close(session), MUSTER_OK);
  EXPECT_TRUE(all_gone()) << "its owner needed the room, so no node waits for its ranks";
}

// Goal:   `end --of` at one node ends a batch job's jobs on all nodes, and none but those.
TEST_F(GatheredJobsTest, EndOnAllNodesWithTheirBatchJob) {
  start(2);
  for (const auto& node : nodes_) node->options.made_job_linger = 1h;
  start_and_meet();
  setenv("SLURM_JOB_ID", "77", 1);
  const std::vector<muster_session*> sessions = open_world();
  setenv("SLURM_JOB_ID", "78", 1);
  muster_session* other = nullptr;
  const auto options = nodes_[0]->rank("other", 0, 1, "dp_shard=1");
  EXPECT_EQ(muster_open(&options, &other), MUSTER_OK) << muster_last_error();
  unsetenv("SLURM_JOB_ID");
  ASSERT_TRUE(until([this] { return job(1).at("origins").dump().find("\"77\"") != std::string::npos; }));
  const auto ended = ask(1, {{"command", "end_of"}, {"of", "slurm:77"}});
  ASSERT_TRUE(ended) << ended.error().text();
  EXPECT_EQ(ended->at("jobs"), Json::array({"train"}));
  EXPECT_TRUE(until([this] { return job_at(0).empty() && job_at(1).empty(); })) << job_at(0) << job_at(1);
  EXPECT_THAT(status(0).at("jobs").dump(), HasSubstr("\"other\""));
  for (muster_session* session : sessions) static_cast<void>(muster_close(session));
  EXPECT_EQ(muster_close(other), MUSTER_OK);
}

// Goal:   at exactly half, all nodes of such a job ask the cluster's tie-breaker, also the one that makes it.
TEST_F(GatheredJobsTest, HaveTheTieBreakerOfTheCluster) {
  start(3);
  have_tie_breaker("node1");
  start_and_meet();
  const std::vector<muster_session*> sessions = open_world();
  expect_tie_breaker("node1");
  for (muster_session* session : sessions) EXPECT_EQ(muster_close(session), MUSTER_OK);
  EXPECT_TRUE(all_gone()) << waiting(0);
}

// Goal:   ranks that come back when the job is about to end work, in that job or in another.
// Method: all leave, and come back about when the time has passed that the job stays.
TEST_F(GatheredJobsTest, TakeBackRanksThatReturnAtTheEnd) {
  start(3);
  for (const auto& node : nodes_) node->options.made_job_linger = 20ms;
  start_and_meet();
  for (int round = 0; round < 12; ++round) {
    expect_adds();
    std::this_thread::sleep_for(15ms + round * 1ms);
  }
}

// Goal:   ranks on one node alone keep the job, and those of another may come again.
TEST_F(GatheredJobsTest, StayWhileARankOfAnyNodeIsThere) {
  start(3);
  start_and_meet();
  std::vector<muster_session*> sessions = open_world();
  const std::uint64_t epoch = epoch_at(0);
  const auto close = [&](std::initializer_list<std::size_t> ranks) {
    for (const std::size_t rank : ranks)
      EXPECT_EQ(muster_close(std::exchange(sessions[rank], nullptr)), MUSTER_OK);
  };
  close({0, 1, 3, 4});  // of the first two nodes; rank 2 and 5 stay
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(epoch_at(0), epoch) << "nobody is there, but somebody is elsewhere";
  EXPECT_EQ(open_rank(0, &sessions[0]), "");
  close({2, 5});
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(epoch_at(2), epoch);
  close({0});
  EXPECT_TRUE(all_gone()) << waiting(0);
}

// Goal:   a node that is gone for good keeps no job.
TEST_F(GatheredJobsTest, EndThoughANodeIsGone) {
  start(3);
  start_and_meet();
  std::vector<muster_session*> sessions = open_world();
  nodes_[1] = nullptr;
  for (muster_session* session : sessions) muster_close(session);
  EXPECT_TRUE(until([this] { return job_at(0).empty() && job_at(2).empty(); })) << waiting(0) << waiting(2);
}

// Goal:   all ranks of a job of one node may come to a node of a cluster too.
TEST_F(GatheredJobsTest, MayBeOfOneNode) {
  start(2);
  start_and_meet();
  std::vector<std::thread> threads;
  std::atomic<int> done{0};
  for (const int rank : {0, 1})
    threads.emplace_back([&, rank] {
      auto options = nodes_[1]->rank("train", rank, 2, rank == 0 ? nullptr : "tp=2");
      muster_session* session = nullptr;
      EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(job(1).value("nodes", Json()), Json()) << "it is on no other node";
      EXPECT_THAT(job(1).at("mesh").get<std::string>(), HasSubstr("tp=2")) << "as the second has asked";
      ++done;
      while (done < 2) std::this_thread::sleep_for(1ms);
      EXPECT_EQ(muster_close(session), MUSTER_OK);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(all_gone());
}

// Goal:   ranks that wait in vain get the reason, on each node.
TEST_F(GatheredJobsTest, SayWhyTheyCannotBeMade) {
  start(3);
  nodes_[1]->options.ranks_per_job_max = 1;
  start_and_meet();
  EXPECT_THAT(open_all({0, 1, 2, 3, 4, 5}),
              Each(AllOf(HasSubstr("limits.ranks_per_job_max"), HasSubstr("node1"))));
  ASSERT_TRUE(all_gone());
  EXPECT_THAT(open_all({0, 1, 3}, 1s),
              Each(AllOf(HasSubstr("TIMEOUT"), HasSubstr("waits for ranks 2 4 5"),
                         HasSubstr("0 3 on node node0"), HasSubstr("1 on node node1"))));
  ASSERT_TRUE(all_gone());
  // Another size of the world on another node.
  std::string heard;
  std::thread other([&] {
    muster_session* session = nullptr;
    heard = open_rank(0, &session);
  });
  ASSERT_TRUE(until([this] { return waiting(0).find("waits for ranks 1-5") != std::string::npos; }));
  muster_session* session = nullptr;
  EXPECT_THAT(open_rank(1, &session, 20s, 4, "tp=4"),
              AllOf(HasSubstr("BAD_ARGUMENT"), HasSubstr("4 ranks"), HasSubstr("6 as"), HasSubstr("node0")));
  other.join();
  EXPECT_THAT(heard, AllOf(HasSubstr("BAD_ARGUMENT"), HasSubstr("node1")));
  EXPECT_THAT(open_rank(0, &session, 20s, kWorld, "tp=7"), HasSubstr("CONFIG"));
  ASSERT_TRUE(all_gone());
}

// Goal:   a rank of a container, whom no other node knows, hears at once what it lacks.
// Method: a child in a user namespace of its own, made before the nodes have threads.
TEST_F(GatheredJobsTest, WantAJobKeyWhereOtherNodesDoNotKnowTheUser) {
  start(2);
  int go[2], said[2];
  ASSERT_EQ(pipe2(go, O_CLOEXEC) + pipe2(said, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(go[1]);
    char byte = 0;
    muster_session* session = nullptr;
    const bool apart = unshare(CLONE_NEWUSER) == 0 && read(go[0], &byte, 1) == 0;
    const std::string text = apart ? open_rank(0, &session, 2s) : "";
    _exit(write(said[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  close(go[0]);
  close(said[1]);
  start_and_meet();
  close(go[1]);
  char text[1000];
  const ssize_t bytes = read(said[0], text, sizeof text);
  close(said[0]);
  waitpid(child, nullptr, 0);
  if (bytes == 0) GTEST_SKIP() << "this system makes no user namespaces";
  ASSERT_GT(bytes, 0);
  EXPECT_THAT(std::string(text, static_cast<std::size_t>(bytes)),
              AllOf(HasSubstr("DENIED"), HasSubstr("other nodes do not know"), HasSubstr("MUSTER_JOB_KEY")));
}

// Goal:   the administrator's rule counts for such jobs too, and a daemon that ends keeps nobody.
TEST_F(GatheredJobsTest, AreForTheAdministratorToAllow) {
  start(2);
  nodes_[1]->options.auto_create_jobs = false;
  start_and_meet();
  EXPECT_THAT(open_all({1}), Each(HasSubstr("NOT_FOUND")));
  std::string heard;
  std::thread waits([&] {
    muster_session* session = nullptr;
    heard = open_rank(0, &session);
  });
  ASSERT_TRUE(until([this] { return !waiting(0).empty(); }));
  EXPECT_TRUE(ask(0, {{"command", "shutdown"}, {"drain", true}}).has_value());
  waits.join();
  EXPECT_THAT(heard, HasSubstr("JOB_ENDED"));
}

}  // namespace
}  // namespace muster::supervisor
