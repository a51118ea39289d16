// Check mode reports misuse of buffers and starts. Each test plants one wrong line in a correct program.
#include "tests/api/client/check/checked_ranks.hpp"

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kFloats = 2048;  // two pages
constexpr muster_lane kSums = MUSTER_LANE_ALLREDUCE;

class CheckMode : public CheckedRanks {
 protected:
  // Runs `use` while the sum of `source` in `target` is in flight.
  void while_summing(const std::function<void(Member&, const Vector& source, const Vector& target)>& use) {
    with_ranks(2, [&](Member& member) {
      const Vector source = vector_of(member, kFloats);
      const Vector target = vector_of(member, kFloats);
      std::fill_n(source.data, kFloats, 1.0f);
      const muster_point summed =
          start(member, all_reduce(member, source, target, kFloats), after({}, kSums));
      if (member.rank == 1) use(member, source, target);
      ok(muster_point_wait(member.session, summed, -1));
      EXPECT_EQ(target.data[kFloats - 1], 2.0f);
      source.data[0] = 3.0f;
      meet_and_leave(member);
    });
  }
};

TEST_F(CheckMode, NamesAReadOfATargetInFlight) {
  while_summing([](Member&, const Vector&, const Vector& target) {
    EXPECT_EXIT(std::exit(target.data[1] == 0.0f ? 0 : 1), ended_by_a_fault,
                "rank 1: buffer 0x[0-9a-f]+ of 8192 bytes: a read of its byte 4: all_reduce .start 1 of lane "
                "5. is in "
                "flight; wait for its point first");
  });
}

TEST_F(CheckMode, NamesAWriteToASourceInFlightAndLetsItBeRead) {
  while_summing([](Member&, const Vector& source, const Vector&) {
    EXPECT_EQ(source.data[kFloats - 1], 1.0f);
    EXPECT_EXIT(source.data[kFloats - 1] = 2.0f, ended_by_a_fault,
                "rank 1: buffer 0x[0-9a-f]+ of 8192 bytes: a write to its byte 8188: all_reduce .start 1 "
                "of lane 5. is in flight; wait for its point first");
  });
}

// A kernel that is in flight until the process raises a timeline writes half of a buffer.
TEST_F(CheckMode, NamesAReadBeforeThePointThatWritesWasWaitedFor) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 2 * kFloats);
    const muster_point written =
        launch(member, muster_fill(floats(v, kFloats, kFloats), 7.0), after({}, MUSTER_LANE_COMPUTE));
    EXPECT_EQ(v.data[kFloats - 1], 0.0f) << "the other half may be read";
    EXPECT_EXIT(std::exit(v.data[kFloats] == 7.0f ? 0 : 1), ended_by_a_fault,
                "rank 0: buffer 0x[0-9a-f]+ of 16384 bytes: a read of its byte 8192: kernel fill .start 1 of "
                "lane 0. is in flight; wait for its point first");
    ok(muster_point_wait(member.session, written, -1));
    EXPECT_EQ(v.data[kFloats], 7.0f);
  });
}

TEST_F(CheckMode, LetsWhatWaitsForThisProcessBeUsedUntilItsSignal) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, kFloats);
    std::uint32_t timeline = 0;
    ok(muster_timeline_create(member.session, &timeline));
    const muster_point doubled =
        launch(member, muster_axpby(1.0, floats(v, kFloats), 1.0, floats(v, kFloats)),
               after({muster_timeline_point(timeline, 1)}, MUSTER_LANE_COMPUTE));
    std::fill_n(v.data, kFloats, 2.0f);
    ok(muster_timeline_signal(member.session, timeline, 1));
    EXPECT_EXIT(v.data[0] = 1.0f, ended_by_a_fault,
                "a write to its byte 0: kernel axpby .start 1 of lane 0.");
    ok(muster_point_wait(member.session, doubled, -1));
    EXPECT_EQ(v.data[0], 4.0f);
  });
}

TEST_F(CheckMode, NamesASignalThatComesBeforeWhatItLetsBeRead) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 8);
    const Vector copy = vector_of(member, 8);
    std::uint32_t timeline = 0;
    ok(muster_timeline_create(member.session, &timeline));
    const muster_point copied = launch(member, muster_copy(floats(v, 8), floats(copy, 8)),
                                       after({muster_timeline_point(timeline, 1)}, MUSTER_LANE_COPY));
    const muster_point filled =
        launch(member, muster_fill(floats(v, 8), 1.0), after({}, MUSTER_LANE_COMPUTE));
    EXPECT_EQ(muster_timeline_signal(member.session, timeline, 1), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(),
                AllOf(HasSubstr("rank 0: muster_timeline_signal of value 1 of timeline 64"),
                      HasSubstr("kernel copy (start 1 of lane 6) begin, which reads bytes [0, 32) of buffer"),
                      HasSubstr("kernel fill (start 1 of lane 0) writes")));
    ok(muster_point_wait(member.session, filled, -1));
    ok(muster_timeline_signal(member.session, timeline, 1));
    ok(muster_point_wait(member.session, copied, -1));
    EXPECT_EQ(copy.data[7], 1.0f);
  });
}

