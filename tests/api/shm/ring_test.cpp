#include "api/shm/ring.hpp"

#include "tests/api/shm/chameleon.hpp"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace muster::shm {
namespace {

constexpr std::uint32_t kCapacity = 8;
constexpr std::size_t kWords = SlotWords<Command>::kCount;

// A ring in plain memory, both ends in one thread.
template<class Policy>
struct Ring {
  explicit Ring(std::uint64_t first = 0)
      : tail(first),
        head(first),
        writer({&tail, slots.data(), &head, &engine_asleep}, kCapacity, first),
        reader({&tail, slots.data(), &head, &engine_asleep}, kCapacity, first) {}

  static Command command(std::uint64_t plan) {
    Command c;
    c.kind = Command::Kind::kStart;
    c.lane = 3;
    c.plan = plan;
    for (std::uint64_t i = 0; i < MUSTER_WAITS_MAX; ++i) c.waits[i] = plan * 10 + i;
    c.deadline_ns = ~plan;
    return c;
  }
  std::uint64_t* slot(std::uint64_t index) { return slots.data() + (index % kCapacity) * kWords; }

  std::uint64_t tail, head;
  std::uint32_t engine_asleep = 0;
  std::vector<std::uint64_t> slots = std::vector<std::uint64_t>(kCapacity * kWords);
  RingWriter<Policy> writer;
  RingReader<Policy> reader;
};
using PlainRing = Ring<StdAtomics>;

void expect_command(const Command& got, std::uint64_t plan, std::uint64_t index) {
  const Command wanted = PlainRing::command(plan);
  EXPECT_EQ(got.sequence, index + 1);
  EXPECT_EQ(got.kind, wanted.kind);
  EXPECT_EQ(got.lane, wanted.lane);
  EXPECT_EQ(got.first, 0u);
  EXPECT_EQ(got.plan, wanted.plan);
  for (std::size_t i = 0; i < MUSTER_WAITS_MAX; ++i) EXPECT_EQ(got.waits[i], wanted.waits[i]);
  EXPECT_EQ(got.deadline_ns, wanted.deadline_ns);
}

TEST(Ring, DeliversEveryFieldInOrder) {
  PlainRing ring;
  std::array<Command, 4> out;
  EXPECT_FALSE(ring.reader.has_work());
  EXPECT_EQ(ring.reader.drain(out).value(), 0u);
  for (std::uint64_t plan = 1; plan <= 3; ++plan)
    ASSERT_EQ(ring.writer.push(PlainRing::command(plan)), Code::kOk);
  EXPECT_TRUE(ring.reader.has_work());
  ASSERT_EQ(ring.reader.drain(out).value(), 3u);
  for (std::uint64_t i = 0; i < 3; ++i) expect_command(out[i], i + 1, i);
  EXPECT_FALSE(ring.reader.has_work());
}

TEST(Ring, TakesNoMoreThanTheCallerHasRoomFor) {
  PlainRing ring;
  for (std::uint64_t plan = 0; plan < kCapacity; ++plan)
    ASSERT_EQ(ring.writer.push(PlainRing::command(plan)), Code::kOk);
  std::array<Command, 3> out;
  EXPECT_EQ(ring.reader.drain(out).value(), 3u);
  EXPECT_EQ(ring.reader.drain(out).value(), 3u);
  EXPECT_EQ(ring.reader.drain(out).value(), 2u);
  EXPECT_EQ(ring.reader.drain(std::span<Command>()).value(), 0u);
}

TEST(Ring, RefusesWhenFullAndTakesAgainAfterADrain) {
  PlainRing ring;
  for (std::uint64_t plan = 0; plan < kCapacity; ++plan)
    ASSERT_EQ(ring.writer.push(PlainRing::command(plan)), Code::kOk);
  const auto before = ring.slots;
  EXPECT_EQ(ring.writer.push(PlainRing::command(99)), Code::kBusy);
  EXPECT_EQ(ring.slots, before) << "a refused push writes nothing";
  std::array<Command, 1> out;
  ASSERT_EQ(ring.reader.drain(out).value(), 1u);
  EXPECT_EQ(ring.writer.push(PlainRing::command(99)), Code::kOk);
  EXPECT_EQ(ring.writer.push(PlainRing::command(100)), Code::kBusy);
}

// Goal:   cursors may pass any power of two, 2^64 included.
// Method: plant both cursors just before each edge and run three laps across it.
TEST(Ring, CrossesTheEdgesOfItsCursors) {
  for (const std::uint64_t first : {std::uint64_t{0}, (std::uint64_t{1} << 32) - 3,
                                    (std::uint64_t{1} << 63) - 3, ~std::uint64_t{0} - 2, ~std::uint64_t{0}}) {
    PlainRing ring(first);
    std::array<Command, 5> out;
    for (std::uint64_t round = 0; round < 6; ++round) {
      for (std::uint64_t i = 0; i < 5; ++i)
        ASSERT_EQ(ring.writer.push(PlainRing::command(round * 5 + i)), Code::kOk) << first;
      ASSERT_EQ(ring.reader.drain(out).value(), 5u) << first;
      for (std::uint64_t i = 0; i < 5; ++i) expect_command(out[i], round * 5 + i, first + round * 5 + i);
    }
    EXPECT_EQ(ring.head, first + 30);
  }
}

TEST(Ring, CallsATailThatLiesAProtocolError) {
  struct Lie {
    const char* name;
    std::uint64_t taken, tail;
  };
  const Lie lies[] = {{"one back", 2, 1},
                      {"back to zero", 5, 0},
                      {"one beyond the capacity", 0, kCapacity + 1},
                      {"half of all numbers", 0, std::uint64_t{1} << 63},
                      {"half of all numbers and on", 4, 4 + (std::uint64_t{1} << 63)},
                      {"all ones", 0, ~std::uint64_t{0}}};
  for (const Lie& lie : lies) {
    PlainRing ring;
    std::array<Command, kCapacity> out;
    for (std::uint64_t i = 0; i < lie.taken; ++i)
      ASSERT_EQ(ring.writer.push(PlainRing::command(i)), Code::kOk);
    ASSERT_EQ(ring.reader.drain(out).value(), lie.taken);
    ring.tail = lie.tail;
    const auto result = ring.reader.drain(out);
    ASSERT_FALSE(result) << lie.name;
    EXPECT_EQ(result.error().code(), Code::kProtocol) << lie.name;
    EXPECT_EQ(ring.head, lie.taken) << lie.name << ": nothing was consumed";
    ring.tail = lie.taken;
    EXPECT_EQ(ring.reader.drain(out).error().code(), Code::kProtocol)
        << lie.name << ": once broken, always broken";
    EXPECT_FALSE(ring.reader.has_work()) << "a broken ring keeps no engine awake";
  }
}

TEST(Ring, RefusesASlotThatWasNotPublished) {
  for (const std::uint64_t sequence :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{3}, ~std::uint64_t{0}}) {
    PlainRing ring;
    ASSERT_EQ(ring.writer.push(PlainRing::command(1)), Code::kOk);
    ASSERT_EQ(ring.writer.push(PlainRing::command(2)), Code::kOk);
    ring.slot(1)[0] = sequence;  // 2 would be right
    std::array<Command, kCapacity> out;
    EXPECT_EQ(ring.reader.drain(out).value(), 1u) << "the good command before it is delivered";
    expect_command(out[0], 1, 0);
    EXPECT_EQ(ring.reader.drain(out).error().code(), Code::kProtocol);
    EXPECT_EQ(ring.head, 1u);
  }
}

