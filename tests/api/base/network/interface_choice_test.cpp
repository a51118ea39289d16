#include "api/base/network/interface_choice.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Devices = std::vector<NetworkDevice>;
using Texts = std::vector<std::string>;

NetworkDevice tcp(const std::string& name, const Texts& addresses, std::uint32_t mtu = 1500) {
  NetworkDevice device;
  device.name = name;
  device.mtu = mtu;
  device.loopback = name == "lo";
  for (const std::string& text : addresses) device.addresses.push_back(*Subnet::parse(text));
  return device;
}

NetworkDevice rdma(const std::string& name, const std::string& interface = "", std::uint32_t port = 1) {
  NetworkDevice device;
  device.name = name;
  device.kind = NetworkDevice::Kind::kRdma;
  device.port = port;
  device.interface = interface;
  return device;
}

NetworkDevice down(NetworkDevice device) {
  device.up = false;
  return device;
}

const NetworkDevice kLo = tcp("lo", {"127.0.0.1/8", "::1/128"}, 65536);

// A node with eight GPUs: a port of InfiniBand for each, a network of management, one of storage with a large
// MTU, a bridge of containers, and interfaces without addresses.
Devices node_with_eight_mlx5() {
  Devices devices{kLo, tcp("eth0", {"10.0.0.7/16", "fe80::1/64"}), tcp("docker0", {"172.17.0.1/16"}),
                  tcp("storage0", {"192.168.8.7/21"}, 9000), tcp("eno2", {})};
  for (int i = 0; i < 8; ++i) {
    devices.push_back(tcp("ib" + std::to_string(i), {"10.9." + std::to_string(i) + ".7/24"}, 4092));
  }
  for (int i = 0; i < 8; ++i) devices.push_back(rdma("mlx5_" + std::to_string(i), "ib" + std::to_string(i)));
  return devices;
}

std::string chosen(const Devices& devices, const Texts& addresses, const Texts& patterns = {}) {
  const auto choice = choose_interfaces(devices, {addresses, patterns, "cluster.interfaces"});
  if (!choice) return "error: " + choice.error().message();
  return choice->interface + (choice->address ? " " + choice->address->text() : "");
}

Texts rdma_of(const Devices& devices, const Texts& patterns) {
  const auto choice = choose_interfaces(devices, {{"10.0.0.7"}, patterns, "cluster.interfaces"});
  if (!choice) return {"error: " + choice.error().message()};
  Texts labels;
  for (const NetworkDevice& device : choice->rdma) labels.push_back(device.label());
  return labels;
}

TEST(InterfaceChoice, IsTheInterfaceWithTheAddressOfTheNode) {
  const Devices devices = node_with_eight_mlx5();
  EXPECT_EQ(chosen(devices, {"10.0.0.7"}), "eth0 10.0.0.7");
  EXPECT_EQ(chosen(devices, {"192.168.8.7"}), "storage0 192.168.8.7");
  EXPECT_EQ(chosen(devices, {"10.9.3.7"}), "ib3 10.9.3.7");
  EXPECT_EQ(chosen(devices, {"10.0.0.8", "10.0.0.7"}), "eth0 10.0.0.7") << "the first that is here";
}

TEST(InterfaceChoice, LeavesRdmaDevicesInUse) {
  const Devices devices = node_with_eight_mlx5();
  const Texts all{"mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1",
                  "mlx5_4:1", "mlx5_5:1", "mlx5_6:1", "mlx5_7:1"};
  EXPECT_EQ(rdma_of(devices, {}), all);
  EXPECT_EQ(rdma_of(devices, {"eth0"}), all) << "a name of an interface says nothing of them";
  EXPECT_EQ(rdma_of(devices, {"^docker"}), all);
  EXPECT_THAT(rdma_of(devices, {"^mlx5"}), IsEmpty());
  EXPECT_THAT(rdma_of(devices, {"^mlx5_0", "^mlx5_1:1", "^ib2", "^10.9.3.0/24"}),
              ElementsAre("mlx5_4:1", "mlx5_5:1", "mlx5_6:1", "mlx5_7:1"))
      << "by their names, with a port, by the interface of the port, and by its subnet";
  EXPECT_THAT(rdma_of(devices, {"mlx5_2", "mlx5_6"}), ElementsAre("mlx5_2:1", "mlx5_6:1"));
  EXPECT_THAT(
      rdma_of(devices, {"mlx5", "^mlx5_3", "eth0"}),
      ElementsAre("mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_4:1", "mlx5_5:1", "mlx5_6:1", "mlx5_7:1"));
  EXPECT_EQ(chosen(devices, {"10.0.0.7"}, {"mlx5_2"}), "eth0 10.0.0.7") << "TCP is as it was";
}