TEST_F(CheckMode, NamesAReadAfterTheBufferWasFreed) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 5);
    v.data[4] = 1.0f;
    ok(muster_buffer_free(member.session, v.buffer));
    EXPECT_EXIT(
        std::exit(v.data[4] == 1.0f ? 0 : 1), ended_by_a_fault,
        "rank 0: buffer 0x[0-9a-f]+ of 20 bytes: a read of its byte 16: it was freed by muster_buffer_free");
  });
}

// Guards catch a write outside the buffer's pages at once. A write into the rest of its pages, such as the
// gap up to a multiple of 64 bytes, shows later.
TEST_F(CheckMode, NamesAWriteAroundABuffer) {
  with_ranks(1, [&](Member& member) {
    const Vector whole = vector_of(member, kFloats);
    EXPECT_EXIT(whole.data[kFloats] = 1.0f, ended_by_a_fault,
                "of 8192 bytes: a write to its byte 8192, which is past its end");
    EXPECT_EXIT(whole.data[-1] = 1.0f, ended_by_a_fault,
                "of 8192 bytes: a write to the byte 4 before its start");
    const Vector v = vector_of(member, 5);
    v.data[5] = 1.0f;
    EXPECT_EQ(muster_buffer_free(member.session, v.buffer), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("rank 0: buffer 0x"), HasSubstr("of 20 bytes"),
                                           HasSubstr("has written its byte 20, which is past its end")));
    const Vector w = vector_of(member, 5);
    w.data[-2] = 1.0f;
    EXPECT_EQ(muster_close(member.session), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(), HasSubstr("has written the byte 8 before its start"));
    member.session = nullptr;
  });
}

// Goal:   uses that race are named, in both directions; uses in a fixed order are not.
TEST_F(CheckMode, NamesAStartThatDoesNotComeAfterWhatItUses) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 16);
    const Vector w = vector_of(member, 16);
    const muster_kernel copy = muster_copy(floats(v, 8, 4), floats(w, 8, 4));
    const muster_kernel fill = muster_fill(floats(v, 8), 1.0);
    muster_submit submit = after({}, MUSTER_LANE_COPY);
    const muster_point filled = launch(member, fill, after({}, MUSTER_LANE_COMPUTE));
    muster_point point = MUSTER_POINT_NONE;
    EXPECT_EQ(muster_launch(member.session, &copy, &submit, &point), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(),
                AllOf(HasSubstr("rank 0: a start of kernel copy on lane 6 reads bytes [16, 48) of buffer"),
                      HasSubstr("which kernel fill (start 1 of lane 0) writes")));
    submit = after({filled}, MUSTER_LANE_COPY);
    ok(muster_launch(member.session, &copy, &submit, &point));
    submit = after({}, MUSTER_LANE_COMPUTE);
    EXPECT_EQ(muster_launch(member.session, &fill, &submit, &point), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(), HasSubstr("writes bytes [0, 32) of buffer"));
    EXPECT_THAT(muster_last_error(), HasSubstr("which kernel copy (start 1 of lane 6) reads"));
    ok(muster_point_wait(member.session, point, -1));
    ok(muster_launch(member.session, &fill, &submit, &point));
    const muster_kernel apart = muster_fill(floats(v, 8, 8), 2.0);
    submit = after({}, MUSTER_LANE_COPY);
    ok(muster_launch(member.session, &apart, &submit, &point));
  });
}

TEST_F(CheckMode, NamesARunOfWhatIsInFlight) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, 16);
    const muster_point filled =
        launch(member, muster_fill(floats(v, 8), 1.0), after({}, MUSTER_LANE_COMPUTE));
    EXPECT_EQ(member.run(all_reduce(member, v, v, 16)), MUSTER_ERR_STATE);
    EXPECT_THAT(member.error,
                AllOf(HasSubstr("a run of all_reduce"), HasSubstr("kernel fill (start 1 of lane 0) writes")));
    ok(muster_point_wait(member.session, filled, -1));
    EXPECT_EQ(member.run(all_reduce(member, v, v, 16)), MUSTER_OK) << member.error;
    EXPECT_EQ(v.data[7], 2.0f);
    meet_and_leave(member);
  });
}

