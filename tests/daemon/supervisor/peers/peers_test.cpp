#include "daemon/supervisor/peers/peers.hpp"

#include "api/base/log.hpp"
#include "api/shm/control.hpp"
#include "tests/daemon/supervisor/cluster_fixture.hpp"
#include "tests/daemon/supervisor/lone_peers.hpp"
#include "tests/support/manual_clock.hpp"

#include <csignal>
#include <cstdint>
#include <string_view>

#include <netinet/in.h>
#include <sys/socket.h>

#include <gmock/gmock.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("node1"), HasSubstr("by user")));
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
      {expired, "its clock agrees with ours: write a new certificate"},
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

// Goal:   daemons whose clocks differ report so on both sides, and by how much. Once the clock is right, they
//         know each other.
TEST_F(ClusterTest, SaysByHowMuchClocksDiffer) {
  const auto why = [&](std::size_t n) { return peer(n, 1 - n).at("why").get<std::string>(); };
  const struct {
    std::chrono::seconds off[2];
    const char* said[2];  // by each of the other's clock
  } cases[] = {{{0h, -2h}, {"2h 0m behind ours", "2h 0m ahead of ours"}},
               {{-2h, 0h}, {"2h 0m ahead of ours", "2h 0m behind ours"}},
               {{0h, 58 * 24h}, {"58d 0h ahead of ours", "58d 0h behind ours"}},
               {{-3h, 40 * 24h}, {"40d 3h ahead of ours", "40d 3h behind ours"}}};
  for (const auto& wrong : cases) {
    nodes_.clear();
    roster_ = {};
    prepare(2);
    for (const std::size_t n : {0u, 1u})
      nodes_[n]->options.wall_time = [off = wrong.off[n]] { return control::test::kToday + off; };
    start_all();
    for (const std::size_t n : {0u, 1u}) {
      ASSERT_TRUE(until([&] { return why(n).find("clock, as it says") != std::string::npos; })) << why(n);
      EXPECT_EQ(peer(n, 1 - n).at("state"), "refused");
      EXPECT_THAT(why(n), AllOf(HasSubstr("the certificate of "), HasSubstr(" by the clock of node "),
                                HasSubstr(wrong.said[n]), HasSubstr("set the clock that is wrong")));
      EXPECT_EQ(job_at(n), "");
    }
  }
}

// Clocks may differ by less than the dates allow: the nodes work, and the log says what will come of it.
TEST_F(ClusterTest, WarnsOfClocksThatDifferAndDoNoHarmYet) {
  prepare(2);
  nodes_[1]->options.wall_time = [] { return control::test::kToday + 20 * 24h; };
  log::configure(log::Level::kWarning, log::Format::kText);
  ::testing::internal::CaptureStderr();
  start_all();
  const bool ready = until_ready();
  log::configure(log::Level::kOff, log::Format::kText);
  const std::string logged = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(ready);
  EXPECT_THAT(logged, AllOf(HasSubstr("node node1: its clock, as it says, is 20d 0h ahead of ours"),
                            HasSubstr("node node0: its clock, as it says, is 20d 0h behind ours")));
}

TEST_F(ClusterTest, WorksWithASecretAndInPlainText) {
  for (const Roster::Trust trust : {Roster::Trust::kSecret, Roster::Trust::kPlainText}) {
    nodes_.clear();
    roster_ = {};
    prepare(2);
    for (std::size_t n = 0; n < 2; ++n) {
      Roster& roster = nodes_[n]->options.roster;
      roster.trust = trust;
      roster.load_credentials = [this, n]() -> Result<Roster::OwnCredentials> {
        MUSTER_ASSIGN_OR_RETURN(auto made,
                                control::Credentials::of_secret(lab_.cluster, name(n), std::string(40, 's')));
        return Roster::OwnCredentials{std::make_shared<const control::Credentials>(std::move(made)), {}};
      };
    }
    start_all();
    ASSERT_TRUE(until_ready()) << trust_text(trust);
    EXPECT_EQ(status(0).at("cluster").at("trust"), trust_text(trust));
  }
}

// Goal:   unknown clients do not keep members out, whatever they send or do not send.
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

