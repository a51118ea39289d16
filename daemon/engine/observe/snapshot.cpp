#include "daemon/engine/observe/snapshot.hpp"

#include "api/base/dtype.hpp"
#include "scheduler/run/heads.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace muster::engine {
namespace {

using blame::Snapshot;
using blame::Wait;

constexpr std::uint32_t kNoMember = UINT32_MAX;
// Operations beyond a limit are left out. A report then says less about why a rank is missing.
constexpr std::size_t kReachedMax = 2048;
constexpr std::size_t kQueuedMax = 1024;

const std::vector<Rank>& members_of(const Evidence& e, GroupId group) {
  return e.graph.groups()[group.value].ranks;
}

blame::Wait::Operation operation_of(const scheduler::Plan& plan) {
  const scheduler::CollectiveWork& work = *plan.collective();
  const bool typed = work.collective.dtype != 0;
  blame::Wait::Operation operation{plan.label(), plan.bytes, typed ? dtype_name(work.collective.dtype) : "",
                                   work.site};
  if (work.point_to_point()) operation.tag = work.collective.tag;
  operation.common = work.signature.common.hex();
  return operation;
}

// The difference among the members that have arrived, if all must announce the same.
std::string difference_among(const Evidence& e, GroupId group,
                             const std::vector<const scheduler::Plan*>& plans) {
  std::vector<Party> parties(plans.size());
  const Signature* first = nullptr;
  bool differs = false;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    parties[i].rank = static_cast<std::int32_t>(members_of(e, group)[i].value);
    const scheduler::CollectiveWork* work = plans[i] != nullptr ? plans[i]->collective() : nullptr;
    if (work == nullptr || work->group != group) continue;
    parties[i].collective = &work->collective;
    parties[i].share = &work->share;
    parties[i].site = work->site;
    if (first == nullptr) first = &work->signature;
    differs = differs || !(work->signature.common == first->common);
  }
  return differs ? difference(parties) : std::string();
}

// ---- groups that span nodes --------------------------------------------------------------------

blame::SpanKey span_key(const transport::PlaceKey& place, std::uint32_t tag, std::uint64_t epoch,
                        std::uint64_t number) {
  return {place.group, place.lane, place.sender, place.receiver, tag, epoch, number};
}

// The name of an operation on all nodes of its group, if it needs several.
void add_span(const Evidence& e, const scheduler::Plan& plan, const transport::PlaceKey& place,
              std::uint64_t epoch, std::uint64_t number, Wait& wait) {
  const scheduler::CollectiveWork& work = *plan.collective();
  if (!e.graph.groups()[work.group.value].spans()) return;
  const auto& members = members_of(e, work.group);
  std::vector<Rank> ranks = members;
  if (work.point_to_point())
    ranks = {members[static_cast<std::size_t>(work.collective.root)],
             members[static_cast<std::size_t>(work.collective.receiver)]};
  if (e.ranks.world().are_local(ranks)) return;  // a pair meets where it is
  wait.span = span_key(place, work.point_to_point() ? work.collective.tag : 0, epoch, number);
  for (const Rank rank : ranks) wait.takes_part.push_back(rank.value);
}

// ---- the engine path ---------------------------------------------------------------------------

Wait pending_wait(const Evidence& e, const scheduler::GroupPlaces::Pending& pending) {
  Wait wait;
  wait.group = pending.group.value;
  wait.group_name = e.graph.groups()[pending.group.value].name;
  wait.members = members_of(e, pending.group).size();
  wait.lane = e.graph.lane_names().label(pending.lane);
  wait.number = pending.number;
  wait.operation = operation_of(*pending.arrived.front().plan);
  wait.since = pending.arrived.front().at;
  std::vector<const scheduler::Plan*> plans(members_of(e, pending.group).size());
  for (const auto& arrival : pending.arrived) {
    wait.arrived.push_back({arrival.rank.value, arrival.at});
    wait.since = std::min(wait.since, arrival.at);
    plans[static_cast<std::size_t>(arrival.plan->collective()->index())] = arrival.plan;
  }
  for (const Rank rank : pending.missing) wait.missing.push_back({rank.value, {}, {}});
  const scheduler::Arrival& first = pending.arrived.front();
  if (!first.plan->collective()->point_to_point()) {
    wait.difference = difference_among(e, pending.group, plans);
    const scheduler::Place place = scheduler::place_of(*first.plan->collective(), pending.lane);
    add_span(e, *first.plan, scheduler::key_of(place, e.graph.groups(), e.graph.lane_names()),
             first.stamp.epoch, first.stamp.number, wait);
  }
  return wait;
}

