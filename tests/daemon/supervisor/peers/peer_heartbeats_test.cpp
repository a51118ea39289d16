// Heartbeats between Peers and a node by hand, over the loopback addresses, on one loop. Both sleep together
// if this process does, so no test depends on how fast it runs.
#include "daemon/supervisor/peers/peer_heartbeats.hpp"

#include "daemon/supervisor/peers/peers.hpp"
#include "tests/daemon/control/tls_pair.hpp"
#include "tests/support/ports.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using namespace std::chrono_literals;
using control::Json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Own = std::shared_ptr<const control::Credentials>;

// A node that does what the test wants.
//
// Owns    its sockets and its link.
// Thread  the test's.
// Bound   -
// Fails   the test.
class NodeByHand {
 public:
  NodeByHand(control::Loop& loop, const Roster& roster, Own own)
      : loop_(loop), roster_(roster), own_(std::move(own)), membership_(roster_, Instant(0)) {
    const control::TcpAddress here = roster_.find(roster_.here)->address;
    listen();
    auto socket = control::UdpSocket::open(here);
    EXPECT_TRUE(socket) << socket.error().text();
    socket_.emplace(*std::move(socket));
  }
  ~NodeByHand() {
    deafen();
    loop_.unwatch(timer_);
  }

  void listen() {
    auto listener = control::TcpListener::open(roster_.find(roster_.here)->address);
    ASSERT_TRUE(listener) << listener.error().text();
    listener_.emplace(*std::move(listener));
    guests_ = loop_.watch(listener_->descriptor().get(), [this] { on_guest(); });
  }
  // No one reaches it any more over TCP.
  void deafen() {
    loop_.unwatch(std::exchange(guests_, 0));
    listener_.reset();
    link_.reset();
  }
  // Sends heartbeats from now on.
  void live() {
    timer_ = loop_.after(Liveness::kPeriod, [this] { live(); });
    beat();
  }
  void fall_silent() { loop_.unwatch(std::exchange(timer_, 0)); }
  void beat() {
    last_ = *control::seal({.from = 1, .to = 0, .sequence = ++sequence_, .silence = silence}, keys_.own);
    repeat();
  }
  void repeat() { socket_->send(*control::numeric(roster_.members[0].address), last_); }
  void move_to(const std::string& host) {
    auto socket = control::UdpSocket::open({host, roster_.members[1].address.port});
    ASSERT_TRUE(socket) << socket.error().text();
    socket_.emplace(*std::move(socket));
  }
  // How many heartbeats for this node have come, in all.
  std::size_t heartbeats() {
    socket_->receive(1'000, [&](const control::SocketAddress&, std::span<const std::byte> bytes) {
      heartbeats_ += reader_->open(bytes).has_value() ? 1 : 0;
    });
    return heartbeats_;
  }

  Nanos silence{0};  // that its heartbeats tell of
  bool answers = false;
  std::size_t links = 0;  // that were made
  std::size_t pings = 0;

 private:
  void on_guest() {
    auto client = listener_->accept();
    if (!client) return;
    ++links;
    link_ = std::make_unique<control::PeerLink>(
        loop_, std::move(client->socket), control::TlsStream::Role::kServer, own_, "", control::test::kToday,
        control::PeerLink::Events{[this] {
                                    keys_ = *link_->heartbeat_keys();
                                    reader_.emplace(keys_.theirs, 0, 1);
                                    link_->send({{"greeting", membership_.greeting(Json::array())}});
                                    link_->send({{"welcome", true}});
                                  },
                                  [this](const Json& frame) { on_frame(frame); }, [](const Status&) {}},
        control::PeerLink::Times{});
  }
  void on_frame(const Json& frame) {
    if (frame.contains("greeting")) link_->admit();
    if (!frame.contains("ping")) return;
    ++pings;
    if (answers) link_->send({{"pong", true}});
  }

  control::Loop& loop_;
  const Roster& roster_;
  const Own own_;
  const Membership membership_;
  std::optional<control::TcpListener> listener_;
  std::optional<control::UdpSocket> socket_;
  std::unique_ptr<control::PeerLink> link_;
  control::Heartbeat::Keys keys_;
  std::optional<control::HeartbeatReader> reader_;
  control::Heartbeat::Bytes last_{};
  std::uint64_t sequence_ = 0;
  std::size_t heartbeats_ = 0;
  control::Loop::Watch guests_ = 0;
  control::Loop::Watch timer_ = 0;
};

