// Blocks in pieces: what one parameter group needs, through the C API, on both paths.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::HasSubstr;

// Two tensors of 5 and 3 elements, each cut by ceil-chunks over two ranks, lie at 0 and at 8: rank 0 has 3
// and 2 elements, rank 1 has 2 and 1.
constexpr std::uint32_t kCounts[] = {2, 2};
constexpr muster_piece kPieces[] = {{0, 3}, {8, 2}, {3, 2}, {10, 1}};
constexpr std::uint64_t kOwn[] = {5, 3};
constexpr std::size_t kWhole = 11;

class Pieces : public muster::test::RunningRanks {
 protected:
  static muster_collective all_gather(const Member& member, const Vector& source, const Vector& target) {
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = MUSTER_ALL_GATHER;
    c.group = member.group;
    c.dtype = MUSTER_F32;
    c.source = {source.buffer, 0};
    c.target = {target.buffer, 0};
    c.target_blocks = {nullptr, nullptr, kCounts, kPieces};
    return c;
  }
  static muster_collective reduce_scatter(const Member& member, const Vector& source, const Vector& target) {
    muster_collective c = all_gather(member, source, target);
    c.op = MUSTER_REDUCE_SCATTER;
    c.redop = MUSTER_SUM;
    c.target_blocks = {nullptr, nullptr, nullptr, nullptr};
    c.source_blocks = {nullptr, nullptr, kCounts, kPieces};
    return c;
  }
  static void both_paths(Member& member, const muster_collective& c, const std::function<void()>& fill,
                         const std::function<void(const char*)>& check) {
    fill();
    ASSERT_EQ(member.run(c), MUSTER_OK) << member.error;
    check("run");
    fill();
    muster_submit submit = MUSTER_SUBMIT_INIT;
    muster_point point = MUSTER_POINT_NONE;
    ASSERT_EQ(muster_collect(member.session, &c, &submit, &point), MUSTER_OK) << muster_last_error();
    ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
    check("started");
  }
  // Element i of a rank's tensors.
  static float value(int rank, std::size_t i) {
    return static_cast<float>(100 * rank) + static_cast<float>(i);
  }
};

// Goal:   the shards of two tensors, packed, land in the tensors, and nothing else is written.
TEST_F(Pieces, GatherPackedShardsIntoWholeTensors) {
  with_ranks(2, [&](Member& member) {
    const Vector shard = vector_of(member, 8), whole = vector_of(member, 16);
    const auto fill = [&] {
      for (std::size_t i = 0; i < 16; ++i) whole.data[i] = -1;
      std::size_t at = 0;
      for (std::size_t k = 0; k < 2; ++k) {
        const muster_piece& piece = kPieces[2 * static_cast<std::size_t>(member.rank) + k];
        for (std::uint64_t i = 0; i < piece.count; ++i) shard.data[at++] = value(0, piece.offset + i);
      }
    };
    both_paths(member, all_gather(member, shard, whole), fill, [&](const char* how) {
      for (std::size_t i = 0; i < 16; ++i)
        EXPECT_EQ(whole.data[i], (i >= 5 && i < 8) || i >= kWhole ? -1 : value(0, i)) << how << " " << i;
    });
  });
}

TEST_F(Pieces, GatherShardsThatLieInTheTensors) {
  with_ranks(2, [&](Member& member) {
    const Vector whole = vector_of(member, 16);
    const auto fill = [&] {
      for (std::size_t i = 0; i < 16; ++i) whole.data[i] = value(member.rank + 1, i);
    };
    both_paths(member, all_gather(member, whole, whole), fill, [&](const char* how) {
      for (std::size_t k = 0; k < 4; ++k)
        for (std::uint64_t i = kPieces[k].offset; i < kPieces[k].offset + kPieces[k].count; ++i)
          EXPECT_EQ(whole.data[i], value(k < 2 ? 1 : 2, i)) << how << " " << i;
      EXPECT_EQ(whole.data[6], value(member.rank + 1, 6)) << how;
    });
  });
}

