// Ranks of several nodes, by the C API, over the networks that a cluster may name: supervisors that know each
// other, engines as programs of their own.
#include "tests/daemon/supervisor/cluster_fixture.hpp"
#include "tests/support/job_between_nodes.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using ::testing::HasSubstr;

class BetweenNodes : public ClusterTest, public ::testing::WithParamInterface<const char*> {
 protected:
  // Job "train" of that mesh. Rank r runs on node `node_of[r]`.
  void start(const std::vector<std::uint32_t>& node_of, const std::string& mesh) {
    node_of_ = node_of;
    const std::uint32_t nodes = *std::max_element(node_of.begin(), node_of.end()) + 1;
    prepare(nodes);
    std::vector<std::string> names;
    for (std::uint32_t n = 0; n < nodes; ++n) names.push_back(name(n));
    for (std::uint32_t n = 0; n < nodes; ++n) {
      control::JobSpec& job = nodes_[n]->options.jobs.front();
      job.mesh = mesh;
      job.world = *World::build(names, node_of, NodeIndex(n));
      test::connect_nodes(job, GetParam(), MUSTER_NETWORKS);
    }
    start_all();
    ASSERT_TRUE(until_ready()) << waiting(0);
  }
  int world() const { return static_cast<int>(node_of_.size()); }

