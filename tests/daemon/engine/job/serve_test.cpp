#include "daemon/engine/job/conductor.hpp"

#include "api/shm/tail.hpp"
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
  // A collective with its lists behind it; the numbers of entries that the message says may be overridden.
  static std::vector<std::byte> bytes_of(shm::PlanCollective request, const CollectiveLists& lists,
                                         bool count_entries = true) {
    if (count_entries) {
      request.source_counts = static_cast<std::uint32_t>(lists.source_counts.size());
      request.source_offsets = static_cast<std::uint32_t>(lists.source_offsets.size());
      request.target_counts = static_cast<std::uint32_t>(lists.target_counts.size());
      request.target_offsets = static_cast<std::uint32_t>(lists.target_offsets.size());
      request.sends = static_cast<std::uint32_t>(lists.sends.size());
      request.receives = static_cast<std::uint32_t>(lists.receives.size());
    }
    std::vector<std::byte> bytes(sizeof request);
    for (const auto* list :
         {&lists.source_counts, &lists.source_offsets, &lists.target_counts, &lists.target_offsets})
      shm::append(bytes, std::span(*list));
    for (const auto* list : {&lists.sends, &lists.receives})
      for (const muster_face& face : *list) shm::append(bytes, face);
    request.header = shm::MessageHeader{};
    request.header.kind = MessageKind::kPlanCollective;
    request.header.bytes = static_cast<std::uint32_t>(bytes.size());
    std::memcpy(bytes.data(), &request, sizeof request);
    return bytes;
  }
  MessageKind plan(Session& session, const shm::PlanCollective& request, const CollectiveLists& lists) {
    return ask_bytes(session, bytes_of(request, lists));
  }
  // A message of a kernel with its lists behind it.
  static std::vector<std::byte> bytes_of(const muster_kernel& kernel) {
    return bytes_of(shm::message_of(kernel), shm::tail_for(kernel));
  }
  static std::vector<std::byte> bytes_of(shm::PlanKernel request, std::span<const std::byte> tail) {
    request.header.kind = MessageKind::kPlanKernel;
    request.header.bytes = static_cast<std::uint32_t>(sizeof request + tail.size());
    std::vector<std::byte> bytes(sizeof request);
    std::memcpy(bytes.data(), &request, sizeof request);
    bytes.insert(bytes.end(), tail.begin(), tail.end());
    return bytes;
  }
  MessageKind plan(Session& session, const muster_kernel& kernel) {
    return ask_bytes(session, bytes_of(kernel));
  }
  // An operation of the group of both ranks, on one buffer.
  static shm::PlanCollective collective(muster_op op, std::uint64_t buffer) {
    shm::PlanCollective request;
    request.op = op;
    request.dtype = MUSTER_F32;
    request.redop = op == MUSTER_REDUCE_SCATTER ? MUSTER_SUM : 0;
    request.group = Handle(0, 77).bits;
    request.source = {buffer, 0};
    request.target = {buffer, 2048};
    return request;
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
  const auto filled = [&](std::int64_t size, std::int64_t stride, std::uint64_t offset) {
    muster_kernel kernel = muster_fill(muster_view2(buffer, offset, MUSTER_F32, 2, 2), 1.0);
    kernel.tensors[0].size[0] = size;
    kernel.tensors[0].stride[0] = stride;
    return plan(session, kernel);
  };
  EXPECT_EQ(filled(2, 2, 0), MessageKind::kPlanGrant);
  EXPECT_EQ(filled(-1, 2, 0), MessageKind::kFailure);
  EXPECT_EQ(filled(2, -2, 0), MessageKind::kFailure);
  EXPECT_EQ(filled(2, 0, 0), MessageKind::kFailure);
  EXPECT_EQ(filled(INT64_MAX, INT64_MAX, 0), MessageKind::kFailure);
  EXPECT_EQ(filled(INT64_MAX, 1, 0), MessageKind::kFailure);
  EXPECT_EQ(filled(2, 2, UINT64_MAX - 3), MessageKind::kFailure);
  EXPECT_EQ(filled(2, 2, 2), MessageKind::kFailure) << "not aligned";
  EXPECT_EQ(filled(0, 2, 4096), MessageKind::kPlanGrant) << "an empty view may lie at the end";
  // 2^125 + 1 elements of 8 bytes are 8 bytes modulo 2^128.
  constexpr std::int64_t kStep = std::int64_t{1} << 62;
  muster_kernel kernel = muster_fill(muster_view2(buffer, 0, MUSTER_F64, 2, 2), 1.0);
  kernel.tensors[0].size[0] = kernel.tensors[0].size[1] = kStep + 1;
  kernel.tensors[0].stride[0] = kernel.tensors[0].stride[1] = kStep;
  EXPECT_EQ(plan(session, kernel), MessageKind::kFailure);
  EXPECT_THAT(why(), HasSubstr("behind the buffer"));
}