Wait running_wait(const Evidence& e, const scheduler::StepTable::Running& running) {
  const scheduler::Step::Part& part = running.step->parts.front();
  const scheduler::CollectiveWork& work = *part.plan->collective();
  Wait wait;
  wait.group = work.group.value;
  wait.group_name = e.graph.groups()[work.group.value].name;
  wait.members = members_of(e, work.group).size();
  wait.lane = e.graph.lane_names().label(part.lane_id);
  wait.number =
      work.point_to_point() ? part.value : e.graph.matches()[work.group].number_of(part.lane_id, part.stamp);
  wait.operation = operation_of(*part.plan);
  wait.since = running.since;
  const transport::MatchKey& key = running.step->key;
  add_span(e, *part.plan, key.place, key.epoch, key.number, wait);
  for (const auto& each : running.step->parts) {
    // Where other nodes may be missing, the wait began before the launch.
    wait.arrived.push_back({each.rank.value, wait.span ? each.arrived : running.since});
    wait.since = std::min(wait.since, wait.arrived.back().at);
  }
  return wait;
}

const scheduler::Head* head_of(const std::vector<scheduler::Head>& heads, Rank rank, std::uint32_t lane) {
  const auto found = std::find_if(heads.begin(), heads.end(),
                                  [&](const auto& head) { return head.rank == rank && head.lane == lane; });
  return found == heads.end() ? nullptr : &*found;
}

std::optional<std::size_t> wait_at(const Snapshot& snapshot, Rank rank, const std::string& lane) {
  for (std::size_t w = 0; w < snapshot.waits.size(); ++w) {
    const Wait& wait = snapshot.waits[w];
    // An operation that spans nodes may wait for ranks of other nodes when all of this node have come.
    const bool waits = !wait.missing.empty() || wait.span;
    if (wait.path != Path::kEngine || wait.lane != lane || !waits) continue;
    const bool here = std::any_of(wait.arrived.begin(), wait.arrived.end(),
                                  [&](const blame::Wait::Arrived& a) { return a.rank == rank.value; });
    if (here) return w;
  }
  return std::nullopt;
}

// The obstacle to the rank's next start on a lane: a wait, or another reason as text.
struct Hindrance {
  std::optional<std::size_t> wait;
  std::string reason;
};
Hindrance hindrance(const Snapshot& snapshot, const scheduler::Graph& graph,
                    const std::vector<scheduler::Head>& heads, Rank rank, std::uint32_t lane) {
  Hindrance found;
  const scheduler::RankLanes& lanes = graph.lanes()[rank];
  for (std::uint32_t steps = 0; steps < lanes.lanes(); ++steps) {
    const scheduler::Head* head = head_of(heads, rank, lane);
    if (head == nullptr || head->arrived || !head->obstacle.lane) {
      found.wait = wait_at(snapshot, rank, graph.lane_names().label(lanes.id(lane)));
      if (head != nullptr && !head->arrived) found.reason = head->obstacle.text;
      return found;
    }
    found.reason = head->obstacle.text;
    lane = *head->obstacle.lane;
  }
  return found;
}

