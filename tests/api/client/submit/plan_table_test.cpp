#include "api/client/submit/plan_table.hpp"

#include <gtest/gtest.h>

namespace muster::client {
namespace {

muster_plan plan_in(std::uint16_t slot, std::uint64_t generation) {
  return Handle(slot, generation).bits;
}

TEST(PlanTable, FindsAPlanByItsWholeHandle) {
  PlanTable table(nullptr);
  const muster_plan former = plan_in(3, 1);
  const muster_plan present = plan_in(3, 2);
  table.add(former);
  table.add(present).last = 7;
  EXPECT_EQ(table.find(former), nullptr);
  EXPECT_EQ(table.find(plan_in(2, 1)), nullptr);
  EXPECT_EQ(table.find(plan_in(9, 1)), nullptr);
  EXPECT_EQ(table.find(0), nullptr);
  ASSERT_NE(table.find(present), nullptr);
  EXPECT_EQ(table.find(present)->last, 7u);
  table.remove(*table.find(present));
  EXPECT_EQ(table.find(present), nullptr);
}

// Goal: the engine waits with a report of a disagreement as long as this word is not 0.
TEST(PlanTable, CountsThePlansOfWhichTheEngineHasNotHeard) {
  shm::DirectHeader header;
  PlanTable table(&header);
  const muster_plan told = plan_in(1, 1);
  const muster_plan destroyed = plan_in(2, 1);
  table.add(told);
  table.add(destroyed);
  table.set_news(*table.find(told), std::vector<shm::Command>(2));
  table.set_news(*table.find(told), std::vector<shm::Command>(1));
  EXPECT_EQ(header.untold, 1u);
  EXPECT_EQ(table.find(told)->news.size(), 1u);
  table.set_news(*table.find(destroyed), std::vector<shm::Command>(1));
  EXPECT_EQ(header.untold, 2u);
  table.clear_news(*table.find(told));
  EXPECT_TRUE(table.find(told)->news.empty());
  table.remove(*table.find(destroyed));
  EXPECT_EQ(header.untold, 0u);
}

}  // namespace
}  // namespace muster::client
