// Every collective through the C API, by several ranks of a real node; and its refusals.
#include <muster/muster.h>

#include "tests/api/client/session_fixture.hpp"

#include <muster/kernels.h>

#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::test::group_of;
using muster::test::on;
using muster::test::Vector;
using muster::test::vector_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Counts = std::vector<std::uint64_t>;

constexpr int kWorld = 3;

class Collectives : public muster::test::Session {
 protected:
  void SetUp() override {
    Session::SetUp();
    if (IsSkipped()) return;
    sessions_ = open_all(kWorld);
    for (int rank = 0; rank < kWorld; ++rank) {
      sources_.push_back(vector_of(sessions_[rank], 64));
      targets_.push_back(vector_of(sessions_[rank], 64));
      std::fill_n(targets_.back().data, 64, -1.0f);
      for (int i = 0; i < 64; ++i) sources_[rank].data[i] = static_cast<float>(100 * rank + i);
    }
  }
  // The rank's description of the operation, with its source and its target where the operation has them.
  muster_collective say(int rank, muster_op op, std::uint64_t count = 0) {
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = op;
    c.group = group_of(sessions_[rank], "world");
    if (op == MUSTER_BARRIER) return c;
    c.dtype = MUSTER_F32;
    if (op == MUSTER_EXCHANGE) return c;
    if (op != MUSTER_RECV) c.source = {sources_[rank].buffer, 0};
    if (op != MUSTER_SEND) c.target = {targets_[rank].buffer, 0};
    c.count = count;
    return c;
  }
  // Starts each rank's operation and returns its outcome.
  std::array<muster_status_t, kWorld> collect(const std::function<muster_collective(int)>& said) {
    std::array<muster_point, kWorld> points{};
    std::array<muster_status_t, kWorld> status{};
    const auto submit = on(MUSTER_LANE_COPY);
    for (int rank = 0; rank < kWorld; ++rank) {
      const muster_collective c = said(rank);
      status[rank] = muster_collect(sessions_[rank], &c, &submit, &points[rank]);
      EXPECT_EQ(status[rank], MUSTER_OK) << muster_last_error();
    }
    for (int rank = 0; rank < kWorld; ++rank) {
      if (status[rank] == MUSTER_OK) status[rank] = muster_point_wait(sessions_[rank], points[rank], -1);
      texts_[rank] = muster_last_error();
    }
    return status;
  }
  void expect_well(const std::function<muster_collective(int)>& said) {
    EXPECT_THAT(collect(said), ElementsAre(MUSTER_OK, MUSTER_OK, MUSTER_OK)) << texts_[0];
  }
  static std::vector<float> first(const Vector& v, int count) { return {v.data, v.data + count}; }
  // The status of making a plan, and the words for it.
  muster_status_t plan(int rank, const muster_collective& c) {
    muster_plan made = 7;
    const muster_status_t status = muster_plan_collective(sessions_[rank], &c, &made);
    EXPECT_EQ(made != 0, status == MUSTER_OK);
    return status;
  }
  void expect_refused(const muster_collective& c, muster_status_t status, const char* words) {
    EXPECT_EQ(plan(0, c), status) << words;
    EXPECT_THAT(muster_last_error(), HasSubstr(words));
  }

  std::vector<muster_session*> sessions_;
  std::vector<Vector> sources_, targets_;
  std::array<std::string, kWorld> texts_;
};

TEST_F(Collectives, ReducesIntoTheRootAlone) {
  expect_well([&](int rank) {
    muster_collective c = say(rank, MUSTER_REDUCE, 3);
    c.redop = MUSTER_SUM;
    c.peer = 1;
    if (rank != 1) c.target = {12345, 77};  // ignored
    return c;
  });
  EXPECT_THAT(first(targets_[1], 4), ElementsAre(300.0f, 303.0f, 306.0f, -1.0f));
  EXPECT_THAT(first(targets_[0], 1), ElementsAre(-1.0f));
  expect_well([&](int rank) {
    muster_collective c = say(rank, MUSTER_REDUCE, 2);
    c.redop = MUSTER_MAX;
    c.peer = 2;
    c.target = c.source;  // in place at the root
    return c;
  });
  EXPECT_THAT(first(sources_[2], 3), ElementsAre(200.0f, 201.0f, 202.0f));
}

