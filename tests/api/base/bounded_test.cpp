#include "api/base/bounded.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace muster {
namespace {

TEST(BoundedVector, RefusesOneMoreThanItsCapacity) {
  BoundedVector<int, 3> vector;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(vector.push_back(i));
  EXPECT_FALSE(vector.push_back(3));
  EXPECT_EQ(vector.size(), 3U);
  EXPECT_EQ(std::accumulate(vector.begin(), vector.end(), 0), 0 + 1 + 2);
  EXPECT_TRUE((BoundedVector<int, 0>().empty()));
}

// Goal: a value ends when it is removed, not when its place is taken again or the vector dies.
TEST(BoundedVector, EndsValuesThatAreRemoved) {
  const auto watched = std::make_shared<int>(1);
  BoundedVector<std::shared_ptr<int>, 4> vector;
  ASSERT_TRUE(vector.push_back(watched));
  ASSERT_TRUE(vector.push_back(watched));
  ASSERT_TRUE(vector.push_back(watched));
  vector.pop_back();
  EXPECT_EQ(watched.use_count(), 3);
  vector.clear();
  EXPECT_EQ(watched.use_count(), 1);
  EXPECT_TRUE(vector.empty());
}

TEST(BoundedVectorDeathTest, AssertsOnAWrongIndex) {
  BoundedVector<int, 2> vector;
  ASSERT_TRUE(vector.push_back(1));
  EXPECT_DEATH(vector[1] = 0, "assertion failed: i < size_");
  vector.pop_back();
  EXPECT_DEATH(vector.pop_back(), "assertion failed: size_ > 0");
}

// Method: random pushes and pops against std::deque, across many wraps of the storage.
TEST(BoundedQueue, AgreesWithADequeAcrossWraps) {
  constexpr std::uint32_t kSeed = 20240607;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  BoundedQueue<int> queue(5);
  std::deque<int> model;
  for (int step = 0; step < 2000; ++step) {
    if (random() % 2 == 0) {
      EXPECT_EQ(queue.push(step), model.size() < 5);
      if (model.size() < 5) model.push_back(step);
    } else if (!model.empty()) {
      ASSERT_EQ(queue.front(), model.front());
      queue.pop();
      model.pop_front();
    }
    ASSERT_EQ(queue.size(), model.size());
    ASSERT_EQ(queue.full(), model.size() == 5);
    for (std::size_t i = 0; i < model.size(); ++i) ASSERT_EQ(queue[i], model[i]) << "step " << step;
  }
}

TEST(BoundedQueue, EndsAValueWhenItIsPopped) {
  const auto watched = std::make_shared<int>(1);
  BoundedQueue<std::shared_ptr<int>> queue(2);
  ASSERT_TRUE(queue.push(watched));
  queue.pop();
  EXPECT_EQ(watched.use_count(), 1);
}

TEST(BoundedQueue, OfNoCapacityIsFullAndEmpty) {
  BoundedQueue<int> queue(0);
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(queue.full());
  EXPECT_FALSE(queue.push(1));
}

TEST(BoundedQueueDeathTest, AssertsOnTakingFromNothing) {
  BoundedQueue<int> queue(1);
  EXPECT_DEATH(queue.pop(), "assertion failed: size_ > 0");
  EXPECT_DEATH(queue.front() = 1, "assertion failed: size_ > 0");
}

TEST(SlotMap, FindsWhatWasInserted) {
  SlotMap<std::string> map(2);
  const auto a = map.insert("a");
  const auto b = map.insert("b");
  ASSERT_TRUE(a && b);
  EXPECT_EQ(*map.find(*a), "a");
  EXPECT_EQ(*map.find(*b), "b");
  EXPECT_EQ(map.size(), 2U);
  EXPECT_EQ(map.insert("c"), std::nullopt);
  EXPECT_EQ(map.capacity(), 2U);
}

TEST(SlotMap, RefusesAHandleWhoseValueIsGone) {
  SlotMap<int> map(1);
  const Handle old = *map.insert(1);
  EXPECT_TRUE(map.erase(old));
  EXPECT_EQ(map.find(old), nullptr);
  EXPECT_FALSE(map.erase(old)) << "erased twice";

  const Handle fresh = *map.insert(2);
  EXPECT_EQ(fresh.slot(), old.slot());
  EXPECT_EQ(map.find(old), nullptr) << "the slot is reused, the name is not";
  EXPECT_FALSE(map.erase(old));
  EXPECT_EQ(*map.find(fresh), 2);
  EXPECT_EQ(map.size(), 1U);
}

// Goal: no bit pattern but the live handle's own reaches a value.
TEST(SlotMap, RefusesForgedHandles) {
  SlotMap<int> map(3);
  const Handle live = *map.insert(1);
  EXPECT_EQ(map.find(Handle()), nullptr);
  EXPECT_EQ(map.find(Handle(live.slot(), 0)), nullptr);
  EXPECT_EQ(map.find(Handle(live.slot(), live.generation() + 1)), nullptr);
  EXPECT_EQ(map.find(Handle(3, live.generation())), nullptr) << "slot beyond the capacity";
  EXPECT_EQ(map.find(Handle(0xFFFF, Handle::kGenerationMask)), nullptr);
  EXPECT_EQ(map.find(Handle(1, 1)), nullptr) << "a slot that was never used";
  for (int bit = 0; bit < 64; ++bit)
    EXPECT_EQ(map.find(Handle(live.bits ^ (std::uint64_t{1} << bit))), nullptr) << "bit " << bit;
  EXPECT_NE(map.find(live), nullptr);
}

// Method: random inserts and erases against a map; all handles ever given are tried after each step.
TEST(SlotMap, AcceptsExactlyTheLiveHandlesOfALongLife) {
  constexpr std::uint32_t kSeed = 7;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  SlotMap<int> map(4);
  std::map<Handle, int> live;
  std::set<Handle> given;
  for (int step = 0; step < 600; ++step) {
    if (random() % 2 == 0) {
      const auto handle = map.insert(step);
      ASSERT_EQ(handle.has_value(), live.size() < 4);
      if (handle) {
        ASSERT_TRUE(given.insert(*handle).second) << "a handle was given twice";
        live[*handle] = step;
      }
    } else if (!live.empty()) {
      const auto victim = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      ASSERT_TRUE(map.erase(victim->first));
      live.erase(victim);
    }
    for (const Handle handle : given) {
      const int* found = map.find(handle);
      const auto expected = live.find(handle);
      ASSERT_EQ(found != nullptr, expected != live.end());
      if (found != nullptr) {
        ASSERT_EQ(*found, expected->second);
      }
    }
  }
}

TEST(SlotMap, VisitsLiveValuesInSlotOrder) {
  SlotMap<int> map(3);
  const Handle a = *map.insert(10);
  const Handle b = *map.insert(20);
  const Handle c = *map.insert(30);
  EXPECT_TRUE(map.erase(b));
  std::vector<std::pair<Handle, int>> seen;
  map.for_each([&](Handle handle, int& value) { seen.emplace_back(handle, value); });
  EXPECT_EQ(seen, (std::vector<std::pair<Handle, int>>{{a, 10}, {c, 30}}));
}

TEST(SlotMap, NamesEverySlotOfTheLargestMap) {
  SlotMap<char> map(65536);
  Handle last;
  for (int i = 0; i < 65536; ++i) last = *map.insert('x');
  EXPECT_EQ(last.slot(), 65535);
  EXPECT_NE(map.find(last), nullptr);
  EXPECT_EQ(map.insert('y'), std::nullopt);
}

TEST(SlotMapDeathTest, AssertsOnACapacityThatHandlesCannotName) {
  EXPECT_DEATH(SlotMap<int>(65537), "assertion failed: capacity > 0");
  EXPECT_DEATH(SlotMap<int>(0), "assertion failed: capacity > 0");
}

}  // namespace
}  // namespace muster
