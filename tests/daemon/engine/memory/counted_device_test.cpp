#include "daemon/engine/memory/counted_device.hpp"

#include "daemon/control/descriptor_count.hpp"
#include "kernels/device/registry.hpp"

#include <algorithm>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace muster::engine {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CountedDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<CountedDevice> device_of(std::uint64_t memories) {
    pool_ = device::Pool::open_manual({});
    auto host = device::open({}, *pool_);
    EXPECT_TRUE(host) << host.error().text();
    return std::make_unique<CountedDevice>(*std::move(host), CountedDevice::Bound({memories, 512}));
  }

  std::unique_ptr<device::Pool> pool_;
};

// Goal:   segments and imports are counted alike, what is let go counts no more, and a failed one never did.
TEST_F(CountedDeviceTest, RefusesOneMemoryMoreByTheLimitsName) {
  const auto device = device_of(2);
  const int file = memfd_create("import", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(file, 1 << 16), 0);
  EXPECT_FALSE(device->import(file, 0, 1 << 16)) << "it is not sealed";
  ASSERT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);

  auto first = device->allocate(1 << 12);
  auto second = device->import(file, 0, 1 << 16);
  ASSERT_TRUE(first && second) << second.error().text();
  EXPECT_EQ((*second)->bytes(), std::size_t{1} << 16);
  for (const Status& refused : {device->allocate(1).error(), device->import(file, 0, 1 << 16).error()}) {
    EXPECT_EQ(refused.code(), Code::kNoResource);
    EXPECT_THAT(refused.message(), AllOf(HasSubstr("2 descriptors"), HasSubstr("open-files limit of 512"),
                                         HasSubstr("free imported or named buffers")));
  }
  first->reset();
  EXPECT_TRUE(device->import(file, 0, 1 << 16));
  close(file);
}

// Goal:   bytes count for the job's user while any holder has them, also those that the device adds and
//         imports.
TEST_F(CountedDeviceTest, ChargesItsMemoriesToTheAccount) {
  auto page = *shm::MemoryPage::create(1001, 0, 7, shm::memory_headroom());
  page.set_limits({.share = 1u << 20, .limit = 1u << 20});
  ASSERT_TRUE(page.give(1));
  pool_ = device::Pool::open_manual({});
  const auto device = std::make_unique<CountedDevice>(
      *device::open({}, *pool_),
      CountedDevice::Bound({8, 512}, *MemoryAccount::attach(page.descriptor(), 0)));
  const int file = memfd_create("import", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(file, 1 << 16), 0);
  EXPECT_FALSE(device->import(file, 0, 1 << 16)) << "it is not sealed";
  EXPECT_EQ(page.held(), 0u);
  ASSERT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  auto imported = device->import(file, 1 << 12, 1 << 13);
  ASSERT_TRUE(imported) << imported.error().text();
  EXPECT_EQ(page.held(), std::uint64_t{1} << 13) << "the part that is committed";
  auto made = device->allocate(100);
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_EQ(page.held(), (std::uint64_t{1} << 13) + (*made)->bytes());
  const Status refused = device->allocate(1 << 20).error();
  EXPECT_EQ(refused.code(), Code::kNoResource);
  EXPECT_THAT(refused.message(), HasSubstr("limits.memory_per_user_max"));
  made->reset();
  imported->reset();
  EXPECT_EQ(page.held(), 0u);
  close(file);
}

TEST_F(CountedDeviceTest, LeavesWhatTheRanksNeed) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const auto few = CountedDevice::beside(8);
  EXPECT_EQ(few.memories_max,
            limit.rlim_cur - control::kDescriptorsOfProcess - 8 * control::kDescriptorsPerRank);
  EXPECT_EQ(few.open_files, limit.rlim_cur);
  const auto many = static_cast<std::uint32_t>(std::min<std::uint64_t>(limit.rlim_cur, UINT32_MAX));
  EXPECT_EQ(CountedDevice::beside(many).memories_max, many) << "one for each, come what may";
}

}  // namespace
}  // namespace muster::engine
