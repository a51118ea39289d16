// Starts with offsets of their own: memory that moves under one plan.
#include <muster/kernels.h>

#include "tests/api/client/running_ranks.hpp"

#include <algorithm>
#include <array>
#include <random>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::HasSubstr;

constexpr std::size_t kRoom = 4000;  // floats of each vector
constexpr std::uint64_t kFloat = sizeof(float);

// A start on a lane, with the vectors at these floats of their buffers.
muster_submit at(muster_lane lane, std::uint64_t source, std::uint64_t target) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = lane;
  submit.flags = MUSTER_SUBMIT_OFFSETS;
  submit.source_offset_bytes = source * kFloat;
  submit.target_offset_bytes = target * kFloat;
  return submit;
}

class Offsets : public muster::test::RunningRanks {
 protected:
  static muster_point start(Member& member, muster_plan plan, const muster_submit& submit) {
    muster_point point = MUSTER_POINT_NONE;
    EXPECT_EQ(muster_plan_start(member.session, plan, &submit, &point), MUSTER_OK) << muster_last_error();
    return point;
  }
  static muster_status_t wait(Member& member, muster_point point) {
    const muster_status_t status = muster_point_wait(member.session, point, -1);
    member.error = muster_last_error();
    return status;
  }
  // `words` are those of the refusal; nothing is started.
  static void refuse(Member& member, muster_plan plan, const muster_submit& submit, muster_status_t status,
                     const char* words) {
    muster_point point = 77;
    EXPECT_EQ(muster_plan_start(member.session, plan, &submit, &point), status) << words;
    EXPECT_THAT(muster_last_error(), HasSubstr(words));
    muster_batch_entry entry{plan, submit, 0};
    EXPECT_EQ(muster_plan_start_batch(member.session, &entry, 1), status) << words;
    EXPECT_THAT(muster_last_error(), HasSubstr(std::string("entry 0: ")));
    EXPECT_THAT(muster_last_error(), HasSubstr(words));
  }
};

// Goal:   tensors move, each rank's to places of its own, and one plan serves them all.
// Method: a few starts are in flight at once, on several lanes, apart and in place; some without offsets.
TEST_F(Offsets, FollowTheTensorsOfEachRank) {
  constexpr std::uint64_t kCount = 100, kSlots = 8;
  for (const int world : {2, 4}) {
    with_ranks(world, [&](Member& member) {
      const auto me = static_cast<std::uint32_t>(member.rank);
      const Vector v = vector_of(member, kRoom);
      const muster_plan plan = plan_of(member, all_reduce(member, v, v, kCount));
      std::minstd_rand own(17 + me);
      for (int step = 0; step < 30; ++step) {
        // Slot k of this rank lies at a place that it draws; the start of slot k reads from there.
        std::array<std::uint64_t, kSlots> places{};
        for (std::uint64_t k = 0; k < kSlots; ++k) places[k] = k;
        std::shuffle(places.begin(), places.end(), own);
        std::fill_n(v.data, kRoom, -1.0f);
        std::array<muster_point, kSlots> points{};
        std::array<std::uint64_t, kSlots> results{};
        for (std::uint64_t k = 0; k < kSlots; ++k) {
          const std::uint64_t source = 2 * kCount * places[k];
          results[k] = own() % 2 == 0 ? source : source + kCount;
          for (std::uint64_t i = 0; i < kCount; ++i)
            v.data[source + i] = static_cast<float>(step + 1000 * static_cast<int>(k) + member.rank);
        }
        for (std::uint64_t k = 0; k < kSlots; ++k)
          points[k] =
              start(member, plan, at(static_cast<muster_lane>(k % 3), 2 * kCount * places[k], results[k]));
        for (std::uint64_t k = 0; k < kSlots; ++k) {
          ASSERT_EQ(wait(member, points[k]), MUSTER_OK) << member.error;
          int sum = 0;
          for (int rank = 0; rank < world; ++rank) sum += step + 1000 * static_cast<int>(k) + rank;
          for (std::uint64_t i = 0; i < kCount; ++i)
            ASSERT_EQ(v.data[results[k] + i], static_cast<float>(sum)) << "world " << world << ", slot " << k;
          const float before = results[k] == 2 * kCount * places[k] ? -1.0f : static_cast<float>(sum);
          ASSERT_EQ(v.data[2 * kCount * places[k] + kCount], before);
        }
      }
      // Neither a start without offsets nor a run has heard of them.
      for (const bool runs : {false, true}) {
        std::fill_n(v.data, kRoom, 1.0f);
        muster_submit plain = MUSTER_SUBMIT_INIT;
        plain.target_offset_bytes = 12345;  // not looked at
        if (runs) {
          ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
        } else {
          ASSERT_EQ(wait(member, start(member, plan, plain)), MUSTER_OK) << member.error;
        }
        EXPECT_EQ(v.data[kCount - 1], static_cast<float>(world));
        EXPECT_EQ(v.data[kCount], 1.0f);
      }
      EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK) << muster_last_error();
    });
  }
}

