#include "daemon/supervisor/spanning/spanning_jobs.hpp"

#include "api/base/log.hpp"
#include "api/shm/endpoint.hpp"
#include "daemon/control/engine_address.hpp"
#include "daemon/control/link/frame.hpp"
#include "daemon/supervisor/base/said.hpp"
#include "daemon/supervisor/spanning/job_request.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <pwd.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;

// The group of a user of another node, who has the same number here.
Result<std::uint32_t> gid_of(std::uint32_t uid) {
  if (geteuid() != 0 && uid != geteuid())
    return fail(Code::kDenied, "this daemon runs as uid {} and cannot start an engine for uid {}", geteuid(),
                uid);
  std::vector<char> text(std::size_t{16} << 10);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(uid, &entry, text.data(), text.size(), &found) != 0 || found == nullptr)
    return fail(Code::kDenied, "uid {} is no user of this node", uid);
  return entry.pw_gid;
}

Status exists(const std::string& job) {
  return failure(Code::kDuplicate, "job {} exists; end it, or choose another name", job);
}

}  // namespace

SpanningJobs::SpanningJobs(const SpanningPart::Surroundings& around, OwnerHere owner_here)
    : around_([this, around] {
        SpanningPart::Surroundings own = around;
        own.over = [this](const std::string& job) { forget_if_over(job); };
        return own;
      }()),
      owner_here_(std::move(owner_here)) {
  for (const control::JobSpec& spec : around_.options.jobs)
    if (spec.world.nodes().size() > 1 && !around_.peers.alone())
      enter(spec, spec.world.nodes().front(), getgid(), {});
}

SpanningPart& SpanningJobs::enter(control::JobSpec spec, const std::string& leader, std::uint32_t gid,
                                  SpanningPart::Request request) {
  const std::string name = spec.id();
  auto& part = parts_[name];
  part = std::make_unique<SpanningPart>(around_, std::move(spec), leader, gid, std::move(request));
  return *part;
}

void SpanningJobs::start() {
  if (around_.peers.alone()) return;
  std::vector<std::string> unknown;
  for (const auto& [name, job] : around_.table.jobs()) {
    if (job.spec.world.nodes().size() < 2) continue;
    auto it = parts_.find(name);
    if (it == parts_.end() && job.spec.temporary()) {
      const RunningJobs::Facts facts = around_.jobs.facts(name);
      enter(job.spec, job.spec.asked_on, facts.gid, {.owner = facts.owner, .made = {}});
      it = parts_.find(name);
    }
    if (it == parts_.end())
      unknown.push_back(name);
    else if (job.state != Job::State::kEnding)
      it->second->adopt(job.spec.epoch);
  }
  for (const std::string& name : unknown)
    around_.jobs.end(name, "the cluster file does not name it any more");
  for (const auto& [name, part] : parts_) part->try_begin();
}

// ---- temporary jobs ----------------------------------------------------------------------------

Status SpanningJobs::make(control::JobSpec spec, std::uint32_t gid, SpanningPart::Request request) {
  const std::string name = spec.id();
  if (is_over(name)) parts_.erase(name);
  if (parts_.contains(name) || around_.table.find(name) != nullptr) return exists(name);
  for (const std::string& node : spec.world.nodes())
    if (node != around_.peers.here() && !around_.peers.is_up(node))
      return failure(Code::kBusy, "job {} needs node {}: {}; try again (`muster status{}`)", name, node,
                     around_.peers.why_not(node), shm::endpoint_option(spec.endpoint));
  // Before any node gets it: the reader of a frame that is too large ends the connection.
  const Json longest{{"job", name},
                     {"epoch", std::numeric_limits<std::uint64_t>::max()},
                     {"step", "prepare"},
                     {"generation", std::numeric_limits<std::uint32_t>::max()},
                     {"address", Json::binary(std::vector<std::uint8_t>(control::kAddressBytesMax))},
                     {"wish", request_of(spec)}};
  if (!control::fits_frame(longest))
    return failure(Code::kNoResource,
                   "what is asked for job {} does not fit into a message between nodes: {} bytes and {} "
                   "items; ask for fewer flattened dimensions",
                   name, control::kFrameBytesMax, control::kOfFrames.items_max);
  SpanningPart& part = enter(std::move(spec), around_.peers.here(), gid, std::move(request));
  part.try_begin();
  return {};
}

