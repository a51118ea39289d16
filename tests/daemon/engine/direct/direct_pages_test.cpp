#include "daemon/engine/direct/direct_pages.hpp"

#include <algorithm>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::engine {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kWorld = 5;
constexpr std::uint32_t kMade = 3;
constexpr std::uint32_t kPlaces = 24;

// One group of all, then places for others.
DirectPages direct_pages() {
  std::vector<scheduler::Group> groups(1 + kPlaces);
  groups[0].name = "world";
  for (std::uint32_t rank = 0; rank < kWorld; ++rank) groups[0].ranks.push_back(Rank(rank));
  return *DirectPages::create(groups, kWorld, kMade, 1, shm::memory_headroom());
}

// Every seat lies in its segment, behind what is there from the start, and no two overlap.
void expect_apart(const DirectPages& direct_pages, const std::set<std::uint32_t>& live) {
  std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> taken(kWorld);
  for (const std::uint32_t group : live) {
    const auto members = direct_pages.segments().members(GroupId(group));
    for (const shm::DirectMember& member : members)
      taken[static_cast<std::size_t>(member.rank)].emplace_back(
          member.region,
          member.region + shm::member_region_bytes(static_cast<std::uint32_t>(members.size())));
  }
  for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
    auto& seats = taken[rank];
    std::sort(seats.begin(), seats.end());
    for (std::size_t i = 0; i < seats.size(); ++i) {
      EXPECT_GE(seats[i].first, i == 0 ? shm::kMemberRegionsOffset : seats[i - 1].second) << "rank " << rank;
      EXPECT_LE(seats[i].second, direct_pages.segments().bytes(Rank(rank)));
      EXPECT_EQ(seats[i].first % shm::kLineBytes, 0u);
    }
  }
}

TEST(DirectPages, HasRoomForAsManyMadeGroupsAsItWasMadeForAndNoMore) {
  DirectPages b = direct_pages();
  std::vector<Rank> all;
  for (std::uint32_t rank = 0; rank < kWorld; ++rank) all.push_back(Rank(rank));
  for (std::uint32_t g = 1; g <= kMade; ++g) ASSERT_TRUE(b.add_group(GroupId(g), all).ok());
  const Status refused = b.add_group(GroupId(kPlaces), all);
  EXPECT_EQ(refused.code(), Code::kBusy);
  EXPECT_THAT(refused.message(), HasSubstr("rank 0 is a member of 3 made groups"));
  EXPECT_TRUE(b.segments().members(GroupId(kPlaces)).empty());
  b.remove_group(GroupId(2));
  EXPECT_TRUE(b.add_group(GroupId(kPlaces), all).ok());
}

// Goal:   room for made groups costs no memory before they come, and counts for the job's user from then on.
TEST(DirectPages, TakesMemoryForMadeGroupsOnceTheyCome) {
  const auto blocks = [](const DirectPages& b, std::uint32_t rank) {
    struct stat facts {};
    EXPECT_EQ(::fstat(b.segments().descriptor(Rank(rank)), &facts), 0);
    return static_cast<std::uint64_t>(facts.st_blocks) * 512;
  };
  auto page = *shm::MemoryPage::create(1001, 0, 7, shm::memory_headroom());
  page.set_limits({.share = 1 << 30, .limit = 1 << 30});
  ASSERT_TRUE(page.give(1));
  std::vector<scheduler::Group> groups(2);
  groups[0] = {"world", {Rank(0), Rank(1), Rank(2)}};
  DirectPages b = *DirectPages::create(groups, 3, 1024, 1, shm::memory_headroom(),
                                       *MemoryAccount::attach(page.descriptor(), *page.slot_of(1)));
  const std::uint64_t before = page.held();
  const std::uint64_t first = blocks(b, 0);
  EXPECT_LT(first, b.segments().bytes(Rank(0)));
  ASSERT_TRUE(b.add_group(GroupId(1), std::vector{Rank(0), Rank(2)}).ok());
  EXPECT_GT(blocks(b, 0), first);
  EXPECT_EQ(blocks(b, 1), first) << "it is no member";
  EXPECT_EQ(page.held() - before, blocks(b, 0) - first + blocks(b, 2) - first);
  const std::uint64_t held = page.held();
  b.remove_group(GroupId(1));
  ASSERT_TRUE(b.add_group(GroupId(1), std::vector{Rank(0), Rank(2)}).ok());
  EXPECT_EQ(page.held(), held) << "the memory of the group before is taken again";
}

