// The suite of communicators over several nodes, on each network, with members spread over the nodes in
// every way.
#include "transport/span/spanning_transport.hpp"

#include "tests/support/fault_seeds.hpp"
#include "tests/transport/memory_network.hpp"
#include "tests/transport/span/span_bench.hpp"
#include "transport/endpoint/library.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace muster::transport::test {
namespace {

NetworkOpener of_library(const std::string& name) {
  return [name](std::uint32_t count) {
    std::vector<std::unique_ptr<Network>> networks;
    for (std::uint32_t i = 0; i < count; ++i)
      networks.push_back(*open_network(MUSTER_NETWORKS, name, NodeIndex(i)));
    return networks;
  };
}
NetworkOpener in_memory(MemoryFaults faults) {
  return [faults](std::uint32_t count) { return memory_networks(count, faults); };
}
constexpr MemoryFaults kLate{
    .delay_percent = 30, .reorder_percent = 30, .late_percent = 20, .refuse_percent = 5};

// The first half on one node, the rest on two others; so nodes have unequal numbers of members.
std::uint32_t unequally(std::uint32_t member, std::uint32_t ranks) {
  return member < (ranks + 1) / 2 ? 0 : 1 + member % 2;
}

BenchFactory bench_of(std::string name, NetworkOpener networks, SpanBench::Options options) {
  return {std::move(name), [=] { return std::make_unique<SpanBench>(networks, options); }};
}
constexpr std::size_t kSomeDirect = 256;
constexpr std::size_t kAllDirect = 1;

constexpr std::uint32_t kNodes = 4;
constexpr std::uint32_t kRanksOfNode = 4;  // at most

// The layout of nodes that have so many members each: node by node, or in turn. `first`: the first of them.
NodesOf laid_out(const std::vector<std::uint32_t>& counts, bool in_turn, std::uint32_t first) {
  NodesOf layout;
  if (!in_turn) {
    for (std::uint32_t n = 0; n < counts.size(); ++n)
      layout.insert(layout.end(), counts[n], (first + n) % kNodes);
    return layout;
  }
  for (std::uint32_t turn = 0; turn < kRanksOfNode; ++turn)
    for (std::uint32_t n = 0; n < counts.size(); ++n)
      if (turn < counts[n]) layout.push_back((first + n) % kNodes);
  return layout;
}

// One to four nodes with one to four members each, at random.
Placing random_layouts(std::uint64_t seed) {
  return [random = math::test::Random(seed)](std::uint32_t ranks) mutable {
    const std::uint32_t least = (ranks + kRanksOfNode - 1) / kRanksOfNode;
    const auto nodes = least + random.below(std::min(ranks, kNodes) - least + 1);
    std::vector<std::uint32_t> counts(nodes, 1);
    for (auto left = ranks - static_cast<std::uint32_t>(nodes); left > 0;)
      if (std::uint32_t& one = counts[random.below(nodes)]; one < kRanksOfNode) ++one, --left;
    return laid_out(counts, random.below(2) == 0, static_cast<std::uint32_t>(random.below(kNodes)));
  };
}

SpanBench::Options any_layout(bool reproducible, std::uint64_t cases,
                              std::size_t direct_from_bytes = SpanningOptions().direct_from_bytes) {
  return {.nodes = kNodes,
          .placing = random_layouts(3),
          .reproducible = reproducible,
          .usual_cases = cases,
          .direct_from_bytes = direct_from_bytes,
          .ranks_max = static_cast<std::int32_t>(kNodes * kRanksOfNode)};
}

INSTANTIATE_TEST_SUITE_P(
    Spanning, CommunicatorConformance,
    ::testing::Values(bench_of("UcxAnyLayout", of_library("ucx"), any_layout(true, 1'200, kSomeDirect)),
                      bench_of("OfiAnyLayout", of_library("ofi"), any_layout(true, 400))),
    bench_name);
std::vector<BenchFactory> delayed() {
  std::vector<BenchFactory> all;
  for (const std::uint64_t seed : muster::test::fault_seeds(5)) {
    MemoryFaults late = kLate;
    late.seed = seed;
    all.push_back(bench_of(fmt::format("Delayed{}", seed), in_memory(late),
                           {.nodes = 3,
                            .placing = spread_by(unequally),
                            .usual_cases = 1'000,
                            .direct_from_bytes = kAllDirect}));
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Faulty, CommunicatorConformance, ::testing::ValuesIn(delayed()), bench_name);

// Over every layout, in jobs that do not promise the bits of one node.
class Layouts : public CommunicatorConformance {};
INSTANTIATE_TEST_SUITE_P(Spanning, Layouts,
                         ::testing::Values(bench_of("Ucx", of_library("ucx"),
                                                    any_layout(false, 500, kSomeDirect)),
                                           bench_of("Ofi", of_library("ofi"), any_layout(false, 300))),
                         bench_name);

// Goal:   random cases by the algorithms that combine the members of a node before nodes exchange anything.
TEST_P(Layouts, HoldForRandomCases) {
  ASSERT_TRUE(holds_for_random_cases());
}

// Goal:   every operation over every number of nodes, with every number of members on each.
// Method: all layouts of one to four nodes with one to four members each, in both orders. Dtype, operator and
//         length are drawn. MUSTER_CONFORMANCE=full tries all 680; else every seventeenth.
TEST_P(Layouts, CarryEveryOperation) {
  auto& bench = static_cast<SpanBench&>(*bench_);
  const std::uint64_t step = takes_all() ? 1 : 17;
  std::uint64_t number = 0;
  for (std::uint32_t nodes = 1; nodes <= kNodes; ++nodes)
    for (std::uint32_t code = 0; code < 1U << (2 * nodes); ++code)
      for (const bool in_turn : {false, true}) {
        if (++number % step != 0) continue;
        std::vector<std::uint32_t> counts;
        for (std::uint32_t n = 0; n < nodes; ++n) counts.push_back(1 + (code >> (2 * n)) % kRanksOfNode);
        const NodesOf layout = laid_out(counts, in_turn, code % kNodes);
        bench.place([&](std::uint32_t) { return layout; });
        math::test::Random random(number);
        for (const muster_op op : kOps) {
          if (is_transfer(op) && layout.size() == 1) continue;
          const auto dtype = math::test::kDtypes[random.below(std::size(math::test::kDtypes))];
          const auto redops = redops_of(op);
          const Shape shape = shape_of(op, dtype, redops[random.below(redops.size())],
                                       static_cast<std::int32_t>(layout.size()), random.below(3000),
                                       random.below(2) == 0 ? Place::kApart : Place::kInPlace);
          ASSERT_TRUE(conforms(added_exactly(varied(shape, random.next() % 100'000))));
        }
      }
  ASSERT_TRUE(settled());
}

// Goal:   long sums of nodes with one member each, which move straight from and to the members' memory.
TEST_P(Layouts, AddLongVectorsWhereTheyLie) {
  auto& bench = static_cast<SpanBench&>(*bench_);
  bench.place(spread_by([](std::uint32_t member, std::uint32_t) { return member; }));
  for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_REDUCE_SCATTER, MUSTER_REDUCE})
    for (const std::int32_t ranks : {2, 3, 4})
      for (const Place place : {Place::kApart, Place::kInPlace})
        for (const std::uint64_t total : {kLongCount, 4 * kLongCount}) {
          const Shape shape = long_shape(op, MUSTER_F32, MUSTER_SUM, ranks, total, place);
          ASSERT_TRUE(conforms(added_exactly(shape)));
        }
  ASSERT_TRUE(settled());
}

#ifndef MUSTER_SANITIZED  // the same code, more slowly
std::uint32_t each_alone(std::uint32_t member, std::uint32_t) {
  return member % 8;
}
INSTANTIATE_TEST_SUITE_P(SpanningEight, CommunicatorConformance,
                         ::testing::Values(bench_of("UcxEachAlone", of_library("ucx"),
                                                    {.nodes = 8,
                                                     .placing = spread_by(each_alone),
                                                     .usual_cases = 300,
                                                     .direct_from_bytes = kSomeDirect})),
                         bench_name);
#endif

}  // namespace
}  // namespace muster::transport::test
