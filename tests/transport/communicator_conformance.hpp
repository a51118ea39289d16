// What every Communicator must do. A backend passes by instantiating the suite with its own Bench:
//
//   INSTANTIATE_TEST_SUITE_P(Loopback, CommunicatorConformance, ::testing::Values(BenchFactory{"pool", …}),
//   bench_name);
//
// The arena is compared whole: targets must hold the oracle's bits, and every other byte what it held before.
#pragma once

#include "tests/transport/collective_case.hpp"
#include "tests/transport/oracle.hpp"
#include "transport/collective/communicator.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::test {

// A backend under test: memory that it can reach, streams, one communicator per number of ranks.
class Bench {
 public:
  virtual ~Bench() = default;
  // Starts one collective on the arena; at most kInFlight at once. All four live until finish(). A backend
  // with its own memory brings the bytes there and back.
  virtual Status start(const Collective& collective, std::int32_t ranks, std::span<const Placement> members,
                       std::vector<std::byte>& arena) = 0;
  // Waits until everything started has its bytes in its arena.
  virtual Status finish() = 0;
};
inline constexpr std::uint64_t kInFlight = 32;

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

  // True if the collective leaves exactly what the oracle says.
  bool conforms(const Shape& shape) { return conforms(shape, make_case(shape)); }
  bool conforms(const Shape& shape, const Case& c) {
    std::vector<std::byte> arena = c.before;
    return started(shape, c, arena) && finished() && equals(shape, c, arena);
  }
  bool started(const Shape& shape, const Case& c, std::vector<std::byte>& arena) {
    const Status status = bench_->start(shape.collective, shape.ranks, c.members, arena);
    EXPECT_TRUE(status.ok()) << status.text() << "\n  " << shape.text();
    return status.ok();
  }
  bool finished() {
    const Status status = bench_->finish();
    EXPECT_TRUE(status.ok()) << status.text();
    return status.ok();
  }
  static bool equals(const Shape& shape, const Case& c, const std::vector<std::byte>& arena) {
    if (arena == c.after) return true;
    const auto at = std::mismatch(arena.begin(), arena.end(), c.after.begin()).first - arena.begin();
    ADD_FAILURE() << "byte " << at << " of the arena differs from the oracle: " << shape.text();
    return false;
  }

  // Every operator that the operation knows.
  static std::vector<muster_redop> redops_of(muster_op op) {
    if (op != MUSTER_ALL_REDUCE && op != MUSTER_REDUCE_SCATTER) return {0};
    return {std::begin(math::test::kRedops), std::end(math::test::kRedops)};
  }

  void refused(const Shape& shape, const std::vector<Placement>& members, const std::string& word) {
    std::vector<std::byte> arena(1 << 16);
    const Status status = bench_->start(shape.collective, shape.ranks, members, arena);
    EXPECT_EQ(status.code(), Code::kBadArgument) << shape.text();
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "'" << status.message() << "' should name " << word;
    EXPECT_EQ(arena, std::vector<std::byte>(1 << 16)) << "a refused collective wrote something";
  }

  std::unique_ptr<Bench> bench_;
};

inline constexpr std::int32_t kRanks[] = {1, 2, 3, 5, 8};

inline Shape shape_of(muster_op op, muster_dtype dtype, muster_redop redop, std::int32_t ranks,
                      std::uint64_t count, Place place) {
  Shape shape;
  shape.collective.op = op;
  shape.collective.dtype = dtype;
  shape.collective.redop = redop;
  shape.collective.scale = math::test::scale_for(dtype);
  shape.collective.count = count;
  if (op == MUSTER_BROADCAST) shape.collective.root = ranks - 1;
  if (op == MUSTER_SEND || op == MUSTER_RECV) {
    shape.collective.root = ranks - 1;
    shape.collective.receiver = 0;
  }
  shape.ranks = ranks;
  shape.place = place;
  shape.seed = count + static_cast<std::uint64_t>(ranks);
  return shape;
}

// Goal:   every operation, dtype, operator and group size gives the oracle's bits, apart and in place.
// Method: counts of nothing, one element, less than a vector, and a few tiles; the block of a gather or
// scatter has that many.
TEST_P(CommunicatorConformance, GivesTheBitsOfTheOracle) {
  for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_BROADCAST,
                             MUSTER_SEND, MUSTER_RECV})
    for (const muster_dtype dtype : math::test::kDtypes)
      for (const muster_redop redop : redops_of(op))
        for (const std::int32_t ranks : kRanks) {
          if ((op == MUSTER_SEND || op == MUSTER_RECV) && ranks == 1) continue;
          for (const std::uint64_t count : {0, 1, 7, 4099})
            for (const Place place : {Place::kApart, Place::kInPlace}) {
#if defined(MUSTER_SANITIZED)
              // Instrumented oracles are slow: the longer count keeps three dtypes of different width and
              // format.
              if (count == 4099 && dtype != MUSTER_F32 && dtype != MUSTER_BF16 && dtype != MUSTER_U8)
                continue;
#endif
              ASSERT_TRUE(conforms(shape_of(op, dtype, redop, ranks, count, place)));
            }
        }
}

