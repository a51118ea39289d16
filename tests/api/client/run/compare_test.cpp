// Whether members hold the same bytes: asked for, and sampled of what they run.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

muster_tensor view_of(const Vector& v, std::int64_t count, muster_dtype dtype = MUSTER_F32) {
  return {v.buffer, 0, dtype, 1, {count}, {1}};
}

class Compare : public muster::test::RunningRanks {
 protected:
  // The status, and the text in member.error.
  static muster_status_t compare(Member& member, const std::vector<muster_tensor>& views) {
    const muster_status_t status =
        muster_compare(member.session, member.group, views.data(), views.size(), 0);
    member.error = muster_last_error();
    return status;
  }
  // All the same at each rank, but for who differs: see `value`.
  void with_values(int world, const std::function<float(int rank)>& value,
                   const std::function<void(Member&, const muster_tensor&, float* last)>& body) {
    with_ranks(world, [&](Member& member) {
      constexpr std::size_t kCount = 1000;
      const Vector v = vector_of(member, kCount);
      for (std::size_t i = 0; i < kCount; ++i) v.data[i] = static_cast<float>(i);
      v.data[kCount - 1] = value(member.rank);
      body(member, view_of(v, kCount), v.data + kCount - 1);
    });
  }
};

TEST_F(Compare, FindsEqualBytesEqual) {
  for (const int world : {1, 2, 3})
    with_values(
        world, [](int) { return 7.0f; },
        [&](Member& member, const muster_tensor& view, float*) {
          EXPECT_EQ(compare(member, {view, view}), MUSTER_OK) << member.error;
          EXPECT_EQ(compare(member, {}), MUSTER_OK) << member.error;
          muster_tensor empty = view;
          empty.size[0] = 0;
          EXPECT_EQ(compare(member, {empty}), MUSTER_OK) << member.error;
          EXPECT_EQ(muster_compare(member.session, MUSTER_GROUP_SELF, &view, 1, 0), MUSTER_OK);
        });
}

// Goal:   one bit is enough, everybody hears whose it is, and the group goes on.
TEST_F(Compare, NamesTheRankThatDiffers) {
  with_values(
      3, [](int rank) { return rank == 1 ? -0.0f : 0.0f; },
      [&](Member& member, const muster_tensor& view, float* last) {
        EXPECT_EQ(compare(member, {view}), MUSTER_ERR_CORRUPT);
        EXPECT_THAT(member.error,
                    AllOf(HasSubstr("group "), HasSubstr(": rank 1 holds other bytes"),
                          HasSubstr("of 4000 bytes"), HasSubstr("at ranks 0, 2; "), HasSubstr(" at rank 1")));
        *last = 0.0f;
        EXPECT_EQ(compare(member, {view}), MUSTER_OK) << member.error;
        EXPECT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
      });
}

TEST_F(Compare, SaysThatThereIsNoMajority) {
  with_values(
      4, [](int rank) { return static_cast<float>(rank / 2); },
      [&](Member& member, const muster_tensor& view, float*) {
        EXPECT_EQ(compare(member, {view}), MUSTER_ERR_CORRUPT);
        EXPECT_THAT(member.error, AllOf(HasSubstr("there is no majority"), HasSubstr("at ranks 0, 1; "),
                                        HasSubstr("at ranks 2, 3"), Not(HasSubstr("other bytes"))));
      });
  with_values(
      3, [](int rank) { return static_cast<float>(rank); },
      [&](Member& member, const muster_tensor& view, float*) {
        EXPECT_EQ(compare(member, {view}), MUSTER_ERR_CORRUPT);
        EXPECT_THAT(member.error, AllOf(HasSubstr("there is no majority"), HasSubstr("at rank 0; "),
                                        HasSubstr("at rank 1; "), HasSubstr("at rank 2")));
      });
}