TEST_F(Serve, RefusesCollectivesThatDoNotFit) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  shm::PlanCollective request;
  request.op = MUSTER_ALL_GATHER;
  request.dtype = MUSTER_F32;
  request.group = Handle(0, 77).bits;
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
  request.group = Handle(0, 78).bits;
  EXPECT_EQ(ask(session, request, MessageKind::kPlanCollective), MessageKind::kFailure)
      << "another job's epoch";
  EXPECT_EQ(refused(), Code::kStale);
  request.group = MUSTER_GROUP_SELF;
  EXPECT_EQ(ask(session, request, MessageKind::kPlanCollective), MessageKind::kPlanGrant);
}

// Goal:   a plan whose launch would fail, and with it the whole job, is refused when it is made.
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

TEST_F(Serve, RefusesListsThatAreNotOnePerMember) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  CollectiveLists lists;
  lists.target_counts = {1, 2, 3};
  EXPECT_EQ(plan(session, collective(MUSTER_ALL_GATHER, buffer), lists), MessageKind::kFailure);
  EXPECT_THAT(why(), HasSubstr("target_blocks.counts has 3 entries; all_gather in a group of 2"));
  lists.target_counts = {1, 2};
  lists.target_offsets = {0};
  EXPECT_EQ(plan(session, collective(MUSTER_ALL_TO_ALL, buffer), lists), MessageKind::kFailure);
  EXPECT_THAT(why(), HasSubstr("target_blocks.offsets has 1 entries"));
  lists.target_offsets.clear();
  EXPECT_EQ(plan(session, collective(MUSTER_BROADCAST, buffer), lists), MessageKind::kFailure);
  EXPECT_THAT(why(), HasSubstr("broadcast has no such blocks"));
  lists.target_counts.clear();
  lists.sends.push_back({0, 0, muster_view1(buffer, 0, MUSTER_F32, 1)});
  EXPECT_EQ(plan(session, collective(MUSTER_GATHER, buffer), lists), MessageKind::kFailure);
  EXPECT_THAT(why(), HasSubstr("gather has none"));
}

TEST_F(Serve, HoldsOffsetsAgainstTheBuffer) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  CollectiveLists lists;
  lists.source_counts = lists.target_counts = {4, 4};
  lists.source_offsets = {0, 1020};
  shm::PlanCollective request = collective(MUSTER_ALL_TO_ALL, buffer);
  request.target = {alloc(session, 4096), 0};
  EXPECT_EQ(plan(session, request, lists), MessageKind::kPlanGrant) << why();
  for (const std::uint64_t offset : {std::uint64_t{1021}, UINT64_MAX, UINT64_MAX / 4, UINT64_MAX / 4 - 3}) {
    lists.source_offsets[1] = offset;
    EXPECT_EQ(plan(session, request, lists), MessageKind::kFailure) << offset;
    EXPECT_EQ(refused(), Code::kBadArgument);
  }
  lists.source_offsets = {0, 0};
  for (const std::uint64_t count : {UINT64_MAX, UINT64_MAX / 8, std::uint64_t{1} << 62}) {
    lists.source_counts[0] = count;
    EXPECT_EQ(plan(session, request, lists), MessageKind::kFailure) << count;
  }
}

TEST_F(Serve, HoldsFacesAgainstTheirBuffers) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  const shm::PlanCollective request = collective(MUSTER_EXCHANGE, buffer);
  CollectiveLists lists;
  lists.receives = {{1, 0, muster_view2(buffer, 0, MUSTER_F32, 32, 32)}};
  muster_tensor& view = lists.receives[0].view;
  EXPECT_EQ(plan(session, request, lists), MessageKind::kPlanGrant) << why();
  const auto refused_as = [&](const char* words) {
    EXPECT_EQ(plan(session, request, lists), MessageKind::kFailure) << words;
    EXPECT_THAT(why(), HasSubstr(words));
    view = muster_view2(buffer, 0, MUSTER_F32, 32, 32);
  };
  view.size[0] = 33;
  refused_as("receives[0]: the view ends behind");
  view.offset_bytes = UINT64_MAX - 3;
  refused_as("receives[0]: the view ends behind");
  view.size[0] = view.size[1] = (std::int64_t{1} << 62) + 1;
  view.stride[0] = view.stride[1] = std::int64_t{1} << 62;
  refused_as("receives[0]: the view ends behind");
  view.dims = 9;
  refused_as("receives[0]: 9 dims; 0 to 8 are possible");
  view.dims = -1;
  refused_as("receives[0]: -1 dims; 0 to 8 are possible");
  view.dims = INT32_MAX;
  refused_as("receives[0]: 2147483647 dims");
  view.dtype = 99;
  refused_as("receives[0]: dtype 99 does not exist");
  view.stride[0] = 31;
  refused_as("receives[0]: 1024 elements are seen in a range of 993");
  view.size[0] = 2;  // room enough, and yet they may lie in each other
  view.size[1] = 3;
  view.stride[0] = 5;
  view.stride[1] = 3;
  refused_as("may overlap");
  view.buffer = 0;
  refused_as("no memory");
  lists.receives[0].peer = 2;
  refused_as("the peer is not a member");
}

