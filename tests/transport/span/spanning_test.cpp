// The suite of communicators over several nodes, on each network, with members spread over the nodes in
// several ways.
#include "transport/span/spanning_backend.hpp"

#include "tests/support/fault_seeds.hpp"
#include "tests/transport/memory_network.hpp"
#include "tests/transport/span/span_bench.hpp"
#include "transport/endpoint/library.hpp"

#include <memory>
#include <string>
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

std::uint32_t by_turns(std::uint32_t member, std::uint32_t) {
  return member % 3;
}
// The first half on one node, the rest on two others; so nodes have unequal numbers of members.
std::uint32_t unequally(std::uint32_t member, std::uint32_t ranks) {
  return member < (ranks + 1) / 2 ? 0 : 1 + member % 2;
}

// Bits equal to those of one node are promised to jobs that are reproducible.
BenchFactory reproducible(std::string name, std::uint32_t nodes, NetworkOpener networks, Spread spread,
                          std::uint64_t cases,
                          std::size_t direct_from_bytes = SpanningOptions().direct_from_bytes) {
  return {std::move(name), [=] {
            return std::make_unique<SpanBench>(nodes, networks, spread, true, cases, direct_from_bytes);
          }};
}
constexpr std::size_t kSomeDirect = 256;
constexpr std::size_t kAllDirect = 1;

INSTANTIATE_TEST_SUITE_P(Spanning, CommunicatorConformance,
                         ::testing::Values(reproducible("UcxByTurns", 3, of_library("ucx"), by_turns, 1'500,
                                                        kSomeDirect),
                                           reproducible("OfiByTurns", 3, of_library("ofi"), by_turns, 500)),
                         bench_name);
std::vector<BenchFactory> delayed() {
  std::vector<BenchFactory> all;
  for (const std::uint64_t seed : muster::test::fault_seeds(5)) {
    MemoryFaults late = kLate;
    late.seed = seed;
    all.push_back(
        reproducible(fmt::format("Delayed{}", seed), 3, in_memory(late), unequally, 1'000, kAllDirect));
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Faulty, CommunicatorConformance, ::testing::ValuesIn(delayed()), bench_name);
#ifndef MUSTER_SANITIZED  // the same code, more slowly
std::uint32_t each_alone(std::uint32_t member, std::uint32_t) {
  return member % 8;
}
INSTANTIATE_TEST_SUITE_P(SpanningEight, CommunicatorConformance,
                         ::testing::Values(reproducible("UcxEachAlone", 8, of_library("ucx"), each_alone, 300,
                                                        kSomeDirect)),
                         bench_name);
#endif

}  // namespace
}  // namespace muster::transport::test
