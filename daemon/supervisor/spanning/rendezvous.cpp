#include "daemon/supervisor/spanning/rendezvous.hpp"

#include "api/base/node_limits.hpp"
#include "api/base/words.hpp"
#include "daemon/control/job.hpp"
#include "daemon/supervisor/base/said.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;

constexpr std::size_t kMeshBytesMax = 255;  // as a rank's Hello has room for

Json message_to(Json body) {
  return {{"gathering", std::move(body)}};
}

bool is_user(std::string_view text) {
  std::uint32_t uid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), uid);
  return error == std::errc() && end == text.data() + text.size() && std::to_string(uid) == text;
}

// The job of a message. kProtocol: the message names no job.
Result<Rendezvous::Job> job_said(const Json& body) {
  Rendezvous::Job job;
  job.of = said_text(body, "of");
  job.name = said_text(body, "job");
  if (!control::check_job_name(job.name).ok() || (!is_user(job.of) && control::key_in(job.of).empty()))
    return fail(Code::kProtocol, "it gathers ranks of a job without a name, a user or a key");
  return job;
}

// Ranks as pairs of the first and how many follow it, rising.
Json runs_of(const std::vector<std::uint32_t>& ranks) {
  Json runs = Json::array();
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    runs.push_back(ranks[i]);
    runs.push_back(end - i);
    i = end;
  }
  return runs;
}

// The ranks in `runs`, of a world of that size. kProtocol.
Result<std::vector<std::uint32_t>> ranks_of(const Json& runs, std::uint32_t world) {
  const auto bad = [] { return fail(Code::kProtocol, "it gathers ranks that no node can have"); };
  if (!runs.is_array() || runs.size() % 2 != 0 || runs.size() > 2 * std::size_t{kRanksOnNodeMax})
    return bad();
  std::vector<std::uint32_t> ranks;
  for (std::size_t i = 0; i < runs.size(); i += 2) {
    if (!runs[i].is_number_unsigned() || !runs[i + 1].is_number_unsigned()) return bad();
    const auto first = runs[i].get<std::uint64_t>(), count = runs[i + 1].get<std::uint64_t>();
    const bool rises = ranks.empty() || first > ranks.back();
    if (!rises || count == 0 || count > kRanksOnNodeMax - ranks.size() || first >= world ||
        count > world - first)
      return bad();
    for (std::uint64_t rank = first; rank < first + count; ++rank)
      ranks.push_back(static_cast<std::uint32_t>(rank));
  }
  return ranks;
}

template<class Map>
std::vector<std::uint32_t> keys_of(const Map& map) {
  std::vector<std::uint32_t> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

}  // namespace

// ---- ranks of this node ------------------------------------------------------------------------

Status Rendezvous::come(Rank rank) {
  const std::string& name = rank.job.name;
  if (rank.rank >= rank.world || rank.world > control::kWorldMax)
    return failure(Code::kBadArgument, "rank {} of {} cannot be one of job {}, which may have {} ranks",
                   rank.rank, rank.world, name, control::kWorldMax);
  const auto known = here_.find(rank.job);
  if (known != here_.end()) {
    Here& here = known->second;
    if (here.world != rank.world)
      return failure(Code::kBadArgument,
                     "rank {} says that job {} has {} ranks, and the ranks that wait on node {} say {}; "
                     "start all with the same number, or name another job (MUSTER_JOB)",
                     rank.rank, name, rank.world, roster_.here, here.world);
    if (!rank.mesh.empty() && !here.mesh.empty() && rank.mesh != here.mesh)
      return failure(Code::kConfig,
                     "rank {} asks for the mesh {}, and the ranks of job {} that wait on node {} for {}; "
                     "give all the same (MUSTER_MESH)",
                     rank.rank, rank.mesh, name, roster_.here, here.mesh);
    if (const auto same = here.ranks.find(rank.rank); same != here.ranks.end())
      return failure(Code::kDuplicate,
                     "rank {} of job {} waits on node {} already, as process {}; end that process, or name "
                     "another job (MUSTER_JOB)",
                     rank.rank, name, roster_.here, same->second.pid);
    if (here.ranks.size() >= kRanksOnNodeMax)
      return failure(Code::kNoResource, "{} ranks of job {} wait on node {}, and a node takes no more",
                     here.ranks.size(), name, roster_.here);
  }
  Here& here = here_.try_emplace(rank.job, Here{.mesh = {}, .machine = {table_, State::kEmpty}, .ranks = {}})
                   .first->second;
  if (here.round == 0) here.round = ++round_;
  here.world = rank.world;
  if (!rank.mesh.empty()) here.mesh = rank.mesh;
  here.ranks[rank.rank] = {rank.ticket, {rank.who, rank.gid}, rank.pid, rank.until};
  tickets_[rank.ticket] = {rank.job, rank.rank};
  take(rank.job, Event::kComes, {});
  return {};
}

