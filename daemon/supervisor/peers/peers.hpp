// Peers: the connections to the supervisors of the cluster's other nodes. It listens and dials, proves this
// node's identity and checks that of the peer, and carries messages. Membership decides, and PeerHeartbeats
// reports whether a peer lives; other classes interpret the messages.
#pragma once

#include "daemon/control/link/peer_link.hpp"
#include "daemon/control/link/tcp.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/base/options.hpp"
#include "daemon/supervisor/peers/data_path.hpp"
#include "daemon/supervisor/peers/membership.hpp"
#include "daemon/supervisor/peers/peer_heartbeats.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace muster::supervisor {

// Owns    listener, dials and links, the heartbeats, and the far end of path trials.
// Thread  the supervisor's loop.
// Bound   one link for each member, kStrangersMax that are not identified yet, kRefusalsMax refusals.
// Fails   open: as TcpListener::open and PeerHeartbeats::open, and the Status of load_credentials. Later
//         faults are states of peers.
class Peers {
 public:
  static constexpr std::size_t kStrangersMax = 64;
  static constexpr std::size_t kRefusalsMax = 16;
  static constexpr Nanos kDialTime = std::chrono::seconds(3);
  static constexpr Nanos kLogAgain = std::chrono::minutes(1);  // the same reason, of the same peer
  static constexpr std::chrono::days kWarnedBefore{7};         // the end of this node's certificate

  // All are called on the loop's thread, and may call back into this object.
  struct Events {
    std::function<control::Json()> jobs;  // this node's parts of spanning jobs, for a greeting
    std::function<void(const std::string& peer, const control::Json& jobs)> up;
    std::function<void(const std::string& peer, const Status& why)> down;
    std::function<void(const std::string& peer, const control::Json&)> heard;
    // Called each period as long as the peer is silent, though it is not lost yet. An object that knows of
    // evidence from elsewhere reports it by vouch().
    std::function<void(const std::string& peer)> suspected = [](const std::string&) {};
    // kPeerLost. Once, until it is up anew; before `down`, if a link stood.
    std::function<void(const std::string& peer, const Status& why)> lost = [](const std::string&,
                                                                              const Status&) {};
  };

  // A node that stands alone has no listener and no peers. `options` outlives this object.
  Peers(control::Loop& loop, const Clock& clock, const Options& options, Events events);
  ~Peers();

  // Reads the credentials, listens and dials.
  Status open();
  // False: the peer is not up, and gets nothing.
  bool send(const std::string& peer, const control::Json& message);
  // An object here counts on the peer. If it does not come up and no other evidence comes, it is lost.
  void expect(const std::string& peer) { heartbeats_.expect(peer); }
  // There is other evidence of the peer at that time, such as a message from its engine to this node's
  // engine.
  void vouch(const std::string& peer, Instant heard_at) { heartbeats_.heard(peer, heard_at); }
  bool is_up(std::string_view peer) const { return membership_.is_up(peer); }
  struct Counts {
    std::size_t up, all;
  };
  Counts counts() const;
  const std::string& here() const { return roster_.here; }
  bool alone() const { return roster_.alone(); }
  // The job's rule, with the addresses of this node by which the job's other nodes are connected with it.
  InterfaceRule interfaces_for(const control::JobSpec& spec) const;
  // Why the peer is not up, for people: "node02 is away: no route to host".
  std::string why_not(const std::string& peer) const;

  // Reads the credentials again, or opens if that has failed. Connections that stand keep those by which they
  // were made. On failure all stays as it was.
  Status reload();

  control::Json report() const;

 private:
  struct Connection {
    std::unique_ptr<control::PeerLink> link;
    std::string name;  // the node that was dialled, or that has greeted; empty: not known
    std::string from;  // "10.0.0.2:40112"
    bool dialled = false;
    std::string clock;       // how the peer's differs from this node's; empty: they agree
    control::Json greeting;  // of a peer that was found good
    bool welcomed = false;   // by the peer
    control::Json path;      // of a welcome: where the way to the peer can be tried
    bool up = false;
  };
  struct Refusal {
    std::string from, node;
    Status why;
    Instant at{0};
  };
  using Id = std::uint64_t;

  Status read_credentials();
  void warn_of_end();
  std::string outside_own_dates() const;
  void dial_due();
  void on_clients();
  void on_dialled(const std::string& name, Result<shm::Descriptor> socket);
  void open_link(shm::Descriptor socket, Connection connection);
  void on_heard(Id id, const control::Json& frame);
  void greeted(Id id, const control::Json& greeting);
  void conclude(Id id);
  void on_ended(Id id, const Status& why);
  void on_lost(const std::string& peer, const Status& why);
  void note_refusal(const Connection& connection, const Status& why);
  void tell(const std::string& peer, const Status& why);

  control::Loop& loop_;
  const Clock& clock_;
  const Roster& roster_;
  const std::function<control::WallTime()> wall_time_;
  const Events events_;
  const InterfaceRule interfaces_;  // by the files
  Roster::OwnCredentials own_;
  Membership membership_;
  PeerHeartbeats heartbeats_;
  std::optional<control::TcpListener> listener_;
  std::map<Id, Connection> connections_;
  std::map<std::string, std::unique_ptr<control::TcpDial>> dials_;
  DataPath path_;
  std::map<std::string, std::string> reached_at_;  // by peer: the address of this node of its last connection
  std::map<std::string, control::Json> paths_;     // by peer: as it last reported
  std::deque<Refusal> refusals_;
  std::map<std::string, std::pair<std::string, Instant>> told_;  // by peer: the last line of the log
  control::Loop::Watch clients_ = 0;
  control::Loop::Watch dial_timer_ = 0;
  control::Loop::Watch reminder_ = 0;  // of the certificate's end
  Id next_ = 1;
};

}  // namespace muster::supervisor
