#include "tests/transport/network_conformance.hpp"

#include "tests/transport/same_bytes.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <poll.h>

namespace muster::transport::test {

using ::testing::HasSubstr;
using Block = std::vector<std::byte>;

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NetworkConformance);

namespace {

Block pattern(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> words(bytes / sizeof(std::uint64_t) + 1);
  std::generate(words.begin(), words.end(), std::ref(random));
  Block block(bytes);
  if (bytes > 0) std::memcpy(block.data(), words.data(), bytes);
  return block;
}

}  // namespace

NetworkConformance::Pair NetworkConformance::connect(std::uint32_t other) {
  const Block address(networks_[0]->address().begin(), networks_[0]->address().end());
  auto here = networks_[0]->connect(NodeIndex(other), networks_[other]->address());
  auto there = networks_[other]->connect(NodeIndex(0), address);
  EXPECT_TRUE(here && there);
  return {*std::move(here), *std::move(there)};
}

bool NetworkConformance::until(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done() && std::chrono::steady_clock::now() < end)
    for (const auto& network : networks_)
      if (network) network->progress();
  return done();
}

void NetworkConformance::until_later() {
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  until([&] { return std::chrono::steady_clock::now() > soon; });
}

void NetworkConformance::touch(Pair& pair) {
  Told sent, back, received, received_back;
  Block one(1), two(1);
  ASSERT_TRUE(pair.there->receive(1, one, received).ok());
  ASSERT_TRUE(pair.here->receive(1, two, received_back).ok());
  ASSERT_TRUE(pair.here->send(1, one, sent).ok());
  ASSERT_TRUE(pair.there->send(1, two, back).ok());
  ASSERT_TRUE(until([&] { return sent.over() && back.over() && received.over() && received_back.over(); }));
  ASSERT_TRUE(received.status.ok() && received_back.status.ok()) << received.status.text();
}

