#include "daemon/engine/job/engine.hpp"

#include "tests/daemon/engine/engine_fixture.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::engine {
namespace {

// Goal:   a client that attaches while the engine sleeps is heard with its first command, not at the end of
//         the engine's nap: nobody has armed its ring, so it does not ring the bell.
// Method: an engine by hand lies down; after an attachment its wait is over at once.
TEST(Attach, WakesASleepingEngine) {
  const SteadyClock clock;
  auto engine = Engine::create(test::small_job(1), clock, nullptr, Engine::Pooling::kByHand);
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
