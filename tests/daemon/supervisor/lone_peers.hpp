// Peers without a supervisor: several nodes on one loop, over the loopback addresses, in plain text.
#pragma once

#include "daemon/supervisor/peers/peers.hpp"
#include "tests/support/ports.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::supervisor {

// Nodes node0, node1, …
inline Roster plain_roster(std::size_t count) {
  const std::uint16_t port = test::free_port(count);
  Roster roster;
  roster.cluster = "lab-a";
  roster.trust = Roster::Trust::kPlainText;
  for (std::size_t n = 0; n < count; ++n)
    roster.members.push_back({fmt::format("node{}", n), {fmt::format("127.0.0.{}", n + 1), port}});
  return roster;
}

// One of these nodes, and the messages that it has received.
//
// Owns    its connections; to destroy it is its death.
// Thread  the test's.
// Bound   -
// Fails   the test.
struct LonePeer {
  LonePeer(control::Loop& loop, const Clock& clock, const Roster& roster, std::size_t here)
      : options(options_of(roster, here)),
        peers(loop, clock, options,
              {.jobs = [this] { return jobs; },
               .up = [this](const std::string& peer, const control::Json& theirs) { up[peer] = theirs; },
               .down = [this](const std::string& peer, const Status&) { up.erase(peer); },
               .heard = [this](const std::string& peer,
                               const control::Json& message) { heard.emplace_back(peer, message); }}) {}
  static Options options_of(const Roster& roster, std::size_t here) {
    Options options;
    options.roster = roster;
    options.roster.here = roster.members.at(here).name;
    return options;
  }
  void open() {
    const Status opened = peers.open();
    ASSERT_TRUE(opened.ok()) << opened.text();
  }
  // Its report on that node: the state and the reason.
  std::string said_of(const std::string& node) const {
    const control::Json report = peers.report();
    for (const control::Json& entry : report.at("peers"))
      if (entry.at("node") == node)
        return entry.at("state").get<std::string>() + ": " + entry.at("why").get<std::string>();
    return "no peer";
  }

  const Options options;
  control::Json jobs = control::Json::array();  // in its greeting
  std::map<std::string, control::Json> up;      // the nodes that are up, with the jobs in their greetings
  std::vector<std::pair<std::string, control::Json>> heard;
  Peers peers;
};

}  // namespace muster::supervisor
