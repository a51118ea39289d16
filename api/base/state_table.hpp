// StateTable: a state machine as a table, state x event -> action and next state. StateMachine: a state that
// changes by its table and by nothing else.
//
// A `Machine` is a type with the enums `State`, `Event` and `Action`, which count from 0, and the names of
// their values: `kStates`, `kEvents`, `kActions`. A class that has such a machine gives it the events, and
// carries out the actions. An event for which a state has no cell is refused by name.
#pragma once

#include "api/base/assert.hpp"
#include "api/base/result.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace muster {

// Owns    its cells.
// Thread  a constant; any.
// Bound   64 states.
// Fails   never; two rules for one cell do not compile.
template<class Machine>
class StateTable {
 public:
  using State = typename Machine::State;
  using Event = typename Machine::Event;
  using Action = typename Machine::Action;

  struct Cell {
    Action action{};
    std::optional<State> next;  // nothing: the state stays, and is not entered again
    friend constexpr bool operator==(const Cell&, const Cell&) = default;
  };
  class States {
   public:
    constexpr States(State state) : bits_(bit(state)) {}  // NOLINT(google-explicit-constructor)
    consteval States(std::initializer_list<State> states) {
      for (const State state : states) bits_ |= bit(state);
    }
    constexpr bool contains(State state) const { return (bits_ & bit(state)) != 0; }

   private:
    static constexpr std::uint64_t bit(State state) {
      return std::uint64_t{1} << static_cast<std::size_t>(state);
    }
    std::uint64_t bits_ = 0;
  };
  // A line of the table: what the event does in each of these states.
  struct Rule {
    States from;
    Event event;
    Action action;
    std::optional<State> next{};
  };

  template<class... Rules>
  explicit constexpr StateTable(const Rules&... lists) {
    (add(lists), ...);
  }

  // nullptr: the event is an error in that state.
  constexpr const Cell* find(State state, Event event) const {
    const std::optional<Cell>& cell = cells_[index(state)][index(event)];
    return cell ? &*cell : nullptr;
  }
  constexpr void set(State state, Event event, const std::optional<Cell>& cell) {
    cells_[index(state)][index(event)] = cell;
  }

 private:
  template<class Enum>
  static constexpr std::size_t index(Enum value) {
    return static_cast<std::size_t>(value);
  }
  constexpr void add(const auto& rules) {
    for (const Rule& rule : rules) {
      for (std::size_t i = 0; i < Machine::kStates.size(); ++i) {
        const auto state = static_cast<State>(i);
        if (!rule.from.contains(state)) continue;
        MUSTER_ASSERT(find(state, rule.event) == nullptr);
        set(state, rule.event, Cell{rule.action, rule.next});
      }
    }
  }

  std::array<std::array<std::optional<Cell>, Machine::kEvents.size()>, Machine::kStates.size()> cells_{};
};

// Owns    the state.
// Thread  that of its owner.
// Bound   one state.
// Fails   take: kState, with the names of state and event; nothing changes then.
template<class Machine>
class StateMachine {
 public:
  using Table = StateTable<Machine>;
  using State = typename Table::State;
  struct Step {
    typename Table::Action action{};
    State before{};
    std::optional<State> entered;  // nothing: the state goes on as it was
  };

  // `table` outlives this object.
  constexpr StateMachine(const Table& table, State first) : table_(&table), state_(first) {}

  State state() const { return state_; }
  bool is(typename Table::States states) const { return states.contains(state_); }

  Result<Step> take(typename Table::Event event) {
    const auto* const cell = table_->find(state_, event);
    if (cell == nullptr)
      return fail(Code::kState, "state \"{}\" has no event \"{}\"", name(Machine::kStates, state_),
                  name(Machine::kEvents, event));
    const Step step{cell->action, state_, cell->next};
    state_ = cell->next.value_or(state_);
    return step;
  }

 private:
  static std::string_view name(const auto& names, auto value) {
    return names[static_cast<std::size_t>(value)];
  }

  const Table* table_;
  State state_;
};

}  // namespace muster
