// Rooms: where a start with offsets of its own may begin the vectors of a plan.
#include "api/base/collective/rooms.hpp"

#include "api/base/dtype.hpp"

#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using Offsets = Rooms::Offsets;

using ::testing::HasSubstr;

constexpr std::uint64_t kBytes = 480;  // of each buffer
constexpr std::uint64_t kOne = 7, kOther = 8;

// Where a byte of a buffer would lie; nothing follows these addresses.
std::byte* address(std::uint64_t buffer, std::uint64_t offset) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): only compared
  return reinterpret_cast<std::byte*>((buffer << 32) + offset);
}

// A member's half of a collective with its vectors in these buffers.
struct Half {
  Collective what;
  Share mine;
  std::int32_t ranks = 1;
  std::uint64_t source_buffer = kOne, target_buffer = kOther;
  Offsets planned;

  bool reads() const { return extent_of(mine.source_blocks) > 0; }
  bool writes() const { return extent_of(mine.target_blocks) > 0; }
  Share at(const Offsets& offsets) const {
    Share share = mine;
    share.source = reads() ? address(source_buffer, offsets.source) : nullptr;
    share.target = writes() ? address(target_buffer, offsets.target) : nullptr;
    return share;
  }
  Rooms rooms(std::uint64_t bytes = kBytes) const {
    return Rooms(what, at(planned), {source_buffer, bytes}, {target_buffer, bytes}, planned);
  }
  Status check(const Offsets& to) const { return rooms().check(what, at(planned), to); }
};

Half half_of(muster_op op, std::int32_t index, std::int32_t ranks, const Share::Counts& counts) {
  muster_collective said = MUSTER_COLLECTIVE_INIT;
  said.op = op;
  said.dtype = MUSTER_F32;
  if (has_reduction(op)) said.redop = MUSTER_SUM;
  if (is_transfer(op)) said.peer = index == 0 ? 1 : 0;
  Half half;
  half.ranks = ranks;
  half.what = *make_collective(said, index, ranks, counts);
  half.mine = *make_share(half.what, index, ranks, counts);
  return half;
}

TEST(Rooms, NameFieldValueAndRemedy) {
  const Half half = half_of(MUSTER_ALL_REDUCE, 0, 2, {.count = 20});
  EXPECT_TRUE(half.check({400, 0}).ok());
  EXPECT_TRUE(half.check({0, 400}).ok());
  const Status odd = half.check({402, 0});
  EXPECT_EQ(odd.code(), Code::kBadArgument);
  EXPECT_THAT(odd.message(),
              HasSubstr("source_offset_bytes 402 is not a multiple of the 4 bytes of an element"));
  const Status behind = half.check({0, 404});
  EXPECT_EQ(behind.code(), Code::kBadArgument);
  EXPECT_THAT(behind.message(),
              HasSubstr("target_offset_bytes 404: the 80 bytes from there end behind the 480 "
                        "bytes of the buffer; give at most 400"));
  for (const std::uint64_t wrapping : {UINT64_MAX - 3, UINT64_MAX - 79, std::uint64_t{1} << 63})
    EXPECT_EQ(half.check({wrapping, 0}).code(), Code::kBadArgument) << wrapping;
}

TEST(Rooms, MoveInPlaceAndApart) {
  Half half = half_of(MUSTER_ALL_REDUCE, 0, 2, {.count = 20});
  half.target_buffer = kOne;
  EXPECT_TRUE(half.check({80, 80}).ok()) << "in place stays in place";
  EXPECT_TRUE(half.check({0, 80}).ok()) << "apart";
  const Status half_way = half.check({0, 40});
  EXPECT_EQ(half_way.code(), Code::kBadArgument);
  EXPECT_THAT(half_way.message(), HasSubstr("source and target of member 0 overlap"));
  half.planned = {0, 80};
  EXPECT_TRUE(half.check({240, 240}).ok()) << "what was apart comes together";
}