// Goal:   the comparison depends on the elements and their order, not on their places in memory.
// Method: a matrix end to end, with ghosts of its own around it, and stored by columns.
TEST_F(Compare, LooksThroughStridesAndGhosts) {
  constexpr int kRows = 6;
  constexpr int kColumns = 300;
  with_ranks(3, [&](Member& member) {
    muster_ghosted ghosted = MUSTER_GHOSTED_INIT;
    ghosted.dtype = MUSTER_F32;
    ghosted.dims = 2;
    ghosted.own[0] = kRows;
    ghosted.own[1] = kColumns;
    for (int d = 0; d < 2; ++d) ghosted.before[d] = ghosted.after[d] = member.rank == 1 ? d + 1 : 0;
    std::uint64_t bytes = 0;
    ASSERT_EQ(muster_ghosted_bytes(&ghosted, &bytes), MUSTER_OK);
    const Vector v = vector_of(member, bytes / sizeof(float));
    std::fill_n(v.data, bytes / sizeof(float), static_cast<float>(member.rank));  // and so in the ghosts
    muster_tensor view{};
    ASSERT_EQ(muster_ghosted_view(&ghosted, {v.buffer, 0}, MUSTER_GHOSTED_OWN, 0, 0, 0, &view), MUSTER_OK);
    if (member.rank == 2) view.stride[0] = 1, view.stride[1] = kRows;
    float* first = v.data + view.offset_bytes / sizeof(float);
    const auto at = [&](int r, int c) { return first + r * view.stride[0] + c * view.stride[1]; };
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kColumns; ++c) *at(r, c) = static_cast<float>(r * kColumns + c);
    EXPECT_EQ(compare(member, {view}), MUSTER_OK) << member.error;
    if (member.rank == 2) *at(kRows - 1, kColumns - 2) += 1;
    EXPECT_EQ(compare(member, {view}), MUSTER_ERR_CORRUPT);
    EXPECT_THAT(member.error, HasSubstr("rank 2 holds other bytes"));
  });
}

TEST_F(Compare, TellsOtherKindsFromOtherBytes) {
  with_values(
      3, [](int) { return 0.0f; },
      [&](Member& member, const muster_tensor& view, float*) {
        const bool odd = member.rank == 2;
        muster_tensor other = view;
        other.size[0] = odd ? 999 : 1000;
        EXPECT_EQ(compare(member, {other}), MUSTER_ERR_MISMATCH);
        EXPECT_THAT(member.error, HasSubstr("bytes: 4000 at ranks 0, 1; 3996 at rank 2"));
        EXPECT_EQ(compare(member, std::vector<muster_tensor>(odd ? 2 : 1, view)), MUSTER_ERR_MISMATCH);
        EXPECT_THAT(member.error, HasSubstr("number of views: 1 at ranks 0, 1; 2 at rank 2"));
        other = view;
        if (odd) other.dtype = MUSTER_I32;
        EXPECT_EQ(compare(member, {other}), MUSTER_ERR_MISMATCH);
        EXPECT_THAT(member.error, HasSubstr("dtypes and elements of the views: "));
        EXPECT_EQ(compare(member, {view}), MUSTER_OK) << member.error;
      });
}

TEST_F(Compare, RefusesWhatCannotBe) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 16);
    const muster_tensor good = view_of(v, 16);
    EXPECT_EQ(muster_compare(nullptr, member.group, &good, 1, 0), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_compare(member.session, member.group, nullptr, 1, 0), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_compare(member.session, member.group, &good, 1, -1), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_compare(member.session, 0x1234567, &good, 1, 0), MUSTER_ERR_STALE);
    const auto refused = [&](muster_status_t status, const char* text, auto change) {
      muster_tensor bad = good;
      change(bad);
      EXPECT_EQ(compare(member, {good, bad}), status);
      EXPECT_THAT(member.error, AllOf(HasSubstr("views[1]"), HasSubstr(text)));
    };
    constexpr muster_status_t kBad = MUSTER_ERR_BAD_ARGUMENT;
    refused(kBad, "behind the", [](muster_tensor& t) { t.size[0] = 17; });
    refused(kBad, "behind the", [](muster_tensor& t) { t.offset_bytes = 4; });
    refused(kBad, "behind the", [](muster_tensor& t) { t.stride[0] = INT64_MAX; });
    refused(kBad, "not a multiple", [](muster_tensor& t) { t.offset_bytes = 2, t.size[0] = 1; });
    refused(kBad, "9 dims; 0 to 8 are possible", [](muster_tensor& t) { t.dims = 9; });
    refused(kBad, "-1 dims; 0 to 8 are possible", [](muster_tensor& t) { t.dims = -1; });
    refused(kBad, "dtype 99", [](muster_tensor& t) { t.dtype = 99; });
    refused(kBad, "size -1", [](muster_tensor& t) { t.size[0] = -1; });
    refused(kBad, "stride 0", [](muster_tensor& t) { t.stride[0] = 0; });
    refused(kBad, "2^63", [](muster_tensor& t) {
      t.dims = 4;
      std::fill_n(t.size, 4, std::int64_t{1} << 40);
      std::fill_n(t.stride, 4, 1);
    });
    refused(MUSTER_ERR_STALE, "the buffer is 0, which is none", [](muster_tensor& t) { t.buffer = 0; });
  });
}

