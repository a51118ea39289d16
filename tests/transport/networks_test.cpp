// The conformance suite on each network that there is, loaded as programs load it, and on that of the tests;
// and what is said of those that are not there.
#include "tests/support/fault_seeds.hpp"
#include "tests/transport/memory_network.hpp"
#include "tests/transport/network_conformance.hpp"
#include "transport/endpoint/envelope.hpp"
#include "transport/endpoint/library.hpp"
#include "transport/endpoint/trial.hpp"

#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace muster::transport::test {
namespace {

std::vector<std::unique_ptr<Network>> networks_of(const std::string& name, std::uint32_t count) {
  std::vector<std::unique_ptr<Network>> networks;
  for (std::uint32_t n = 0; n < count; ++n) {
    auto opened = open_network(MUSTER_NETWORKS, name, NodeIndex(n));
    EXPECT_TRUE(opened) << opened.error().text();
    networks.push_back(*std::move(opened));
  }
  return networks;
}

std::vector<NetworkMaker> makers() {
  std::vector<NetworkMaker> all;
  for (const std::string& name : network_names())
    all.push_back({name, [name](std::uint32_t count) { return networks_of(name, count); }, name != "ofi",
                   name == "ofi" ? 16 << 10 : SIZE_MAX});
  // UCX uses shared memory between processes of one host, and TCP between hosts without RDMA. A user's UCX
  // settings for messages must not break a promise.
  all.push_back({"ucx_tcp", [](std::uint32_t count) {
                   setenv("UCX_TLS", "tcp", 1);
                   setenv("UCX_RNDV_THRESH", "inf", 1);
                   auto networks = networks_of("ucx", count);
                   unsetenv("UCX_TLS");
                   unsetenv("UCX_RNDV_THRESH");
                   return networks;
                 }});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Modules, NetworkConformance, ::testing::ValuesIn(makers()),
                         [](const auto& made) { return made.param.name; });
INSTANTIATE_TEST_SUITE_P(Memory, NetworkConformance,
                         ::testing::Values(NetworkMaker{
                             "plain", [](std::uint32_t count) { return memory_networks(count); }}),
                         [](const auto& made) { return made.param.name; });
std::vector<NetworkMaker> faulty_makers() {
  std::vector<NetworkMaker> all;
  for (const std::uint64_t seed : muster::test::fault_seeds(11))
    all.push_back({fmt::format("seed{}", seed), [seed](std::uint32_t count) {
                     return memory_networks(
                         count,
                         {.seed = seed, .delay_percent = 30, .reorder_percent = 30, .late_percent = 30});
                   }});
  return all;
}
INSTANTIATE_TEST_SUITE_P(FaultyMemory, NetworkConformance, ::testing::ValuesIn(faulty_makers()),
                         [](const auto& made) { return made.param.name; });

TEST(Networks, SayWhatTheyAreOnceTheyWereTried) {
  const SteadyClock clock;
  for (const std::string& name : network_names()) {
    const auto tried = try_network(MUSTER_NETWORKS, name, clock, std::chrono::seconds(20));
    ASSERT_TRUE(tried) << tried.error().text();
    EXPECT_THAT(*tried, ::testing::ContainsRegex("[0-9]+\\.[0-9]+"));
    const auto late = try_network(MUSTER_NETWORKS, name, clock, Nanos(0));
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code(), Code::kTimeout) << late.error().text();
  }
}

// Goal:   a network publishes the address that was chosen, and no other.
// Method: that of loopback, whose version of IP is the length of an address of libfabric.
TEST(Networks, AreAtTheAddressThatWasChosen) {
  InterfaceChoice choice;
  choice.interface = "lo";
  const auto bytes_at = [&choice](const char* address) {
    choice.address = IpAddress::parse(address);
    const auto opened = open_network(MUSTER_NETWORKS, "ofi", NodeIndex(0), choice);
    EXPECT_TRUE(opened) << opened.error().text();
    const Bytes own = opened ? (*opened)->address() : Bytes();
    return std::string(reinterpret_cast<const char*>(own.data()), own.size());
  };
  EXPECT_THAT(bytes_at("127.0.0.3"), ::testing::HasSubstr(std::string("\x7f\0\0\x03", 4)));
  EXPECT_THAT(bytes_at("127.0.0.4"), ::testing::Not(::testing::HasSubstr(std::string("\x7f\0\0\x03", 4))));
  const std::string six = bytes_at("::1");
  EXPECT_THAT(six, ::testing::HasSubstr(std::string(15, '\0') + '\x01'));
  EXPECT_GT(six.size(), bytes_at("127.0.0.3").size()) << "an address of version 6";
  const auto tried = open_network(MUSTER_NETWORKS, "ucx", NodeIndex(0), choice);
  EXPECT_TRUE(tried) << tried.error().text();
}

