#include "tests/transport/memory_network.hpp"

#include "tests/kernels/math/values.hpp"
#include "tests/transport/network_conformance.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include <poll.h>

namespace muster::transport::test {
namespace {

using math::test::Random;

constexpr MemoryFaults kAllFaults{
    .delay_percent = 30, .reorder_percent = 30, .late_percent = 30, .refuse_percent = 20};

MemoryFaults with_seed(MemoryFaults faults, std::uint64_t seed) {
  faults.seed = seed;
  return faults;
}

// Nodes 0 … count - 1 of one hub, all connected, and driven in turn.
class Nodes {
 public:
  explicit Nodes(std::uint32_t count, MemoryFaults faults = {}) : hub(faults) {
    for (std::uint32_t n = 0; n < count; ++n) networks.push_back(hub.open(NodeIndex(n)));
    to.resize(count);
    for (std::uint32_t n = 0; n < count; ++n) {
      to[n].resize(count);
      for (std::uint32_t peer = 0; peer < count; ++peer) connect(n, peer);
    }
  }
  void connect(std::uint32_t node, std::uint32_t peer) {
    to[node][peer] = *networks[node]->connect(NodeIndex(peer), networks[peer]->address());
  }
  // So many calls of progress() of each node: more than any delay.
  void turn(int calls = 100) {
    for (int i = 0; i < calls; ++i)
      for (const auto& network : networks)
        if (network) network->progress();
  }

  std::deque<Told> told;  // outlives the networks
  MemoryHub hub;
  std::vector<std::unique_ptr<Network>> networks;
  std::vector<std::vector<std::unique_ptr<Endpoint>>> to;  // to[node][peer]
};

// Begins an operation as often as it takes.
void insist(const std::function<Status()>& begin) {
  Status begun = begin();
  for (int tries = 0; tries < 1000 && begun.code() == Code::kNoResource; ++tries) begun = begin();
  ASSERT_TRUE(begun.ok()) << begun.text();
}

std::vector<std::byte> block_of(std::uint64_t seed, std::size_t bytes) {
  std::vector<std::byte> block(bytes);
  Random random(seed);
  for (std::byte& byte : block) byte = std::byte(random.next() & 0xff);
  return block;
}

// Messages of several tags and lengths from 0 to 1, with every fault. Returns which ended in which order; all
// must come whole, and in the order of their tags.
std::vector<std::uint32_t> run_of(std::uint64_t seed) {
  SCOPED_TRACE(seed);
  constexpr std::uint32_t kMessages = 60;
  constexpr std::uint32_t kTags = 4;
  Nodes nodes(2, with_seed(kAllFaults, seed));
  Random random(seed);
  std::vector<std::vector<std::byte>> from, into(kMessages);
  std::deque<Told> sends(kMessages), receives(kMessages);
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    from.push_back(block_of(i, random.below(2) == 0 ? random.below(100) : random.below(3 * kMemoryKept)));
    into[i].resize(3 * kMemoryKept);
    sends[i].then = [&order, i] { order.push_back(i); };
    receives[i].then = [&order, i] { order.push_back(kMessages + i); };
    insist([&] { return nodes.to[0][1]->send(i % kTags, from[i], sends[i]); });
    if (random.below(2) == 0) nodes.turn(1);
  }
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    insist([&] { return nodes.to[1][0]->receive(i % kTags, into[i], receives[i]); });
    if (random.below(2) == 0) nodes.turn(1);
  }
  nodes.turn();
  EXPECT_EQ(order.size(), 2 * kMessages);
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    EXPECT_TRUE(sends[i].status.ok() && receives[i].status.ok()) << receives[i].status.text();
    into[i].resize(receives[i].bytes);
    EXPECT_TRUE(into[i] == from[i]) << "message " << i;
  }
  return order;
}

TEST(MemoryNetwork, KeepsItsRulesWithAnySeedAndRepeatsItsRun) {
  const std::vector<std::uint32_t> first = run_of(0);
  std::size_t others = 0;
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    const std::vector<std::uint32_t> order = run_of(seed);
    EXPECT_EQ(order, run_of(seed)) << "seed " << seed;
    others += order != first;
  }
  EXPECT_GT(others, 20u) << "seeds differ";
}

