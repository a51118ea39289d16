#include "api/base/state_table.hpp"

#include "tests/support/state_tables.hpp"

#include <array>
#include <cstdint>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

struct Door {
  enum class State : std::uint8_t { kShut, kAjar, kOpen };
  static constexpr std::array<std::string_view, 3> kStates{"shut", "ajar", "open"};
  enum class Event : std::uint8_t { kPush, kKnock };
  static constexpr std::array<std::string_view, 2> kEvents{"push", "knock"};
  enum class Action : std::uint8_t { kNone, kCall };
  static constexpr std::array<std::string_view, 2> kActions{"-", "call"};
};
using DoorTable = StateTable<Door>;
using State = Door::State;
using Event = Door::Event;

constexpr DoorTable kDoor(std::to_array<DoorTable::Rule>({
                              {{State::kShut, State::kAjar}, Event::kPush, Door::Action::kNone, State::kOpen},
                          }),
                          std::to_array<DoorTable::Rule>({
                              {State::kShut, Event::kKnock, Door::Action::kCall},
                          }));

TEST(StateTable, HasTheCellsOfAllItsRules) {
  ASSERT_NE(kDoor.find(State::kAjar, Event::kPush), nullptr);
  EXPECT_EQ(*kDoor.find(State::kAjar, Event::kPush), (DoorTable::Cell{Door::Action::kNone, State::kOpen}));
  EXPECT_EQ(*kDoor.find(State::kShut, Event::kKnock), (DoorTable::Cell{Door::Action::kCall, {}}));
  EXPECT_EQ(kDoor.find(State::kOpen, Event::kPush), nullptr);
}

TEST(StateTable, DiesOfTwoRulesForOneCell) {
  const auto rules = std::to_array<DoorTable::Rule>({
      {State::kShut, Event::kKnock, Door::Action::kCall},
      {{State::kShut, State::kOpen}, Event::kKnock, Door::Action::kNone},
  });
  EXPECT_DEATH(DoorTable{rules}, "assertion failed");
}

TEST(StateMachine, ChangesItsStateByTheTable) {
  StateMachine<Door> door(kDoor, State::kShut);
  const auto stays = door.take(Event::kKnock);
  ASSERT_TRUE(stays);
  EXPECT_EQ(stays->action, Door::Action::kCall);
  EXPECT_EQ(stays->entered, std::nullopt);
  const auto opens = door.take(Event::kPush);
  ASSERT_TRUE(opens);
  EXPECT_EQ(opens->before, State::kShut);
  EXPECT_EQ(opens->entered, State::kOpen);
  EXPECT_TRUE(door.is({State::kAjar, State::kOpen}));
}

TEST(StateMachine, RefusesAnEventWithoutACellByName) {
  StateMachine<Door> door(kDoor, State::kOpen);
  const auto step = door.take(Event::kKnock);
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().code(), Code::kState);
  EXPECT_EQ(step.error().message(), "state \"open\" has no event \"knock\"");
  EXPECT_EQ(door.state(), State::kOpen);
}

TEST(StateTable, IsShownWithALineForEachEvent) {
  EXPECT_EQ(test::page_of(kDoor),
            "| | shut | ajar |\n"
            "|---|---|---|\n"
            "| push | → **open** | → **open** |\n"
            "| knock | call | |\n");
  EXPECT_THAT(test::reachable(kDoor, State::kShut), ::testing::ElementsAre(State::kShut, State::kOpen));
}

}  // namespace
}  // namespace muster
