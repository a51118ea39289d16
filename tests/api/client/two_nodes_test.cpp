// A job whose ranks are on two nodes. Each node has a supervisor and an engine of its own; between them there
// is no connection yet, so groups with members on both are refused by name.
#include <muster/muster.h>

#include "tests/support/all_reduce.hpp"
#include "tests/support/node.hpp"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using muster::test::AllReduce;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kCount = 1000;
constexpr int kWorld = 8;

class TwoNodes : public ::testing::Test {
 protected:
  // Rank r runs on node `node_of[r]`. The mesh is dp_replicate=2, tp=4: with half of the ranks on each node
  // tp is inside a node, and dp_replicate across.
  void start(const std::vector<std::uint32_t>& node_of) {
    node_of_ = node_of;
    for (std::uint32_t n = 0; n < 2; ++n) {
      muster::control::JobSpec job = nodes_[n].options.job_defaults;
      job.name = "train";
      job.mesh = "dp_replicate=2,tp=4";
      job.epoch = 1;
      job.owner = getuid();
      job.world = *muster::World::build({"east", "west"}, node_of, muster::NodeIndex(n));
      nodes_[n].options.jobs.push_back(job);
      nodes_[n].start();
    }
  }
  muster_session* open(int rank) {
    const auto options = nodes_[node_of_[static_cast<std::size_t>(rank)]].rank("train", rank, kWorld);
    muster_session* session = nullptr;
    EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
    return session;
  }
  // All ranks at once, a thread each.
  template<class Body>
  void with_all(Body body) {
    std::vector<std::thread> threads;
    std::atomic<int> opened{0};
    for (int rank = 0; rank < kWorld; ++rank)
      threads.emplace_back([&, rank] {
        muster_session* session = open(rank);
        ++opened;
        while (opened < kWorld) std::this_thread::yield();
        if (session != nullptr) body(rank, session);
        EXPECT_EQ(muster_close(session), MUSTER_OK);
      });
    for (std::thread& thread : threads) thread.join();
  }
  static muster_group group_of(muster_session* session, const char* dim) {
    muster_group group = 0;
    EXPECT_EQ(muster_mesh_group(session, dim, &group), MUSTER_OK) << muster_last_error();
    return group;
  }
  // Sums of 2^rank over the group, started and run.
  static void expect_sum(muster_session* session, int rank, const char* dim, float sum) {
    const AllReduce reduce(session, kCount, group_of(session, dim), AllReduce::Place::kApart);
    for (const bool started : {true, false}) {
      std::fill_n(reduce.source, kCount, static_cast<float>(1 << rank));
      std::fill_n(reduce.target, kCount, -1.0f);
      EXPECT_EQ(
          started ? reduce.start_and_wait(MUSTER_LANE_ALLREDUCE) : muster_plan_run(session, reduce.plan, 0),
          MUSTER_OK)
          << muster_last_error();
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(reduce.target[i], sum) << "rank " << rank;
    }
  }

  std::vector<std::uint32_t> node_of_;
  muster::test::Node nodes_[2];
};

TEST_F(TwoNodes, WorkInGroupsThatAreInsideANode) {
  start({0, 0, 0, 0, 1, 1, 1, 1});
  with_all([](int rank, muster_session* session) {
    muster_session_info info = MUSTER_SESSION_INFO_INIT;
    ASSERT_EQ(muster_session_query(session, &info), MUSTER_OK);
    EXPECT_EQ(info.rank, rank);
    EXPECT_EQ(info.world_size, kWorld);
    EXPECT_EQ(info.local_rank, rank % 4);
    EXPECT_EQ(info.local_size, 4);
    expect_sum(session, rank, "tp", rank < 4 ? 0x0f : 0xf0);
  });
}

// Goal:   nothing takes a rank for its place on the node: ranks of the two alternate.
TEST_F(TwoNodes, WorkWhereRanksAlternate) {
  start({0, 1, 0, 1, 0, 1, 0, 1});
  with_all([](int rank, muster_session* session) {
    const std::int32_t ranks[] = {rank % 2, rank % 2 + 2, rank % 2 + 4, rank % 2 + 6};
    muster_group group = 0;
    ASSERT_EQ(muster_group_make(session, ranks, 4, "every other", &group), MUSTER_OK) << muster_last_error();
    const AllReduce reduce(session, kCount, group, AllReduce::Place::kApart);
    for (int round = 0; round < 3; ++round) {
      std::fill_n(reduce.source, kCount, static_cast<float>(1 << rank));
      ASSERT_EQ(reduce.start_and_wait(MUSTER_LANE_SMALL), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(reduce.target[kCount - 1], rank % 2 == 0 ? 0x55 : 0xaa);
      ASSERT_EQ(muster_plan_run(session, reduce.plan, 0), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(reduce.target[0], rank % 2 == 0 ? 0x55 : 0xaa);
    }
  });
}

TEST_F(TwoNodes, AreNamedWhereAGroupHasMembersOnBoth) {
  start({0, 0, 0, 0, 1, 1, 1, 1});
  with_all([](int rank, muster_session* session) {
    const auto says_where = AllOf(HasSubstr("east"), HasSubstr("west"));
    muster_collective barrier = MUSTER_COLLECTIVE_INIT;
    barrier.op = MUSTER_BARRIER;
    barrier.group = group_of(session, "dp_replicate");
    muster_plan plan = 0;
    EXPECT_EQ(muster_plan_collective(session, &barrier, &plan), MUSTER_ERR_UNSUPPORTED);
    EXPECT_THAT(muster_last_error(), AllOf(says_where, HasSubstr("dp_replicate")));
    EXPECT_EQ(muster_run(session, &barrier, 0), MUSTER_ERR_UNSUPPORTED);
    EXPECT_THAT(muster_last_error(), says_where);
    const std::int32_t both[] = {rank, (rank + 4) % kWorld};
    muster_group group = 0;
    EXPECT_EQ(muster_group_make(session, both, 2, "both", &group), MUSTER_ERR_UNSUPPORTED);
    EXPECT_THAT(muster_last_error(), AllOf(says_where, HasSubstr("both")));
    EXPECT_EQ(muster_group_shrink(session, group_of(session, "world"), 0, &group), MUSTER_ERR_UNSUPPORTED);
    EXPECT_THAT(muster_last_error(), says_where);
    expect_sum(session, rank, "tp", rank < 4 ? 0x0f : 0xf0);
  });
}

TEST_F(TwoNodes, SendARankToItsOwnDaemon) {
  start({0, 0, 0, 0, 1, 1, 1, 1});
  const auto options = nodes_[0].rank("train", 5, kWorld);
  muster_session* session = nullptr;
  EXPECT_EQ(muster_open(&options, &session), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("rank 5 on node west"), HasSubstr("train")));
}

}  // namespace
