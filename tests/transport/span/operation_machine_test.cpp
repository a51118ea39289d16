#include "transport/span/operation_machine.hpp"

#include "tests/support/state_tables.hpp"
#include "transport/span/peer_nodes.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace muster::transport::span {
namespace {

using OperationState = OperationMachine::State;
using OperationEvent = OperationMachine::Event;

// The operation at one node as operation.hpp tells it, by conditions instead of a table.
struct ToldOperation {
  bool agreed = false;  // the nodes, on this node's view
  bool ready = false;   // all are
  bool failed = false;
  bool in_use = true;     // the members' memory
  bool drained = false;   // no node is left to drain with
  bool released = false;  // the outcome
  std::multiset<std::string> did;

  auto facts() const { return std::tuple(agreed, ready, failed, in_use, drained, released); }
  void note(const std::string& what) { did.insert(what); }
  void release() {
    released = true;
    in_use = false;
    note("release");
  }
  void fail() {
    if (failed || released) return;
    failed = true;
    note("refuse");
  }
  void take(OperationEvent event) {
    const bool open = !failed && !agreed;
    switch (event) {
      case OperationEvent::kAgree:
      case OperationEvent::kAgreeDirect:
        if (!open) return note("fault");
        agreed = true;
        ready = event == OperationEvent::kAgree;
        return;
      case OperationEvent::kDisagree:
        if (!open) return note("fault");
        fail();
        drained = true;  // no node has sent anything
        return;
      case OperationEvent::kAllReady:
        if (failed || !agreed || ready) return note("fault");
        ready = true;
        return;
      case OperationEvent::kMoved:
        if (failed || !agreed || !ready || released) return note("fault");
        return release();
      case OperationEvent::kFail:
        return fail();
      case OperationEvent::kLeft:
        return failed && in_use ? release() : note("fault");
      case OperationEvent::kDrained:
        if (!failed || drained) return note("fault");
        drained = true;
        return;
    }
  }
  bool waits() const { return !agreed && !failed; }
  bool is_past() const { return released && (!failed || drained); }
};

using Path = std::vector<OperationEvent>;

// "": after each event the table does and says what it is told.
std::string fault_of(const Path& path, const OperationMachine::Table& table) {
  using enum OperationMachine::State;
  StateMachine<OperationMachine> machine(table, kOpen);
  ToldOperation told;
  std::string text;
  for (const OperationEvent event : path) {
    text += std::string(OperationMachine::kEvents[static_cast<std::size_t>(event)]) + "; ";
    told.did.clear();
    told.take(event);
    const auto step = machine.take(event);
    std::multiset<std::string> did;
    if (!step)
      did.insert("fault");
    else if (step->action != OperationMachine::Action::kNone)
      did.insert(std::string(OperationMachine::kActions[static_cast<std::size_t>(step->action)]));
    if (did != told.did) return text + "does something else";
    if (machine.is(kOpen) != told.waits()) return text + "waits";
    if (machine.is({kReady, kMoving, kDone}) != (told.agreed && !told.failed)) return text + "has agreed";
    if (machine.is({kDone, kPast}) != told.is_past()) return text + "is past";
    if (machine.is({kDone, kDraining, kDrainingAgreed, kPast}) != told.released) return text + "is over";
    const bool drains = told.failed && !told.drained;
    if (machine.is({kStopping, kDraining}) != (drains && !told.agreed)) return text + "drains, not agreed";
    if (machine.is({kStoppingAgreed, kDrainingAgreed}) != (drains && told.agreed))
      return text + "drains, agreed";
  }
  return "";
}

struct Reached {
  Path path;
  OperationState state;
};
// One way to each combination of facts.
std::vector<Reached> all_reached() {
  std::vector<Reached> all{{{}, OperationState::kOpen}};
  std::set<decltype(std::declval<ToldOperation>().facts())> known{ToldOperation().facts()};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const OperationEvent event : test::events_of<OperationMachine>()) {
      Path path = all[i].path;
      path.push_back(event);
      StateMachine<OperationMachine> machine(kOperation, OperationState::kOpen);
      ToldOperation told;
      for (const OperationEvent each : path) {
        told.take(each);
        static_cast<void>(machine.take(each));
      }
      if (known.insert(told.facts()).second) all.push_back({path, machine.state()});
    }
  }
  return all;
}