void explain_missing(const Evidence& e, const std::vector<scheduler::GroupPlaces::Pending>& pending,
                     Snapshot& snapshot) {
  const auto heads = scheduler::heads_of(e.graph.lanes(), e.graph.lane_names());
  for (std::size_t w = 0; w < pending.size(); ++w) {
    const scheduler::CollectiveWork& work = *pending[w].arrived.front().plan->collective();
    for (blame::Wait::Missing& missing : snapshot.waits[w].missing) {
      const Rank rank(missing.rank);
      const scheduler::RankLanes& lanes = e.graph.lanes()[rank];
      const auto lane = lanes.find(pending[w].lane);
      const auto standing = work.point_to_point() ? scheduler::other_end(lanes, work)
                            : lane                ? scheduler::submitted(lanes, *lane, pending[w].group)
                                                  : std::nullopt;
      if (!standing) continue;
      missing.stands = standing->text(lanes, e.graph.lane_names());
      Hindrance found = hindrance(snapshot, e.graph, heads, rank, standing->lane);
      if (found.wait != w) missing.behind = found.wait;
      if (!missing.behind) missing.reason = std::move(found.reason);
    }
  }
}

// ---- the direct path ---------------------------------------------------------------------------

// Identifies one operation: group, number, and for a pair the indices of sender and receiver.
using MetMembers = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t, std::uint32_t>;

MetMembers match_of(const DirectRecords::Flight& flight) {
  std::uint32_t sender = kNoMember;
  std::uint32_t receiver = kNoMember;
  if (flight.what.op == MUSTER_SEND) sender = flight.member, receiver = flight.what.peer;
  if (flight.what.op == MUSTER_RECV) sender = flight.what.peer, receiver = flight.member;
  return {flight.group.value, flight.number, sender, receiver};
}

// The question which members have arrived at operation `number` of the flight's group and epoch, which is the
// present one.
DirectQuestion arrivals_at(const Evidence& e, const DirectRecords::Flight& flight, std::uint64_t number) {
  return {flight.group,
          flight.member,
          flight.epoch,
          e.direct_pages->epochs().base(flight.group) + number,
          0,
          shm::DirectWait::kArrivals,
          0};
}

void add_plan_facts(const Evidence& e, const DirectRecords::Flight& flight, Wait& wait) {
  const DirectQuestion question = arrivals_at(e, flight, flight.number);
  const auto& members = members_of(e, flight.group);
  std::vector<const scheduler::Plan*> plans(members.size());
  for (const blame::Wait::Arrived& arrived : wait.arrived) {
    const auto at = std::find(members.begin(), members.end(), Rank(arrived.rank));
    const auto index = static_cast<std::uint32_t>(at - members.begin());
    const Session* session = e.ranks[Rank(arrived.rank)].session;
    if (session != nullptr)
      plans[index] = session->plans().find(Handle(e.direct_pages->records().plan_of(question, index)));
  }
  const scheduler::Plan* own = plans[flight.member];
  if (own != nullptr && own->collective() != nullptr) wait.operation.site = own->collective()->site;
  // While a rank has new counts that the engine does not know, its plan here is out of date.
  const bool told =
      std::none_of(wait.arrived.begin(), wait.arrived.end(), [&](const blame::Wait::Arrived& arrived) {
        return e.direct_pages->records().untold(Rank(arrived.rank));
      });
  if (told) wait.difference = difference_among(e, flight.group, plans);
}

// A member writes its record after it has arrived. If it is held up in between, only its member region shows
// the arrival.
void add_unrecorded(const Evidence& e, const DirectRecords::Flight& flight, Wait& wait) {
  const auto& members = members_of(e, flight.group);
  const DirectQuestion next = arrivals_at(e, flight, flight.number + 1);
  const auto is_this = [&](const DirectRecords::Flight& other) {
    return other.group == flight.group && other.epoch == flight.epoch && other.number == flight.number;
  };
  for (const std::uint32_t index : e.direct_pages->records().missing(next)) {
    const auto flights = e.direct_pages->records().flights(members[index]);
    if (std::none_of(flights.begin(), flights.end(), is_this)) wait.inside.push_back(members[index].value);
  }
}

