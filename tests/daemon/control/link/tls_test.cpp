#include "daemon/control/link/tls.hpp"

#include "tests/daemon/control/tls_pair.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>

namespace muster::control {
namespace {

using test::kToday;
using test::Lab;
using test::TlsPair;
using test::Wire;
using test::wire_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Two nodes of one cluster, node01 and node02, of which the first is the client.
struct Met {
  explicit Met(const std::string& expected = "") : pair(first, second, expected) {}

  const Lab lab;
  const Credentials first = lab.of("node01"), second = lab.of("node02");
  TlsPair pair;
};

TEST(Tls, TellsEachSideWhoTheOtherIs) {
  Met met("node02");
  TlsPair& pair = met.pair;
  EXPECT_FALSE(pair.client.established());
  EXPECT_EQ(pair.client.write(wire_of("early")).code(), Code::kState);
  pair.run();
  EXPECT_TRUE(pair.client.established()) << pair.client_says.text();
  EXPECT_TRUE(pair.server.established()) << pair.server_says.text();
  EXPECT_EQ(pair.client.peer(), "node02");
  EXPECT_EQ(pair.server.peer(), "node01");
}

TEST(Tls, CarriesWhatIsWrittenBothWaysAndSaysGoodbye) {
  Met met;
  TlsPair& pair = met.pair;
  pair.run();
  Wire much(1 << 20);
  std::mt19937_64 random(3);
  std::generate(much.begin(), much.end(), [&] { return std::byte(random() & 0xff); });
  ASSERT_TRUE(pair.client.write(much).ok());
  ASSERT_TRUE(pair.server.write(wire_of("short")).ok());
  pair.run();
  EXPECT_TRUE(pair.to_server == much);
  EXPECT_TRUE(pair.to_client == wire_of("short"));
  pair.client.close();
  pair.run();
  EXPECT_TRUE(pair.server.closed());
  EXPECT_TRUE(pair.server_says.ok()) << pair.server_says.text();
}

// Goal:   a peer outside the cluster is refused with the reason, and is told so.
TEST(Tls, RefusesWhoIsNotOfTheCluster) {
  const Lab lab;
  const Lab strangers("lab-a");  // the same name, another authority
  const Lab others("lab-b");
  const Credentials server = lab.of("server");
  {
    const Credentials client = strangers.of("node01");
    TlsPair pair(client, server, "");
    pair.run();
    EXPECT_EQ(pair.client_says.code(), Code::kDenied) << "the server's authority is none of its own";
    EXPECT_THAT(pair.client_says.message(), HasSubstr("its certificate is refused"));
    EXPECT_EQ(pair.server_says.code(), Code::kDenied);
    EXPECT_EQ(pair.server_says.message(), "it refuses the certificate of node server: unknown CA");
    EXPECT_FALSE(pair.server.established());
  }
  {
    // It believes the server's authority, but shows a certificate of its own.
    const Credentials client =
        *Credentials::of_certificates(lab.cluster, lab.authority.certificate, strangers.certified("node01"));
    TlsPair pair(client, server, "");
    pair.run();
    EXPECT_EQ(pair.server_says.code(), Code::kDenied);
    EXPECT_THAT(pair.server_says.message(), HasSubstr("its certificate is refused"));
    EXPECT_EQ(pair.server.peer(), "");
    EXPECT_EQ(pair.client_says.code(), Code::kDenied);
    EXPECT_EQ(pair.client_says.message(), "it refuses the certificate of node node01: unknown CA");
  }
  {
    // The same authority issues for two clusters.
    const CertifiedKey of_other = *certify_node(lab.authority, others.cluster, "node01", kToday, kNodeLife);
    const Credentials client =
        *Credentials::of_certificates(others.cluster, lab.authority.certificate, of_other);
    TlsPair pair(client, server, "");
    pair.run();
    EXPECT_EQ(pair.client_says.code(), Code::kDenied);
    EXPECT_THAT(pair.client_says.message(),
                AllOf(HasSubstr("spiffe://lab-a/node/server"), HasSubstr("spiffe://lab-b/node/")));
    EXPECT_EQ(pair.server_says.code(), Code::kDenied);
    EXPECT_EQ(pair.server_says.message(), "it refuses the certificate of node server: bad certificate");
  }
}

TEST(Tls, RefusesAnotherNodeThanTheOneThatWasMeant) {
  Met met("node03");
  TlsPair& pair = met.pair;
  pair.run();
  EXPECT_EQ(pair.client_says.code(), Code::kDenied);
  EXPECT_EQ(pair.client_says.message(), "it is node node02, and node node03 was expected");
}

// Goal:   a certificate outside its dates establishes nothing, at neither end. The end that finds it reports
//         by how much it lies outside, by which clock. The peer can be told so, and sends nothing else
//         meanwhile.
TEST(Tls, RefusesCertificatesOutsideTheirDates) {
  const Lab lab;
  const Credentials good = lab.of("good");
  const struct {
    WallTime when;
    const char* why;
  } issued[] = {
      {kToday - kNodeLife - std::chrono::hours(25),
       "the certificate of node late was valid until 2026-11-24 23:00:00 UTC, which is 1d 1h ago by "
       "the clock of node good"},
      {kToday + std::chrono::hours(3),
       "the certificate of node late is valid from 2026-11-26 02:00:00 UTC on, which is in 2h 0m by "
       "the clock of node good"}};
  for (const auto& [when, why] : issued)
    for (const bool client_is_late : {true, false}) {
      const Credentials late = lab.with(lab.certified("late", when));
      TlsPair pair(client_is_late ? late : good, client_is_late ? good : late, "");
      pair.run();
      TlsStream& refuser = client_is_late ? pair.server : pair.client;
      TlsStream& refused = client_is_late ? pair.client : pair.server;
      EXPECT_EQ(refuser.outside_dates().code(), Code::kDenied);
      EXPECT_EQ(refuser.outside_dates().message(), why);
      EXPECT_FALSE(refuser.established());
      EXPECT_EQ(refuser.peer(), "late");
      EXPECT_EQ(refuser.exported("label").error().code(), Code::kState);
      EXPECT_TRUE(refused.outside_dates().ok());
      ASSERT_TRUE(refuser.write(wire_of("refused")).ok());
      pair.run();
      EXPECT_TRUE((client_is_late ? pair.to_client : pair.to_server) == wire_of("refused"));
      EXPECT_TRUE(pair.client_says.ok() && pair.server_says.ok());
    }
}

TEST(Tls, RefusesByTheDatesOfTheAuthorityToo) {
  const Lab old("lab-a", kToday - kAuthorityLife - std::chrono::days(2));
  const Credentials a = old.with(old.certified("a"));
  const Credentials b = old.with(old.certified("b"));
  TlsPair pair(a, b, "");
  pair.run();
  for (const TlsStream* end : {&pair.client, &pair.server}) {
    EXPECT_FALSE(end->established());
    EXPECT_THAT(end->outside_dates().message(),
                HasSubstr("the certificate of the authority was valid until 2026-11-24 00:00:00 UTC"));
  }
}

// Goal:   the delay of date checks delays no other: an unknown peer with an old certificate stays unknown.
TEST(Tls, RefusesForMoreThanDatesAsBefore) {
  const Lab lab;
  const Credentials server = lab.of("server");
  const WallTime before = kToday - kNodeLife - std::chrono::days(1);
  const Lab strangers("lab-a", before);
  {
    const Credentials client = *Credentials::of_certificates(lab.cluster, lab.authority.certificate,
                                                             strangers.certified("node01", before));
    TlsPair pair(client, server, "");
    pair.run();
    EXPECT_EQ(pair.server_says.code(), Code::kDenied);
    EXPECT_THAT(pair.server_says.message(), HasSubstr("its certificate is refused"));
    EXPECT_EQ(pair.client_says.message(), "it refuses the certificate of node node01: unknown CA");
  }
  {
    const CertifiedKey of_other = *certify_node(lab.authority, "lab-b", "node01", before, kNodeLife);
    const Credentials client = *Credentials::of_certificates("lab-b", lab.authority.certificate, of_other);
    TlsPair pair(client, server, "");
    pair.run();
    EXPECT_EQ(pair.server_says.code(), Code::kDenied);
    EXPECT_FALSE(pair.server.established());
    EXPECT_TRUE(pair.server.outside_dates().ok()) << pair.server.outside_dates().text();
  }
}

TEST(Tls, TakesASecretInsteadOfCertificates) {
  const std::string secret(64, 'k');
  const Credentials a = *Credentials::of_secret("lab", "node01", secret);
  const Credentials b = *Credentials::of_secret("lab", "node02", secret);
  TlsPair pair(a, b, "node02");
  pair.run();
  ASSERT_TRUE(pair.client.established()) << pair.client_says.text() << pair.server_says.text();
  ASSERT_TRUE(pair.server.established());
  EXPECT_EQ(pair.server.peer(), "node01");
  ASSERT_TRUE(pair.client.write(wire_of("hello")).ok());
  pair.run();
  EXPECT_TRUE(pair.to_server == wire_of("hello"));
}

TEST(Tls, RefusesAnotherSecretAndNone) {
  const Credentials a = *Credentials::of_secret("lab", "node01", std::string(64, 'k'));
  const Credentials b = *Credentials::of_secret("lab", "node02", std::string(64, 'l'));
  TlsPair pair(a, b, "");
  pair.run();
  EXPECT_EQ(pair.server_says.code(), Code::kDenied);
  EXPECT_THAT(pair.server_says.message(), HasSubstr("do not have the same secret"));
  EXPECT_THAT(pair.client_says.message(), HasSubstr("do not have the same secret"));

  const Lab lab;
  const Credentials certified = lab.of("node02");
  TlsPair mixed(a, certified, "");
  mixed.run();
  EXPECT_FALSE(mixed.server.established());
  EXPECT_FALSE(mixed.client.established());
  EXPECT_FALSE(mixed.server_says.ok() && mixed.client_says.ok());
  EXPECT_THAT(Credentials::of_secret("lab", "node01", "short").error().message(), HasSubstr("needs 32"));
  EXPECT_EQ(Credentials::of_secret("lab", "node/01", std::string(64, 'k')).error().code(),
            Code::kBadArgument);
}

// Goal:   a wire that flips bits delivers nothing that was not written, and crashes nothing.
// Method: flip one bit of the whole conversation, drawn from a seed. The received text is a prefix of the
//         sent one.
TEST(Tls, DeliversNothingThatWasChangedOnTheWay) {
  const Lab lab;
  const Credentials a = lab.of("a");
  const Credentials b = lab.of("b");
  const Wire text = wire_of(std::string(300, 'x'));
  std::uint64_t refused = 0;
  const std::uint64_t cases = muster::test::property_cases(300);
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    std::mt19937_64 random(seed);
    std::uint64_t at = random() % 3000;
    const auto flip = [&](Wire& wire) {
      if (at < wire.size()) wire[at] ^= std::byte(1U << random() % 8);
      at -= std::min<std::uint64_t>(at + 1, wire.size());
    };
    TlsPair pair(a, b, "");
    pair.run(flip);
    if (pair.client.established()) {
      EXPECT_TRUE(pair.client.write(text).ok());
    }
    pair.run(flip);
    ASSERT_LE(pair.to_server.size(), text.size());
    ASSERT_TRUE(std::equal(pair.to_server.begin(), pair.to_server.end(), text.begin())) << "seed " << seed;
    if (!pair.server_says.ok() || !pair.client_says.ok()) ++refused;
  }
  EXPECT_GT(refused, cases / 4);
}

TEST(Tls, RefusesARecordThatComesTwice) {
  Met met;
  TlsPair& pair = met.pair;
  pair.run();
  ASSERT_TRUE(pair.client.write(wire_of("pay 1")).ok());
  const Wire record = pair.client.take_wire();
  ASSERT_TRUE(pair.server.receive(record));
  const auto again = pair.server.receive(record);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kProtocol);
  EXPECT_FALSE(pair.server.established());
  pair.run();
  EXPECT_EQ(pair.client_says.code(), Code::kProtocol);
  EXPECT_THAT(pair.client_says.message(), HasSubstr("bad record mac"));
  EXPECT_FALSE(pair.client.established());
}

