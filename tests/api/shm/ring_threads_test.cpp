#include "api/shm/ring.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace muster::shm {
namespace {

#ifdef MUSTER_SANITIZED
constexpr std::uint64_t kCommands = 200000;
#else
constexpr std::uint64_t kCommands = 4000000;
#endif
constexpr std::uint32_t kCapacity = 64;

// A doorbell with the meaning of an edge-triggered eventfd: a ring is never lost and several may fold into
// one. Without a time limit: a lost wake hangs the test, which the suite's limit turns into a failure.
class Doorbell {
 public:
  void ring() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    ++rings_;
    condition_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    condition_.wait(lock, [this] { return rung_; });
    rung_ = false;
  }
  std::uint64_t rings() const { return rings_; }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool rung_ = false;
  std::uint64_t rings_ = 0;
};

// Goal:   nothing is lost, doubled, torn or slept through when both ends run at once, and TSan sees no race.
// Method: the writer gives each command fields derived from its number, pauses now and then so that the
// reader falls
//         asleep, and the reader sleeps whenever it finds nothing.
TEST(RingThreads, DeliverEveryCommandThroughSleepAndWake) {
  std::uint64_t tail = 0, head = 0;
  std::uint32_t engine_asleep = 0;
  std::vector<std::uint64_t> slots(kCapacity * SlotWords<Command>::kCount);
  Doorbell doorbell;

  std::thread client([&] {
    RingWriter<> writer({&tail, slots.data(), &head, &engine_asleep}, kCapacity);
    for (std::uint64_t i = 0; i < kCommands; ++i) {
      Command command;
      command.kind = CommandKind::kSignal;
      command.lane = static_cast<std::uint16_t>(i);
      command.plan = i;
      command.waits[0] = i * 3;
      command.waits[3] = ~i;
      command.deadline_ns = i ^ 0x5555;
      while (writer.push(command) == Code::kBusy) std::this_thread::yield();
      if (writer.doorbell_due()) doorbell.ring();
      if (i % 1024 == 0) std::this_thread::yield();
    }
  });

  RingReader<> reader({&tail, slots.data(), &head, &engine_asleep}, kCapacity);
  std::array<Command, 16> batch;
  std::uint64_t next = 0, wrong = 0, naps = 0;
  while (next < kCommands) {
    const auto taken = reader.drain(batch);
    ASSERT_TRUE(taken) << taken.error().text();
    for (std::size_t i = 0; i < *taken; ++i, ++next) {
      const Command& c = batch[i];
      wrong += c.plan != next || c.lane != static_cast<std::uint16_t>(next) || c.waits[0] != next * 3 ||
               c.waits[3] != ~next || c.deadline_ns != (next ^ 0x5555);
    }
    if (*taken > 0) continue;
    ++naps;
    if (reader.try_sleep()) {
      doorbell.wait();
      reader.awake();
    }
  }
  client.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(doorbell.rings(), naps) << "a nap is rung for once at most";
}

}  // namespace
}  // namespace muster::shm
