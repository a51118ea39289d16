// A cluster refuses peers, and its job does not notice.
#include "daemon/supervisor/peers/peers.hpp"

#include "tests/daemon/supervisor/cluster_fixture.hpp"

#include <array>
#include <atomic>
#include <optional>
#include <string_view>

#include <gmock/gmock.h>
#include <sys/socket.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr int kWorkers = 4;  // job "train": two ranks on node0, two on node1
constexpr std::uint32_t kNodeOf[] = {0, 0, 1, 1};
constexpr std::size_t kGuest = 2;   // node2, which has no rank
constexpr std::uint64_t kMore = 5;  // operations of each rank that are seen after each refusal

// Nodes 0 and 1 work all the time. Node 2 comes in many ways.
class RefusedPeers : public ClusterTest {
 protected:
  RefusedPeers() {
    prepare(3);
    for (const std::size_t n : {0u, 1u}) {
      control::JobSpec& job = nodes_[n]->options.jobs.front();
      job.mesh = "dp_replicate=2,tp=2";
      job.world = *World::build({name(0), name(1)}, kNodeOf, NodeIndex(static_cast<std::uint32_t>(n)));
      nodes_[n]->start();
    }
  }
  void SetUp() override {
    ASSERT_TRUE(until([this] { return job_at(0) == "ready" && job_at(1) == "ready"; })) << waiting(0);
    engine_ = job(0).at("engine_pid");
    for (int rank = 0; rank < kWorkers; ++rank) ranks_.emplace_back([this, rank] { work(rank); });
    expect_goes_on("at first");
  }
  void TearDown() override {
    stop_ = true;
    for (std::thread& rank : ranks_) rank.join();
  }

  // Ranks stop after the same operation: the first whose sum says that one of them was told.
  void work(int rank) {
    muster_session* session = nullptr;
    const auto options = nodes_[static_cast<std::size_t>(rank / 2)]->rank("train", rank, kWorkers);
    ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
    muster_group group = 0;
    ASSERT_EQ(muster_mesh_group(session, "tp", &group), MUSTER_OK) << muster_last_error();
    const AllReduce reduce(session, 1, group, AllReduce::Place::kApart);
    do {
      *reduce.source = stop_ ? 1 : 0;
      ASSERT_EQ(reduce.start_and_wait(MUSTER_LANE_ALLREDUCE), MUSTER_OK) << muster_last_error();
      ++done_[static_cast<std::size_t>(rank)];
      std::this_thread::sleep_for(1ms);
    } while (*reduce.target == 0);
    EXPECT_EQ(muster_close(session), MUSTER_OK);
  }
  void expect_goes_on(const char* when) const {
    for (const auto& done : done_) {
      const std::uint64_t before = done;
      EXPECT_TRUE(until([&] { return done >= before + kMore; })) << when;
    }
    EXPECT_EQ(job(0).at("engine_pid"), engine_) << when;
  }

  // Node 2 as it should be, but that it dials the others too: each is refused in both directions.
  supervisor::Options& renew_guest() {
    nodes_[kGuest] = nullptr;
    nodes_[kGuest] = std::make_unique<test::Node>();
    configure(kGuest);
    Options& options = nodes_[kGuest]->options;
    options.jobs.clear();
    std::rotate(options.roster.members.begin(), options.roster.members.begin() + kGuest,
                options.roster.members.end());
    return options;
  }
  // All that node `n` says of who is there and who was turned away.
  std::string said_by(std::size_t n) const {
    const Json cluster = status(n).at("cluster");
    return cluster.at("peers").dump() + cluster.at("refusals").dump();
  }
  // Starts node 2. Nodes 0 and 1 refuse it and say why; so does node 2 of them.
  void expect_refused(const char* here, const char* there) {
    nodes_[kGuest]->start();
    for (const std::size_t n : {0u, 1u}) {
      EXPECT_TRUE(until([&] {
        return peer(n, kGuest).at("state") == "refused" && said_by(n).find(here) != std::string::npos;
      })) << here
          << ": " << said_by(n);
      EXPECT_TRUE(until([&] {
        const Json of_it = peer(kGuest, n);
        return of_it.at("state") == "refused" &&
               of_it.at("why").get<std::string>().find(there) != std::string::npos;
      })) << there
          << ": " << said_by(kGuest);
      EXPECT_EQ(peer(n, 1 - n).at("state"), "up");
    }
    expect_goes_on(here);
  }