TEST_F(Pieces, ReduceWholeTensorsIntoShards) {
  with_ranks(2, [&](Member& member) {
    const Vector whole = vector_of(member, 16), shard = vector_of(member, 8);
    const auto fill = [&] {
      for (std::size_t i = 0; i < 16; ++i) whole.data[i] = value(member.rank, i);
      for (std::size_t i = 0; i < 8; ++i) shard.data[i] = -1;
    };
    both_paths(member, reduce_scatter(member, whole, shard), fill, [&](const char* how) {
      std::size_t at = 0;
      for (std::size_t k = 0; k < 2; ++k) {
        const muster_piece& piece = kPieces[2 * static_cast<std::size_t>(member.rank) + k];
        for (std::uint64_t i = 0; i < piece.count; ++i, ++at)
          EXPECT_EQ(shard.data[at], value(0, piece.offset + i) + value(1, piece.offset + i))
              << how << " " << at;
      }
      EXPECT_EQ(at, kOwn[member.rank]);
      EXPECT_EQ(shard.data[at], -1) << how;
    });
  });
}

// Goal:   shards that lie in memory that all share are the whole tensors already.
TEST_F(Pieces, OfASharedTargetAreWrittenOnce) {
  with_ranks(2, [&](Member& member) {
    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.bytes = 64;
    options.name = "tensors";
    options.shared_by = member.group;
    Vector whole;
    void* address = nullptr;
    ASSERT_EQ(muster_buffer_create(member.session, &options, &whole.buffer, &address), MUSTER_OK);
    whole.data = static_cast<float*>(address);
    const Vector shard = vector_of(member, 8);
    for (const bool in_place : {false, true}) {
      const auto fill = [&] {
        meet_and_leave(member);
        std::size_t at = 0;
        for (std::size_t k = 0; k < 2; ++k) {
          const muster_piece& piece = kPieces[2 * static_cast<std::size_t>(member.rank) + k];
          for (std::uint64_t i = 0; i < piece.count; ++i) {
            shard.data[at++] = value(0, piece.offset + i);
            whole.data[piece.offset + i] = in_place ? value(0, piece.offset + i) : -1;
          }
        }
      };
      both_paths(member, all_gather(member, in_place ? whole : shard, whole), fill, [&](const char* how) {
        for (const muster_piece& piece : kPieces)
          for (std::uint64_t i = piece.offset; i < piece.offset + piece.count; ++i)
            EXPECT_EQ(whole.data[i], value(0, i)) << how << " " << i;
        meet_and_leave(member);
      });
    }
  });
}

// Goal:   members that cut their tensors otherwise hear so before a byte moves, on both paths.
TEST_F(Pieces, MustBeTheSameAtAllMembers) {
  with_ranks(2, [&](Member& member) {
    const Vector shard = vector_of(member, 8), whole = vector_of(member, 16);
    muster_collective c = all_gather(member, shard, whole);
    muster_piece other[] = {kPieces[0], kPieces[1], kPieces[2], {11, 1}};
    if (member.rank == 1) c.target_blocks.pieces = other;
    EXPECT_EQ(member.run(c), MUSTER_ERR_MISMATCH);
    EXPECT_THAT(member.error, HasSubstr("pieces[3].offset: 10 at rank 0 and 11 at rank 1"));
    muster_submit submit = MUSTER_SUBMIT_INIT;
    muster_point point = MUSTER_POINT_NONE;
    ASSERT_EQ(muster_collect(member.session, &c, &submit, &point), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_point_wait(member.session, point, -1), MUSTER_ERR_MISMATCH);
    EXPECT_THAT(muster_last_error(), HasSubstr("pieces[3].offset"));
    EXPECT_EQ(muster_lane_reset(member.session, submit.lane), MUSTER_OK);

    // Equal counts, in pieces at one and whole at the other.
    const std::uint64_t counts[] = {5, 3};
    if (member.rank == 1) c.target_blocks = {counts, nullptr, nullptr, nullptr};
    EXPECT_EQ(member.run(c), MUSTER_ERR_MISMATCH);
    EXPECT_THAT(member.error, HasSubstr("blocks in pieces: yes at rank 0 and no at rank 1"));
  });
}

