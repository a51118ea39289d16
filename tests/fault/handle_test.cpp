// T-04: a handle outlives what it named harmlessly, however often its slot is used again.
#include "api/base/bounded.hpp"

#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/fault/rounds.hpp"

#include <random>
#include <set>

namespace muster {
namespace {

using shm::MessageKind;

// Goal:   none of a million returned handles opens anything again, in its own table or in another of the same
//         shape.
TEST(OldHandles, OpenNothing) {
  constexpr std::size_t kSlots = 64;
  const int uses = test::rounds(1'000'000);
  SlotMap<int> mine(kSlots), another(kSlots);
  for (std::size_t i = 0; i < kSlots / 2; ++i) ASSERT_TRUE(another.insert(-1));
  std::set<std::uint64_t> theirs;
  another.for_each([&](Handle handle, int) { theirs.insert(handle.bits); });
  std::vector<Handle> old;
  old.reserve(static_cast<std::size_t>(uses));
  std::vector<Handle> live;
  std::mt19937_64 random(4);
  for (int use = 0; use < uses; ++use) {
    if (live.size() == kSlots || (!live.empty() && random() % 2 == 0)) {
      std::swap(live[random() % live.size()], live.back());
      ASSERT_TRUE(mine.erase(live.back()));
      old.push_back(live.back());
      live.pop_back();
    }
    const auto handle = mine.insert(use);
    ASSERT_TRUE(handle);
    live.push_back(*handle);
  }
  ASSERT_GT(old.size(), static_cast<std::size_t>(uses) / 4);
  for (const Handle handle : old) {
    ASSERT_EQ(mine.find(handle), nullptr);
    ASSERT_FALSE(mine.erase(handle));
    // The numbers of two tables may coincide: then they name the other's own value, and nothing of this one.
    if (theirs.contains(handle.bits)) continue;
    ASSERT_EQ(another.find(handle), nullptr);
  }
  for (const Handle handle : live) EXPECT_NE(mine.find(handle), nullptr);
}

class OldHandlesOfAClient : public engine::test::EngineTest {};

// Goal:   the engine takes no old handle of buffers and plans, from their owner or from another rank.
TEST_F(OldHandlesOfAClient, AreStaleForEverybody) {
  engine::Session& mine = attach(0);
  engine::Session& another = attach(1);
  std::vector<std::uint64_t> old;
  for (int use = 0; use < test::rounds(2000); ++use) {
    shm::BufferAlloc request;
    request.bytes = 64;
    ASSERT_EQ(ask(mine, request, MessageKind::kBufferAlloc), MessageKind::kBufferGrant);
    shm::HandleMessage named;
    named.handle = answered<shm::BufferGrant>().buffer;
    ASSERT_EQ(ask(mine, named, MessageKind::kBufferFree), MessageKind::kDone);
    old.push_back(named.handle);
  }
  for (const std::uint64_t handle : old) {
    shm::HandleMessage named;
    named.handle = handle;
    for (engine::Session* session : {&mine, &another})
      for (const MessageKind kind : {MessageKind::kBufferFree, MessageKind::kPlanDestroy}) {
        ASSERT_EQ(ask(*session, named, kind), MessageKind::kFailure) << handle;
        ASSERT_EQ(answered<shm::Failure>().status, MUSTER_ERR_STALE) << handle;
      }
  }
}

}  // namespace
}  // namespace muster
