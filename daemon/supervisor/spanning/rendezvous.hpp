// Rendezvous: ranks whose launcher has started them on several nodes wait here until all ranks of their job
// have come. A sans-IO core: RendezvousService carries out what it decides.
//
// Each node tells all others which ranks of which job have come to it, again after each change. A job is a
// name, and a user or a key: by its key nodes know a job whose ranks are in containers. Once every rank of
// the world is on some node, the first of these nodes in the cluster file makes the job. All nodes that know
// of a contradiction refuse their ranks: two sizes of the world, two meshes, one rank on two nodes. A node
// that refuses its ranks tells the others the reason.
//
// A message is {"gathering": {"job", "of", "world", "mesh", "round", "change", "heard", "ranks": [first,
// count, …]}}; no ranks: none are left. With "asks", the receiver answers with one of its own. Or it is
// {"gathering": {"job", "of", "round", "status", "failed"}}. A round is one gathering on one node. `failed`
// has the receiver's, so it cannot end a later one; 0: the sender does not know it. `change` counts the
// arrivals and departures on the sender's node, and `heard` is the last of the receiver's that the sender
// knows. A node makes a job, or refuses one, only by messages whose senders knew the ranks here.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "daemon/control/identity.hpp"
#include "daemon/control/packet.hpp"
#include "daemon/supervisor/base/roster.hpp"
#include "daemon/supervisor/spanning/rendezvous_machine.hpp"

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace muster::supervisor {

// Owns    the ranks that wait here, and the last messages of the other nodes.
// Thread  the supervisor's loop.
// Bound   kRanksOnNodeMax ranks here for each job; kOfAPeerMax jobs of each peer, with as many ranks each.
// Fails   come: kBadArgument (world), kConfig (mesh), kDuplicate (rank), all about ranks of this node.
//         heard: kProtocol, kNoResource; the message changes nothing then. An event for which the state
//         of a job has no cell is an error among the orders, and changes nothing.
class Rendezvous {
 public:
  static constexpr std::size_t kOfAPeerMax = 128;

  struct Job {
    std::string of;  // scope_of() with kNoUid, the same on all nodes: "1000", "key.9f86…"
    std::string name;
    friend auto operator<=>(const Job&, const Job&) = default;
  };
  // A rank that has come to this node, and waits.
  struct Rank {
    std::uint64_t ticket = 0;  // the caller's; never 0, never used twice
    Job job;
    control::Identity who;
    std::uint32_t gid = 0;
    std::int32_t pid = 0;
    std::uint32_t rank = 0;
    std::uint32_t world = 0;
    std::string mesh;  // as canonical_mesh() writes it; empty: not said
    Instant until{0};  // it waits no longer
  };
  struct Refusal {
    std::uint64_t ticket = 0;
    Status why;
  };
  struct OutgoingMessage {
    std::string peer;
    control::Json message;
  };
  // The owner of the job on this node: the user of its lowest rank here.
  struct Owner {
    control::Identity who;
    std::uint32_t gid = 0;
  };
  // All ranks have come, and this node makes the job.
  struct Placement {
    Job job;
    std::uint64_t round = 0;
    Owner owner;
    std::string mesh;                    // empty: no rank has named one
    std::vector<std::string> nodes;      // in the order of the cluster file; one: all ranks are here
    std::vector<std::uint32_t> node_of;  // by rank, an index in `nodes`
  };
  struct Orders {
    std::vector<Refusal> refusals;
    std::vector<OutgoingMessage> outgoing;  // to peers that are up
    std::vector<Placement> jobs;
    std::vector<Status> errors;  // events for which the state of a job has no cell
  };

  // Both outlive this object.
  explicit Rendezvous(const Roster& roster, const RendezvousMachine::Table& table = kRendezvous)
      : roster_(roster), table_(table) {}

  Status come(Rank rank);
  // The rank is attached, or dead, or was refused for another reason.
  void leave(std::uint64_t ticket);
  // The placement of that round could not be carried out: all that wait for it are refused, on all nodes.
  void failed(const Job& job, std::uint64_t round, const Status& why);

  // Takes a peer's message. All nodes of the cluster are believed.
  static bool is_one(const control::Json& message) { return message.contains("gathering"); }
  Status heard(const std::string& peer, const control::Json& message);
  void on_up(const std::string& peer);
  // The peer's messages count no longer.
  void on_down(const std::string& peer);

  // Once one rank of a job will wait no longer, all that wait for the job are refused, on other nodes too.
  // `away` says in words which nodes are not there.
  void expire(Instant now, const std::string& away);
  std::optional<Instant> next_deadline() const;

  // Takes the orders since the last call.
  Orders take();
  // The ranks that have come to each node, and the missing ones; empty: nobody waits for that job here.
  std::string text_of(const Job& job) const;
  std::vector<Job> jobs() const;
  // Nothing: nobody waits for that job here.
  std::optional<Owner> owner_here(const Job& job) const;

 private:
  struct Waiting {
    std::uint64_t ticket = 0;
    Owner owner;
    std::int32_t pid = 0;
    Instant until{0};
  };
  using State = RendezvousMachine::State;
  using Event = RendezvousMachine::Event;
  // An empty one is forgotten.
  struct Here {
    std::uint32_t world = 0;
    std::string mesh;
    std::uint64_t round = 0;
    std::uint64_t change = 0;
    StateMachine<RendezvousMachine> machine;
    std::map<std::uint32_t, Waiting> ranks;
  };
  struct There {
    std::uint32_t world = 0;
    std::string mesh;
    std::uint64_t round = 0;
    std::uint64_t change = 0;
    std::uint64_t heard = 0;           // which Here::change the peer knew
    std::uint64_t asked = 0;           // at which Here::change it was asked
    std::vector<std::uint32_t> ranks;  // rising

    // kProtocol.
    static Result<There> read(const control::Json& body);
    // A peer's message may be out of date if it was sent without knowledge of the ranks here. The peer's
    // ranks may have left since, and a launcher may have started their successors here. Such a message
    // decides nothing; the peer is asked.
    bool knows(const Here& here) const { return heard == here.change; }
  };
  using Peers = std::map<std::string, There>;

  Status contradiction(const Job& job, const std::string& peer, const There& there) const;
  bool all_know(const Job& job);
  void ask(const Job& job, const std::string& peer);
  Status note(const Job& job, const std::string& peer, There there);
  struct Facts {
    Status why{};
    const Placement* placement = nullptr;
  };
  void take(const Job& job, Event event, const Facts& facts);
  void act(const Job& job, RendezvousMachine::Action action, const Facts& facts);
  void look(const Job& job);
  std::optional<Placement> placement_of(const Job& job);
  void refuse_all(const Job& job, const Status& why);
  void tell_failed(const Job& job, const Status& why);
  control::Json announcement(const Job& job, const std::string& peer) const;
  const Peers& peers_of(const Job& job) const;

  const Roster& roster_;
  const RendezvousMachine::Table& table_;
  std::map<Job, Here> here_;
  std::map<Job, Peers> there_;
  std::map<std::uint64_t, std::pair<Job, std::uint32_t>> tickets_;  // and the rank
  std::set<std::string> up_;
  std::set<Job> untold_;
  std::uint64_t round_ = 0;
  std::uint64_t change_ = 0;
  Orders orders_;
};

}  // namespace muster::supervisor
