// SurvivorAgreement: one node's part in agreeing on the survivors of a group that spans nodes. A sans-IO
// core: messages, deaths and time come in, messages and decisions go out. Nodes send each other
// AgreementMessages.
//
// The protocol is Paxos for one value, once for each round of the group: L. Lamport, "Paxos Made Simple"
// (2001). The value is the list of survivors. As in the early returning agreement of ULFM (T. Herault and
// others, "Practical scalable consensus for pseudo-synchronous distributed systems", SC'15), the first
// node that is left leads, and the next one takes over.
//
//   said      which members of the sender's node go on, and for which of them it still waits
//   prepare   the leader asks for promises under a ballot; promise: with the value accepted before, if any
//   accept    the leader proposes the value with the highest ballot, or else all members that want to go on
//   decided   every node that receives the decision passes it on to all that it reaches
//
// A leader may decide with the votes of every node of the group that is not known to be dead. It may also
// decide with the votes of nodes that have more than half of the group's members, or half of them and the
// tie-breaker. A node is known to be dead if its own supervisor or engine has reported that: silence is no
// evidence. Each two such sets of voters share a node, or one of them is dead. So no two nodes decide
// differently in one round.
//
// An engine that begins again has forgotten its votes. It votes in a group once every other node that is not
// dead has sent it its promise and accepted value. Messages between two nodes come in order or not at all.
#pragma once

#include "api/base/clock.hpp"

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace muster::engine {

using MemberBits = std::vector<bool>;  // by member of the group, or by member on one node; in group order

struct Ballot {
  std::uint32_t count = 0;  // 0: none
  std::uint32_t node = 0;   // its leader's place
  friend auto operator<=>(const Ballot&, const Ballot&) = default;
};

struct AgreementMessage {
  // kHeld: the promise and the accepted value of the sender, for a node that does not know them. kRefused:
  // the sender has promised a higher ballot. kLeft: the sender's node had members in the group, and has none
  // left.
  enum class Kind : std::uint32_t {
    kSaid = 1,
    kDecided,
    kHeld,
    kPrepare,
    kPromise,
    kAccept,
    kAccepted,
    kRefused,
    kLeft
  };
  Kind kind = Kind::kSaid;
  std::uint64_t round = 0;
  Ballot ballot;              // of prepare to accepted; kRefused, kHeld: the promise of the sender
  Ballot accepted;            // kPromise, kHeld: the ballot of the value, if there is one
  bool wants_answer = false;  // kSaid: the receiver sends its own kSaid
  bool votes = false;         // kSaid
  MemberBits value;           // kDecided, kAccept, kPromise, kHeld: by member of the group
  MemberBits asked, waited;   // kSaid: by member on the sender's node
};

// The state of another node, as a node knows it.
enum class NodeFate : std::uint8_t {
  kLinked,
  kApart,   // disconnected, for a reason that is not known yet
  kSilent,  // given up, because it sent nothing
  kDead,    // its own supervisor or engine has reported its end
};

// Owns    this node's vote, and the state of the others in this round.
// Thread  one.
// Bound   a few bits for each member; one ballot at a time; messages until they are taken.
// Fails   never. A message that makes no sense is dropped.
class SurvivorAgreement {
 public:
  static constexpr Nanos kRetry = std::chrono::milliseconds(250);   // for a ballot that gets no answers
  static constexpr Nanos kBackoff = std::chrono::milliseconds(20);  // times the place, after a refusal

  struct Options {
    std::vector<std::uint32_t> place_of;       // by member: the place of its node among the group's nodes
    std::uint32_t nodes = 0;                   // at least 2
    std::uint32_t here = 0;                    // this node's place
    std::optional<std::uint32_t> tie_breaker;  // a place
    // By place: that node has had nothing to send since this engine began, as both are as old as the job.
    std::vector<bool> known;
  };
  struct Decision {
    std::uint64_t round = 0;
    MemberBits survivors;   // by member
    bool took_part = true;  // false: this engine began later, so the list is not of its present clients
  };
  struct Outgoing {
    std::uint32_t to = 0;
    AgreementMessage message;
  };

  explicit SurvivorAgreement(Options options);

  // ---- events ----------------------------------------------------------------------------------
  // This node's members that want to go on, and those for whom they wait; by member on this node.
  void set_local(const MemberBits& asked, const MemberBits& waited);
  // kLinked: connected, or connected anew.
  void set_fate(std::uint32_t place, NodeFate fate);
  void hear(std::uint32_t from, const AgreementMessage& message);
  // Begins a ballot, or a new one, if it is this node's turn. Call it after events, and now and then.
  void tick(Instant now);

  // ---- what comes of them ----------------------------------------------------------------------
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  std::optional<Decision> take_decision() { return std::exchange(news_, std::nullopt); }

  // Some member wants to go on in this round.
  bool open() const;
  // The round cannot end as long as silent nodes stay away: the others have the majority, or no nodes have
  // it.
  bool in_minority() const;
  // The state of a node, for texts.
  struct Node {
    NodeFate fate = NodeFate::kApart;
    std::uint32_t members = 0;
    bool left = false;   // kDead, because its engine has no members in the group any more
    bool heard = false;  // it has sent kSaid in this round, on this connection
    bool ahead = false;  // it is in a later round, to which this node has not come
    bool known = false;  // its promise and value are known, or it has none
    bool votes = false;
    bool voted = false;  // for the ballot, in its phase
    MemberBits asked, waited;
  };
  const Node& node(std::uint32_t place) const { return nodes_[place]; }
  // How many members of the group are on nodes that this one reaches, itself among them.
  std::uint32_t reached() const;

 private:
  enum class Phase : std::uint8_t { kIdle, kPreparing, kAccepting };
  bool linked(std::uint32_t place) const {
    return place != options_.here && nodes_[place].fate == NodeFate::kLinked;
  }
  bool may_vote() const;
  bool is_majority(const std::vector<bool>& places) const;
  bool enough(const std::vector<bool>& voters) const;
  std::vector<bool> voters() const;  // the nodes whose votes can be had
  bool may_lead() const;
  MemberBits proposal() const;

  void send(std::uint32_t to, AgreementMessage message) { outgoing_.push_back({to, std::move(message)}); }
  AgreementMessage about(AgreementMessage::Kind kind) const;
  void tell(std::uint32_t to, bool wants_answer);
  void tell_all();
  bool other_round(std::uint32_t from, const AgreementMessage& message);

  void hear_said(std::uint32_t from, const AgreementMessage& message);
  void hear_prepare(std::uint32_t from, const AgreementMessage& message);
  void hear_accept(std::uint32_t from, const AgreementMessage& message);
  void hear_vote(std::uint32_t from, const AgreementMessage& message);

  void begin_ballot();
  void look_at_votes();
  void decide(std::uint64_t round, const MemberBits& value, std::uint32_t heard_from);

  const Options options_;
  std::vector<Node> nodes_;  // by place
  std::uint64_t round_ = 0;
  MemberBits last_;  // of the round before
  // Its vote.
  Ballot promised_, accepted_;
  MemberBits value_;
  // Its ballot, if it leads.
  Phase phase_ = Phase::kIdle;
  Ballot ballot_, highest_seen_, best_;
  MemberBits best_value_;
  Instant now_{0}, retry_at_{0};
  bool told_votes_ = false;  // the others know that this node votes

  std::vector<Outgoing> outgoing_;
  std::optional<Decision> news_;
};

}  // namespace muster::engine