TEST_F(CheckMode, NamesTheEntryOfABatch) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 16);
    const muster_kernel fill = muster_fill(floats(v, 8), 1.0);
    const muster_kernel copy = muster_copy(floats(v, 8), floats(v, 8, 8));
    std::array<muster_batch_entry, 2> entries{};
    ok(muster_plan_kernel(member.session, &fill, &entries[0].plan));
    ok(muster_plan_kernel(member.session, &copy, &entries[1].plan));
    entries[0].submit = after({}, MUSTER_LANE_COMPUTE);
    entries[1].submit = after({}, MUSTER_LANE_COPY);
    EXPECT_EQ(muster_plan_start_batch(member.session, entries.data(), 2), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(),
                AllOf(HasSubstr("entry 1: rank 0: "), HasSubstr("kernel copy on lane 6")));
    EXPECT_EQ(entries[0].point, MUSTER_POINT_NONE);
    entries[1].submit = after({MUSTER_POINT_OF_ENTRY(0)}, MUSTER_LANE_COPY);
    ok(muster_plan_start_batch(member.session, entries.data(), 2));
    ok(muster_point_wait(member.session, entries[1].point, -1));
    EXPECT_EQ(v.data[15], 1.0f);
  });
}

// A start with offsets of its own uses other bytes than its plan.
TEST_F(CheckMode, KnowsWhereAStartWithOffsetsIs) {
  with_ranks(1, [&](Member& member) {
    const Vector v = vector_of(member, 32);
    muster_collective c = all_reduce(member, v, v, 8);
    c.group = MUSTER_GROUP_SELF;
    muster_plan plan = 0;
    ok(muster_plan_collective(member.session, &c, &plan));
    const muster_point filled =
        launch(member, muster_fill(floats(v, 8), 1.0), after({}, MUSTER_LANE_COMPUTE));
    muster_submit submit = after({}, kSums);
    submit.flags = MUSTER_SUBMIT_OFFSETS;
    submit.source_offset_bytes = submit.target_offset_bytes = 64;
    muster_point point = MUSTER_POINT_NONE;
    ok(muster_plan_start(member.session, plan, &submit, &point));
    submit.source_offset_bytes = submit.target_offset_bytes = 16;
    EXPECT_EQ(muster_plan_start(member.session, plan, &submit, &point), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(), HasSubstr("bytes [16, 48) of buffer"));
    ok(muster_point_wait(member.session, filled, -1));
  });
}

// Goal:   a source that shares its page with other bytes is compared, before and after.
TEST_F(CheckMode, NamesASourceThatHasChanged) {
  with_ranks(2, [&](Member& member) {
    const Vector v = vector_of(member, 64);
    const Vector sum = vector_of(member, 16);
    const muster_collective c = all_reduce(member, v, sum, 16);
    const muster_point summed = start(member, c, after({}, kSums));
    v.data[17] = 1.0f;
    ok(muster_point_wait(member.session, summed, -1));
    meet_and_leave(member);
    const muster_point again = start(member, c, after({}, kSums));
    v.data[15] = 1.0f;
    EXPECT_EQ(muster_point_wait(member.session, again, -1), MUSTER_ERR_STATE);
    EXPECT_THAT(muster_last_error(),
                AllOf(HasSubstr("the source of all_reduce (start 2 of lane 5), bytes [0, 64) of buffer"),
                      HasSubstr("has changed before its end")));
    meet_and_leave(member);
    // Another start may change it afterwards, if it comes after that.
    const muster_point third = start(member, c, after({}, kSums));
    const muster_point filled =
        launch(member, muster_fill(floats(v, 16), 3.0), after({third}, MUSTER_LANE_COMPUTE));
    ok(muster_point_wait(member.session, filled, -1));
    EXPECT_EQ(member.run(c), MUSTER_OK) << member.error;
    EXPECT_EQ(sum.data[15], 6.0f);
    meet_and_leave(member);
  });
}

TEST_F(CheckMode, RefusesAVariableThatSaysNothing) {
  ::setenv("MUSTER_CHECK", "yes", 1);
  const muster_open_options options = node_.rank("a-job", 0, 1);
  muster_session* session = nullptr;
  EXPECT_EQ(muster_open(&options, &session), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("MUSTER_CHECK is 'yes': set it to 1 for check mode, or to 0"));
}

// Goal:   a fault that is not the session's goes to the handler before ours, or does what it always does.
TEST_F(CheckMode, PassesOnWhatIsNotItsOwn) {
  with_ranks(1, [&](Member& member) {
    static_cast<void>(vector_of(member, 8));
    EXPECT_EXIT(static_cast<std::atomic<int>*>(reinterpret_cast<void*>(64))->store(1), ended_by_a_fault,
                ::testing::Not(HasSubstr("check mode: rank")));
    EXPECT_EXIT(
        {
          ::signal(SIGSEGV, SIG_DFL);
          ::raise(SIGSEGV);
        },
        ended_by_a_fault, "");
  });
}

}  // namespace
}  // namespace muster::test