TEST_F(Collectives, BroadcastsWithAndWithoutACopyAtTheRoot) {
  for (const bool copy : {false, true}) {
    std::fill_n(targets_[0].data, 64, -1.0f);
    expect_well([&](int rank) {
      muster_collective c = say(rank, MUSTER_BROADCAST, 2);
      if (rank == 0 && !copy) c.target = {0, 0};
      if (rank != 0) c.source = {12345, 1};  // ignored
      return c;
    });
    EXPECT_THAT(first(targets_[0], 1), ElementsAre(copy ? 0.0f : -1.0f));
    EXPECT_THAT(first(targets_[2], 3), ElementsAre(0.0f, 1.0f, -1.0f));
  }
}

// Goal:   blocks of other lengths, one empty, at offsets that only the root knows.
TEST_F(Collectives, GathersBlocksToWhereTheRootWantsThem) {
  const Counts counts{2, 0, 3};
  const Counts offsets{5, UINT64_MAX, 1};
  const auto gather = [&](int rank) {
    muster_collective c = say(rank, MUSTER_GATHER, rank == 0 ? 2 : rank == 1 ? 0 : 999);
    c.peer = 2;
    const std::uint64_t* nowhere = reinterpret_cast<const std::uint64_t*>(8);  // must not be looked at
    c.target_blocks = rank == 2 ? muster_blocks{counts.data(), offsets.data(), nullptr, nullptr}
                                : muster_blocks{nowhere, nowhere, nullptr, nullptr};
    return c;
  };
  expect_well(gather);
  EXPECT_THAT(first(targets_[2], 8), ElementsAre(-1.0f, 200.0f, 201.0f, 202.0f, -1.0f, 0.0f, 1.0f, -1.0f));
  // In place: the root's source is its own block.
  targets_[2].data[1] = 7.0f;
  expect_well([&](int rank) {
    muster_collective c = gather(rank);
    if (rank == 2) c.source = {targets_[2].buffer, sizeof(float)};
    return c;
  });
  EXPECT_EQ(targets_[2].data[1], 7.0f);
}

TEST_F(Collectives, ScattersBlocksFromWhereTheRootHasThem) {
  const Counts counts{1, 2, 3};
  const Counts offsets{4, 4, 3};  // what is read may overlap
  expect_well([&](int rank) {
    muster_collective c = say(rank, MUSTER_SCATTER, static_cast<std::uint64_t>(rank) + 1);
    if (rank == 0) c.source_blocks = {counts.data(), offsets.data(), nullptr, nullptr};
    return c;
  });
  EXPECT_THAT(first(targets_[0], 2), ElementsAre(4.0f, -1.0f));
  EXPECT_THAT(first(targets_[1], 3), ElementsAre(4.0f, 5.0f, -1.0f));
  EXPECT_THAT(first(targets_[2], 4), ElementsAre(3.0f, 4.0f, 5.0f, -1.0f));
}

TEST_F(Collectives, GathersAndReducesWithOffsetsOfEachRanksOwn) {
  const Counts counts{1, 2, 1};
  const std::array<Counts, kWorld> offsets{Counts{0, 1, 3}, Counts{3, 1, 0}, Counts{10, 20, 30}};
  expect_well([&](int rank) {
    muster_collective c = say(rank, MUSTER_ALL_GATHER, 12345);  // the list counts, not this
    c.target_blocks = {counts.data(), offsets[static_cast<std::size_t>(rank)].data(), nullptr, nullptr};
    return c;
  });
  EXPECT_THAT(first(targets_[0], 4), ElementsAre(0.0f, 100.0f, 101.0f, 200.0f));
  EXPECT_THAT(first(targets_[1], 4), ElementsAre(200.0f, 100.0f, 101.0f, 0.0f));
  EXPECT_EQ(targets_[2].data[21], 101.0f);
  expect_well([&](int rank) {
    muster_collective c = say(rank, MUSTER_REDUCE_SCATTER);
    c.redop = MUSTER_SUM;
    c.source_blocks = {counts.data(), offsets[static_cast<std::size_t>(rank)].data(), nullptr, nullptr};
    return c;
  });
  EXPECT_THAT(first(targets_[1], 2), ElementsAre(1.0f + 101.0f + 220.0f, 2.0f + 102.0f + 221.0f));
}

