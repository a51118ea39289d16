#include "api/base/spsc_queue.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

namespace muster {
namespace {

TEST(SpscQueue, GivesInTheOrderInWhichItTook) {
  SpscQueue<int> queue(3);
  EXPECT_TRUE(queue.empty());
  for (int round = 0; round < 5; ++round) {
    EXPECT_TRUE(queue.push(10 * round));
    EXPECT_TRUE(queue.push(10 * round + 1));
    EXPECT_EQ(queue.front(), 10 * round);
    queue.pop();
    EXPECT_EQ(queue.front(), 10 * round + 1);
    queue.pop();
    EXPECT_TRUE(queue.empty());
  }
}

TEST(SpscQueue, TakesAsManyAsItHolds) {
  SpscQueue<int> queue(2);
  EXPECT_TRUE(queue.push(1));
  EXPECT_TRUE(queue.push(2));
  EXPECT_TRUE(queue.full());
  EXPECT_FALSE(queue.push(3));
  queue.pop();
  EXPECT_TRUE(queue.push(4)) << "what was refused left no trace";
  queue.pop();
  EXPECT_EQ(queue.front(), 4);
}

TEST(SpscQueue, OfNoRoomIsAlwaysFull) {
  SpscQueue<int> queue(0);
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(queue.full());
  EXPECT_FALSE(queue.push(1));
}

TEST(SpscQueue, CountsItsPositions) {
  SpscQueue<int> queue(4);
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(queue.pushed(), i);
    EXPECT_EQ(queue.popped(), i);
    ASSERT_TRUE(queue.push(1));
    queue.pop();
  }
}

// Goal:   the consumer sees all writes before a push, and a place is not used again too early.
TEST(SpscQueue, HandsOverBetweenTwoThreads) {
  struct Value {
    std::uint64_t number;
    const std::uint64_t* written;
  };
  constexpr std::uint64_t kValues = 5'000;
  static std::uint64_t written[kValues];
  SpscQueue<Value> queue(7);
  std::thread putter([&queue] {
    for (std::uint64_t i = 0; i < kValues; ++i) {
      written[i] = i * i;
      while (!queue.push({i, &written[i]})) std::this_thread::yield();
    }
  });
  for (std::uint64_t i = 0; i < kValues; ++i) {
    while (queue.empty()) std::this_thread::yield();
    const Value value = queue.front();
    queue.pop();
    EXPECT_EQ(value.number, i);
    EXPECT_EQ(*value.written, i * i);
  }
  putter.join();
}

}  // namespace
}  // namespace muster