// Goal:   the own block's layout is that of the plan, so a start with pieces cannot change it.
TEST(Rooms, KeepPiecesInPlaceOrApart) {
  constexpr std::uint32_t kCounts[] = {1, 1};
  constexpr muster_piece kPieces[] = {{20, 5}, {40, 5}};
  for (const bool in_place : {false, true}) {
    Half half =
        half_of(MUSTER_ALL_GATHER, 0, 2, {.piece_counts = kCounts, .pieces = kPieces, .in_place = in_place});
    half.target_buffer = kOne;
    if (!in_place) half.planned = {240, 0};
    EXPECT_TRUE(half.check(half.planned).ok());
    EXPECT_EQ(half.check({40, 40}).ok(), in_place);
    EXPECT_EQ(half.check({280, 40}).ok(), !in_place);
    const Status refused = half.check(in_place ? Offsets{280, 40} : Offsets{40, 40});
    EXPECT_THAT(refused.message(),
                HasSubstr(in_place ? "made in place; give equal" : "not made in place; give"));
    half.target_buffer = kOther;
    EXPECT_TRUE(half.check({40, 40}).ok()) << "places of two buffers are never one";
  }
}

TEST(Rooms, IgnoreAVectorThatTheMemberDoesNotHave) {
  const Half sender = half_of(MUSTER_SEND, 0, 2, {.count = 20});
  EXPECT_TRUE(sender.check({400, 3}).ok());
  EXPECT_FALSE(sender.check({404, 3}).ok());
  const Half empty = half_of(MUSTER_ALL_REDUCE, 0, 2, {});
  EXPECT_TRUE(empty.check({4000, 8}).ok()) << "no element lies there";
  EXPECT_FALSE(empty.check({3, 8}).ok());
}

TEST(Rooms, AreNoneForWhatDoesNotMove) {
  Half gather = half_of(MUSTER_ALL_GATHER, 0, 2, {.count = 4});
  gather.what.shared_memory = 9;
  EXPECT_EQ(gather.check({0, 0}).code(), Code::kUnsupported);
  for (const muster_op op : {MUSTER_BARRIER, MUSTER_EXCHANGE}) {
    Half none;
    none.what.op = op;
    EXPECT_EQ(none.check({0, 0}).code(), Code::kUnsupported) << op_name(op);
  }
}

TEST(Rooms, ShiftTheAddressesOfTheShare) {
  Half half = half_of(MUSTER_ALL_REDUCE, 0, 2, {.count = 20});
  half.planned = {80, 160};
  const Share share = half.at(half.planned);
  const Share::Bases moved = half.rooms().bases(share, {0, 400});
  EXPECT_EQ(moved.source, address(kOne, 0));
  EXPECT_EQ(moved.target, address(kOther, 400));
  const Half empty = half_of(MUSTER_ALL_REDUCE, 0, 2, {});
  EXPECT_EQ(empty.rooms().bases(empty.at({}), {UINT64_MAX, 4}).source, nullptr);
}

// ---- any half at any offsets -------------------------------------------------------------------

struct Drawing {
  std::minstd_rand random;
  std::vector<std::uint64_t> counts, offsets, other_offsets;
  std::vector<std::uint32_t> piece_counts;
  std::vector<muster_piece> pieces;

  explicit Drawing(std::uint32_t seed) : random(seed * 2654435761U + 1) {}
  std::uint64_t below(std::uint64_t n) { return random() % n; }
  std::uint64_t offset() { return below(kBytes / 4 / 3) * 4 * (below(3) == 0 ? 3 : 1); }

