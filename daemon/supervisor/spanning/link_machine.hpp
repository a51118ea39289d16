// LinkMachine: the states of a link between this node's engine of a job and that of another node, as tables.
// engine_link.hpp says what the link is, and machines.md shows the tables, which are made from these.
#pragma once

#include "api/base/state_table.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::supervisor {

struct LinkMachine {
  using Table = StateTable<LinkMachine>;
  enum class State : std::uint8_t {
    kAbsent,      // this node's part does not stand
    kCalled,      // the same, and the other node's `join` is kept
    kResting,     // disconnected; there is nothing to try
    kPausing,     // disconnected, until it is tried again
    kAsking,      // the other node is asked by `join`
    kPrompting,   // the other node is asked to ask, by `apart`
    kAnswering,   // the other node's `join` waits for this node's engine
    kConnecting,  // the engine connects
    kConnected,
    kAdopted,   // connected, as far as is known: the engine of a predecessor is asked
    kYielding,  // the other node has the job with another epoch; the part is about to end here
  };
  static constexpr std::array<std::string_view, 11> kStates{
      "absent",    "called",     "resting",   "pausing", "asking",  "prompting",
      "answering", "connecting", "connected", "adopted", "yielding"};
  static_assert(kStates.size() == static_cast<std::size_t>(State::kYielding) + 1);

  enum class Event : std::uint8_t {
    kBeginsConnected,  // this node's part begins
    kBeginsApart,
    kBeginsAdopted,
    kEnds,           // it ends
    kUp,             // the other node is up, with a part of this epoch
    kUpElsewhere,    // it is up without one
    kDown,           // its supervisor is disconnected
    kLost,           // it is given up
    kGone,           // its part has ended
    kJoin,           // its messages
    kJoinElsewhere,  // of another epoch than that of this node's part
    kHere,
    kHereElsewhere,
    kApart,
    kMay,             // it can be tried now
    kNetwork,         // the engine has said its address
    kStillConnected,  // an adopted engine is connected
    kNotConnected,    // or it is not
    kRefused,         // the engine has answered a question with an error
    kReached,         // its reports on this connection
    kParted,
    kTime,  // of a timer
  };
  static constexpr std::array<std::string_view, 22> kEvents{"part begins connected",
                                                            "part begins disconnected",
                                                            "part is adopted",
                                                            "part ends",
                                                            "node is up",
                                                            "node is up without it",
                                                            "node is down",
                                                            "node is lost",
                                                            "`gone`",
                                                            "`join`",
                                                            "`join`, other epoch",
                                                            "`here`",
                                                            "`here`, other epoch",
                                                            "`apart`",
                                                            "it may be tried",
                                                            "engine has its address",
                                                            "engine is connected",
                                                            "engine is not connected",
                                                            "engine refuses",
                                                            "engine has connected",
                                                            "engine has lost it",
                                                            "time"};
  static_assert(kEvents.size() == static_cast<std::size_t>(Event::kTime) + 1);

  enum class Action : std::uint8_t {
    kNone,
    kTry,        // raises kMay if the node can be asked
    kAskEngine,  // for its address
    kInquire,    // asks the engine whether it is connected
    kSendJoin,
    kSendApart,
    kSendHere,  // and connects
    kConnect,
    kKeep,    // the call
    kReport,  // the success
    kFail,    // notes the reason, and reports it
    kFailAndTry,
    kTellEngine,  // that the node is lost
    kTellEngineAndTry,
    kGiveUp,  // tells the engine, and fails
    kGiveUpAndTry,
  };
  static constexpr std::array<std::string_view, 16> kActions{
      "-",       "try",         "ask engine", "inquire", "send `join`", "send `apart`", "send `here`",
      "connect", "keep",        "report",     "fail",    "fail, try",   "tell engine",  "tell engine, try",
      "give up", "give up, try"};
  static_assert(kActions.size() == static_cast<std::size_t>(Action::kGiveUpAndTry) + 1);

  enum class Timer : std::uint8_t { kNone, kRetry, kAnswer };
  // The timer that runs as long as the state lasts.
  static constexpr Timer timer_of(State state) {
    if (state == State::kPausing) return Timer::kRetry;
    return state == State::kAsking || state == State::kPrompting ? Timer::kAnswer : Timer::kNone;
  }
};

// Both nodes of a pair.
constexpr auto kLinkOfBoth = [] {
  using enum LinkMachine::State;
  using E = LinkMachine::Event;
  using A = LinkMachine::Action;
  return std::to_array<LinkMachine::Table::Rule>({
      {kAbsent, E::kBeginsConnected, A::kNone, kConnected},
      {kAbsent, E::kBeginsApart, A::kTry, kResting},
      {kAbsent, E::kBeginsAdopted, A::kInquire, kAdopted},
      {kAbsent, E::kEnds, A::kNone},
      {{kResting, kPausing, kConnecting, kConnected, kAdopted}, E::kEnds, A::kNone, kAbsent},

      {{kAbsent, kConnecting, kConnected, kAdopted}, E::kUp, A::kNone},
      {{kResting, kPausing}, E::kUp, A::kTry},
      {{kResting, kPausing}, E::kUpElsewhere, A::kTellEngineAndTry},
      {{kConnecting, kConnected, kAdopted}, E::kUpElsewhere, A::kGiveUpAndTry, kPausing},
      {{kAbsent, kResting, kPausing, kConnecting, kConnected, kAdopted}, E::kDown, A::kNone},

      {kAbsent, E::kLost, A::kNone},
      {{kResting, kPausing}, E::kLost, A::kTellEngine},
      {{kConnecting, kConnected, kAdopted}, E::kLost, A::kGiveUp, kPausing},
      {kAbsent, E::kGone, A::kNone},
      {{kResting, kPausing}, E::kGone, A::kTellEngine},
      {{kConnecting, kConnected, kAdopted}, E::kGone, A::kGiveUp, kPausing},

      {{kConnecting, kAdopted}, E::kRefused, A::kFail, kPausing},
      {kAdopted, E::kStillConnected, A::kNone, kConnected},
      {kAdopted, E::kNotConnected, A::kFailAndTry, kPausing},
      {kConnecting, E::kReached, A::kReport, kConnected},
      {{kResting, kPausing, kConnected, kAdopted}, E::kReached, A::kNone},
      {{kConnecting, kConnected, kAdopted}, E::kParted, A::kFail, kPausing},
      {{kResting, kPausing}, E::kParted, A::kNone},
      {kPausing, E::kTime, A::kTry, kResting},
  });
}();