// Goal:   each pair agrees on its own count.
// Method: member i gives i + j elements to member j.
TEST_F(Collectives, ExchangesBlocksOfAllPairs) {
  const std::array<Counts, kWorld> counts{Counts{0, 1, 2}, Counts{1, 2, 3}, Counts{2, 3, 4}};
  expect_well([&](int rank) {
    muster_collective c = say(rank, MUSTER_ALL_TO_ALL);
    c.source_blocks.counts = c.target_blocks.counts = counts[static_cast<std::size_t>(rank)].data();
    return c;
  });
  EXPECT_THAT(first(targets_[0], 4), ElementsAre(100.0f, 200.0f, 201.0f, -1.0f));
  EXPECT_THAT(first(targets_[1], 6), ElementsAre(0.0f, 101.0f, 102.0f, 202.0f, 203.0f, 204.0f));
  // In place the blocks of each pair change places.
  expect_well([&](int rank) {
    muster_collective c = say(rank, MUSTER_ALL_TO_ALL);
    c.target = c.source;
    c.source_blocks.counts = c.target_blocks.counts = counts[static_cast<std::size_t>(rank)].data();
    return c;
  });
  EXPECT_THAT(first(sources_[0], 4), ElementsAre(100.0f, 200.0f, 201.0f, 3.0f));
  EXPECT_THAT(first(sources_[2], 5), ElementsAre(1.0f, 2.0f, 103.0f, 104.0f, 105.0f));
  EXPECT_EQ(sources_[2].data[5], 205.0f) << "the own block stays";
}

// Goal:   a halo: columns of a 4×8 field to the neighbours' outer columns, in a ring, and a row to oneself.
TEST_F(Collectives, ExchangesTheFacesOfAHalo) {
  const auto column = [&](int rank, std::uint64_t at) {
    return muster_tensor{sources_[rank].buffer, at * sizeof(float), MUSTER_F32, 2,
                         {4, 1, 0, 0},          {8, 1, 0, 0}};
  };
  std::array<std::array<muster_face, 3>, kWorld> sends{}, receives{};
  expect_well([&](int rank) {
    const int left = (rank + kWorld - 1) % kWorld;
    const int right = (rank + 1) % kWorld;
    // The face that a rank sends to itself lies behind the field.
    const muster_tensor row = muster_view1(sources_[rank].buffer, 40 * sizeof(float), MUSTER_F32, 4);
    sends[rank] = {muster_face{left, 0, column(rank, 1)}, muster_face{right, 1, column(rank, 6)},
                   muster_face{rank, 2, row}};
    receives[rank] = {muster_face{right, 0, column(rank, 7)}, muster_face{left, 1, column(rank, 0)},
                      muster_face{rank, 2, muster_view1(targets_[rank].buffer, 0, MUSTER_F32, 4)}};
    muster_collective c = say(rank, MUSTER_EXCHANGE);
    c.sends = sends[rank].data();
    c.receives = receives[rank].data();
    c.send_count = c.receive_count = 3;
    return c;
  });
  for (int row = 0; row < 4; ++row) {
    EXPECT_EQ(sources_[0].data[row * 8 + 7], static_cast<float>(100 + row * 8 + 1)) << row;
    EXPECT_EQ(sources_[0].data[row * 8 + 0], static_cast<float>(200 + row * 8 + 6)) << row;
    EXPECT_EQ(sources_[0].data[row * 8 + 3], static_cast<float>(row * 8 + 3)) << "inside nothing changes";
  }
  EXPECT_THAT(first(targets_[2], 5), ElementsAre(240.0f, 241.0f, 242.0f, 243.0f, -1.0f));
}