TEST_F(Serve, TakesOnlySitesThatEnd) {
  Session& session = attach(0);
  shm::PlanCollective request = collective(MUSTER_BARRIER, 0);
  std::memset(request.site, 'x', sizeof request.site);
  EXPECT_EQ(plan(session, request, {}), MessageKind::kNone);
  request.site[sizeof request.site - 1] = '\0';
  EXPECT_EQ(plan(session, request, {}), MessageKind::kPlanGrant);
}

// Goal:   a plan may be destroyed right after a start that nobody has drained yet: it is BUSY, or the start
//         has ended already; the session lives in either case.
TEST_F(Serve, CountsStartsInTheRingAsInFlight) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  auto view = shm::SubmissionView::attach(shm::Descriptor(dup(session.submission().descriptor().get())));
  ASSERT_TRUE(view) << view.error().text();
  auto page = shm::CompletionView::attach(shm::Descriptor(dup(session.page().descriptor().get())));
  ASSERT_TRUE(page) << page.error().text();
  auto ring = shm::ring_writer(*view, *page);
  for (int round = 0; round < 200; ++round) {
    const muster_kernel fill = muster_fill(muster_view2(buffer, 0, MUSTER_F32, 4, 8), 1.0);
    ASSERT_EQ(plan(session, fill), MessageKind::kPlanGrant);
    shm::HandleMessage made;
    made.handle = answered<shm::HandleMessage>().handle;
    shm::Command start;
    start.kind = shm::Command::Kind::kStart;
    start.lane = MUSTER_LANE_COMPUTE;
    start.plan = made.handle;
    ASSERT_EQ(ring.push(start), Code::kOk);
    int asked = 0;
    while (ask(session, made, MessageKind::kPlanDestroy) != MessageKind::kDone) {
      ASSERT_EQ(refused(), Code::kBusy) << why();
      ASSERT_LT(++asked, 100000);
      engine_->wake();
    }
    ASSERT_FALSE(engine_->faults().take_offender());
  }
}

