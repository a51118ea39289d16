#include "daemon/engine/memory/memory_account.hpp"

#include "api/shm/message.hpp"
#include "daemon/engine/memory/counted_device.hpp"
#include "kernels/device/registry.hpp"
#include "tests/daemon/engine/engine_fixture.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MemoryAccountTest : public ::testing::Test {
 protected:
  std::shared_ptr<MemoryAccount> account(std::uint64_t job) {
    EXPECT_TRUE(page_.give(job));
    return *MemoryAccount::attach(page_.descriptor(), *page_.slot_of(job));
  }
  shm::MemoryPage page_ = *shm::MemoryPage::create(1001, 0, 7, shm::memory_headroom());
};

TEST_F(MemoryAccountTest, ChargesUpToTheLimitOfAllJobsOfTheUser) {
  page_.set_limits({.share = 100, .limit = 100});
  const auto first = account(1);
  const auto second = account(2);
  auto most = MemoryAccount::charge(first, 60);
  ASSERT_TRUE(most);
  auto rest = MemoryAccount::charge(second, 40);
  ASSERT_TRUE(rest);
  EXPECT_EQ(page_.held(), 100u);
  EXPECT_FALSE(MemoryAccount::charge(first, 1));
  EXPECT_FALSE(MemoryAccount::charge(second, UINT64_MAX)) << "no sum goes round";
  EXPECT_EQ(page_.held(), 100u) << "what was refused is not held";
  *rest = MemoryCharge();
  EXPECT_EQ(page_.held(), 60u);
  EXPECT_TRUE(MemoryAccount::charge(second, 40));
  EXPECT_EQ(page_.held(), 60u) << "given back at once";
  page_.set_limits({.share = 100, .limit = 50});
  EXPECT_FALSE(MemoryAccount::charge(second, 1)) << "more is held than may be now";
}

// Goal:   only what the owner's other jobs could make room for counts as a shortage.
TEST_F(MemoryAccountTest, TellsAShortageFromWhatNeverFits) {
  page_.set_limits({.share = 100, .limit = 100});
  const auto idle = account(1), own = account(2);
  const auto left_behind = MemoryAccount::charge(idle, 60);
  const auto held = MemoryAccount::charge(own, 30);
  EXPECT_EQ(own->take_shortage(), 0u);
  EXPECT_FALSE(MemoryAccount::charge(own, 101));
  EXPECT_EQ(own->take_shortage(), 0u) << "more than the share";
  EXPECT_FALSE(MemoryAccount::charge(own, 71));
  EXPECT_EQ(own->take_shortage(), 0u) << "more than the share, with what this job holds";
  EXPECT_FALSE(MemoryAccount::charge(own, 70));
  EXPECT_EQ(own->take_shortage(), 70u);
  EXPECT_EQ(own->take_shortage(), 0u) << "told once";
}

TEST_F(MemoryAccountTest, SaysWhoseLimitItIsAndWhoMayRaiseIt) {
  const auto own = account(1);
  page_.set_limits({.share = 100, .limit = 100});
  const auto kept = MemoryAccount::charge(own, 90);
  const Status share = MemoryAccount::charge(own, 20).error();
  EXPECT_EQ(share.code(), Code::kNoResource);
  EXPECT_THAT(share.message(),
              AllOf(HasSubstr("20 more bytes do not fit"), HasSubstr("user 1001 hold 90 and may hold 100"),
                    HasSubstr("limits.memory_per_user_max"), HasSubstr("(root or user 7) to raise it")));
  page_.set_limits({.share = 100, .limit = 95});
  EXPECT_THAT(MemoryAccount::charge(own, 20).error().message(),
              AllOf(HasSubstr("limits.memory_max"), HasSubstr("may hold 95")));
  auto roots = *shm::MemoryPage::create(0, 0, 7, shm::memory_headroom());
  ASSERT_TRUE(roots.give(1));
  EXPECT_THAT(
      MemoryAccount::charge(*MemoryAccount::attach(roots.descriptor(), 0), 1).error().message(),
      AllOf(HasSubstr("limits.memory_max"), HasSubstr("or raise it"), Not(HasSubstr("administrator"))));
}

TEST_F(MemoryAccountTest, CountsNothingWithoutAPage) {
  EXPECT_TRUE(MemoryAccount::charge(nullptr, UINT64_MAX));
}

TEST_F(MemoryAccountTest, RefusesWhatIsNoPageOrNoSlot) {
  const auto other = shm::create_memory("other", shm::kMemoryPageBytes, shm::memory_headroom());
  EXPECT_EQ(MemoryAccount::attach(*other, 0).error().code(), Code::kProtocol);
  EXPECT_EQ(MemoryAccount::attach(page_.descriptor(), shm::kMemorySlots).error().code(), Code::kProtocol);
}

// The bytes of all memory files of ours in this process; a file that grows counts as far as it is reserved.
std::uint64_t memory_files() {
  std::map<ino_t, std::uint64_t> bytes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    struct stat facts {};
    if (target.starts_with("/memfd:muster-") && stat(entry.path().c_str(), &facts) == 0)
      bytes[facts.st_ino] = std::min<std::uint64_t>(facts.st_size, facts.st_blocks * 512);
  }
  std::uint64_t sum = 0;
  for (const auto& [file, size] : bytes) sum += size;
  return sum;
}