// ---- samples -----------------------------------------------------------------------------------

class Samples : public Compare {
 protected:
  static constexpr std::uint64_t kCount = 100;

  // The runs of this rank so far, or of its engine between nodes. A comparison counts as one more run.
  std::uint64_t runs(const Member& member) const {
    const char* const counter = node_.several() ? "steps_completed" : "runs_completed";
    std::uint64_t value = 0;
    EXPECT_EQ(muster_counter(member.session, counter, &value), MUSTER_OK);
    return value;
  }
  // The share of `runs` on the engine that the counter includes.
  std::uint64_t by_engine(std::uint64_t runs) const { return node_.several() ? runs : 0; }
  std::uint64_t runs_of(Member& member, int times, const muster_collective& c) {
    const std::uint64_t before = runs(member);
    for (int i = 0; i < times; ++i) EXPECT_EQ(member.run(c), MUSTER_OK) << member.error;
    return runs(member) - before;
  }
  void SetUp() override {
    if (const char* why = node_.several() ? muster::test::why_of_one_node() : nullptr) GTEST_SKIP() << why;
  }
  void start(std::uint32_t digests) {
    node_.options.job_defaults.digests = digests;
    node_.start();
  }
};

TEST_F(Samples, AreNoneWithoutTheSetting) {
  start(0);
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, 2 * kCount);
    EXPECT_EQ(runs_of(member, 10, all_reduce(member, v, v, kCount)), 10u);
  });
}

TEST_F(Samples, AreOfEverySoManyRunsWhoseResultAllShare) {
  start(3);
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, 4 * kCount);
    muster_collective c = all_reduce(member, v, v, kCount);
    EXPECT_EQ(runs_of(member, 7, c), 7u + 2u);
    EXPECT_EQ(runs_of(member, 5, member.barrier()), 5u);
    c.op = MUSTER_REDUCE;
    EXPECT_EQ(runs_of(member, 5, c), 5u);
    c.op = MUSTER_REDUCE_SCATTER;
    c.target = {v.buffer, 2 * kCount * sizeof(float)};
    EXPECT_EQ(runs_of(member, 5, c), 5u);
    c.op = MUSTER_ALL_GATHER;
    c.redop = 0;
    EXPECT_EQ(runs_of(member, 1, c), 1u) << "the eighth";
    c.op = MUSTER_BROADCAST;
    EXPECT_EQ(runs_of(member, 1, c), 1u + 1u) << "the ninth";
  });
}

