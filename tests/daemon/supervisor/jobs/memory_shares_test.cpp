#include "daemon/supervisor/jobs/memory_shares.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

constexpr Shares::Limits kThousand{.all = 1000, .reserved = 200, .of_one = 500};

class MemorySharesTest : public ::testing::Test {
 protected:
  // An engine's view of the page, which it reads and writes.
  shm::Mapping page_of(std::uint32_t uid) const {
    return *shm::Mapping::map(memory_.page(uid)->descriptor(), shm::kMemoryPageBytes,
                              shm::Mapping::Access::kReadWrite);
  }
  void hold(std::uint32_t uid, std::uint32_t slot, std::uint64_t bytes) const {
    const shm::Mapping page = page_of(uid);
    reinterpret_cast<shm::MemoryPage::Slot*>(page.writable() + shm::kMemorySlotsOffset)[slot].bytes = bytes;
  }
  shm::MemoryPage::Limits limits(std::uint32_t uid) {
    memory_.refresh();
    const shm::Mapping page = page_of(uid);
    return *reinterpret_cast<const shm::MemoryPage::Limits*>(page.data() + shm::kMemoryLimitsOffset);
  }
  MemoryShares memory_{kThousand, 7};
};

TEST_F(MemorySharesTest, GiveEachUserAPageWhileItHasJobs) {
  EXPECT_EQ(memory_.page(1000), nullptr);
  EXPECT_EQ(*memory_.enter(1000, 1), true);
  EXPECT_EQ(*memory_.enter(1000, 2), false);
  EXPECT_EQ(*memory_.enter(1001, 3), true);
  EXPECT_FALSE(memory_.leave(1000, 1));
  EXPECT_FALSE(memory_.leave(1000, 1)) << "twice";
  EXPECT_TRUE(memory_.leave(1000, 2));
  EXPECT_FALSE(memory_.leave(1000, 2)) << "there is no page";
  EXPECT_EQ(memory_.page(1000), nullptr);
  EXPECT_NE(memory_.page(1001), nullptr);
}

TEST_F(MemorySharesTest, LetEachUserHaveWhatIsLeftOfItsShareAndOfTheNode) {
  for (const std::uint32_t uid : {0u, 1000u, 1001u}) ASSERT_TRUE(memory_.enter(uid, uid + 1));
  EXPECT_EQ(limits(1000).share, 500u);
  EXPECT_EQ(limits(1000).limit, 500u);
  EXPECT_EQ(limits(0).limit, 1000u) << "root governs";
  hold(1000, 0, 450);
  EXPECT_EQ(limits(1000).limit, 500u);
  EXPECT_EQ(limits(1001).limit, 350u) << "200 are reserved";
  EXPECT_EQ(limits(0).limit, 550u);
  hold(1001, 0, 300);
  hold(0, 0, 240);
  EXPECT_EQ(limits(1000).limit, 460u) << "the node has 10 left";
  EXPECT_EQ(memory_.held().all(), 990u);
  EXPECT_TRUE(memory_.leave(1001, 1002));
  EXPECT_EQ(limits(1000).limit, 500u);
}

// Goal:   a request lacks the bytes beyond the share of its user, or beyond the rest of the node.
TEST_F(MemorySharesTest, SayWhatARequestLacks) {
  EXPECT_EQ(memory_.lacking(1000, 7), 0u) << "nobody counts it";
  for (const std::uint32_t uid : {1000u, 1001u}) ASSERT_TRUE(memory_.enter(uid, uid + 1));
  ASSERT_TRUE(memory_.enter(1000, 9));
  hold(1000, 0, 100);
  hold(1000, 1, 250);
  EXPECT_EQ(memory_.held_by(1000, 1001), 100u);
  EXPECT_EQ(memory_.held_by(1000, 9), 250u);
  EXPECT_EQ(memory_.held_by(1000, 10), 0u) << "he has no such job";
  EXPECT_EQ(memory_.lacking(1000, 150), 0u);
  EXPECT_EQ(memory_.lacking(1000, 151), 1u);
  hold(1001, 0, 400);
  EXPECT_EQ(memory_.lacking(1000, 100), 50u) << "the node has 50 left for him";
  hold(1000, 1, UINT64_MAX);
  EXPECT_GE(memory_.lacking(1000, UINT64_MAX), UINT64_MAX / 2) << "no sum goes round";
}

// Goal:   a user's engines can lie about what they hold: that takes nothing from others.
TEST_F(MemorySharesTest, BelieveNobodyMoreThanItMayHave) {
  for (const std::uint32_t uid : {0u, 1000u, 1001u}) ASSERT_TRUE(memory_.enter(uid, uid + 1));
  hold(1000, 0, UINT64_MAX);
  EXPECT_EQ(limits(1001).limit, 300u);
  EXPECT_EQ(limits(0).limit, 500u);
  hold(1001, 0, UINT64_MAX);
  EXPECT_EQ(limits(0).limit, 200u) << "the reserve";
}

// Goal:   the shown amounts do not depend on the order of users, also where they have more than there is.
TEST_F(MemorySharesTest, ShowWhatEachUserHoldsWhateverOthersHold) {
  for (const std::uint32_t uid : {0u, 1000u, 1001u}) ASSERT_TRUE(memory_.enter(uid, uid + 1));
  hold(0, 0, 300);
  hold(1000, 0, 450);
  hold(1001, 0, 460);
  EXPECT_EQ(memory_.held().of(0), 300u);
  EXPECT_EQ(memory_.held().of(1000), 450u);
  EXPECT_EQ(memory_.held().of(1001), 460u);
  hold(1001, 0, UINT64_MAX);
  EXPECT_EQ(memory_.held().of(1001), 500u) << "its share, whatever its engines say";
}

TEST_F(MemorySharesTest, AreTakenOverWithTheirJobs) {
  ASSERT_TRUE(memory_.enter(1000, 1) && memory_.enter(1000, 2));
  hold(1000, 1, 70);
  const auto copy = [this] { return shm::Descriptor(dup(memory_.page(1000)->descriptor().get())); };
  MemoryShares successor(kThousand, 7);
  EXPECT_FALSE(successor.adopt(1001, copy())) << "another user's";
  EXPECT_FALSE(successor.adopt(1000, shm::Descriptor(dup(0)))) << "no page";
  EXPECT_FALSE(successor.adopt_job(1000, 2)) << "no page yet";
  EXPECT_TRUE(successor.adopt(1000, copy()));
  EXPECT_FALSE(successor.adopt(1000, copy())) << "there is one";
  EXPECT_TRUE(successor.adopt_job(1000, 2));
  EXPECT_FALSE(successor.adopt_job(1000, 3));
  EXPECT_EQ(successor.held().of(1000), 70u);
  EXPECT_TRUE(successor.leave(1000, 2));
}

}  // namespace
}  // namespace muster::supervisor
