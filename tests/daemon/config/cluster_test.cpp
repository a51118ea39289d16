#include "daemon/config/cluster.hpp"

#include "daemon/config/shape.hpp"

#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Source shipped(const std::string& name) {
  std::ifstream file(std::string(MUSTER_SOURCE_DIR) + "/configs/" + name, std::ios::binary);
  return Source(name, std::string(std::istreambuf_iterator<char>(file), {}));
}

TEST(Cluster, ReadsTheTwoNodeFile) {
  const auto cluster = parse_cluster(shipped("cluster.two-nodes.yaml"));
  ASSERT_TRUE(cluster) << cluster.error().text();
  EXPECT_EQ(cluster->name, "lab-a");
  ASSERT_EQ(cluster->nodes.size(), 1u);
  EXPECT_THAT(cluster->nodes[0].hosts.value, ElementsAre("node01", "node02"));
  EXPECT_EQ(cluster->nodes[0].device_kind, Cluster::DeviceKind::kHost);
  EXPECT_EQ(cluster->nodes[0].device_count.value, 4u);
  EXPECT_EQ(cluster->devices(), 8u);
  ASSERT_EQ(cluster->jobs.size(), 1u);
  const Cluster::JobEntry& job = cluster->jobs[0];
  EXPECT_EQ(job.name.value, "train");
  EXPECT_EQ(job.claim, ClaimRule::kOwner);
  EXPECT_FALSE(job.ranks);
  EXPECT_EQ(cluster->ranks(job), 8u);
  ASSERT_EQ(job.mesh.dims.size(), 5u);
  EXPECT_EQ(job.mesh.dims[0].value.dim, "pp");
  EXPECT_EQ(job.mesh.dims[2].value.dim, "dp_shard");
  EXPECT_EQ(job.mesh.dims[2].value.size, -1);
  ASSERT_EQ(job.mesh.flatten.size(), 1u);
  EXPECT_EQ(job.mesh.flatten[0].name.value, "dp_tp");
  ASSERT_EQ(job.mesh.flatten[0].dims.size(), 3u);
  EXPECT_EQ(job.mesh.flatten[0].dims[2].value, "tp");
  EXPECT_EQ(job.deadline, std::chrono::seconds(60));
}

TEST(Cluster, ReadsTheOneNodeFile) {
  const auto cluster = parse_cluster(shipped("cluster.one-node.yaml"));
  ASSERT_TRUE(cluster) << cluster.error().text();
  EXPECT_EQ(cluster->devices(), 4u);
}

TEST(Cluster, FillsWhatIsNotSaid) {
  const auto cluster =
      parse_cluster(Source("c.yaml",
                           "nodes:\n"
                           "  - {host: \"a[1-3]\", devices: {count: 2}}\n"
                           "  - {host: b, devices: {kind: cuda, count: 8}}\n"
                           "jobs:\n"
                           "  - {name: x, ranks: 6, claim: token, mesh: {dims: {domain: 6}}}\n"));
  ASSERT_TRUE(cluster) << cluster.error().text();
  EXPECT_EQ(cluster->name, "muster");
  EXPECT_EQ(cluster->network, "ucx");
  EXPECT_EQ(cluster->nodes[0].device_kind, Cluster::DeviceKind::kAuto);
  EXPECT_EQ(cluster->nodes[1].device_kind, Cluster::DeviceKind::kCuda);
  EXPECT_EQ(cluster->devices(), 14u);
  const Cluster::JobEntry& job = cluster->jobs[0];
  EXPECT_EQ(cluster->ranks(job), 6u);
  EXPECT_EQ(job.claim, ClaimRule::kToken);
  EXPECT_FALSE(job.deadline);
  EXPECT_FALSE(job.digests);
  EXPECT_FALSE(job.reproducible);
  EXPECT_TRUE(job.mesh.flatten.empty());
  EXPECT_TRUE(parse_cluster(Source("c.yaml", "nodes: [{host: a, devices: {count: 1}}]\n"))->jobs.empty());
}

TEST(Cluster, ReadsByWhichNetworkItsJobsReachOtherNodes) {
  const auto with = [](const std::string& network) {
    const auto cluster = parse_cluster(
        Source("c.yaml", fmt::format("cluster: {{network: {}}}\n"
                                     "nodes: [{{host: a, devices: {{count: 2}}}}]\n"
                                     "jobs:\n"
                                     "  - {{name: x, reproducible: true, mesh: {{dims: {{tp: 2}}}}}}\n",
                                     network)));
    EXPECT_TRUE(!cluster || cluster->jobs[0].reproducible);
    return cluster ? cluster->network : cluster.error().text();
  };
  EXPECT_EQ(with("ofi"), "ofi");
  EXPECT_EQ(with("ucx"), "ucx");
  EXPECT_EQ(with("none"), "");
  EXPECT_THAT(with("verbs"), HasSubstr("cluster.network"));
  const std::string_view choices = find_key(cluster_keys(), "cluster.network")->choices;
  EXPECT_EQ(choices, fmt::format("{}|none", fmt::join(kNetworks, "|")));
}

