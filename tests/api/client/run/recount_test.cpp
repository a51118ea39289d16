// New counts between starts and runs of a plan.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"

#include <numeric>
#include <optional>
#include <random>

#include <gmock/gmock.h>

namespace {

using muster::test::Member;
using muster::test::Vector;
using ::testing::HasSubstr;

constexpr std::size_t kRoom = 4000;  // floats of each vector

class Recount : public muster::test::RunningRanks {
 protected:
  static muster_status_t recount(Member& member, muster_plan plan, std::uint64_t count,
                                 const std::vector<std::uint64_t>* source = nullptr,
                                 const std::vector<std::uint64_t>* target = nullptr) {
    const muster_blocks source_blocks{source != nullptr ? source->data() : nullptr, nullptr, nullptr,
                                      nullptr};
    const muster_blocks target_blocks{target != nullptr ? target->data() : nullptr, nullptr, nullptr,
                                      nullptr};
    const muster_status_t status =
        muster_plan_recount(member.session, plan, count, &source_blocks, &target_blocks);
    member.error = muster_last_error();
    return status;
  }
  static muster_status_t start(Member& member, muster_plan plan, muster_point* point) {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_COPY;
    return muster_plan_start(member.session, plan, &submit, point);
  }
};

// Goal:   a router's step: each rank sends each other another number of rows, every time.
// Method: all ranks draw the same table from one seed; run and started in turn.
TEST_F(Recount, SendsOtherCountsEachStep) {
  for (const int world : {2, 4}) {
    with_ranks(world, [&](Member& member) {
      const auto members = static_cast<std::size_t>(world);
      const auto me = static_cast<std::size_t>(member.rank);
      const Vector source = vector_of(member, kRoom);
      const Vector target = vector_of(member, kRoom);
      const muster_plan plan = plan_of(member, collective(member, MUSTER_ALL_TO_ALL, source, target));
      std::minstd_rand random(7);
      for (int step = 0; step < 60; ++step) {
        std::vector<std::vector<std::uint64_t>> rows(members, std::vector<std::uint64_t>(members));
        for (auto& row : rows)
          for (auto& count : row) count = random() % 5 == 0 ? 0 : random() % (kRoom / members);
        std::vector<std::uint64_t> from(members);
        for (std::size_t i = 0; i < members; ++i) from[i] = rows[i][me];
        ASSERT_EQ(recount(member, plan, 0, &rows[me], &from), MUSTER_OK) << member.error;
        std::size_t at = 0;
        for (std::size_t to = 0; to < members; ++to)
          for (std::uint64_t k = 0; k < rows[me][to]; ++k)
            source.data[at++] = static_cast<float>(step * 100 + static_cast<int>(me * 10 + to));
        if (step % 2 == 0) {
          ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
        } else {
          muster_point point = 0;
          ASSERT_EQ(start(member, plan, &point), MUSTER_OK) << muster_last_error();
          ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
        }
        at = 0;
        for (std::size_t i = 0; i < members; ++i)
          for (std::uint64_t k = 0; k < from[i]; ++k)
            ASSERT_EQ(target.data[at++], static_cast<float>(step * 100 + static_cast<int>(i * 10 + me)))
                << "world " << world << ", step " << step << ", from " << i;
      }
      EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(muster_buffer_free(member.session, source.buffer), MUSTER_OK) << muster_last_error();
    });
  }
}

// One operation at one member, with other counts each step: what it says and what it must find.
struct Step {
  std::uint64_t count = 0;  // of the operations without blocks; of the own block in GATHER and SCATTER
  std::vector<std::uint64_t> blocks;  // of each member, where the operation has blocks
};

Step step_of(std::minstd_rand& random, std::size_t members) {
  Step step;
  step.blocks.resize(members);
  const auto draw = [&] { return random() % 5 == 0 ? 0 : random() % (kRoom / 2 / members); };
  for (auto& block : step.blocks) block = draw();
  step.count = draw();
  return step;
}

// Where block `i` begins in a vector of all.
std::uint64_t begin_of(const std::vector<std::uint64_t>& blocks, std::size_t i) {
  return std::accumulate(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(i), std::uint64_t{0});
}

// Element k of what `member` gives at this step.
float given(std::size_t member, int step, std::uint64_t k) {
  return static_cast<float>((member + 1) * 1000 + static_cast<std::size_t>(step)) + static_cast<float>(k % 7);
}

// One plan of `op`, recounted before each step, run and started in turn. The root is the last member.
class EachOperation : public Recount, public ::testing::WithParamInterface<muster_op> {
 protected:
  struct Seat {
    Member& member;
    muster_op op;
    std::size_t members, me, root;
    Vector source, target;
    bool is_root() const { return me == root; }
  };
  static muster_collective empty(const Seat& seat) {
    muster_collective c = collective(seat.member, seat.op, seat.source, seat.target);
    if (seat.op == MUSTER_ALL_REDUCE || seat.op == MUSTER_REDUCE || seat.op == MUSTER_REDUCE_SCATTER)
      c.redop = MUSTER_SUM;
    if (seat.op == MUSTER_SEND || seat.op == MUSTER_RECV) c.peer = seat.me == 0 ? 1 : 0;
    const bool rooted = seat.op == MUSTER_BROADCAST || seat.op == MUSTER_REDUCE || seat.op == MUSTER_GATHER ||
                        seat.op == MUSTER_SCATTER;
    if (rooted) c.peer = static_cast<std::int32_t>(seat.root);
    if (seat.op == MUSTER_RECV) c.source = {};
    if (seat.op == MUSTER_SEND) c.target = {};
    return c;
  }
  static muster_status_t say(const Seat& seat, muster_plan plan, const Step& step) {
    const bool reads = seat.op == MUSTER_REDUCE_SCATTER || (seat.op == MUSTER_SCATTER && seat.is_root());
    const bool writes = seat.op == MUSTER_ALL_GATHER || (seat.op == MUSTER_GATHER && seat.is_root());
    const bool own = seat.op == MUSTER_GATHER || seat.op == MUSTER_SCATTER;
    return recount(seat.member, plan, own ? step.blocks[seat.me] : step.count, reads ? &step.blocks : nullptr,
                   writes ? &step.blocks : nullptr);
  }
  // Element k of the target after the step; none: the step does not write it.
  static std::optional<float> expected(const Seat& seat, const Step& step, int number, std::uint64_t k) {
    const auto sum = [&](std::uint64_t at) {
      float all = 0.0f;
      for (std::size_t i = 0; i < seat.members; ++i) all += given(i, number, at);
      return all;
    };
    const auto within = [&](std::uint64_t count, float value) {
      return k < count ? std::optional(value) : std::nullopt;
    };
    switch (seat.op) {
      case MUSTER_ALL_REDUCE:
        return within(step.count, sum(k));
      case MUSTER_REDUCE:
        return seat.is_root() ? within(step.count, sum(k)) : std::nullopt;
      case MUSTER_BROADCAST:
        return within(step.count, given(seat.root, number, k));
      case MUSTER_RECV:
        return within(step.count, given(1 - seat.me, number, k));
      case MUSTER_REDUCE_SCATTER:
        return within(step.blocks[seat.me], sum(begin_of(step.blocks, seat.me) + k));
      case MUSTER_SCATTER:
        return within(step.blocks[seat.me], given(seat.root, number, begin_of(step.blocks, seat.me) + k));
      default:
        break;
    }
    if (seat.op == MUSTER_SEND || (seat.op == MUSTER_GATHER && !seat.is_root())) return std::nullopt;
    for (std::size_t i = 0; i < seat.members; ++i) {  // a gather
      const std::uint64_t begin = begin_of(step.blocks, i);
      if (k >= begin && k < begin + step.blocks[i]) return given(i, number, k - begin);
    }
    return std::nullopt;
  }
  static muster_status_t carry_out(Member& member, muster_plan plan, bool started) {
    if (!started) return muster_plan_run(member.session, plan, 0);
    muster_point point = 0;
    const muster_status_t status = start(member, plan, &point);
    return status == MUSTER_OK ? muster_point_wait(member.session, point, -1) : status;
  }
  static void expect_steps(const Seat& seat) {
    const muster_collective c = empty(seat);
    const muster_plan plan = plan_of(seat.member, c);
    std::minstd_rand random(11);
    for (int number = 0; number < 40; ++number) {
      const Step step = step_of(random, seat.members);
      ASSERT_EQ(say(seat, plan, step), MUSTER_OK) << seat.member.error;
      for (std::uint64_t k = 0; k < kRoom; ++k) seat.source.data[k] = given(seat.me, number, k);
      std::fill_n(seat.target.data, kRoom, -1.0f);
      ASSERT_EQ(carry_out(seat.member, plan, number % 2 == 1), MUSTER_OK) << muster_last_error();
      for (std::uint64_t k = 0; k < kRoom; ++k)
        ASSERT_EQ(seat.target.data[k], expected(seat, step, number, k).value_or(-1.0f))
            << "op " << seat.op << ", step " << number << ", rank " << seat.me << ", element " << k;
    }
    EXPECT_EQ(muster_plan_destroy(seat.member.session, plan), MUSTER_OK) << muster_last_error();
  }
};

TEST_P(EachOperation, TakesOtherCountsEachStepRunAndStarted) {
  const bool pair = GetParam() == MUSTER_SEND;
  with_ranks(pair ? 2 : 3, [&](Member& member) {
    const auto me = static_cast<std::size_t>(member.rank);
    const auto members = static_cast<std::size_t>(member.world);
    const muster_op op = pair && me == 1 ? MUSTER_RECV : GetParam();
    expect_steps({member, op, members, me, members - 1, vector_of(member, kRoom), vector_of(member, kRoom)});
  });
}

INSTANTIATE_TEST_SUITE_P(Recount, EachOperation,
                         ::testing::Values(MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER,
                                           MUSTER_BROADCAST, MUSTER_REDUCE, MUSTER_GATHER, MUSTER_SCATTER,
                                           MUSTER_SEND));

// Goal:   in place the own block moves with the counts; offsets that do not grow leave it where it is.
// Method: every member has room of its own for each block, and its source or target at the own one.
TEST_F(Recount, WorksInPlace) {
  constexpr std::uint64_t kSlot = 300;
  with_ranks(3, [&](Member& member) {
    const auto me = static_cast<std::uint64_t>(member.rank);
    const std::uint64_t offsets[] = {0, kSlot, 2 * kSlot};
    for (const muster_op op : {MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_ALL_REDUCE}) {
      const Vector v = vector_of(member, kRoom);
      muster_collective c = all_reduce(member, v, v, 0);
      c.op = op;
      c.redop = op == MUSTER_ALL_GATHER ? 0 : MUSTER_SUM;
      if (op == MUSTER_ALL_GATHER) c.source.offset_bytes = offsets[me] * sizeof(float);
      if (op == MUSTER_REDUCE_SCATTER) c.target.offset_bytes = offsets[me] * sizeof(float);
      const std::uint64_t none[] = {0, 0, 0};
      if (op == MUSTER_ALL_GATHER) c.target_blocks = {none, offsets, nullptr, nullptr};
      if (op == MUSTER_REDUCE_SCATTER) c.source_blocks = {none, offsets, nullptr, nullptr};
      const muster_plan plan = plan_of(member, c);
      std::minstd_rand random(5);
      for (int number = 0; number < 20; ++number) {
        const std::uint64_t counts[] = {random() % kSlot, random() % kSlot, random() % kSlot};
        const muster_blocks blocks{counts, offsets, nullptr, nullptr};
        ASSERT_EQ(muster_plan_recount(member.session, plan, counts[0],
                                      op == MUSTER_REDUCE_SCATTER ? &blocks : nullptr,
                                      op == MUSTER_ALL_GATHER ? &blocks : nullptr),
                  MUSTER_OK)
            << muster_last_error();
        for (std::uint64_t k = 0; k < kRoom; ++k) v.data[k] = given(me, number, k);
        muster_point point = 0;
        if (number % 2 == 0) {
          ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
        } else {
          ASSERT_EQ(start(member, plan, &point), MUSTER_OK) << muster_last_error();
          ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
        }
        const auto sum = [&](std::uint64_t k) {
          return given(0, number, k) + given(1, number, k) + given(2, number, k);
        };
        for (std::uint64_t k = 0; k < kSlot; ++k) {
          const bool mine = k < counts[op == MUSTER_ALL_REDUCE ? 0 : me];
          const std::uint64_t at = op == MUSTER_ALL_REDUCE ? k : offsets[me] + k;
          ASSERT_EQ(v.data[at], mine && op != MUSTER_ALL_GATHER ? sum(at) : given(me, number, at)) << op;
          for (std::uint64_t i = 0; op == MUSTER_ALL_GATHER && i < 3; ++i)
            ASSERT_EQ(v.data[offsets[i] + k], given(k < counts[i] ? i : me, number, offsets[i] + k));
        }
      }
      EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK) << muster_last_error();
    }
  });
}

