// The duties of every Communicator. A backend instantiates the suite with its own Bench:
//
//   INSTANTIATE_TEST_SUITE_P(Loopback, CommunicatorConformance, ::testing::Values(BenchFactory{"pool", …}),
//   bench_name);
//
// The whole arena is compared: targets must hold the oracle's bits, and every other byte its old value.
#pragma once

#include "kernels/math/copy.hpp"
#include "tests/support/property_cases.hpp"
#include "tests/transport/case_shares.hpp"
#include "tests/transport/conformance_rows.hpp"
#include "tests/transport/made_cases.hpp"
#include "tests/transport/oracle.hpp"
#include "tests/transport/same_bytes.hpp"
#include "transport/collective/communicator.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::test {

// A backend under test: memory that it can reach, streams, one communicator per number of ranks.
class Bench {
 public:
  virtual ~Bench() = default;
  // Launches one collective on the memory that the shares name; at most kInFlight at once. All live until
  // finish(). A backend with its own memory brings the bytes there and back.
  virtual Status launch(const Collective& collective, std::int32_t ranks,
                        std::span<const Share* const> shares) = 0;
  // Waits until everything started has its bytes in its arena.
  virtual Status finish() = 0;
  // Random cases that take it a few seconds.
  virtual std::uint64_t usual_cases() const { return 12'000; }
  virtual Shape random_case(std::uint64_t seed) const { return random_shape(seed); }
};
inline constexpr std::uint64_t kInFlight = 32;
inline constexpr std::size_t kBytesInFlight = 16 << 20;

struct BenchFactory {
  std::string name;
  std::function<std::unique_ptr<Bench>()> make;
};

inline std::string bench_name(const ::testing::TestParamInfo<BenchFactory>& info) {
  return info.param.name;
}

class CommunicatorConformance : public ::testing::TestWithParam<BenchFactory> {
 protected:
  CommunicatorConformance() : bench_(GetParam().make()) {}

  // Launches the collective. True if every one that has ended meanwhile left what the oracle says; settled()
  // waits for the rest. Many are in flight at once, because a wait for each would take most of the time.
  bool conforms(const Shape& shape) {
    static MadeCases cases;
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    return conforms(shape, cases.get(name.substr(0, name.find('/')), number_++, shape));
  }
  bool conforms(const Shape& shape, Case made) {
    return conforms(shape, std::make_shared<const Case>(std::move(made)));
  }
  bool conforms(const Shape& shape, std::shared_ptr<const Case> made) {
    Flight& flight = flights_.emplace_back(Flight{shape, std::move(made), {}, {}});
    flight.arena = flight.made->before;
    auto shares = shares_of(flight.shape.collective, shape.ranks, flight.made->members, flight.arena.data());
    EXPECT_TRUE(shares) << shares.error().text() << "\n  " << shape.text();
    if (!shares) return false;
    flight.shares = *std::move(shares);
    const Status status = bench_->launch(flight.shape.collective, shape.ranks, pointers_to(flight.shares));
    EXPECT_TRUE(status.ok()) << status.text() << "\n  " << shape.text();
    bytes_in_flight_ += flight.arena.size();
    const bool full = flights_.size() == kInFlight || bytes_in_flight_ > kBytesInFlight;
    return status.ok() && (!full || settled());
  }
  bool settled() {
    const Status status = bench_->finish();
    EXPECT_TRUE(status.ok()) << status.text();
    bool good = status.ok();
    for (const Flight& flight : flights_) good = good && equals(flight);
    flights_.clear();
    bytes_in_flight_ = 0;
    return good;
  }

  bool holds_for_random_cases() {
    const std::uint64_t last = muster::test::property_cases(bench_->usual_cases());
    for (std::uint64_t seed = 1; seed <= last; ++seed)
      if (!conforms(bench_->random_case(seed))) return false;
    return settled();
  }

  // A launch of these shares as they are.
  void refused(const Shape& shape, const std::vector<Share>& shares, const std::string& word) {
    const Status status = bench_->launch(shape.collective, shape.ranks, pointers_to(shares));
    EXPECT_EQ(status.code(), Code::kBadArgument) << shape.text();
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "'" << status.message() << "' should name " << word;
  }

