// Error texts of refused calls, and how long they last.
#include <muster/kernels.h>

#include "tests/api/client/session_fixture.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

namespace {

using muster::test::fill_of;
using muster::test::on;
using muster::test::plan_of;
using muster::test::Session;
using muster::test::timeline_of;
using muster::test::Vector;
using muster::test::vector_of;
using ::testing::HasSubstr;

// Goal:   a kernel that a program fills in itself, with an operand too many, is refused, and nothing is
//         written beyond its room.
// Input:  one operand more than there is room for, appended one by one.
// Output: BAD_ARGUMENT with both numbers.
TEST_F(Session, RefusesAnOperandTooMany) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 16);
  const muster_tensor t = muster_view1(v.buffer, 0, MUSTER_F32, 16);
  muster_kernel kernel = muster_kernel_of(MUSTER_KERNEL_COPY);
  for (int i = 0; i <= MUSTER_KERNEL_TENSORS_MAX; ++i) muster_kernel_operand(&kernel, t);
  muster_plan plan = 0;
  EXPECT_EQ(muster_plan_kernel(session, &kernel, &plan), MUSTER_ERR_BAD_ARGUMENT);
  const std::string most = std::to_string(MUSTER_KERNEL_TENSORS_MAX);
  EXPECT_THAT(muster_last_error(),
              HasSubstr(std::to_string(MUSTER_KERNEL_TENSORS_MAX + 1) + " operands (at most " + most));
}

// Goal:   a view with more dims than there are, or with a number of dims that is none, is refused with the
//         limit; the builder writes nothing beyond its room.
TEST_F(Session, RefusesDimsThatATensorCannotHave) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 512);
  const std::int64_t size[] = {2, 2, 2, 2, 2, 2, 2, 2, 2};
  for (const std::int32_t dims : {9, -1}) {
    const muster_tensor t = muster_view(v.buffer, 0, MUSTER_F32, dims, size);
    const muster_kernel fill = muster_fill(t, 1.0);
    muster_plan plan = 0;
    const std::string words = std::to_string(dims) + " dims; 0 to 8 are possible";
    EXPECT_EQ(muster_plan_kernel(session, &fill, &plan), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("fill: target: " + words));
    const muster_face face{0, 0, t};
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = MUSTER_EXCHANGE;
    c.group = MUSTER_GROUP_SELF;
    c.sends = &face;
    c.send_count = 1;
    EXPECT_EQ(muster_plan_collective(session, &c, &plan), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("sends[0]: " + words));
  }
  const muster_kernel fill = muster_fill(muster_view(v.buffer, 0, MUSTER_F32, 8, size), 3.0);
  const muster_submit submit = on(MUSTER_LANE_COMPUTE);
  muster_point point = 0;
  ASSERT_EQ(muster_launch(session, &fill, &submit, &point), MUSTER_OK) << muster_last_error();
  ASSERT_EQ(muster_point_wait(session, point, -1), MUSTER_OK);
  EXPECT_EQ(v.data[255], 3.0f);
  EXPECT_EQ(v.data[256], 0.0f);
}

// Goal:   one exchange has as many faces of 8 dims as of one, and one more is refused by the limit.
TEST_F(Session, TakesAsManyFacesOfEightDimsAsOfOne) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 16);
  const std::int64_t one[] = {1, 1, 1, 1, 1, 1, 1, 1};
  std::vector<muster_face> faces;
  for (std::uint32_t tag = 0; tag <= 680; ++tag)
    faces.push_back({0, tag, muster_view(v.buffer, 0, MUSTER_F32, 8, one)});
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_EXCHANGE;
  c.group = MUSTER_GROUP_SELF;
  c.sends = faces.data();
  muster_plan plan = 0;
  c.send_count = 680;
  EXPECT_EQ(muster_plan_collective(session, &c, &plan), MUSTER_OK) << muster_last_error();
  c.send_count = 681;
  EXPECT_EQ(muster_plan_collective(session, &c, &plan), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(), HasSubstr("at most 680 together"));
}