TEST(InterfaceChoice, TakesANameThatADeviceHasForNoBeginning) {
  const Devices devices{kLo,
                        tcp("eth1", {"10.1.0.1/24"}),
                        tcp("eth10", {"10.10.0.1/24"}),
                        rdma("mlx5_1"),
                        rdma("mlx5_10"),
                        rdma("mlx5_1", "", 2)};
  EXPECT_EQ(chosen(devices, {"10.10.0.1"}, {"eth1"}), "eth1 10.1.0.1");
  EXPECT_EQ(chosen(devices, {"10.10.0.1"}, {"eth"}), "eth10 10.10.0.1") << "of all that begin so, the node's";
  EXPECT_EQ(chosen(devices, {"10.10.0.1"}, {"^eth1"}), "eth10 10.10.0.1");
  EXPECT_THAT(rdma_of(devices, {"eth", "mlx5_1"}), ElementsAre("mlx5_1:1", "mlx5_1:2"));
  EXPECT_THAT(rdma_of(devices, {"eth", "mlx5_1:2"}), ElementsAre("mlx5_1:2"));
  EXPECT_THAT(chosen(devices, {"10.10.0.1"}, {"=eth"}), HasSubstr("'=eth' matches no network device"));
  EXPECT_EQ(chosen(devices, {"10.10.0.1"}, {"=eth1"}), "eth1 10.1.0.1");
}

TEST(InterfaceChoice, TakesAnInterfaceBySubnetAndThenItsAddressThere) {
  const Devices devices{kLo, tcp("eth0", {"10.66.0.1/24"}),
                        tcp("eth1", {"10.7.0.1/24", "10.77.0.1/24", "fd77::1/64"}, 9000)};
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"10.77.0.0/16"}), "eth1 10.77.0.1");
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"fd77::/16"}), "eth1 fd77::1");
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"10.7.0.1"}), "eth1 10.7.0.1") << "an address alone";
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"^10.66.0.0/16"}), "eth1 10.7.0.1");
  EXPECT_EQ(chosen(devices, {"fd66::1"}, {"eth1"}), "eth1 fd77::1") << "of the version of the node's address";
}

TEST(InterfaceChoice, KnowsBondsVlansAndBridgesByTheirAddresses) {
  const Devices devices{kLo,
                        tcp("eth0", {}),
                        tcp("eth1", {}),
                        tcp("bond0", {}),
                        tcp("bond0.100", {"10.100.0.3/24"}),
                        tcp("bond0.200", {"10.200.0.3/24"}, 9000),
                        tcp("br0", {"10.30.0.3/24"})};
  EXPECT_EQ(chosen(devices, {"10.100.0.3"}), "bond0.100 10.100.0.3");
  EXPECT_EQ(chosen(devices, {"10.100.0.3"}, {"bond0.200"}), "bond0.200 10.200.0.3");
  EXPECT_EQ(chosen(devices, {"10.30.0.3"}), "br0 10.30.0.3");
  EXPECT_THAT(chosen(devices, {"10.100.0.3"}, {"bond0"}), HasSubstr("bond0 (no address) cannot be used"));
}

TEST(InterfaceChoice, TakesIpv6AloneAndTheMeantOneOfBoth) {
  const Devices alone{kLo, tcp("eth0", {"fe80::1/64", "fd66::1/64"})};
  EXPECT_EQ(chosen(alone, {"fd66::1"}), "eth0 fd66::1");
  EXPECT_EQ(chosen(alone, {}, {"eth0"}), "eth0 fd66::1") << "not by the address of the link alone";
  const Devices both{kLo, tcp("eth0", {"10.66.0.1/24", "fd66::1/64"})};
  EXPECT_EQ(chosen(both, {"fd66::1"}), "eth0 fd66::1");
  EXPECT_EQ(chosen(both, {"10.66.0.1"}), "eth0 10.66.0.1");
  EXPECT_EQ(chosen(both, {"::ffff:10.66.0.1"}), "eth0 10.66.0.1");
}

