#include "daemon/supervisor/spanning/rendezvous_machine.hpp"

#include "daemon/supervisor/spanning/rendezvous.hpp"
#include "tests/support/state_tables.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using control::Json;

using RendezvousState = RendezvousMachine::State;
using RendezvousEvent = RendezvousMachine::Event;

const Rendezvous::Job kJob{"7", "train"};
const Status kNo(Code::kState, "no");

// The rendezvous of a job of two ranks on node a, by conditions instead of a table. Node b is the only peer.
struct ToldRendezvous {
  std::set<std::uint32_t> here;
  std::optional<std::uint32_t> there;  // the rank on node b
  bool fresh = false;                  // node b knew the ranks here
  bool asked = false;                  // it was asked, as they are
  bool making = false;
  std::multiset<std::string> did;

  auto facts() const { return std::tuple(here, there, fresh, asked, making); }
  RendezvousState state() const {
    if (here.empty()) return RendezvousState::kEmpty;
    return making ? RendezvousState::kMaking : RendezvousState::kWaiting;
  }
  void refuse() {
    for (std::size_t i = 0; i < here.size(); ++i) did.insert("refuses");
    if (!here.empty()) did.insert("announces");
    here.clear();
    fresh = asked = making = false;
  }
  void ask() {
    if (!std::exchange(asked, true)) did.insert("asks");
  }
  void look() {
    if (here.empty() || making) return;
    if (there && here.contains(*there)) {
      if (!fresh) return ask();
      did.insert("tells");
      return refuse();
    }
    if (here.size() + (there ? 1 : 0) != 2) return;
    if (there && !fresh) return ask();
    making = true;
    did.insert("makes");
  }
  void changed() {
    fresh = asked = false;
    making = making && !here.empty();
    did.insert("announces");
    look();
  }
  void come(std::uint32_t rank) {
    if (here.insert(rank).second) changed();
  }
  void leave(std::uint32_t rank) {
    if (here.erase(rank) != 0) changed();
  }
  void hear(std::optional<std::uint32_t> rank, bool knows) {
    there = rank;
    fresh = rank && knows && !here.empty();
    asked = asked && rank;
    look();
  }
  void fail(bool by_peer) {
    if (!by_peer) did.insert("tells");
    refuse();
  }
};

// Both are driven together.
struct RendezvousDrive {
  Roster roster;
  Rendezvous rendezvous;
  ToldRendezvous told;
  std::uint64_t tickets = 0;
  std::uint64_t change = 0, round = 0;  // of the ranks here, as the last announcement said
  std::multiset<std::string> did;
  std::map<std::uint32_t, std::uint64_t> ticket_of;

  explicit RendezvousDrive(const RendezvousMachine::Table& table)
      : roster(two_nodes()), rendezvous(roster, table) {
    rendezvous.on_up("b");
    collect();
    did.clear();
  }
  static Roster two_nodes() {
    Roster roster;
    roster.here = "a";
    for (const char* name : {"a", "b"}) roster.members.push_back({name, {}});
    return roster;
  }
  void collect() {
    const Rendezvous::Orders orders = rendezvous.take();
    for (const auto& [peer, message] : orders.outgoing) {
      const Json& body = message.at("gathering");
      if (body.contains("failed")) {
        did.insert("tells");
        continue;
      }
      change = body.at("change");
      round = body.at("round");
      did.insert(body.value("asks", false) ? "asks" : "announces");
    }
    for (const Rendezvous::Refusal& refusal : orders.refusals) {
      did.insert("refuses");
      std::erase_if(ticket_of, [&](const auto& entry) { return entry.second == refusal.ticket; });
    }
    for (std::size_t i = 0; i < orders.jobs.size(); ++i) did.insert("makes");
    for (const Status& error : orders.errors) did.insert(error.message());
  }
  void come(std::uint32_t rank) {
    Rendezvous::Rank wanted;
    wanted.ticket = ++tickets;
    wanted.job = kJob;
    wanted.rank = rank;
    wanted.world = 2;
    wanted.until = Instant(std::chrono::seconds(9));
    if (rendezvous.come(wanted).ok()) ticket_of[rank] = wanted.ticket;
  }
  void leave(std::uint32_t rank) {
    if (const auto ticket = ticket_of.extract(rank)) rendezvous.leave(ticket.mapped());
  }
  void hear(std::optional<std::uint32_t> rank, bool knows) {
    Json body{{"job", kJob.name}, {"of", kJob.of}, {"world", 2U}, {"mesh", ""}, {"round", 1U}};
    body.update({{"change", 1U}, {"heard", knows ? change : 0}, {"ranks", Json::array()}});
    if (rank) body["ranks"] = Json::array({*rank, 1U});
    EXPECT_TRUE(rendezvous.heard("b", {{"gathering", body}}).ok());
  }
};

struct Move {
  std::string_view text;
  std::function<void(RendezvousDrive&)> make;
};

