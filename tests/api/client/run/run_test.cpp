// Running collectives as a program does: real supervisor, real engine process, a thread for each rank.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"
#include "tests/support/holdings.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::HasSubstr;

class Run : public muster::test::RunningRanks {};

// Goal:   every size and algorithm gives the sum, apart and in place, again and again.
TEST_F(Run, ReducesVectorsOfEverySize) {
  for (const int world : {1, 2, 3, 4}) {
    with_ranks(world, [&](Member& member) {
      for (const std::size_t count :
           {std::size_t{2}, std::size_t{300}, std::size_t{16384}, std::size_t{300007}}) {
        const Vector source = vector_of(member, count);
        const Vector target = vector_of(member, count);
        for (int round = 0; round < 3; ++round) {
          const bool in_place = round == 2;
          for (std::size_t i = 0; i < count; ++i)
            source.data[i] = static_cast<float>(static_cast<int>(i % 1000) * (member.rank + 1) + round);
          const Vector& result = in_place ? source : target;
          ASSERT_EQ(member.run(all_reduce(member, source, result, count)), MUSTER_OK) << member.error;
          const int ranks_sum = world * (world + 1) / 2;
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(result.data[i],
                      static_cast<float>(static_cast<int>(i % 1000) * ranks_sum + round * world))
                << "world " << world << ", count " << count << ", round " << round << ", element " << i;
        }
      }
    });
  }
}

TEST_F(Run, MeetsManyTimes) {
  with_ranks(3, [&](Member& member) {
    const Vector v = vector_of(member, 1);
    for (int i = 0; i < 300; ++i) {
      v.data[0] = 1.0f;
      ASSERT_EQ(member.run(all_reduce(member, v, v, 1)), MUSTER_OK) << member.error;
      ASSERT_EQ(v.data[0], 3.0f);
      ASSERT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
    }
  });
}

TEST_F(Run, TellsEachMemberOnceOfADepartureAndMeetsAgainAfterwards) {
  std::atomic<bool> left{false};
  std::atomic<int> told{0};
  with_ranks(3, [&](Member& member) {
    meet_and_leave(member);
    if (member.rank == 2) {
      ASSERT_EQ(muster_close(member.session), MUSTER_OK);
      left = true;
      await([&] { return told == 2; });
      member = open(2, 3);
    } else {
      await([&] { return left.load(); });
      EXPECT_EQ(member.run(member.barrier()), MUSTER_ERR_PEER_LOST);
      EXPECT_THAT(member.error, HasSubstr("rank 2"));
      ++told;
    }
    EXPECT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
  });
}

TEST_F(Run, NamesExactlyTheMissingAtTheDeadline) {
  std::atomic<int> done{0};
  with_ranks(4, [&](Member& member) {
    meet_and_leave(member);
    if (member.rank == 1 || member.rank == 2) {
      await([&] { return done == 2; });
      // A rank that comes after the deadline gets a timeout too.
      EXPECT_EQ(member.run(member.barrier()), MUSTER_ERR_TIMEOUT);
    } else {
      EXPECT_EQ(member.run(member.barrier(), 200'000'000), MUSTER_ERR_TIMEOUT);
      EXPECT_THAT(member.error, HasSubstr("missing ranks 1 2"));
      ++done;
    }
    EXPECT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
  });
}

TEST_F(Run, FindsADifferenceOnEveryMember) {
  with_ranks(3, [&](Member& member) {
    const Vector v = vector_of(member, 8);
    for (int i = 0; i < 8; ++i) v.data[i] = 5.0f;
    muster_collective c = all_reduce(member, v, v, member.rank == 1 ? 7 : 8);
    c.site = member.rank == 1 ? "model.py:311" : nullptr;
    EXPECT_EQ(member.run(c), MUSTER_ERR_MISMATCH);
    EXPECT_THAT(member.error, HasSubstr("count: 8 at ranks 0, 2 and 7 at rank 1 (model.py:311)"));
    for (int i = 0; i < 8; ++i) EXPECT_EQ(v.data[i], 5.0f);
    EXPECT_EQ(member.run(all_reduce(member, v, v, 8)), MUSTER_OK) << member.error;
    EXPECT_EQ(v.data[0], 15.0f);
  });
}

// Goal:   a difference that sends members different ways is one like any other.
// Method: one vector is so large that the engine is to reduce it, the other is not.
TEST_F(Run, FindsADifferenceThatDecidesThePath) {
  constexpr std::size_t kLarge = std::size_t{4} << 20;
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kLarge);
    std::fill_n(v.data, kLarge, 1.0f);
    const std::size_t count = member.rank == 0 ? kLarge : kLarge - 1;
    EXPECT_EQ(member.run(all_reduce(member, v, v, count)), MUSTER_ERR_MISMATCH);
    EXPECT_THAT(member.error, HasSubstr("count: 4194304 at rank 0 and 4194303 at rank 1"));
    EXPECT_EQ(member.run(all_reduce(member, v, v, kLarge)), MUSTER_OK) << member.error;
    EXPECT_EQ(v.data[kLarge - 1], 2.0f);
  });
}