void Rendezvous::leave(std::uint64_t ticket) {
  const auto it = tickets_.find(ticket);
  if (it == tickets_.end()) return;
  const auto [job, rank] = it->second;
  tickets_.erase(it);
  auto& ranks = here_.at(job).ranks;
  ranks.erase(rank);
  take(job, ranks.empty() ? Event::kLastLeaves : Event::kLeaves, {});
}

void Rendezvous::take(const Job& job, Event event, const Facts& facts) {
  const auto here = here_.find(job);
  StateMachine<RendezvousMachine> none(table_, State::kEmpty);
  const auto step = (here == here_.end() ? none : here->second.machine).take(event);
  if (!step) {
    orders_.errors.push_back(
        failure(step.error().code(), "the rendezvous of job {}: {}", job.name, step.error().message()));
    return;
  }
  act(job, step->action, facts);
  if (step->entered == State::kEmpty) here_.erase(job);
}

void Rendezvous::act(const Job& job, RendezvousMachine::Action action, const Facts& facts) {
  using enum RendezvousMachine::Action;
  switch (action) {
    case kNone:
      return;
    case kAnnounce:
    case kAnnounceAndLook:
      here_.at(job).change = ++change_;
      untold_.insert(job);
      if (action == kAnnounceAndLook) look(job);
      return;
    case kLook:
      return look(job);
    case kMake:
      orders_.jobs.push_back(*facts.placement);
      return;
    case kTellAndRefuse:
      tell_failed(job, facts.why);
      return refuse_all(job, facts.why);
    case kRefuse:
      return refuse_all(job, facts.why);
    case kTell:
      return tell_failed(job, facts.why);
  }
}

void Rendezvous::failed(const Job& job, std::uint64_t round, const Status& why) {
  const auto here = here_.find(job);
  if (here != here_.end() && here->second.round != round) return;
  take(job, Event::kFailed, {.why = why});
}

void Rendezvous::refuse_all(const Job& job, const Status& why) {
  for (const auto& [rank, waiting] : std::exchange(here_.at(job).ranks, {})) {
    tickets_.erase(waiting.ticket);
    orders_.refusals.push_back({waiting.ticket, why});
  }
  untold_.insert(job);
}

void Rendezvous::tell_failed(const Job& job, const Status& why) {
  const Peers& peers = peers_of(job);
  for (const std::string& peer : up_) {
    const auto there = peers.find(peer);
    orders_.outgoing.push_back({peer, message_to({{"job", job.name},
                                                  {"of", job.of},
                                                  {"round", there == peers.end() ? 0 : there->second.round},
                                                  {"failed", control::failed(cut(why))}})});
  }
}

// ---- ranks of other nodes ----------------------------------------------------------------------

Result<Rendezvous::There> Rendezvous::There::read(const Json& body) {
  There there;
  const std::uint64_t world = said_number(body, "world");
  there.mesh = said_text(body, "mesh");
  there.round = said_number(body, "round");
  there.change = said_number(body, "change");
  there.heard = said_number(body, "heard");
  if (world > control::kWorldMax || there.mesh.size() > kMeshBytesMax)
    return fail(Code::kProtocol, "it gathers ranks of a job that cannot be");
  there.world = static_cast<std::uint32_t>(world);
  const auto runs = body.find("ranks");
  if (runs == body.end()) return fail(Code::kProtocol, "it does not say which ranks it gathers");
  MUSTER_ASSIGN_OR_RETURN(there.ranks, ranks_of(*runs, there.world));
  return there;
}

Status Rendezvous::heard(const std::string& peer, const Json& message) {
  const Json& body = message.at("gathering");
  if (!body.is_object()) return failure(Code::kProtocol, "it gathers nothing");
  MUSTER_ASSIGN_OR_RETURN(const Job job, job_said(body));
  if (const auto failed = body.find("failed"); failed != body.end()) {
    const Status why = failed->is_object() ? cut(control::status_of(*failed)) : Status();
    if (why.ok()) return failure(Code::kProtocol, "it gathers no longer, and does not say why");
    const auto here = here_.find(job);
    const std::uint64_t round = said_number(body, "round");
    if (here != here_.end() && round != 0 && round != here->second.round) return {};
    take(job, Event::kRefused, {.why = Status(why.code(), fmt::format("node {}: {}", peer, why.message()))});
    return {};
  }
  MUSTER_ASSIGN_OR_RETURN(There there, There::read(body));
  if (!there.ranks.empty())
    MUSTER_RETURN_IF_ERROR(note(job, peer, std::move(there)));
  else if (const auto peers = there_.find(job); peers != there_.end() && peers->second.erase(peer) != 0)
    std::erase_if(there_, [](const auto& entry) { return entry.second.empty(); });
  if (said_flag(body, "asks")) orders_.outgoing.push_back({peer, announcement(job, peer)});
  take(job, Event::kNews, {});
  return {};
}

