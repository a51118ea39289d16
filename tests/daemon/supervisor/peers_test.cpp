#include "daemon/supervisor/peers.hpp"

#include "tests/daemon/supervisor/cluster_fixture.hpp"

#include <csignal>

#include <sys/socket.h>

#include <gmock/gmock.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(ClusterTest, MakesAJobOnAllItsNodesOnceTheyAreUp) {
  prepare(3);
  nodes_[0]->start();
  nodes_[2]->start();
  ASSERT_TRUE(until([this] { return peer(0, 2).at("state") == "up" && peer(2, 0).at("state") == "up"; }));
  EXPECT_EQ(peer(0, 1).at("state"), "away");
  EXPECT_THAT(peer(0, 1).at("why").get<std::string>(), HasSubstr("Connection refused"));
  EXPECT_EQ(job_at(0), "");
  EXPECT_THAT(status(0).at("cluster").at("waiting").at(0).at("why").get<std::string>(),
              AllOf(HasSubstr("job train waits"), HasSubstr("node1")));
  muster_session* session = nullptr;
  EXPECT_EQ(open(0, 0, &session), MUSTER_ERR_BUSY);
  EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("job train waits"), HasSubstr("node1 is away")));
  nodes_[1]->start();
  ASSERT_TRUE(until_ready());
  EXPECT_TRUE(status(0).at("cluster").at("waiting").empty());
  EXPECT_EQ(status(1).at("jobs").at(0).at("nodes"), Json({"node0", "node1", "node2"}));
  expect_works();
}

TEST_F(ClusterTest, HasAJobOnNoneOfTheNodesIfOneCannotHaveIt) {
  prepare(2);
  nodes_[1]->options.ranks_per_job_max = 1;
  start_all();
  const auto why = [this](std::size_t n) {
    const Json waiting = status(n).at("cluster").at("waiting");
    return waiting.empty() ? std::string() : waiting.at(0).at("why").get<std::string>();
  };
  ASSERT_TRUE(until([&] { return why(0).find("limits.ranks_per_job_max") != std::string::npos; })) << why(0);
  EXPECT_THAT(why(0), HasSubstr("node node1: "));
  EXPECT_TRUE(until([&] { return job_at(0).empty() && job_at(1).empty(); }));
  EXPECT_THAT(why(1), HasSubstr("limits.ranks_per_job_max"));
}

TEST_F(ClusterTest, EndsAJobOnAllNodesWhereItIsEndedOnOne) {
  prepare(3);
  start_all();
  ASSERT_TRUE(until_ready());
  muster_session* session = nullptr;
  ASSERT_EQ(open(2, 4, &session), MUSTER_OK) << muster_last_error();
  ASSERT_TRUE(ask(1, {{"command", "job_destroy"}, {"job", "train"}, {"by", "muster"}}));
  ASSERT_TRUE(until([this] { return job_at(0).empty() && job_at(1).empty() && job_at(2).empty(); }));
  EXPECT_NE(muster_close(session), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(open(0, 0, &session), MUSTER_ERR_JOB_ENDED) << "it is not made again, nor by its ranks";
  EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("node1"), HasSubstr("by uid")));
}

// Goal:   a job outlives the loss of any of its nodes, its leader too. Only the loss of all ends it.
TEST_F(ClusterTest, KeepsAJobWhoseNodeComesBackWithoutItsPart) {
  prepare(3);
  start_all();
  ASSERT_TRUE(until_ready());
  const std::uint64_t epoch = epoch_at(0);
  for (const std::size_t lost : {1u, 0u, 2u}) {
    const std::size_t kept = (lost + 1) % 3;
    const auto engine = job(kept).at("engine_pid");
    lose(lost);
    EXPECT_TRUE(until([&] { return peer(kept, lost).at("state") == "away"; }));
    nodes_[lost]->start();
    ASSERT_TRUE(until_ready()) << waiting(lost);
    ASSERT_TRUE(until([&] { return waiting(kept).empty(); })) << waiting(kept);
    EXPECT_EQ(epoch_at(lost), epoch);
    EXPECT_EQ(job(kept).at("engine_pid"), engine);
    expect_works();
  }
  for (const std::size_t n : {0u, 1u, 2u}) lose(n);
  start_all();
  ASSERT_TRUE(until_ready());
  expect_works();
}

// Goal:   an engine that dies takes its own part with it, and no other. The part begins again.
TEST_F(ClusterTest, BeginsAPartAgainWhoseEngineDied) {
  prepare(3);
  start_all();
  ASSERT_TRUE(until_ready());
  const std::uint64_t epoch = epoch_at(0);
  for (const std::size_t lost : {0u, 1u, 2u}) {
    const auto pid_of = [this](std::size_t n) {
      const Json there = job(n);
      return there.is_null() ? 0 : there.at("engine_pid").get<std::int32_t>();
    };
    const std::int32_t died = pid_of(lost), kept = pid_of((lost + 1) % 3);
    ASSERT_EQ(kill(died, SIGKILL), 0);
    ASSERT_TRUE(until([&] { return pid_of(lost) != died && job_at(lost) == "ready"; })) << waiting(lost);
    for (std::size_t n = 0; n < 3; ++n)
      EXPECT_TRUE(until([&] { return waiting(n).empty(); })) << n << ": " << waiting(n);
    EXPECT_EQ(epoch_at(lost), epoch);
    EXPECT_EQ(pid_of((lost + 1) % 3), kept);
    expect_works();
  }
}