TEST_F(Collectives, SendsToOneOther) {
  std::array<muster_point, 2> points{};
  const auto submit = on(MUSTER_LANE_COPY);
  muster_collective send = say(2, MUSTER_SEND, 2);
  send.peer = 0;
  muster_collective receive = say(0, MUSTER_RECV, 2);
  receive.peer = 2;
  ASSERT_EQ(muster_collect(sessions_[2], &send, &submit, &points[0]), MUSTER_OK) << muster_last_error();
  ASSERT_EQ(muster_collect(sessions_[0], &receive, &submit, &points[1]), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_point_wait(sessions_[2], points[0], -1), MUSTER_OK);
  EXPECT_EQ(muster_point_wait(sessions_[0], points[1], -1), MUSTER_OK);
  EXPECT_THAT(first(targets_[0], 3), ElementsAre(200.0f, 201.0f, -1.0f));
}

// Goal:   members that give and get nothing meet the others all the same.
TEST_F(Collectives, MeetsWithNothingToGive) {
  for (const muster_op op :
       {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_BROADCAST, MUSTER_REDUCE,
        MUSTER_GATHER, MUSTER_SCATTER, MUSTER_ALL_TO_ALL, MUSTER_EXCHANGE, MUSTER_BARRIER})
    expect_well([&](int rank) {
      muster_collective c = say(rank, op, 0);
      c.source = c.target = {0, 0};
      const bool reduces = op == MUSTER_ALL_REDUCE || op == MUSTER_REDUCE_SCATTER || op == MUSTER_REDUCE;
      c.redop = reduces ? MUSTER_SUM : 0;
      return c;
    });
}

// ---- disagreements of ranks ------------------------------------------------------------------------

TEST_F(Collectives, SaysWhoMeantSomethingElseAndWhere) {
  const auto status = collect([&](int rank) {
    muster_collective c = say(rank, MUSTER_ALL_GATHER, rank == 1 ? 5 : 4);
    c.site = rank == 1 ? "model.py:311" : "model.py:10";
    return c;
  });
  EXPECT_THAT(status, ElementsAre(MUSTER_ERR_MISMATCH, MUSTER_ERR_MISMATCH, MUSTER_ERR_MISMATCH));
  for (const std::string& text : texts_)
    EXPECT_THAT(text, HasSubstr("count: 4 at ranks 0, 2 (model.py:10) and 5 at rank 1 (model.py:311)"));
  for (const Vector& target : targets_) EXPECT_EQ(target.data[0], -1.0f);
  muster_failure failure = MUSTER_FAILURE_INIT;
  ASSERT_EQ(muster_lane_failure(sessions_[2], MUSTER_LANE_COPY, &failure), MUSTER_OK);
  EXPECT_EQ(failure.culprit_rank, -1) << "whose word is right is not known";
}

TEST_F(Collectives, NamesThePairThatDiffers) {
  const auto status = collect([&](int rank) {
    muster_collective c = say(rank, MUSTER_GATHER, rank == 1 ? 5 : 4);
    c.site = rank == 1 ? "b.py:2" : "a.py:1";
    return c;
  });
  EXPECT_THAT(status, ElementsAre(MUSTER_ERR_MISMATCH, MUSTER_ERR_MISMATCH, MUSTER_ERR_MISMATCH));
  EXPECT_THAT(texts_[2], HasSubstr("count from rank 1 to rank 0: 5 sent (b.py:2) and 4 expected (a.py:1)"));
  EXPECT_EQ(targets_[0].data[0], -1.0f);
}

// ---- refusals ----------------------------------------------------------------------------------------

TEST_F(Collectives, RefusesPeersThatAreNone) {
  for (const muster_op op : {MUSTER_BROADCAST, MUSTER_REDUCE, MUSTER_GATHER, MUSTER_SCATTER, MUSTER_SEND}) {
    muster_collective c = say(0, op, 1);
    c.redop = op == MUSTER_REDUCE ? MUSTER_SUM : 0;
    c.peer = 3;
    expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "peer 3");
    c.peer = -1;
    expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "peer -1");
  }
  const muster_face stranger{3, 0, muster_view1(sources_[0].buffer, 0, MUSTER_F32, 4)};
  muster_collective c = say(0, MUSTER_EXCHANGE);
  c.sends = &stranger;
  c.send_count = 1;
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "sends[0]");
  muster_collective self = say(0, MUSTER_SEND, 1);
  expect_refused(self, MUSTER_ERR_BAD_ARGUMENT, "this rank itself");
}

