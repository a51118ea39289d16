#include "api/client/run/plan_cache.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::client {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

std::vector<muster_plan> plans_of(PlanCache& cache) {
  std::vector<muster_plan> plans;
  for (const PlanCache::Entry& entry : cache) plans.push_back(entry.plan);
  return plans;
}

TEST(PlanCache, KeepsPlansInTheOrderOfTheirLastUse) {
  PlanCache cache;
  for (const char* name : {"a", "b", "c"}) cache.insert(name, static_cast<muster_plan>(name[0]));
  EXPECT_THAT(cache.find("a"), Optional(muster_plan{'a'}));
  EXPECT_EQ(cache.find("d"), std::nullopt);
  EXPECT_THAT(plans_of(cache), ElementsAre('b', 'c', 'a'));
  cache.erase(cache.begin());
  EXPECT_EQ(cache.find("b"), std::nullopt);
  EXPECT_THAT(cache.find("c"), Optional(muster_plan{'c'}));
  EXPECT_THAT(plans_of(cache), ElementsAre('a', 'c'));
}

TEST(PlanCache, IsFullAtItsBound) {
  PlanCache cache;
  for (std::size_t i = 0; i < PlanCache::kMax; ++i) {
    EXPECT_FALSE(cache.full());
    cache.insert(std::to_string(i), i + 1);
  }
  EXPECT_TRUE(cache.full());
}

}  // namespace
}  // namespace muster::client
