#include "api/shm/memory_page.hpp"

#include <cstring>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace muster::shm {
namespace {

constexpr std::uint64_t kManyBytes = UINT64_MAX / 2;

Descriptor copy_of(const Descriptor& memory) {
  return Descriptor(dup(memory.get()));
}

class MemoryPageTest : public ::testing::Test {
 protected:
  // As an engine of the user may write it.
  MemoryPage::Slot* slots() {
    if (!mapping_.valid())
      mapping_ = *Mapping::map(page_.descriptor(), kMemoryPageBytes, Mapping::Access::kReadWrite);
    return reinterpret_cast<MemoryPage::Slot*>(mapping_.writable() + kMemorySlotsOffset);
  }
  MemoryPage page_ = *MemoryPage::create(1001, 0, 7, memory_headroom());
  Mapping mapping_;
};

// Goal:   the layout is the contract between a supervisor and engines of another build.
TEST_F(MemoryPageTest, HasThisLayout) {
  static_assert(sizeof(MemoryPage::Header) == 32 && sizeof(MemoryPage::Limits) == 16 &&
                sizeof(MemoryPage::Slot) == 16);
  static_assert(kMemoryLimitsOffset == 128 && kMemorySlotsOffset == 256);
  EXPECT_EQ(kMemoryPageBytes, 256u + 1024 * 16);
}

TEST_F(MemoryPageTest, GivesEachJobASlotAndTakesItBack) {
  EXPECT_TRUE(page_.empty());
  for (std::uint64_t job = 1; job <= kMemorySlots; ++job) ASSERT_TRUE(page_.give(job)) << job;
  EXPECT_FALSE(page_.give(5000)) << "all are given";
  slots()[2].bytes = 30;
  slots()[5].bytes = 12;
  EXPECT_EQ(page_.slot_of(3), 2u);
  EXPECT_EQ(page_.held(), 42u);
  EXPECT_EQ(bytes_of_others(mapping_, 5), 30u);
  page_.take_back(3);
  page_.take_back(3);
  EXPECT_EQ(page_.slot_of(3), std::nullopt);
  EXPECT_EQ(page_.held(), 12u);
  EXPECT_TRUE(page_.give(5000));
  EXPECT_EQ(slots()[2].bytes, 0u) << "nothing of the former job";
}

TEST_F(MemoryPageTest, IsFoundAgainByASuccessor) {
  ASSERT_TRUE(page_.give(11) && page_.give(12));
  slots()[1].bytes = 99;
  auto successor = MemoryPage::adopt(copy_of(page_.descriptor()));
  ASSERT_TRUE(successor) << successor.error().text();
  EXPECT_EQ(successor->uid(), 1001u);
  EXPECT_EQ(successor->held(), 0u) << "no job of its own yet";
  EXPECT_TRUE(successor->find_again(12));
  EXPECT_FALSE(successor->find_again(12)) << "one slot is not two jobs'";
  EXPECT_FALSE(successor->find_again(13));
  EXPECT_EQ(successor->held(), 99u);
  EXPECT_TRUE(successor->give(14));
  EXPECT_EQ(successor->slot_of(14), 0u) << "a job that did not come is nobody's";
}

// Goal:   whatever an engine writes there, sums are sums and the supervisor goes on.
TEST_F(MemoryPageTest, BearsAnythingThatAnEngineWrites) {
  ASSERT_TRUE(page_.give(1) && page_.give(2) && page_.give(3));
  std::memset(static_cast<void*>(slots()), 0xff, kMemorySlots * sizeof(MemoryPage::Slot));
  EXPECT_EQ(page_.held(), kManyBytes);
  EXPECT_EQ(bytes_of_others(mapping_, 0), kManyBytes);
  page_.take_back(2);
  EXPECT_EQ(slots()[1].bytes, 0u);
  EXPECT_TRUE(page_.give(4));
  EXPECT_EQ(page_.slot_of(4), 1u);
}

TEST_F(MemoryPageTest, RefusesWhatIsNoPage) {
  EXPECT_EQ(MemoryPage::adopt(Descriptor(memfd_create("other", MFD_CLOEXEC))).error().code(),
            Code::kProtocol);
  const auto other = create_memory("other", kMemoryPageBytes, memory_headroom());
  EXPECT_EQ(MemoryPage::adopt(copy_of(*other)).error().code(), Code::kProtocol);
  const auto longer = create_memory("longer", kMemoryPageBytes + 4096, memory_headroom());
  EXPECT_EQ(MemoryPage::adopt(copy_of(*longer)).error().code(), Code::kProtocol);
  static_cast<void>(slots());
  reinterpret_cast<MemoryPage::Header*>(mapping_.writable())->abi_version = 0;
  EXPECT_EQ(MemoryPage::adopt(copy_of(page_.descriptor())).error().code(), Code::kVersion);
}

}  // namespace
}  // namespace muster::shm