TEST_F(Collectives, RefusesWhatLiesBehindItsBuffer) {
  const Counts counts{1, 1, 1};
  const Counts far{0, 1, 64};
  const Counts beyond{0, 1, UINT64_MAX / 2};
  muster_collective c = say(0, MUSTER_ALL_GATHER);
  c.target_blocks = {counts.data(), far.data(), nullptr, nullptr};
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT,
                 "target: 3 blocks, 65 elements from byte 0 end behind the buffer's 256 bytes");
  c.target_blocks.offsets = beyond.data();
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "2^63");
  c = say(0, MUSTER_ALL_TO_ALL, 22);
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "source: 3 blocks, 66 elements");
  muster_face face{1, 0, muster_view2(sources_[0].buffer, 0, MUSTER_F32, 5, 13)};
  c = say(0, MUSTER_EXCHANGE);
  c.receives = &face;
  c.receive_count = 1;
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "receives[0]: the view ends behind");
  face.view = muster_view1(sources_[0].buffer + 1, 0, MUSTER_F32, 1);
  expect_refused(c, MUSTER_ERR_STALE, "is none of this session: it was freed, or never made here");
  face.view = muster_view1(0, 0, MUSTER_F32, 1);
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "no memory");
}

TEST_F(Collectives, RefusesOverlaps) {
  muster_collective c = say(0, MUSTER_ALL_TO_ALL, 4);
  c.target = {sources_[0].buffer, 4};
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "overlap");
  const Counts offsets{0, 3, 8};
  c = say(0, MUSTER_GATHER, 4);
  c.target_blocks.offsets = offsets.data();
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "block 0 [0, 4) and block 1 [3, 7) overlap");
  const std::array<muster_face, 2> faces{
      muster_face{1, 0, muster_view1(targets_[0].buffer, 0, MUSTER_F32, 4)},
      muster_face{2, 0, muster_view1(targets_[0].buffer, 8, MUSTER_F32, 4)}};
  c = say(0, MUSTER_EXCHANGE);
  c.receives = faces.data();
  c.receive_count = 2;
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "overlap");
}

TEST_F(Collectives, RefusesListsThatAreNotThereOrNotIts) {
  const Counts counts{1, 1, 1};
  muster_collective c = say(0, MUSTER_EXCHANGE);
  c.send_count = 2;
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "sends is NULL but its count is 2");
  c.send_count = 0;
  c.receive_count = 1;
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "receives is NULL");
  c = say(0, MUSTER_ALL_REDUCE, 4);
  c.redop = MUSTER_SUM;
  c.source_blocks.counts = counts.data();
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "source_blocks is given but all_reduce has no such blocks");
  c = say(0, MUSTER_REDUCE_SCATTER, 4);
  c.redop = MUSTER_SUM;
  c.target_blocks.offsets = counts.data();
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "target_blocks is given");
  c = say(0, MUSTER_ALL_GATHER, 4);
  c.send_count = 1;
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "1 sends are given but all_gather has none");
  c = say(0, MUSTER_BARRIER);
  c.site = "a path that is far too long to stand in a report, model.py:311";
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "site has 62 bytes; at most 47 fit");
  c = say(0, 13, 4);
  expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, "op 13");
}

