// OperationMachine: the states of an operation between nodes at one of them, as a table. operation.hpp tells
// the protocol, and walks.md shows the tables, which are made from these.
#pragma once

#include "api/base/state_table.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::transport::span {

struct OperationMachine {
  using Table = StateTable<OperationMachine>;
  enum class State : std::uint8_t {
    kOpen,            // not all nodes have come to it
    kReady,           // they have, and agree; nothing moves until each has said that it is ready
    kMoving,          // data moves
    kDone,            // the members have their results
    kStopping,        // it has failed before the nodes agreed; the members' memory is still in use
    kStoppingAgreed,  // it has failed after that
    kStopped,         // it has failed, and has nothing to drain; the memory is still in use
    kDraining,        // the outcome is released, and messages are left that have to end
    kDrainingAgreed,
    kPast,  // it has failed, and all its messages have begun
  };
  static constexpr std::array<std::string_view, 10> kStates{
      "open",    "ready",    "moving",           "done", "stopping", "stopping, agreed",
      "stopped", "draining", "draining, agreed", "past"};
  static_assert(kStates.size() == static_cast<std::size_t>(State::kPast) + 1);

  enum class Event : std::uint8_t {
    kAgree,        // all requests are there, and equal; data passes through staging
    kAgreeDirect,  // the same; data goes from and to members
    kDisagree,     // all are there, and differ: so no node has agreed
    kAllReady,
    kMoved,  // all data
    kFail,
    kLeft,     // no worker or message uses the members' memory any more
    kDrained,  // with all nodes
  };
  static constexpr std::array<std::string_view, 8> kEvents{
      "nodes agree", "nodes agree, directly", "nodes disagree",  "all are ready", "all data moved",
      "it fails",    "memory is left",        "all have drained"};
  static_assert(kEvents.size() == static_cast<std::size_t>(Event::kDrained) + 1);

  enum class Action : std::uint8_t {
    kNone,
    kRefuse,   // notes the failure, and tells the nodes that have its request
    kRelease,  // the outcome
  };
  static constexpr std::array<std::string_view, 3> kActions{"-", "refuse", "release"};
  static_assert(kActions.size() == static_cast<std::size_t>(Action::kRelease) + 1);
};

constexpr OperationMachine::Table kOperation = [] {
  using enum OperationMachine::State;
  using E = OperationMachine::Event;
  using A = OperationMachine::Action;
  return OperationMachine::Table(std::to_array<OperationMachine::Table::Rule>({
      {kOpen, E::kAgree, A::kNone, kMoving},
      {kOpen, E::kAgreeDirect, A::kNone, kReady},
      {kOpen, E::kDisagree, A::kRefuse, kStopped},
      {kReady, E::kAllReady, A::kNone, kMoving},
      {kMoving, E::kMoved, A::kRelease, kDone},
      {kOpen, E::kFail, A::kRefuse, kStopping},
      {{kReady, kMoving}, E::kFail, A::kRefuse, kStoppingAgreed},
      {{kDone, kStopping, kStoppingAgreed, kStopped, kDraining, kDrainingAgreed, kPast}, E::kFail, A::kNone},
      {kStopping, E::kLeft, A::kRelease, kDraining},
      {kStoppingAgreed, E::kLeft, A::kRelease, kDrainingAgreed},
      {kStopped, E::kLeft, A::kRelease, kPast},
      {{kStopping, kStoppingAgreed}, E::kDrained, A::kNone, kStopped},
      {{kDraining, kDrainingAgreed}, E::kDrained, A::kNone, kPast},
  }));
}();

}  // namespace muster::transport::span