// The members that may still read data of `givers`. The givers have done their part.
std::vector<std::uint32_t> readers_of(const Evidence& e, const DirectRecords::Flight& flight,
                                      const std::vector<std::uint32_t>& givers) {
  DirectQuestion done = arrivals_at(e, flight, flight.number);
  done.kind = shm::DirectWait::kPhase;
  done.phase = shm::kPhaseLast;
  std::vector<std::uint32_t> readers;
  for (const std::uint32_t index : e.direct_pages->records().missing(done)) {
    const std::uint32_t rank = members_of(e, flight.group)[index].value;
    if (std::find(givers.begin(), givers.end(), rank) == givers.end()) readers.push_back(rank);
  }
  return readers;
}

// Adds the members that the member regions show as arrived or missing.
void add_members(const Evidence& e, const DirectRecords::Flight& flight, Wait& wait) {
  const auto& members = members_of(e, flight.group);
  const auto [group, number, sender, receiver] = match_of(flight);
  if (sender != kNoMember) {
    const std::uint32_t other = flight.member == sender ? receiver : sender;
    if (wait.arrived.size() < 2 && other < members.size())
      wait.missing.push_back({members[other].value, {}, {}});
  } else {
    const DirectQuestion question = arrivals_at(e, flight, flight.number);
    for (const std::uint32_t index : e.direct_pages->records().missing(question))
      wait.missing.push_back({members[index].value, {}, {}});
    add_plan_facts(e, flight, wait);
  }
  if (!wait.missing.empty()) return;
  if (!wait.awaiting.empty()) {
    wait.inside = readers_of(e, flight, wait.awaiting);
    return;
  }
  for (const blame::Wait::Arrived& arrived : wait.arrived) wait.inside.push_back(arrived.rank);
  if (sender == kNoMember) add_unrecorded(e, flight, wait);
}

struct Met {
  DirectRecords::Flight flight;
  Wait wait;
};
using Meetings = std::map<MetMembers, Met>;

// The wait of an operation. Its description comes from a rank that is still in it, if one of the reporting
// ranks is.
Wait& wait_in(Meetings& meetings, const DirectRecords::Flight& flight, Instant begun) {
  const auto [place, is_new] = meetings.try_emplace(match_of(flight));
  Met& met = place->second;
  if (is_new || flight.state == shm::DirectRecord::State::kOpen) met.flight = flight;
  met.wait.since = is_new ? begun : std::min(met.wait.since, begun);
  return met.wait;
}

// Adds the operation of the rank's own records: the present one, or the one whose readers it waits for.
void add_flights_of(const Evidence& e, std::uint32_t rank, blame::RankState& state, Meetings& meetings) {
  const auto is_current = [&](const std::optional<DirectRecords::Flight>& flight) {
    return flight && flight->epoch == e.direct_pages->epochs().present(flight->group);
  };
  const auto awaited = e.direct_pages->records().awaited_flight(Rank(rank));
  // A message to one rank is not staged, so it is not awaited.
  if (is_current(awaited) && !is_transfer(static_cast<muster_op>(awaited->what.op)) &&
      !readers_of(e, *awaited, {rank}).empty())
    wait_in(meetings, *awaited, std::min(awaited->begun, e.now)).awaiting.push_back(rank);
  const auto flight = e.direct_pages->records().latest_flight(Rank(rank));
  if (!flight) return;
  const Instant begun = std::min(flight->begun, e.now);
  state.heard = std::max(state.heard.value_or(begun), begun);
  if (flight->state == shm::DirectRecord::State::kWell && (!state.finished || state.finished->at < begun))
    state.finished =
        blame::RankState::LastOperation{e.graph.groups()[flight->group.value].name, op_name(flight->what.op),
                                        Path::kDirect, flight->number, begun};
  if (flight->state == shm::DirectRecord::State::kOpen && is_current(flight))
    wait_in(meetings, *flight, begun).arrived.push_back({rank, begun});
}

