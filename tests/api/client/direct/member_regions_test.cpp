// The client checks the engine's description of a group against its own mappings.
#include "api/client/direct/member_regions.hpp"

#include "tests/api/client/direct/direct_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::client::test {
namespace {

using ::testing::HasSubstr;

class NoHooks final : public WaitHooks {
 public:
  Instant now() const override { return Instant(0); }
  std::uint32_t core() const override { return 0; }
  bool engine_gone() override { return false; }
  bool interrupted() const override { return false; }
  void overdue(const Wanted&) override {}
};

class MemberRegionsTest : public ::testing::Test {
 protected:
  MemberRegions said() {
    return {kGroup, kGroupId.value, 1, world_.board().segments().members(kGroupId), 0, 0};
  }
  // Why rank 1 opens no channel; empty: it does.
  std::string refusal_of(const MemberRegions& regions) {
    const auto channel = open_channel(world_.memory(1), regions, hooks_);
    if (!channel) EXPECT_EQ(channel.error().code(), Code::kProtocol);
    return channel ? "" : channel.error().message();
  }

  NoHooks hooks_;
  DirectWorld world_{2, 1 << 16, Machine{64, 2, true}};
};

TEST_F(MemberRegionsTest, AreTakenAsTheEngineSaysThem) {
  EXPECT_EQ(refusal_of(said()), "");
}

// Goal:   a line just behind the last one of the group page, which would be read past the page's lines.
TEST_F(MemberRegionsTest, HaveALineOfTheGroupPage) {
  const std::uint32_t lines = world_.memory(1).group_count();
  ASSERT_EQ(lines, 1u);
  for (const std::uint32_t line : {lines, lines + 1, UINT32_MAX}) {
    MemberRegions regions = said();
    regions.line = line;
    EXPECT_THAT(refusal_of(regions), HasSubstr("line " + std::to_string(line)));
  }
}

TEST_F(MemberRegionsTest, HaveThisRankAmongTheMembers) {
  MemberRegions regions = said();
  regions.index = 2;
  EXPECT_THAT(refusal_of(regions), HasSubstr("this rank's index 2"));
  regions = said();
  regions.members.clear();
  EXPECT_THAT(refusal_of(regions), HasSubstr("0 members"));
}

// Goal:   a seat lies in its member's segment, behind the segment's head, to its last byte.
TEST_F(MemberRegionsTest, HaveSeatsInTheSegmentsOfTheirMembers) {
  const std::uint64_t bytes = world_.memory(1).own_bytes();
  const std::uint64_t need = shm::member_region_bytes(2);
  const std::uint64_t last = (bytes - need) / shm::kLineBytes * shm::kLineBytes;
  for (const std::uint64_t at :
       {last + shm::kLineBytes, bytes, std::uint64_t{UINT64_MAX - shm::kLineBytes + 1}, std::uint64_t{0},
        shm::kMemberRegionsOffset - shm::kLineBytes, shm::kMemberRegionsOffset + 8}) {
    for (const std::size_t member : {0u, 1u}) {
      MemberRegions regions = said();
      regions.members[member].region = at;
      EXPECT_THAT(refusal_of(regions), HasSubstr("the seat of rank " + std::to_string(member))) << at;
    }
  }
  MemberRegions regions = said();
  regions.members[1].region = last;
  EXPECT_EQ(refusal_of(regions), "") << "it ends with the segment, or less than a line before";
}

}  // namespace
}  // namespace muster::client::test