// Goal:   a client may ask about any epoch, also one before the first, when none has ended yet.
TEST_F(Serve, TellsOfNoEndOfAnEpochThatHasNotEnded) {
  Session& session = attach(0);
  shm::DirectMessage request;
  request.group = Handle(0, 77).bits;
  for (const std::uint64_t epoch : {std::uint64_t{0}, std::uint64_t{1}, UINT64_MAX}) {
    request.epoch = epoch;
    EXPECT_EQ(ask(session, request, MessageKind::kDirectEnd), MessageKind::kFailure) << epoch;
    EXPECT_EQ(refused(), Code::kState) << epoch;
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
  CollectiveLists two;
  two.source_counts = {1, 2};
  for (const std::uint32_t entries : {1u, 3u, UINT32_MAX}) {
    shm::PlanCollective lies;
    lies.source_counts = entries;
    EXPECT_EQ(ask_bytes(session, bytes_of(lies, two, false)), MessageKind::kNone) << entries;
  }
  shm::PlanCollective many;
  many.source_counts = many.target_counts = many.sends = many.receives = UINT32_MAX;
  EXPECT_EQ(ask_bytes(session, bytes_of(many, two, false)), MessageKind::kNone) << "sums do not wrap";
  // One face more than there may be, of none of which there are bytes.
  shm::PlanCollective faces;
  faces.op = MUSTER_EXCHANGE;
  for (const auto& [sends, receives] : {std::pair{1u, 0u}, {681u, 0u}, {340u, 341u}, {0u, UINT32_MAX}}) {
    faces.sends = sends;
    faces.receives = receives;
    EXPECT_EQ(ask_bytes(session, bytes_of(faces, {}, false)), MessageKind::kNone) << sends;
  }
  shm::MeshQuery query;
  std::memset(query.dim, 'x', sizeof query.dim);
  EXPECT_EQ(ask(session, query, MessageKind::kMeshQuery), MessageKind::kNone);
}

// Goal:   a client that says more tensors, dims or numbers than there are bytes is shut out before memory is
//         taken or read for them.
// Method: the message of a valid kernel, with each count raised and each byte cut off or added.
TEST_F(Serve, EndsTheSessionForKernelsThatAreLongerThanTheirMessage) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  const std::int64_t size[] = {1, 2, 1, 2, 1, 2, 1, 2};
  const muster_tensor view = muster_view(buffer, 0, MUSTER_F32, 8, size);
  const muster_kernel kernel = muster_sum(view, muster_view1(buffer, 1024, MUSTER_F32, 1), 1.0, 0);
  const shm::PlanKernel message = shm::message_of(kernel);
  const std::vector<std::byte> tail = shm::tail_for(kernel);
  EXPECT_EQ(tail.size(), 2 * sizeof(shm::TensorHeader) + 2 * (8 + 1) * 8 + 8 + 8);
  ASSERT_EQ(plan(session, kernel), MessageKind::kPlanGrant) << why();
  const auto refused_with = [&](const auto& change) {
    shm::PlanKernel lie = message;
    change(lie);
    return ask_bytes(session, bytes_of(lie, tail)) == MessageKind::kNone;
  };
  for (const std::uint32_t count : {3u, 16u, 17u, UINT32_MAX}) {
    EXPECT_TRUE(refused_with([&](auto& m) { m.tensors = count; })) << count;
    EXPECT_TRUE(refused_with([&](auto& m) { m.ints = count; })) << count;
    EXPECT_TRUE(refused_with([&](auto& m) { m.reals = count; })) << count;
  }
  EXPECT_TRUE(refused_with([](auto& m) { m.tensors = 1; })) << "bytes are left";
  for (std::size_t left = 0; left < tail.size(); ++left)
    EXPECT_EQ(ask_bytes(session, bytes_of(message, std::span(tail).first(left))), MessageKind::kNone) << left;
  std::vector<std::byte> longer = tail;
  longer.push_back({});
  EXPECT_EQ(ask_bytes(session, bytes_of(message, longer)), MessageKind::kNone);
  std::vector<std::byte> deeper = tail;
  for (const std::int32_t dims : {9, -1, INT32_MAX, INT32_MIN}) {
    std::memcpy(deeper.data() + offsetof(shm::TensorHeader, dims), &dims, sizeof dims);
    const MessageKind answer = ask_bytes(session, bytes_of(message, deeper));
    if (dims < 0) {
      EXPECT_EQ(answer, MessageKind::kNone) << "its sizes are bytes of nothing";
      continue;
    }
    EXPECT_EQ(answer, MessageKind::kFailure);
    EXPECT_THAT(why(), HasSubstr("dims; 0 to 8 are possible"));
  }
}

// Goal:   counts that no kernel can have are refused with their limit, and the session goes on.
TEST_F(Serve, NamesTheLimitOfOperandsAndNumbers) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  const muster_tensor view = muster_view1(buffer, 0, MUSTER_F32, 4);
  muster_kernel kernel = muster_fill(view, 1.0);
  const auto refused_as = [&](const char* words) {
    EXPECT_EQ(plan(session, kernel), MessageKind::kFailure) << words;
    EXPECT_EQ(refused(), Code::kBadArgument);
    EXPECT_THAT(why(), HasSubstr(words));
    kernel = muster_fill(view, 1.0);
  };
  while (kernel.tensor_count <= MUSTER_KERNEL_TENSORS_MAX) muster_kernel_operand(&kernel, view);
  refused_as("fill: 17 operands (at most 16)");
  while (kernel.int_count <= MUSTER_KERNEL_INTS_MAX) muster_kernel_int(&kernel, 1);
  refused_as("fill: 33 ints (at most 32), 1 reals (at most 8)");
  kernel.real_count = UINT32_MAX;
  refused_as("fill: 0 ints (at most 32), 4294967295 reals (at most 8)");
  muster_kernel_int(&kernel, 1);
  refused_as("fill: 1 ints and 1 reals were given; it takes 0 and 1");
  for (const std::int32_t dims : {9, -1}) {
    kernel.tensors[0].dims = dims;
    refused_as(dims == 9 ? "fill: target: 9 dims; 0 to 8 are possible"
                         : "fill: target: -1 dims; 0 to 8 are possible");
  }
}