// Goal:   a rank whose lane stands still is told so by a run that would go there, which has not begun: the
//         others meet the one that comes after the reset.
// Method: rank 0 has started what cannot begin, in a group of its own; its failure tells nobody else.
TEST_F(Run, HasNotBegunWhereItsLaneStandsStill) {
  constexpr std::size_t kLarge = std::size_t{4} << 20;
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kLarge);
    const muster_collective c = all_reduce(member, v, v, kLarge);
    if (member.rank == 0) {
      std::uint32_t timeline = 0;
      ASSERT_EQ(muster_timeline_create(member.session, &timeline), MUSTER_OK);
      muster_collective alone = member.barrier();
      ASSERT_EQ(muster_mesh_group(member.session, "tp", &alone.group), MUSTER_OK) << muster_last_error();
      muster_submit submit = MUSTER_SUBMIT_INIT;
      submit.lane = MUSTER_LANE_ALLREDUCE;
      submit.deadline_ns = 1'000'000;
      submit.waits[0] = muster_timeline_point(timeline, 1);
      submit.wait_count = 1;
      muster_point point = MUSTER_POINT_NONE;
      ASSERT_EQ(muster_collect(member.session, &alone, &submit, &point), MUSTER_OK) << muster_last_error();
      ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_ERR_TIMEOUT);
      const std::string why = muster_last_error();
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(member.run(c), MUSTER_ERR_STATE);
        EXPECT_THAT(member.error, HasSubstr("(" + why + ") until muster_lane_reset"));
      }
      ASSERT_EQ(muster_lane_reset(member.session, MUSTER_LANE_ALLREDUCE), MUSTER_OK);
    }
    for (int i = 0; i < 2; ++i) EXPECT_EQ(member.run(c), MUSTER_OK) << member.error;
  });
}

TEST_F(Run, EndsForAllWhenOneAborts) {
  with_ranks(2, [&](Member& member) {
    meet_and_leave(member);
    if (member.rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ASSERT_EQ(muster_group_abort(member.session, member.group), MUSTER_OK);
    }
    EXPECT_EQ(member.run(member.barrier()), MUSTER_ERR_ABORTED);
    EXPECT_THAT(member.error, HasSubstr("rank 1 aborted group"));
    EXPECT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
  });
}

// Goal:   an engine that is gone is noticed also by who never waits long for anybody.
// Method: a rank that runs alone goes on; so would two that come at the same time.
TEST_F(Run, HearsThatItsEngineIsGoneThoughItWaitsForNobody) {
  Member member = open(0, 1);
  ASSERT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
  const auto engines = muster::test::engines();
  ASSERT_EQ(engines.size(), 1u);
  kill(engines[0], SIGKILL);
  muster_status_t status = MUSTER_OK;
  for (int i = 0; i < 10'000 && status == MUSTER_OK; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = member.run(member.barrier());
  }
  EXPECT_EQ(status, MUSTER_ERR_DAEMON_LOST) << member.error;
  muster_close(member.session);
}

// Goal:   a run whose peer does not come ends although the engine lives on and does not answer.
TEST_F(Run, EndsWhereTheEngineDoesNotAnswer) {
  muster_open_options options = node_.rank("job", 0, 2);
  options.timeout_ns = 4'000'000'000;
  muster_session* session = nullptr;
  ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
  muster_collective barrier = MUSTER_COLLECTIVE_INIT;
  barrier.op = MUSTER_BARRIER;
  ASSERT_EQ(muster_mesh_group(session, "world", &barrier.group), MUSTER_OK);
  constexpr std::int64_t kDeadline = 50'000'000;
  ASSERT_EQ(muster_run(session, &barrier, kDeadline), MUSTER_ERR_TIMEOUT) << muster_last_error();
  const auto engines = muster::test::engines();
  ASSERT_EQ(engines.size(), 1u);
  kill(engines[0], SIGSTOP);
  EXPECT_EQ(muster_run(session, &barrier, kDeadline), MUSTER_ERR_DAEMON_LOST) << muster_last_error();
  EXPECT_THAT(muster_last_error(), HasSubstr("does not answer"));
  kill(engines[0], SIGCONT);
  EXPECT_EQ(muster_close(session), MUSTER_OK);
}

