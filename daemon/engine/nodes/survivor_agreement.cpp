#include "daemon/engine/nodes/survivor_agreement.hpp"

#include <algorithm>

namespace muster::engine {
namespace {

bool any_of(const MemberBits& bits) {
  return std::find(bits.begin(), bits.end(), true) != bits.end();
}

}  // namespace

using Kind = AgreementMessage::Kind;

SurvivorAgreement::SurvivorAgreement(Options options) : options_(std::move(options)), nodes_(options_.nodes) {
  for (const std::uint32_t place : options_.place_of) ++nodes_[place].members;
  for (std::uint32_t place = 0; place < options_.nodes; ++place) {
    Node& node = nodes_[place];
    node.known = options_.known[place];
    node.asked.resize(node.members);
    node.waited.resize(node.members);
  }
  told_votes_ = may_vote();
}

// ---- votes -------------------------------------------------------------------------------------

bool SurvivorAgreement::may_vote() const {
  for (std::uint32_t place = 0; place < options_.nodes; ++place)
    if (place != options_.here && !nodes_[place].known && nodes_[place].fate != NodeFate::kDead) return false;
  return true;
}

bool SurvivorAgreement::is_majority(const std::vector<bool>& places) const {
  std::uint32_t sum = 0;
  for (std::uint32_t place = 0; place < options_.nodes; ++place)
    if (places[place]) sum += nodes_[place].members;
  if (2 * sum != options_.place_of.size()) return 2 * sum > options_.place_of.size();
  return options_.tie_breaker && places[*options_.tie_breaker];
}

// The rule of the header.
bool SurvivorAgreement::enough(const std::vector<bool>& voters) const {
  bool all = true;
  for (std::uint32_t place = 0; place < options_.nodes; ++place)
    all = all && (voters[place] || (place != options_.here && nodes_[place].fate == NodeFate::kDead));
  return all || is_majority(voters);
}

std::vector<bool> SurvivorAgreement::voters() const {
  std::vector<bool> voters(options_.nodes);
  for (std::uint32_t place = 0; place < options_.nodes; ++place)
    voters[place] = linked(place) && (nodes_[place].votes || !nodes_[place].heard);
  voters[options_.here] = may_vote();
  return voters;
}

bool SurvivorAgreement::open() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return any_of(node.asked); });
}

bool SurvivorAgreement::in_minority() const {
  bool silent = false;
  for (std::uint32_t place = 0; place < options_.nodes; ++place) {
    if (place == options_.here) continue;
    if (nodes_[place].fate == NodeFate::kApart) return false;  // its fate is not known
    silent = silent || nodes_[place].fate == NodeFate::kSilent;
  }
  return silent && !is_majority(voters());
}

std::uint32_t SurvivorAgreement::reached() const {
  std::uint32_t sum = nodes_[options_.here].members;
  for (std::uint32_t place = 0; place < options_.nodes; ++place)
    if (linked(place)) sum += nodes_[place].members;
  return sum;
}

// ---- messages of this node ---------------------------------------------------------------------

AgreementMessage SurvivorAgreement::about(Kind kind) const {
  AgreementMessage message;
  message.kind = kind;
  message.round = round_;
  return message;
}

// Sends the promise and the accepted value before the kSaid message. A node that has the latter has all.
void SurvivorAgreement::tell(std::uint32_t to, bool wants_answer) {
  if (promised_ != Ballot()) {
    AgreementMessage held = about(Kind::kHeld);
    held.ballot = promised_;
    held.accepted = accepted_;
    held.value = value_;
    send(to, std::move(held));
  }
  AgreementMessage said = about(Kind::kSaid);
  said.wants_answer = wants_answer;
  said.votes = may_vote();
  said.asked = nodes_[options_.here].asked;
  said.waited = nodes_[options_.here].waited;
  send(to, std::move(said));
}

void SurvivorAgreement::tell_all() {
  told_votes_ = may_vote();
  for (std::uint32_t place = 0; place < options_.nodes; ++place)
    if (linked(place)) tell(place, true);
}

// ---- events ------------------------------------------------------------------------------------

void SurvivorAgreement::set_local(const MemberBits& asked, const MemberBits& waited) {
  Node& own = nodes_[options_.here];
  if (own.asked == asked && own.waited == waited) return;
  const bool was_open = open();
  own.asked = asked;
  own.waited = waited;
  if (was_open || open()) tell_all();
}