// Goal:   vectors of many parts, with an odd end.
// Method: 262,147 elements in the whole vector. Blocks of gather and scatter get uneven counts that add up to
// it.
TEST_P(CommunicatorConformance, GivesTheBitsOfTheOracleOnLongVectors) {
  constexpr std::uint64_t kTotal = 262'147;
  for (const muster_op op :
       {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_BROADCAST, MUSTER_SEND})
    for (const muster_dtype dtype : math::test::kDtypes)
      for (const muster_redop redop : redops_of(op))
        for (const std::int32_t ranks : kRanks) {
          if (op == MUSTER_SEND && ranks == 1) continue;
#if defined(MUSTER_SANITIZED)
          // Instrumented, one long case costs up to a second: a subset that still crosses parts in every
          // operation.
          if ((dtype != MUSTER_F32 && dtype != MUSTER_U8) || redop > MUSTER_SUM || ranks == 8 || ranks == 2)
            continue;
#endif
          for (const Place place : {Place::kApart, Place::kInPlace}) {
            Shape shape = shape_of(op, dtype, redop, ranks, kTotal, place);
            if (op == MUSTER_ALL_GATHER || op == MUSTER_REDUCE_SCATTER) {
              shape.collective.count = 0;
              std::uint64_t left = kTotal;
              for (std::int32_t k = 0; k + 1 < ranks; ++k) {
                shape.collective.counts.push_back(left / 3);
                left -= left / 3;
              }
              shape.collective.counts.push_back(left);
            }
            ASSERT_TRUE(conforms(shape));
          }
        }
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
          Shape shape =
              shape_of(op, dtype, op == MUSTER_ALL_GATHER ? 0 : MUSTER_AVG,
                       static_cast<std::int32_t>(counts.size()), 12345, place);  // count means nothing here
          shape.collective.counts = counts;
          ASSERT_TRUE(conforms(shape));
        }
}

// Goal:   10,000 cases that nobody thought of, many in flight at once. A failing seed is printed;
// random_shape(seed) replays
//         it.
TEST_P(CommunicatorConformance, HoldsForTenThousandRandomCases) {
  for (std::uint64_t first = 1; first <= 10'000; first += kInFlight) {
    std::vector<Shape> shapes;
    std::vector<Case> cases;
    std::vector<std::vector<std::byte>> arenas;
    for (std::uint64_t seed = first; seed < first + kInFlight; ++seed) {
      shapes.push_back(random_shape(seed));
      cases.push_back(make_case(shapes.back()));
      arenas.push_back(cases.back().before);
    }
    bool good = true;
    for (std::size_t i = 0; i < shapes.size(); ++i) good = good && started(shapes[i], cases[i], arenas[i]);
    ASSERT_TRUE(finished() && good);
    for (std::size_t i = 0; i < shapes.size(); ++i)
      ASSERT_TRUE(equals(shapes[i], cases[i], arenas[i])) << "seed " << shapes[i].seed;
  }
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
}

// Goal:   members are known by index: the order in which they are named changes no bit.
TEST_P(CommunicatorConformance, DoesNotCareInWhichOrderMembersAreNamed) {
  for (const muster_op op :
       {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_BROADCAST, MUSTER_SEND}) {
    const Shape shape = shape_of(op, MUSTER_F32, redops_of(op).front(), 4, 1000, Place::kApart);
    Case c = make_case(shape);
    std::sort(c.members.begin(), c.members.end(),
              [](const Placement& a, const Placement& b) { return a.index < b.index; });
    do {
      ASSERT_TRUE(conforms(shape, c));
    } while (std::next_permutation(c.members.begin(), c.members.end(),
                                   [](const Placement& a, const Placement& b) { return a.index < b.index; }));
  }
}

TEST_P(CommunicatorConformance, FinishesBarriers) {
  for (const std::int32_t ranks : kRanks) {
    Shape shape;
    shape.collective.op = MUSTER_BARRIER;
    shape.ranks = ranks;
    EXPECT_TRUE(conforms(shape));
  }
}

TEST_P(CommunicatorConformance, RefusesWhatMakesNoSense) {
  const Shape reduce = shape_of(MUSTER_ALL_REDUCE, MUSTER_F32, MUSTER_SUM, 2, 4, Place::kApart);
  refused(reduce, {{0, 0, 64}}, "members");
  refused(reduce, {{0, 0, 64}, {0, 128, 192}}, "twice");
  refused(reduce, {{0, 0, 64}, {2, 128, 192}}, "index 2");
  refused(shape_of(MUSTER_ALL_REDUCE, 99, MUSTER_SUM, 2, 4, Place::kApart), {{0, 0, 64}, {1, 128, 192}},
          "dtype 99");

  Shape self = shape_of(MUSTER_SEND, MUSTER_F32, 0, 2, 4, Place::kApart);
  self.collective.receiver = self.collective.root;
  refused(self, {{1, 0, 64}}, "itself");
}

}  // namespace muster::transport::test