// With and without keys.
class Pulses : public ::testing::TestWithParam<Roster::Trust> {
 protected:
  Pulses() {
    const std::uint16_t port = test::free_port(2);
    Roster& roster = options_.roster;
    roster.cluster = lab_.cluster;
    roster.here = "here";
    roster.members = {{"here", {"127.0.0.1", port}}, {"there", {"127.0.0.2", port}}};
    roster.configuration = {"job train"};
    roster.trust = GetParam();
    roster.load_credentials = [this]() -> Result<Roster::OwnCredentials> {
      return Roster::OwnCredentials{own("here"), {}};
    };
    options_.wall_time = [] { return control::test::kToday; };
    there_roster_ = roster;
    there_roster_.here = "there";
  }
  void SetUp() override {
    hand_ = std::make_unique<NodeByHand>(loop_, there_roster_, own("there"));
    open_peers();
    ASSERT_TRUE(until([this] { return peers_->is_up("there"); }));
  }
  void open_peers() {
    peers_ = std::make_unique<Peers>(
        loop_, clock_, options_,
        Peers::Events{.jobs = [] { return Json::array(); },
                      .up = [this](const std::string&, const Json&) { told_.emplace_back("up"); },
                      .down = [this](const std::string&, const Status&) { told_.emplace_back("down"); },
                      .heard = [this](const std::string&, const Json&) { told_.emplace_back("heard"); },
                      .suspected =
                          [this](const std::string& peer) {
                            ++doubted_;
                            if (vouches_) peers_->vouch(peer, clock_.now());
                          },
                      .lost =
                          [this](const std::string& peer, const Status& why) {
                            EXPECT_EQ(peer, "there");
                            EXPECT_EQ(why.code(), Code::kPeerLost);
                            EXPECT_FALSE(peers_->is_up(peer));
                            told_.emplace_back("lost");
                            why_ = why.message();
                          }});
    const Status opened = peers_->open();
    ASSERT_TRUE(opened.ok()) << opened.text();
  }
  Own own(const char* node) const {
    if (GetParam() == Roster::Trust::kPlainText) return nullptr;
    return std::make_shared<const control::Credentials>(lab_.of(node));
  }
  bool until(const std::function<bool()>& done) {
    for (const Instant end = clock_.now() + 20s; !done() && clock_.now() < end;) loop_.turn();
    return done();
  }
  void run_for(Nanos time) {
    for (const Instant end = clock_.now() + time; clock_.now() < end;) loop_.turn();
  }
  bool was_lost() const { return std::find(told_.begin(), told_.end(), "lost") != told_.end(); }
  Json report() const { return peers_->report().at("peers").at(0); }

  const SteadyClock clock_;
  const control::test::Lab lab_;
  Options options_;
  Roster there_roster_;
  control::Loop loop_;
  std::unique_ptr<NodeByHand> hand_;
  std::unique_ptr<Peers> peers_;
  bool vouches_ = false;
  std::size_t doubted_ = 0;
  std::vector<std::string> told_;
  std::string why_;
};
INSTANTIATE_TEST_SUITE_P(Trusts, Pulses,
                         ::testing::Values(Roster::Trust::kCertificates, Roster::Trust::kPlainText),
                         [](const auto& test) {
                           return test.param == Roster::Trust::kPlainText ? "InPlainText"
                                                                          : "WithCertificates";
                         });