TEST(MemoryNetwork, HasNoRoomAtItsRate) {
  Nodes nodes(2, {.seed = 5, .refuse_percent = 25});
  std::array<std::byte, 8> from{}, into{};
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    const Status sent = nodes.to[0][1]->send(1, from, nodes.told.emplace_back());
    const Status received = nodes.to[1][0]->receive(1, into, nodes.told.emplace_back());
    for (const Status& begun : {sent, received}) {
      if (begun.ok()) continue;
      EXPECT_EQ(begun.code(), Code::kNoResource) << begun.text();
      ++refused;
    }
    nodes.turn(1);
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 300);
}

TEST(MemoryNetwork, LosesANode) {
  Nodes nodes(3);
  const auto large = block_of(1, 100'000);
  std::array<std::byte, 8> small{}, into{}, other{};
  Told waits, own, others, late, sent, comes;
  ASSERT_TRUE(nodes.to[0][1]->receive(1, into, waits).ok());
  ASSERT_TRUE(nodes.to[1][2]->receive(1, other, own).ok());
  ASSERT_TRUE(nodes.to[0][2]->receive(1, other, others).ok());
  ASSERT_TRUE(nodes.to[0][1]->send(2, large, sent).ok());
  ASSERT_TRUE(nodes.to[1][0]->send(1, small, nodes.told.emplace_back()).ok());
  nodes.hub.lose(NodeIndex(1));
  nodes.turn();
  for (const Told* told : {&waits, &own, &sent}) {
    EXPECT_EQ(told->times, 1);
    EXPECT_EQ(told->status.code(), Code::kPeerLost) << told->status.text();
  }
  EXPECT_EQ(nodes.to[2][1]->status().code(), Code::kPeerLost);
  EXPECT_EQ(nodes.to[2][1]->send(1, small, late).code(), Code::kPeerLost);
  EXPECT_FALSE(others.over());
  ASSERT_TRUE(nodes.to[2][0]->send(1, small, nodes.told.emplace_back()).ok());
  nodes.turn();
  EXPECT_TRUE(others.over() && others.status.ok());

  // An endpoint to its address of then fails too; started again, it is another node.
  const std::vector<std::byte> then(nodes.networks[1]->address().begin(), nodes.networks[1]->address().end());
  for (auto& endpoint : nodes.to[1]) endpoint.reset();
  nodes.networks[1] = nodes.hub.open(NodeIndex(1));
  const auto stale = *nodes.networks[2]->connect(NodeIndex(1), then);
  nodes.turn();
  EXPECT_EQ(stale->status().code(), Code::kPeerLost);
  nodes.connect(0, 1);
  nodes.connect(1, 0);
  ASSERT_TRUE(nodes.to[0][1]->receive(1, into, comes).ok());
  ASSERT_TRUE(nodes.to[1][0]->send(1, small, nodes.told.emplace_back()).ok());
  nodes.turn();
  EXPECT_TRUE(comes.over() && comes.status.ok());
}

// Goal:   nobody notices a cut, one direction goes on, and no message comes behind one that was dropped.
TEST(MemoryNetwork, CutsOneDirectionUnnoticed) {
  Nodes nodes(2);
  std::array<std::byte, 8> small{}, there{}, back{};
  Told lost, missing, came, behind;
  ASSERT_TRUE(nodes.to[0][1]->send(1, small, lost).ok());  // under way
  nodes.hub.cut(NodeIndex(0), NodeIndex(1));
  ASSERT_TRUE(nodes.to[1][0]->receive(1, there, missing).ok());
  ASSERT_TRUE(nodes.to[0][1]->receive(1, back, came).ok());
  ASSERT_TRUE(nodes.to[1][0]->send(1, small, nodes.told.emplace_back()).ok());
  nodes.turn();
  EXPECT_TRUE(lost.over() && lost.status.ok());
  EXPECT_TRUE(came.over() && came.status.ok());
  EXPECT_FALSE(missing.over());
  EXPECT_TRUE(nodes.to[0][1]->status().ok() && nodes.to[1][0]->status().ok());

  nodes.hub.restore(NodeIndex(0), NodeIndex(1));
  ASSERT_TRUE(nodes.to[0][1]->send(1, small, behind).ok());
  nodes.turn();
  EXPECT_FALSE(missing.over());
  nodes.connect(0, 1);
  ASSERT_TRUE(nodes.to[0][1]->send(1, small, nodes.told.emplace_back()).ok());
  nodes.turn();
  EXPECT_TRUE(missing.over() && missing.status.ok());
}

TEST(MemoryNetwork, NeedsBothDirectionsForWhatIsAnswered) {
  Nodes nodes(2);
  const auto large = block_of(1, 100'000);
  std::vector<std::byte> into(large.size()), memory(large.size());
  const auto registered = *nodes.networks[1]->register_memory(memory);
  const auto remote = *nodes.to[0][1]->open_memory(registered->key());
  std::array<Told, 4> all;
  ASSERT_TRUE(nodes.to[1][0]->receive(1, into, nodes.told.emplace_back()).ok());
  nodes.hub.cut(NodeIndex(1), NodeIndex(0));
  ASSERT_TRUE(nodes.to[0][1]->send(1, large, all[0]).ok());
  ASSERT_TRUE(nodes.to[0][1]->put(large, *remote, 0, all[1]).ok());
  ASSERT_TRUE(nodes.to[0][1]->get(into, *remote, 0, all[2]).ok());
  ASSERT_TRUE(nodes.to[0][1]->flush(all[3]).ok());
  nodes.turn();
  for (const Told& told : all) EXPECT_FALSE(told.over());
  nodes.to[0][1].reset();
  nodes.turn();
  for (const Told& told : all) EXPECT_EQ(told.status.code(), Code::kAborted) << told.status.text();
}

TEST(MemoryNetwork, DoesNotNoticeALossThroughACut) {
  Nodes nodes(2);
  nodes.hub.cut(NodeIndex(1), NodeIndex(0));
  for (auto& endpoint : nodes.to[1]) endpoint.reset();
  nodes.networks[1].reset();
  nodes.turn();
  EXPECT_TRUE(nodes.to[0][1]->status().ok());
  EXPECT_TRUE(nodes.networks[0]->arm());
  nodes.hub.restore(NodeIndex(1), NodeIndex(0));
  nodes.turn(1);
  EXPECT_EQ(nodes.to[0][1]->status().code(), Code::kPeerLost);
}

TEST(MemoryNetwork, BringsWhatWasHeldInItsOrder) {
  Nodes nodes(2);
  std::vector<std::vector<std::byte>> from, into(6);
  std::deque<Told> receives(6);
  for (std::size_t i = 0; i < 6; ++i) from.push_back(block_of(i, i % 2 == 0 ? 10 : 50'000));
  const auto send = [&](std::size_t i) {
    ASSERT_TRUE(nodes.to[0][1]->send(1, from[i], nodes.told.emplace_back()).ok());
  };
  send(0);
  send(1);
  nodes.turn();  // they have come, and nobody has received them
  send(2);
  nodes.hub.hold(NodeIndex(1), NodeIndex(0));
  for (std::size_t i = 3; i < 6; ++i) send(i);
  for (std::size_t i = 0; i < 6; ++i) {
    into[i].resize(50'000);
    ASSERT_TRUE(nodes.to[1][0]->receive(1, into[i], receives[i]).ok());
  }
  nodes.turn();
  for (const Told& told : receives) EXPECT_FALSE(told.over());
  EXPECT_TRUE(nodes.networks[1]->arm());
  nodes.hub.restore(NodeIndex(0), NodeIndex(1));
  pollfd entry{nodes.networks[1]->descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 0), 1) << "it wakes whoever sleeps";
  nodes.turn();
  for (std::size_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(receives[i].over() && receives[i].status.ok());
    into[i].resize(receives[i].bytes);
    EXPECT_TRUE(into[i] == from[i]) << i;
  }
}

// A write may have ended and not be in the peer's memory; once it is flushed, it is.
TEST(MemoryNetwork, FlushesWhatWasWrittenBefore) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    Nodes nodes(2, {.seed = seed, .delay_percent = 50, .reorder_percent = 50});
    std::vector<std::byte> memory(40'000);
    const auto registered = *nodes.networks[1]->register_memory(memory);
    const auto remote = *nodes.to[0][1]->open_memory(registered->key());
    const auto from = block_of(seed, memory.size());
    for (std::size_t at = 0; at < memory.size(); at += 10'000)
      ASSERT_TRUE(
          nodes.to[0][1]
              ->put(Bytes(from).subspan(at, at == 0 ? 10'000 : 100), *remote, at, nodes.told.emplace_back())
              .ok());
    Told flushed;
    bool all_there = false;
    flushed.then = [&] {
      all_there = std::equal(from.begin(), from.begin() + 10'000, memory.begin());
      for (std::size_t at = 10'000; at < memory.size(); at += 10'000)
        all_there = all_there && std::memcmp(&from[at], &memory[at], 100) == 0;
    };
    ASSERT_TRUE(nodes.to[0][1]->flush(flushed).ok());
    nodes.turn();
    EXPECT_TRUE(flushed.over() && all_there);
  }
}

TEST(MemoryNetwork, FailsAnEndpointThatWritesToWithdrawnMemory) {
  Nodes nodes(2);
  std::array<std::byte, 100> memory{}, from{};
  from.fill(std::byte{1});
  auto registered = *nodes.networks[1]->register_memory(memory);
  const auto remote = *nodes.to[0][1]->open_memory(registered->key());
  ASSERT_TRUE(nodes.to[0][1]->put(from, *remote, 0, nodes.told.emplace_back()).ok());
  registered.reset();
  nodes.turn();
  EXPECT_EQ(nodes.to[0][1]->status().code(), Code::kPeerLost);
  EXPECT_EQ(memory[0], std::byte{0});
}

// Sends to each peer, and receives from each, until it has had all; sleeps whenever it may.
void exchange(std::uint32_t node, Nodes& nodes, std::atomic<std::uint32_t>& ready) {
  constexpr std::uint32_t kRounds = 50;
  const auto peers = static_cast<std::uint32_t>(nodes.networks.size());
  std::deque<std::vector<std::byte>> blocks;
  std::deque<Told> told;
  std::vector<std::pair<const std::vector<std::byte>*, std::vector<std::byte>>> expected;
  for (std::uint32_t round = 0; round < kRounds; ++round)
    for (std::uint32_t peer = 0; peer < peers; ++peer) {
      const auto bytes = [&](std::uint32_t from) { return (round * 1000 + from * 7) % 20'000; };
      const auto& from = blocks.emplace_back(block_of(round * peers + node, bytes(node)));
      insist([&] { return nodes.to[node][peer]->send(round % 3, from, told.emplace_back()); });
      auto& into = blocks.emplace_back(20'000);
      insist([&] { return nodes.to[node][peer]->receive(round % 3, into, told.emplace_back()); });
      expected.emplace_back(&into, block_of(round * peers + peer, bytes(peer)));
    }
  std::size_t ended = 0;
  while (ended < 2 * kRounds * peers) {
    if (nodes.networks[node]->arm()) {
      pollfd entry{nodes.networks[node]->descriptor(), POLLIN, 0};
      poll(&entry, 1, 1000);
    }
    ended += nodes.networks[node]->progress();
  }
  for (++ready; ready < peers;) nodes.networks[node]->progress();  // the others may need it
  for (const auto& [into, sent] : expected) EXPECT_TRUE(std::equal(sent.begin(), sent.end(), into->begin()));
}

TEST(MemoryNetwork, LetsEachNodeBeDrivenByItsOwnThread) {
  Nodes nodes(3, with_seed(kAllFaults, 3));
  std::atomic<std::uint32_t> ready{0};
  std::vector<std::thread> threads;
  for (std::uint32_t node = 0; node < 3; ++node)
    threads.emplace_back([&, node] { exchange(node, nodes, ready); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace muster::transport::test