Status Rendezvous::note(const Job& job, const std::string& peer, There there) {
  const auto has_it = [&peer](const auto& entry) { return entry.second.contains(peer); };
  if (!peers_of(job).contains(peer) &&
      std::count_if(there_.begin(), there_.end(), has_it) >= static_cast<std::ptrdiff_t>(kOfAPeerMax))
    return failure(Code::kNoResource, "it gathers ranks of more than {} jobs; those of job {} wait in vain",
                   kOfAPeerMax, job.name);
  There& known = there_[job][peer];
  there.asked = known.asked;
  known = std::move(there);
  return {};
}

const Rendezvous::Peers& Rendezvous::peers_of(const Job& job) const {
  static const Peers kNone;
  const auto it = there_.find(job);
  return it == there_.end() ? kNone : it->second;
}

void Rendezvous::on_up(const std::string& peer) {
  up_.insert(peer);
  for (const auto& [job, here] : here_) orders_.outgoing.push_back({peer, announcement(job, peer)});
}

void Rendezvous::on_down(const std::string& peer) {
  up_.erase(peer);
  for (auto& [job, peers] : there_) peers.erase(peer);
  std::erase_if(there_, [](const auto& entry) { return entry.second.empty(); });
  for (const Job& job : jobs()) take(job, Event::kNews, {});
}

// ---- decisions ---------------------------------------------------------------------------------

// Why the ranks here and those that have come to a peer cannot be of one job.
Status Rendezvous::contradiction(const Job& job, const std::string& peer, const There& there) const {
  const Here& here = here_.at(job);
  if (there.world != here.world)
    return failure(Code::kBadArgument,
                   "job {} has {} ranks as its ranks on node {} say, and {} as those on node {} say; start "
                   "all with the same number, or name another job (MUSTER_JOB)",
                   job.name, here.world, roster_.here, there.world, peer);
  if (!there.mesh.empty() && !here.mesh.empty() && there.mesh != here.mesh)
    return failure(Code::kConfig,
                   "the ranks of job {} on node {} ask for the mesh {}, and those on node {} for {}; give "
                   "all the same (MUSTER_MESH)",
                   job.name, roster_.here, here.mesh, peer, there.mesh);
  for (const std::uint32_t rank : there.ranks)
    if (here.ranks.contains(rank))
      return failure(Code::kDuplicate,
                     "rank {} of job {} has come to node {} and to node {}; start each rank once, or name "
                     "another job (MUSTER_JOB)",
                     rank, job.name, roster_.here, peer);
  return {};
}

void Rendezvous::ask(const Job& job, const std::string& peer) {
  There& there = there_.at(job).at(peer);
  if (std::exchange(there.asked, here_.at(job).change) == here_.at(job).change) return;
  orders_.outgoing.push_back({peer, announcement(job, peer)});
  orders_.outgoing.back().message["gathering"]["asks"] = true;
}

// Asks each peer that does not know the ranks here.
bool Rendezvous::all_know(const Job& job) {
  bool all = true;
  for (const auto& [peer, there] : peers_of(job)) {
    if (there.knows(here_.at(job))) continue;
    ask(job, peer);
    all = false;
  }
  return all;
}

void Rendezvous::look(const Job& job) {
  const Here& here = here_.at(job);
  std::vector<std::string> doubtful;
  std::size_t ranks = here.ranks.size();
  for (const auto& [peer, there] : peers_of(job)) {
    ranks += there.ranks.size();
    const Status why = contradiction(job, peer, there);
    if (why.ok()) continue;
    if (there.knows(here)) return take(job, Event::kContradicted, {.why = why});
    doubtful.push_back(peer);
  }
  for (const std::string& peer : doubtful) ask(job, peer);
  if (!doubtful.empty() || ranks != here.world) return;
  if (const auto placement = placement_of(job)) take(job, Event::kComplete, {.placement = &*placement});
}

