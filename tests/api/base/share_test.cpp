// make_share() and check_share(): a member's own half of a collective.
#include "api/base/collective/collective.hpp"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;
using Counts = std::vector<std::uint64_t>;

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

Collective collective(muster_op op, std::uint64_t count = 0) {
  Collective c;
  c.op = op;
  c.dtype = MUSTER_F32;
  c.count = count;
  if (has_reduction(op)) c.redop = MUSTER_SUM;
  if (is_transfer(op)) c.receiver = 1;
  return c;
}

std::string refusal(const Collective& c, std::int32_t index, std::int32_t ranks,
                    const Share::Counts& counts) {
  const auto share = make_share(c, index, ranks, counts);
  return share ? "no refusal" : share.error().message();
}

// Goal:   each operation's sides have the blocks that muster.h gives them.
TEST(Share, HasTheBlocksOfTheContract) {
  struct Row {
    muster_op op;
    Counts source_of_1, target_of_1, source_of_0, target_of_0;  // the lengths; 0 is the root and sends
  };
  const Row rows[] = {{MUSTER_ALL_REDUCE, {6}, {6}, {6}, {6}},
                      {MUSTER_ALL_GATHER, {6}, {6, 6, 6}, {6}, {6, 6, 6}},
                      {MUSTER_REDUCE_SCATTER, {6, 6, 6}, {6}, {6, 6, 6}, {6}},
                      {MUSTER_BROADCAST, {}, {6}, {6}, {6}},
                      {MUSTER_BARRIER, {}, {}, {}, {}},
                      {MUSTER_SEND, {}, {6}, {6}, {}},
                      {MUSTER_RECV, {}, {6}, {6}, {}},
                      {MUSTER_REDUCE, {6}, {}, {6}, {6}},
                      {MUSTER_GATHER, {6}, {}, {6}, {6, 6, 6}},
                      {MUSTER_SCATTER, {}, {6}, {6, 6, 6}, {6}},
                      {MUSTER_ALL_TO_ALL, {6, 6, 6}, {6, 6, 6}, {6, 6, 6}, {6, 6, 6}},
                      {MUSTER_EXCHANGE, {}, {}, {}, {}}};
  const auto lengths = [](const std::vector<Block>& blocks) {
    Counts counts;
    for (const Block& block : blocks) counts.push_back(block.count);
    return counts;
  };
  for (const Row& row : rows) {
    const Collective c = collective(row.op, is_pairwise(row.op) || row.op == MUSTER_BARRIER ? 0 : 6);
    const Share one = *make_share(c, 1, 3, {.count = 6});
    const Share zero = *make_share(c, 0, 3, {.count = 6});
    EXPECT_EQ(lengths(one.source_blocks), row.source_of_1) << op_name(row.op);
    EXPECT_EQ(lengths(one.target_blocks), row.target_of_1) << op_name(row.op);
    EXPECT_EQ(lengths(zero.source_blocks), row.source_of_0) << op_name(row.op);
    EXPECT_EQ(lengths(zero.target_blocks), row.target_of_0) << op_name(row.op);
    if (is_transfer(row.op)) {
      EXPECT_TRUE(make_share(c, 2, 3, {})->source_blocks.empty());
      EXPECT_TRUE(make_share(c, 2, 3, {})->target_blocks.empty());
    }
  }
}

TEST(Share, LaysBlocksEndToEndOrWhereTheCallerSays) {
  const Counts counts{3, 0, 5};
  const Counts offsets{8, kHuge, 0};
  Collective c = collective(MUSTER_ALL_GATHER);
  c.counts = counts;
  const Share share = *make_share(c, 2, 3, {});
  EXPECT_EQ(share.target_blocks, (std::vector<Block>{{0, 3}, {3, 0}, {3, 5}}));
  EXPECT_EQ(share.source_blocks, (std::vector<Block>{{0, 5}}));
  const Share placed = *make_share(c, 0, 3, {.target_offsets = offsets});
  EXPECT_EQ(placed.target_blocks, (std::vector<Block>{{8, 3}, {0, 0}, {0, 5}}))
      << "an empty block is nowhere";
  EXPECT_EQ(extent_of(placed.target_blocks), 11u);
  EXPECT_EQ(count_of(placed.target_blocks), 8u);
  EXPECT_EQ(got_count(placed), 8u);
  EXPECT_EQ(given_count(placed), 3u);
}

