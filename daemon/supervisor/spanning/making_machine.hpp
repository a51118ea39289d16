// MakingMachine: the states in which a node makes a job with others, as tables. job_making.hpp tells the
// protocol, and machines.md shows the tables, which are made from these.
#pragma once

#include "api/base/state_table.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::supervisor {

struct MakingMachine {
  using Table = StateTable<MakingMachine>;
  enum class State : std::uint8_t {
    kIdle,
    kPreparing,   // the engine starts
    kHeld,        // this engine has started; engines of other nodes perhaps have not
    kConnecting,  // it connects with those of the other nodes
    kConnected,   // it has; others perhaps have not
  };
  static constexpr std::array<std::string_view, 5> kStates{"idle", "preparing", "held", "connecting",
                                                           "connected"};
  static_assert(kStates.size() == static_cast<std::size_t>(State::kConnected) + 1);

  enum class Event : std::uint8_t {
    kBegins,
    kStops,
    kHeld,       // this node's engine stands
    kNotHeld,    // it could not be started
    kReached,    // it has reached all others
    kUnreached,  // it has not, or has lost one since
    // At the leader: the others' answers, of which each node gives one at a time.
    kPrepared,
    kNotPrepared,
    kAllPrepared,  // and this node
    kUnfit,        // all are prepared, and do not fit together
    kConnected,
    kNotConnected,
    kAllConnected,
    kTime,
    // At the others: the leader's messages.
    kConnect,
    kMalformedConnect,
    kCommit,
  };
  static constexpr std::array<std::string_view, 17> kEvents{"attempt begins",
                                                            "attempt is stopped",
                                                            "engine stands",
                                                            "engine does not start",
                                                            "engine has reached all",
                                                            "engine has not reached all",
                                                            "`prepared`",
                                                            "`prepared`, failed",
                                                            "all are prepared",
                                                            "all are, and do not fit",
                                                            "`connected`",
                                                            "`connected`, failed",
                                                            "all are connected",
                                                            "time",
                                                            "`connect`",
                                                            "`connect`, malformed",
                                                            "`commit`"};
  static_assert(kEvents.size() == static_cast<std::size_t>(Event::kCommit) + 1);

  enum class Action : std::uint8_t {
    kNone,
    kSendPrepare,   // to all, and waits for them
    kNote,          // this node's or another's answer; the last one raises that all have answered
    kSendConnect,   // to all, and connects
    kSendCommit,    // to all; the job is made
    kFail,          // the job cannot be made
    kSendPrepared,  // to the leader
    kConnect,
    kSendConnected,    // to the leader
    kReportPrepared,   // to the leader that it failed here
    kReportConnected,  // the same
    kFinish,           // the job is made
  };
  static constexpr std::array<std::string_view, 12> kActions{"-",
                                                             "send `prepare`",
                                                             "note",
                                                             "send `connect`",
                                                             "commit",
                                                             "fail",
                                                             "send `prepared`",
                                                             "connect",
                                                             "send `connected`",
                                                             "send `prepared`, failed",
                                                             "send `connected`, failed",
                                                             "finish"};
  static_assert(kActions.size() == static_cast<std::size_t>(Action::kFinish) + 1);
};

constexpr auto kMakingOfAll = [] {
  using enum MakingMachine::State;
  using E = MakingMachine::Event;
  using A = MakingMachine::Action;
  return std::to_array<MakingMachine::Table::Rule>({
      {kIdle, E::kStops, A::kNone},
      {{kPreparing, kHeld, kConnecting, kConnected}, E::kStops, A::kNone, kIdle},
      {kIdle, E::kHeld, A::kNone},  // the attempt is over
      {kIdle, E::kNotHeld, A::kNone},
      // Another engine may reach this one before this one is told to connect.
      {{kIdle, kHeld, kConnected}, E::kReached, A::kNone},
      {{kIdle, kHeld}, E::kUnreached, A::kNone},
  });
}();

constexpr MakingMachine::Table kMakingOfLeader = [] {
  using enum MakingMachine::State;
  using E = MakingMachine::Event;
  using A = MakingMachine::Action;
  return MakingMachine::Table(kMakingOfAll,
                              std::to_array<MakingMachine::Table::Rule>({
                                  {kIdle, E::kBegins, A::kSendPrepare, kPreparing},
                                  {kPreparing, E::kHeld, A::kNote, kHeld},
                                  {kPreparing, E::kNotHeld, A::kFail, kIdle},
                                  {{kPreparing, kHeld}, E::kPrepared, A::kNote},
                                  {{kPreparing, kHeld}, E::kNotPrepared, A::kFail, kIdle},
                                  {kHeld, E::kAllPrepared, A::kSendConnect, kConnecting},
                                  {kHeld, E::kUnfit, A::kFail, kIdle},
                                  {kConnecting, E::kReached, A::kNote, kConnected},
                                  {{kConnecting, kConnected}, E::kUnreached, A::kFail, kIdle},
                                  {{kConnecting, kConnected}, E::kConnected, A::kNote},
                                  {{kConnecting, kConnected}, E::kNotConnected, A::kFail, kIdle},
                                  {kConnected, E::kAllConnected, A::kSendCommit, kIdle},
                                  {{kPreparing, kHeld, kConnecting, kConnected}, E::kTime, A::kFail, kIdle},
                              }));
}();

constexpr MakingMachine::Table kMakingOfOthers = [] {
  using enum MakingMachine::State;
  using E = MakingMachine::Event;
  using A = MakingMachine::Action;
  return MakingMachine::Table(kMakingOfAll,
                              std::to_array<MakingMachine::Table::Rule>({
                                  {kIdle, E::kBegins, A::kNone, kPreparing},
                                  {kPreparing, E::kHeld, A::kSendPrepared, kHeld},
                                  {kPreparing, E::kNotHeld, A::kReportPrepared, kIdle},
                                  {kHeld, E::kConnect, A::kConnect, kConnecting},
                                  {kHeld, E::kMalformedConnect, A::kReportConnected, kIdle},
                                  {kConnecting, E::kReached, A::kSendConnected, kConnected},
                                  {{kConnecting, kConnected}, E::kUnreached, A::kReportConnected, kIdle},
                                  {kConnected, E::kCommit, A::kFinish, kIdle},
                                  // The leader has sent it before it heard of the failure here.
                                  {kIdle, E::kConnect, A::kNone},
                                  {kIdle, E::kCommit, A::kNone},
                              }));
}();

}  // namespace muster::supervisor