  std::unique_ptr<Bench> bench_;

 private:
  // One launch, with all that must live until its end.
  struct Flight {
    Shape shape;
    std::shared_ptr<const Case> made;
    std::vector<std::byte> arena;
    std::vector<Share> shares;
  };
  static bool equals(const Flight& flight) {
    if (same_bytes(flight.arena, flight.made->after)) return true;
    const auto at =
        std::mismatch(flight.arena.begin(), flight.arena.end(), flight.made->after.begin()).first -
        flight.arena.begin();
    ADD_FAILURE() << "byte " << at << " of the arena differs from the oracle: " << flight.shape.text();
    return false;
  }

  std::deque<Flight> flights_;
  std::size_t number_ = 0;  // of the test's next case
  std::size_t bytes_in_flight_ = 0;
};

// For backends whose launch() is given plans that nobody has checked.
class CommunicatorRefusals : public CommunicatorConformance {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorRefusals);

// Goal:   every operation, dtype, operator and group size gives the oracle's bits, apart and in place.
// Method: counts of nothing, one element, less than a vector, and a few tiles; each block of an operation
//         with blocks, and each face, has that many.
TEST_P(CommunicatorConformance, GivesTheBitsOfTheOracle) {
  for (const std::uint64_t count : kEachCount)
    ASSERT_TRUE(for_each_shape(count, [&](const Shape& shape) { return conforms(shape); }));
  ASSERT_TRUE(settled());
}

// Goal:   vectors of many parts, with an odd end.
TEST_P(CommunicatorConformance, GivesTheBitsOfTheOracleOnLongVectors) {
  ASSERT_TRUE(for_each_long_shape([&](const Shape& shape) { return conforms(shape); }));
  ASSERT_TRUE(settled());
}

// Goal:   stores past the cache change no bit, wherever in a line a target begins.
// Method: as much to write as it takes, and an odd end; where all is reduced by four members, because of
//         vectors as long as that only an engine takes two.
TEST_P(CommunicatorConformance, StreamsLargeTargetsExactly) {
  for (const muster_op op : kOps) {
    const muster_redop redop = has_reduction(op) ? MUSTER_MAX : 0;
    const bool reduces_all = op == MUSTER_ALL_REDUCE || op == MUSTER_REDUCE;
    const std::uint64_t total = math::kStreamBytes / sizeof(double) / (reduces_all ? 4 : 1) + 13;
    Shape shape = long_shape(op, MUSTER_F64, redop, reduces_all ? 4 : 2, total, Place::kApart);
    shape.misaligned_bytes = 3;
    ASSERT_TRUE(conforms(shape));
  }
  ASSERT_TRUE(settled());
}

// Goal:   uneven blocks, with members that own nothing at the front, in the middle and at the end.
TEST_P(CommunicatorConformance, TakesUnevenAndEmptyBlocks) {
  const std::vector<std::vector<std::uint64_t>> kCounts = {{5},
                                                           {0},
                                                           {0, 0},
                                                           {0, 7},
                                                           {7, 0},
                                                           {3, 0, 4099},
                                                           {0, 0, 1, 0, 0},
                                                           {1, 2, 3, 4, 5},
                                                           {4099, 1, 0, 4099, 63},
                                                           {0, 64, 0, 128, 0, 1, 0, 0},
                                                           {9, 9, 9, 9, 9, 9, 9, 20'000}};
  for (const muster_op op : {MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER})
    for (const auto& counts : kCounts)
      for (const muster_dtype dtype : math::test::kDtypes)
        for (const Place place : {Place::kApart, Place::kInPlace}) {
          Shape shape = shape_of(op, dtype, op == MUSTER_ALL_GATHER ? 0 : MUSTER_AVG,
                                 static_cast<std::int32_t>(counts.size()), 0, place);
          shape.collective.counts = counts;
          for (const bool scattered : {false, true}) {
            shape.scattered = scattered;
            ASSERT_TRUE(conforms(shape));
          }
        }
  ASSERT_TRUE(settled());
}

// Goal:   cases that nobody thought of, many in flight at once. A failing seed is printed;
//         random_case(seed) replays it.
TEST_P(CommunicatorConformance, HoldsForRandomCases) {
  ASSERT_TRUE(holds_for_random_cases());
}

// Goal:   NaN, infinities, signed zeros and subnormals meet in every pairing and come out as documented.
// Method: member 0 repeats each special value, member 1 cycles through all of them, member 2 runs backwards.
TEST_P(CommunicatorConformance, ReducesSpecialValuesByTheTruthTable) {
  constexpr std::uint64_t kF32[] = {0x7FC00000, 0xFFC12345, 0x7F800001, 0x7F800000, 0xFF800000, 0,
                                    0x80000000, 0x3F800000, 0xBF800000, 1,          0x80000001, 0x7F7FFFFF};
  constexpr std::uint64_t kBf16[] = {0x7FC0, 0xFFC5, 0x7F81, 0x7F80, 0xFF80, 0,
                                     0x8000, 0x3F80, 0xBF80, 1,      0x8001, 0x7F7F};
  constexpr std::uint64_t kF16[] = {0x7E00, 0xFE15, 0x7C01, 0x7C00, 0xFC00, 0,
                                    0x8000, 0x3C00, 0xBC00, 1,      0x8001, 0x7BFF};
  constexpr std::uint64_t kF64[] = {0x7FF8000000000000, 0xFFF8000000012345,
                                    0x7FF0000000000001, 0x7FF0000000000000,
                                    0xFFF0000000000000, 0,
                                    0x8000000000000000, 0x3FF0000000000000,
                                    0xBFF0000000000000, 1,
                                    0x8000000000000001, 0x7FEFFFFFFFFFFFFF};
  constexpr std::size_t kKinds = 12;
  for (const muster_dtype dtype : {MUSTER_F32, MUSTER_BF16, MUSTER_F16, MUSTER_F64}) {
    const std::uint64_t* bits = dtype == MUSTER_F32    ? kF32
                                : dtype == MUSTER_BF16 ? kBf16
                                : dtype == MUSTER_F16  ? kF16
                                                       : kF64;
    const std::size_t bytes = dtype_bytes(dtype);
    for (const std::int32_t ranks : {1, 2, 3})
      for (const muster_redop redop : math::test::kRedops)
        for (const Place place : {Place::kApart, Place::kInPlace}) {
          const Shape shape = shape_of(MUSTER_ALL_REDUCE, dtype, redop, ranks, kKinds * kKinds, place);
          Case c = make_case(shape);
          for (std::size_t i = 0; i < kKinds * kKinds; ++i) {
            const std::size_t kind[] = {i / kKinds, i % kKinds, (i * 7 + 3) % kKinds};
            for (const Placement& m : c.members)
              std::memcpy(c.before.data() + m.source + i * bytes, &bits[kind[m.index]], bytes);
          }
          c.after = oracle(shape.collective, ranks, c.members, c.before, bytes);
          ASSERT_TRUE(conforms(shape, c));
        }
  }
  ASSERT_TRUE(settled());
}

// Goal:   members are known by index: the order in which they are named changes no bit.
TEST_P(CommunicatorConformance, DoesNotCareInWhichOrderMembersAreNamed) {
  for (const muster_op op : kOps) {
    const Shape shape = shape_of(op, MUSTER_F32, redops_of(op).front(), 4, 1000, Place::kApart);
    Case c = make_case(shape);
    std::sort(c.members.begin(), c.members.end(),
              [](const Placement& a, const Placement& b) { return a.index < b.index; });
    do {
      ASSERT_TRUE(conforms(shape, c));
    } while (std::next_permutation(c.members.begin(), c.members.end(),
                                   [](const Placement& a, const Placement& b) { return a.index < b.index; }));
  }
  ASSERT_TRUE(settled());
}

// Goal:   members that are in place meet members that are not, pair by pair.
TEST_P(CommunicatorConformance, ChangesPlacesWhereSomeAreInPlace) {
  for (const std::int32_t ranks : {2, 3, 5})
    for (std::uint64_t mask = 0; mask < std::uint64_t{1} << ranks; ++mask)
      for (const std::uint64_t count : {1, 20'000})
        for (const bool scattered : {false, true}) {
          Shape shape = shape_of(MUSTER_ALL_TO_ALL, MUSTER_BF16, 0, ranks, count, Place::kInPlace);
          shape.apart_mask = mask;
          shape.scattered = scattered;
          ASSERT_TRUE(conforms(shape));
        }
  ASSERT_TRUE(settled());
}

// Goal:   the same with gaps between the blocks, in contributions on both sides of each threshold.
TEST_P(CommunicatorConformance, ChangesPlacesWithGapsAtEachThreshold) {
  constexpr std::int32_t kPair = 2;
  for (const std::uint64_t bytes : kThresholds)
    for (const std::uint64_t more : {0, 1}) {
      const std::uint64_t count = bytes / sizeof(std::uint16_t) / kPair + more;
      Shape shape = shape_of(MUSTER_ALL_TO_ALL, MUSTER_BF16, 0, kPair, count, Place::kInPlace);
      shape.scattered = true;
      ASSERT_TRUE(conforms(shape));
    }
  ASSERT_TRUE(settled());
}

// Goal:   faces meet by tag, in whatever order each end lists them.
TEST_P(CommunicatorConformance, GivesEachFaceToTheReceiveOfItsTag) {
  for (const std::uint64_t count : {3, 40'000}) {
    Shape shape = shape_of(MUSTER_EXCHANGE, MUSTER_U8, 0, 2, count, Place::kApart);
    shape.edges.clear();
    for (std::uint32_t tag = 0; tag < 5; ++tag)
      for (const std::int32_t from : {0, 1}) shape.edges.push_back({from, 1 - from, tag, count});
    Case c = make_case(shape);
    for (Placement& member : c.members) {
      std::reverse(member.receives.begin(), member.receives.end());
      std::rotate(member.sends.begin(), member.sends.begin() + 1 + member.index, member.sends.end());
    }
    ASSERT_TRUE(conforms(shape, c));
  }
  ASSERT_TRUE(settled());
}

// Goal:   every strided face arrives, whatever its shape at the other end.
// Method: faces longer than a part, with seeds that draw other shapes, orders and gaps.
TEST_P(CommunicatorConformance, ExchangesStridedFacesOfManyParts) {
  for (std::uint64_t seed = 0; seed < 6; ++seed)
    for (const muster_dtype dtype : {MUSTER_U8, MUSTER_BF16, MUSTER_F32, MUSTER_F64}) {
      Shape shape = shape_of(MUSTER_EXCHANGE, dtype, 0, 3, 50'400, Place::kApart);
      shape.seed = seed;
      ASSERT_TRUE(conforms(shape));
    }
  ASSERT_TRUE(settled());
}

TEST_P(CommunicatorRefusals, RefusesWhatMakesNoSense) {
  const Shape reduce = shape_of(MUSTER_ALL_REDUCE, MUSTER_F32, MUSTER_SUM, 2, 4, Place::kApart);
  std::vector<std::byte> arena(1 << 10);
  const std::vector<Placement> placed{{0, 0, 64}, {1, 128, 192}};
  const std::vector<Share> shares = *shares_of(reduce.collective, 2, placed, arena.data());
  refused(reduce, {shares[0]}, "members");
  refused(reduce, {shares[0], shares[0]}, "twice");
  Share stranger = shares[1];
  stranger.index = 2;
  refused(reduce, {shares[0], stranger}, "index 2");
  refused(shape_of(MUSTER_ALL_REDUCE, 99, MUSTER_SUM, 2, 4, Place::kApart), shares, "dtype 99");

  Shape self = shape_of(MUSTER_SEND, MUSTER_F32, 0, 2, 4, Place::kApart);
  self.collective.receiver = self.collective.root;
  refused(self, {shares[1]}, "itself");
  EXPECT_EQ(arena, std::vector<std::byte>(1 << 10)) << "a refused collective wrote something";
}

}  // namespace muster::transport::test
