// RendezvousMachine: the states of the rendezvous of one job on one node, as a table. rendezvous.hpp says
// what it is, and machines.md shows the table, which is made from this.
#pragma once

#include "api/base/state_table.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::supervisor {

struct RendezvousMachine {
  using Table = StateTable<RendezvousMachine>;
  enum class State : std::uint8_t {
    kEmpty,    // no rank waits here
    kWaiting,  // for others
    kMaking,   // all have come, and this node has the job made
  };
  static constexpr std::array<std::string_view, 3> kStates{"empty", "waiting", "making"};
  static_assert(kStates.size() == static_cast<std::size_t>(State::kMaking) + 1);

  enum class Event : std::uint8_t {
    kComes,   // a rank
    kLeaves,  // others stay
    kLastLeaves,
    kNews,          // other ranks have come to a peer, or left it
    kContradicted,  // the ranks here and those of a peer cannot be of one job, and the peer knew those here
    kComplete,      // all have come, all peers know of all, and this node is the first
    kFailed,        // the job could not be made
    kRefused,       // a peer refuses its ranks
    kTime,          // a rank waits no longer
  };
  static constexpr std::array<std::string_view, 9> kEvents{
      "a rank comes",    "a rank leaves",  "the last leaves",
      "news of a peer",  "contradiction",  "all have come",
      "job is not made", "a peer refuses", "time"};
  static_assert(kEvents.size() == static_cast<std::size_t>(Event::kTime) + 1);

  enum class Action : std::uint8_t {
    kNone,
    kAnnounce,  // the ranks here, to all peers
    kAnnounceAndLook,
    kLook,    // whether the ranks contradict each other, or all have come
    kMake,    // the job
    kRefuse,  // all ranks here
    kTell,    // all peers that the job is refused
    kTellAndRefuse,
  };
  static constexpr std::array<std::string_view, 8> kActions{
      "-", "announce", "announce, look", "look", "make", "refuse", "tell", "tell, refuse"};
  static_assert(kActions.size() == static_cast<std::size_t>(Action::kTellAndRefuse) + 1);
};

constexpr RendezvousMachine::Table kRendezvous = [] {
  using enum RendezvousMachine::State;
  using E = RendezvousMachine::Event;
  using A = RendezvousMachine::Action;
  return RendezvousMachine::Table(std::to_array<RendezvousMachine::Table::Rule>({
      {kEmpty, E::kComes, A::kAnnounceAndLook, kWaiting},
      {kWaiting, E::kComes, A::kAnnounceAndLook},
      {kWaiting, E::kLeaves, A::kAnnounceAndLook},
      {{kWaiting, kMaking}, E::kLastLeaves, A::kAnnounce, kEmpty},
      {kWaiting, E::kNews, A::kLook},
      {kWaiting, E::kContradicted, A::kTellAndRefuse, kEmpty},
      {kWaiting, E::kComplete, A::kMake, kMaking},
      // The job goes on with the ranks that it was made for.
      {kMaking, E::kComes, A::kAnnounce},
      {kMaking, E::kLeaves, A::kAnnounce},
      {kMaking, E::kNews, A::kNone},
      {kEmpty, E::kNews, A::kNone},
      {kEmpty, E::kFailed, A::kTell},
      {{kWaiting, kMaking}, E::kFailed, A::kTellAndRefuse, kEmpty},
      {kEmpty, E::kRefused, A::kNone},
      {{kWaiting, kMaking}, E::kRefused, A::kRefuse, kEmpty},
      {{kWaiting, kMaking}, E::kTime, A::kTellAndRefuse, kEmpty},
  }));
}();

}  // namespace muster::supervisor
