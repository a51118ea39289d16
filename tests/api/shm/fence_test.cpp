#include "api/shm/fence.hpp"

#include "api/shm/untrusted.hpp"

#include <atomic>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

namespace muster::shm {
namespace {

constexpr std::uint64_t kRounds = 20'000;

// Two threads that leave it as close together as cores can.
class Gate {
 public:
  void pass(std::uint64_t round) {
    arrived_.fetch_add(1);
    for (int looks = 0; arrived_.load() < 2 * round; ++looks)
      if (looks > 100'000) std::this_thread::yield();
  }

 private:
  std::atomic<std::uint64_t> arrived_{0};
};

// Goal:   at least one of a light and a heavy side sees the other's store, each time.
// Method: both store and look at once, round after round. With no fence at all about one round in a hundred
//         sees neither, on x86.
TEST(Fence, LightAndHeavySideNeverMissEachOther) {
  alignas(64) std::uint64_t published = 0;
  alignas(64) std::uint64_t asleep = 0;
  std::uint64_t light_saw = 0;
  std::uint64_t missed = 0;
  const bool enrolled = enrol_for_fences();
  Gate begin;
  Gate end;
  std::thread other([&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      begin.pass(round);
      Published<std::uint64_t>(&published).store_release(round);
      light_fence(enrolled);
      light_saw = Untrusted<std::uint64_t>(&asleep).load();
      end.pass(round);
    }
  });
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    begin.pass(round);
    Published<std::uint64_t>(&asleep).store(round);
    heavy_fence();
    const std::uint64_t heavy_saw = Untrusted<std::uint64_t>(&published).load_acquire();
    end.pass(round);
    missed += light_saw != round && heavy_saw != round ? 1 : 0;
  }
  other.join();
  EXPECT_EQ(missed, 0u);
}

TEST(Fence, EnrolsOnce) {
  EXPECT_EQ(enrol_for_fences(), enrol_for_fences());
}

}  // namespace
}  // namespace muster::shm
