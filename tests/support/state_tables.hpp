// For the tests of state machines (api/base/state_table.hpp): the table as a page shows it, the states that a
// table knows, and tables with one wrong cell.
#pragma once

#include "api/base/state_table.hpp"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::test {

template<class Enum, class Names>
std::vector<Enum> all_of(const Names& names) {
  std::vector<Enum> all;
  for (std::size_t i = 0; i < names.size(); ++i) all.push_back(static_cast<Enum>(i));
  return all;
}

template<class Machine>
std::vector<typename Machine::Event> events_of() {
  return all_of<typename Machine::Event>(Machine::kEvents);
}

// The states with any cell.
template<class Machine>
std::vector<typename Machine::State> states_of(const StateTable<Machine>& table) {
  auto states = all_of<typename Machine::State>(Machine::kStates);
  std::erase_if(states, [&](auto state) {
    const auto events = events_of<Machine>();
    return std::none_of(events.begin(), events.end(),
                        [&](auto event) { return table.find(state, event) != nullptr; });
  });
  return states;
}

// Every state to which a path leads.
template<class Machine>
std::set<typename Machine::State> reachable(const StateTable<Machine>& table, typename Machine::State from) {
  std::set<typename Machine::State> known{from};
  std::vector<typename Machine::State> open{from};
  while (!open.empty()) {
    const auto state = open.back();
    open.pop_back();
    for (const auto event : events_of<Machine>()) {
      const auto* const cell = table.find(state, event);
      if (cell != nullptr && cell->next && known.insert(*cell->next).second) open.push_back(*cell->next);
    }
  }
  return known;
}

// Lines of Markdown: a line for each event, a column for each state.
template<class Machine>
std::string page_of(const StateTable<Machine>& table) {
  const auto name = [](const auto& names, auto value) {
    return std::string(names[static_cast<std::size_t>(value)]);
  };
  const auto states = states_of(table);
  std::string text = "| |", rule = "|---|";
  for (const auto state : states) {
    text += " " + name(Machine::kStates, state) + " |";
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  for (const auto event : events_of<Machine>()) {
    std::string line = "| " + name(Machine::kEvents, event) + " |";
    bool any = false;
    for (const auto state : states) {
      const auto* const cell = table.find(state, event);
      std::string entry;
      if (cell != nullptr) {
        any = true;
        entry = name(Machine::kActions, cell->action);
        const bool acts = entry != "-";
        if (cell->next)
          entry = (acts ? entry + " " : "") + "→ **" + name(Machine::kStates, *cell->next) + "**";
      }
      line += entry.empty() ? " |" : " " + entry + " |";
    }
    if (any) text += line + "\n";
  }
  return text;
}

// The page, a file below `sources`, shows this table as it is.
template<class Machine>
void expect_on_page(const StateTable<Machine>& table, const std::string& sources, const std::string& page) {
  std::ifstream file(sources + "/" + page);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(text.find(page_of(table)), std::string::npos)
      << page << " does not show this table; write it there:\n"
      << page_of(table);
}

template<class Machine>
struct PlantedTable {
  typename Machine::State state;
  typename Machine::Event event;
  StateTable<Machine> table;
  std::string text;
};

// All tables with one wrong cell in a state that the table knows: the cell is missing, or is there although
// none should be; its action is another; the state goes on, or is another. `none` does nothing, and `some`
// something that can be seen.
template<class Machine>
std::vector<PlantedTable<Machine>> planted(const StateTable<Machine>& table, typename Machine::Action none,
                                           typename Machine::Action some) {
  using Cell = typename StateTable<Machine>::Cell;
  std::vector<PlantedTable<Machine>> tables;
  const auto states = states_of(table);
  for (std::size_t i = 0; i < states.size(); ++i) {
    for (const auto event : events_of<Machine>()) {
      const auto state = states[i];
      const auto plant = [&](const std::optional<Cell>& cell, const char* what) {
        auto& wrong = tables.emplace_back(PlantedTable<Machine>{state, event, table, {}});
        wrong.table.set(state, event, cell);
        wrong.text = std::string(Machine::kStates[static_cast<std::size_t>(state)]) + ", " +
                     std::string(Machine::kEvents[static_cast<std::size_t>(event)]) + ": " + what;
      };
      const auto* const right = table.find(state, event);
      if (right == nullptr) {
        plant(Cell{none, {}}, "a cell too many");
        continue;
      }
      plant(std::nullopt, "no cell");
      plant(Cell{right->action == none ? some : none, right->next}, "another action");
      if (right->next && *right->next != state) plant(Cell{right->action, {}}, "the state goes on");
      for (const auto other : states)
        if (other != state && other != right->next) plant(Cell{right->action, other}, "another state");
    }
  }
  return tables;
}

}  // namespace muster::test