// Goal:   a kernel that gets another number of numbers than it takes is refused, not run with what happens to
//         be there.
TEST_F(Session, RefusesNumbersThatAKernelDoesNotTake) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 16);
  muster_kernel kernel = fill_of(v, 16);
  muster_plan plan = 0;
  kernel.real_count = 0;
  EXPECT_EQ(muster_plan_kernel(session, &kernel, &plan), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("fill: 0 ints and 0 reals were given; it takes 0 and 1"));
  for (int i = 0; i <= MUSTER_KERNEL_INTS_MAX; ++i) muster_kernel_int(&kernel, 0);
  EXPECT_EQ(muster_plan_kernel(session, &kernel, &plan), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("33 ints (at most 32)"));
}

// Goal:   field, value and remedy of what is wrong, of calls that say nothing but a code while all goes well.
TEST_F(Session, NamesWhatIsWrongWithAStartASignalOrAReset) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 16);
  const muster_kernel fill = fill_of(v, 16);
  const muster_plan plan = plan_of(session, fill);
  const std::uint32_t timeline = timeline_of(session);
  const auto refuse = [&](const auto& change, const char* words) {
    muster_submit submit = on(MUSTER_LANE_COMPUTE);
    change(submit);
    muster_point point = 77;
    EXPECT_EQ(muster_plan_start(session, plan, &submit, &point), MUSTER_ERR_BAD_ARGUMENT) << words;
    EXPECT_THAT(muster_last_error(), HasSubstr(words));
    EXPECT_EQ(muster_launch(session, &fill, &submit, &point), MUSTER_ERR_BAD_ARGUMENT) << words;
    EXPECT_THAT(muster_last_error(), HasSubstr(words));
  };
  refuse([](auto& s) { s.lane = 7; },
         "submit.lane 7 does not exist: lanes are MUSTER_LANE_COMPUTE..COPY (0..6)");
  refuse([](auto& s) { s.wait_count = 5; }, "submit.wait_count is 5; a start waits for 4 points at most");
  refuse([](auto& s) { s.flags = 3; }, "submit.flags is 0x3; it must be 0 or MUSTER_SUBMIT_OFFSETS (0x1)");
  refuse([](auto& s) { s.deadline_ns = -9; }, "submit.deadline_ns -9 is negative; 0 is the group's default");
  refuse([](auto& s) { s.size = 4; }, "muster_submit has size 4");
  const auto wait_for = [](muster_point point) {
    return [point](auto& s) {
      s.wait_count = 2;
      s.waits[1] = point;
    };
  };
  refuse(wait_for(muster_timeline_point(2, 5)),
         "submit.waits[1] is start 5 of lane 2, which this session has not made: its last is 0");
  refuse(wait_for(muster_timeline_point(timeline + 1, 5)), "submit.waits[1] is of timeline");
  const muster_submit submit = on(MUSTER_LANE_COMPUTE);
  EXPECT_EQ(muster_plan_start(session, 0x99, &submit, nullptr), MUSTER_ERR_STALE);
  EXPECT_THAT(muster_last_error(), HasSubstr("plan 0x99 is none of this session"));
  ASSERT_EQ(muster_timeline_signal(session, timeline, 5), MUSTER_OK);
  EXPECT_EQ(muster_timeline_signal(session, timeline, 4), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("is lower than 5, to which it was raised before"));
  EXPECT_EQ(muster_timeline_signal(session, timeline, UINT64_MAX), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("is more than a point holds"));
  EXPECT_EQ(muster_timeline_signal(session, timeline + 1, 1), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("is none of this session, which has created 1"));
  EXPECT_EQ(muster_lane_reset(session, 9), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("lane 9 does not exist"));
  muster_failure failure = MUSTER_FAILURE_INIT;
  EXPECT_EQ(muster_lane_failure(session, 9, &failure), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("lane 9 does not exist"));
  failure.size = 1;
  EXPECT_EQ(muster_lane_failure(session, 0, &failure), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("failure.size is 1"));
  EXPECT_EQ(muster_point_test(session, muster_timeline_point(60000, 1)), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("is of timeline 60000"));
}