TEST(Cluster, ReadsWhatItsLinksCost) {
  const auto with = [](const std::string& cluster) {
    return parse_cluster(Source("c.yaml", fmt::format("cluster: {{{}}}\n"
                                                      "nodes: [{{host: a, devices: {{count: 2}}}}]\n",
                                                      cluster)));
  };
  EXPECT_EQ(with("name: a")->link, LinkCosts());
  EXPECT_EQ(with("link: {trip: 2us, rate: 12500000000B}")->link,
            (LinkCosts{.trip_ns = 2'000, .bytes_per_us = 12'500}));
  EXPECT_EQ(with("link: {rate: 1MiB}")->link, LinkCosts{.bytes_per_us = 1});
  for (const char* wrong : {"link: {trip: 0s}", "link: {trip: 2s}"})
    EXPECT_THAT(with(wrong).error().text(), HasSubstr("cluster.link.trip"));
  for (const char* wrong : {"link: {rate: 0B}", "link: {rate: 3}"})
    EXPECT_THAT(with(wrong).error().text(), HasSubstr("cluster.link.rate"));
}

TEST(Cluster, ReadsTheInterfacesOfItsNodes) {
  const auto cluster = parse_cluster(Source("c.yaml",
                                            "cluster: {interfaces: [eth0, ^docker, 10.1.0.0/16, fd00::/8]}\n"
                                            "nodes:\n"
                                            "  - {host: \"a[1-2]\", devices: {count: 2}}\n"
                                            "  - {host: b, devices: {count: 2}, interfaces: [=ens5]}\n"));
  ASSERT_TRUE(cluster) << cluster.error().text();
  const std::vector<Cluster::Host> hosts = cluster->hosts();
  EXPECT_THAT(hosts[1].interfaces, ElementsAre("eth0", "^docker", "10.1.0.0/16", "fd00::/8"));
  EXPECT_EQ(hosts[1].interfaces_key, "cluster.interfaces");
  EXPECT_THAT(hosts[2].interfaces, ElementsAre("=ens5"));
  EXPECT_EQ(hosts[2].interfaces_key, "nodes[1].interfaces");
}

TEST(Cluster, ReadsAddressesOfIpv6) {
  const auto with = [](const std::string& network, const std::string& second) {
    return parse_cluster(
        Source("c.yaml", fmt::format("cluster: {{network: {}}}\n"
                                     "nodes:\n"
                                     "  - {{host: a, address: \"2001:db8::1\", devices: {{count: 2}}}}\n"
                                     "  - {{host: b, address: \"{}\", devices: {{count: 2}}}}\n",
                                     network, second)));
  };
  ASSERT_TRUE(with("ucx", "2001:db8::2")) << with("ucx", "2001:db8::2").error().text();
  EXPECT_EQ(with("ucx", "2001:db8::2")->hosts()[1].address, "2001:db8::2");
  EXPECT_TRUE(with("ucx", "node02")) << "a name may have both";
  EXPECT_TRUE(with("none", "10.0.0.2")) << "daemons take both";
}

TEST(Cluster, ReadsTheTieBreakerOfItsHosts) {
  const auto with = [](const std::string& host) {
    const auto cluster =
        parse_cluster(Source("c.yaml", fmt::format("cluster: {{tie_breaker: {}}}\n"
                                                   "nodes: [{{host: \"a[1-2]\", devices: {{count: 2}}}}]\n",
                                                   host)));
    return cluster ? cluster->tie_breaker : cluster.error().text();
  };
  EXPECT_EQ(with("a2"), "a2");
  EXPECT_THAT(with("a3"),
              HasSubstr("cluster.tie_breaker: 'a3' is no host of `nodes`; name one of the hosts"));
}

// Goal: a floor that refuses a mesh can point at the degree that it refuses.
TEST(Cluster, LendsItsPlacesToLaterComplaints) {
  const auto cluster = parse_cluster(shipped("cluster.two-nodes.yaml"));
  ASSERT_TRUE(cluster);
  const Marked<Cluster::Degree>& tp = cluster->jobs[0].mesh.dims[4];
  EXPECT_EQ(cluster->diagnostic(tp.mark, tp.path, {"2 x 3 is not 8", "write 2"}).text(),
            "cluster.two-nodes.yaml:9:63: error: jobs[0].mesh.dims.tp: 2 x 3 is not 8; write 2\n"
            "        dims: {pp: 1, dp_replicate: 2, dp_shard: -1, cp: 1, tp: 2}  # in any order; dp_shard "
            "may be -1\n"
            "                                                                ^");
}

TEST(Cluster, BoundsTheHostsOfAllEntriesTogether) {
  std::string text = "nodes:\n";
  for (int i = 0; i < 4000; ++i)
    text += fmt::format("  - {{host: \"n{}x[0-65535]\", devices: {{count: 1}}}}\n", i);
  const auto cluster = parse_cluster(Source("c.yaml", text));
  ASSERT_FALSE(cluster);
  EXPECT_THAT(cluster.error().text(),
              HasSubstr("c.yaml:3:12: error: nodes[1].host: more than 65536 hosts in all entries together"));
  EXPECT_EQ(cluster.error().entries().size(), 1u);
}

}  // namespace
}  // namespace muster::config
