#include "daemon/engine/engine.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::engine {
namespace {

// Goal:   a client that attaches while the engine sleeps is heard with its first command, not at the end of
//         the engine's nap: nobody has armed its ring, so it does not ring the bell.
// Method: an engine by hand lies down; after an attachment its wait is over at once.
TEST(Attach, WakesASleepingEngine) {
  const SteadyClock clock;
  control::JobSpec spec;
  spec.name = "job";
  spec.world = 1;
  spec.mesh = "dp_shard=1";
  spec.epoch = 77;
  spec.workers = 1;
  spec.arena_bytes_max = std::uint64_t{16} << 20;
  spec.segment_bytes = std::uint64_t{2} << 20;
  spec.buffers_max = 4;
  spec.plans_max = 4;
  auto engine = Engine::create(spec, clock, nullptr, Engine::Pooling::kByHand);
  ASSERT_TRUE(engine) << engine.error().text();
  while ((*engine)->run_once() > 0) continue;
  (*engine)->wait(Nanos(0));  // what rang up to here
  ASSERT_TRUE((*engine)->arm());
  ASSERT_TRUE((*engine)->attach(Rank(0), getpid()));
  constexpr Nanos kNap = std::chrono::seconds(60);
  const Instant begin = clock.now();
  (*engine)->wait(kNap);
  EXPECT_LT(clock.now() - begin, kNap / 2);
}

}  // namespace
}  // namespace muster::engine