// A node asks for a part of a temporary job: with `prepare` to make the job, which waits while an earlier one
// of that name is still ending here, or with `join`.
void SpanningJobs::receive_request(const std::string& peer, const std::string& job, const Json& message) {
  const std::string step = said_text(message, "step");
  const std::uint64_t epoch = said_number(message, "epoch");
  auto requested = request_in(peer, job, message);
  const bool waits = requested && step == "prepare" && !name_is_free(peer, requested->spec);
  if (waits && later_.try_emplace(job, Later{peer, message}).second) return;
  const Status entered = requested ? enter_asked(*std::move(requested)) : requested.error();
  if (entered.ok()) {
    return parts_.at(job)->hear(peer, step, epoch, message);
  }
  // A peer repeats its request to a node that was started anew, until ranks of the job come there.
  if (entered.code() != Code::kNotFound || step == "prepare")
    MUSTER_LOG(kWarning, "supervisor", "node {} has asked for a part of job {}: {}", peer, job.substr(0, 64),
               entered.message());
  Json answer{{"job", job}, {"epoch", epoch}, {"step", "prepared"}};
  answer.update(control::failed(entered));
  // This daemon was started anew, so the requester of the job here is gone without notice.
  if (entered.code() == Code::kJobEnded)
    answer = {{"job", job}, {"epoch", epoch}, {"step", "end"}, {"why", entered.message()}, {"again", false}};
  around_.peers.send(peer, answer);
}

// The peer is believed about the identity of the requester, as all nodes of the cluster are.
Result<SpanningJobs::Requested> SpanningJobs::request_in(const std::string& peer, const std::string& job,
                                                         const Json& message) const {
  Requested requested;
  MUSTER_ASSIGN_OR_RETURN(requested.spec, job_of_request(message.at("wish"), around_.options));
  const control::JobSpec& spec = requested.spec;
  if (spec.id() != job)
    return fail(Code::kProtocol, "it wishes for another job: do the daemons of both nodes run as one user?");
  const auto nodes = spec.world.nodes();
  if (std::find(nodes.begin(), nodes.end(), peer) == nodes.end())
    return fail(Code::kDenied, "node {} asks for a job of which it is no node", peer);
  if (spec.asked_on == around_.peers.here()) return fail(Code::kJobEnded, "{}", RunningJobs::kOwnerLeft);
  MUSTER_RETURN_IF_ERROR(find_owner(requested));
  return requested;
}

// A user has the same number on all nodes. A job with a key belongs on this node to the user whose ranks wait
// for it here.
Status SpanningJobs::find_owner(Requested& requested) const {
  control::JobSpec& spec = requested.spec;
  if (!spec.gathered || control::key_in(spec.scope).empty()) {
    MUSTER_ASSIGN_OR_RETURN(requested.gid, gid_of(spec.owner.uid));
    return {};
  }
  const auto owner = owner_here_({spec.scope, spec.name});
  if (!owner) return failure(Code::kNotFound, "no rank of job {} waits on this node any more", spec.id());
  spec.owner = owner->who;
  requested.gid = owner->gid;
  return {};
}

// False while an earlier temporary job of that name is still ending here. If its leader has lost that job and
// makes it anew, it ends now.
bool SpanningJobs::name_is_free(const std::string& peer, const control::JobSpec& spec) {
  const auto it = parts_.find(spec.id());
  if (it == parts_.end()) return true;
  const control::JobSpec& earlier = it->second->spec();
  if (!earlier.temporary()) return true;
  if (!it->second->over() && earlier.asked_on == peer) it->second->give_way(peer);
  if (is_over(spec.id())) parts_.erase(it);
  const Job* job = around_.table.find(spec.id());
  return job == nullptr || job->state != Job::State::kEnding;
}

Status SpanningJobs::enter_asked(Requested requested) {
  control::JobSpec& spec = requested.spec;
  if (parts_.contains(spec.id()) || around_.table.find(spec.id()) != nullptr) return exists(spec.id());
  // Those that have an engine are in the table, which has a limit of its own.
  const auto waiting = std::count_if(parts_.begin(), parts_.end(), [this](const auto& entry) {
    return entry.second->spec().temporary() && around_.table.find(entry.first) == nullptr;
  });
  if (waiting >= around_.options.jobs_max)
    return failure(Code::kNoResource,
                   "this node prepares {} jobs of several nodes, and limits.jobs_max is {}; try again",
                   waiting, around_.options.jobs_max);
  const std::string leader = spec.asked_on;
  enter(std::move(spec), leader, requested.gid, {});
  return {};
}