void SurvivorAgreement::set_fate(std::uint32_t place, NodeFate fate) {
  Node& node = nodes_[place];
  if (node.fate == fate && fate != NodeFate::kLinked) return;
  node.fate = fate;
  node.left = node.ahead = false;
  node.heard = node.votes = node.voted = false;
  node.asked.assign(node.members, false);
  node.waited.assign(node.members, false);
  if (may_vote() != told_votes_) return tell_all();
  if (linked(place) && (open() || !may_vote())) tell(place, true);
}

// True if the message is of another round. A node that is behind gets the last decision.
bool SurvivorAgreement::other_round(std::uint32_t from, const AgreementMessage& message) {
  if (message.round == round_) return false;
  if (message.round > round_) {
    if (message.kind == Kind::kSaid) {
      nodes_[from].ahead = true;
      tell(from, true);
    }
    return true;
  }
  AgreementMessage decided = about(Kind::kDecided);
  decided.round = round_ - 1;
  decided.value = last_;
  send(from, std::move(decided));
  return true;
}

void SurvivorAgreement::hear(std::uint32_t from, const AgreementMessage& message) {
  // A node that had left the group may have made it again.
  if (nodes_[from].left && message.kind == Kind::kSaid) set_fate(from, NodeFate::kLinked);
  if (!linked(from)) return;
  const bool has_value = message.value.size() == options_.place_of.size();
  if (message.kind == Kind::kDecided) {
    if (has_value && message.round >= round_) decide(message.round, message.value, from);
    return;
  }
  if (message.kind == Kind::kLeft) {
    set_fate(from, NodeFate::kDead);
    nodes_[from].left = true;
    return;
  }
  if (other_round(from, message)) return;
  highest_seen_ = std::max(highest_seen_, std::max(message.ballot, message.accepted));
  switch (message.kind) {
    case Kind::kSaid:
      return hear_said(from, message);
    case Kind::kHeld:
      // As if this node had promised and accepted it: the others still know what it has forgotten.
      promised_ = std::max(promised_, message.ballot);
      if (!has_value || message.accepted <= accepted_) return;
      accepted_ = message.accepted;
      value_ = message.value;
      return;
    case Kind::kPrepare:
      return hear_prepare(from, message);
    case Kind::kAccept:
      if (has_value) hear_accept(from, message);
      return;
    case Kind::kPromise:
      if (has_value || message.accepted == Ballot()) hear_vote(from, message);
      return;
    case Kind::kAccepted:
      return hear_vote(from, message);
    case Kind::kRefused:
      if (phase_ == Phase::kIdle || message.ballot <= ballot_) return;
      phase_ = Phase::kIdle;
      retry_at_ = now_ + kBackoff * (1 + options_.here);
      return;
    default:
      return;
  }
}

void SurvivorAgreement::hear_said(std::uint32_t from, const AgreementMessage& message) {
  Node& node = nodes_[from];
  if (message.asked.size() != node.members || message.waited.size() != node.members) return;
  node.heard = node.known = true;
  node.votes = message.votes;
  node.asked = message.asked;
  node.waited = message.waited;
  if (may_vote() != told_votes_) return tell_all();
  if (message.wants_answer) tell(from, false);
}

void SurvivorAgreement::hear_prepare(std::uint32_t from, const AgreementMessage& message) {
  if (!may_vote()) return;
  const bool refused = message.ballot < promised_;
  AgreementMessage answer = about(refused ? Kind::kRefused : Kind::kPromise);
  promised_ = std::max(promised_, message.ballot);
  answer.ballot = promised_;
  if (!refused) {
    answer.accepted = accepted_;
    answer.value = value_;
  }
  send(from, std::move(answer));
}

void SurvivorAgreement::hear_accept(std::uint32_t from, const AgreementMessage& message) {
  if (!may_vote()) return;
  const bool refused = message.ballot < promised_;
  if (!refused) {
    promised_ = accepted_ = message.ballot;
    value_ = message.value;
  }
  AgreementMessage answer = about(refused ? Kind::kRefused : Kind::kAccepted);
  answer.ballot = promised_;
  send(from, std::move(answer));
}

void SurvivorAgreement::hear_vote(std::uint32_t from, const AgreementMessage& message) {
  const Phase phase = message.kind == Kind::kPromise ? Phase::kPreparing : Phase::kAccepting;
  if (phase_ != phase || message.ballot != ballot_) return;
  nodes_[from].voted = true;
  if (phase == Phase::kPreparing && message.accepted > best_) {
    best_ = message.accepted;
    best_value_ = message.value;
  }
}