// Goal:   new counts leave the tag of a SEND or RECV as it was.
// Method: a pair runs with the same tag and with another one, where only the sender recounts.
TEST_F(Recount, KeepsTheTag) {
  with_ranks(2, [&](Member& member) {
    const bool sends = member.rank == 0;
    const Vector v = vector_of(member, kRoom);
    for (const std::uint32_t tag_of_receiver : {5u, 6u}) {
      muster_collective c = MUSTER_COLLECTIVE_INIT;
      c.op = sends ? MUSTER_SEND : MUSTER_RECV;
      c.group = member.group;
      c.dtype = MUSTER_F32;
      c.peer = sends ? 1 : 0;
      c.tag = sends ? 5 : tag_of_receiver;
      c.count = sends ? 100 : 10;
      (sends ? c.source : c.target) = {v.buffer, 0};
      const muster_plan plan = plan_of(member, c);
      if (sends) {
        ASSERT_EQ(recount(member, plan, 10), MUSTER_OK) << member.error;
      }
      EXPECT_EQ(muster_plan_run(member.session, plan, 0),
                tag_of_receiver == 5 ? MUSTER_OK : MUSTER_ERR_MISMATCH)
          << muster_last_error();
      EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK) << muster_last_error();
    }
  });
}

// Goal:   starts in flight keep the counts they were started with.
TEST_F(Recount, LeavesStartsInFlightAlone) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kRoom);
    std::uint32_t timeline = 0;
    ASSERT_EQ(muster_timeline_create(member.session, &timeline), MUSTER_OK);
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 1));
    std::fill_n(v.data, kRoom, 1.0f);
    muster_point last = 0;
    for (std::uint64_t count = 1; count <= 10; ++count) {
      ASSERT_EQ(recount(member, plan, count), MUSTER_OK) << member.error;
      muster_submit submit = MUSTER_SUBMIT_INIT;
      submit.lane = MUSTER_LANE_REDUCE;
      submit.wait_count = 1;
      submit.waits[0] = muster_timeline_point(timeline, 1);  // nothing goes before all are in flight
      ASSERT_EQ(muster_plan_start(member.session, plan, &submit, &last), MUSTER_OK) << muster_last_error();
    }
    EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_ERR_BUSY);
    ASSERT_EQ(muster_timeline_signal(member.session, timeline, 1), MUSTER_OK);
    ASSERT_EQ(muster_point_wait(member.session, last, -1), MUSTER_OK) << muster_last_error();
    // Element i was in the starts of count i + 1 to 10, each of which doubled it.
    for (int i = 0; i < 12; ++i)
      EXPECT_EQ(v.data[i], i < 10 ? static_cast<float>(1 << (10 - i)) : 1.0f) << "element " << i;
    EXPECT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK) << muster_last_error();
  });
}