// Goal:   new counts and new offsets in one start; the offsets are checked against the new counts.
TEST_F(Offsets, GoWithNewCounts) {
  with_ranks(3, [&](Member& member) {
    const auto me = static_cast<std::size_t>(member.rank);
    const Vector source = vector_of(member, kRoom), target = vector_of(member, kRoom);
    const muster_plan plan = plan_of(member, collective(member, MUSTER_ALL_GATHER, source, target));
    std::minstd_rand common(5);
    std::minstd_rand own(50 + static_cast<std::uint32_t>(member.rank));
    for (int step = 0; step < 60; ++step) {
      std::uint64_t counts[3];
      for (std::uint64_t& count : counts) count = common() % 4 == 0 ? 0 : common() % 1000;
      const muster_blocks blocks{counts, nullptr, nullptr, nullptr};
      ASSERT_EQ(muster_plan_recount(member.session, plan, 0, nullptr, &blocks), MUSTER_OK)
          << muster_last_error();
      const std::uint64_t all = counts[0] + counts[1] + counts[2];
      const std::uint64_t from = kRoom - counts[me] - own() % 100, to = own() % (kRoom - all);
      std::fill_n(source.data, kRoom, -2.0f);
      std::fill_n(source.data + from, counts[me], static_cast<float>(step * 10 + member.rank));
      std::fill_n(target.data, kRoom, -1.0f);
      if (all > 0)
        refuse(member, plan, at(MUSTER_LANE_COPY, from, kRoom - all + 1), MUSTER_ERR_BAD_ARGUMENT,
               "submit: target_offset_bytes");
      const muster_point point = start(member, plan, at(MUSTER_LANE_COPY, from, to));
      ASSERT_EQ(wait(member, point), MUSTER_OK) << member.error;
      for (std::uint64_t i = 0; i < kRoom; ++i) {
        const bool within = i >= to && i < to + all;
        const int giver = i < to + counts[0] ? 0 : i < to + counts[0] + counts[1] ? 1 : 2;
        ASSERT_EQ(target.data[i], within ? static_cast<float>(step * 10 + giver) : -1.0f)
            << "step " << step << ", element " << i;
      }
    }
  });
}

// Goal:   blocks in pieces land where this rank's tensors lie now, packed or in place.
TEST_F(Offsets, MoveBlocksInPieces) {
  constexpr std::uint32_t kCounts[] = {2, 2};
  constexpr muster_piece kPieces[] = {{0, 3}, {8, 2}, {3, 2}, {10, 1}};
  with_ranks(2, [&](Member& member) {
    const Vector shard = vector_of(member, 64), whole = vector_of(member, 64);
    for (const bool in_place : {false, true}) {
      muster_collective c = collective(member, MUSTER_ALL_GATHER, in_place ? whole : shard, whole);
      c.target_blocks = {nullptr, nullptr, kCounts, kPieces};
      const muster_plan plan = plan_of(member, c);
      const auto mine = 2 * static_cast<std::size_t>(member.rank);
      for (std::uint64_t shift = 0; shift < 20; ++shift) {
        const std::uint64_t to = member.rank == 0 ? shift : 20 - shift;
        const std::uint64_t from = in_place ? to : 30 + shift;
        std::fill_n(whole.data, 64, -1.0f);
        std::uint64_t packed = from;
        for (std::size_t k = mine; k < mine + 2; ++k)
          for (std::uint64_t i = 0; i < kPieces[k].count; ++i)
            (in_place ? whole.data[to + kPieces[k].offset + i] : shard.data[packed++]) =
                static_cast<float>(100 + kPieces[k].offset + i);
        ASSERT_EQ(wait(member, start(member, plan, at(MUSTER_LANE_GATHER, from, to))), MUSTER_OK)
            << member.error;
        for (const muster_piece& piece : kPieces)
          for (std::uint64_t i = piece.offset; i < piece.offset + piece.count; ++i)
            ASSERT_EQ(whole.data[to + i], static_cast<float>(100 + i)) << in_place << " " << shift;
        ASSERT_EQ(whole.data[to + 5], -1.0f) << "between the pieces";
      }
      if (in_place)
        refuse(member, plan, at(0, 4, 8), MUSTER_ERR_BAD_ARGUMENT, "made in place; give equal offsets");
    }
  });
}