// Nodes without a supervisor. Time moves when the test says so, and log lines are the test's.
class LonePeers : public ::testing::Test {
 protected:
  bool until(const std::function<bool()>& done) {
    const SteadyClock clock;
    for (const Instant end = clock.now() + 20s; clock.now() < end; loop_.turn())
      if (done()) return true;
    return false;
  }
  void let_run() {
    for (int i = 0; i < 50; ++i) {
      for (int turn = 0; turn < 100 && loop_.turn(); ++turn) {
      }
      std::this_thread::sleep_for(1ms);
    }
  }
  // The warnings meanwhile.
  static std::string logged(const std::function<void()>& act) {
    log::configure(log::Level::kWarning, log::Format::kText);
    ::testing::internal::CaptureStderr();
    act();
    log::configure(log::Level::kOff, log::Format::kText);
    return ::testing::internal::GetCapturedStderr();
  }
  // A connection from that loopback address, by which no frame comes. Until it is refused.
  void come_from(std::uint32_t host, const LonePeer& node) {
    const shm::Descriptor stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK + host);
    ASSERT_EQ(bind(stranger.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
    const auto there = *control::numeric(roster_.find(node.peers.here())->address);
    ASSERT_EQ(connect(stranger.get(), reinterpret_cast<const sockaddr*>(&there.address), there.bytes), 0);
    const std::string_view text = "GET / HTTP/1.1\r\n\r\n";
    ASSERT_EQ(send(stranger.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
    shutdown(stranger.get(), SHUT_WR);
    ASSERT_TRUE(until([&] {
      const Json refusals = node.peers.report().at("refusals");
      return !refusals.empty() &&
             refusals.back().at("from").get<std::string>().starts_with(text_of(host) + ":");
    })) << text_of(host);
  }
  static std::string text_of(std::uint32_t host) {
    const std::uint32_t address = INADDR_LOOPBACK + host;
    return fmt::format("{}.{}.{}.{}", address >> 24, address >> 16 & 255, address >> 8 & 255, address & 255);
  }
  // So many jobs of that many bytes each, on another node.
  static Json jobs_of(std::size_t count, std::size_t name_bytes) {
    Json jobs = Json::array();
    for (std::size_t i = 0; i < count; ++i)
      jobs.push_back({{"job", fmt::format("{:x>{}}", i, name_bytes)}, {"epoch", UINT64_MAX}});
    return jobs;
  }

  control::Loop loop_;
  muster::test::ManualClock clock_;
  Roster roster_ = plain_roster(2);
};

// Goal:   a crowd of unknown clients fills neither memory nor the log, and hides no member from the log.
//         Later clients are reported again.
TEST_F(LonePeers, AreToldOfAmongACrowdOfStrangers) {
  constexpr std::uint32_t kCrowd = 300, kFirst = 256;
  LonePeer here(loop_, clock_, roster_, 0);
  auto other = std::make_unique<LonePeer>(loop_, clock_, roster_, 1);
  other->open();
  here.open();
  ASSERT_TRUE(until([&] { return here.up.contains("node1"); }));
  for (std::uint32_t i = 0; i < kCrowd; ++i) ASSERT_NO_FATAL_FAILURE(come_from(kFirst + i, here));
  const std::uint32_t next = kFirst + kCrowd;
  EXPECT_EQ(logged([&] { come_from(next, here); }), "");
  other = nullptr;
  const std::string lost = logged([&] { until([&] { return !here.up.contains("node1"); }); });
  EXPECT_THAT(lost, HasSubstr("node node1: the other side has closed the connection"));
  clock_.advance(Peers::kLogAgain);
  EXPECT_THAT(logged([&] { come_from(next + 1, here); }),
              HasSubstr(fmt::format("connection from {}: a frame of ", text_of(next + 1))));
}

TEST_F(LonePeers, SayThatNoInterfaceHasTheirAddress) {
  roster_.members[0].address.host = "203.0.113.77";
  LonePeer here(loop_, clock_, roster_, 0);
  const Status opened = here.peers.open();
  EXPECT_EQ(opened.code(), Code::kNotFound);
  EXPECT_THAT(opened.message(), AllOf(HasSubstr("203.0.113.77"), HasSubstr("nodes[].address")));
}

// Goal:   a greeting has room for all jobs that a node may have, and for a configuration that is compared
//         line by line.
TEST_F(LonePeers, GreetWithAllTheirJobs) {
  constexpr std::size_t kJobsMax = 1024;  // limits.jobs_max at most
  roster_.cluster.assign(control::kNodeNameBytesMax, 'c');
  for (Roster::Member& member : roster_.members)
    member.name.insert(0, control::kNodeNameBytesMax - member.name.size(), 'n');
  roster_.configuration.assign(Membership::kLinesBytesMax / 16, std::string(16, 'l'));
  LonePeer here(loop_, clock_, roster_, 0), other(loop_, clock_, roster_, 1);
  here.jobs = other.jobs = jobs_of(kJobsMax, shm::kNameBytes - 1);
  other.open();
  here.open();
  ASSERT_TRUE(until([&] { return !here.up.empty() && !other.up.empty(); })) << here.peers.report();
  EXPECT_EQ(here.up.begin()->second, other.jobs);
  EXPECT_EQ(other.up.begin()->second, here.jobs);
}

// Goal:   both sides say why a greeting that is too large is not read, and the next one is heard.
TEST_F(LonePeers, SayThatAGreetingIsTooLarge) {
  LonePeer here(loop_, clock_, roster_, 0), other(loop_, clock_, roster_, 1);
  other.jobs = jobs_of(2, control::kGreetingBytesMax / 2);
  other.open();
  here.open();
  const std::string limit = fmt::format("bytes; {} are allowed here", control::kGreetingBytesMax);
  ASSERT_TRUE(until([&] { return other.said_of("node0").starts_with("refused"); })) << other.said_of("node0");
  EXPECT_THAT(other.said_of("node0"),
              AllOf(HasSubstr("it refuses node node1: a frame of "), HasSubstr(limit)));
  ASSERT_TRUE(until([&] { return here.said_of("node1").starts_with("away"); })) << here.said_of("node1");
  EXPECT_THAT(here.said_of("node1"), AllOf(HasSubstr("a frame of "), HasSubstr(limit)));
  EXPECT_TRUE(here.up.empty() && other.up.empty());
  other.jobs = jobs_of(1, 60);
  clock_.advance(Membership::kLastRetry);
  ASSERT_TRUE(until([&] { return here.up.contains("node1"); })) << here.said_of("node1");
  EXPECT_EQ(here.up.at("node1"), other.jobs);
}

// Goal:   a certificate that ends soon is told of when it is read, and then not before another day. One that
//         is good for longer is not told of.
TEST_F(LonePeers, AreRemindedOfACertificateThatEndsSoon) {
  control::WallTime now = control::test::kToday;
  const control::WallTime end = now + std::chrono::days(30);
  const control::Validity validity{now - 1h, end};
  Options options = LonePeer::options_of(roster_, 0);
  options.wall_time = [&] { return now; };
  options.roster.trust = Roster::Trust::kCertificates;
  options.roster.load_credentials = [validity] { return Roster::OwnCredentials{nullptr, validity}; };
  Peers peers(loop_, clock_, options,
              {.jobs = [] { return Json::array(); }, .up = {}, .down = {}, .heard = {}});
  const auto said = [&](auto read) {
    return logged([&] {
      const Status done = read();
      EXPECT_TRUE(done.ok()) << done.text();
      let_run();
    });
  };
  const auto again = [&] { return peers.reload(); };
  EXPECT_THAT(said([&] { return peers.open(); }), Not(HasSubstr("certificate")));
  now = end - Peers::kWarnedBefore;
  EXPECT_THAT(said(again), Not(HasSubstr("certificate")));
  now += 1s;
  const std::string soon = said(again);
  EXPECT_THAT(soon, HasSubstr("the certificate of node node0 is good for 167 hours more"));
  EXPECT_EQ(soon.find("certificate of"), soon.rfind("certificate of")) << "once: " << soon;
  now = end + 1s;
  const std::string over = said(again);
  EXPECT_THAT(over, AllOf(HasSubstr("the certificate of node node0 was valid until"),
                          HasSubstr("less than 1m ago by the clock of this node; set this clock")));
  EXPECT_EQ(over.find("certificate of"), over.rfind("certificate of")) << "once: " << over;
  EXPECT_THAT(peers.report().at("certificate_fault").get<std::string>(), HasSubstr("was valid until"));
  now = validity.from - 2h;
  EXPECT_THAT(said(again), HasSubstr("which is in 2h 0m by the clock of this node; set this clock"));
  now = validity.from;
  EXPECT_EQ(said(again), "");
  EXPECT_FALSE(peers.report().contains("certificate_fault"));
}

}  // namespace
}  // namespace muster::supervisor
