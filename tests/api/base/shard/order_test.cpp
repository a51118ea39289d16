#include "api/base/shard/order.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace muster::shard {
namespace {

using Units = std::vector<std::size_t>;

UnitOrder order_of(std::size_t units) {
  Units modules;
  for (std::size_t i = 0; i < units; ++i) modules.push_back(i);
  return UnitOrder(modules);
}

void run(UnitOrder& order, const Units& units) {
  order.begin_step();
  for (const std::size_t unit : units) {
    order.begin(unit);
    order.end(unit);
  }
}

TEST(UnitOrders, PredictNothingInTheFirstStep) {
  UnitOrder order = order_of(3);
  order.begin_step();
  EXPECT_TRUE(order.is_first());
  EXPECT_EQ(order.next(2), Units{});
  order.begin(0);
  EXPECT_FALSE(order.is_first());
  EXPECT_EQ(order.next(2), Units{});
}

TEST(UnitOrders, PredictTheStepBefore) {
  UnitOrder order = order_of(4);
  run(order, {0, 2, 1, 3});
  order.begin_step();
  EXPECT_EQ(order.next(1), Units{}) << "before the first forward";
  order.begin(0);
  EXPECT_EQ(order.next(0), Units{});
  EXPECT_EQ(order.next(1), (Units{2}));
  EXPECT_EQ(order.next(2), (Units{2, 1}));
  EXPECT_EQ(order.next(9), (Units{2, 1, 3}));
  order.begin(2);
  order.begin(1);
  order.begin(3);
  EXPECT_EQ(order.next(1), Units{});
  EXPECT_EQ(order.changes(), 0u);
}

TEST(UnitOrders, PredictNothingInTheRestOfAStepThatChanged) {
  UnitOrder order = order_of(4);
  run(order, {0, 1, 2, 3});
  order.begin_step();
  order.begin(0);
  order.begin(2);
  EXPECT_EQ(order.next(1), Units{});
  order.begin(3);
  EXPECT_EQ(order.next(1), Units{});
  EXPECT_EQ(order.changes(), 1u);
  order.begin_step();
  order.begin(0);
  EXPECT_EQ(order.next(1), (Units{2})) << "the changed step is the one before";
  EXPECT_EQ(order.changes(), 1u);
}

TEST(UnitOrders, CountAStepThatIsShorterOrLonger) {
  UnitOrder order = order_of(3);
  run(order, {0, 1, 2});
  run(order, {0, 1});
  order.begin_step();
  EXPECT_EQ(order.changes(), 1u) << "shorter";
  for (const std::size_t unit : {0, 1, 2}) order.begin(unit);
  EXPECT_EQ(order.changes(), 2u) << "longer";
}

TEST(UnitOrders, KeepWhatTheyKnowOverAStepWithoutForward) {
  UnitOrder order = order_of(2);
  run(order, {0, 1});
  run(order, {});
  order.begin_step();
  order.begin(0);
  EXPECT_EQ(order.next(1), (Units{1}));
  EXPECT_EQ(order.changes(), 0u);
}

TEST(UnitOrders, CountModulesAndNotUnits) {
  UnitOrder order({0, 1, 1, 2, 3});
  run(order, {0, 1, 2, 3, 4});
  order.begin_step();
  order.begin(0);
  EXPECT_EQ(order.next(1), (Units{1, 2}));
  EXPECT_EQ(order.next(2), (Units{1, 2, 3}));
  order.begin(1);
  EXPECT_EQ(order.next(0), (Units{2})) << "of its own module";
  EXPECT_EQ(order.next(1), (Units{2, 3}));
}

TEST(UnitOrders, GoBackFromTheForwardThatEndedLast) {
  UnitOrder order = order_of(4);
  run(order, {0, 1, 2, 3});
  EXPECT_EQ(order.go_back(3, 2), (Units{2, 1}));
  EXPECT_EQ(order.go_back(2, 1), (Units{1}));
  EXPECT_EQ(order.go_back(0, 1), Units{});
}

// A root begins first and ends last, so backward comes to it first.
TEST(UnitOrders, GoBackByTheEndsOfForwards) {
  UnitOrder order = order_of(3);
  order.begin_step();
  order.begin(0);
  for (const std::size_t unit : {1, 2}) {
    order.begin(unit);
    order.end(unit);
  }
  order.end(0);
  EXPECT_EQ(order.go_back(0, 1), (Units{2}));
}

TEST(UnitOrders, GoBackOnceForEachForward) {
  UnitOrder order = order_of(3);
  run(order, {0, 1, 0, 2});
  EXPECT_EQ(order.go_back(0, 2), (Units{1, 0})) << "its second forward";
  EXPECT_EQ(order.go_back(0, 2), Units{}) << "its first";
}

// Goal:   microbatches that each go back at once are not gathered again.
TEST(UnitOrders, GoBackOverNoForwardThatHasGoneBack) {
  UnitOrder order = order_of(2);
  order.begin_step();
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    for (const std::size_t unit : {0, 1}) {
      order.begin(unit);
      order.end(unit);
    }
    EXPECT_EQ(order.go_back(1, 2), (Units{0})) << microbatch;
    EXPECT_EQ(order.go_back(0, 2), Units{}) << microbatch;
  }
}

// Goal:   case F5: several losses go back through one trunk.
TEST(UnitOrders, GoBackAgainWithoutAPrediction) {
  UnitOrder order = order_of(3);
  EXPECT_FALSE(order.can_go_back(1));
  run(order, {0, 1});
  EXPECT_TRUE(order.can_go_back(1));
  EXPECT_FALSE(order.can_go_back(2));
  EXPECT_EQ(order.go_back(1, 1), (Units{0}));
  EXPECT_TRUE(order.can_go_back(1));
  EXPECT_EQ(order.go_back(1, 1), Units{});
  order.begin_step();
  EXPECT_FALSE(order.can_go_back(1));
}

TEST(UnitOrders, NameAUnitOnce) {
  UnitOrder order = order_of(2);
  run(order, {0, 1, 0, 1, 0});
  order.begin_step();
  order.begin(0);
  EXPECT_EQ(order.next(4), (Units{1, 0}));
}

}  // namespace
}  // namespace muster::shard