// Goal:   a value in a field that the operation has at no member is refused, not dropped: the caller meant
//         something by it.
TEST_F(Collectives, RefusesFieldsThatItDoesNotHave) {
  const muster_face face{};
  const std::uint64_t count = 1;
  using Fill = std::function<void(muster_collective&)>;
  const auto refuse = [&](muster_op op, const Fill& fill, const char* words) {
    muster_collective c = say(0, op, op == MUSTER_EXCHANGE || op == MUSTER_BARRIER ? 0 : 1);
    if (op == MUSTER_ALL_REDUCE) c.redop = MUSTER_SUM;
    if (op == MUSTER_SEND || op == MUSTER_RECV) c.peer = 1;
    EXPECT_EQ(plan(0, c), MUSTER_OK) << words << ": " << muster_last_error();
    fill(c);
    expect_refused(c, MUSTER_ERR_BAD_ARGUMENT, words);
  };
  const Fill peer = [](auto& c) { c.peer = -2; };
  refuse(MUSTER_ALL_REDUCE, peer, "peer -2 is given but all_reduce has none; leave it 0");
  refuse(MUSTER_BARRIER, peer, "peer -2 is given but barrier has none");
  const Fill scale = [](auto& c) { c.scale = 0.5; };
  refuse(MUSTER_ALL_REDUCE, scale, "scale 0.5 is given but the redop is not MUSTER_PREMUL_SUM; leave it 0");
  refuse(MUSTER_BARRIER, scale, "scale 0.5");
  const Fill redop = [](auto& c) { c.redop = MUSTER_SUM; };
  refuse(MUSTER_BROADCAST, redop, "redop 1 is given but broadcast has none");
  refuse(MUSTER_BARRIER, redop, "redop 1 is given but barrier has none");
  refuse(
      MUSTER_BARRIER, [](auto& c) { c.dtype = MUSTER_F32; }, "dtype 1 is given but barrier has none");
  const Fill number = [](auto& c) { c.count = 3; };
  refuse(MUSTER_BARRIER, number, "count 3 is given but barrier has none");
  refuse(MUSTER_EXCHANGE, number, "count 3 is given but exchange has none");
  const Fill source = [](auto& c) { c.source = {0x11, 8}; };
  refuse(MUSTER_RECV, source, "source (buffer 0x11, offset 8) is given but recv has none; leave it 0");
  refuse(MUSTER_EXCHANGE, source, "source (buffer 0x11, offset 8) is given but exchange has none");
  const Fill target = [](auto& c) { c.target = {0, 4}; };
  refuse(MUSTER_SEND, target, "target (buffer 0x0, offset 4) is given but send has none");
  refuse(MUSTER_BARRIER, target, "target (buffer 0x0, offset 4) is given but barrier has none");
  refuse(
      MUSTER_BARRIER, [&](auto& c) { c.source_blocks.counts = &count; },
      "source_blocks is given but barrier has no such blocks");
  refuse(
      MUSTER_ALL_GATHER, [&](auto& c) { c.sends = &face; }, "0 sends are given but all_gather has none");
}

// Goal:   the limit of one message is told, not found out.
TEST_F(Collectives, SaysHowManyFacesAMessageHolds) {
  std::vector<muster_face> faces;
  for (std::uint32_t tag = 0; tag < 700; ++tag)
    faces.push_back({0, tag, muster_view1(sources_[0].buffer, 0, MUSTER_F32, 1)});
  muster_collective c = say(0, MUSTER_EXCHANGE);
  c.sends = faces.data();
  c.send_count = 700;
  expect_refused(c, MUSTER_ERR_NO_RESOURCE, "at most 680 together");
  c.send_count = 680;
  EXPECT_EQ(plan(0, c), MUSTER_OK) << muster_last_error();
  c.receives = faces.data();
  c.receive_count = 1;
  expect_refused(c, MUSTER_ERR_NO_RESOURCE, "at most 680 together");
}

TEST_F(Collectives, HoldsTheBuffersOfAllFaces) {
  std::vector<Vector> vectors;
  std::vector<muster_face> faces;
  for (std::uint32_t i = 0; i < 20; ++i) {
    vectors.push_back(vector_of(sessions_[0], 4));
    faces.push_back({0, i, muster_view1(vectors.back().buffer, 0, MUSTER_F32, 4)});
  }
  muster_collective c = say(0, MUSTER_EXCHANGE);
  c.sends = faces.data();
  c.send_count = 20;
  muster_plan made = 0;
  ASSERT_EQ(muster_plan_collective(sessions_[0], &c, &made), MUSTER_OK) << muster_last_error();
  for (const Vector& v : vectors) EXPECT_EQ(muster_buffer_free(sessions_[0], v.buffer), MUSTER_ERR_BUSY);
  EXPECT_EQ(muster_plan_destroy(sessions_[0], made), MUSTER_OK);
  for (const Vector& v : vectors) EXPECT_EQ(muster_buffer_free(sessions_[0], v.buffer), MUSTER_OK);
}