// Goal:   nobody waits for what was never started.
// Goal:   a number that is no buffer, plan, group or mesh is told with the number, on every way.
TEST_F(Session, NamesANumberThatIsNone) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 16);
  muster_group world = 0;
  ASSERT_EQ(muster_mesh_group(session, "world", &world), MUSTER_OK);
  const auto sum_of = [&](muster_buffer buffer, muster_group group) {
    muster_collective sum = MUSTER_COLLECTIVE_INIT;
    sum.op = MUSTER_ALL_REDUCE;
    sum.group = group;
    sum.dtype = MUSTER_F32;
    sum.redop = MUSTER_SUM;
    sum.count = 4;
    sum.source.buffer = sum.target.buffer = buffer;
    return sum;
  };
  const muster_collective of_none = sum_of(12345, world), in_none = sum_of(v.buffer, 12345);
  muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
  muster_collective counts = MUSTER_COLLECTIVE_INIT;
  muster_plan plan = 0;
  muster_tensor view = muster_view1(12345, 0, MUSTER_F32, 4);
  const muster_kernel fill = muster_fill(view, 1.0);
  const std::pair<std::function<muster_status_t()>, const char*> calls[] = {
      {[&] { return muster_run(session, &of_none, 0); }, "source: buffer 0x3039"},
      {[&] { return muster_plan_collective(session, &of_none, &plan); }, "source: buffer 0x3039"},
      {[&] { return muster_plan_kernel(session, &fill, &plan); }, "buffer 0x3039"},
      {[&] { return muster_compare(session, world, &view, 1, 0); }, "views[0]: buffer 0x3039"},
      {[&] { return muster_buffer_query(session, 12345, &info); }, "buffer 0x3039"},
      {[&] { return muster_buffer_free(session, 12345); }, "buffer 0x3039"},
      {[&] { return muster_plan_run(session, 12345, 0); }, "plan 0x3039"},
      {[&] { return muster_plan_destroy(session, 12345); }, "plan 0x3039"},
      {[&] { return muster_plan_recount(session, 12345, counts.count, nullptr, nullptr); }, "plan 0x3039"},
      {[&] { return muster_run(session, &in_none, 0); }, "group 0x3039"},
      {[&] { return muster_mesh_use(session, 12345); }, "mesh 0x3039"},
      {[&] { return muster_mesh_free(session, 12345); }, "mesh 0x3039"}};
  for (const auto& [call, name] : calls) {
    EXPECT_EQ(call(), MUSTER_ERR_STALE) << name;
    EXPECT_THAT(muster_last_error(), HasSubstr(std::string(name) + " is none of this session: it was "));
  }
}

