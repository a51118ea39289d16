#include "daemon/engine/conductor.hpp"

#include "tests/daemon/engine/engine_fixture.hpp"

#include <random>

#include <gmock/gmock.h>
#include <muster/kernels.h>

namespace muster::engine {
namespace {

using shm::MessageKind;
using ::testing::HasSubstr;

class Serve : public test::EngineTest {
 protected:
  std::uint64_t alloc(Session& session, std::uint64_t bytes) {
    shm::BufferAlloc request;
    request.bytes = bytes;
    EXPECT_EQ(ask(session, request, MessageKind::kBufferAlloc), MessageKind::kBufferGrant);
    return answered<shm::BufferGrant>().buffer;
  }
  Code refused() const { return static_cast<Code>(answered<shm::Failure>().status); }
  std::string why() const { return answered<shm::Failure>().text; }
};

TEST_F(Serve, GrantsBuffersUntilTheLimit) {
  Session& session = attach(0);
  for (int i = 0; i < 64; ++i) alloc(session, 64);
  shm::BufferAlloc request;
  request.bytes = 64;
  EXPECT_EQ(ask(session, request, MessageKind::kBufferAlloc), MessageKind::kFailure);
  EXPECT_EQ(refused(), Code::kNoResource);
  EXPECT_THAT(why(), HasSubstr("limits.buffers_per_rank_max"));
}

TEST_F(Serve, RefusesEmptyAndOversizedBuffers) {
  Session& session = attach(0);
  for (const std::uint64_t bytes : {std::uint64_t{0}, UINT64_MAX, std::uint64_t{17} << 20}) {
    shm::BufferAlloc request;
    request.bytes = bytes;
    EXPECT_EQ(ask(session, request, MessageKind::kBufferAlloc), MessageKind::kFailure) << bytes;
  }
}

TEST_F(Serve, KeepsAnotherRanksHandlesApart) {
  Session& mine = attach(0);
  Session& theirs = attach(1);
  const std::uint64_t buffer = alloc(theirs, 4096);
  alloc(theirs, 4096);
  shm::HandleMessage request;
  request.handle = buffer + 1;
  EXPECT_EQ(ask(mine, request, MessageKind::kBufferFree), MessageKind::kFailure);
  EXPECT_EQ(refused(), Code::kStale);
}

TEST_F(Serve, RefusesViewsThatOverflow) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  const auto plan = [&](std::int64_t size, std::int64_t stride, std::uint64_t offset) {
    shm::PlanKernel request;
    request.kernel = muster_fill(muster_view2(buffer, offset, MUSTER_F32, 2, 2), 1.0);
    request.kernel.tensors[0].size[0] = size;
    request.kernel.tensors[0].stride[0] = stride;
    return ask(session, request, MessageKind::kPlanKernel);
  };
  EXPECT_EQ(plan(2, 2, 0), MessageKind::kPlanGrant);
  EXPECT_EQ(plan(-1, 2, 0), MessageKind::kFailure);
  EXPECT_EQ(plan(2, -2, 0), MessageKind::kFailure);
  EXPECT_EQ(plan(2, 0, 0), MessageKind::kFailure);
  EXPECT_EQ(plan(INT64_MAX, INT64_MAX, 0), MessageKind::kFailure);
  EXPECT_EQ(plan(INT64_MAX, 1, 0), MessageKind::kFailure);
  EXPECT_EQ(plan(2, 2, UINT64_MAX - 3), MessageKind::kFailure);
  EXPECT_EQ(plan(2, 2, 2), MessageKind::kFailure) << "not aligned";
  EXPECT_EQ(plan(0, 2, 4096), MessageKind::kPlanGrant) << "an empty view may lie at the end";
}

TEST_F(Serve, RefusesCollectivesThatDoNotFit) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  shm::PlanCollective request;
  request.op = MUSTER_ALL_GATHER;
  request.dtype = MUSTER_F32;
  request.group = group_handle(GroupId(0), 77);
  request.source = {buffer, 0};
  request.target = {buffer, 0};
  request.count = 512;
  EXPECT_EQ(ask(session, request, MessageKind::kPlanCollective), MessageKind::kPlanGrant);
  request.count = 513;
  EXPECT_EQ(ask(session, request, MessageKind::kPlanCollective), MessageKind::kFailure);
  EXPECT_THAT(why(), HasSubstr("target"));
  request.count = UINT64_MAX / 2;
  EXPECT_EQ(ask(session, request, MessageKind::kPlanCollective), MessageKind::kFailure);
  request.count = 4;
  request.group = group_handle(GroupId(0), 78);
  EXPECT_EQ(ask(session, request, MessageKind::kPlanCollective), MessageKind::kFailure)
      << "another job's epoch";
  EXPECT_EQ(refused(), Code::kStale);
  request.group = MUSTER_GROUP_SELF;
  EXPECT_EQ(ask(session, request, MessageKind::kPlanCollective), MessageKind::kPlanGrant);
}

// Goal:   what would fail at the launch, and the whole job with it, is refused when the plan is made.
TEST_F(Serve, RefusesCollectivesWhoseSourceAndTargetOverlap) {
  Session& session = attach(0);
  shm::PlanCollective request;
  request.op = MUSTER_ALL_REDUCE;
  request.dtype = MUSTER_F32;
  request.redop = MUSTER_SUM;
  request.group = MUSTER_GROUP_SELF;
  request.source = {alloc(session, 4096), 0};
  request.target = {request.source.buffer, 64};
  request.count = 17;
  EXPECT_EQ(ask(session, request, MessageKind::kPlanCollective), MessageKind::kFailure);
  EXPECT_EQ(refused(), Code::kBadArgument);
  EXPECT_THAT(why(), HasSubstr("overlap"));
  request.count = 16;
  EXPECT_EQ(ask(session, request, MessageKind::kPlanCollective), MessageKind::kPlanGrant) << "side by side";
  request.target.offset_bytes = 0;
  EXPECT_EQ(ask(session, request, MessageKind::kPlanCollective), MessageKind::kPlanGrant) << "in place";
}