void add_direct(const Evidence& e, Snapshot& snapshot) {
  Meetings meetings;
  for (const Rank rank : e.ranks.world().locals())
    if (e.ranks[rank].session != nullptr) add_flights_of(e, rank.value, snapshot.ranks[rank.value], meetings);
  for (auto& [key, met] : meetings) {
    met.wait.group = met.flight.group.value;
    met.wait.group_name = e.graph.groups()[met.flight.group.value].name;
    met.wait.members = members_of(e, met.flight.group).size();
    met.wait.path = Path::kDirect;
    met.wait.number = met.flight.number;
    const bool typed = met.flight.what.dtype != 0;
    met.wait.operation = {op_name(met.flight.what.op),
                          std::max(met.flight.target_bytes, met.flight.source_bytes),
                          typed ? dtype_name(met.flight.what.dtype) : "", ""};
    add_members(e, met.flight, met.wait);
    snapshot.waits.push_back(std::move(met.wait));
  }
}

// ---- stragglers ----------------------------------------------------------------------------------

void add_stragglers(const Evidence& e, Snapshot& snapshot) {
  snapshot.stragglers = e.stragglers->stragglers();
  for (blame::Straggler& straggler : snapshot.stragglers)
    straggler.group_name = e.graph.groups()[straggler.group].name;
  for (const Rank rank : e.ranks.world().locals()) {
    const StragglerStatistics::Worst& worst = e.stragglers->worst(rank);
    if (!worst.group) continue;
    blame::RankState::Lag lag;
    lag.figures = e.stragglers->figures(*worst.group, rank);
    lag.figures.group_name = e.graph.groups()[worst.group->value].name;
    lag.histogram = e.stragglers->of(*worst.group)->histogram(worst.member);
    snapshot.ranks[rank.value].lag = std::move(lag);
  }
}

// ---- parts of operations that span nodes -------------------------------------------------------

void add_queued(const Evidence& e, const std::vector<scheduler::Head>& heads, const scheduler::Head& head,
                const scheduler::LanePosition& standing, const scheduler::Place& place, Snapshot& snapshot) {
  if (snapshot.queued.size() == kQueuedMax) return;
  Hindrance found = hindrance(snapshot, e.graph, heads, head.rank, head.lane);
  const transport::PlaceKey key = scheduler::key_of(place, e.graph.groups(), e.graph.lane_names());
  snapshot.queued.push_back(
      {span_key(key, place.tag, 0, 0),
       {head.rank.value, found.wait, found.wait ? std::string() : std::move(found.reason),
        standing.text(e.graph.lanes()[head.rank], e.graph.lane_names())}});
}

// Adds the ends of messages to and from other nodes, each by its tag, that stand behind others in their lane.
void add_queued_messages(const Evidence& e, const std::vector<scheduler::Head>& heads,
                         const scheduler::Head& head, Snapshot& snapshot) {
  const scheduler::LaneQueue& queue = e.graph.lanes()[head.rank].lane(head.lane);
  for (std::size_t i = head.arrived ? 1 : 0; i < queue.waiting(); ++i) {
    const scheduler::CollectiveWork* work = queue.waiting(i).request.plan->collective();
    if (work == nullptr || !work->point_to_point() || !e.graph.groups()[work->group.value].spans()) continue;
    add_queued(e, heads, head, {head.lane, i + 1},
               scheduler::place_of(*work, e.graph.lanes()[head.rank].id(head.lane)), snapshot);
  }
}

}  // namespace

