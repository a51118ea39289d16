// The engine's treatment of commands that libmuster would not have written.
#include "daemon/engine/session/command_intake.hpp"

#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/daemon/engine/ring_client.hpp"
#include "tests/support/manual_clock.hpp"

#include <memory>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <muster/kernels.h>

namespace muster::engine {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kBytes = 4096;
constexpr std::uint64_t kCount = 100;  // floats

// Two ranks of an engine that moves when the test says. Each has two buffers.
class CommandIntakeTest : public ::testing::Test {
 protected:
  struct Seat {
    std::unique_ptr<test::RingClient> client;
    std::uint64_t one = 0, other = 0;
    std::byte* data = nullptr;  // of `one`
  };
  void SetUp() override {
    auto engine = Engine::create(test::small_job(2), clock_, nullptr, Engine::Pooling::kByHand);
    ASSERT_TRUE(engine) << engine.error().text();
    engine_ = *std::move(engine);
    for (std::uint32_t rank = 0; rank < 2; ++rank) attach(rank);
  }
  void attach(std::uint32_t rank) {
    auto attached = engine_->attach(Rank(rank), 1);
    ASSERT_TRUE(attached) << attached.error().text();
    Seat& seat = seats_[rank];
    seat.client = std::make_unique<test::RingClient>(*attached->session);
    const std::byte* data = nullptr;
    seat.one = seat.client->buffer(*engine_, kBytes, &data);
    seat.data = const_cast<std::byte*>(data);
    seat.other = seat.client->buffer(*engine_, kBytes);
  }
  std::uint64_t plan(std::uint32_t rank, shm::PlanCollective said, const CollectiveLists& lists = {}) {
    said.group = Handle(0, 77).bits;
    const auto made = engine_->plans().collective(seats_[rank].client->session(), said, lists);
    EXPECT_TRUE(made) << made.error().text();
    return made ? made->bits : 0;
  }
  // In place in the first buffer.
  std::uint64_t all_reduce(std::uint32_t rank) {
    shm::PlanCollective said;
    said.op = MUSTER_ALL_REDUCE;
    said.dtype = MUSTER_F32;
    said.redop = MUSTER_SUM;
    said.count = kCount;
    said.source = said.target = {seats_[rank].one, 0};
    return plan(rank, said);
  }
  void turns() {
    while (engine_->run_once() > 0) {
    }
  }
  // Why the engine has ended a session; empty: it has not.
  std::string offence() {
    turns();
    const auto offender = engine_->faults().take_offender();
    if (!offender) return "";
    EXPECT_EQ(offender->first, Rank(0));
    return offender->second;
  }
  // The command ends the session of rank 0. Then another client has the rank.
  void expect_offence(const std::function<void(Seat&)>& act, const char* words) {
    act(seats_[0]);
    EXPECT_THAT(offence(), HasSubstr(words));
    engine_->detach(Rank(0), "rank 0 broke the protocol");
    turns();
    engine_->reclaim();
    attach(0);
  }
  float& element(std::uint32_t rank, std::uint64_t i) {
    return reinterpret_cast<float*>(seats_[rank].data)[i];
  }

