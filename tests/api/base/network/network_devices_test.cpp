#include "api/base/network/network_devices.hpp"

#include "tests/support/folder.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;

TEST(NetworkDevices, HaveLoopbackWithItsAddress) {
  const auto devices = network_devices("/nowhere");
  ASSERT_TRUE(devices) << devices.error().text();
  const auto lo =
      std::find_if(devices->begin(), devices->end(), [](const auto& each) { return each.loopback; });
  ASSERT_NE(lo, devices->end());
  EXPECT_EQ(lo->kind, NetworkDevice::Kind::kTcp);
  if (!lo->up) GTEST_SKIP() << "the loopback interface is down here";
  const Subnet own{*IpAddress::parse("127.0.0.1"), 8};
  EXPECT_THAT(lo->addresses, ::testing::Contains(own));
  EXPECT_GT(lo->mtu, 0u);
}

// Goal:   the ports of RDMA devices are found as the kernel shows them, with state and interface.
// Method: files as those of two devices with one port and one with two.
TEST(NetworkDevices, HavePortsOfRdmaDevices) {
  const test::Folder folder;
  const auto write = [&folder](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder.path() + "/" + path).parent_path());
    folder.write(path, text);
  };
  write("mlx5_1/ports/1/state", "4: ACTIVE\n");
  write("mlx5_1/ports/1/gid_attrs/ndevs/0", "eth2\n");
  write("mlx5_0/ports/1/state", "1: DOWN\n");
  std::filesystem::create_directories(folder.path() + "/mlx5_0/device/net/ib0");
  write("mlx4_0/ports/2/state", "4: ACTIVE\n");
  write("mlx4_0/ports/1/state", "4: ACTIVE\n");
  const auto devices = network_devices(folder.path());
  ASSERT_TRUE(devices) << devices.error().text();
  std::vector<std::string> found;
  for (const NetworkDevice& device : *devices)
    if (device.kind == NetworkDevice::Kind::kRdma)
      found.push_back(device.label() + (device.up ? " up " : " down ") + device.interface);
  EXPECT_THAT(
      found, ::testing::ElementsAre("mlx4_0:1 up ", "mlx4_0:2 up ", "mlx5_0:1 down ib0", "mlx5_1:1 up eth2"));
}

TEST(NetworkDevices, AreLeftToTheLibraryWhereItsOwnVariableNamesThem) {
  const InterfaceRule rule{{}, {"eth7"}, "nodes[0].interfaces"};
  const auto wrong = interfaces_of_network("ucx", rule);
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message(), HasSubstr("nodes[0].interfaces: 'eth7'"));
  setenv("UCX_NET_DEVICES", "eth1", 1);
  const auto said = interfaces_of_network("ucx", rule);
  unsetenv("UCX_NET_DEVICES");
  ASSERT_TRUE(said) << said.error().text();
  EXPECT_EQ(said->interface, "");
  EXPECT_EQ(said->why, "UCX_NET_DEVICES=eth1 of the daemon's environment wins over nodes[0].interfaces");
}

// Goal:   each library's own variable wins for that library alone, and what is said names what it wins over.
TEST(NetworkDevices, AreLeftToTheLibraryWhoseVariableItIs) {
  const InterfaceRule rule{{"127.0.0.1"}, {"=lo"}, "cluster.interfaces"};
  setenv("FI_TCP_IFACE", "eth1", 1);
  const auto ofi = interfaces_of_network("ofi", rule);
  const auto ucx = interfaces_of_network("ucx", rule);
  const auto tests = interfaces_of_network("", rule);
  const auto plain = interfaces_of_network("ofi", {{"127.0.0.1"}, {}, "cluster.interfaces"});
  unsetenv("FI_TCP_IFACE");
  ASSERT_TRUE(ofi && ucx && tests && plain);
  EXPECT_EQ(ofi->interface, "");
  EXPECT_FALSE(ofi->address);
  EXPECT_EQ(ofi->why, "FI_TCP_IFACE=eth1 of the daemon's environment wins over cluster.interfaces");
  EXPECT_EQ(plain->why, "FI_TCP_IFACE=eth1 of the daemon's environment wins") << "there is no setting";
  EXPECT_EQ(ucx->interface, "lo");
  EXPECT_EQ(tests->interface, "lo") << "the network of the tests has no variable";
  setenv("UCX_NET_DEVICES", "all", 1);
  EXPECT_EQ(interfaces_of_network("ofi", rule)->interface, "lo");
  EXPECT_EQ(interfaces_of_network("ucx", rule)->interface, "");
  unsetenv("UCX_NET_DEVICES");
}

}  // namespace
}  // namespace muster