// ---- the plan cache ------------------------------------------------------------------------------------

// Goal:   a one-shot's lists and faces are part of what it is, by their values and not by where they stand.
TEST_F(Collectives, TellsOneShotsApartByTheirLists) {
  Counts counts{1, 1, 1};
  for (const std::uint64_t own : {1, 3}) {
    counts.assign(3, own);
    expect_well([&](int rank) {
      muster_collective c = say(rank, MUSTER_ALL_TO_ALL);
      c.source_blocks.counts = c.target_blocks.counts = counts.data();
      return c;
    });
  }
  EXPECT_EQ(targets_[0].data[8], 202.0f);
  std::array<muster_face, kWorld> sends{}, receives{};
  for (const std::uint64_t at : {8, 16}) {
    expect_well([&](int rank) {
      const auto i = static_cast<std::size_t>(rank);
      sends[i] = {rank, 0, muster_view1(sources_[rank].buffer, at, MUSTER_F32, 1)};
      receives[i] = {rank, 0, muster_view1(targets_[rank].buffer, 0, MUSTER_F32, 1)};
      muster_collective c = say(rank, MUSTER_EXCHANGE);
      c.sends = &sends[i];
      c.receives = &receives[i];
      c.send_count = c.receive_count = 1;
      return c;
    });
    EXPECT_EQ(targets_[1].data[0], static_cast<float>(100 + at / 4));
  }
}

// Goal:   unused fields of a rank make no plan of their own, so that garbage there fills no cache.
// Method: a count beside a list of counts, another each time.
TEST_F(Collectives, KeepsOnePlanWhateverStandsBesideAListOfCounts) {
  const std::uint64_t one = 1;
  const auto submit = on(MUSTER_LANE_COPY);
  muster_point last = 0;
  for (std::uint64_t garbage = 0; garbage < 5000; ++garbage) {
    muster_collective c = say(0, MUSTER_ALL_GATHER, garbage);
    c.group = MUSTER_GROUP_SELF;
    c.target_blocks.counts = &one;
    muster_status_t status = muster_collect(sessions_[0], &c, &submit, &last);
    while (status == MUSTER_ERR_BUSY) {
      ASSERT_EQ(muster_point_wait(sessions_[0], last, -1), MUSTER_OK);
      status = muster_collect(sessions_[0], &c, &submit, &last);
    }
    ASSERT_EQ(status, MUSTER_OK) << muster_last_error();
  }
  EXPECT_EQ(muster_point_wait(sessions_[0], last, -1), MUSTER_OK);
}

// Goal:   any number of different one-shots is welcome, as of a mixture of experts: what was used longest ago
//         makes room, and what is in flight stays.
TEST_F(Collectives, ForgetsTheOneShotThatWasUsedLongestAgo) {
  std::uint32_t timeline = 0;
  ASSERT_EQ(muster_timeline_create(sessions_[0], &timeline), MUSTER_OK);
  muster_submit held = on(MUSTER_LANE_HALO);
  held.waits[held.wait_count++] = muster_timeline_point(timeline, 1);
  const auto submit = on(MUSTER_LANE_COPY);
  muster_point first = 0, last = 0;
  for (std::uint64_t step = 0; step < 4300; ++step) {
    muster_collective c = say(0, MUSTER_ALL_GATHER, 1);
    c.group = MUSTER_GROUP_SELF;
    const std::string site = "model.py:" + std::to_string(step);
    c.site = site.c_str();
    const bool stays = step == 0;
    ASSERT_EQ(muster_collect(sessions_[0], &c, stays ? &held : &submit, stays ? &first : &last), MUSTER_OK)
        << step << muster_last_error();
    const bool waits = step % 100 == 99;
    ASSERT_EQ(waits ? muster_point_wait(sessions_[0], last, -1) : MUSTER_OK, MUSTER_OK);
  }
  EXPECT_EQ(muster_point_wait(sessions_[0], last, -1), MUSTER_OK);
  EXPECT_EQ(muster_point_test(sessions_[0], first), MUSTER_PENDING);
  ASSERT_EQ(muster_timeline_signal(sessions_[0], timeline, 1), MUSTER_OK);
  EXPECT_EQ(muster_point_wait(sessions_[0], first, -1), MUSTER_OK) << "it was in flight all the time";
}