// Goal:   groups of all sizes come and go, and no seat ever lies on another.
TEST(DirectPages, KeepsSeatsApartWhateverComesAndGoes) {
  DirectPages b = direct_pages();
  std::mt19937_64 random(11);
  std::set<std::uint32_t> live{0};
  int seated = 0;
  int refused = 0;
  std::vector<std::uint64_t> epochs(1 + kPlaces, 1);
  for (int step = 0; step < 4000; ++step) {
    SCOPED_TRACE(::testing::Message() << "step " << step);
    const auto group = static_cast<std::uint32_t>(1 + random() % kPlaces);
    if (live.count(group) > 0) {
      b.remove_group(GroupId(group));
      live.erase(group);
    } else {
      std::vector<Rank> ranks;
      for (std::uint32_t rank = 0; rank < kWorld; ++rank)
        if (random() % 2 == 0) ranks.push_back(Rank(rank));
      if (ranks.empty()) continue;
      std::shuffle(ranks.begin(), ranks.end(), random);
      if (b.add_group(GroupId(group), ranks).ok()) {
        live.insert(group);
        ++seated;
        EXPECT_EQ(b.epochs().first(GroupId(group)), b.epochs().present(GroupId(group)));
        EXPECT_GT(b.epochs().present(GroupId(group)), epochs[group])
            << "records of the former would be its own";
        epochs[group] = b.epochs().present(GroupId(group));
        EXPECT_EQ(b.segments().members(GroupId(group)).size(), ranks.size());
      } else {
        ++refused;
      }
    }
    expect_apart(b, live);
    if (HasFailure()) return;
  }
  EXPECT_GT(seated, 500);
  EXPECT_GT(refused, 50);
}

// Goal:   a process counts what it ran itself, not what the one before it in its place ran.
TEST(DirectPages, CountsAnewForANewProcess) {
  DirectPages b = direct_pages();
  const auto view = *shm::Mapping::map(shm::Descriptor(::dup(b.segments().descriptor(Rank(2)))),
                                       b.segments().bytes(Rank(2)), shm::Mapping::Access::kReadWrite);
  auto* header = reinterpret_cast<shm::DirectHeader*>(view.writable());
  header->operations = 3;
  header->bytes_moved = 4;
  header->sleeps = 5;
  header->awaiting = 6;
  b.reset(Rank(2), false);
  EXPECT_EQ(header->awaiting, 0u);
  EXPECT_EQ(header->operations, 0u);
  EXPECT_EQ(header->bytes_moved, 0u);
  EXPECT_EQ(header->sleeps, 0u);
}

// Goal:   a member that says what no member can have done moves no base to where positions end.
TEST(DirectPages, BelievesNoPositionThatNobodyCanHaveReached) {
  DirectPages b = direct_pages();
  const auto view = *shm::Mapping::map(shm::Descriptor(::dup(b.segments().descriptor(Rank(2)))),
                                       b.segments().bytes(Rank(2)), shm::Mapping::Access::kReadWrite);
  auto* region = view.writable() + b.segments().members(GroupId(0))[2].region;
  auto* slot = reinterpret_cast<shm::DirectSlot*>(region + shm::kSlotsOffset);
  std::uint64_t fault = 0;
  for (const std::uint64_t lie : {UINT64_MAX, UINT64_MAX / 2, std::uint64_t{1} << 45}) {
    slot->position = lie;
    const std::uint64_t before = b.epochs().base(GroupId(0));
    b.epochs().end(GroupId(0),
                   std::make_shared<const scheduler::Cause>(scheduler::Cause{Code::kAborted, 0, "", ++fault}),
                   scheduler::Epochs::Why::kOther);
    EXPECT_GT(b.epochs().base(GroupId(0)), before);
    EXPECT_LE(b.epochs().base(GroupId(0)), before + 2);
  }
}

TEST(DirectPages, MakesASeatReadyForItsNewGroup) {
  DirectPages b = direct_pages();
  ASSERT_TRUE(b.add_group(GroupId(1), std::vector{Rank(1), Rank(3)}).ok());
  const auto gone =
      std::make_shared<const scheduler::Cause>(scheduler::Cause{Code::kPeerLost, 3, "rank 3 died", 1});
  b.epochs().end(GroupId(1), gone, scheduler::Epochs::Why::kLoss);
  b.epochs().set_absence(GroupId(1), gone);
  const std::uint64_t before = b.epochs().present(GroupId(1));
  ASSERT_EQ(b.epochs().cause_of(GroupId(1), before - 1), gone);
  EXPECT_EQ(b.epochs().epoch_of(GroupId(1), 0), before - 1);
  EXPECT_EQ(b.epochs().move_on(GroupId(1), 0, before - 1), before);
  EXPECT_EQ(b.epochs().move_on(GroupId(1), 0, before - 1), before) << "it has left that epoch";
  b.remove_group(GroupId(1));
  ASSERT_TRUE(b.add_group(GroupId(1), std::vector{Rank(0), Rank(1)}).ok());
  EXPECT_GT(b.epochs().present(GroupId(1)), before);
  EXPECT_EQ(b.epochs().cause_of(GroupId(1), before), nullptr) << "the former group's";
}

}  // namespace
}  // namespace muster::engine