  // All ranks at once, a thread each; none closes before all are done.
  void with_all(const std::function<void(int rank, muster_session* session)>& body) {
    std::vector<std::thread> threads;
    std::atomic<int> done{0};
    for (int rank = 0; rank < world(); ++rank)
      threads.emplace_back([&, rank] {
        const auto options = nodes_[node_of_[static_cast<std::size_t>(rank)]]->rank("train", rank, world());
        muster_session* session = nullptr;
        EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
        if (session != nullptr) body(rank, session);
        ++done;
        while (done < world()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_EQ(muster_close(session), MUSTER_OK);
      });
    for (std::thread& thread : threads) thread.join();
  }

  static muster_group group_of(muster_session* session, const char* dim) {
    muster_group group = 0;
    EXPECT_EQ(muster_mesh_group(session, dim, &group), MUSTER_OK) << dim << ": " << muster_last_error();
    return group;
  }
  // The sum of rank + 1 over the members of the group.
  static float expected_sum(muster_session* session, muster_group group) {
    std::int32_t ranks[64];
    std::size_t count = 0;
    EXPECT_EQ(muster_group_ranks(session, group, ranks, 64, &count), MUSTER_OK) << muster_last_error();
    float sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += static_cast<float>(ranks[i] + 1);
    return sum;
  }
  static void expect_sum(int rank, muster_session* session, const char* dim, std::size_t count) {
    const muster_group group = group_of(session, dim);
    const float sum = expected_sum(session, group);
    const AllReduce reduce(session, count, group, AllReduce::Place::kApart);
    for (const bool started : {true, false}) {
      std::fill_n(reduce.source, count, static_cast<float>(rank + 1));
      std::fill_n(reduce.target, count, -1.0f);
      EXPECT_EQ(
          started ? reduce.start_and_wait(MUSTER_LANE_ALLREDUCE) : muster_plan_run(session, reduce.plan, 0),
          MUSTER_OK)
          << dim << ": " << muster_last_error();
      for (const std::size_t i : {std::size_t{0}, count / 2, count - 1})
        ASSERT_EQ(reduce.target[i], sum) << "rank " << rank << ", " << dim;
    }
  }

  std::vector<std::uint32_t> node_of_;
};

INSTANTIATE_TEST_SUITE_P(Networks, BetweenNodes, ::testing::Values("ucx", "ofi"),
                         [](const auto& param) { return std::string(param.param); });

struct MeshCase {
  const char* mesh;
  std::uint32_t ranks;
  std::vector<const char*> dims;
};

// Goal:   every group of a mesh works, whatever nodes its members are on.
// Method: the meshes for which the number of groups is known, over two nodes; the largest over four.
TEST_P(BetweenNodes, AddInEveryGroupOfAMesh) {
  const std::vector<MeshCase> kCases = {
      {"dp_shard=8", 8, {"dp_shard", "world"}},
      {"dp_replicate=2,dp_shard=4", 8, {"dp_replicate", "dp_shard", "dp"}},
      {"dp_shard=4,tp=2", 8, {"dp_shard", "tp", "world"}},
      {"dp_replicate=2,dp_shard=2,tp=2", 8, {"dp_replicate", "dp_shard", "tp", "dp", "world"}},
      {"pp=2,dp_shard=2,tp=2", 8, {"pp", "dp_shard", "tp", "world"}},
      {"dp_shard=2,cp=2,tp=2", 8, {"dp_shard", "cp", "tp", "dp_shard_cp", "world"}},
      {"pp=2,tp=4", 8, {"pp", "tp", "world"}},
      {"pp=2,dp_replicate=2,dp_shard=4,cp=2,tp=2",
       64,
       {"pp", "dp_replicate", "dp_shard", "cp", "tp", "dp", "dp_shard_cp", "dp_cp", "world"}}};
  for (const MeshCase& each : kCases) {
    std::vector<std::uint32_t> node_of;
    const std::uint32_t nodes = each.ranks == 64 ? 4 : 2;
    for (std::uint32_t r = 0; r < each.ranks; ++r) node_of.push_back(r * nodes / each.ranks);
    nodes_.clear();
    roster_ = {};
    start(node_of, each.mesh);
    with_all([&](int rank, muster_session* session) {
      for (const char* dim : each.dims) expect_sum(rank, session, dim, 1000);
    });
    if (HasFailure()) return;
  }
}

// Goal:   unequal numbers of ranks on three nodes, in turns; long vectors; made groups, made again; messages.
TEST_P(BetweenNodes, WorkWhereNodesAreUnequal) {
  start({0, 1, 0, 2, 0, 1}, "dp_replicate=3,dp_shard=2");
  with_all([&](int rank, muster_session* session) {
    expect_sum(rank, session, "world", 300'000);
    expect_sum(rank, session, "dp_shard", 7);
    for (int round = 0; round < 3; ++round) {
      const std::int32_t ranks[] = {1, 3, 4};
      if (rank != 1 && rank != 3 && rank != 4) break;
      muster_group group = 0;
      ASSERT_EQ(muster_group_make(session, ranks, 3, "three", &group), MUSTER_OK) << muster_last_error();
      {
        const AllReduce reduce(session, 100, group);
        for (int i = 0; i <= round; ++i) {
          std::fill_n(reduce.source, 100, static_cast<float>(rank));
          ASSERT_EQ(reduce.start_and_wait(MUSTER_LANE_SMALL), MUSTER_OK) << muster_last_error();
          ASSERT_EQ(reduce.target[99], 8);
        }
        ASSERT_EQ(muster_plan_destroy(session, reduce.plan), MUSTER_OK) << muster_last_error();
      }
      ASSERT_EQ(muster_group_free(session, group), MUSTER_OK) << muster_last_error();
    }
    // Rank 0 sends to rank 3 with two tags; they are received the other way round.
    muster_buffer buffer = 0;
    void* address = nullptr;
    ASSERT_EQ(muster_buffer_alloc(session, 8, &buffer, &address), MUSTER_OK);
    auto* const values = static_cast<float*>(address);
    if (rank == 0 || rank == 3) {
      muster_plan plans[2] = {};
      for (std::uint32_t i = 0; i < 2; ++i) {
        muster_collective message = MUSTER_COLLECTIVE_INIT;
        message.op = rank == 0 ? MUSTER_SEND : MUSTER_RECV;
        message.group = group_of(session, "world");
        message.peer = rank == 0 ? 3 : 0;
        message.tag = rank == 0 ? i : 1 - i;
        message.dtype = MUSTER_F32;
        message.count = 1;
        (rank == 0 ? message.source : message.target) = {buffer, 4 * i};
        ASSERT_EQ(muster_plan_collective(session, &message, &plans[i]), MUSTER_OK) << muster_last_error();
        values[i] = rank == 0 ? 10.0f + static_cast<float>(i) : 0;
      }
      muster_point points[2] = {};
      const muster_lane lanes[] = {MUSTER_LANE_COPY, MUSTER_LANE_HALO};
      for (std::uint32_t i = 0; i < 2; ++i) {
        muster_submit submit = MUSTER_SUBMIT_INIT;
        submit.lane = lanes[i];
        ASSERT_EQ(muster_plan_start(session, plans[i], &submit, &points[i]), MUSTER_OK)
            << muster_last_error();
      }
      for (const muster_point point : points)
        ASSERT_EQ(muster_point_wait(session, point, -1), MUSTER_OK) << muster_last_error();
      if (rank == 3) {
        EXPECT_EQ(values[0], 11);
        EXPECT_EQ(values[1], 10);
      }
    }
  });
}

// Goal:   all nodes get a failure of one node, with its cause, and the group works again afterwards.
TEST_P(BetweenNodes, HearOfFailuresOnOtherNodes) {
  start({0, 0, 1, 1}, "dp_replicate=2,tp=2");
  with_all([&](int rank, muster_session* session) {
    const muster_group world = group_of(session, "world");
    const AllReduce reduce(session, 64, world);
    const auto works = [&] {
      std::fill_n(reduce.source, 64, 1.0f);
      ASSERT_EQ(muster_plan_run(session, reduce.plan, 0), MUSTER_OK)
          << "rank " << rank << muster_last_error();
      ASSERT_EQ(reduce.target[63], 4);
    };
    works();
    // Ranks that mean another operation.
    const AllReduce other(session, rank == 2 ? 32 : 64, world);
    EXPECT_EQ(muster_plan_run(session, other.plan, 0), MUSTER_ERR_MISMATCH) << muster_last_error();
    EXPECT_THAT(muster_last_error(), HasSubstr("count"));
    works();
    // A rank that does not come before the deadline.
    if (rank != 3) {
      EXPECT_EQ(muster_plan_run(session, reduce.plan, 200'000'000), MUSTER_ERR_TIMEOUT)
          << muster_last_error();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      EXPECT_EQ(muster_plan_run(session, reduce.plan, 0), MUSTER_ERR_TIMEOUT) << muster_last_error();
    }
    works();
    // A rank that gives up.
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(muster_group_abort(session, world), MUSTER_OK);
    }
    EXPECT_EQ(muster_plan_run(session, reduce.plan, 0), MUSTER_ERR_ABORTED) << muster_last_error();
    EXPECT_THAT(muster_last_error(), HasSubstr("rank 1"));
    works();
  });
}

// Goal:   the verdict of a deadline names the rank that did not come, wherever it is heard.
// Method: rank 3 does not come: to a group of both nodes, of which its node has another member that waits; to
//         one in which it is the only member of its node; to a message.
TEST_P(BetweenNodes, NameTheRankThatDoesNotComeBeforeADeadline) {
  constexpr std::int64_t kDeadlineNs = 1'000'000'000;
  start({0, 0, 1, 1}, "dp_replicate=2,tp=2");
  std::atomic<int> heard{0};
  with_all([&](int rank, muster_session* session) {
    const auto expect_named = [&](muster_status_t status) {
      EXPECT_EQ(status, MUSTER_ERR_TIMEOUT) << muster_last_error();
      EXPECT_THAT(muster_last_error(), HasSubstr("rank 3")) << "as rank " << rank << " hears it";
      muster_failure failure = MUSTER_FAILURE_INIT;
      ASSERT_EQ(muster_last_failure(session, &failure), MUSTER_OK);
      EXPECT_EQ(failure.culprit_rank, 3) << "as rank " << rank << " hears it: " << failure.text;
    };
    const muster_group all = group_of(session, "world"), both = group_of(session, "dp_replicate");
    const AllReduce of_all(session, 64, all), of_two(session, 64, both);
    if (rank != 3) expect_named(muster_plan_run(session, of_all.plan, kDeadlineNs));
    if (rank == 1) expect_named(muster_plan_run(session, of_two.plan, kDeadlineNs));
    if (rank == 0) {
      muster_buffer buffer = 0;
      void* address = nullptr;
      ASSERT_EQ(muster_buffer_alloc(session, 64 * sizeof(float), &buffer, &address), MUSTER_OK);
      muster_collective message = MUSTER_COLLECTIVE_INIT;
      message.op = MUSTER_SEND;
      message.group = all;
      message.dtype = MUSTER_F32;
      message.peer = 3;
      message.count = 64;
      message.source = {buffer, 0};
      expect_named(muster_run(session, &message, kDeadlineNs));
    }
    ++heard;
    while (rank == 3 && heard < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
}

// Goal:   a rank that leaves while the others still work is lost to those on other nodes too, by its number.
TEST_P(BetweenNodes, LoseARankOfAnotherNode) {
  start({0, 0, 1, 1}, "dp_replicate=2,tp=2");
  std::vector<std::thread> threads;
  std::atomic<int> told{0};
  for (int rank = 0; rank < world(); ++rank)
    threads.emplace_back([&, rank] {
      const auto options = nodes_[node_of_[static_cast<std::size_t>(rank)]]->rank("train", rank, world());
      muster_session* session = nullptr;
      ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
      {
        const AllReduce reduce(session, 64, group_of(session, "world"));
        EXPECT_EQ(muster_plan_run(session, reduce.plan, 0), MUSTER_OK) << muster_last_error();
        if (rank == 2) {
          EXPECT_EQ(muster_close(session), MUSTER_OK);
          return;
        }
        const Instant begin = clock_.now();
        EXPECT_EQ(muster_plan_run(session, reduce.plan, 0), MUSTER_ERR_PEER_LOST) << muster_last_error();
        EXPECT_THAT(muster_last_error(), HasSubstr("rank 2"));
        EXPECT_LT(clock_.now() - begin, std::chrono::seconds(10));
      }
      ++told;
      while (told < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(muster_close(session), MUSTER_OK);
    });
  for (std::thread& thread : threads) thread.join();
}

// Goal:   a rank that attaches after another has closed its session gets no report of that, on any node.
// Method: the engine of the rank that leaves first is stopped, so the others hear of it late.
TEST_P(BetweenNodes, AttachWithoutHearingOfThoseWhoHaveLeft) {
  start({0, 1}, "dp_replicate=2");
  muster_session *first = nullptr, *second = nullptr;
  const auto works = [](muster_session* session) {
    const AllReduce reduce(session, 64);
    std::fill_n(reduce.source, 64, 1.0f);
    EXPECT_EQ(muster_plan_run(session, reduce.plan, 0), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(reduce.target[63], 2);
  };
  const auto open_and_work = [&](std::size_t node, muster_session** session) {
    const auto options = nodes_[node]->rank("train", static_cast<int>(node), 2);
    ASSERT_EQ(muster_open(&options, session), MUSTER_OK) << muster_last_error();
    works(*session);
  };
  std::thread other([&] { open_and_work(1, &second); });
  open_and_work(0, &first);
  other.join();
  const auto engine = job(0).at("engine_pid").get<std::int32_t>();
  ASSERT_EQ(kill(engine, SIGSTOP), 0);
  static_cast<void>(muster_close(first));  // nobody answers its goodbye
  EXPECT_EQ(muster_close(second), MUSTER_OK);
  other = std::thread([&] { open_and_work(1, &second); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ASSERT_EQ(kill(engine, SIGCONT), 0);
  open_and_work(0, &first);
  other.join();
  for (muster_session* session : {first, second}) EXPECT_EQ(muster_close(session), MUSTER_OK);
}

// Goal:   a node whose engine dies is lost to the groups that have members there, and to no other. It comes
//         back, and the groups are whole again, for sessions that have stayed.
TEST_P(BetweenNodes, TakeBackANodeWhoseEngineDied) {
  start({0, 0, 1, 1, 2, 2}, "dp_replicate=3,tp=2");
  const auto engine = job(1).at("engine_pid").get<std::int32_t>();
  std::atomic<int> waits{0}, heard{0}, back{0};
  const auto rank_of = [this](int rank) {
    const auto options = nodes_[node_of_[static_cast<std::size_t>(rank)]]->rank("train", rank, world());
    muster_session* session = nullptr;
    EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
    return session;
  };
  const auto adds = [&](int rank, muster_session* session, const char* dim) {
    const muster_group group = group_of(session, dim);
    const AllReduce reduce(session, 100, group);
    std::fill_n(reduce.source, 100, static_cast<float>(rank + 1));
    EXPECT_EQ(muster_plan_run(session, reduce.plan, 0), MUSTER_OK) << rank << dim << muster_last_error();
    EXPECT_EQ(reduce.target[99], expected_sum(session, group)) << rank << dim;
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world(); ++rank)
    threads.emplace_back([&, rank] {
      const bool is_lost = node_of_[static_cast<std::size_t>(rank)] == 1;
      muster_session* session = rank_of(rank);
      adds(rank, session, "world");
      if (is_lost) {
        ++waits;
        if (rank == 2) {  // the other one does not come
          const AllReduce reduce(session, 64, group_of(session, "world"));
          EXPECT_NE(muster_plan_run(session, reduce.plan, 0), MUSTER_OK) << "its engine dies";
        }
        while (heard < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        static_cast<void>(muster_close(session));
        EXPECT_TRUE(until([&] {  // the daemon may not know yet that the engine is dead
          const Json there = job(1);
          return !there.is_null() && there.at("state") == "ready" && there.at("engine_pid") != engine &&
                 waiting(0).empty() && waiting(2).empty();
        })) << waiting(0)
            << waiting(2);
        session = rank_of(rank);
        ++back;
      } else {
        const AllReduce reduce(session, 64, group_of(session, "world"));
        const Instant begin = clock_.now();
        EXPECT_EQ(muster_plan_run(session, reduce.plan, 0), MUSTER_ERR_PEER_LOST) << muster_last_error();
        EXPECT_THAT(muster_last_error(), HasSubstr("node1"));
        EXPECT_LT(clock_.now() - begin, std::chrono::seconds(10));
        adds(rank, session, "tp");  // within its node
        ++heard;
        while (back < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      for (const char* dim : {"world", "dp_replicate", "tp"}) adds(rank, session, dim);
      ++waits;
      while (waits < world() + 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(muster_close(session), MUSTER_OK);
    });
  while (waits < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(kill(engine, SIGKILL), 0);
  for (std::thread& thread : threads) thread.join();
}

// Goal:   a rank that leaves after an operation does not break it for the others: all had come to it.
// Method: ranks that close as soon as their part is done, each time in a new job.
TEST_P(BetweenNodes, LeaveAfterTheLastOperation) {
  for (int round = 0; round < 4; ++round) {
    nodes_.clear();
    roster_ = {};
    start({0, 0, 1, 1}, "dp_replicate=2,tp=2");
    std::vector<std::thread> threads;
    std::atomic<int> opened{0};
    for (int rank = 0; rank < world(); ++rank)
      threads.emplace_back([&, rank] {
        const auto options = nodes_[node_of_[static_cast<std::size_t>(rank)]]->rank("train", rank, world());
        muster_session* session = nullptr;
        ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
        {
          const AllReduce reduce(session, 64, group_of(session, "world"));
          ++opened;
          while (opened < world()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          for (int i = 0; i < 20; ++i)
            ASSERT_EQ(muster_plan_run(session, reduce.plan, 0), MUSTER_OK) << i << muster_last_error();
        }
        EXPECT_EQ(muster_close(session), MUSTER_OK);
      });
    for (std::thread& thread : threads) thread.join();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace muster::supervisor