TEST(InterfaceChoice, TakesTheSameAddressFromAnInterfaceThatIsUp) {
  const Devices devices{kLo, down(tcp("eth0", {"10.66.0.1/24"})), tcp("eth1", {"10.66.0.1/24"})};
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}), "eth1 10.66.0.1");
}

TEST(InterfaceChoice, TakesLoopbackWhereThatIsTheAddressOfTheNode) {
  const Devices devices{kLo, tcp("eth0", {"10.66.0.1/24"})};
  EXPECT_EQ(chosen(devices, {"127.0.0.3"}), "lo 127.0.0.3") << "all of 127.0.0.0/8 is there";
  EXPECT_EQ(chosen(devices, {"::1"}), "lo ::1");
  EXPECT_EQ(chosen(devices, {}, {"^docker0"}), "eth0 10.66.0.1") << "and never what '^' leaves";
}

TEST(InterfaceChoice, KeepsAnAddressToWhichRoutesLeadByAnyInterface) {
  const Devices devices{tcp("lo", {"127.0.0.1/8", "10.255.0.7/32"}), tcp("eth0", {"10.1.0.7/31"}),
                        tcp("eth1", {"10.2.0.7/31"})};
  EXPECT_EQ(chosen(devices, {"10.255.0.7"}), " 10.255.0.7");
  EXPECT_EQ(chosen(devices, {"10.255.0.7"}, {"eth1"}), "eth1 10.2.0.7");
}

TEST(InterfaceChoice, LeavesItToTheLibraryWhereNothingIsKnown) {
  const Devices devices{kLo, tcp("eth0", {"10.66.0.1/24"}), tcp("eth1", {"10.77.0.1/24"})};
  const auto choice = choose_interfaces(devices, {{"203.0.113.9"}, {}, "cluster.interfaces"});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->interface, "");
  EXPECT_FALSE(choice->address);
  EXPECT_THAT(choice->why, HasSubstr("203.0.113.9"));
  EXPECT_EQ(chosen(devices, {}), "");
}

TEST(InterfaceChoice, TakesWhatIsLeftIfItIsOne) {
  const Devices devices{kLo, tcp("eth0", {"10.66.0.1/24"}), tcp("eth1", {"10.77.0.1/24"}),
                        tcp("docker0", {"172.17.0.1/16"})};
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"^docker0"}), "eth0 10.66.0.1");
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"^docker0", "^eth0"}), "eth1 10.77.0.1");
  EXPECT_THAT(
      chosen(devices, {"10.66.0.1"}, {"^eth0"}),
      HasSubstr("cluster.interfaces: eth1 (10.77.0.1), docker0 (172.17.0.1) are left, and the address "
                "10.66.0.1 of this node is on none of them; name one"));
  EXPECT_THAT(
      chosen(devices, {"10.66.0.1"}, {"^eth", "^docker"}),
      HasSubstr("cluster.interfaces: no interface is left; there are lo (127.0.0.1, ::1), eth0 (10.66"));
}

TEST(InterfaceChoice, NamesInterfaceAddressAndSettingOfWhatIsWrong) {
  const Devices devices{kLo, tcp("eth0", {"10.66.0.1/24"}), down(tcp("eth1", {"10.77.0.1/24"})),
                        rdma("mlx5_0")};
  EXPECT_EQ(
      chosen(devices, {"10.66.0.1"}, {"eht0"}),
      "error: cluster.interfaces: 'eht0' matches no network device; there are lo (127.0.0.1, ::1), eth0 "
      "(10.66.0.1), eth1 (down, 10.77.0.1), mlx5_0:1");
  EXPECT_THAT(chosen(devices, {"10.66.0.1"}, {"10.78.0.0/16"}), HasSubstr("'10.78.0.0/16' matches no"));
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"eth1"}),
            "error: cluster.interfaces: eth1 (down, 10.77.0.1) cannot be used; name an interface that is up "
            "and has an address, and do not exclude it");
  EXPECT_THAT(chosen(devices, {"10.66.0.1"}, {"eth0", "^eth0"}),
              HasSubstr("eth0 (10.66.0.1) cannot be used"));
  EXPECT_THAT(chosen(devices, {"10.66.0.1"}, {"mlx5_0", "eht0"}), HasSubstr("'eht0' matches no"));
  const auto own = choose_interfaces(devices, {{}, {"ib0"}, "nodes[1].interfaces"});
  EXPECT_THAT(own.error().message(), HasSubstr("nodes[1].interfaces: 'ib0'"));
  EXPECT_EQ(own.error().code(), Code::kConfig);
}