// A network that UCX does not have is not opened with shared memory alone: no other node would reach it.
TEST(Networks, SayThatTheChosenInterfaceIsNotUsed) {
  InterfaceChoice choice;
  choice.interface = "eth7";
  choice.address = IpAddress::parse("10.66.0.1");
  choice.addresses = {*choice.address};
  const auto opened = open_network(MUSTER_NETWORKS, "ucx", NodeIndex(0), choice);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kUnsupported);
  EXPECT_THAT(opened.error().message(), ::testing::HasSubstr("interface eth7 with address 10.66.0.1"));
  EXPECT_THAT(opened.error().message(), ::testing::HasSubstr("cluster.interfaces"));
}

// Goal:   a node that is far behind its peer makes up in several attempts, and endpoints that were closed
// right
//         before their network ends do no harm.
TEST(Networks, OfUcxMakeUpInSteps) {
  const auto one = *open_network(MUSTER_NETWORKS, "ucx", NodeIndex(0));
  auto two = *open_network(MUSTER_NETWORKS, "ucx", NodeIndex(1));
  for (int times = 0; times < 100; ++times) ASSERT_TRUE(one->connect(NodeIndex(1), two->address()));
  const auto behind = two->connect(NodeIndex(0), one->address());
  ASSERT_FALSE(behind);
  EXPECT_EQ(behind.error().code(), Code::kNoResource) << behind.error().text();
  const std::vector<std::byte> address(one->address().begin(), one->address().end());
  const auto to_two = one->connect(NodeIndex(1), two->address());
  const auto to_one = two->connect(NodeIndex(0), address);
  ASSERT_TRUE(to_two && to_one) << to_one.error().text();
  std::vector<std::byte> sent(1'000'000, std::byte{7}), came(sent.size());
  Told sends, receives;
  ASSERT_TRUE((*to_one)->receive(1, came, receives).ok() && (*to_two)->send(1, sent, sends).ok());
  for (int turns = 0; turns < 1'000'000 && !(sends.over() && receives.over()); ++turns) {
    one->progress();
    two->progress();
  }
  EXPECT_TRUE(receives.over() && receives.status.ok()) << receives.status.text();
  EXPECT_TRUE(came == sent);
  const auto last = *open_network(MUSTER_NETWORKS, "ucx", NodeIndex(1));
  for (int times = 0; times < 10; ++times) ASSERT_TRUE(one->connect(NodeIndex(1), last->address()));
  EXPECT_TRUE(last->connect(NodeIndex(0), one->address()));
}

// Goal:   an address whose checksum is right and whose body is not one is refused.
TEST(Networks, OfUcxTakeNoAddressOfAnotherForm) {
  const auto one = *open_network(MUSTER_NETWORKS, "ucx", NodeIndex(0));
  const auto two = *open_network(MUSTER_NETWORKS, "ucx", NodeIndex(1));
  const std::vector<std::byte> address(one->address().begin(), one->address().end());
  Envelope head;
  std::memcpy(&head, address.data(), sizeof(head));
  const Bytes body = body_of_envelope(address);
  const auto with_size = [&](std::uint64_t own_bytes) {
    std::vector<std::byte> changed(body.begin(), body.end());
    std::memcpy(changed.data() + sizeof(std::uint64_t), &own_bytes, sizeof(own_bytes));
    return changed;
  };
  for (const std::vector<std::byte>& bad :
       {std::vector<std::byte>(), std::vector<std::byte>(15), std::vector<std::byte>(16), with_size(0),
        with_size(body.size()), with_size(body.size() - 15), with_size(UINT64_MAX)}) {
    const auto refused = two->connect(NodeIndex(0), seal_envelope(head, bad));
    ASSERT_FALSE(refused) << bad.size();
    EXPECT_EQ(refused.error().code(), Code::kBadArgument) << refused.error().text();
  }
  std::vector<std::byte> torn(body.begin(), body.end());
  torn.resize(torn.size() + 9);
  EXPECT_TRUE(two->connect(NodeIndex(0), seal_envelope(head, torn))) << "it tells nothing in those bytes";
}

TEST(Networks, SayWhyTheyAreNotThere) {
  const auto missing = open_network(MUSTER_NETWORKS, "pigeons", NodeIndex(0));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), ::testing::HasSubstr("pigeons.so"));
  EXPECT_EQ(open_network(MUSTER_NETWORKS, "ucx", NodeIndex(1 << 16)).error().code(), Code::kBadArgument);
}

}  // namespace
}  // namespace muster::transport::test