TEST_F(Recount, RefusesWhatDoesNotFitAndKeepsTheCounts) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kRoom);
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 3));
    EXPECT_EQ(recount(member, plan, kRoom + 1), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(member.error, HasSubstr("4001 elements of 4 bytes end behind the 16000 bytes of its buffer"));
    EXPECT_EQ(recount(member, plan, UINT64_MAX), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(recount(member, plan + 1, 3), MUSTER_ERR_STALE);
    EXPECT_EQ(recount(member, plan_of(member, member.barrier()), 3), MUSTER_ERR_UNSUPPORTED);
    muster_collective exchange = member.barrier();
    exchange.op = MUSTER_EXCHANGE;
    exchange.dtype = MUSTER_F32;
    EXPECT_EQ(recount(member, plan_of(member, exchange), 3), MUSTER_ERR_UNSUPPORTED);
    EXPECT_THAT(member.error, HasSubstr("exchange has no counts that could change; make another plan"));
    muster_collective odd = all_reduce(member, v, v, 0);
    odd.source.offset_bytes = 2;
    muster_plan none = 0;
    EXPECT_EQ(muster_plan_collective(member.session, &odd, &none), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(),
                HasSubstr("source: offset 2 is not a multiple of the element's 4 bytes"));
    std::fill_n(v.data, kRoom, 1.0f);
    ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(v.data[2], 2.0f);
    EXPECT_EQ(v.data[3], 1.0f);
  });
}

