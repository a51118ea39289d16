// The suites on the transports of a MemoryJob, and collectives over 64 nodes on it.
#include "tests/transport/memory_job.hpp"

#include "tests/support/fault_seeds.hpp"
#include "tests/support/manual_clock.hpp"
#include "tests/support/property_cases.hpp"
#include "tests/transport/job_links_conformance.hpp"
#include "tests/transport/memory_network.hpp"
#include "tests/transport/span/span_bench.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace muster::transport::test {
namespace {

constexpr std::uint32_t kManyNodes = 64;
constexpr Nanos kDelay = std::chrono::milliseconds(2);

// A job, its clock, and a cluster of its nodes. Time goes on to the next packet when no node has anything to
// do.
struct PlayedJob {
  PlayedJob(std::uint32_t nodes, JobFaults faults) : job(nodes, clock, faults) {}
  void go_on() {
    if (const auto next = job.next()) clock.advance(std::max(*next - clock.now(), Nanos(0)));
  }
  TransportOpener opener() {
    return [this](const SpanningOptions& options) { return job.open(options.here); };
  }

  muster::test::ManualClock clock;
  MemoryJob job;
};

std::unique_ptr<SpanCluster> cluster_of(const std::shared_ptr<PlayedJob>& played, std::uint32_t nodes) {
  return std::make_unique<SpanCluster>(nodes, played->opener(), [played] { played->go_on(); });
}

// ---- the links ---------------------------------------------------------------------------------

LinkedNodes linked_job(std::uint64_t seed) {
  const auto played = std::make_shared<PlayedJob>(3, JobFaults{.seed = seed, .delay_max = kDelay});
  auto cluster = cluster_of(played, 3);
  SpanCluster* const nodes = cluster.get();
  return {std::move(cluster),
          [played, nodes](std::uint32_t node) { nodes->restart(node, played->opener()); }};
}
LinkedNodes linked_networks(std::uint64_t seed) {
  const auto hub = std::make_shared<MemoryHub>(
      MemoryFaults{.seed = seed, .delay_percent = 30, .reorder_percent = 30, .late_percent = 20});
  auto cluster = std::make_unique<SpanCluster>(
      3,
      [&](std::uint32_t count) {
        std::vector<std::unique_ptr<Network>> networks;
        for (std::uint32_t i = 0; i < count; ++i) networks.push_back(hub->open(NodeIndex(i)));
        return networks;
      },
      true);
  SpanCluster* const nodes = cluster.get();
  return {std::move(cluster),
          [hub, nodes](std::uint32_t node) { nodes->restart(node, hub->open(NodeIndex(node))); }};
}

std::vector<ClusterFactory> linked() {
  std::vector<ClusterFactory> all;
  for (const std::uint64_t seed : muster::test::fault_seeds(3)) {
    all.push_back({fmt::format("Job{}", seed), [seed] { return linked_job(seed); }});
    all.push_back({fmt::format("Spanning{}", seed), [seed] { return linked_networks(seed); }});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Linked, JobLinksConformance, ::testing::ValuesIn(linked()), cluster_name);

// ---- the communicators -------------------------------------------------------------------------

// The members of an operation on nodes that the seed draws, several on some.
Placing anywhere(std::uint64_t seed, std::uint32_t nodes) {
  return [random = math::test::Random(seed), nodes](std::uint32_t ranks) mutable {
    NodesOf layout;
    for (std::uint32_t member = 0; member < ranks; ++member)
      layout.push_back(static_cast<std::uint32_t>(random.below(nodes)));
    return layout;
  };
}

std::unique_ptr<Bench> bench(std::uint64_t seed, std::uint32_t nodes, std::int32_t ranks_max) {
  const auto played = std::make_shared<PlayedJob>(nodes, JobFaults{.seed = seed, .delay_max = kDelay});
  SpanBench::Options options{
      .nodes = nodes, .placing = anywhere(seed, nodes), .usual_cases = 2'000, .ranks_max = ranks_max};
  return std::make_unique<SpanBench>(cluster_of(played, nodes), std::move(options));
}

INSTANTIATE_TEST_SUITE_P(Job, CommunicatorConformance,
                         ::testing::Values(BenchFactory{"TwoNodes",
                                                        [] { return bench(1, 2, kRanksDrawnMax); }},
                                           BenchFactory{"FiveNodes", [] { return bench(2, 5, 16); }}),
                         bench_name);

// Goal:   random collectives of 64 nodes give the bits of one node, with packets in any order.
TEST(MemoryJob, CarriesRandomCollectivesOver64Nodes) {
  const std::uint64_t cases = muster::test::property_cases(2'000);
  const auto played = std::make_shared<PlayedJob>(kManyNodes, JobFaults{.seed = 3, .delay_max = kDelay});
  SpanBench all(cluster_of(played, kManyNodes),
                {.nodes = kManyNodes, .placing = anywhere(3, kManyNodes), .ranks_max = kManyNodes});
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    const Shape shape = all.random_case(seed);
    const Case made = make_case(shape);
    std::vector<std::byte> arena = made.before;
    const std::vector<Share> shares = *shares_of(shape.collective, shape.ranks, made.members, arena.data());
    ASSERT_TRUE(all.launch(shape.collective, shape.ranks, pointers_to(shares)).ok()) << shape.text();
    ASSERT_TRUE(all.finish().ok()) << "seed " << seed << ": " << shape.text();
    ASSERT_TRUE(arena == made.after) << "seed " << seed << ": " << shape.text();
  }
}

// Goal:   whatever link breaks, and when, each launch ends: well with the right sum, or with the loss.
// Method: the seed breaks one packet in a few.
TEST(MemoryJob, EndsEachLaunchWhenLinksBreak) {
  constexpr std::uint32_t kNodes = 5;
  std::uint64_t failed = 0, good = 0;
  for (std::uint64_t seed = 1; seed <= muster::test::property_cases(300); ++seed) {
    const auto played = std::make_shared<PlayedJob>(
        kNodes, JobFaults{.seed = seed, .delay_max = kDelay, .breaks_one_in = 60});
    std::vector<JobTransport> nodes;
    for (std::uint32_t n = 0; n < kNodes; ++n) nodes.push_back(played->job.open(NodeIndex(n)));
    for (std::uint32_t one = 0; one < kNodes; ++one)
      for (std::uint32_t other = 0; other < kNodes; ++other)
        if (one != other)
          ASSERT_TRUE(nodes[one].links->connect(NodeIndex(other), nodes[other].links->address(), 0).ok());
    Span span;
    span.group = 1;
    span.nodes.clear();
    for (std::uint32_t n = 0; n < kNodes; ++n) span.nodes.emplace_back(n), span.node_of.push_back(n);
    std::vector<std::unique_ptr<Communicator>> communicators;
    for (span.here = 0; span.here < kNodes; ++span.here)
      communicators.push_back(*nodes[span.here].factories.front()->open(span, {}));
    SpanFlight flight;
    const auto alone = [](std::uint32_t member, std::uint32_t) { return member; };
    launch_on_all(flight, shape_of(MUSTER_ALL_REDUCE, MUSTER_I32, MUSTER_SUM, kNodes, 40, Place::kApart),
                  alone, communicators, {{1, 0, -1, -1}, 1, 1});
    for (int turn = 0; turn < 10'000 && !flight.over(); ++turn) {
      played->go_on();
      for (JobTransport& node : nodes) node.factories.front()->progress();
    }
    ASSERT_TRUE(flight.over()) << "seed " << seed;
    ASSERT_TRUE(flight.is_right_where_ok(alone)) << "seed " << seed;
    const Status first = flight.launched.first_failure();
    first.ok() ? ++good : ++failed;
    if (!first.ok()) ASSERT_EQ(first.code(), Code::kPeerLost) << "seed " << seed << ": " << first.text();
  }
  EXPECT_GT(failed, 0u);
  EXPECT_GT(good, 0u);
}

}  // namespace
}  // namespace muster::transport::test
