#include "api/shm/layout.hpp"

#include "api/shm/control.hpp"
#include "api/shm/counters.hpp"
#include "api/shm/direct.hpp"

#include <cstring>
#include <set>

#include <gtest/gtest.h>

namespace muster::shm {
namespace {

// Goal:   a change of the shared layout is a decision, not an accident.
// Method: every size and offset as a number; whoever changes one raises kAbiVersion and then this test.
TEST(Layout, PinsTheCommand) {
  EXPECT_EQ(kAbiVersion, 12u);
  EXPECT_EQ(sizeof(Command), 64u);
  EXPECT_EQ(alignof(Command), 8u);
  EXPECT_EQ(offsetof(Command, sequence), 0u);
  EXPECT_EQ(offsetof(Command, kind), 8u);
  EXPECT_EQ(offsetof(Command, lane), 10u);
  EXPECT_EQ(offsetof(Command, first), 12u);
  EXPECT_EQ(offsetof(Command, plan), 16u);
  EXPECT_EQ(offsetof(Command, waits), 24u);
  EXPECT_EQ(offsetof(Command, deadline_ns), 56u);
  EXPECT_EQ(static_cast<unsigned>(Command::Kind::kStartAt), 6u);
  EXPECT_EQ(static_cast<unsigned>(Command::Kind::kStep), 7u);
}

TEST(Layout, PinsTheSubmissionSegment) {
  EXPECT_EQ(sizeof(SubmissionHeader), 384u);
  EXPECT_EQ(offsetof(SubmissionHeader, tail), 0u);
  EXPECT_EQ(offsetof(SubmissionHeader, client_asleep), 128u);
  EXPECT_EQ(offsetof(SubmissionHeader, units), 256u);
  EXPECT_EQ(sizeof(UnitFigures), 56u);
  EXPECT_EQ(kRingOffset, 4096u);
  EXPECT_EQ(kRingCapacity, 1024u);
  EXPECT_EQ(kSubmissionBytes, 69632u);
}

TEST(Layout, PinsTheCompletionSegment) {
  EXPECT_EQ(sizeof(CompletionHeader), 56u);
  EXPECT_EQ(offsetof(CompletionSegment, head), 128u);
  EXPECT_EQ(offsetof(CompletionSegment, engine_asleep), 256u);
  EXPECT_EQ(offsetof(CompletionSegment, wake), 384u);
  EXPECT_EQ(offsetof(CompletionSegment, heartbeat_ns), 512u);
  EXPECT_EQ(offsetof(CompletionSegment, closed), 640u);
  EXPECT_EQ(offsetof(CompletionSegment, closed_text), 648u);
  EXPECT_EQ(offsetof(CompletionSegment, timelines), 768u);
  EXPECT_EQ(offsetof(CompletionSegment, failures), 768u + 80u * 128u);
  EXPECT_EQ(offsetof(CompletionSegment, counters), 768u + 80u * 128u + 64u * 512u);
  EXPECT_EQ(sizeof(CompletionSegment), 768u + 80u * 128u + 64u * 512u + 64u * 8u);
  EXPECT_EQ(kCompletionBytes, 45056u);
}

TEST(Layout, PinsATimelineAndAFailureText) {
  EXPECT_EQ(sizeof(TimelineWord), 128u);
  EXPECT_EQ(offsetof(TimelineWord, reached), 0u);
  EXPECT_EQ(offsetof(TimelineWord, failed_from), 8u);
  EXPECT_EQ(offsetof(TimelineWord, failed_to), 16u);
  EXPECT_EQ(offsetof(TimelineWord, status), 24u);
  EXPECT_EQ(offsetof(TimelineWord, culprit_rank), 28u);
  EXPECT_EQ(offsetof(TimelineWord, revision), 32u);
  EXPECT_EQ(offsetof(TimelineWord, group), 48u);
  EXPECT_EQ(offsetof(TimelineWord, epoch), 56u);
  EXPECT_EQ(sizeof(FailureText), 512u);
  EXPECT_EQ(offsetof(FailureText, text), 8u);
}

TEST(Layout, PinsTheMessages) {
  EXPECT_EQ(sizeof(MessageHeader), 16u);
  EXPECT_EQ(sizeof(Failure), 16u + 16u + 1024u);
  EXPECT_EQ(sizeof(Hello), 16u + 16u + 16u + 8u + 64u + 256u + 80u + 256u + 64u + 64u);
  EXPECT_EQ(sizeof(Welcome), 16u + 24u + 16u + 24u + 8u + 16u + 64u + 256u);
  EXPECT_EQ(sizeof(DirectGroupAnswer), 16u + 16u + 16u);
  EXPECT_EQ(sizeof(DirectEndAnswer), 16u + 8u + 16u);
  EXPECT_EQ(sizeof(GroupAnswer), 16u + 8u + 8u + 8u + 64u);
  EXPECT_EQ(sizeof(GroupMake), 16u + 8u + 64u);
  EXPECT_EQ(sizeof(GroupShrink), 16u + 16u);
  EXPECT_EQ(sizeof(MeshMake), 16u + 8u + 256u);
  EXPECT_EQ(sizeof(MeshQuery), 16u + 8u + 64u);
  EXPECT_EQ(sizeof(DirectMember), 16u);
  EXPECT_EQ(sizeof(PeerMessage), 16u + 8u);
  EXPECT_EQ(sizeof(DirectMessage), 16u + 40u + 8u + 8u);
  EXPECT_EQ(sizeof(BufferAlloc), 16u + 24u + 8u + 64u);
  EXPECT_EQ(sizeof(BufferGrant), 16u + 48u);
  EXPECT_EQ(sizeof(HandleMessage), 24u);
  EXPECT_EQ(sizeof(PlanCollective), 16u + 16u + 8u + 32u + 16u + 24u + 16u + 48u);
  EXPECT_EQ(offsetof(PlanCollective, group), 32u);
  EXPECT_EQ(offsetof(PlanCollective, count), 72u);
  EXPECT_EQ(offsetof(PlanCollective, source_counts), 88u);
  EXPECT_EQ(offsetof(PlanCollective, sends), 104u);
  EXPECT_EQ(offsetof(PlanCollective, tag), 112u);
  EXPECT_EQ(offsetof(PlanCollective, piece_counts), 116u);
  EXPECT_EQ(offsetof(PlanCollective, pieces), 120u);
  EXPECT_EQ(offsetof(PlanCollective, site), 128u);
  EXPECT_EQ(sizeof(muster_piece), 16u);
  EXPECT_EQ(sizeof(LaneOpen), 16u + 8u + kNameBytes);
  EXPECT_EQ(sizeof(LaneGrant), 24u);
  EXPECT_EQ(sizeof(PlanKernel), 16u + 24u);
  EXPECT_EQ(sizeof(TensorHeader), 24u);
  EXPECT_EQ(offsetof(TensorHeader, dtype), 16u);
  EXPECT_EQ(sizeof(FaceHeader), 32u);
  EXPECT_EQ(offsetof(FaceHeader, view), 8u);
  EXPECT_EQ(kMessageBytesMax, 131072u);
  EXPECT_EQ(sizeof(PlanCollective) + kListBytesMax, kMessageBytesMax);
}

TEST(Layout, PinsTheDirectSegment) {
  EXPECT_EQ(sizeof(DirectSlot), 64u);
  EXPECT_EQ(offsetof(DirectSlot, position), 0u);
  EXPECT_EQ(offsetof(DirectSlot, common), 8u);
  EXPECT_EQ(offsetof(DirectSlot, location), 24u);
  EXPECT_EQ(offsetof(DirectSlot, payload), 32u);
  EXPECT_EQ(sizeof(MemberRegion), 256u);
  EXPECT_EQ(offsetof(MemberRegion, plans), 128u);
  EXPECT_EQ(sizeof(DirectPair), 256u);
  EXPECT_EQ(offsetof(DirectPair, received), 128u);
  EXPECT_EQ(offsetof(DirectHeader, asleep), 128u);
  EXPECT_EQ(offsetof(DirectHeader, stage_uses), 256u);
  EXPECT_EQ(offsetof(DirectHeader, awaiting), 424u);
  EXPECT_EQ(offsetof(DirectHeader, operations), 384u);
  EXPECT_EQ(sizeof(GroupLine), 128u);
  EXPECT_EQ(offsetof(GroupLine, ended), 16u);
  EXPECT_EQ(sizeof(RankLine), 128u);
  EXPECT_EQ(kDirectRecordsOffset, 4096u + 2u * 512u * 1024u);
  EXPECT_EQ(kMemberRegionsOffset, 4096u + 2u * 512u * 1024u + 1024u * 64u);
  EXPECT_EQ(offsetof(DirectHeader, recorded), 416u);
  EXPECT_EQ(offsetof(DirectRecord, begun_ns), 48u);
  EXPECT_EQ(offsetof(DirectRecord, end), 56u);
  EXPECT_EQ(member_region_bytes(3), 256u + 2u * 1280u + 3u * 256u);
}

TEST(Layout, PacksAPlace) {
  const PayloadLocation location{PayloadLocation::Kind::kArena, (1u << 20) - 1, (std::uint64_t{1} << 40) - 1};
  const PayloadLocation again = unpack_location(pack_location(location));
  EXPECT_EQ(again.kind, location.kind);
  EXPECT_EQ(again.index, location.index);
  EXPECT_EQ(again.value, location.value);
  EXPECT_EQ(unpack_location(0).kind, PayloadLocation::Kind::kNone);
}

TEST(Layout, GivesEachWordALineOfItsOwn) {
  std::set<std::size_t> lines;
  const std::size_t words[] = {
      offsetof(CompletionSegment, header),        offsetof(CompletionSegment, head),
      offsetof(CompletionSegment, engine_asleep), offsetof(CompletionSegment, wake),
      offsetof(CompletionSegment, heartbeat_ns),  offsetof(CompletionSegment, closed),
      offsetof(CompletionSegment, timelines)};
  for (const std::size_t offset : words) EXPECT_TRUE(lines.insert(offset / kLineBytes).second) << offset;
}

TEST(Layout, PacksAPointOfAnyTimelineWithoutMeetingTheEmptyPoint) {
  for (std::uint32_t timeline = 0; timeline < kTimelinesMax; ++timeline) {
    for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, kPointValueMask}) {
      const std::uint64_t point = make_point(timeline, value);
      EXPECT_NE(point, MUSTER_POINT_NONE);
      EXPECT_EQ(point_timeline(point), timeline);
      EXPECT_EQ(point_value(point), value);
    }
  }
}

TEST(Layout, NamesEveryCounterOnce) {
  std::set<std::string_view> names;
  for (const std::string_view name : kCounterNames) {
    EXPECT_FALSE(name.empty());
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_LE(kCounterNames.size(), kCountersMax);
}

}  // namespace
}  // namespace muster::shm