// Goal:   a recording of all bytes that a node has sent does not pass for the node.
TEST(Tls, RefusesAConversationThatIsPlayedBack) {
  Met met;
  TlsPair& pair = met.pair;
  Wire recorded;
  while (!pair.server.established()) {
    const Wire said = pair.client.take_wire();
    ASSERT_FALSE(said.empty());
    recorded.insert(recorded.end(), said.begin(), said.end());
    ASSERT_TRUE(pair.server.receive(said));
    ASSERT_TRUE(pair.client.receive(pair.server.take_wire()));
  }
  ASSERT_TRUE(pair.client.write(wire_of("pay 1")).ok());
  const Wire paid = pair.client.take_wire();
  recorded.insert(recorded.end(), paid.begin(), paid.end());
  TlsStream again = *TlsStream::begin(met.second, TlsStream::Role::kServer, "", kToday);
  const auto plain = again.receive(recorded);
  ASSERT_FALSE(plain);
  EXPECT_EQ(plain.error().code(), Code::kDenied);
  EXPECT_THAT(plain.error().message(), HasSubstr("bad record mac"));
  EXPECT_FALSE(again.established());
  EXPECT_EQ(again.peer(), "");
}

TEST(Tls, TakesNoBytesForARecordOfGarbage) {
  const Lab lab;
  const Credentials b = lab.of("b");
  TlsStream server = *TlsStream::begin(b, TlsStream::Role::kServer, "", kToday);
  const auto answer = server.receive(wire_of("GET / HTTP/1.1\r\nHost: node\r\n\r\n"));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), Code::kDenied);
  EXPECT_FALSE(server.receive(wire_of("more"))) << "it stays refused";
}