// Goal:   groups that share some members do not mix up their counts: whoever is in both would compare alone.
// Method: ranks 0 and 2 are a group of a dim, over both nodes if there are two, and run something there
// first.
TEST_F(Samples, CountEachGroupApart) {
  mesh = "dp_shard=2,tp=2";
  start(2);
  with_ranks(4, [&](Member& member) {
    const Vector v = vector_of(member, kCount);
    if (member.rank % 2 == 0) {
      muster_collective c = all_reduce(member, v, v, kCount);
      ASSERT_EQ(muster_mesh_group(member.session, "dp_shard", &c.group), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(runs_of(member, 1, c), 1u);
    }
    EXPECT_EQ(runs_of(member, 1, all_reduce(member, v, v, kCount)), 1u);
    EXPECT_EQ(runs_of(member, 1, all_reduce(member, v, v, kCount)), 2u);
  });
}

// A root that wants no copy, blocks at offsets of each rank's own, and a target that all have together.
TEST_F(Samples, FindNoFaultWhereThereIsNone) {
  start(1);
  with_ranks(3, [&](Member& member) {
    const auto me = static_cast<std::uint64_t>(member.rank);
    const Vector v = vector_of(member, 20 * kCount);
    for (std::uint64_t i = 0; i < 20 * kCount; ++i) v.data[i] = static_cast<float>(i * (me + 1));
    muster_collective c = all_reduce(member, v, v, kCount);
    c.op = MUSTER_BROADCAST;
    c.redop = 0;
    c.peer = 1;
    c.target = member.rank == 1 ? muster_range{0, 0} : muster_range{v.buffer, 800};
    EXPECT_EQ(runs_of(member, 3, c), 6u);
    c.op = MUSTER_ALL_GATHER;
    c.peer = 0;
    c.target = {v.buffer, 10 * kCount * sizeof(float)};
    const std::uint64_t counts[] = {kCount, 0, 2 * kCount};
    const std::uint64_t offsets[] = {me, 0, 2 * kCount + me};
    c.count = 0;
    c.target_blocks = {counts, offsets, nullptr, nullptr};
    EXPECT_EQ(runs_of(member, 3, c), 6u);

    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.bytes = kCount * sizeof(float);
    options.name = "one for all";
    options.shared_by = member.group;
    Vector one;
    ASSERT_EQ(muster_buffer_create(member.session, &options, &one.buffer, nullptr), MUSTER_OK);
    EXPECT_EQ(runs_of(member, 3, all_reduce(member, v, one, kCount)), node_.several() ? 6u : 3u)
        << "there is one copy on each node";
  });
}

// Goal:   operations so large that the engine does them are sampled too. The comparisons alone count as runs
//         of the direct path; the meeting in which members agree before them does not.
TEST_F(Samples, AreOfRunsByTheEngineToo) {
  start(2);
  with_ranks(2, [&](Member& member) {
    constexpr std::uint64_t kMany = (16 << 20) / sizeof(float);
    const Vector v = vector_of(member, kMany);
    EXPECT_EQ(runs_of(member, 4, all_reduce(member, v, v, kMany)), by_engine(4) + 2u);
  });
}

// Goal:   a rank that is refused has not met the others, so it may try again.
// Method: its lane has room for one start, which waits for a timeline of its own.
TEST_F(Samples, LeaveARefusedRunForAnotherTry) {
  node_.options.job_defaults.starts_per_lane_max = 1;
  start(1);
  with_ranks(2, [&](Member& member) {
    constexpr std::uint64_t kMany = (16 << 20) / sizeof(float);
    const Vector v = vector_of(member, kMany);
    const muster_collective c = all_reduce(member, v, v, kMany);
    if (member.rank == 0) {
      muster_collective alone = member.barrier();
      alone.group = MUSTER_GROUP_SELF;
      std::uint32_t timeline = 0;
      ASSERT_EQ(muster_timeline_create(member.session, &timeline), MUSTER_OK);
      muster_submit submit = MUSTER_SUBMIT_INIT;
      submit.lane = MUSTER_LANE_ALLREDUCE;
      submit.wait_count = 1;
      submit.waits[0] = muster_timeline_point(timeline, 1);
      muster_point point = 0;
      ASSERT_EQ(muster_collect(member.session, &alone, &submit, &point), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(member.run(c), MUSTER_ERR_BUSY);
      EXPECT_EQ(muster_timeline_signal(member.session, timeline, 1), MUSTER_OK);
      EXPECT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK);
    }
    EXPECT_EQ(runs_of(member, 2, c), 2u);
  });
}

// Goal:   after a loss, those who stayed and who came back count alike, on both paths.
TEST_F(Samples, StayInStepAcrossALossAndAReturn) {
  start(3);
  std::atomic<int> lost{0};
  with_ranks(3, [&](Member& member) {
    constexpr std::uint64_t kMany = (16 << 20) / sizeof(float);
    Vector v = vector_of(member, kMany);
    EXPECT_EQ(runs_of(member, 4, all_reduce(member, v, v, kCount)), 5u);
    EXPECT_EQ(runs_of(member, 1, all_reduce(member, v, v, kMany)), by_engine(1));
    await_all(member);
    if (member.rank == 2) {
      EXPECT_EQ(muster_close(member.session), MUSTER_OK);
      await([&] { return lost == 2; });
      member = open(2, 3);
      v = vector_of(member, kMany);
    } else {
      EXPECT_EQ(member.run(all_reduce(member, v, v, kCount)), MUSTER_ERR_PEER_LOST);
      ++lost;
    }
    EXPECT_EQ(runs_of(member, 2, all_reduce(member, v, v, kCount)), 2u);
    EXPECT_EQ(runs_of(member, 2, all_reduce(member, v, v, kMany)), by_engine(2) + 1u);
    EXPECT_EQ(runs_of(member, 5, all_reduce(member, v, v, kCount)), 5u + 2u);
  });
}

}  // namespace
