// Links and dials over the loopback address, both ends on one loop.
#include "daemon/control/link/peer_link.hpp"

#include "daemon/control/link/clocks.hpp"
#include "daemon/control/link/tcp.hpp"
#include "tests/daemon/control/tls_pair.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace muster::control {
namespace {

using namespace std::chrono_literals;
using test::Lab;
using Role = TlsStream::Role;
using Own = std::shared_ptr<const Credentials>;

// One end, and all that it has reported.
struct End {
  std::unique_ptr<PeerLink> link;
  bool secured = false;
  std::vector<Json> heard;
  std::optional<Status> ended;
  WallTime now = test::kToday;

  void open(Loop& loop, shm::Descriptor socket, Role role, Own own, const std::string& wanted = "",
            PeerLink::Times times = {}) {
    link =
        std::make_unique<PeerLink>(loop, std::move(socket), role, std::move(own), wanted, now,
                                   PeerLink::Events{[this] { secured = true; },
                                                    [this](Json frame) { heard.push_back(std::move(frame)); },
                                                    [this](const Status& why) { ended = why; }},
                                   times);
  }
};

class PeerLinks : public ::testing::Test {
 protected:
  static Own own(const Lab& lab, const std::string& node) {
    return std::make_shared<const Credentials>(lab.of(node));
  }
  // Runs the loop until `done`, at most 20 s.
  bool until(const std::function<bool()>& done) {
    for (const Instant end = clock_.now() + 20s; !done() && clock_.now() < end;) loop_.turn();
    return done();
  }
  // A connection through the listener; the first socket is the dialler's.
  std::pair<shm::Descriptor, shm::Descriptor> connection() {
    const TcpListener listener = *TcpListener::open({"127.0.0.1", 0});
    std::optional<Result<shm::Descriptor>> dialled;
    TcpDial dial(loop_, {"127.0.0.1", listener.port()}, 10s,
                 [&](Result<shm::Descriptor> socket) { dialled = std::move(socket); });
    EXPECT_TRUE(until([&] { return dialled.has_value(); }));
    auto client = listener.accept();
    EXPECT_TRUE(client && *dialled);
    EXPECT_EQ(client->from.rfind("127.0.0.1:", 0), 0u) << client->from;
    return {std::move(**dialled), std::move(client->socket)};
  }
  void open(Own client, Own server, const std::string& wanted, PeerLink::Times times = {}) {
    auto [mine, theirs] = connection();
    client_.open(loop_, std::move(mine), Role::kClient, std::move(client), wanted, times);
    server_.open(loop_, std::move(theirs), Role::kServer, std::move(server), "", times);
  }