  muster::test::ManualClock clock_;
  std::unique_ptr<Engine> engine_;
  std::array<Seat, 2> seats_;
};

// Goal:   offsets that no client of ours would send end its session, before a byte is read or written there.
TEST_F(CommandIntakeTest, EndsTheSessionForOffsetsThatCannotBe) {
  struct Bad {
    std::uint64_t source, target;
    const char* words;
  };
  constexpr std::uint64_t kLast = kBytes - kCount * 4;
  const Bad bad[] = {
      {2, 2, "source_offset_bytes 2 is not a multiple"},
      {0, 1, "target_offset_bytes 1 is not a multiple"},
      {kLast + 4, kLast + 4, "end behind the 4096 bytes"},
      {0, kBytes, "end behind the 4096 bytes"},
      {UINT64_MAX - 3, UINT64_MAX - 3, "end behind the 4096 bytes"},
      {0, UINT64_MAX - kCount * 4 + 1, "end behind the 4096 bytes"},
      {std::uint64_t{1} << 63, 0, "end behind the 4096 bytes"},
      {0, 4, "source and target of member 0 overlap"},
      {kLast, kLast - 4, "source and target of member 0 overlap"},
  };
  for (const Bad& each : bad)
    expect_offence([&](Seat& seat) { seat.client->start_at(all_reduce(0), 0, each.source, each.target); },
                   each.words);
}

TEST_F(CommandIntakeTest, EndsTheSessionForOffsetsOfWhatDoesNotMove) {
  const auto no_vectors = [&](muster_op op, const char* words) {
    expect_offence(
        [&](Seat& seat) {
          shm::PlanCollective said;
          said.op = op;
          seat.client->start_at(plan(0, said), 0, 0, 0);
        },
        words);
  };
  no_vectors(MUSTER_BARRIER, "barrier has no vectors");
  no_vectors(MUSTER_EXCHANGE, "exchange has no vectors");
  expect_offence(
      [&](Seat& seat) {
        const muster_kernel fill = muster_fill(muster_view1(seat.one, 0, MUSTER_F32, kCount), 1.0);
        const auto made = engine_->plans().kernel(seat.client->session(), fill);
        ASSERT_TRUE(made) << made.error().text();
        seat.client->start_at(made->bits, 0, 0, 0);
      },
      "a kernel's plan takes no offsets");
  expect_offence(
      [&](Seat& seat) {
        shm::PlanCollective said;
        said.op = MUSTER_ALL_GATHER;
        said.dtype = MUSTER_F32;
        said.source = said.target = {seat.one, 0};
        said.piece_counts = 2;
        said.pieces = 2;
        CollectiveLists lists;
        lists.piece_counts = {1, 1};
        lists.pieces = {{0, 5}, {10, 5}};
        seat.client->start_at(plan(0, said, lists), 0, 400, 0);
      },
      "made in place; give equal offsets");
  expect_offence([&](Seat& seat) { seat.client->start_at(0x77, 0, 0, 0); },
                 "plan 0x77 is none of this session");
  expect_offence([&](Seat& seat) { seat.client->start_at(all_reduce(0), MUSTER_LANES_MAX - 1, 0, 0); },
                 "lane 63 does not exist");
}

// Goal:   a step that no client of ours would name ends the session: numbers of JSON could not hold it.
TEST_F(CommandIntakeTest, EndsTheSessionForAStepThatCannotBe) {
  const auto mark = [](std::uint64_t step) {
    shm::Command command;
    command.kind = shm::Command::Kind::kStep;
    command.plan = step;
    return command;
  };
  seats_[0].client->push(mark(shm::kPointValueMask));
  EXPECT_EQ(offence(), "");
  expect_offence([&](Seat& seat) { seat.client->push(mark(shm::kPointValueMask + 1)); }, "there is no step");
}

// Goal:   a session that broke the protocol is not read again before the conductor has taken it out.
TEST_F(CommandIntakeTest, RefusesASessionOnce) {
  seats_[0].client->push({});
  for (int turn = 0; turn < 5; ++turn) EXPECT_THAT(offence(), HasSubstr("kind 0 is unknown"));
  EXPECT_EQ(seats_[0].client->counter(shm::Counter::kRefusals), 1u);
}

// Goal:   offsets count as no points, the two waits before them do, and the checked counts are the new ones.
TEST_F(CommandIntakeTest, StartsAtTheOffsetsOfEachRank) {
  const std::uint64_t plans[] = {all_reduce(0), all_reduce(1)};
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    for (std::uint64_t i = 0; i < kBytes / 4; ++i) element(rank, i) = 1;
  seats_[0].client->start_at(plans[0], MUSTER_LANE_SMALL, 400, 800);
  seats_[1].client->start_at(plans[1], MUSTER_LANE_SMALL, 1200, 1200);
  EXPECT_EQ(offence(), "");
  EXPECT_EQ(seats_[0].client->latest(MUSTER_LANE_SMALL), Code::kOk);
  EXPECT_EQ(seats_[1].client->latest(MUSTER_LANE_SMALL), Code::kOk);
  for (std::uint64_t i = 0; i < kBytes / 4; ++i) {
    ASSERT_EQ(element(0, i), i >= 200 && i < 300 ? 2 : 1) << i;
    ASSERT_EQ(element(1, i), i >= 300 && i < 400 ? 2 : 1) << i;
  }
  shm::Command recount;
  recount.kind = shm::Command::Kind::kRecount;
  recount.plan = plans[0];
  recount.deadline_ns = kCount + 1;
  seats_[0].client->push(recount);
  seats_[0].client->start_at(plans[0], MUSTER_LANE_SMALL, 0, kBytes - kCount * 4);
  EXPECT_THAT(offence(), HasSubstr("target_offset_bytes 3696: the 404 bytes from there end behind"));
}

}  // namespace
}  // namespace muster::engine