// Goal:   an entry of a batch, and a one-shot call, take offsets too.
TEST_F(Offsets, GoWithBatchesAndOneShotCalls) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kRoom);
    const muster_collective c = all_reduce(member, v, v, 10);
    const muster_plan plan = plan_of(member, c);
    for (int round = 0; round < 20; ++round) {
      std::fill_n(v.data, kRoom, 1.0f);
      // From 0 to 100, from there to 200 + rank, and back into the place of the plan.
      const auto own = 200 + 10 * static_cast<std::uint64_t>(member.rank);
      std::array<muster_batch_entry, 3> entries{};
      entries[0] = {plan, at(MUSTER_LANE_SMALL, 0, 100), 0};
      entries[1] = {plan, at(MUSTER_LANE_REDUCE, 100, own), 0};
      entries[2] = {plan, at(MUSTER_LANE_SMALL, own, 0), 0};
      for (std::size_t i = 1; i < 3; ++i) {
        entries[i].submit.wait_count = 2;
        entries[i].submit.waits[0] = MUSTER_POINT_OF_ENTRY(0);
        entries[i].submit.waits[1] = MUSTER_POINT_OF_ENTRY(i - 1);
      }
      ASSERT_EQ(muster_plan_start_batch(member.session, entries.data(), entries.size()), MUSTER_OK)
          << muster_last_error();
      ASSERT_EQ(wait(member, entries[2].point), MUSTER_OK) << member.error;
      EXPECT_EQ(v.data[100], 2.0f);
      EXPECT_EQ(v.data[own], 4.0f);
      EXPECT_EQ(v.data[9], 8.0f);
      EXPECT_EQ(v.data[10], 1.0f);
      const muster_submit one_shot = at(MUSTER_LANE_SMALL, 0, 500);
      muster_point point = 0;
      ASSERT_EQ(muster_collect(member.session, &c, &one_shot, &point), MUSTER_OK) << muster_last_error();
      ASSERT_EQ(wait(member, point), MUSTER_OK) << member.error;
      EXPECT_EQ(v.data[509], 16.0f);
    }
  });
}

// Goal:   a lane that has failed runs again, and its starts take offsets as before; on named lanes too.
// Method: the counts of one rank differ, all reset the lane, and go on.
TEST_F(Offsets, GoOnAfterAFailureOnNamedLanes) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kRoom);
    muster_lane lane = MUSTER_LANE_NONE;
    ASSERT_EQ(muster_lane_create(member.session, MUSTER_LANE_REDUCE, "moves", &lane), MUSTER_OK)
        << muster_last_error();
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 10));
    const muster_plan other = plan_of(member, all_reduce(member, v, v, member.rank == 0 ? 10 : 11));
    for (int round = 0; round < 10; ++round) {
      std::fill_n(v.data, kRoom, 1.0f);
      const auto own = 100 * (1 + static_cast<std::uint64_t>(member.rank + round));
      const muster_point before = start(member, plan, at(lane, 0, own));
      EXPECT_EQ(wait(member, before), MUSTER_OK) << member.error;
      const muster_point failing = start(member, other, at(lane, own, 0));
      const muster_point behind = start(member, plan, at(lane, own, 50));
      EXPECT_EQ(wait(member, failing), MUSTER_ERR_MISMATCH);
      EXPECT_THAT(member.error, HasSubstr("count"));
      EXPECT_EQ(wait(member, behind), MUSTER_ERR_MISMATCH);
      ASSERT_EQ(muster_lane_reset(member.session, lane), MUSTER_OK) << muster_last_error();
      const muster_point after = start(member, plan, at(lane, own, 20));
      EXPECT_EQ(wait(member, after), MUSTER_OK) << member.error;
      EXPECT_EQ(v.data[0], 1.0f);
      EXPECT_EQ(v.data[50], 1.0f);
      EXPECT_EQ(v.data[own + 9], 2.0f);
      EXPECT_EQ(v.data[29], 4.0f);
    }
  });
}

// Goal:   each start keeps the offsets that it was given, whatever comes behind it.
TEST_F(Offsets, AreThoseOfEachStartInFlight) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kRoom);
    std::uint32_t timeline = 0;
    ASSERT_EQ(muster_timeline_create(member.session, &timeline), MUSTER_OK);
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 1));
    std::fill_n(v.data, kRoom, 1.0f);
    muster_point last = 0;
    for (std::uint64_t i = 0; i < 10; ++i) {
      muster_submit submit = at(MUSTER_LANE_REDUCE, i, i + 1);  // each doubles what the one before has left
      submit.wait_count = 1;
      submit.waits[0] = muster_timeline_point(timeline, 1);
      last = start(member, plan, submit);
    }
    EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_ERR_BUSY);
    ASSERT_EQ(muster_timeline_signal(member.session, timeline, 1), MUSTER_OK);
    ASSERT_EQ(wait(member, last), MUSTER_OK) << member.error;
    for (int i = 0; i < 12; ++i)
      EXPECT_EQ(v.data[i], i < 11 ? static_cast<float>(1 << i) : 1.0f) << "element " << i;
  });
}