TEST(Credentials, AreRefusedWhereTheyDoNotBelongTogether) {
  const Lab lab;
  const CertifiedKey one = lab.certified("one");
  const CertifiedKey two = lab.certified("two");
  const auto why = [&](std::string_view authorities, const CertifiedKey& own) {
    const auto made = Credentials::of_certificates(lab.cluster, authorities, own);
    return made ? std::string() : made.error().text();
  };
  EXPECT_EQ(why(lab.authority.certificate, one), "");
  EXPECT_THAT(why("nothing", one), HasSubstr("no PEM certificate"));
  EXPECT_THAT(why(lab.authority.certificate, {one.certificate, two.key}), HasSubstr("does not belong"));
  EXPECT_THAT(why(lab.authority.certificate, {"text", one.key}), HasSubstr("certificate is not PEM"));
  EXPECT_THAT(why(lab.authority.certificate, {one.certificate, "text"}), HasSubstr("key is not PEM"));
  EXPECT_THAT(why(lab.authority.certificate, lab.authority),
              HasSubstr("its certificate names spiffe://lab-a,"))
      << "that of no node";
}

TEST(Certificates, NameClusterAndNode) {
  EXPECT_EQ(*node_uri("lab-a", "node01.rack2"), "spiffe://lab-a/node/node01.rack2");
  EXPECT_EQ(*node_of_uri("spiffe://lab-a/node/n1", "lab-a"), "n1");
  EXPECT_EQ(node_uri("lab a", "n").error().code(), Code::kBadArgument);
  EXPECT_EQ(node_uri("lab", "").error().code(), Code::kBadArgument);
  for (const char* wrong : {"spiffe://lab-b/node/n1", "spiffe://lab-a/job/n1", "spiffe://lab-a/node/", "n1",
                            "spiffe://lab-a/node/n1/x"})
    EXPECT_EQ(node_of_uri(wrong, "lab-a").error().code(), Code::kDenied) << wrong;
  const Lab lab;
  EXPECT_THAT(certify_node({"x", lab.authority.key}, "lab", "n", kToday, kNodeLife).error().message(),
              HasSubstr("authority's certificate is not PEM"));
  EXPECT_THAT(certify_node({lab.authority.certificate, Lab().authority.key}, "lab", "n", kToday, kNodeLife)
                  .error()
                  .message(),
              HasSubstr("does not belong"));
}

}  // namespace
}  // namespace muster::control