  std::atomic<bool> stop_{false};
  std::array<std::atomic<std::uint64_t>, kWorkers> done_{};
  std::vector<std::thread> ranks_;
  Json engine_;
};

TEST_F(RefusedPeers, HearWhyAndDisturbNoJob) {
  const control::test::Lab other("lab-a");
  const auto by_other =
      *control::certify_node(other.authority, "lab-a", "node2", control::test::kToday, control::kNodeLife);
  renew_guest();
  trust(kGuest, by_other);
  expect_refused("its certificate is refused: unable to get local issuer",
                 "it refuses the certificate of node node2: unknown CA");
  renew_guest();
  trust(kGuest, lab_.certified("node2", control::test::kToday - control::kNodeLife - 1h));
  expect_refused("the certificate of node node2 was valid until",
                 "it refuses node node2: the certificate of node node2 was valid until");
  renew_guest().roster.cluster = "lab-b";
  trust(kGuest,
        *control::certify_node(lab_.authority, "lab-b", "node2", control::test::kToday, control::kNodeLife));
  expect_refused("its certificate names spiffe://lab-b/node/node2", "its certificate names spiffe://lab-a/");
  renew_guest();
  trust(kGuest, lab_.certified("node7"));
  expect_refused("it calls itself node2, and has proved that it is node7",
                 "it refuses node node2: it calls itself node2, and has proved that it is node7");
  Options& stranger = renew_guest();
  stranger.roster.here = stranger.roster.members.front().name = "node9";
  trust(kGuest, lab_.certified("node9"));
  expect_refused("node node9 is no member", "it refuses node node9: node node9 is no member");
  renew_guest().roster.configuration.push_back("job more");
  expect_refused("'job more' on node node2", "'job more' on node node2");
  // It was never more than refused: a good one is let in.
  renew_guest();
  nodes_[kGuest]->start();
  for (const std::size_t n : {0u, 1u})
    EXPECT_TRUE(until([&] { return peer(n, kGuest).at("state") == "up"; })) << said_by(n);
  expect_goes_on("with a third node");
}

// Goal:   the same of who is no node at all: it sends garbage, or so slowly that it never ends.
TEST_F(RefusedPeers, MayBeNoNodesAtAll) {
  control::Loop loop;
  const auto dial = [&] {
    std::optional<Result<shm::Descriptor>> dialled;
    control::TcpDial attempt(loop, roster_.members[0].address, 20s,
                             [&](Result<shm::Descriptor> socket) { dialled = std::move(socket); });
    EXPECT_TRUE(until([&] {
      loop.turn();
      return dialled.has_value();
    }));
    return std::move(**dialled);
  };
  const auto turned_away_with = [this](const char* why) {
    return status(0).at("cluster").at("refusals").dump().find(why) != std::string::npos;
  };
  const auto has_ended = [](const shm::Descriptor& socket) {
    std::array<char, 1000> bytes;
    ssize_t came = 1;
    while (came > 0) came = recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    return came == 0 || errno == ECONNRESET;
  };
  const shm::Descriptor slow = dial();
  const shm::Descriptor garbage = dial();
  const std::string_view text = "GET / HTTP/1.1\r\nHost: node0\r\n\r\n";
  ASSERT_EQ(send(garbage.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  EXPECT_TRUE(until([&] { return turned_away_with("TLS: http request"); })) << said_by(0);
  EXPECT_TRUE(until([&] { return has_ended(garbage); }));
  expect_goes_on("beside garbage");
  // The head of a long record, and then a byte now and then.
  send(slow.get(), "\x16\x03\x01\x3f\xff", 5, MSG_NOSIGNAL);
  EXPECT_TRUE(until([&] {
    send(slow.get(), "\x01", 1, MSG_NOSIGNAL);
    return turned_away_with("it has not said who it is within 5000 ms");
  })) << said_by(0);
  EXPECT_TRUE(until([&] { return has_ended(slow); }));
  expect_goes_on("beside one that is slow");
  EXPECT_EQ(peer(0, 1).at("state"), "up");
}

}  // namespace
}  // namespace muster::supervisor