// Goal:   a subnet means an address, also on the interface that carries the node's own: others reach the node
//         where the setting says.
TEST(InterfaceChoice, TakesTheAddressInTheSubnetThoughAnotherIsTheNodes) {
  const Devices devices{kLo, tcp("eth0", {"10.66.0.1/24", "10.77.0.1/24", "fd66::1/64"})};
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"10.77.0.0/24"}), "eth0 10.77.0.1");
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"fd66::/64"}), "eth0 fd66::1");
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"10.77.0.0/24", "eth0"}), "eth0 10.66.0.1")
      << "the name means any";
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"10.64.0.0/12"}), "eth0 10.66.0.1")
      << "of both in it, the node's";
  EXPECT_EQ(chosen(devices, {"fd66::1"}, {"^10.88.0.0/16"}), "eth0 fd66::1")
      << "an exclusion means no address";
}

// Goal:   nodes with eight mlx5 of Ethernet (RoCE), of which some are bonded, one is down, and the first two
//         ports belong to storage.
TEST(InterfaceChoice, KnowsNodesWithEightMlx5OfEthernet) {
  Devices devices{kLo, tcp("bond0", {"10.0.0.7/16"})};
  for (int i = 0; i < 8; ++i) {
    const std::string name = "ens" + std::to_string(10 + i) + "np0";
    devices.push_back(tcp(name, {"10.20." + std::to_string(i) + ".7/24"}, 9000));
    devices.push_back(rdma("mlx5_" + std::to_string(i), name));
  }
  devices.push_back(rdma("mlx5_bond_0", "bond0"));
  devices[13] = down(devices[13]);  // mlx5_5
  EXPECT_EQ(devices[13].name, "mlx5_5");
  EXPECT_EQ(chosen(devices, {"10.0.0.7"}), "bond0 10.0.0.7");
  EXPECT_THAT(rdma_of(devices, {"^10.20.0.0/23"}),
              ElementsAre("mlx5_2:1", "mlx5_3:1", "mlx5_4:1", "mlx5_6:1", "mlx5_7:1", "mlx5_bond_0:1"))
      << "two subnets of one prefix";
  EXPECT_THAT(rdma_of(devices, {"mlx5_bond"}), ElementsAre("mlx5_bond_0:1"));
  EXPECT_THAT(rdma_of(devices, {"mlx5_5"}), IsEmpty()) << "it is down, and no other was named";
  EXPECT_THAT(rdma_of(devices, {"mlx5_", "^=mlx5_bond_0", "^ens1"}), IsEmpty())
      << "'^' wins, by the interface too";
  EXPECT_THAT(rdma_of(devices, {"^bond"}), ElementsAre(HasSubstr("name one")))
      << "bond0 had the node's address, and eight others are left";
  EXPECT_EQ(chosen(devices, {"10.0.0.7"}, {"^bond", "ens13"}), "ens13np0 10.20.3.7");
}

// Goal:   nodes with a dual-port HCA, whose ports are told apart.
TEST(InterfaceChoice, KnowsThePortsOfOneDevice) {
  const Devices devices{kLo, tcp("eth0", {"10.0.0.7/16"}), tcp("ib0", {"10.9.0.7/24"}), rdma("mlx4_0", "ib0"),
                        rdma("mlx4_0", "eth0", 2)};
  EXPECT_THAT(rdma_of(devices, {}), ElementsAre("mlx4_0:1", "mlx4_0:2"));
  EXPECT_THAT(rdma_of(devices, {"^mlx4_0:1"}), ElementsAre("mlx4_0:2"));
  EXPECT_THAT(rdma_of(devices, {"=mlx4_0:1"}), ElementsAre("mlx4_0:1"));
  EXPECT_THAT(rdma_of(devices, {"^ib0"}), ElementsAre("mlx4_0:2"));
  EXPECT_THAT(rdma_of(devices, {"mlx4_0", "^mlx4_0:2"}), ElementsAre("mlx4_0:1"));
}