  SteadyClock clock_;
  Loop loop_;
  End client_, server_;
};

TEST_F(PeerLinks, CarryFramesBetweenNodesThatKnowEachOther) {
  const Lab lab;
  open(own(lab, "node01"), own(lab, "node02"), "node02");
  ASSERT_TRUE(until([&] { return client_.secured && server_.secured; }));
  EXPECT_EQ(client_.link->peer(), "node02");
  EXPECT_EQ(server_.link->peer(), "node01");
  client_.link->admit();
  server_.link->admit();
  const Json large{{"text", std::string(900'000, 'x')}};
  for (int i = 0; i < 8; ++i) client_.link->send(large);
  server_.link->send({{"number", 7}});
  ASSERT_TRUE(until([&] { return server_.heard.size() == 8 && client_.heard.size() == 1; }));
  EXPECT_EQ(server_.heard.back(), large);
  EXPECT_EQ(client_.heard.front().at("number"), 7);
}

TEST_F(PeerLinks, SayToBothWhyTheyDoNotKnowEachOther) {
  const Lab lab, other;
  open(own(lab, "node01"), own(other, "node02"), "node02");
  ASSERT_TRUE(until([&] { return client_.ended && server_.ended; }));
  EXPECT_EQ(client_.ended->code(), Code::kDenied);
  EXPECT_THAT(client_.ended->message(), ::testing::HasSubstr("certificate is refused"));
  EXPECT_EQ(server_.ended->code(), Code::kDenied);
  EXPECT_FALSE(client_.secured || server_.secured);
}

// Goal:   where one side refuses the other for dates, both learn by how much, and by how much their clocks
//         differ. It does not matter which clock is wrong and which side dials. The refusing side never
//         secures its link.
TEST_F(PeerLinks, TellClocksThatDifferFromOldCertificates) {
  const Lab lab;
  const auto talk = [&](const Own& client, const Own& server, Nanos client_off, Nanos server_off) {
    client_ = {};
    server_ = {};
    client_.now += std::chrono::duration_cast<std::chrono::seconds>(client_off);
    server_.now += std::chrono::duration_cast<std::chrono::seconds>(server_off);
    open(client, server, "");
    // An owner greets as soon as it may, and closes once it is refused.
    const auto act = [](End& end, bool& greeted) {
      if (end.secured && !std::exchange(greeted, true))
        end.link->send({{"greeting", 1}, {"time", said(end.now)}});
      if (!end.heard.empty() && end.heard.back().contains("refused"))
        end.link->close(failure(Code::kDenied, "refused"));
    };
    bool greeted[2] = {};
    ASSERT_TRUE(until([&] {
      act(client_, greeted[0]);
      act(server_, greeted[1]);
      return client_.ended && server_.ended;
    }));
  };
  const Own a = own(lab, "a");
  const Own b = own(lab, "b");
  const Own old = std::make_shared<const Credentials>(
      lab.with(lab.certified("old", test::kToday - kNodeLife - std::chrono::days(1))));
  const auto expect_refusal = [](const End& refuser, const End& refused, const std::string& clocks) {
    EXPECT_FALSE(refuser.secured);
    EXPECT_TRUE(refuser.heard.empty()) << "nothing of a peer that is refused reaches the owner";
    ASSERT_EQ(refused.heard.size(), 1U);
    const Json& frame = refused.heard.front();
    EXPECT_EQ(time_said(frame), refuser.now);
    EXPECT_EQ(refuser.ended->code(), Code::kDenied);
    EXPECT_EQ(refuser.ended->message(),
              frame.at("refused").get<std::string>() + "; " + cure_of_dates(refuser.now, refused.now));
    EXPECT_THAT(refuser.ended->message(), ::testing::HasSubstr(clocks));
  };
  talk(a, b, 0s, -2h);
  expect_refusal(server_, client_, "its clock, as it says, is 2h 0m ahead of ours");
  talk(a, b, -2h, 0s);
  expect_refusal(client_, server_, "its clock, as it says, is 2h 0m ahead of ours");
  talk(a, b, 0s, 24h * 58);
  expect_refusal(server_, client_, "its clock, as it says, is 58d 0h behind ours");
  talk(old, b, 0s, 1s);
  expect_refusal(server_, client_, "its clock agrees with ours: write a new certificate");
  talk(a, old, 1s, 0s);
  expect_refusal(client_, server_, "its clock agrees with ours: write a new certificate");

  // Both are wrong: each refuses the other.
  talk(a, b, -90min, 24h * 58);
  EXPECT_FALSE(client_.secured || server_.secured);
  EXPECT_THAT(client_.ended->message(),
              ::testing::AllOf(::testing::HasSubstr("of the authority is valid from"),
                               ::testing::HasSubstr("its clock, as it says, is 58d 1h ahead of ours")));
  EXPECT_THAT(server_.ended->message(),
              ::testing::AllOf(::testing::HasSubstr("of node a was valid until"),
                               ::testing::HasSubstr("its clock, as it says, is 58d 1h behind ours")));
}

// A peer that is refused for dates need not say its time.
TEST_F(PeerLinks, RefuseDatesThoughThePeerSaysNoTime) {
  const Lab lab;
  server_.now -= 2h;
  open(own(lab, "a"), own(lab, "b"), "", {.goodbye = 50ms});
  ASSERT_TRUE(until([&] { return !client_.heard.empty(); }));
  client_.link->send({{"greeting", 1}, {"time", "late"}});
  ASSERT_TRUE(until([&] { return server_.ended.has_value(); }));
  EXPECT_EQ(server_.ended->code(), Code::kDenied);
  EXPECT_EQ(server_.ended->message(), client_.heard.front().at("refused").get<std::string>());
}

// Goal:   a refusal arrives: what was sent before close() is not lost with the connection, though the other
//         side goes on sending.
TEST_F(PeerLinks, DeliverTheLastFrameBeforeTheyClose) {
  for (const bool plain : {false, true}) {
    const Lab lab;
    client_ = {};
    server_ = {};
    open(plain ? nullptr : own(lab, "a"), plain ? nullptr : own(lab, "b"), "");
    ASSERT_TRUE(until([&] { return client_.secured && server_.secured; }));
    for (int i = 0; i < 50; ++i) client_.link->send({{"text", std::string(10'000, 'x')}});
    server_.link->send({{"refused", "for a reason"}});
    server_.link->close(failure(Code::kConfig, "the reason"));
    ASSERT_TRUE(until([&] { return client_.ended && server_.ended; }));
    ASSERT_EQ(client_.heard.size(), 1u);
    EXPECT_EQ(client_.heard.front().at("refused"), "for a reason");
    EXPECT_EQ(client_.ended->code(), Code::kDaemonLost);
    EXPECT_EQ(server_.ended->code(), Code::kConfig);
  }
}

// Goal:   a peer that is not let in gets the reason, whatever it is.
TEST_F(PeerLinks, TellThePeerWhyTheyEnd) {
  const Lab lab;
  for (const bool plain : {false, true}) {
    const auto certified = [&](const char* node) { return plain ? nullptr : own(lab, node); };
    client_ = {};
    server_ = {};
    auto [mine, theirs] = connection();
    client_.open(loop_, std::move(mine), Role::kClient, certified("a"));
    server_.open(loop_, std::move(theirs), Role::kServer, certified("b"), "", {.admission = 300ms});
    ASSERT_TRUE(until([&] { return client_.ended && server_.ended; }));
    EXPECT_EQ(server_.ended->code(), Code::kTimeout);
    EXPECT_EQ(client_.heard, std::vector<Json>({{{"refused", server_.ended->message()}}}));

    client_ = {};
    server_ = {};
    open(certified("a"), certified("b"), "");
    ASSERT_TRUE(until([&] { return client_.secured && server_.secured; }));
    client_.link->send({{"text", std::string(kGreetingBytesMax, 'x')}});
    ASSERT_TRUE(until([&] { return client_.ended && server_.ended; }));
    EXPECT_EQ(server_.ended->code(), Code::kProtocol);
    EXPECT_EQ(client_.heard, std::vector<Json>({{{"refused", server_.ended->message()}}}));
  }
}

// Goal:   a refusal is told by its reason on this side too, though the other side breaks the connection.
TEST_F(PeerLinks, EndAsTheyWereClosedWhateverBecomesOfTheConnection) {
  auto [mine, theirs] = connection();
  server_.open(loop_, std::move(theirs), Role::kServer, nullptr);
  ASSERT_TRUE(until([&] { return server_.secured; }));
  server_.link->refuse(failure(Code::kDenied, "the reason"));
  const linger broken{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(setsockopt(mine.get(), SOL_SOCKET, SO_LINGER, &broken, sizeof broken), 0);
  mine.reset();
  ASSERT_TRUE(until([&] { return server_.ended.has_value(); }));
  EXPECT_EQ(server_.ended->code(), Code::kDenied) << server_.ended->text();
}

TEST_F(PeerLinks, EndWhenThePeerSaysNothing) {
  const Lab lab;
  auto [mine, theirs] = connection();
  server_.open(loop_, std::move(theirs), Role::kServer, own(lab, "b"), "", {.admission = 50ms});
  for (int i = 0; i < 3; ++i) send(mine.get(), "\x16", 1, MSG_NOSIGNAL);  // slowly
  ASSERT_TRUE(until([&] { return server_.ended.has_value(); }));
  EXPECT_EQ(server_.ended->code(), Code::kTimeout);
}

TEST_F(PeerLinks, EndWhenThePeerSendsGarbage) {
  const Lab lab;
  for (const bool plain : {false, true}) {
    server_ = {};
    auto [mine, theirs] = connection();
    server_.open(loop_, std::move(theirs), Role::kServer, plain ? nullptr : own(lab, "b"));
    const std::string garbage = "GET / HTTP/1.1\r\nHost: node02\r\n\r\n";
    ASSERT_EQ(send(mine.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(garbage.size()));
    shutdown(mine.get(), SHUT_WR);
    ASSERT_TRUE(until([&] { return server_.ended.has_value(); }));
    EXPECT_EQ(server_.ended->code(), plain ? Code::kProtocol : Code::kDenied) << server_.ended->text();
    EXPECT_TRUE(server_.heard.empty());
  }
}

// Before it is admitted nobody may send much.
TEST_F(PeerLinks, TakeShortFramesOnlyFromWhomTheyDoNotKnow) {
  open(nullptr, nullptr, "");
  ASSERT_TRUE(until([&] { return client_.secured && server_.secured; }));
  client_.link->send({{"text", std::string(kGreetingBytesMax, 'x')}});
  ASSERT_TRUE(until([&] { return server_.ended.has_value(); }));
  EXPECT_EQ(server_.ended->code(), Code::kProtocol);
  EXPECT_THAT(server_.ended->message(), ::testing::HasSubstr("allowed here"));
}

TEST_F(PeerLinks, EndWhenThePeerDoesNotRead) {
  auto [mine, theirs] = connection();
  const int never = 0;  // else a slow machine's kernel gives the connection up first
  ASSERT_EQ(setsockopt(theirs.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &never, sizeof never), 0);
  server_.open(loop_, std::move(theirs), Role::kServer, nullptr);
  ASSERT_TRUE(until([&] { return server_.secured; }));
  server_.link->admit();
  for (int i = 0; i < 100 && !server_.ended; ++i) server_.link->send({{"text", std::string(1'000'000, 'x')}});
  ASSERT_TRUE(server_.ended);
  EXPECT_EQ(server_.ended->code(), Code::kBusy);
}

TEST_F(PeerLinks, HearThatTheOtherSideIsGone) {
  open(nullptr, nullptr, "");
  ASSERT_TRUE(until([&] { return client_.secured && server_.secured; }));
  client_.link.reset();
  ASSERT_TRUE(until([&] { return server_.ended.has_value(); }));
  EXPECT_EQ(server_.ended->code(), Code::kDaemonLost);
}

TEST_F(PeerLinks, SayWhyNobodyWasReached) {
  const auto dial = [this](const TcpAddress& address, Nanos time) {
    std::optional<Result<shm::Descriptor>> dialled;
    TcpDial attempt(loop_, address, time,
                    [&](Result<shm::Descriptor> socket) { dialled = std::move(socket); });
    EXPECT_TRUE(until([&] { return dialled.has_value(); }));
    return dialled && !*dialled ? dialled->error() : Status();
  };
  std::uint16_t port = 0;
  {
    const TcpListener listener = *TcpListener::open({"127.0.0.1", 0});
    port = listener.port();
    EXPECT_EQ(TcpListener::open({"127.0.0.1", port}).error().code(), Code::kDuplicate);
  }
  const Status refused = dial({"127.0.0.1", port}, 10s);
  EXPECT_EQ(refused.code(), Code::kDaemonLost);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("Connection refused"));
  const Status unknown = dial({"no-such-host.invalid", port}, 10s);
  EXPECT_EQ(unknown.code(), Code::kNotFound) << unknown.text();
  EXPECT_EQ(TcpListener::open({"203.0.113.77", 0}).error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace muster::control