// Goal:   a job counts for what it has of memory, to the byte: no guess.
// Method: the memory files of an engine with all its ranks, groups and some buffers.
TEST_F(MemoryAccountTest, IsChargedWithAllThatAJobIsMadeOf) {
  page_.set_limits({.share = 1u << 30, .limit = 1u << 30});
  const auto own = account(1);
  const SteadyClock clock;
  const std::uint64_t before = memory_files();
  {
    auto made = Engine::create(test::small_job(3), clock, nullptr, Engine::Pooling::kByHand, own);
    ASSERT_TRUE(made) << made.error().text();
    Engine& engine = **made;
    const std::uint64_t base = page_.held();
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      const auto attached = engine.attach(Rank(rank), getpid());
      ASSERT_TRUE(attached) << attached.error().text();
      EXPECT_EQ(page_.held(), base) << "sessions were made room for";
    }
    EXPECT_EQ(page_.held(), memory_files() - before);
  }
  EXPECT_EQ(page_.held(), 0u) << "it has gone with all";
}

// Goal:   nothing in an engine is sized by the world but lists of members.
// Method: four local ranks of 1,024, in a mesh of five dims, beside a job of four; shared memory, and the
//         heap where the allocator counts it.
TEST_F(MemoryAccountTest, HoldsForAJobOfManyNodesWhatItsOwnRanksNeed) {
  constexpr std::uint32_t kRanks = 1024;
  page_.set_limits({.share = 1u << 30, .limit = 1u << 30});
  const auto own = account(1);
  const SteadyClock clock;
  struct Bytes {
    std::uint64_t shared = 0, heap = 0;
  };
  const auto held_by = [&](const control::JobSpec& spec) {
    const std::uint64_t before = mallinfo2().uordblks;
    auto engine = Engine::create(spec, clock, nullptr, Engine::Pooling::kByHand, own);
    EXPECT_TRUE(engine) << engine.error().text();
    for (const Rank rank : spec.world.locals()) {
      EXPECT_TRUE((*engine)->attach(rank, getpid()));
    }
    return Bytes{page_.held(), mallinfo2().uordblks - before};
  };
  control::JobSpec spec = test::small_job(4);
  spec.mesh = "dp_shard=2,tp=2";
  const Bytes few = held_by(spec);
  std::vector<std::string> nodes;
  std::vector<std::uint32_t> node_of;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    node_of.push_back(rank / 4);
    if (rank % 4 == 0) nodes.push_back("node" + std::to_string(rank / 4));
  }
  spec.world = *World::build(nodes, node_of, NodeIndex(7));
  spec.mesh = "pp=4,dp_replicate=4,dp_shard=8,cp=2,tp=4";
  const Bytes many = held_by(spec);
  EXPECT_LE(many.shared, 2 * few.shared);
  EXPECT_GT(few.shared, std::uint64_t{4} << 20) << "else this test compares nothing";
#ifndef MUSTER_SANITIZED
  EXPECT_LE(many.heap, 2 * few.heap);
#endif
}

TEST_F(MemoryAccountTest, RefusesAJobThatIsMadeOfTooMuch) {
  page_.set_limits({.share = 1u << 20, .limit = 1u << 20});
  const auto own = account(1);
  const SteadyClock clock;
  const auto refused = Engine::create(test::small_job(64), clock, nullptr, Engine::Pooling::kByHand, own);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kNoResource);
  EXPECT_THAT(refused.error().message(), HasSubstr("limits.memory_per_user_max"));
  EXPECT_EQ(page_.held(), 0u);
}

// Goal:   a rank's buffers count as they grow, and a failed one never did.
TEST_F(MemoryAccountTest, IsChargedWithBuffers) {
  page_.set_limits({.share = 1u << 30, .limit = 1u << 30});
  const auto own = account(1);
  const SteadyClock clock;
  const std::uint64_t before = memory_files();
  auto engine = Engine::create(test::small_job(1), clock, nullptr, Engine::Pooling::kByHand, own);
  ASSERT_TRUE(engine) << engine.error().text();
  const auto attached = (*engine)->attach(Rank(0), getpid());
  ASSERT_TRUE(attached) << attached.error().text();
  const auto alloc = [&](std::uint64_t bytes, const char* name) {
    shm::BufferAlloc request{};
    request.bytes = bytes;
    EXPECT_TRUE(shm::set_text(request.name, name, "name").ok());
    shm::BufferGrant grant{};
    int descriptor = -1;
    return (*engine)->buffers().alloc(*attached->session, request, -1, &grant, &descriptor);
  };
  for (const char* name : {"", "named"}) {
    const auto made = alloc(100'000, name);
    ASSERT_TRUE(made) << made.error().text();
    EXPECT_EQ(page_.held(), memory_files() - before) << name;
  }
  const std::uint64_t full = page_.held();
  page_.set_limits({.share = full, .limit = full});
  const auto refused = alloc(6 << 20, "");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("limits.memory_per_user_max"));
  EXPECT_EQ(page_.held(), full);
}

// Goal:   the rest of the share is given out, also where an arena would rather grow by more.
TEST_F(MemoryAccountTest, LetsAnArenaHaveTheLastOfIt) {
  constexpr std::uint64_t kMiB = 1u << 20;
  page_.set_limits({.share = 11 * kMiB, .limit = 11 * kMiB});
  const auto pool = device::Pool::open_manual({});
  CountedDevice device(*device::open({}, *pool), CountedDevice::Bound({16, 512}, account(1)));
  Arena arena(device, {.bytes_max = 64 * kMiB, .segment_bytes = 8 * kMiB});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(arena.allocate(2 * kMiB)) << i;
  EXPECT_EQ(page_.held(), 10 * kMiB);
  const auto refused = arena.allocate(2 * kMiB);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("2097152 more bytes do not fit"))
      << "of what was asked for";
}

}  // namespace
}  // namespace muster::engine