// Goal:   names that launchers and clouds use, each beside one that only looks alike.
TEST(InterfaceChoice, TakesNamesPrefixesAndExclusionsAsNcclAndMpiDo) {
  const Devices devices{kLo,
                        tcp("enp1s0", {"10.66.0.1/24"}),
                        tcp("enp1s0.7", {"10.77.0.1/24"}),
                        tcp("enp10s0", {"10.88.0.1/24"}),
                        tcp("virbr0", {"192.168.122.1/24"}),
                        tcp("docker0", {"172.17.0.1/16"}),
                        tcp("br-3f2a", {"172.18.0.1/16"})};
  EXPECT_EQ(chosen(devices, {"10.1.1.1"}, {"enp1s0"}), "enp1s0 10.66.0.1") << "a name, and no beginning";
  EXPECT_EQ(chosen(devices, {"10.77.0.1"}, {"enp1"}), "enp1s0.7 10.77.0.1") << "of the prefix, the node's";
  EXPECT_EQ(chosen(devices, {"10.1.1.1"}, {"enp10", "enp1s0"}), "enp10s0 10.88.0.1") << "in their order";
  EXPECT_EQ(chosen(devices, {"10.1.1.1"}, {"^docker", "^br-", "^virbr", "^enp1s0", "^enp1s0.7"}),
            "enp10s0 10.88.0.1");
  EXPECT_EQ(chosen(devices, {"10.1.1.1"}, {"enp", "^enp1s0", "^10.88.0.0/16"}), "enp1s0.7 10.77.0.1");
  EXPECT_EQ(chosen(devices, {"172.17.0.1"}, {"^172.16.0.0/12", "enp1s0.7"}), "enp1s0.7 10.77.0.1")
      << "though docker0 has the address that the node was given";
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"=enp1s0"}), "enp1s0 10.66.0.1");
  EXPECT_THAT(chosen(devices, {"10.66.0.1"}, {"=enp1"}), HasSubstr("'=enp1' matches no network device"));
}

// Goal:   IPv6 beside IPv4, in subnets, as link-local alone, and as the loopback interface's.
TEST(InterfaceChoice, TakesIpv6BySubnetAndNeverALinksOwn) {
  const Devices devices{kLo, tcp("eth0", {"fe80::a/64", "2001:db8:0:1::7/64"}),
                        tcp("eth1", {"fe80::b/64", "10.77.0.1/24", "2001:db8:0:2::7/64"}),
                        tcp("eth2", {"fe80::c/64"})};
  EXPECT_EQ(chosen(devices, {"2001:db8:0:2::7"}), "eth1 2001:db8:0:2::7");
  EXPECT_EQ(chosen(devices, {"10.1.1.1"}, {"2001:db8:0:1::/64"}), "eth0 2001:db8:0:1::7");
  EXPECT_EQ(chosen(devices, {"2001:db8:9::1"}, {"eth1"}), "eth1 2001:db8:0:2::7") << "the node's version";
  EXPECT_EQ(chosen(devices, {"10.1.1.1"}, {"^2001:db8::/63"}), "eth1 10.77.0.1") << "eth2 reaches nobody";
  EXPECT_THAT(chosen(devices, {"10.1.1.1"}, {"eth2"}), HasSubstr("eth2 (no address) cannot be used"));
  EXPECT_EQ(chosen(devices, {"10.1.1.1"}, {"fe80::/10"}), "eth0 2001:db8:0:1::7") << "all have one of these";
}