// ---- run -------------------------------------------------------------------------------------------------

class Run : public Collectives {
 protected:
  // Each rank on a thread of its own.
  void on_all(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kWorld; ++rank) threads.emplace_back(body, rank);
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(Run, RunsEveryOperation) {
  on_all([&](int rank) {
    muster_session* session = sessions_[rank];
    for (int round = 0; round < 20; ++round)
      for (const muster_op op :
           {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_BROADCAST, MUSTER_REDUCE,
            MUSTER_GATHER, MUSTER_SCATTER, MUSTER_ALL_TO_ALL, MUSTER_EXCHANGE, MUSTER_BARRIER}) {
        muster_collective c = say(rank, op, op == MUSTER_ALL_REDUCE ? 3 : 2);
        const bool reduces = op == MUSTER_ALL_REDUCE || op == MUSTER_REDUCE_SCATTER || op == MUSTER_REDUCE;
        c.redop = reduces ? MUSTER_SUM : 0;
        ASSERT_EQ(muster_run(session, &c, 0), MUSTER_OK) << muster_last_error();
        if (op == MUSTER_ALL_REDUCE) {
          ASSERT_EQ(targets_[rank].data[2], 306.0f);
        }
        if (op == MUSTER_ALL_TO_ALL) {
          ASSERT_EQ(targets_[rank].data[3], static_cast<float>(101 + 2 * rank));
        }
      }
    ASSERT_EQ(muster_barrier(session, group_of(session, "world")), MUSTER_OK);
  });
}

// Goal:   a failure is told once to every member, and then the group runs again.
TEST_F(Run, RunsAgainAfterADisagreement) {
  on_all([&](int rank) {
    for (int round = 0; round < 5; ++round) {
      muster_collective c = say(rank, MUSTER_ALL_REDUCE, rank == 2 ? 5 : 4);
      c.redop = MUSTER_SUM;
      ASSERT_EQ(muster_run(sessions_[rank], &c, 0), MUSTER_ERR_MISMATCH);
      ASSERT_THAT(muster_last_error(), HasSubstr("count: 4 at ranks 0, 1 and 5 at rank 2"));
      c.count = 4;
      ASSERT_EQ(muster_run(sessions_[rank], &c, 0), MUSTER_OK) << muster_last_error();
    }
  });
}

TEST_F(Run, EndsAtItsOwnDeadline) {
  muster_collective c = say(0, MUSTER_BARRIER);
  EXPECT_EQ(muster_run(sessions_[0], &c, 100'000'000), MUSTER_ERR_TIMEOUT);
  EXPECT_THAT(muster_last_error(), HasSubstr("missing ranks 1 2"));
}

TEST_F(Run, RefusesWhatCannotRun) {
  const muster_kernel fill = muster_fill(muster_view1(sources_[0].buffer, 0, MUSTER_F32, 4), 1.0);
  muster_plan kernel = 0;
  ASSERT_EQ(muster_plan_kernel(sessions_[0], &fill, &kernel), MUSTER_OK);
  EXPECT_EQ(muster_plan_run(sessions_[0], kernel, 0), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("kernel"));
  EXPECT_EQ(muster_plan_run(sessions_[0], 12345, 0), MUSTER_ERR_STALE);
  muster_collective c = say(0, MUSTER_BARRIER);
  EXPECT_EQ(muster_run(sessions_[0], &c, -1), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_run(nullptr, &c, 0), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_run(sessions_[0], nullptr, 0), MUSTER_ERR_BAD_ARGUMENT);
  c.group = MUSTER_GROUP_SELF;
  muster_plan alone = 0;
  ASSERT_EQ(muster_plan_collective(sessions_[0], &c, &alone), MUSTER_OK);
  EXPECT_EQ(muster_plan_run(sessions_[0], alone, 0), MUSTER_OK);
}

}  // namespace
