#include "daemon/engine/nodes/job_shrinks.hpp"

#include "api/base/words.hpp"
#include "daemon/engine/session/group_span.hpp"
#include "daemon/engine/session/resolve.hpp"

#include <algorithm>
#include <utility>

namespace muster::engine {
namespace {

// "rank 3 is", "ranks 3-5 are".
std::string ranks_are(const std::vector<std::uint32_t>& ranks) {
  return fmt::format("rank{} {} {}", ranks.size() == 1 ? "" : "s", rank_list(ranks),
                     ranks.size() == 1 ? "is" : "are");
}

}  // namespace

JobShrinks::JobShrinks(Parts parts) : parts_(std::move(parts)) {}

void JobShrinks::left(SessionId session) {
  rounds_.left(session);
  for (auto& [group, spanning] : spanning_) spanning.said.erase(session);
}

void JobShrinks::forget(GroupId group) {
  rounds_.forget(group);
  spanning_.erase(group);
  const scheduler::Group& gone = parts_.graph.groups()[group.value];
  if (!gone.spans()) return;
  forgotten_.push_back(gone.key);
  if (forgotten_.size() > kForgottenMax) forgotten_.pop_front();
}

// BUSY while it waits for other members: the client asks again, and nothing blocks here. The group is always
// new, because an older one of the same ranks may have failures for some of them.
Result<std::uint64_t> JobShrinks::shrink(const Session& session, GroupId of, bool gives_up) {
  const scheduler::Group& whole = parts_.graph.groups()[of.value];
  const Rank self = session.options().rank;
  if (std::find(whole.ranks.begin(), whole.ranks.end(), self) == whole.ranks.end())
    return fail(Code::kBadArgument, "rank {} is not a member of group {}", self.value, whole.name);
  MUSTER_RETURN_IF_ERROR(check_reach(parts_.spec.world, whole));
  if (auto answer = rounds_.take_answer(of, session.options().id)) return *std::move(answer);
  return whole.spans() ? shrink_spanning(session, of, gives_up) : shrink_here(session, of, gives_up);
}

// ---- on one node -------------------------------------------------------------------------------

Result<std::uint64_t> JobShrinks::shrink_here(const Session& session, GroupId of, bool gives_up) {
  const SessionId asker = session.options().id;
  const scheduler::Group& whole = parts_.graph.groups()[of.value];
  const std::vector<SessionId> attached = parts_.slots.sessions_of(whole.ranks);
  const std::vector<SessionId> waited = rounds_.ask(of, asker, attached);
  if (!waited.empty()) {
    std::vector<std::uint32_t> ranks;
    for (const Rank rank : whole.ranks) {
      const auto& member = parts_.slots.of(rank).session;
      if (member && std::find(waited.begin(), waited.end(), member->options().id) != waited.end())
        ranks.push_back(rank.value);
    }
    if (gives_up) rounds_.give_up(of, asker);
    return fail(gives_up ? Code::kTimeout : Code::kBusy,
                "group {}: {} attached and did not call muster_group_shrink", whole.name, ranks_are(ranks));
  }
  const std::vector<SessionId> askers = rounds_.askers(of, attached);
  std::vector<Rank> left;
  for (const Rank rank : whole.ranks) {
    const auto& member = parts_.slots.of(rank).session;
    if (member && std::find(askers.begin(), askers.end(), member->options().id) != askers.end())
      left.push_back(rank);
  }
  rounds_.close(of, askers, make(of, left, "survivors", askers));
  return *rounds_.take_answer(of, asker);
}

// Makes the group in which the survivors go on. `holders`: sessions of this node that have asked.
Result<std::uint64_t> JobShrinks::make(GroupId of, std::span<const Rank> left, const std::string& identity,
                                       const std::vector<SessionId>& holders) {
  if (left.size() == parts_.graph.groups()[of.value].ranks.size()) return parts_.table.handle_of(of);
  if (left.size() <= 1) return MUSTER_GROUP_SELF;
  std::vector<Rank> gone;
  for (const Rank rank : left) {
    if (!parts_.spec.world.is_local(rank)) continue;
    const auto& member = parts_.slots.of(rank).session;
    if (!member) {
      gone.push_back(rank);
    } else if (std::find(holders.begin(), holders.end(), member->options().id) != holders.end()) {
      MUSTER_RETURN_IF_ERROR(parts_.table.may_hold(rank, member->options().id, 1));
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const GroupId made, parts_.enter(left, identity));
  for (const SessionId holder : holders) parts_.table.hold(made, {holder});
  // Members on other nodes may use the group already, and would wait for the lost ranks.
  for (const Rank rank : gone)
    parts_.faults.missing(made, rank,
                          fmt::format("rank {} left while the group of the survivors was made", rank.value));
  parts_.faults.refresh_absences();
  const std::uint64_t handle = parts_.table.handle_of(made);
  if (holders.empty()) parts_.retire(made);
  return handle;
}

// ---- between nodes -----------------------------------------------------------------------------

Result<std::uint64_t> JobShrinks::shrink_spanning(const Session& session, GroupId of, bool gives_up) {
  const SessionId asker = session.options().id;
  const scheduler::Group& whole = parts_.graph.groups()[of.value];
  MUSTER_RETURN_IF_ERROR(parts_.table.may_hold(session.options().rank, asker, 1));
  Spanning& mine = spanning(of);
  static_cast<void>(rounds_.ask(of, asker, {}));
  mine.said.insert(asker);
  advance(of, mine);
  if (auto answer = rounds_.take_answer(of, asker)) return *std::move(answer);
  const bool minority_here = mine.agreement.in_minority();
  if (!minority_here && !gives_up) return fail(Code::kBusy, "{}", awaited(of, mine));
  const Status why = minority_here ? minority(of, mine)
                                   : failure(Code::kTimeout, "group {}: {}", whole.name, awaited(of, mine));
  rounds_.give_up(of, asker);
  advance(of, mine);
  return fail(why);
}

JobShrinks::Spanning& JobShrinks::spanning(GroupId of) {
  if (const auto known = spanning_.find(of); known != spanning_.end()) return known->second;
  const scheduler::Group& whole = parts_.graph.groups()[of.value];
  const transport::Span span = span_of(whole, parts_.spec.world);
  const bool made_before = std::find(forgotten_.begin(), forgotten_.end(), whole.key) != forgotten_.end();
  SurvivorAgreement::Options options;
  options.place_of = span.node_of;
  options.nodes = static_cast<std::uint32_t>(span.nodes.size());
  options.here = span.here;
  std::vector<std::size_t> members_here;
  for (std::size_t member = 0; member < span.node_of.size(); ++member)
    if (span.node_of[member] == span.here) members_here.push_back(member);
  for (std::uint32_t place = 0; place < options.nodes; ++place) {
    const NodeIndex node = span.nodes[place];
    if (parts_.spec.world.name_of(node) == parts_.spec.tie_breaker) options.tie_breaker = place;
    options.known.push_back(!made_before && parts_.other_nodes.of(node).since_birth);
  }
  Spanning& made = spanning_
                       .emplace(of, Spanning{span,
                                             SurvivorAgreement(options),
                                             std::move(members_here),
                                             std::vector<OtherNodes::Standing>(span.nodes.size()),
                                             {},
                                             {}})
                       .first->second;
  advance(of, made);
  return made;
}

std::optional<GroupId> JobShrinks::find(std::uint64_t key) const {
  for (std::uint32_t g = 0; g < parts_.graph.groups().size(); ++g) {
    const scheduler::Group& group = parts_.graph.groups()[g];
    if (group.spans() && group.key == key && !group.ranks.empty()) return GroupId(g);
  }
  return std::nullopt;
}

void JobShrinks::take(NodeIndex from, std::uint32_t generation, std::span<const std::byte> message) {
  if (auto read = read_agreement(message)) arrived_.push_back({from, generation, *std::move(read)});
}

void JobShrinks::work() {
  for (auto& [of, spanning] : spanning_) look_at_nodes(of, spanning);
  for (const Arrived& arrived : std::exchange(arrived_, {})) hear(arrived);
  for (auto& [of, spanning] : spanning_) advance(of, spanning);
}

bool JobShrinks::is_open() const {
  return std::any_of(spanning_.begin(), spanning_.end(), [](const auto& each) {
    return each.second.agreement.open() || each.second.decision.has_value();
  });
}

// Tells the agreement which nodes are there. A new connection to a node voids what the node sent before.
void JobShrinks::look_at_nodes(GroupId, Spanning& spanning) {
  for (std::uint32_t place = 0; place < spanning.shown.size(); ++place) {
    if (place == spanning.span.here) continue;
    const OtherNodes::Standing& now = parts_.other_nodes.of(spanning.span.nodes[place]);
    OtherNodes::Standing& shown = spanning.shown[place];
    const bool anew = now.fate == NodeFate::kLinked && now.generation != shown.generation;
    if (now.fate != shown.fate || anew) spanning.agreement.set_fate(place, now.fate);
    shown = now;
  }
}

void JobShrinks::hear(const Arrived& arrived) {
  const std::uint64_t key = arrived.sent.group;
  const auto of = find(key);
  if (!of) {
    // An engine that asks about a group that is gone here need not wait for this node.
    const bool gone = std::find(forgotten_.begin(), forgotten_.end(), key) != forgotten_.end();
    if (!gone || arrived.sent.message.kind != AgreementMessage::Kind::kSaid) return;
    AgreementMessage left;
    left.kind = AgreementMessage::Kind::kLeft;
    parts_.other_nodes.links().tell(arrived.from, bytes_of_agreement({key, left}));
    return;
  }
  Spanning& mine = spanning(*of);
  const auto& nodes = mine.span.nodes;
  const auto at = std::find(nodes.begin(), nodes.end(), arrived.from);
  if (at == nodes.end()) return;
  const auto place = static_cast<std::uint32_t>(at - nodes.begin());
  if (mine.shown[place].generation != arrived.generation) return;
  mine.agreement.hear(place, arrived.sent.message);
  advance(*of, mine);
}

// Passes on the requests of this node's members, and sends and carries out the results.
void JobShrinks::advance(GroupId of, Spanning& spanning) {
  look_at_nodes(of, spanning);
  const std::vector<Rank> here = here_of(of, spanning);
  const std::vector<SessionId> attached = parts_.slots.sessions_of(here);
  const std::vector<SessionId> askers = rounds_.askers(of, attached);
  const std::vector<SessionId> awaited = rounds_.waited(of, attached);
  MemberBits asked(here.size()), waited(here.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    const auto& session = parts_.slots.of(here[i]).session;
    if (!session) continue;
    const SessionId id = session->options().id;
    asked[i] = std::find(askers.begin(), askers.end(), id) != askers.end();
    waited[i] = std::find(awaited.begin(), awaited.end(), id) != awaited.end();
  }
  spanning.agreement.set_local(asked, waited);
  spanning.agreement.tick(parts_.clock.now());
  for (SurvivorAgreement::Outgoing& out : spanning.agreement.take_outgoing())
    parts_.other_nodes.links().tell(spanning.span.nodes[out.to],
                                    bytes_of_agreement({spanning.span.group, std::move(out.message)}));
  if (auto decision = spanning.agreement.take_decision()) spanning.decision = *std::move(decision);
  if (spanning.decision) carry_out(of, spanning);
}

std::vector<Rank> JobShrinks::here_of(GroupId of, const Spanning& spanning) const {
  std::vector<Rank> here;
  for (const std::size_t member : spanning.members_here)
    here.push_back(parts_.graph.groups()[of.value].ranks[member]);
  return here;
}

std::vector<SessionId> JobShrinks::sessions_in(const std::set<SessionId>& said,
                                               std::span<const Rank> ranks) const {
  std::vector<SessionId> sessions;
  for (const Rank rank : ranks) {
    if (!parts_.spec.world.is_local(rank)) continue;
    const auto& session = parts_.slots.of(rank).session;
    if (session && said.contains(session->options().id)) sessions.push_back(session->options().id);
  }
  return sessions;
}

void JobShrinks::carry_out(GroupId of, Spanning& spanning) {
  const scheduler::Group& whole = parts_.graph.groups()[of.value];
  std::vector<Rank> left;
  bool any_here = false;
  for (std::size_t member = 0; member < whole.ranks.size(); ++member) {
    if (!spanning.decision->survivors[member]) continue;
    left.push_back(whole.ranks[member]);
    any_here = any_here || parts_.spec.world.is_local(whole.ranks[member]);
  }
  if (!spanning.decision->took_part) return spanning.decision.reset();
  if (!any_here) {
    std::vector<std::uint32_t> others;
    for (const Rank rank : left) others.push_back(rank.value);
    std::vector<SessionId> asking = rounds_.askers(of, parts_.slots.sessions_of(here_of(of, spanning)));
    rounds_.close(of, asking,
                  fail(Code::kMinority, "group {}: rank{} {} went on without this node, which they had lost",
                       whole.name, others.size() == 1 ? "" : "s", rank_list(others)));
    spanning.said.clear();
    return spanning.decision.reset();
  }
  const std::vector<SessionId> answered = sessions_in(spanning.said, left);
  const std::string identity =
      fmt::format("survivors of {} in round {}", whole.key, spanning.decision->round);
  const auto made = make(of, left, identity, answered);
  if (!made && made.error().code() == Code::kBusy) return;  // tried again when there is room
  rounds_.close(of, answered, made);
  for (const SessionId session : answered) spanning.said.erase(session);
  spanning.decision.reset();
}

// ---- texts -------------------------------------------------------------------------------------

std::string JobShrinks::named_nodes(const Spanning& spanning, NodeFate fate) const {
  std::string names;
  for (std::uint32_t place = 0; place < spanning.shown.size(); ++place) {
    if (place == spanning.span.here || spanning.agreement.node(place).fate != fate) continue;
    if (!names.empty()) names += ", ";
    names += parts_.spec.world.name_of(spanning.span.nodes[place]);
  }
  return names;
}

std::string JobShrinks::awaited(GroupId of, const Spanning& spanning) const {
  const std::vector<Rank>& ranks = parts_.graph.groups()[of.value].ranks;
  std::vector<std::uint32_t> waited;
  std::vector<std::size_t> next(spanning.shown.size());
  std::string unheard;
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    const std::uint32_t place = spanning.span.node_of[member];
    if (spanning.agreement.node(place).waited[next[place]++]) waited.push_back(ranks[member].value);
  }
  for (std::uint32_t place = 0; place < spanning.shown.size(); ++place) {
    if (place == spanning.span.here || spanning.agreement.node(place).heard) continue;
    const NodeFate fate = spanning.agreement.node(place).fate;
    const std::string& name = parts_.spec.world.name_of(spanning.span.nodes[place]);
    if (fate == NodeFate::kLinked) unheard += fmt::format("; node {} has not answered", name);
    if (fate == NodeFate::kApart)
      unheard += fmt::format("; node {} is not connected, and nobody has said yet whether it is gone: {}",
                             name, spanning.shown[place].why.message());
  }
  if (!waited.empty())
    return fmt::format("{} attached and did not call muster_group_shrink{}", ranks_are(waited), unheard);
  return unheard.empty() ? "its nodes have not agreed yet" : unheard.substr(2);
}

Status JobShrinks::minority(GroupId of, const Spanning& spanning) const {
  const std::uint32_t reached = spanning.agreement.reached();
  const std::size_t members = parts_.graph.groups()[of.value].ranks.size();
  const std::string silent = named_nodes(spanning, NodeFate::kSilent);
  const bool one = silent.find(',') == std::string::npos;
  const bool half = 2 * reached == members;
  const std::string& breaker = parts_.spec.tie_breaker;
  std::string tie;
  if (half && breaker.empty()) tie = " (at exactly half, cluster.tie_breaker decides, and is not set)";
  if (half && !breaker.empty()) tie = fmt::format(" (at exactly half, the side of {} goes on)", breaker);
  return failure(Code::kMinority,
                 "group {}: node{} {} {} silent, and no daemon has reported {} end; this side has {} of the "
                 "group's {} members{}. End these ranks if the others go on, or call again once {} back",
                 parts_.graph.groups()[of.value].name, one ? "" : "s", silent, one ? "is" : "are",
                 one ? "its" : "their", reached, members, tie, one ? "it is" : "they are");
}

}  // namespace muster::engine