// Goal:   an error names interface, address and setting whichever of them is at fault.
TEST(InterfaceChoice, NamesWhatIsAtFault) {
  const Devices devices{kLo, tcp("eth0", {"10.66.0.1/24", "fd66::1/64"}), down(tcp("ib0", {"10.9.0.7/24"})),
                        tcp("tun0", {"10.8.0.2/32"})};
  const auto why = [&devices](const Texts& patterns, const char* setting) {
    const auto choice = choose_interfaces(devices, {{"10.99.0.1"}, patterns, setting});
    return choice ? "" : choice.error().message();
  };
  EXPECT_THAT(why({"ib"}, "nodes[2].interfaces"),
              HasSubstr("nodes[2].interfaces: ib0 (down, 10.9.0.7) cannot be used"));
  EXPECT_THAT(why({"10.9.0.0/24"}, "cluster.interfaces"),
              HasSubstr("cluster.interfaces: ib0 (down, 10.9.0.7) cannot be used"));
  EXPECT_THAT(why({"^tun0", "^eth"}, "nodes[0].interfaces"),
              HasSubstr("nodes[0].interfaces: no interface is left; there are lo (127.0.0.1, ::1), eth0 "
                        "(10.66.0.1, fd66::1), ib0 (down, 10.9.0.7), tun0 (10.8.0.2)"));
  EXPECT_THAT(
      why({"^ib0"}, "cluster.interfaces"),
      HasSubstr("eth0 (10.66.0.1, fd66::1), tun0 (10.8.0.2) are left, and the address 10.99.0.1 of this node "
                "is on none of them; name one"));
  EXPECT_THAT(why({"eth0", "^fd66::/16"}, "cluster.interfaces"),
              HasSubstr("eth0 (10.66.0.1, fd66::1) cannot be used"));
  EXPECT_THAT(why({"wlan0", "10.7.0.0/16"}, "cluster.interfaces"), HasSubstr("'wlan0' matches no"));
}

TEST(InterfaceChoice, AllowsNamesOfOtherNodesIfOneMatches) {
  const Devices devices{kLo, tcp("ens5", {"10.66.0.1/24"})};
  EXPECT_EQ(chosen(devices, {"10.66.0.1"}, {"eth0", "ens5"}), "ens5 10.66.0.1");
}

TEST(InterfaceChoice, KnowsAllAddressesOfTheInterface) {
  const Devices devices{kLo, tcp("eth0", {"10.66.0.1/24", "fe80::1/64", "10.67.0.1/24", "fd66::1/64"})};
  const auto choice = choose_interfaces(devices, {{"10.67.0.1"}, {}, "x"});
  Texts addresses;
  for (const IpAddress& address : choice->addresses) addresses.push_back(address.text());
  EXPECT_THAT(addresses, ElementsAre("10.67.0.1", "10.66.0.1", "fd66::1"));
}

TEST(InterfaceChoice, SaysForPeopleWhatItIs) {
  const auto choice = choose_interfaces(node_with_eight_mlx5(), {{"192.168.8.7"}, {"mlx5_1"}, "x"});
  EXPECT_EQ(choice->text(), "storage0 (192.168.8.7, MTU 9000), mlx5_1:1");
  EXPECT_EQ(InterfaceChoice().text(), "what the library chooses");
}

TEST(InterfacePattern, IsANameABeginningOrASubnet) {
  for (const char* good : {"eth0", "eth", "=eth0", "^docker0", "^=eth0", "10.0.0.0/8", "^fd00::/8",
                           "10.0.0.1", "bond0.100", "mlx5_0:1", "enp65s0f0np0"})
    EXPECT_TRUE(check_interface_pattern(good).ok()) << good;
  const auto why = [](const char* pattern) { return check_interface_pattern(pattern).message(); };
  EXPECT_THAT(why("eth0,eth1"), HasSubstr("write a list"));
  EXPECT_THAT(why("^docker,lo"), HasSubstr("each with its own '^'"));
  EXPECT_THAT(why("10.0.0.0/40"), HasSubstr("'10.0.0.0/40' is no subnet"));
  EXPECT_THAT(why("eth0/24"), HasSubstr("is no subnet"));
  for (const char* bad : {"", "^", "=", "^^eth0", "eth 0", "==eth0"})
    EXPECT_THAT(why(bad), HasSubstr("names no interface; write a name (eth0)")) << bad;
}

}  // namespace
}  // namespace muster
