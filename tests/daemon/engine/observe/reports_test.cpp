#include "daemon/engine/observe/reports.hpp"

#include "daemon/engine/job/engine.hpp"
#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/daemon/engine/ring_client.hpp"
#include "tests/support/manual_clock.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace muster::engine {
namespace {

using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// Goal:   a turn in which very many operations pass their deadlines explains some of them, and sends the
//         others' readers to the command that explains all.
// Method: rank 0 comes to none of the pairs that each other rank forms with it; the deadlines of all pass in
//         one turn.
TEST(Reports, ExplainOnlySomeOfTheOperationsThatAreOverdueInOneTurn) {
  constexpr std::uint32_t kWorld = 21;
  constexpr std::size_t kExplained = 16;
  muster::test::ManualClock clock;
  control::JobSpec spec = test::small_job(kWorld);
  spec.workers = 1;
  spec.deadline = std::chrono::seconds(1);
  spec.endpoint = "/tmp/other";
  auto made = Engine::create(spec, clock, nullptr, Engine::Pooling::kByHand);
  ASSERT_TRUE(made) << made.error().text();
  Engine& engine = **made;
  std::vector<std::unique_ptr<test::RingClient>> clients;
  for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
    auto attached = engine.attach(Rank(rank), 1);
    ASSERT_TRUE(attached) << attached.error().text();
    clients.push_back(std::make_unique<test::RingClient>(*attached->session));
  }
  const auto turn = [&] {
    while (engine.run_once() > 0) {
    }
  };
  for (std::uint32_t rank = 1; rank < kWorld; ++rank) {
    const std::array<std::int32_t, 2> pair{0, static_cast<std::int32_t>(rank)};
    shm::PlanCollective barrier;
    barrier.op = MUSTER_BARRIER;
    const auto group = engine.groups().make(clients[rank]->session(), "pair", pair);
    ASSERT_TRUE(group) << group.error().text();
    barrier.group = *group;
    const auto plan = engine.plans().collective(clients[rank]->session(), barrier, {});
    ASSERT_TRUE(plan) << plan.error().text();
    clients[rank]->start(plan->bits, MUSTER_LANE_SMALL);
  }
  turn();
  constexpr Nanos kStep = std::chrono::milliseconds(50);  // a longer pause would be forgiven
  for (Nanos gone{0}; gone <= 2 * spec.deadline; gone += kStep) {
    clock.advance(kStep);
    turn();
  }
  std::vector<std::string> explained;
  std::vector<std::string> others;
  for (std::uint32_t rank = 1; rank < kWorld; ++rank) {
    EXPECT_EQ(clients[rank]->latest(MUSTER_LANE_SMALL), Code::kTimeout);
    const auto failure = clients[rank]->failure(MUSTER_LANE_SMALL);
    ASSERT_TRUE(failure) << failure.error().text();
    (failure->text.find("many deadlines") == std::string::npos ? explained : others).push_back(failure->text);
  }
  EXPECT_EQ(explained.size(), kExplained);
  EXPECT_THAT(explained, Each(HasSubstr("missing rank 0"))) << "as others have it";
  EXPECT_THAT(others, Each(HasSubstr("missing rank 0")));
  EXPECT_THAT(others,
              Each(EndsWith("; many deadlines have passed at once: `muster hang --endpoint /tmp/other "
                            "--job job` says who waits for whom")));
}

}  // namespace
}  // namespace muster::engine