// Goal:   a root's own count is not there to be wrong, nor what another member says of blocks it lacks.
TEST(Share, TakesTheRootsOwnBlockFromItsList) {
  const Counts counts{3, 4};
  const Share gather =
      *make_share(collective(MUSTER_GATHER), 0, 2, {.count = kHuge, .target_counts = counts});
  EXPECT_EQ(gather.source_blocks, (std::vector<Block>{{0, 3}}));
  const Share scatter =
      *make_share(collective(MUSTER_SCATTER), 0, 2, {.count = kHuge, .source_counts = counts});
  EXPECT_EQ(scatter.target_blocks, (std::vector<Block>{{0, 3}}));
  const Share other = *make_share(collective(MUSTER_GATHER), 1, 2, {.count = 9, .target_counts = counts});
  EXPECT_EQ(other.source_blocks, (std::vector<Block>{{0, 9}}));
  EXPECT_TRUE(other.target_blocks.empty());
}

TEST(Share, NamesTheListThatIsWrong) {
  const Counts two{1, 2};
  EXPECT_THAT(refusal(collective(MUSTER_ALL_REDUCE, 4), 0, 2, {.source_counts = two}),
              HasSubstr("source_blocks.counts is given but all_reduce has no such blocks"));
  EXPECT_THAT(refusal(collective(MUSTER_GATHER), 0, 2, {.source_offsets = two}),
              HasSubstr("source_blocks.offsets is given but gather"));
  EXPECT_THAT(refusal(collective(MUSTER_EXCHANGE), 0, 2, {.target_counts = two}), HasSubstr("exchange"));
  EXPECT_THAT(refusal(collective(MUSTER_ALL_TO_ALL), 0, 3, {.target_offsets = two}),
              HasSubstr("target_blocks.offsets has 2 entries; all_to_all in a group of 3"));
  EXPECT_THAT(refusal(collective(MUSTER_ALL_REDUCE, 4), 2, 2, {}), HasSubstr("index 2"));
}

TEST(Share, RefusesWhatOverflows) {
  const Counts huge{kHuge, 1};
  const Counts far{0, kHuge / 8};
  const Counts one{1, 1};
  EXPECT_THAT(refusal(collective(MUSTER_ALL_TO_ALL), 0, 2, {.source_counts = huge}), HasSubstr("2^63"));
  EXPECT_THAT(refusal(collective(MUSTER_ALL_TO_ALL), 0, 2, {.count = kHuge / 8, .target_counts = one}),
              HasSubstr("source_blocks"));
  EXPECT_THAT(refusal(collective(MUSTER_ALL_TO_ALL), 0, 2, {.source_counts = one, .source_offsets = far}),
              HasSubstr("at offset"));
  EXPECT_THAT(refusal(collective(MUSTER_GATHER), 1, 2, {.count = kHuge / 2}), HasSubstr("2^63"));
  EXPECT_THAT(refusal(collective(MUSTER_SCATTER), 1, 2, {.count = kHuge}), HasSubstr("2^63"));
  const Counts overlapping{0, 0};
  EXPECT_THAT(refusal(collective(MUSTER_SCATTER), 0, 2, {.count = kHuge / 8, .source_offsets = overlapping}),
              HasSubstr("2^63"))
      << "a sum too, though the blocks lie in one place";
}

TEST(Share, LetsOnlyWhatIsReadOverlap) {
  const Counts counts{4, 4};
  const Counts offsets{3, 0};
  EXPECT_THAT(refusal(collective(MUSTER_GATHER), 0, 2, {.target_counts = counts, .target_offsets = offsets}),
              HasSubstr("target_blocks: block 1 [0, 4) and block 0 [3, 7) overlap"));
  EXPECT_TRUE(
      make_share(collective(MUSTER_SCATTER), 0, 2, {.source_counts = counts, .source_offsets = offsets}));
  const Counts with_empty{4, 0};
  EXPECT_TRUE(
      make_share(collective(MUSTER_GATHER), 0, 2, {.target_counts = with_empty, .target_offsets = offsets}));
}