TEST_P(NetworkConformance, CarriesMessagesOfAllSizesBothWays) {
  Pair pair = connect();
  EXPECT_EQ(pair.here->peer(), NodeIndex(1));
  for (const std::size_t bytes : {0u, 1u, 7u, 64u, 4096u, 8193u, 100'000u, 5'000'000u})
    for (Endpoint* from : {pair.here.get(), pair.there.get()}) {
      Endpoint* to = from == pair.here.get() ? pair.there.get() : pair.here.get();
      const Block sent = pattern(bytes, bytes);
      Block came(bytes);
      Told sends, receives;
      ASSERT_TRUE(from->send(kMessageTagMax, sent, sends).ok());
      ASSERT_TRUE(to->receive(kMessageTagMax, came, receives).ok());
      EXPECT_FALSE(sends.over() || receives.over()) << "only progress() tells";
      ASSERT_TRUE(until([&] { return sends.over() && receives.over(); })) << bytes;
      EXPECT_TRUE(sends.status.ok() && receives.status.ok()) << receives.status.text();
      EXPECT_EQ(sends.bytes, bytes);
      EXPECT_EQ(receives.bytes, bytes);
      EXPECT_TRUE(same_bytes(came, sent)) << bytes;
    }
}

TEST_P(NetworkConformance, KeepsTheOrderOfATagAndTellsTagsApart) {
  Pair pair = connect();
  constexpr int messages = 200;
  std::vector<Told> sends(2 * messages), receives(2 * messages);
  std::vector<std::uint32_t> values(2 * messages), came(2 * messages);
  for (std::uint32_t i = 0; i < 2 * messages; ++i) {
    values[i] = i;
    ASSERT_TRUE(pair.here->send(i % 2, std::as_bytes(std::span(&values[i], 1)), sends[i]).ok());
  }
  for (std::uint32_t tag : {1u, 0u})  // in another order than they were sent
    for (std::uint32_t i = tag; i < 2 * messages; i += 2)
      ASSERT_TRUE(pair.there->receive(tag, std::as_writable_bytes(std::span(&came[i], 1)), receives[i]).ok());
  ASSERT_TRUE(until([&] {
    const auto over = [](const Told& told) { return told.over(); };
    return std::all_of(receives.begin(), receives.end(), over) &&
           std::all_of(sends.begin(), sends.end(), over);
  }));
  EXPECT_EQ(came, values);
  for (const Told& told : receives) EXPECT_EQ(told.times, 1);
}

TEST_P(NetworkConformance, TakesMessagesThatHaveComeBefore) {
  Pair pair = connect();
  touch(pair);
  for (const std::size_t bytes : {0u, 1u, 100u, 9000u, 1'000'000u}) {
    const Block sent = pattern(bytes, bytes);
    Block came(bytes);
    Told sends, receives;
    ASSERT_TRUE(pair.here->send(9, sent, sends).ok());
    until_later();
    ASSERT_TRUE(pair.there->receive(9, came, receives).ok());
    ASSERT_TRUE(until([&] { return sends.over() && receives.over(); })) << bytes;
    EXPECT_TRUE(receives.status.ok()) << receives.status.text();
    EXPECT_TRUE(same_bytes(came, sent)) << bytes;
  }
}

TEST_P(NetworkConformance, TellsPeersApart) {
  networks_ = GetParam().open(3);
  Pair one = connect(1);
  Pair two = connect(2);
  Block from_one(8), from_two(8);
  Told received_one, received_two, sent_one, sent_two;
  ASSERT_TRUE(one.here->receive(5, from_one, received_one).ok());
  ASSERT_TRUE(two.here->receive(5, from_two, received_two).ok());
  const Block ones(8, std::byte{1}), twos(8, std::byte{2});
  ASSERT_TRUE(two.there->send(5, twos, sent_two).ok());
  ASSERT_TRUE(until([&] { return received_two.over(); }));
  EXPECT_FALSE(received_one.over());
  ASSERT_TRUE(one.there->send(5, ones, sent_one).ok());
  ASSERT_TRUE(until([&] { return received_one.over(); }));
  EXPECT_TRUE(from_one == ones && from_two == twos);
}

TEST_P(NetworkConformance, TakesMessagesThatAreShorterThanTheirMemory) {
  Pair pair = connect();
  for (const bool waits : {true, false})  // for the message, or it for its receive
    for (const std::size_t bytes : {0u, 1u, 10u, 5000u, 1u << 20, 3u << 20}) {
      const Block sent = pattern(bytes, bytes);
      Block came(bytes + (1 << 20), std::byte{7});
      Told sends, receives;
      if (waits) {
        ASSERT_TRUE(pair.there->receive(2, came, receives).ok());
        until_later();
      }
      ASSERT_TRUE(pair.here->send(2, sent, sends).ok());
      if (!waits) {
        until_later();
        ASSERT_TRUE(pair.there->receive(2, came, receives).ok());
      }
      ASSERT_TRUE(until([&] { return sends.over() && receives.over(); })) << bytes;
      EXPECT_TRUE(sends.status.ok() && receives.status.ok()) << receives.status.text();
      EXPECT_EQ(receives.bytes, bytes);
      EXPECT_TRUE(same_bytes(sent, std::span(came).first(bytes))) << bytes;
      EXPECT_TRUE(all_bytes_are(std::byte{7}, std::span(came).subspan(bytes))) << bytes;
    }
}

// Goal:   lengths belong to their messages, also where messages of one tag differ in length.
TEST_P(NetworkConformance, TellsTheLengthOfEachMessageInTheOrderOfItsTag) {
  Pair pair = connect();
  constexpr std::size_t kLengths[] = {17, 0, 300'000, 1, 64, 0, 100'000, 9000};
  constexpr std::size_t kRoom = 400'000;
  const Block from = pattern(kRoom, 5);
  std::vector<Block> came(std::size(kLengths), Block(kRoom));
  std::vector<Told> sends(std::size(kLengths)), receives(std::size(kLengths));
  for (std::size_t i = 0; i < std::size(kLengths); ++i)
    ASSERT_TRUE(pair.here->send(2, Bytes(from).subspan(i, kLengths[i]), sends[i]).ok());
  for (std::size_t i = 0; i < std::size(kLengths); ++i)
    ASSERT_TRUE(pair.there->receive(2, came[i], receives[i]).ok());
  const auto over = [](const Told& told) { return told.over(); };
  ASSERT_TRUE(until([&] { return std::ranges::all_of(receives, over) && std::ranges::all_of(sends, over); }));
  for (std::size_t i = 0; i < std::size(kLengths); ++i) {
    EXPECT_EQ(receives[i].bytes, kLengths[i]) << i;
    EXPECT_EQ(sends[i].bytes, kLengths[i]) << i;
    EXPECT_TRUE(std::ranges::equal(Bytes(from).subspan(i, kLengths[i]), Bytes(came[i]).first(kLengths[i])))
        << i;
  }
}

// Goal:   one side may connect more often than the other before both are connected: what it gave up does not
//         end what the two of them do then. Messages are long enough for libraries that answer each.
TEST_P(NetworkConformance, ConnectsThoughOneSideConnectedMoreOften) {
  for (const std::uint32_t ahead : {0u, 1u, 0u, 0u, 1u})
    for (const int given_up : {1, 3}) {
      for (int times = 0; times < given_up; ++times) {
        const auto alone = networks_[ahead]->connect(NodeIndex(1 - ahead), networks_[1 - ahead]->address());
        ASSERT_TRUE(alone) << alone.error().text();
        until_later();
      }
      Pair pair = connect();
      for (const bool back : {false, true, false}) {
        const Block sent = pattern(1'000'000, given_up);
        Block came(sent.size());
        Told sends, receives;
        Endpoint& from = back ? *pair.there : *pair.here;
        Endpoint& to = back ? *pair.here : *pair.there;
        ASSERT_TRUE(to.receive(5, came, receives).ok());
        ASSERT_TRUE(from.send(5, sent, sends).ok());
        ASSERT_TRUE(until([&] { return sends.over() && receives.over(); })) << ahead << given_up << back;
        EXPECT_TRUE(receives.status.ok() && sends.status.ok()) << receives.status.text();
        EXPECT_TRUE(came == sent);
      }
      until_later();
    }
}

TEST_P(NetworkConformance, RefusesMessagesThatAreLongerThanTheirMemory) {
  const Block from(1'000'000);
  Pair pair = connect();
  for (const auto& [sends, room] : {std::pair{20u, 10u}, {1u, 0u}, {5000u, 4999u}, {1'000'000u, 10u}}) {
    Block into(room + 8, std::byte{7});
    Told received;
    ASSERT_TRUE(pair.there->receive(2, WritableBytes(into).first(room), received).ok());
    ASSERT_TRUE(pair.here->send(2, Bytes(from).first(sends), unended_.emplace_back()).ok());
    const bool measured =
        GetParam().measures_messages_to == SIZE_MAX || (room > 0 && sends <= GetParam().measures_messages_to);
    if (!measured) {
      const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
      until([&] { return received.over() || std::chrono::steady_clock::now() > soon; });
      pair.there = *networks_[1]->connect(NodeIndex(0), networks_[0]->address());  // the former one closes
    }
    ASSERT_TRUE(until([&] { return received.over(); })) << sends;
    EXPECT_FALSE(received.status.ok());
    EXPECT_EQ(received.bytes, 0u);
    if (measured) {
      EXPECT_EQ(received.status.code(), Code::kProtocol) << received.status.text();
    }
    EXPECT_TRUE(std::all_of(into.begin() + room, into.end(), [](std::byte b) { return b == std::byte{7}; }));
  }
}

TEST_P(NetworkConformance, WritesAndReadsThePeersMemory) {
  Pair pair = connect();
  touch(pair);
  Block memory = pattern(300'000, 1);
  const Block before = memory;
  const auto registered = networks_[1]->register_memory(memory);
  ASSERT_TRUE(registered) << registered.error().text();
  const auto remote = pair.here->open_memory((*registered)->key());
  ASSERT_TRUE(remote) << remote.error().text();
  EXPECT_EQ((*remote)->bytes(), memory.size());
  for (const std::size_t bytes : {1u, 100u, 70'000u, 200'000u}) {
    const std::size_t at = memory.size() - bytes;
    const Block wrote = pattern(bytes, bytes);
    Block read(bytes);
    Told put, flushed, got;
    ASSERT_TRUE(pair.here->put(wrote, **remote, at, put).ok());
    ASSERT_TRUE(pair.here->flush(flushed).ok());
    ASSERT_TRUE(until([&] { return put.over() && flushed.over(); })) << bytes;
    ASSERT_TRUE(put.status.ok() && flushed.status.ok());
    EXPECT_EQ(put.bytes, bytes);
    EXPECT_EQ(flushed.bytes, 0u);
    EXPECT_TRUE(std::equal(wrote.begin(), wrote.end(), memory.begin() + static_cast<std::ptrdiff_t>(at)));
    ASSERT_TRUE(pair.here->get(read, **remote, at, got).ok());
    ASSERT_TRUE(until([&] { return got.over(); }));
    EXPECT_TRUE(read == wrote) << bytes;
    EXPECT_EQ(got.bytes, bytes);
  }
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 100'000, memory.begin()))
      << "the rest is untouched";
}

TEST_P(NetworkConformance, RefusesWhatIsBeyondThePeersMemory) {
  Pair pair = connect();
  touch(pair);
  Block memory(1000), mine(100);
  const auto registered = *networks_[1]->register_memory(memory);
  const auto again = *networks_[1]->register_memory(memory);
  EXPECT_FALSE(std::ranges::equal(registered->key(), again->key())) << "each registration has its own key";
  const auto remote = *pair.here->open_memory(registered->key());
  Told told;
  for (const std::uint64_t offset : {std::uint64_t{901}, std::uint64_t{1001}, ~std::uint64_t{0}}) {
    EXPECT_EQ(pair.here->put(mine, *remote, offset, told).code(), Code::kBadArgument) << offset;
    EXPECT_EQ(pair.here->get(mine, *remote, offset, told).code(), Code::kBadArgument) << offset;
  }
  EXPECT_FALSE(told.over());
}

TEST_P(NetworkConformance, RefusesBytesThatAreNoAddressAndNoKey) {
  Pair pair = connect();
  const Block address(networks_[1]->address().begin(), networks_[1]->address().end());
  Block memory(64);
  const auto registered = *networks_[1]->register_memory(memory);
  const Block key(registered->key().begin(), registered->key().end());
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    for (const bool is_key : {false, true}) {
      Block bytes = is_key ? key : address;
      if (round % 3 == 0)
        bytes.resize(random() % bytes.size());
      else
        bytes[random() % bytes.size()] ^= std::byte(1 << random() % 8);
      if (is_key)
        EXPECT_FALSE(pair.here->open_memory(bytes));
      else
        EXPECT_FALSE(networks_[0]->connect(NodeIndex(1), bytes));
    }
  }
  EXPECT_FALSE(pair.here->open_memory(address));
  EXPECT_FALSE(networks_[0]->connect(NodeIndex(1 << 16), address));
  Told told;
  EXPECT_EQ(pair.here->send(kMessageTagMax + 1, memory, told).code(), Code::kBadArgument);
}

// Goal:   an arrival wakes a thread that sleeps on the descriptor.
TEST_P(NetworkConformance, WakesWhoeverSleepsOnItsDescriptor) {
  Pair pair = connect();
  touch(pair);
  Block from(100), into(100);
  Told sent, received;
  ASSERT_TRUE(pair.there->receive(3, into, received).ok());
  const auto asleep = [&] {
    for (int tries = 0; tries < 1000 && !networks_[1]->arm(); ++tries) networks_[1]->progress();
    pollfd entry{networks_[1]->descriptor(), POLLIN, 0};
    return poll(&entry, 1, 20) == 0;
  };
  bool slept = false;
  for (int tries = 0; tries < 50 && !slept; ++tries) {
    networks_[0]->progress();
    slept = asleep();
  }
  EXPECT_TRUE(slept) << "it is silent while nothing comes";
  ASSERT_TRUE(pair.here->send(3, from, sent).ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!received.over() && std::chrono::steady_clock::now() < end) {
    networks_[0]->progress();
    if (networks_[1]->arm()) {
      pollfd entry{networks_[1]->descriptor(), POLLIN, 0};
      poll(&entry, 1, 100);
    }
    networks_[1]->progress();
  }
  EXPECT_TRUE(received.over() && received.status.ok());
}

TEST_P(NetworkConformance, AbortsWhatAClosedEndpointHasBegun) {
  Pair pair = connect();
  touch(pair);
  Block into(100);
  std::vector<Told> told(10);
  for (Told& each : told) ASSERT_TRUE(pair.here->receive(4, into, each).ok());
  pair.here.reset();
  ASSERT_TRUE(until(
      [&] { return std::all_of(told.begin(), told.end(), [](const Told& each) { return each.over(); }); }));
  for (const Told& each : told) {
    EXPECT_EQ(each.status.code(), Code::kAborted) << each.status.text();
    EXPECT_EQ(each.bytes, 0u);
    EXPECT_EQ(each.times, 1);
  }
}

// Goal:   operations that wait for a lost peer end, with one reason; other peers are not affected.
TEST_P(NetworkConformance, FailsAnEndpointWhosePeerIsGone) {
  networks_ = GetParam().open(3);
  const Block large(4'000'000);
  Pair one = connect(1);
  Pair two = connect(2);
  touch(one);
  touch(two);
  Block into(100), other(100);
  Told waits, others, sent;
  ASSERT_TRUE(one.here->receive(6, into, waits).ok());
  ASSERT_TRUE(two.here->receive(6, other, others).ok());
  one.there.reset();
  networks_[1].reset();
  for (int i = 0; i < 3; ++i) static_cast<void>(one.here->send(7, large, unended_.emplace_back()));
  if (GetParam().notices_loss) {
    ASSERT_TRUE(until([&] { return waits.over() && !one.here->status().ok(); }));
    EXPECT_EQ(waits.status.code(), Code::kPeerLost) << waits.status.text();
    EXPECT_EQ(one.here->status().code(), Code::kPeerLost);
    Told late;
    EXPECT_EQ(one.here->send(7, into, late).code(), Code::kPeerLost);
    EXPECT_EQ(one.here->receive(7, into, late).code(), Code::kPeerLost);
  }
  EXPECT_FALSE(others.over());
  ASSERT_TRUE(two.there->send(6, other, sent).ok());
  ASSERT_TRUE(until([&] { return others.over(); }));
  EXPECT_TRUE(others.status.ok());
  one.here.reset();
  ASSERT_TRUE(until([&] { return waits.over(); }));
  EXPECT_FALSE(waits.status.ok());
}

// Goal:   memory that an operation may still write or read comes back when its endpoint is closed, if the
//         network promises it, whatever the peer has done and however much has come. Nothing is written there
//         any more.
// Method: many messages both ways, which the sockets cannot all hold; the peer falls silent after a number of
//         turns, another one each time.
TEST_P(NetworkConformance, GivesMemoryBackWhenAnEndpointIsClosed) {
  for (int moment = 0; moment < 10; ++moment) {
    networks_ = GetParam().open(2);
    const std::size_t least = networks_[0]->freed_on_close_from();
    if (least == SIZE_MAX) GTEST_SKIP() << "this network does not promise it";
    constexpr std::size_t kLengths[] = {1, 3, 7, 16, 5};
    const std::size_t length = std::max<std::size_t>(least, 16 << 10) * kLengths[moment % 5];
    const std::size_t messages = (least > 0 ? 16 << 20 : 1 << 20) / length + 1;
    Pair pair = connect();
    touch(pair);
    until_later();
    std::vector<Block> into(messages, Block(length)), from(messages, Block(length));
    std::deque<Told> told;
    for (std::size_t i = 0; i < messages; ++i) {
      ASSERT_TRUE(pair.there->receive(2, from[i], unended_.emplace_back()).ok());
      ASSERT_TRUE(pair.there->send(2, from[i], unended_.emplace_back()).ok());
      ASSERT_TRUE(pair.here->receive(2, into[i], told.emplace_back()).ok());
      ASSERT_TRUE(pair.here->send(2, into[i], told.emplace_back()).ok());
    }
    for (int turn = 0; turn < moment; ++turn) networks_[turn % 2]->progress();
    pair.here.reset();
    const auto all_over = [&] {
      networks_[0]->progress();
      return std::all_of(told.begin(), told.end(), [](const Told& each) { return each.over(); });
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!all_over() && std::chrono::steady_clock::now() < end) {
    }
    ASSERT_TRUE(all_over()) << "moment " << moment << ", messages of " << length << " bytes: "
                            << std::count_if(told.begin(), told.end(),
                                             [](const Told& t) { return !t.over(); })
                            << " of " << told.size() << " have not ended";
    const std::vector<Block> then = into;
    until_later();
    for (std::size_t i = 0; i < messages; ++i)
      ASSERT_TRUE(same_bytes(into[i], then[i])) << "moment " << moment << ", message " << i;
    pair.there.reset();
    networks_.clear();
  }
}

// A done() may begin the next operation, and may close the endpoint.
TEST_P(NetworkConformance, TakesOperationsFromWithinDone) {
  Pair pair = connect();
  touch(pair);
  Block a(64), b(64);
  Told sent, received;
  int rounds = 0;
  received.then = [&] {
    if (++rounds < 20) {
      ASSERT_TRUE(pair.there->receive(8, b, received).ok());
      ASSERT_TRUE(pair.here->send(8, a, sent).ok());
    } else {
      pair.there.reset();
    }
  };
  ASSERT_TRUE(pair.there->receive(8, b, received).ok());
  ASSERT_TRUE(pair.here->send(8, a, sent).ok());
  ASSERT_TRUE(until([&] { return rounds == 20; }));
  EXPECT_EQ(pair.there, nullptr);
}

}  // namespace muster::transport::test