// Goal:   each byte of a command is fetched once, and a slot rewritten meanwhile is noticed.
// Method: memory that answers differently each time. The words of a slot may be read once, its sequence
//         twice.
TEST(Ring, FetchesEachWordOnce) {
  ChameleonAtomics::reset();
  Ring<ChameleonAtomics> ring;
  ASSERT_EQ(ring.writer.push(PlainRing::command(1)), Code::kOk);
  const std::uint64_t* slot = ring.slot(0);
  ChameleonAtomics::answer = [&](std::uint64_t stored, int nth, const void* word) {
    const bool payload = word > slot && word < slot + kWords;
    return payload ? stored + static_cast<std::uint64_t>(nth) - 1 : stored;
  };
  std::array<Command, kCapacity> out;
  ASSERT_EQ(ring.reader.drain(out).value(), 1u);
  expect_command(out[0], 1, 0);
  for (std::size_t i = 1; i < kWords; ++i) EXPECT_EQ(ChameleonAtomics::loads[slot + i], 1) << "word " << i;
  EXPECT_EQ(ChameleonAtomics::loads[slot], 2);
  EXPECT_EQ(ChameleonAtomics::loads[&ring.tail], 1);
  EXPECT_EQ(ChameleonAtomics::loads[&ring.head], 0) << "the reader never reads back its own word";
}