TEST_F(Offsets, AreRefusedWhereAPlanCouldNotBeMade) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, kRoom);
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 10));
    const auto bad = MUSTER_ERR_BAD_ARGUMENT;
    muster_submit submit = at(0, 0, 100);
    submit.flags = 3;
    refuse(member, plan, submit, bad, "submit.flags is 0x3; it must be 0 or MUSTER_SUBMIT_OFFSETS (0x1)");
    submit.flags = MUSTER_SUBMIT_OFFSETS;
    submit.wait_count = 3;
    refuse(member, plan, submit, bad,
           "submit.wait_count is 3; a start with MUSTER_SUBMIT_OFFSETS waits for 2 points at most");
    submit.wait_count = 0;
    submit.source_offset_bytes = 6;
    refuse(member, plan, submit, bad, "submit: source_offset_bytes 6 is not a multiple of the 4 bytes");
    submit.source_offset_bytes = UINT64_MAX - 3;
    refuse(member, plan, submit, bad, "submit: source_offset_bytes 18446744073709551612: the 40 bytes");
    refuse(member, plan, at(0, 0, kRoom - 9), bad,
           "submit: target_offset_bytes 15964: the 40 bytes from there end behind the 16000 bytes of the "
           "buffer; "
           "give at most 15960");
    refuse(member, plan, at(0, 0, 5), bad, "source and target of member 0 overlap");
    refuse(member, plan + 1, at(0, 0, 100), MUSTER_ERR_STALE, "is none of this session");
    muster_submit unknown = at(60, 0, 100);
    refuse(member, plan, unknown, bad, "submit.lane 60 does not exist");
    const muster_point point = start(member, plan, at(0, 0, kRoom - 10));
    EXPECT_EQ(point & 0xFFFF, 1u) << "nothing else was started";
    EXPECT_EQ(wait(member, point), MUSTER_OK) << member.error;
  });
}

TEST_F(Offsets, AreNoneOfKernelsFacesBarriersAndSharedTargets) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kRoom);
    const muster_submit submit = at(MUSTER_LANE_COMPUTE, 0, 0);
    const muster_kernel fill = muster_fill(muster_view1(v.buffer, 0, MUSTER_F32, 16), 1.0);
    muster_plan kernel = 0;
    ASSERT_EQ(muster_plan_kernel(member.session, &fill, &kernel), MUSTER_OK) << muster_last_error();
    refuse(member, kernel, submit, MUSTER_ERR_BAD_ARGUMENT, "a kernel's plan takes no offsets");
    muster_point point = 0;
    EXPECT_EQ(muster_launch(member.session, &fill, &submit, &point), MUSTER_ERR_BAD_ARGUMENT);
    const auto unsupported = MUSTER_ERR_UNSUPPORTED;
    refuse(member, plan_of(member, member.barrier()), submit, unsupported, "barrier has no vectors");
    muster_collective exchange = member.barrier();
    exchange.op = MUSTER_EXCHANGE;
    refuse(member, plan_of(member, exchange), submit, unsupported, "exchange has no vectors");
    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.bytes = kRoom * kFloat;
    options.name = "result";
    options.shared_by = member.group;
    Vector result;
    void* address = nullptr;
    ASSERT_EQ(muster_buffer_create(member.session, &options, &result.buffer, &address), MUSTER_OK)
        << muster_last_error();
    const muster_plan shared = plan_of(member, all_reduce(member, v, result, 10));
    refuse(member, shared, submit, unsupported, "the target of this all_reduce is node-shared");
    // Where only the source lies in shared memory, it moves.
    result.data = static_cast<float*>(address);
    std::fill_n(result.data + 100 * member.rank, 100, static_cast<float>(member.rank + 1));
    const muster_plan plan = plan_of(member, all_reduce(member, result, v, 10));
    const muster_submit own = at(MUSTER_LANE_REDUCE, 100 * static_cast<std::uint64_t>(member.rank) + 50, 70);
    ASSERT_EQ(wait(member, start(member, plan, own)), MUSTER_OK) << member.error;
    EXPECT_EQ(v.data[79], 3.0f);
  });
}

}  // namespace