TEST_F(Pieces, RefuseWhatCannotBe) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 16), w = vector_of(member, 16);
    const std::uint32_t one[] = {1}, two[] = {2}, many[] = {5000};
    const std::uint64_t counts[] = {1};
    const muster_piece apart[] = {{0, 2}, {4, 2}}, over[] = {{0, 2}, {1, 2}}, far[] = {{15, 2}},
                       endless[] = {{UINT64_MAX - 1, 5}};
    const auto refused = [&](muster_blocks blocks, std::uint64_t count, muster_status_t status,
                             const char* text) {
      muster_collective c = all_gather(member, v, w);
      c.target_blocks = blocks;
      c.count = count;
      muster_plan plan = 0;
      EXPECT_EQ(muster_plan_collective(member.session, &c, &plan), status) << text;
      EXPECT_THAT(muster_last_error(), HasSubstr(text));
    };
    refused({nullptr, nullptr, two, over}, 0, MUSTER_ERR_BAD_ARGUMENT, "overlap; both are written");
    refused({nullptr, nullptr, one, far}, 0, MUSTER_ERR_BAD_ARGUMENT, "end behind the buffer's 64 bytes");
    refused({nullptr, nullptr, one, endless}, 0, MUSTER_ERR_BAD_ARGUMENT, "beyond 2^63 bytes");
    refused({counts, nullptr, one, apart}, 0, MUSTER_ERR_BAD_ARGUMENT, "beside counts or offsets");
    refused({nullptr, nullptr, one, apart}, 3, MUSTER_ERR_BAD_ARGUMENT, "beside a count");
    refused({nullptr, nullptr, two, nullptr}, 0, MUSTER_ERR_BAD_ARGUMENT, "pieces is NULL");
    refused({nullptr, nullptr, nullptr, apart}, 0, MUSTER_ERR_BAD_ARGUMENT, "piece_counts is NULL");
    refused({nullptr, nullptr, many, apart}, 0, MUSTER_ERR_NO_RESOURCE, "at most 4096");

    muster_collective c = all_gather(member, v, w);
    c.op = MUSTER_ALL_TO_ALL;
    c.target_blocks = {nullptr, nullptr, one, apart};
    muster_plan plan = 0;
    EXPECT_EQ(muster_plan_collective(member.session, &c, &plan), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("the blocks of all_to_all have none"));
    c = all_gather(member, v, w);
    c.target_blocks = {nullptr, nullptr, two, apart};
    ASSERT_EQ(muster_plan_collective(member.session, &c, &plan), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_plan_recount(member.session, plan, 1, nullptr, nullptr), MUSTER_ERR_UNSUPPORTED);
    EXPECT_THAT(muster_last_error(), HasSubstr("blocks in pieces"));
  });
}

// Goal:   large blocks, which are read where they lie and cut into parts, and members that have nothing.
TEST_F(Pieces, OfManyBytesAndOfNoneArrive) {
  constexpr std::uint64_t kLong = 300'000;
  with_ranks(3, [&](Member& member) {
    const std::uint32_t piece_counts[] = {2, 0, 3};
    const muster_piece pieces[] = {
        {10, kLong}, {2 * kLong, 7}, {kLong + 100, 1000}, {kLong + 50, 0}, {0, 10}};
    const Vector whole = vector_of(member, 3 * kLong), shard = vector_of(member, 2 * kLong);
    muster_collective c = all_gather(member, shard, whole);
    c.target_blocks = {nullptr, nullptr, piece_counts, pieces};
    for (const bool in_place : {false, true}) {
      if (in_place) c.source = c.target;
      const auto of_giver = [&](int giver, std::uint64_t i) { return value(giver, i % 1000); };
      const auto fill = [&] {
        await_all(member);
        for (std::uint64_t i = 0; i < 3 * kLong; ++i)
          whole.data[i] = in_place ? of_giver(member.rank, i) : -1;
        std::uint64_t at = 0;
        for (std::size_t k = member.rank == 0 ? 0 : 2; k < (member.rank == 0 ? 2u : 5u); ++k)
          for (std::uint64_t i = 0; i < pieces[k].count && member.rank != 1; ++i)
            shard.data[at++] = of_giver(member.rank, pieces[k].offset + i);
        await_all(member);
      };
      both_paths(member, c, fill, [&](const char* how) {
        for (std::size_t k = 0; k < 5; ++k)
          for (std::uint64_t i = pieces[k].offset; i < pieces[k].offset + pieces[k].count; ++i)
            ASSERT_EQ(whole.data[i], of_giver(k < 2 ? 0 : 2, i)) << how << " " << i;
      });
    }
  });
}

}  // namespace