  // Nothing if what was drawn is no collective.
  std::optional<Half> half() {
    const auto op = static_cast<muster_op>(1 + below(static_cast<std::uint64_t>(kOperations)));
    if (!has_vectors(op)) return std::nullopt;
    const auto ranks = static_cast<std::int32_t>(is_transfer(op) ? 2 : 1 + below(4));
    const auto index = static_cast<std::int32_t>(below(static_cast<std::uint64_t>(ranks)));
    const auto members = static_cast<std::size_t>(ranks);
    Half half;
    half.ranks = ranks;
    half.target_buffer = below(4) == 0 ? kOther : kOne;
    half.planned = {offset(), offset()};
    if (below(3) == 0) half.planned.target = half.planned.source;
    Share::Counts said{.count = below(12)};
    said.in_place = half.planned.source == half.planned.target && half.target_buffer == kOne;
    const bool cut_source = has_source_blocks(op, index == 0), cut_target = has_target_blocks(op, index == 0);
    if (has_agreed_blocks(op) && below(3) == 0) {
      said.count = 0;
      std::uint64_t at = 0;
      for (std::size_t i = 0; i < members; ++i) {
        piece_counts.push_back(static_cast<std::uint32_t>(below(3)));
        for (std::uint32_t k = 0; k < piece_counts.back(); ++k) {
          at += below(4);
          pieces.push_back({at, below(6)});
          at += pieces.back().count;
        }
      }
      said.piece_counts = piece_counts;
      said.pieces = pieces;
    } else if ((cut_source || cut_target) && below(2) == 0) {
      for (std::size_t i = 0; i < members; ++i) {
        counts.push_back(below(8));
        offsets.push_back(12 * ((i + 1) % members));
        other_offsets.push_back(8 * i + below(5));
      }
      if (cut_source) said.source_counts = counts, said.source_offsets = offsets;
      if (cut_target)
        said.target_counts = counts, said.target_offsets = below(2) == 0 ? offsets : other_offsets;
    }
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = op;
    c.dtype = MUSTER_F32;
    if (has_reduction(op)) c.redop = MUSTER_SUM;
    if (is_transfer(op)) c.peer = 1 - index;
    auto what = make_collective(c, index, ranks, said);
    if (!what) return std::nullopt;
    half.what = *std::move(what);
    auto mine = make_share(half.what, index, ranks, said);
    if (!mine) return std::nullopt;
    half.mine = *std::move(mine);
    const bool fits =
        !outside(half, half.planned) && check_share(half.what, half.at(half.planned), ranks).ok();
    return fits ? std::optional(half) : std::nullopt;
  }
  static bool outside(const Half& half, const Offsets& at) {
    const auto ends_behind = [](std::uint64_t begin, std::span<const Block> blocks) {
      const std::uint64_t need = extent_of(blocks) * 4;
      return need > 0 && (begin > kBytes || begin + need > kBytes);
    };
    return ends_behind(at.source, half.mine.source_blocks) || ends_behind(at.target, half.mine.target_blocks);
  }
};

// Goal:   a start may do what a plan made there could do, and nothing else.
// Method: the checks of a plan, on the share with its vectors at the new offsets; pieces have one rule more.
TEST(Rooms, AllowWhatAPlanMadeThereCouldDo) {
  std::uint64_t allowed = 0, refused = 0;
  for (std::uint32_t seed = 1; seed <= 40'000; ++seed) {
    Drawing drawing(seed);
    const std::optional<Half> half = drawing.half();
    if (!half) continue;
    const Rooms rooms = half->rooms();
    for (int i = 0; i < 8; ++i) {
      Offsets to{drawing.offset(), drawing.offset()};
      if (drawing.below(3) == 0) to.target = to.source + half->planned.target - half->planned.source;
      if (drawing.below(4) == 0) to.target = to.source;
      const bool pieces = !half->what.first_piece.empty() && half->reads() && half->writes() &&
                          half->source_buffer == half->target_buffer;
      const bool changes_place =
          pieces && (to.source == to.target) != (half->planned.source == half->planned.target);
      const bool expected = !Drawing::outside(*half, to) && !changes_place &&
                            check_share(half->what, half->at(to), half->ranks).ok();
      const Status found = rooms.check(half->what, half->mine, to);
      ASSERT_EQ(found.ok(), expected) << "seed " << seed << ", " << op_name(half->what.op) << " to "
                                      << to.source << " and " << to.target << ": " << found.text();
      ASSERT_EQ(rooms.allow(half->what, half->mine, to), expected) << "seed " << seed;
      ++(expected ? allowed : refused);
      if (!expected) continue;
      const Share share = half->at(to);
      const Share::Bases bases = rooms.bases(half->at(half->planned), to);
      ASSERT_EQ(bases.source, share.source);
      ASSERT_EQ(bases.target, share.target);
    }
  }
  EXPECT_GT(allowed, 10'000u);
  EXPECT_GT(refused, 10'000u);
}

}  // namespace
}  // namespace muster