Snapshot snapshot_of(const Evidence& e) {
  Snapshot snapshot;
  snapshot.job = e.job;
  snapshot.asked = e.asked;
  snapshot.now = e.now;
  snapshot.patience = e.patience;
  snapshot.ranks.resize(e.ranks.world().size());
  for (const Rank rank : e.ranks.world().locals()) {
    const RankFacts& facts = e.ranks[rank];
    blame::RankState& state = snapshot.ranks[rank.value];
    state.local = true;
    state.attached = facts.session != nullptr;
    state.was_attached = facts.was_attached;
    state.pid = facts.session != nullptr ? facts.session->options().pid : 0;
    if (facts.session != nullptr) state.heard = facts.heard;
    state.finished = facts.finished;
  }
  const auto pending = e.graph.matches().pending();
  for (const auto& each : pending) snapshot.waits.push_back(pending_wait(e, each));
  for (const auto& running : e.graph.steps().running()) snapshot.waits.push_back(running_wait(e, running));
  explain_missing(e, pending, snapshot);
  if (e.direct_pages != nullptr) add_direct(e, snapshot);
  if (e.stragglers != nullptr) add_stragglers(e, snapshot);
  return snapshot;
}

void add_for_merge(const Evidence& e, Snapshot& snapshot) {
  const auto& groups = e.graph.groups();
  const auto& names = e.graph.lane_names();
  for (const scheduler::GroupPlaces::Reached& reached : e.graph.matches().reached()) {
    if (snapshot.reached.size() == kReachedMax) break;
    const transport::PlaceKey place =
        scheduler::key_of({reached.group, reached.lane, -1, -1, 0, false, 0}, groups, names);
    snapshot.reached.push_back(span_key(place, 0, reached.stamp.epoch, reached.stamp.number));
  }
  const auto heads = scheduler::heads_of(e.graph.lanes(), e.graph.lane_names());
  for (const scheduler::Head& head : heads) {
    const scheduler::RankLanes& lanes = e.graph.lanes()[head.rank];
    for (std::uint32_t g = 0; g < groups.size(); ++g) {
      const bool has_come = head.arrived && head.plan->collective()->group.value == g;
      const auto standing =
          groups[g].spans() && !has_come ? scheduler::submitted(lanes, head.lane, GroupId(g)) : std::nullopt;
      if (!standing) continue;
      const scheduler::Place place{GroupId(g), lanes.id(head.lane), -1, -1, 0, false, 0};
      add_queued(e, heads, head, *standing, place, snapshot);
    }
    add_queued_messages(e, heads, head, snapshot);
  }
}

std::optional<std::size_t> wait_on_lane(const Snapshot& snapshot, const scheduler::Graph& graph, Rank rank,
                                        std::uint32_t lane) {
  return hindrance(snapshot, graph, scheduler::heads_of(graph.lanes(), graph.lane_names()), rank, lane).wait;
}

std::optional<std::size_t> wait_run_by(const Snapshot& snapshot, GroupId group, std::uint32_t rank) {
  for (std::size_t w = 0; w < snapshot.waits.size(); ++w) {
    const Wait& wait = snapshot.waits[w];
    const bool here = std::any_of(wait.arrived.begin(), wait.arrived.end(),
                                  [&](const blame::Wait::Arrived& a) { return a.rank == rank; });
    if (wait.path == Path::kDirect && wait.group == group.value && here) return w;
  }
  return std::nullopt;
}

void look_at_processes(Snapshot& snapshot, const RankTable<RankFacts>& ranks, const ProcessProbe& probe,
                       std::optional<std::size_t> about, std::size_t looks_max) {
  const auto look = [&](std::uint32_t rank) {
    blame::RankState& state = snapshot.ranks[rank];
    if (!state.attached || state.process != blame::RankState::Process::kUnknown || looks_max == 0) return;
    --looks_max;
    ProcessSight sight = probe.look(ranks[Rank(rank)].process);
    state.process = sight.state;
    state.where = std::move(sight.where);
  };
  const auto look_at = [&](const Wait& wait) {
    for (const blame::Wait::Missing& missing : wait.missing) look(missing.rank);
    for (const std::uint32_t rank : wait.inside) look(rank);
  };
  if (about) look_at(snapshot.waits[*about]);
  for (const Wait& wait : snapshot.waits) look_at(wait);
  if (about) return;
  for (std::uint32_t rank = 0; rank < snapshot.ranks.size(); ++rank) look(rank);
}

}  // namespace muster::engine
