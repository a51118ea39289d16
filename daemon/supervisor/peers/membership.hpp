// Membership: which nodes of the cluster this node knows, when it dials them, and what it asks of a node that
// greets. A sans-IO core: time is passed in, and Peers carries out what it decides.
//
// The first node of a pair in the cluster file dials the other. Each side sends a greeting. Each checks the
// other's greeting and answers with a welcome, or with a refusal that gives the reason. A peer is up once it
// has welcomed this node and is welcome here.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/packet.hpp"
#include "daemon/supervisor/base/roster.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::supervisor {

// The version of greetings and of all messages after them.
constexpr std::uint32_t kPeerProtocol = 10;

// Owns    what is known of each peer.
// Thread  the supervisor's loop.
// Bound   the members of the roster.
// Fails   check: with what the administrator must change.
class Membership {
 public:
  enum class PeerState : std::uint8_t {
    kAway,      // not reached, or lost
    kReaching,  // a dial or a handshake is under way
    kUp,
    kRefused,  // by this node, or by the peer
  };
  static constexpr Nanos kFirstRetry = std::chrono::milliseconds(100);
  static constexpr Nanos kLastRetry = std::chrono::seconds(1);
  static constexpr std::size_t kLinesBytesMax = 8 << 10;  // of a configuration that a greeting carries

  struct Peer {
    control::TcpAddress address;
    PeerState state = PeerState::kAway;
    Status why;                  // of kAway and kRefused; OK before the first attempt
    std::string lost;            // why it was lost; empty: it was not, since it was up last
    Instant since{0};            // of the state
    std::string version;         // of its daemon, once it was up
    bool dialled = false;        // by this node; else it dials
    std::uint32_t failures = 0;  // since it was up
    Instant dial_at{0};

    // For people: why it was lost, and why it was not reached since.
    std::string reason() const;
  };

  Membership(const Roster& roster, Instant now);

  // The peers to dial now; they are kReaching from now on.
  std::vector<std::string> due(Instant now);
  // When the next one is due; none: all that this node dials are up or being reached.
  std::optional<Instant> next_due() const;

  // `jobs`: the parts of spanning jobs that this node has.
  control::Json greeting(control::Json jobs) const;
  // Decides on a greeting. `proved`: the name that the connection has proved; empty in plain text. `wanted`:
  // the node that was dialled; empty: none was. Returns the peer's name. kProtocol, kDenied, kVersion,
  // kConfig with the first line that differs.
  Result<std::string> check(std::string_view proved, std::string_view wanted,
                            const control::Json& greeting) const;

  void up(const std::string& name, const control::Json& greeting, Instant now);
  // A dial or a connection of that peer has ended. True: the peer's state or reason is another now.
  bool ended(const std::string& name, const Status& why, Instant now);

  // It does not live, as far as this node knows. If it was up, ended() follows.
  void lost(const std::string& name, const Status& why) { peers_.at(name).lost = why.message(); }

  const std::map<std::string, Peer, std::less<>>& peers() const { return peers_; }
  bool is_up(std::string_view name) const;

 private:
  Status difference(const control::Json& greeting) const;

  const Roster& roster_;
  const std::string hash_;  // of the configuration
  std::map<std::string, Peer, std::less<>> peers_;
};
const char* peer_state_name(Membership::PeerState state) noexcept;

}  // namespace muster::supervisor