TEST_P(Pulses, AreMissedOnceWhenANodeFallsSilent) {
  hand_->live();
  ASSERT_TRUE(until([this] { return hand_->heartbeats() > 0; })) << "it is spoken to";
  hand_->fall_silent();
  hand_->repeat();
  ASSERT_TRUE(until([this] {
    hand_->repeat();  // which proves nothing
    return was_lost();
  }));
  EXPECT_THAT(told_, ElementsAre("up", "lost", "down"));
  EXPECT_THAT(why_, HasSubstr("nothing was heard of it"));
  EXPECT_EQ(report().at("why"), why_);
  EXPECT_GE(report().at("heard_ns"), Nanos(Liveness::kLostAfter).count());
  EXPECT_GE(report().at("doubts"), 1);
  EXPECT_GT(hand_->pings, 0u) << "it was asked";
  EXPECT_GT(doubted_, 0u) << "and others were";
  // It is dialled anew, and watched anew.
  ASSERT_TRUE(until([this] { return peers_->is_up("there"); }));
  EXPECT_EQ(hand_->links, 2u);
  EXPECT_EQ(report().at("why"), "");
  told_.clear();
  ASSERT_TRUE(until([this] { return was_lost(); }));
  EXPECT_THAT(told_, ElementsAre("lost", "down"));
}

// Goal:   a supervisor that ends its link, to start again or to be replaced, is not dead.
TEST_P(Pulses, KeepANodeWhoseLinkHasEnded) {
  hand_->live();
  run_for(300ms);
  hand_->deafen();
  const std::size_t heartbeats = hand_->heartbeats();
  run_for(3s);
  EXPECT_THAT(told_, ElementsAre("up", "down"));
  EXPECT_GT(hand_->heartbeats(), heartbeats) << "it hears that this node lives too";
  EXPECT_LT(report().at("heard_ns"), Nanos(Liveness::kLostAfter).count());
  hand_->fall_silent();
  ASSERT_TRUE(until([this] { return was_lost(); }));
  EXPECT_THAT(told_, ElementsAre("up", "down", "lost"));
  EXPECT_THAT(report().at("why").get<std::string>(), HasSubstr(why_ + "; 127.0.0.2:"))
      << "why it was lost, and why it is not reached";
  EXPECT_NE(report().at("state"), "up");
}

TEST_P(Pulses, AreNotNeededWhereTheLinkAnswers) {
  hand_->answers = true;
  run_for(3s);
  EXPECT_THAT(told_, ElementsAre("up"));
  EXPECT_GT(report().at("doubts"), 0);
  hand_->answers = false;
  EXPECT_TRUE(until([this] { return was_lost(); }));
}

TEST_P(Pulses, AreNotNeededWhereSomebodyVouches) {
  vouches_ = true;
  run_for(3s);
  EXPECT_THAT(told_, ElementsAre("up"));
  vouches_ = false;
  EXPECT_TRUE(until([this] { return was_lost(); }));
}

// Goal:   a node whose engine this one's works with may fall silent before their supervisors are connected.
TEST_P(Pulses, AreMissedOfANodeThatIsExpectedAndDoesNotCome) {
  peers_.reset();
  hand_->deafen();
  told_.clear();
  open_peers();
  peers_->expect("there");
  vouches_ = true;
  run_for(3s);
  EXPECT_THAT(told_, ElementsAre());
  EXPECT_GT(doubted_, 0u);
  vouches_ = false;
  ASSERT_TRUE(until([this] { return was_lost(); }));
  EXPECT_THAT(why_, HasSubstr("nothing was heard of it"));
  hand_->listen();
  ASSERT_TRUE(until([this] { return peers_->is_up("there"); }));
  peers_->expect("there");
  EXPECT_THAT(told_, ElementsAre("lost", "up"));
}

TEST_P(Pulses, TellOfAWayThatIsDeadInOneDirection) {
  hand_->live();
  run_for(300ms);
  EXPECT_FALSE(was_lost());
  hand_->silence = 1'600ms;
  ASSERT_TRUE(until([this] { return was_lost(); }));
  EXPECT_THAT(why_, HasSubstr("one way: node there hears nothing of this node"));
  hand_->fall_silent();
}

TEST_P(Pulses, GoWhereTheOthersComeFrom) {
  hand_->live();
  ASSERT_TRUE(until([this] { return hand_->heartbeats() > 0; }));
  const std::size_t heartbeats = hand_->heartbeats();
  hand_->move_to("127.0.0.3");
  EXPECT_TRUE(until([&] { return hand_->heartbeats() > heartbeats + 1; }));
  EXPECT_THAT(told_, ElementsAre("up"));
}

}  // namespace
}  // namespace muster::supervisor