// Once all ranks have come, the first of their nodes makes the job; the others wait for it. Peers that
// contradict each other resolve it among themselves.
std::optional<Rendezvous::Placement> Rendezvous::placement_of(const Job& job) {
  const Here& here = here_.at(job);
  const Peers& peers = peers_of(job);
  Placement placement{job, here.round, *owner_here(job), here.mesh, {}, {}};
  std::map<std::uint32_t, std::uint32_t> node_of;
  for (const Roster::Member& member : roster_.members) {
    const bool own = member.name == roster_.here;
    const auto there = peers.find(member.name);
    if (!own && there == peers.end()) continue;
    if (placement.nodes.empty() && !own) return std::nullopt;
    const std::string& mesh = own ? here.mesh : there->second.mesh;
    if (placement.mesh.empty()) placement.mesh = mesh;
    if (!mesh.empty() && mesh != placement.mesh) return std::nullopt;
    const auto index = static_cast<std::uint32_t>(placement.nodes.size());
    placement.nodes.push_back(member.name);
    for (const std::uint32_t rank : own ? keys_of(here.ranks) : there->second.ranks) node_of[rank] = index;
  }
  if (node_of.size() != here.world || !all_know(job)) return std::nullopt;
  for (const auto& [rank, node] : node_of) placement.node_of.push_back(node);
  return placement;
}

// ---- time and words ----------------------------------------------------------------------------

// If one rank gives up, the job cannot be made. All get the list of the ranks that have come, while it is
// known.
void Rendezvous::expire(Instant now, const std::string& away) {
  for (const Job& job : jobs()) {
    const auto& ranks = here_.at(job).ranks;
    if (std::none_of(ranks.begin(), ranks.end(),
                     [now](const auto& entry) { return entry.second.until <= now; }))
      continue;
    const Status why = failure(
        Code::kTimeout,
        "{}{}{}; see whether all were started, by the same user, with the same job and number of ranks, or "
        "wait longer (muster_open_options.timeout_ns)",
        text_of(job), away.empty() ? "" : "; ", away);
    take(job, Event::kTime, {.why = why});
  }
}

std::optional<Instant> Rendezvous::next_deadline() const {
  std::optional<Instant> next;
  for (const auto& [job, here] : here_)
    for (const auto& [rank, waiting] : here.ranks)
      if (!next || waiting.until < *next) next = waiting.until;
  return next;
}

Json Rendezvous::announcement(const Job& job, const std::string& peer) const {
  const auto it = here_.find(job);
  const Here none{.mesh = {}, .machine = {table_, State::kEmpty}, .ranks = {}};
  const Here& here = it == here_.end() ? none : it->second;
  const auto there = peers_of(job).find(peer);
  return message_to({{"job", job.name},
                     {"of", job.of},
                     {"world", here.world},
                     {"mesh", here.mesh},
                     {"round", here.round},
                     {"change", here.change},
                     {"heard", there == peers_of(job).end() ? 0 : there->second.change},
                     {"ranks", runs_of(keys_of(here.ranks))}});
}

Rendezvous::Orders Rendezvous::take() {
  for (const Job& job : std::exchange(untold_, {}))
    for (const std::string& peer : up_) orders_.outgoing.push_back({peer, announcement(job, peer)});
  return std::exchange(orders_, {});
}

std::string Rendezvous::text_of(const Job& job) const {
  const auto it = here_.find(job);
  if (it == here_.end()) return "";
  const Here& here = it->second;
  std::vector<bool> came(here.world);
  for (const auto& [rank, waiting] : here.ranks) came[rank] = true;
  std::string where = fmt::format("ranks {} on node {}", rank_list(keys_of(here.ranks)), roster_.here);
  for (const auto& [peer, there] : peers_of(job)) {
    for (const std::uint32_t rank : there.ranks)
      if (rank < here.world) came[rank] = true;  // while the job is made, a peer may speak of another world
    where += fmt::format(", {} on node {}", rank_list(there.ranks), peer);
  }
  std::vector<std::uint32_t> missing;
  for (std::uint32_t rank = 0; rank < here.world; ++rank)
    if (!came[rank]) missing.push_back(rank);
  if (missing.empty())
    return fmt::format("job {} is being made: all of its {} ranks have come, {}", job.name, here.world,
                       where);
  return fmt::format("job {} of {} ranks waits for ranks {}: only {} have come", job.name, here.world,
                     rank_list(missing), where);
}

std::optional<Rendezvous::Owner> Rendezvous::owner_here(const Job& job) const {
  const auto it = here_.find(job);
  if (it == here_.end()) return std::nullopt;
  return it->second.ranks.begin()->second.owner;
}

std::vector<Rendezvous::Job> Rendezvous::jobs() const {
  std::vector<Job> jobs;
  for (const auto& [job, here] : here_) jobs.push_back(job);
  return jobs;
}

}  // namespace muster::supervisor