// Every pair of events after that path; the first fault, or "".
std::string fault_after(const Path& path, const OperationMachine::Table& table) {
  for (const OperationEvent first : test::events_of<OperationMachine>()) {
    for (const OperationEvent second : test::events_of<OperationMachine>()) {
      Path whole = path;
      whole.insert(whole.end(), {first, second});
      if (std::string fault = fault_of(whole, table); !fault.empty()) return fault;
    }
  }
  return "";
}

// Goal:   the table does what the operation was told to do before it had one.
// Method: walk every pair of events from every state, beside one without a table.
TEST(OperationStates, DoesWhatItIsToldInEveryPairOfEvents) {
  std::set<OperationState> states;
  for (const auto& [path, state] : all_reached()) {
    states.insert(state);
    EXPECT_EQ(fault_after(path, kOperation), "");
  }
  EXPECT_EQ(states.size(), OperationMachine::kStates.size());
}

TEST(OperationStates, WalkFindsEveryWrongCell) {
  const auto reached = all_reached();
  for (const auto& wrong :
       test::planted(kOperation, OperationMachine::Action::kNone, OperationMachine::Action::kRelease)) {
    EXPECT_TRUE(std::any_of(reached.begin(), reached.end(), [&](const Reached& each) {
      return each.state == wrong.state && !fault_after(each.path, wrong.table).empty();
    })) << wrong.text;
  }
}

// Goal:   from each state an operation can end, so that it holds its step's memory no longer.
TEST(OperationStates, HasAWayToAnEndFromEachState) {
  for (const OperationState state : test::all_of<OperationState>(OperationMachine::kStates)) {
    const auto ends = test::reachable(kOperation, state);
    EXPECT_TRUE(ends.contains(OperationState::kDone) || ends.contains(OperationState::kPast));
  }
}

TEST(OperationStates, AreShownOnTheirPage) {
  test::expect_on_page(kOperation, MUSTER_SOURCE_DIR, "transport/span/walks.md");
}

// Goal:   whatever a node that keeps the protocol says, its answers mean what they meant as single facts.
TEST(PeerAnswers, AddUp) {
  enum Answer { kSaysReady, kRefusesOpen, kRefusesReady, kRefusesMoving, kRefusesGone };
  const std::vector<std::vector<Answer>> told{
      {},
      {kSaysReady},
      {kRefusesOpen},
      {kRefusesMoving},
      {kRefusesReady},
      {kRefusesGone},
      {kRefusesGone, kRefusesGone},
      {kRefusesOpen, kRefusesGone},
      {kRefusesOpen, kRefusesMoving},
      {kRefusesMoving, kRefusesGone},
      {kSaysReady, kRefusesReady},
      {kSaysReady, kRefusesReady, kRefusesGone},
  };
  for (const bool has_request : {false, true}) {
    for (const std::vector<Answer>& answers : told) {
      PeerNodes::Node node;
      if (has_request) node.request.emplace();
      bool ready = false, refused = false, agreed = false;
      for (const Answer answer : answers) {
        if (answer == kSaysReady) {
          node.say_ready();
          ready = true;
          continue;
        }
        const bool was_done = answer == kRefusesGone && has_request && !refused;
        refused = true;
        ready = ready || answer == kRefusesReady;
        agreed = agreed || answer == kRefusesMoving || was_done;
        node.refuse(answer == kRefusesOpen     ? Standing::kOpen
                    : answer == kRefusesReady  ? Standing::kReady
                    : answer == kRefusesMoving ? Standing::kMoving
                                               : Standing::kGone);
      }
      const auto of = [&] {
        return fmt::format("{} answers, the last {}", answers.size(),
                           answers.empty() ? -1 : static_cast<int>(answers.back()));
      };
      EXPECT_EQ(node.is_ready(), ready) << of();
      EXPECT_EQ(node.refused(), refused) << of();
      EXPECT_EQ(node.agreed(), agreed) << of();
    }
  }
}

}  // namespace
}  // namespace muster::transport::span
