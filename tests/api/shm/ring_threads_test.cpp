#include "api/shm/ring.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace muster::shm {
namespace {

#ifdef MUSTER_SANITIZED
constexpr std::uint64_t kCommands = 200000;
#else
constexpr std::uint64_t kCommands = 1000000;
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
//         reader falls asleep, and the reader sleeps whenever it finds nothing.
TEST(RingThreads, DeliverEveryCommandThroughSleepAndWake) {
  std::uint64_t tail = 0, head = 0;
  std::uint32_t engine_asleep = 0;
  std::vector<std::uint64_t> slots(kCapacity * SlotWords<Command>::kCount);
  Doorbell doorbell;

  std::thread client([&] {
    RingWriter<> writer({&tail, slots.data(), &head, &engine_asleep}, kCapacity);
    for (std::uint64_t i = 0; i < kCommands; ++i) {
      Command command;
      command.kind = Command::Kind::kSignal;
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

// Goal:   a client that scribbles over its ring while the engine reads it gets a protocol error and nothing
//         else.
// Method: one thread writes random words everywhere a client can; the reader starts anew after each error.
//         The words are atomic, so that TSan would report any access of the reader's that is not.
TEST(RingThreads, SurviveAClientThatScribbles) {
  std::uint64_t tail = 0, head = 0;
  std::uint32_t engine_asleep = 0;
  std::vector<std::uint64_t> slots(kCapacity * SlotWords<Command>::kCount);
  std::atomic<bool> done{false};
  const std::uint64_t seed = 11;
  std::thread client([&] {
    std::mt19937_64 random(seed);
    while (!done.load(std::memory_order::relaxed)) {
      const std::uint64_t value = random();
      Published<std::uint64_t>(&slots[value % slots.size()])
          .store(value % 3 == 0 ? value : value % (2 * kCapacity));
      if (value % 7 == 0)
        Published<std::uint64_t>(&tail).store(value % 5 == 0 ? value : value % (2 * kCapacity));
    }
  });
  std::array<Command, 16> batch;
  std::uint64_t wrong = 0;
  // Until enough errors were seen: how many turns that takes is the scheduler's affair.
  for (int errors = 0; errors < 5000; ++errors) {
    RingReader<> reader({&tail, slots.data(), &head, &engine_asleep}, kCapacity);
    for (bool broken = false; !broken;) {
      const auto result = reader.drain(batch);
      broken = !result;
      wrong += broken ? result.error().code() != Code::kProtocol : *result > batch.size();
      if (!broken && *result == 0) std::this_thread::yield();
    }
  }
  done.store(true);
  client.join();
  EXPECT_EQ(wrong, 0u) << "seed " << seed;
}

}  // namespace
}  // namespace muster::shm