// ---- check_share: memory, and where it lies ------------------------------------------------------

alignas(64) std::byte g_memory[4096];  // pointers into it are compared, never followed

std::string check(const Collective& c, Share share, std::ptrdiff_t source, std::ptrdiff_t target,
                  std::int32_t ranks) {
  share.source = source < 0 ? nullptr : g_memory + source;
  share.target = target < 0 ? nullptr : g_memory + target;
  return check_share(c, share, ranks).message();
}

TEST(ShareCheck, AsksForMemoryThatIsUsed) {
  const Collective sum = collective(MUSTER_ALL_REDUCE, 4);
  const Share share = *make_share(sum, 1, 2, {});
  EXPECT_EQ(check(sum, share, 0, 64, 2), "");
  EXPECT_THAT(check(sum, share, -1, 64, 2), HasSubstr("member 1 has no source; 16 bytes"));
  EXPECT_THAT(check(sum, share, 0, -1, 2), HasSubstr("member 1 has no target; 16 bytes"));
  const Collective nothing = collective(MUSTER_ALL_REDUCE, 0);
  EXPECT_EQ(check(nothing, *make_share(nothing, 1, 2, {}), -1, -1, 2), "");
  const Collective broadcast = collective(MUSTER_BROADCAST, 4);
  EXPECT_EQ(check(broadcast, *make_share(broadcast, 0, 2, {}), 0, -1, 2), "") << "the root needs no copy";
  EXPECT_THAT(check(broadcast, *make_share(broadcast, 1, 2, {}), -1, -1, 2), HasSubstr("no target"));
  Share stranger = share;
  stranger.index = 2;
  EXPECT_THAT(check(sum, stranger, 0, 64, 2), HasSubstr("index 2"));
}

TEST(ShareCheck, KnowsOneVectorInPlace) {
  for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_REDUCE, MUSTER_BROADCAST}) {
    const Collective c = collective(op, 4);
    const Share share = *make_share(c, 0, 2, {});
    EXPECT_EQ(check(c, share, 32, 32, 2), "") << op_name(op);
    EXPECT_EQ(check(c, share, 32, 48, 2), "") << "side by side";
    EXPECT_THAT(check(c, share, 32, 36, 2), HasSubstr("overlap")) << op_name(op);
    EXPECT_THAT(check(c, share, 36, 32, 2), HasSubstr("overlap")) << op_name(op);
  }
}

TEST(ShareCheck, KnowsTheOwnBlockInPlace) {
  struct Row {
    muster_op op;
    bool source_is_whole;
  };
  for (const Row& row : {Row{MUSTER_ALL_GATHER, false}, Row{MUSTER_GATHER, false},
                         Row{MUSTER_REDUCE_SCATTER, true}, Row{MUSTER_SCATTER, true}}) {
    Collective c = collective(row.op, is_pairwise(row.op) ? 0 : 4);
    c.root = has_root(row.op) ? 1 : 0;
    const Share share = *make_share(c, 1, 3, {.count = 4});
    const auto place = [&](std::ptrdiff_t whole, std::ptrdiff_t block) {
      return row.source_is_whole ? check(c, share, whole, block, 3) : check(c, share, block, whole, 3);
    };
    EXPECT_EQ(place(64, 80), "") << op_name(row.op) << ": block 1 of three of 16 bytes";
    EXPECT_EQ(place(64, 112), "") << "behind the whole";
    EXPECT_THAT(place(64, 64), HasSubstr("overlap")) << op_name(row.op) << ": another's block";
    EXPECT_THAT(place(64, 96), HasSubstr("overlap")) << op_name(row.op);
    EXPECT_THAT(place(64, 84), HasSubstr("overlap")) << op_name(row.op);
  }
}

TEST(ShareCheck, LetsABlockLieInAGap) {
  const Counts offsets{0, 8, 16};
  const Collective c = collective(MUSTER_ALL_GATHER, 4);
  const Share share = *make_share(c, 0, 3, {.target_offsets = offsets});
  EXPECT_EQ(check(c, share, 64 + 16, 64, 3), "") << "between blocks 0 and 1";
  EXPECT_EQ(check(c, share, 64, 64, 3), "") << "in place";
  EXPECT_THAT(check(c, share, 64 + 20, 64, 3), HasSubstr("overlap"));
}