// ---- leading -----------------------------------------------------------------------------------

// All nodes that it reaches wait for no member any more, and it is the first voter among them.
bool SurvivorAgreement::may_lead() const {
  if (!may_vote() || any_of(nodes_[options_.here].waited)) return false;
  for (std::uint32_t place = 0; place < options_.nodes; ++place) {
    if (place == options_.here) continue;
    const Node& node = nodes_[place];
    if (node.fate == NodeFate::kApart) return false;
    if (node.fate != NodeFate::kLinked) continue;
    if (!node.heard || any_of(node.waited) || (node.votes && place < options_.here)) return false;
  }
  return any_of(proposal()) && enough(voters());
}

MemberBits SurvivorAgreement::proposal() const {
  MemberBits survivors(options_.place_of.size());
  std::vector<std::size_t> next(options_.nodes);
  for (std::size_t member = 0; member < survivors.size(); ++member) {
    const std::uint32_t place = options_.place_of[member];
    survivors[member] = nodes_[place].asked[next[place]++];
  }
  return survivors;
}

void SurvivorAgreement::tick(Instant now) {
  now_ = now;
  if (phase_ != Phase::kIdle) look_at_votes();
  if (now_ < retry_at_) return;
  if (!may_lead()) {
    phase_ = Phase::kIdle;
    return;
  }
  begin_ballot();
  look_at_votes();
}

void SurvivorAgreement::begin_ballot() {
  ballot_ = {std::max(highest_seen_, promised_).count + 1, options_.here};
  phase_ = Phase::kPreparing;
  promised_ = ballot_;
  best_ = accepted_;
  best_value_ = value_;
  retry_at_ = now_ + kRetry;
  for (std::uint32_t place = 0; place < options_.nodes; ++place) {
    nodes_[place].voted = place == options_.here;
    if (!linked(place)) continue;
    AgreementMessage prepare = about(Kind::kPrepare);
    prepare.ballot = ballot_;
    send(place, std::move(prepare));
  }
}

// A death may be evidence now, so votes are counted anew each time.
void SurvivorAgreement::look_at_votes() {
  std::vector<bool> voted(options_.nodes);
  const auto count = [&] {
    for (std::uint32_t place = 0; place < options_.nodes; ++place)
      voted[place] = place == options_.here ? may_vote() : linked(place) && nodes_[place].voted;
    return enough(voted);
  };
  if (promised_ != ballot_) {  // another ballot has overtaken it
    phase_ = Phase::kIdle;
    return;
  }
  if (phase_ == Phase::kPreparing && count()) {
    MemberBits value = best_ == Ballot() ? proposal() : best_value_;
    if (!any_of(value)) {  // no member wants to go on any more
      phase_ = Phase::kIdle;
      return;
    }
    phase_ = Phase::kAccepting;
    accepted_ = ballot_;
    value_ = std::move(value);
    for (std::uint32_t place = 0; place < options_.nodes; ++place) {
      nodes_[place].voted = place == options_.here;
      if (!linked(place)) continue;
      AgreementMessage accept = about(Kind::kAccept);
      accept.ballot = ballot_;
      accept.value = value_;
      send(place, std::move(accept));
    }
  }
  if (phase_ == Phase::kAccepting && count()) decide(round_, MemberBits(value_), options_.here);
}

void SurvivorAgreement::decide(std::uint64_t round, const MemberBits& value, std::uint32_t heard_from) {
  news_ = Decision{round, value, may_vote()};
  round_ = round + 1;
  last_ = value;
  promised_ = accepted_ = ballot_ = highest_seen_ = best_ = {};
  value_ = best_value_ = {};
  phase_ = Phase::kIdle;
  retry_at_ = now_;
  for (Node& node : nodes_) {
    node.heard = node.voted = false;
    node.asked.assign(node.members, false);
    node.waited.assign(node.members, false);
  }
  for (std::uint32_t place = 0; place < options_.nodes; ++place) {
    if (!linked(place)) continue;
    if (std::exchange(nodes_[place].ahead, false)) tell(place, true);
    if (place == heard_from) continue;
    AgreementMessage decided = about(Kind::kDecided);
    decided.round = round;
    decided.value = value;
    send(place, std::move(decided));
  }
}

}  // namespace muster::engine