// Goal:   the refusal names the argument that is NULL, and none that the call does not have.
TEST_F(Session, NamesTheArgumentThatIsNull) {
  muster_session* session = open(0, 1);
  muster_collective sum = MUSTER_COLLECTIVE_INIT;
  muster_buffer buffer = 0;
  muster_plan plan = 0;
  muster_group group = 0;
  std::uint64_t value = 0;
  const auto submit = on(MUSTER_LANE_COMPUTE);
  const std::pair<std::function<muster_status_t()>, const char*> calls[] = {
      {[&] { return muster_barrier(nullptr, 1); }, "session must not be NULL"},
      {[&] { return muster_run(nullptr, &sum, 0); }, "session must not be NULL"},
      {[&] { return muster_run(session, nullptr, 0); }, "collective must not be NULL"},
      {[&] { return muster_collect(session, nullptr, &submit, nullptr); }, "collective must not be NULL"},
      {[&] { return muster_launch(session, nullptr, &submit, nullptr); }, "kernel must not be NULL"},
      {[&] { return muster_plan_kernel(session, nullptr, &plan); }, "kernel must not be NULL"},
      {[&] { return muster_plan_collective(session, &sum, nullptr); }, "plan must not be NULL"},
      {[&] { return muster_buffer_alloc(session, 8, nullptr, nullptr); }, "buffer must not be NULL"},
      {[&] { return muster_buffer_create(session, nullptr, &buffer, nullptr); }, "options must not be NULL"},
      {[&] { return muster_buffer_query(session, 1, nullptr); }, "info must not be NULL"},
      {[&] { return muster_session_query(session, nullptr); }, "info must not be NULL"},
      {[&] { return muster_counter(session, nullptr, &value); }, "name must not be NULL"},
      {[&] { return muster_counter(session, "commands", nullptr); }, "value must not be NULL"},
      {[&] { return muster_mesh_group(session, "world", nullptr); }, "group must not be NULL"},
      {[&] { return muster_mesh_group(session, nullptr, &group); }, "dim must not be NULL"},
      {[&] { return muster_plan_start_batch(nullptr, nullptr, 0); }, "session must not be NULL"},
      {[&] { return muster_plan_start_batch(session, nullptr, 2); }, "entries is NULL, but count is 2"},
      {[&] { return muster_group_ranks(session, 1, nullptr, 3, nullptr); }, "count must not be NULL"},
      {[&] { return muster_last_failure(session, nullptr); }, "failure must not be NULL"},
      {[&] { return muster_timeline_create(session, nullptr); }, "timeline must not be NULL"}};
  for (const auto& [call, text] : calls) {
    EXPECT_EQ(call(), MUSTER_ERR_BAD_ARGUMENT) << text;
    EXPECT_STREQ(muster_last_error(), text);
  }
}

TEST_F(Session, RefusesToWaitForAStartThatWasNotMade) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 16);
  const muster_kernel fill = fill_of(v, 16);
  const muster_submit submit = on(MUSTER_LANE_COMPUTE);
  muster_point point = 0;
  ASSERT_EQ(muster_launch(session, &fill, &submit, &point), MUSTER_OK);
  ASSERT_EQ(muster_point_wait(session, point, -1), MUSTER_OK);
  const muster_point next = point + 1;
  std::size_t index = 0;
  EXPECT_EQ(muster_point_test(session, next), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(muster_point_wait(session, next, -1), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("has not made: its last is 1"));
  EXPECT_EQ(muster_point_wait_any(session, &next, 1, -1, &index), MUSTER_ERR_BAD_ARGUMENT);
  ASSERT_EQ(muster_launch(session, &fill, &submit, &point), MUSTER_OK);
  EXPECT_EQ(muster_point_wait(session, next, -1), MUSTER_OK) << "now it was";
}

// Goal:   as errno: what cleans up after a failure leaves its reason to whoever asks later.
TEST_F(Session, KeepsTheLastReasonThroughCallsThatSucceed) {
  muster_session* session = open(0, 1);
  const Vector v = vector_of(session, 16);
  EXPECT_EQ(muster_buffer_free(session, v.buffer + 1), MUSTER_ERR_STALE);
  const std::string reason = muster_last_error();
  EXPECT_FALSE(reason.empty());
  const muster_kernel fill = fill_of(v, 16);
  const muster_submit submit = on(MUSTER_LANE_COMPUTE);
  muster_point point = 0;
  ASSERT_EQ(muster_launch(session, &fill, &submit, &point), MUSTER_OK);
  ASSERT_EQ(muster_point_wait(session, point, -1), MUSTER_OK);
  ASSERT_EQ(muster_point_test(session, point), MUSTER_OK);
  ASSERT_EQ(muster_buffer_free(session, v.buffer), MUSTER_OK);
  close(session);
  EXPECT_EQ(muster_last_error(), reason);
}

}  // namespace