// Goal:   memory that is written in place must not be read for another block as well.
TEST(ShareCheck, RefusesASourceBlockOverTheOneInPlace) {
  const Counts offsets{0, 4, 2};
  const Collective c = collective(MUSTER_REDUCE_SCATTER, 4);
  const Share share = *make_share(c, 0, 3, {.source_offsets = offsets});
  EXPECT_THAT(check(c, share, 64, 64, 3), HasSubstr("overlap"));
  EXPECT_EQ(check(c, share, 64, 256, 3), "") << "apart they may overlap";
}

TEST(ShareCheck, KnowsAnAllToAllInPlace) {
  const Collective c = collective(MUSTER_ALL_TO_ALL);
  const Counts counts{1, 2, 3};
  const Counts other{2, 1, 3};
  const Share same = *make_share(c, 0, 3, {.source_counts = counts, .target_counts = counts});
  EXPECT_EQ(check(c, same, 64, 64, 3), "");
  EXPECT_EQ(check(c, same, 64, 88, 3), "");
  EXPECT_THAT(check(c, same, 64, 68, 3), HasSubstr("overlap"));
  const Share different = *make_share(c, 0, 3, {.source_counts = counts, .target_counts = other});
  EXPECT_THAT(check(c, different, 64, 64, 3), HasSubstr("overlap")) << "blocks must be the same";
  const Counts swapped{2, 0, 3};
  const Share moved =
      *make_share(c, 0, 3, {.source_counts = counts, .target_counts = counts, .target_offsets = swapped});
  EXPECT_THAT(check(c, moved, 64, 64, 3), HasSubstr("overlap"));
  const Counts even{2, 2, 2};
  const Counts crossed{2, 0, 4};
  const Share another =
      *make_share(c, 0, 3, {.source_counts = even, .target_counts = even, .target_offsets = crossed});
  EXPECT_THAT(check(c, another, 64, 64, 3), HasSubstr("overlap")) << "another rank's block, of the same size";
}

// ---- check_share: faces ---------------------------------------------------------------------------

Face face(std::int32_t peer, std::uint32_t tag, std::size_t at, std::vector<std::int64_t> size,
          std::vector<std::int64_t> stride) {
  Face f;
  f.dtype = MUSTER_F32;
  f.peer = peer;
  f.tag = tag;
  f.dims = static_cast<std::int32_t>(size.size());
  std::copy(size.begin(), size.end(), f.size.begin());
  std::copy(stride.begin(), stride.end(), f.stride.begin());
  f.data = g_memory + at;
  return f;
}

std::string check_faces(std::vector<Face> sends, std::vector<Face> receives) {
  Share share;
  share.index = 1;
  share.sends = std::move(sends);
  share.receives = std::move(receives);
  return check_share(collective(MUSTER_EXCHANGE), share, 4).message();
}