TEST(Ring, NoticesASlotRewrittenWhileItIsRead) {
  ChameleonAtomics::reset();
  Ring<ChameleonAtomics> ring;
  ASSERT_EQ(ring.writer.push(PlainRing::command(1)), Code::kOk);
  const void* sequence = ring.slot(0);
  ChameleonAtomics::answer = [=](std::uint64_t stored, int nth, const void* word) {
    return word == sequence && nth == 2 ? stored + kCapacity : stored;
  };
  std::array<Command, kCapacity> out;
  EXPECT_EQ(ring.reader.drain(out).error().code(), Code::kProtocol);
  ChameleonAtomics::reset();
}

// Goal:   no memory whatever makes the reader do more than it was asked for.
// Method: every load answers with random bytes, biased to small numbers so that some commands pass.
TEST(Ring, IsBoundedOnMemoryThatIsRandomEachTime) {
  const std::uint64_t seed = 20240611;
  std::mt19937_64 random(seed);
  std::array<Command, 4> out;
  std::size_t delivered = 0;
  for (int round = 0; round < 20000; ++round) {
    ChameleonAtomics::reset();
    Ring<ChameleonAtomics> ring;
    ChameleonAtomics::answer = [&](std::uint64_t, int, const void*) {
      const std::uint64_t value = random();
      return value % 4 == 0 ? value : value % 5;
    };
    std::uint64_t taken = 0;
    for (int turn = 0; turn < 3; ++turn) {
      const auto result = ring.reader.drain(out);
      if (!result) {
        EXPECT_EQ(result.error().code(), Code::kProtocol) << "seed " << seed;
        continue;
      }
      ASSERT_LE(*result, out.size()) << "seed " << seed;
      taken += *result;
    }
    EXPECT_EQ(ring.head, taken) << "seed " << seed;
    delivered += taken;
  }
  EXPECT_GT(delivered, 0u) << "the bias lets some commands through, or this tested nothing";
  ChameleonAtomics::reset();
}

TEST(Ring, DoesNotTrustTheEnginesHeadEither) {
  for (const std::uint64_t lie :
       {std::uint64_t{2}, std::uint64_t{kCapacity + 4}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    PlainRing ring;
    std::array<Command, kCapacity> out;
    for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(ring.writer.push(PlainRing::command(i)), Code::kOk);
    ASSERT_EQ(ring.reader.drain(out).value(), 3u);
    for (std::uint64_t i = 0; i < kCapacity; ++i) {
      if (i + 3 == kCapacity) break;
      ASSERT_EQ(ring.writer.push(PlainRing::command(i)), Code::kOk);
    }
    ASSERT_EQ(ring.writer.push(PlainRing::command(9)), Code::kOk);  // reads head 3
    ring.head = lie;                                                // back, or past the tail of 9
    Code code = Code::kOk;
    while (code == Code::kOk) code = ring.writer.push(PlainRing::command(9));
    EXPECT_EQ(code, Code::kProtocol) << lie;
    ring.head = 9;
    EXPECT_EQ(ring.writer.push(PlainRing::command(9)), Code::kProtocol) << "once broken, always broken";
  }
}

TEST(RingSleep, RingsTheDoorbellOnceANap) {
  PlainRing ring;
  ASSERT_EQ(ring.writer.push(PlainRing::command(1)), Code::kOk);
  EXPECT_FALSE(ring.writer.doorbell_due()) << "the engine polls";
  std::array<Command, kCapacity> out;
  ASSERT_EQ(ring.reader.drain(out).value(), 1u);

  for (int nap = 0; nap < 3; ++nap) {
    ASSERT_TRUE(ring.reader.try_sleep());
    EXPECT_TRUE(ring.writer.doorbell_due());
    EXPECT_FALSE(ring.writer.doorbell_due()) << "one ring is enough to wake it";
    ring.reader.awake();
    EXPECT_FALSE(ring.writer.doorbell_due());
  }
}

TEST(RingSleep, DoesNotSleepOnWork) {
  PlainRing ring;
  ASSERT_EQ(ring.writer.push(PlainRing::command(1)), Code::kOk);
  EXPECT_FALSE(ring.reader.try_sleep());
  EXPECT_EQ(ring.engine_asleep, 0u);
  EXPECT_FALSE(ring.writer.doorbell_due());
}

}  // namespace
}  // namespace muster::shm