// Goal:   a plan may be destroyed right after a start that nobody has drained yet: it is BUSY, or the start
// has
//         ended already; the session lives in either case.
TEST_F(Serve, CountsStartsInTheRingAsInFlight) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  auto view = shm::SubmissionView::attach(shm::Descriptor(dup(session.submission().descriptor().get())));
  ASSERT_TRUE(view) << view.error().text();
  auto page = shm::CompletionView::attach(shm::Descriptor(dup(session.page().descriptor().get())));
  ASSERT_TRUE(page) << page.error().text();
  auto ring = shm::ring_writer(*view, *page);
  for (int round = 0; round < 200; ++round) {
    shm::PlanKernel kernel;
    kernel.kernel = muster_fill(muster_view2(buffer, 0, MUSTER_F32, 4, 8), 1.0);
    ASSERT_EQ(ask(session, kernel, MessageKind::kPlanKernel), MessageKind::kPlanGrant);
    shm::HandleMessage plan;
    plan.handle = answered<shm::HandleMessage>().handle;
    shm::Command start;
    start.kind = shm::CommandKind::kStart;
    start.lane = MUSTER_LANE_COMPUTE;
    start.plan = plan.handle;
    ASSERT_EQ(ring.push(start), Code::kOk);
    int asked = 0;
    while (ask(session, plan, MessageKind::kPlanDestroy) != MessageKind::kDone) {
      ASSERT_EQ(refused(), Code::kBusy) << why();
      ASSERT_LT(++asked, 100000);
      engine_->wake();
    }
    ASSERT_FALSE(engine_->take_offender());
  }
}

TEST_F(Serve, EndsTheSessionForMessagesThatAreNone) {
  Session& session = attach(0);
  std::vector<std::byte> bytes(10);
  EXPECT_EQ(ask_bytes(session, bytes), MessageKind::kNone);
  EXPECT_EQ(ask(session, shm::Plain{}, MessageKind::kWelcome), MessageKind::kNone);
  EXPECT_EQ(ask(session, shm::Plain{}, MessageKind::kBufferAlloc), MessageKind::kNone);
  shm::PlanCollective request;
  request.target_counts = 1000;
  EXPECT_EQ(ask(session, request, MessageKind::kPlanCollective), MessageKind::kNone);
  shm::MeshQuery query;
  std::memset(query.dim, 'x', sizeof query.dim);
  EXPECT_EQ(ask(session, query, MessageKind::kMeshQuery), MessageKind::kNone);
}

// Goal:   no bytes at all can hurt the engine. Method: valid messages with random bytes changed, under the
// sanitizers.
TEST_F(Serve, SurvivesDamagedMessages) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  std::mt19937_64 random(11);
  for (int i = 0; i < 20000; ++i) {
    shm::PlanKernel kernel;
    kernel.kernel = muster_fill(muster_view2(buffer, 0, MUSTER_F32, 4, 8), 1.0);
    kernel.kernel.op = static_cast<std::int32_t>(random() % 90);
    kernel.kernel.tensor_count = static_cast<std::uint32_t>(random() % 11);
    for (auto& tensor : kernel.kernel.tensors) tensor = kernel.kernel.tensors[0];
    kernel.header.kind = MessageKind::kPlanKernel;
    kernel.header.bytes = sizeof kernel;
    auto bytes = std::as_writable_bytes(std::span(&kernel, 1));
    for (int changes = static_cast<int>(random() % 6); changes > 0; --changes)
      bytes[sizeof(shm::MessageHeader) + random() % (sizeof kernel - sizeof(shm::MessageHeader))] =
          static_cast<std::byte>(random());
    if (ask_bytes(session, bytes) != MessageKind::kPlanGrant) continue;
    shm::HandleMessage destroy;
    destroy.handle = answered<shm::HandleMessage>().handle;
    ASSERT_EQ(ask(session, destroy, MessageKind::kPlanDestroy), MessageKind::kDone);
  }
}

TEST_F(Serve, ClosesTheSessionOfAClientThatLiesInItsRing) {
  Session& liar = attach(0);
  Session& bystander = attach(1);
  // The engine maps the ring for reading; the client's descriptor is the way to write.
  auto view = shm::SubmissionView::attach(shm::Descriptor(dup(liar.submission().descriptor().get())));
  ASSERT_TRUE(view) << view.error().text();
  reinterpret_cast<std::atomic<std::uint64_t>&>(view->writable_header()->tail).store(1u << 20);
  engine_->wake();
  for (int i = 0; i < 2000 && !engine_->take_offender(); ++i) usleep(1000);
  const shm::CompletionSegment* page = liar.page().page();
  EXPECT_NE(reinterpret_cast<const std::atomic<std::uint32_t>&>(page->closed).load(), 0u);
  engine_->detach(Rank(0), "rank 0 broke the protocol");
  alloc(bystander, 64);
  EXPECT_EQ(engine_->bury(), 0u);
}

}  // namespace
}  // namespace muster::engine