std::vector<Move> moves() {
  std::vector<Move> moves;
  for (const std::uint32_t rank : {0U, 1U}) {
    moves.push_back({"comes", [rank](RendezvousDrive& m) { m.come(rank), m.told.come(rank); }});
    moves.push_back({"leaves", [rank](RendezvousDrive& m) { m.leave(rank), m.told.leave(rank); }});
    moves.push_back({"b knows", [rank](RendezvousDrive& m) { m.hear(rank, true), m.told.hear(rank, true); }});
    moves.push_back(
        {"b knows not", [rank](RendezvousDrive& m) { m.hear(rank, false), m.told.hear(rank, false); }});
  }
  moves.push_back({"b has none", [](RendezvousDrive& m) { m.hear({}, true), m.told.hear({}, true); }});
  moves.push_back({"is not made", [](RendezvousDrive& m) {
                     m.rendezvous.failed(kJob, m.round, kNo);
                     m.told.fail(false);
                   }});
  moves.push_back({"b refuses", [](RendezvousDrive& m) {
                     const Json body{{"job", kJob.name}, {"of", kJob.of}, {"round", 0U}};
                     Json message{{"gathering", body}};
                     message["gathering"]["failed"] = control::failed(kNo);
                     EXPECT_TRUE(m.rendezvous.heard("b", message).ok());
                     m.told.fail(true);
                   }});
  moves.push_back({"time", [](RendezvousDrive& m) {
                     m.rendezvous.expire(Instant(std::chrono::seconds(9)), "");
                     if (!m.told.here.empty()) m.told.fail(false);
                   }});
  return moves;
}
const std::vector<Move> kMoves = moves();

using Moves = std::vector<const Move*>;

// "": the rendezvous does what it is told.
std::string fault_of(const Moves& moves, const RendezvousMachine::Table& table) {
  RendezvousDrive drive(table);
  for (const Move* const move : moves) {
    drive.did.clear();
    drive.told.did.clear();
    move->make(drive);
    drive.collect();
    const bool waits = !drive.rendezvous.text_of(kJob).empty();
    if (drive.did == drive.told.did && waits == !drive.told.here.empty()) continue;
    std::string text;
    for (const Move* const each : moves) text += std::string(each->text) + "; ";
    return text + fmt::format("at {}: did {}, told {}", move->text, fmt::join(drive.did, ", "),
                              fmt::join(drive.told.did, ", "));
  }
  return "";
}

struct RendezvousStart {
  Moves moves;
  RendezvousState state;
};
std::vector<RendezvousStart> rendezvous_starts() {
  std::vector<RendezvousStart> starts{{{}, RendezvousState::kEmpty}};
  std::set<decltype(std::declval<ToldRendezvous>().facts())> known;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    for (const Move& move : kMoves) {
      Moves path = starts[i].moves;
      path.push_back(&move);
      RendezvousDrive drive(kRendezvous);
      for (const Move* const each : path) {
        each->make(drive);
        drive.collect();
      }
      if (known.insert(drive.told.facts()).second) starts.push_back({path, drive.told.state()});
    }
  }
  return starts;
}

// Every pair of moves after that path; the first fault, or "".
std::string fault_after(const Moves& path, const RendezvousMachine::Table& table) {
  for (const Move& first : kMoves) {
    for (const Move& second : kMoves) {
      Moves whole = path;
      whole.insert(whole.end(), {&first, &second});
      if (std::string fault = fault_of(whole, table); !fault.empty()) return fault;
    }
  }
  return "";
}

// The table knows an event which a node never raises in that state: without ranks it neither looks nor waits.
// Or another event than a rank that comes leads out of that state.
bool knows_too_much(const RendezvousMachine::Table& table) {
  for (const RendezvousEvent event : test::events_of<RendezvousMachine>()) {
    const auto* const cell = table.find(RendezvousState::kEmpty, event);
    if (cell != nullptr && cell->next && event != RendezvousEvent::kComes) return true;
  }
  for (const RendezvousState state : test::all_of<RendezvousState>(RendezvousMachine::kStates)) {
    const bool waits = state == RendezvousState::kWaiting, empty = state == RendezvousState::kEmpty;
    for (const RendezvousEvent event : {RendezvousEvent::kContradicted, RendezvousEvent::kComplete})
      if (!waits && table.find(state, event) != nullptr) return true;
    for (const RendezvousEvent event :
         {RendezvousEvent::kLeaves, RendezvousEvent::kLastLeaves, RendezvousEvent::kTime})
      if (empty && table.find(state, event) != nullptr) return true;
  }
  return false;
}

// Goal:   the table does what the rendezvous was told to do before it had one.
// Method: walk every pair of events from every state, beside one without a table.
TEST(RendezvousStates, DoesWhatItIsToldInEveryPairOfEvents) {
  EXPECT_FALSE(knows_too_much(kRendezvous));
  std::set<RendezvousState> states;
  for (const auto& [path, state] : rendezvous_starts()) {
    states.insert(state);
    EXPECT_EQ(fault_after(path, kRendezvous), "");
  }
  EXPECT_EQ(states.size(), RendezvousMachine::kStates.size());
}

TEST(RendezvousStates, WalkFindsEveryWrongCell) {
  const auto starts = rendezvous_starts();
  for (const auto& wrong :
       test::planted(kRendezvous, RendezvousMachine::Action::kNone, RendezvousMachine::Action::kTell)) {
    const bool found = knows_too_much(wrong.table) ||
                       std::any_of(starts.begin(), starts.end(), [&](const RendezvousStart& start) {
                         return start.state == wrong.state && !fault_after(start.moves, wrong.table).empty();
                       });
    EXPECT_TRUE(found) << wrong.text;
  }
}

TEST(RendezvousStates, HasAWayOutOfEachState) {
  for (const RendezvousState state : test::states_of(kRendezvous)) {
    EXPECT_EQ(test::reachable(kRendezvous, state).size(), RendezvousMachine::kStates.size());
    EXPECT_EQ(kRendezvous.find(state, RendezvousEvent::kTime) != nullptr, state != RendezvousState::kEmpty);
  }
}

TEST(RendezvousStates, IsShownOnItsPage) {
  test::expect_on_page(kRendezvous, MUSTER_SOURCE_DIR, "daemon/supervisor/spanning/machines.md");
}

}  // namespace
}  // namespace muster::supervisor