TEST(FaceCheck, NamesTheFaceThatIsWrong) {
  EXPECT_EQ(check_faces({face(0, 0, 0, {4}, {1})}, {face(2, 0, 64, {4}, {1})}), "");
  EXPECT_THAT(check_faces({face(4, 3, 0, {4}, {1})}, {}),
              HasSubstr("sends[0] of member 1 (peer 4, tag 3): the peer is not a member"));
  EXPECT_THAT(check_faces({}, {face(-1, 0, 0, {4}, {1})}), HasSubstr("receives[0]"));
  EXPECT_THAT(check_faces({face(0, 0, 0, {-1}, {1})}, {}), HasSubstr("size -1"));
  EXPECT_THAT(check_faces({face(0, 0, 0, {4}, {-1})}, {}), HasSubstr("stride -1"));
  EXPECT_THAT(check_faces({face(0, 0, 0, {4}, {0})}, {}), HasSubstr("stride 0"));
  Face flat = face(0, 0, 0, {4}, {1});
  for (const std::int32_t dims : {9, -1}) {
    flat.dims = dims;
    EXPECT_THAT(check_faces({flat}, {}), HasSubstr(std::to_string(dims) + " dims; 0 to 8 are possible"));
  }
  flat.dims = 1;
  flat.data = nullptr;
  EXPECT_THAT(check_faces({flat}, {}), HasSubstr("no memory for its 4 elements"));
  flat.size[0] = 0;
  EXPECT_EQ(check_faces({flat}, {}), "") << "an empty face needs none";
  flat.dtype = 99;
  EXPECT_THAT(check_faces({flat}, {}), HasSubstr("dtype 99 is none"));
  Face bytes = face(0, 0, 61, {4}, {1});
  bytes.dtype = MUSTER_U8;
  EXPECT_THAT(check_faces({bytes}, {face(2, 0, 64, {4}, {1})}), HasSubstr("overlap"));
  bytes.data = g_memory + 60;
  EXPECT_EQ(check_faces({bytes}, {face(2, 0, 64, {4}, {1})}), "");
  EXPECT_EQ(check_faces({face(1, 0, 0, {}, {})}, {face(1, 0, 64, {}, {})}), "") << "a scalar to oneself";
}

TEST(FaceCheck, RefusesOneEdgeTwice) {
  EXPECT_THAT(check_faces({face(0, 7, 0, {4}, {1}), face(2, 7, 0, {4}, {1}), face(0, 7, 32, {4}, {1})}, {}),
              HasSubstr("sends[0] of member 1 (peer 0, tag 7) and sends[2] are one edge"));
  EXPECT_EQ(check_faces({face(0, 7, 0, {4}, {1}), face(0, 8, 0, {4}, {1})}, {}), "")
      << "and what is sent may overlap";
}

TEST(FaceCheck, RefusesViewsBeyondAllMemory) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(check_faces({face(0, 0, 0, {kMost}, {1})}, {}), HasSubstr("2^63"));
  EXPECT_THAT(check_faces({face(0, 0, 0, {kMost, kMost, kMost, kMost}, {1, 1, 1, 1})}, {}),
              HasSubstr("2^63"));
  EXPECT_THAT(check_faces({face(0, 0, 0, {kMost, kMost}, {kMost, kMost})}, {}), HasSubstr("2^63"));
  EXPECT_THAT(check_faces({face(0, 0, 0, {1 << 20, 1 << 20, 1 << 20, 1 << 20}, {1, 1, 1, 1})}, {}),
              HasSubstr("2^63"))
      << "a small span with 2^80 elements";
  EXPECT_EQ(check_faces({face(0, 0, 0, {kMost, 0, kMost}, {kMost, 1, kMost})}, {}), "") << "nothing at all";
}

TEST(FaceCheck, WantsWhatIsWrittenApart) {
  EXPECT_THAT(check_faces({}, {face(0, 0, 0, {3, 3}, {2, 1})}), HasSubstr("may overlap"));
  EXPECT_EQ(check_faces({face(0, 0, 0, {3, 3}, {2, 1})}, {}), "") << "what is read may";
  EXPECT_THAT(check_faces({}, {face(0, 0, 0, {4}, {1}), face(2, 0, 12, {4}, {1})}),
              HasSubstr("receives[0] of member 1 (peer 0, tag 0) and receives[1] of member 1 (peer 2, tag 0) "
                        "overlap"));
  EXPECT_THAT(check_faces({face(0, 0, 0, {4}, {1})}, {face(2, 0, 14, {4}, {1})}), HasSubstr("overlap"))
      << "by half an element";
  // Columns of a 4×5 matrix of f32: their ranges overlap, they do not.
  EXPECT_EQ(check_faces({face(0, 0, 4, {4}, {5})}, {face(0, 0, 0, {4}, {5}), face(2, 0, 16, {4}, {5})}), "");
  EXPECT_THAT(check_faces({face(0, 0, 4, {4}, {5})}, {face(0, 0, 24, {3}, {5})}), HasSubstr("overlap"));
  EXPECT_THAT(check_faces({face(0, 0, 40, {5}, {1})}, {face(0, 0, 0, {4}, {5})}), HasSubstr("overlap"))
      << "a row and a column";
}

}  // namespace
}  // namespace muster