// Goal:   memory that went with its owner is the owner's loss, not somebody's bad argument.
// Method: rank 1 has sent from memory of its own that goes with it, and is killed. The engine is stopped
//         meanwhile, so that rank 0 asks for that memory before it can have heard of the death.
TEST_F(Run, HearsOfTheLossThatMemoryWentWith) {
  const pid_t sender = node_.fork();
  if (sender == 0) {
    Member member = open(1, 2);
    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.bytes = 40'000;
    options.memory = ::memfd_create("imported", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (::ftruncate(options.memory, 40'960) != 0) _exit(1);
    if (::fcntl(options.memory, F_ADD_SEALS, F_SEAL_SHRINK) != 0) _exit(1);
    muster_collective c = member.barrier();
    if (muster_buffer_create(member.session, &options, &c.source.buffer, nullptr) != MUSTER_OK) _exit(1);
    if (member.run(member.barrier()) != MUSTER_OK) _exit(1);
    c.op = MUSTER_SEND;
    c.dtype = MUSTER_F32;
    c.peer = 0;
    c.count = 10'000;
    member.run(c);
    _exit(0);
  }
  Member member = open(0, 2);
  const Vector v = vector_of(member, 10'000);
  muster_collective c = member.barrier();
  c.op = MUSTER_RECV;
  c.dtype = MUSTER_F32;
  c.peer = 1;
  c.target = {v.buffer, 0};
  c.count = 10'000;
  muster_plan plan = 0;
  ASSERT_EQ(muster_plan_collective(member.session, &c, &plan), MUSTER_OK) << muster_last_error();
  ASSERT_EQ(member.run(member.barrier()), MUSTER_OK) << member.error;
  usleep(300'000);
  const auto engines = muster::test::engines();
  ASSERT_EQ(engines.size(), 1u);
  kill(engines[0], SIGSTOP);
  kill(sender, SIGKILL);
  waitpid(sender, nullptr, 0);
  std::thread goes_on([&] {
    usleep(300'000);
    kill(engines[0], SIGCONT);
  });
  const muster_status_t status = muster_plan_run(member.session, plan, 0);
  const std::string text = muster_last_error();
  goes_on.join();
  // The engine may come to the question before it comes to the death.
  EXPECT_THAT(status, testing::AnyOf(MUSTER_ERR_PEER_LOST, MUSTER_OK)) << text;
  EXPECT_EQ(muster_close(member.session), MUSTER_OK);
}

TEST_F(Run, SendsAndReceives) {
  with_ranks(2, [&](Member& member) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{50000}}) {
      const Vector v = vector_of(member, count + 1);
      for (std::size_t i = 0; i < count; ++i) v.data[i] = member.rank == 0 ? static_cast<float>(i) : -1.0f;
      muster_collective c = MUSTER_COLLECTIVE_INIT;
      c.op = member.rank == 0 ? MUSTER_SEND : MUSTER_RECV;
      c.group = member.group;
      c.dtype = MUSTER_F32;
      c.peer = 1 - member.rank;
      (member.rank == 0 ? c.source : c.target) = {v.buffer, 0};
      c.count = count;
      ASSERT_EQ(member.run(c), MUSTER_OK) << member.error;
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(v.data[i], static_cast<float>(i));
    }
    const Vector v = vector_of(member, 8);
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = member.rank == 0 ? MUSTER_SEND : MUSTER_RECV;
    c.group = member.group;
    c.dtype = MUSTER_F32;
    c.peer = 1 - member.rank;
    (member.rank == 0 ? c.source : c.target) = {v.buffer, 0};
    c.count = 4 + static_cast<std::uint64_t>(member.rank);
    EXPECT_EQ(member.run(c), MUSTER_ERR_MISMATCH);
    EXPECT_THAT(member.error, HasSubstr("count"));
    c.count = 4;
    c.tag = static_cast<std::uint32_t>(member.rank);
    EXPECT_EQ(member.run(c), MUSTER_ERR_MISMATCH);
    EXPECT_THAT(member.error, HasSubstr("tag: 0 at rank 0 and 1 at rank 1"));
    c.tag = 9;
    EXPECT_EQ(member.run(c), MUSTER_OK) << member.error;
  });
}

TEST_F(Run, ExchangesFacesOnARing) {
  with_ranks(3, [&](Member& member) {
    for (const std::int64_t rows : {std::int64_t{4}, std::int64_t{3000}}) {
      const std::int64_t columns = 6;
      const Vector v = vector_of(member, static_cast<std::size_t>(rows * columns));
      for (std::int64_t i = 0; i < rows * columns; ++i)
        v.data[i] = static_cast<float>(member.rank * 100000 + i);
      const auto column = [&](std::int64_t k) {
        muster_tensor t{};
        t.buffer = v.buffer;
        t.offset_bytes = static_cast<std::uint64_t>(k) * sizeof(float);
        t.dtype = MUSTER_F32;
        t.dims = 1;
        t.size[0] = rows;
        t.stride[0] = columns;
        return t;
      };
      const std::int32_t next = (member.rank + 1) % 3;
      const std::int32_t before = (member.rank + 2) % 3;
      const muster_face sends[] = {{next, 0, column(4)}, {before, 1, column(1)}};
      const muster_face receives[] = {{before, 0, column(0)}, {next, 1, column(5)}};
      muster_collective c = MUSTER_COLLECTIVE_INIT;
      c.op = MUSTER_EXCHANGE;
      c.group = member.group;
      c.dtype = MUSTER_F32;
      c.sends = sends;
      c.receives = receives;
      c.send_count = c.receive_count = 2;
      ASSERT_EQ(member.run(c), MUSTER_OK) << member.error;
      for (std::int64_t r = 0; r < rows; ++r) {
        ASSERT_EQ(v.data[r * columns], static_cast<float>(before * 100000 + r * columns + 4));
        ASSERT_EQ(v.data[r * columns + 5], static_cast<float>(next * 100000 + r * columns + 1));
      }
    }
  });
}

}  // namespace