// The first node of a pair, in the job's order: it asks.
constexpr LinkMachine::Table kLinkOfFirst = [] {
  using enum LinkMachine::State;
  using E = LinkMachine::Event;
  using A = LinkMachine::Action;
  return LinkMachine::Table(kLinkOfBoth,
                            std::to_array<LinkMachine::Table::Rule>({
                                {kAsking, E::kEnds, A::kNone, kAbsent},
                                {kAsking, E::kUp, A::kTry, kResting},  // the answer was lost
                                {kAsking, E::kUpElsewhere, A::kGiveUpAndTry, kPausing},
                                {kAsking, E::kDown, A::kNone, kResting},
                                {kAsking, E::kLost, A::kGiveUp, kPausing},
                                {kAsking, E::kGone, A::kGiveUp, kPausing},
                                {kAsking, E::kHere, A::kConnect, kConnecting},
                                // It comes too late.
                                {{kResting, kPausing, kConnecting, kConnected, kAdopted}, E::kHere, A::kNone},
                                {{kAbsent, kAsking, kResting, kPausing, kConnecting, kConnected, kAdopted},
                                 E::kHereElsewhere,
                                 A::kNone},
                                {{kResting, kPausing}, E::kApart, A::kTry},
                                {{kConnected, kAdopted}, E::kApart, A::kGiveUpAndTry, kPausing},
                                {{kAbsent, kAsking, kConnecting}, E::kApart, A::kNone},
                                {{kResting, kPausing}, E::kMay, A::kAskEngine, kAsking},
                                {kAsking, E::kNetwork, A::kSendJoin},
                                {kAsking, E::kRefused, A::kFail, kPausing},
                                {kAsking, E::kReached, A::kNone},
                                {kAsking, E::kParted, A::kNone},
                                {kAsking, E::kTime, A::kFail, kPausing},
                            }));
}();

// The second node: it answers.
constexpr LinkMachine::Table kLinkOfSecond = [] {
  using enum LinkMachine::State;
  using E = LinkMachine::Event;
  using A = LinkMachine::Action;
  return LinkMachine::Table(
      kLinkOfBoth,
      std::to_array<LinkMachine::Table::Rule>({
          {kCalled, E::kBeginsConnected, A::kNone, kConnected},
          {kCalled, E::kBeginsApart, A::kAskEngine, kAnswering},
          {kCalled, E::kEnds, A::kNone},
          {kPrompting, E::kEnds, A::kNone, kAbsent},
          {{kAnswering, kYielding}, E::kEnds, A::kNone, kCalled},

          {kCalled, E::kUp, A::kNone, kAbsent},  // the call was of the connection before
          {kPrompting, E::kUp, A::kTry},
          {kAnswering, E::kUp, A::kTry, kResting},
          {kPrompting, E::kUpElsewhere, A::kTellEngineAndTry},
          {kAnswering, E::kUpElsewhere, A::kGiveUpAndTry, kPausing},
          {kCalled, E::kDown, A::kNone, kAbsent},
          {kPrompting, E::kDown, A::kNone},
          {kAnswering, E::kDown, A::kNone, kResting},

          {kCalled, E::kLost, A::kNone},
          {kPrompting, E::kLost, A::kTellEngine},
          {kAnswering, E::kLost, A::kGiveUp, kPausing},
          {kCalled, E::kGone, A::kNone, kAbsent},
          {kPrompting, E::kGone, A::kTellEngine},
          {kAnswering, E::kGone, A::kGiveUp, kPausing},

          {{kAbsent, kCalled}, E::kJoin, A::kKeep, kCalled},
          {{kResting, kPausing, kPrompting, kAnswering, kConnecting, kConnected, kAdopted, kYielding},
           E::kJoin,
           A::kAskEngine,
           kAnswering},
          {{kResting, kPausing, kPrompting, kAnswering, kConnecting, kConnected, kAdopted, kYielding},
           E::kJoinElsewhere,
           A::kKeep,
           kYielding},
          {{kResting, kPausing, kPrompting}, E::kMay, A::kSendApart, kPrompting},
          {kAnswering, E::kNetwork, A::kSendHere, kConnecting},
          {kAnswering, E::kRefused, A::kFail, kPausing},
          {{kPrompting, kAnswering}, E::kReached, A::kNone},
          {{kPrompting, kAnswering}, E::kParted, A::kNone},
          {kPrompting, E::kTime, A::kFail, kPausing},
      }));
}();

}  // namespace muster::supervisor