// A temporary job that has left nothing here but its part: the name is free.
bool SpanningJobs::is_over(const std::string& job) const {
  const auto it = parts_.find(job);
  return it != parts_.end() && it->second->over() && it->second->spec().temporary() &&
         around_.table.find(job) == nullptr;
}

// Later: its callback may be on the stack.
void SpanningJobs::forget_if_over(const std::string& job) {
  around_.loop.post([this, job] {
    if (is_over(job)) parts_.erase(job);
  });
}

void SpanningJobs::on_left(Connections::Id owner) {
  for (const auto& [name, part] : parts_) part->on_left(owner);
}

void SpanningJobs::on_idle(const std::string& job, RunningJobs::Idle idle) {
  const auto it = parts_.find(job);
  if (it != parts_.end()) it->second->on_idle(idle);
}

// ---- reports -----------------------------------------------------------------------------------

Json SpanningJobs::parts() const {
  Json parts = Json::array();
  for (const auto& [name, part] : parts_)
    if (part->ready_epoch() != 0) parts.push_back({{"job", name}, {"epoch", part->ready_epoch()}});
  return parts;
}

bool SpanningJobs::waits_for_place(const std::string& job) const {
  const auto it = parts_.find(job);
  return it != parts_.end() && it->second->waits_for_place();
}

Status SpanningJobs::awaited(const std::string& job) const {
  const auto it = parts_.find(job);
  return it == parts_.end() || is_over(job) ? Status() : it->second->awaited();
}

Json SpanningJobs::report() const {
  Json waiting = Json::array();
  for (const auto& [name, part] : parts_)
    if (const std::string news = part->news(); !news.empty())
      waiting.push_back({{"job", name}, {"why", news}});
  return waiting;
}

// ---- events ------------------------------------------------------------------------------------

void SpanningJobs::on_up(const std::string& peer, const Json& its_parts) {
  std::map<std::string, std::uint64_t> theirs;
  if (its_parts.is_array())
    for (const Json& entry : its_parts)
      if (entry.is_object()) theirs[said_text(entry, "job")] = said_number(entry, "epoch");
  for (const auto& [name, part] : parts_) {
    const auto its = theirs.find(name);
    if (part->links().has(peer)) part->on_up(peer, its == theirs.end() ? 0 : its->second);
  }
}

void SpanningJobs::on_down(const std::string& peer, const Status& why) {
  for (const auto& [name, part] : parts_)
    if (part->links().has(peer)) part->on_down(peer, why);
  std::erase_if(later_, [&](const auto& entry) { return entry.second.peer == peer; });
}

void SpanningJobs::on_suspected(const std::string& peer) {
  for (const auto& [name, part] : parts_) part->links().on_suspected(peer);
}

void SpanningJobs::on_lost(const std::string& peer, const Status& why) {
  for (const auto& [name, part] : parts_) part->links().on_lost(peer, why);
}

void SpanningJobs::heard(const std::string& peer, const Json& message) {
  const std::string job = said_text(message, "job"), step = said_text(message, "step");
  const std::uint64_t epoch = said_number(message, "epoch");
  if (epoch == 0) return;
  if (message.contains("wish") && (step == "prepare" || !parts_.contains(job)))
    return receive_request(peer, job, message);
  const auto waits = later_.find(job);
  if (step == "end" && waits != later_.end() && waits->second.peer == peer &&
      said_number(waits->second.message, "epoch") == epoch)
    later_.erase(waits);
  const auto it = parts_.find(job);
  if (it == parts_.end() || !it->second->links().has(peer)) return;  // of a job that this node has no part of
  it->second->hear(peer, step, epoch, message);
  forget_if_over(job);
}

void SpanningJobs::on_word(const std::string& job, const RunningJobs::EngineEvent& word) {
  if (const auto it = parts_.find(job); it != parts_.end()) it->second->on_word(word);
}

void SpanningJobs::on_ending(const std::string& job, const Status& why) {
  if (const auto it = parts_.find(job); it != parts_.end()) it->second->on_ending(why);
}

void SpanningJobs::on_gone(const std::string& job, const Status& why) {
  const auto it = parts_.find(job);
  if (it == parts_.end()) return;
  it->second->on_gone(why);
  forget_if_over(job);
  around_.loop.post([this, job] {
    if (const auto waits = later_.extract(job)) heard(waits.mapped().peer, waits.mapped().message);
  });
}

}  // namespace muster::supervisor