// Goal:   no bytes at all can hurt the engine.
// Method: valid messages with random bytes changed, under the sanitizers.
TEST_F(Serve, SurvivesDamagedMessages) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  std::mt19937_64 random(11);
  for (int i = 0; i < 20000; ++i) {
    muster_kernel kernel = muster_kernel_of(static_cast<std::int32_t>(random() % 90));
    const muster_tensor view = muster_view2(buffer, 0, MUSTER_F32, 4, 8);
    for (auto left = random() % (MUSTER_KERNEL_TENSORS_MAX + 2); left > 0; --left)
      muster_kernel_operand(&kernel, view);
    for (auto left = random() % 4; left > 0; --left) muster_kernel_int(&kernel, 1);
    for (auto left = random() % 3; left > 0; --left) muster_kernel_real(&kernel, 1.0);
    std::vector<std::byte> bytes = bytes_of(kernel);
    constexpr std::size_t kFirst = sizeof(shm::MessageHeader);
    for (int changes = static_cast<int>(random() % 6); changes > 0; --changes)
      bytes[kFirst + random() % (bytes.size() - kFirst)] = static_cast<std::byte>(random());
    if (ask_bytes(session, bytes) != MessageKind::kPlanGrant) continue;
    shm::HandleMessage destroy;
    destroy.handle = answered<shm::HandleMessage>().handle;
    ASSERT_EQ(ask(session, destroy, MessageKind::kPlanDestroy), MessageKind::kDone);
  }
}

// Goal:   the same for collectives with all their lists and faces.
TEST_F(Serve, SurvivesDamagedCollectives) {
  Session& session = attach(0);
  const std::uint64_t buffer = alloc(session, 4096);
  std::mt19937_64 random(12);
  int granted = 0;
  for (int i = 0; i < 20000; ++i) {
    shm::PlanCollective request = collective(static_cast<muster_op>(random() % 14), buffer);
    request.count = random() % 100;
    request.peer = static_cast<std::int32_t>(random() % 2);
    CollectiveLists lists;
    for (auto* list :
         {&lists.source_counts, &lists.source_offsets, &lists.target_counts, &lists.target_offsets})
      if (random() % 4 == 0) *list = {random() % 64, random() % 64};
    if (request.op == MUSTER_EXCHANGE)
      for (std::uint32_t tag = 0; tag < 3; ++tag) {
        const std::int64_t thin[] = {1, 1, 3, 1, 1, 2, 1, 2};
        lists.sends.push_back({0, tag, muster_view(buffer, 64 * tag, MUSTER_F32, 8, thin)});
        lists.receives.push_back({1, tag, muster_view2(buffer, 2048 + 64 * tag, MUSTER_F32, 4, 3)});
      }
    std::vector<std::byte> bytes = bytes_of(request, lists);
    constexpr std::size_t kFirst = sizeof(shm::MessageHeader);
    for (int changes = static_cast<int>(random() % 4); changes > 0; --changes)
      bytes[kFirst + random() % (bytes.size() - kFirst)] = static_cast<std::byte>(random());
    if (ask_bytes(session, bytes) != MessageKind::kPlanGrant) continue;
    ++granted;
    shm::HandleMessage destroy;
    destroy.handle = answered<shm::HandleMessage>().handle;
    ASSERT_EQ(ask(session, destroy, MessageKind::kPlanDestroy), MessageKind::kDone);
  }
  EXPECT_GT(granted, 1000);
}

TEST_F(Serve, ClosesTheSessionOfAClientThatLiesInItsRing) {
  Session& liar = attach(0);
  Session& bystander = attach(1);
  // The engine maps the ring for reading; the client's descriptor is the way to write.
  auto view = shm::SubmissionView::attach(shm::Descriptor(dup(liar.submission().descriptor().get())));
  ASSERT_TRUE(view) << view.error().text();
  reinterpret_cast<std::atomic<std::uint64_t>&>(view->writable_header()->tail).store(1u << 20);
  engine_->wake();
  for (int i = 0; i < 2000 && !engine_->faults().take_offender(); ++i) usleep(1000);
  const shm::CompletionSegment* page = liar.page().page();
  EXPECT_NE(reinterpret_cast<const std::atomic<std::uint32_t>&>(page->closed).load(), 0u);
  engine_->detach(Rank(0), "rank 0 broke the protocol");
  alloc(bystander, 64);
  EXPECT_EQ(engine_->reclaim(), 0u);
}

}  // namespace
}  // namespace muster::engine