// Goal:   memory that a plan may reach with new counts stays as long as the plan, though it began with none.
TEST_F(Recount, HoldsTheMemoryOfAPlanThatBeganEmpty) {
  with_ranks(2, [&](Member& member) {
    const Vector source = vector_of(member, kRoom);
    const Vector target = vector_of(member, kRoom);
    const muster_plan plan = plan_of(member, all_reduce(member, source, target, 0));
    ASSERT_EQ(recount(member, plan, 5), MUSTER_OK) << member.error;
    std::fill_n(source.data, 5, 1.0f);
    ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(target.data[4], 2.0f);
    EXPECT_EQ(muster_buffer_free(member.session, source.buffer), MUSTER_ERR_BUSY);
    EXPECT_EQ(muster_buffer_free(member.session, target.buffer), MUSTER_ERR_BUSY);
    ASSERT_EQ(muster_plan_destroy(member.session, plan), MUSTER_OK);
    EXPECT_EQ(muster_buffer_free(member.session, source.buffer), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_buffer_free(member.session, target.buffer), MUSTER_OK) << muster_last_error();
  });
}

// Goal:   one result for all takes new counts too, run and started.
// Method: check the memory behind the result; each step begins after the checks of all members.
TEST_F(Recount, ReachesIntoAResultThatAllShare) {
  constexpr int kWorld = 3;
  with_ranks(kWorld, [&](Member& member) {
    const Vector source = vector_of(member, kRoom);
    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.bytes = kRoom * sizeof(float);
    options.name = "result";
    options.shared_by = member.group;
    Vector result;
    void* address = nullptr;
    ASSERT_EQ(muster_buffer_create(member.session, &options, &result.buffer, &address), MUSTER_OK)
        << muster_last_error();
    result.data = static_cast<float*>(address);
    muster_collective gather = collective(member, MUSTER_ALL_GATHER, source, result);
    gather.count = 1;
    const muster_plan reduces = plan_of(member, all_reduce(member, source, result, 1));
    const muster_plan gathers = plan_of(member, gather);
    std::minstd_rand random(3);
    for (int step = 0; step < 40; ++step) {
      std::vector<std::uint64_t> lengths(kWorld);
      for (std::uint64_t& length : lengths) length = random() % 4 == 0 ? 0 : random() % (kRoom / kWorld);
      const std::uint64_t all = lengths[0] + lengths[1] + lengths[2];
      const bool reducing = step % 4 < 2;
      const muster_plan plan = reducing ? reduces : gathers;
      if (member.rank == 0) std::fill_n(result.data, kRoom, -1.0f);
      std::fill_n(source.data, kRoom, static_cast<float>(step + member.rank));
      ASSERT_EQ(muster_barrier(member.session, member.group), MUSTER_OK) << muster_last_error();
      ASSERT_EQ(reducing ? recount(member, plan, all) : recount(member, plan, 0, nullptr, &lengths),
                MUSTER_OK)
          << member.error;
      if (step % 2 == 0) {
        ASSERT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
      } else {
        muster_point point = 0;
        ASSERT_EQ(start(member, plan, &point), MUSTER_OK) << muster_last_error();
        ASSERT_EQ(muster_point_wait(member.session, point, -1), MUSTER_OK) << muster_last_error();
      }
      for (std::uint64_t i = 0; i < kRoom; ++i) {
        const int giver = i < lengths[0] ? 0 : i < lengths[0] + lengths[1] ? 1 : 2;
        const int expected = i >= all ? -1 : reducing ? 3 * step + 3 : step + giver;
        ASSERT_EQ(result.data[i], static_cast<float>(expected)) << "step " << step << ", element " << i;
      }
      ASSERT_EQ(muster_barrier(member.session, member.group), MUSTER_OK) << muster_last_error();
    }
  });
}

// Goal:   a member that forgot to change its counts is found, though the engine knows of neither's.
TEST_F(Recount, IsComparedAsEver) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, kRoom);
    const muster_plan plan = plan_of(member, all_reduce(member, v, v, 3));
    const muster_plan other = plan_of(member, all_reduce(member, v, v, 5));
    for (int round = 0; round < 3; ++round) {
      ASSERT_EQ(recount(member, other, 6), MUSTER_OK);
      ASSERT_EQ(recount(member, plan, member.rank == 0 ? 700 : 3), MUSTER_OK) << member.error;
      EXPECT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_ERR_MISMATCH);
      EXPECT_THAT(muster_last_error(), HasSubstr("count: 700 at rank 0 and 3 at rank 1"));
    }
    ASSERT_EQ(recount(member, plan, 4), MUSTER_OK);
    EXPECT_EQ(muster_plan_run(member.session, plan, 0), MUSTER_OK) << muster_last_error();
  });
}

}  // namespace
