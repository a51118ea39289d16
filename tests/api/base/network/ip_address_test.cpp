#include "api/base/network/ip_address.hpp"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace muster {
namespace {

TEST(IpAddress, ReadsWhatItWrites) {
  for (const char* text : {"10.66.0.1", "0.0.0.0", "255.255.255.255", "fd00::1", "::1", "2001:db8::ff:2"}) {
    const auto address = IpAddress::parse(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->text(), text);
    EXPECT_EQ(address->six, std::string(text).find(':') != std::string::npos);
  }
  for (const char* text :
       {"", "node01", "10.66.0", "10.66.0.256", "010.66.0.1.1", "fd00::1%eth0", "[fd00::1]", "fd00::g"})
    EXPECT_FALSE(IpAddress::parse(text)) << text;
}

TEST(IpAddress, IsOneOfVersion4WhereItIsMapped) {
  EXPECT_EQ(IpAddress::parse("::ffff:10.0.0.1"), IpAddress::parse("10.0.0.1"));
  sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  ASSERT_EQ(inet_pton(AF_INET6, "::ffff:10.0.0.1", &mapped.sin6_addr), 1);
  EXPECT_EQ(IpAddress::of(reinterpret_cast<const sockaddr&>(mapped))->text(), "10.0.0.1");
  sockaddr other{};
  other.sa_family = AF_UNIX;
  EXPECT_FALSE(IpAddress::of(other));
}

// Goal:   however an address of version 6 is written, it is the same one, and is shown in its short form.
TEST(IpAddress, IsOneHoweverItIsWritten) {
  const auto shown = [](const char* text) { return IpAddress::parse(text)->text(); };
  EXPECT_EQ(shown("2001:0DB8:0000:0000:0000:0000:0000:0001"), "2001:db8::1");
  EXPECT_EQ(shown("fd00:0:0:0::1"), "fd00::1");
  EXPECT_EQ(shown("::ffff:a42:1"), "10.66.0.1") << "mapped, without dots";
  EXPECT_EQ(IpAddress::parse("FD66::A"), IpAddress::parse("fd66::a"));
  EXPECT_NE(IpAddress::parse("::a42:1"), IpAddress::parse("10.66.0.1")) << "not mapped";
  for (const char* text :
       {"fd00::1::2", "1:2:3:4:5:6:7:8:9", "fd00::1/64", " fd00::1", "fd00::1 ", "::ffff:10.66.0"})
    EXPECT_FALSE(IpAddress::parse(text)) << text;
}

TEST(IpAddress, KnowsWhichReachNobodyElse) {
  EXPECT_TRUE(IpAddress::parse("127.0.1.1")->loopback());
  EXPECT_TRUE(IpAddress::parse("::1")->loopback());
  EXPECT_FALSE(IpAddress::parse("::2")->loopback());
  EXPECT_TRUE(IpAddress::parse("fe80::1")->link_local());
  EXPECT_TRUE(IpAddress::parse("febf::1")->link_local());
  EXPECT_FALSE(IpAddress::parse("fec0::1")->link_local());
  EXPECT_TRUE(IpAddress::parse("169.254.3.4")->link_local());
  EXPECT_FALSE(IpAddress::parse("169.253.3.4")->link_local());
}

TEST(Subnet, HasTheAddressesOfItsPrefix) {
  const auto within = [](const char* subnet, const char* address) {
    return Subnet::parse(subnet)->contains(*IpAddress::parse(address));
  };
  EXPECT_TRUE(within("10.1.0.0/16", "10.1.255.1"));
  EXPECT_FALSE(within("10.1.0.0/16", "10.2.0.1"));
  EXPECT_TRUE(within("10.1.8.0/21", "10.1.15.255"));
  EXPECT_FALSE(within("10.1.8.0/21", "10.1.16.0"));
  EXPECT_TRUE(within("10.1.8.7/32", "10.1.8.7"));
  EXPECT_FALSE(within("10.1.8.7/32", "10.1.8.6"));
  EXPECT_TRUE(within("0.0.0.0/0", "1.2.3.4"));
  EXPECT_FALSE(within("0.0.0.0/0", "fd00::1")) << "of another version";
  EXPECT_TRUE(within("fd00::/8", "fdff::1"));
  EXPECT_FALSE(within("fd00::/64", "fd00:0:0:1::1"));
  EXPECT_TRUE(within("fd00::1/128", "fd00::1"));
  for (const char* text :
       {"10.1.0.0", "10.1.0.0/33", "10.1.0.0/", "10.1.0.0/x", "10.1.0.0/-1", "fd00::/129", "eth0/8"})
    EXPECT_FALSE(Subnet::parse(text)) << text;
}

}  // namespace
}  // namespace muster