// Goal:   a node that was away when the job was ended hears of it when it comes back.
TEST_F(ClusterTest, EndsThePartOfANodeThatWasAway) {
  prepare(3);
  start_all();
  ASSERT_TRUE(until_ready());
  lose(1);
  EXPECT_TRUE(until([this] { return peer(0, 1).at("state") == "away" && peer(2, 1).at("state") == "away"; }));
  ASSERT_TRUE(ask(0, {{"command", "job_destroy"}, {"job", "train"}, {"by", "muster"}}));
  ASSERT_TRUE(until([this] { return job_at(0).empty() && job_at(2).empty(); }));
  nodes_[1]->start();
  ASSERT_TRUE(until([this] { return peer(0, 1).at("state") == "up" && peer(2, 1).at("state") == "up"; }));
  EXPECT_EQ(job_at(1), "");
}

// Goal:   a node that is gone is called lost, by all others, and they stay up.
TEST_F(ClusterTest, NamesANodeThatIsLost) {
  prepare(3);
  start_all();
  ASSERT_TRUE(until_ready());
  for (const auto& [n, other] : {std::pair{0u, 1u}, {0u, 2u}, {1u, 0u}, {1u, 2u}, {2u, 0u}, {2u, 1u}})
    EXPECT_TRUE(until([&, n = n, other = other] { return peer(n, other).contains("heard_ns"); }))
        << n << " of " << other;
  nodes_[1] = nullptr;
  for (const std::size_t n : {0u, 2u}) {
    EXPECT_TRUE(until([&] {
      return peer(n, 1).at("why").get<std::string>().find("nothing was heard of it") != std::string::npos;
    })) << peer(n, 1).dump();
    EXPECT_NE(peer(n, 1).at("state"), "up");
    EXPECT_EQ(peer(n, 2 - n).at("state"), "up");
  }
}

TEST_F(ClusterTest, SaysOnBothSidesWhatDiffers) {
  prepare(2);
  nodes_[1]->options.roster.configuration.push_back("job more");
  start_all();
  for (const std::size_t n : {0u, 1u}) {
    ASSERT_TRUE(until([&] { return peer(n, 1 - n).at("state") == "refused"; })) << n;
    EXPECT_THAT(peer(n, 1 - n).at("why").get<std::string>(),
                AllOf(HasSubstr("'job more' on node node1"), HasSubstr("nothing on node node0")));
  }
}

TEST_F(ClusterTest, TakesNoNodeWhoseCertificateIsNotGood) {
  prepare(2);
  const control::test::Lab other("lab-a");
  const auto expired = lab_.certified("node1", control::test::kToday - control::kNodeLife - 1h);
  const struct {
    control::CertifiedKey own;
    const char* said;
  } cases[] = {
      {*control::certify_node(other.authority, "lab-a", "node1", control::test::kToday, control::kNodeLife),
       "certificate"},
      {expired, "expired"},
      {lab_.certified("node7"), "node7"}};
  for (const auto& wrong : cases) {
    trust(1, wrong.own);
    start_all();
    ASSERT_TRUE(until([&] { return peer(0, 1).at("state") == "refused"; }));
    EXPECT_THAT(peer(0, 1).at("why").get<std::string>(), HasSubstr(wrong.said));
    // The other side hears of it too: its peer has no name that could be believed.
    EXPECT_TRUE(until([&] { return !status(1).at("cluster").at("refusals").empty(); })) << wrong.said;
    EXPECT_EQ(job_at(0), "");
    nodes_.clear();
    for (std::size_t n = 0; n < 2; ++n) {
      nodes_.push_back(std::make_unique<test::Node>());
      configure(n);
    }
  }
  start_all();
  EXPECT_TRUE(until_ready());
}

TEST_F(ClusterTest, WorksWithASecretAndInPlainText) {
  for (const Trust trust : {Trust::kSecret, Trust::kPlainText}) {
    nodes_.clear();
    roster_ = {};
    prepare(2);
    for (std::size_t n = 0; n < 2; ++n) {
      Roster& roster = nodes_[n]->options.roster;
      roster.trust = trust;
      roster.load_credentials = [this, n]() -> Result<OwnCredentials> {
        MUSTER_ASSIGN_OR_RETURN(auto made,
                                control::Credentials::of_secret(lab_.cluster, name(n), std::string(40, 's')));
        return OwnCredentials{std::make_shared<const control::Credentials>(std::move(made)), {}};
      };
    }
    start_all();
    ASSERT_TRUE(until_ready()) << trust_text(trust);
    EXPECT_EQ(status(0).at("cluster").at("trust"), trust_text(trust));
  }
}

// Goal:   strangers do not keep members out, whatever they send or do not send.
TEST_F(ClusterTest, LetsMembersPastStrangers) {
  prepare(2);
  nodes_[1]->start();
  control::Loop loop;
  std::vector<shm::Descriptor> silent;
  std::vector<std::unique_ptr<control::TcpDial>> dials;
  const std::size_t crowd = Peers::kStrangersMax + 20;
  for (std::size_t i = 0; i < crowd; ++i)
    dials.push_back(std::make_unique<control::TcpDial>(loop, roster_.members[1].address, 20s,
                                                       [&](Result<shm::Descriptor> socket) {
                                                         ASSERT_TRUE(socket) << socket.error().text();
                                                         silent.push_back(*std::move(socket));
                                                       }));
  ASSERT_TRUE(until([&] {
    while (loop.turn()) {
    }
    return silent.size() == crowd;
  }));
  const std::string garbage(1000, '\xff');
  for (std::size_t i = 0; i < crowd; i += 2)
    send(silent[i].get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  nodes_[0]->start();
  ASSERT_TRUE(until_ready());
  EXPECT_TRUE(until([this] { return !status(1).at("cluster").at("refusals").empty(); }));
}

}  // namespace
}  // namespace muster::supervisor
