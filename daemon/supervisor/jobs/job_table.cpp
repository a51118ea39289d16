#include "daemon/supervisor/jobs/job_table.hpp"

#include "api/base/mesh/degrees.hpp"
#include "api/shm/endpoint.hpp"

#include <algorithm>

#include <fmt/ranges.h>
#include <openssl/crypto.h>

namespace muster::supervisor {
namespace {

constexpr Shares::Words kJobs{"jobs", "limits.jobs_max", "limits.jobs_per_user_max",
                              "end one (`muster end`)"};

// Takes the same time for every wrong token of the right length: timing tells a claimant nothing.
bool same_token(const std::string& a, const std::string& b) {
  return a.size() == b.size() && !a.empty() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void forget_spent(Job::Claim& claim) {
  if (claim.spent) claim.token.clear();
  claim.spent = false;
}

// With another mesh, the rank would get unexpected groups. A rank that names no mesh takes the job's.
Status same_mesh(const control::JobSpec& job, const JobTable::Claimant& claimant) {
  if (claimant.mesh.empty()) return {};
  MUSTER_ASSIGN_OR_RETURN(const std::string asked, canonical_mesh(claimant.mesh, job.world.size()));
  MUSTER_ASSIGN_OR_RETURN(const std::string has, canonical_mesh(job.mesh, job.world.size()));
  if (asked == has) return {};
  return failure(Code::kConfig,
                 "rank {} asks for the mesh {}, but job {} has {}; give all ranks the same, name another job "
                 "(MUSTER_JOB), or end this one first (muster end{} --job {})",
                 claimant.rank, asked, job.name, has, shm::endpoint_option(job.endpoint), job.name);
}

// The job has the rank, and it runs on this node.
Status check_rank(const control::JobSpec& job, std::int64_t rank) {
  if (rank < 0 || rank >= job.world.size())
    return failure(Code::kBadArgument, "rank {} is not in 0..{} of job {}", rank, job.world.size() - 1,
                   job.name);
  const Rank said(static_cast<std::uint32_t>(rank));
  if (job.world.is_local(said)) return {};
  return failure(Code::kBadArgument, "{} of job {}; claim it from the daemon there",
                 job.world.text_of(std::span(&said, 1)), job.name);
}

}  // namespace

Result<std::string> canonical_mesh(std::string_view mesh, std::uint32_t world) {
  MUSTER_ASSIGN_OR_RETURN(const auto asked, mesh::Degrees::parse(mesh.empty() ? mesh::kUnsaidDegrees : mesh));
  MUSTER_ASSIGN_OR_RETURN(const auto degrees, asked.resolve(world));
  return degrees.canonical();
}

const char* state_name(Job::State state) noexcept {
  constexpr const char* kNames[] = {"starting", "adopting", "ready", "ending"};
  return kNames[static_cast<std::size_t>(state)];
}

std::uint32_t Job::held() const {
  return static_cast<std::uint32_t>(
      std::count_if(claims.begin(), claims.end(), [](const Claim& claim) { return claim.held; }));
}

bool Job::is_held(std::int32_t rank) const {
  const Rank claimed(static_cast<std::uint32_t>(rank));
  return rank >= 0 && claims.world().is_local(claimed) && claims[claimed].held;
}

Result<Job*> JobTable::create(const control::JobSpec& spec) {
  MUSTER_RETURN_IF_ERROR(control::check_job_name(spec.name));
  if (find(spec.id()) != nullptr)
    return fail(Code::kDuplicate, "a job named {} exists already; choose another name or end it", spec.name);
  if (!places_.has_room(spec.owner.account)) return fail(places_.refusal(spec.owner.account, kJobs));
  return enter({spec, Job::State::kStarting, RankTable<Job::Claim>(spec.world)});
}

Job* JobTable::enter(Job job) {
  places_.enter(job.spec.owner.account);
  const std::string id = job.spec.id();
  return &jobs_.emplace(id, std::move(job)).first->second;
}

bool JobTable::place_is_coming(const Account& account) const {
  if (places_.has_room(account)) return false;
  Shares then = places_;
  for (const auto& [name, job] : jobs_)
    if (job.state == Job::State::kEnding) then.leave(job.spec.owner.account);
  return then.has_room(account);
}

void JobTable::ready(const std::string& name) {
  if (Job* job = find(name); job != nullptr && job->state == Job::State::kStarting)
    job->state = Job::State::kReady;
}

void JobTable::starting(const std::string& name) {
  if (Job* job = find(name); job != nullptr && job->state == Job::State::kAdopting)
    job->state = Job::State::kStarting;
}

void JobTable::ending(const std::string& name) {
  if (Job* job = find(name)) job->state = Job::State::kEnding;
}

void JobTable::erase(const std::string& name) {
  const auto it = jobs_.find(name);
  if (it == jobs_.end()) return;
  places_.leave(it->second.spec.owner.account);
  jobs_.erase(it);
}

Status JobTable::issue(const std::string& name, Rank rank, std::string random) {
  Job* job = find(name);
  if (job == nullptr) return failure(Code::kNotFound, "no job is named {}", name);
  MUSTER_RETURN_IF_ERROR(check_rank(job->spec, rank.value));
  Job::Claim& claim = job->claims[rank];
  claim.token = std::move(random);
  claim.token_at = claim.attachments;
  claim.spent = false;
  return {};
}

Status JobTable::claim(const std::string& name, const Claimant& claimant) {
  Job* job = find(name);
  if (job == nullptr) return failure(Code::kNotFound, "no job is named {}", name);
  MUSTER_RETURN_IF_ERROR(may_act(*job, claimant.actor));
  if (job->state == Job::State::kEnding)
    return failure(Code::kJobEnded, "job {} is ending; try again once it is gone (`muster jobs{}`)", name,
                   shm::endpoint_option(job->spec.endpoint));
  if (job->state == Job::State::kAdopting)
    return failure(Code::kPending, "job {} has not yet said who is attached", name);
  const auto world = static_cast<std::int32_t>(job->spec.world.size());
  if (claimant.world_size >= 0 && claimant.world_size != world)
    return failure(Code::kBadArgument,
                   "the launcher says {} ranks, but job {} has {}; start so many, name another job "
                   "(MUSTER_JOB), or end this one first (muster end{} --job {})",
                   claimant.world_size, name, world, shm::endpoint_option(job->spec.endpoint), name);
  MUSTER_RETURN_IF_ERROR(check_rank(job->spec, claimant.rank));
  MUSTER_RETURN_IF_ERROR(same_mesh(job->spec, claimant));
  Job::Claim& claim = job->claims[Rank(static_cast<std::uint32_t>(claimant.rank))];
  const bool good = !claim.spent && same_token(claim.token, claimant.token);
  if (job->spec.claim == control::ClaimRule::kToken && !good)
    return failure(Code::kDenied,
                   "rank {} of job {} needs a fresh token, each is good for one attachment: put what "
                   "`muster token{} --job {} --rank {}` prints into MUSTER_TOKEN",
                   claimant.rank, name, shm::endpoint_option(job->spec.endpoint), name, claimant.rank);
  if (claim.held)
    return failure(Code::kDuplicate,
                   "rank {} of job {} is held by process {}; end that process or attach as another rank",
                   claimant.rank, name, claim.pid);
  claim.held = true;
  claim.pid = claimant.pid;
  claim.account = claimant.actor.who.account;
  claim.spent = true;
  return {};
}

bool JobTable::attached(const std::string& name, Rank rank, std::uint32_t attachments) {
  Job* job = find(name);
  if (job == nullptr || !job->claims.world().is_local(rank)) return false;
  Job::Claim& claim = job->claims[rank];
  claim.attachments = attachments;
  claim.token_at = attachments;  // for a token issued meanwhile
  forget_spent(claim);
  return !claim.token.empty();
}

bool JobTable::came_from(const std::string& name, Rank rank, const RankOrigin& origin) {
  Job* job = find(name);
  if (job == nullptr || !job->claims.world().is_local(rank)) return false;
  const RankOrigin before = std::exchange(job->claims[rank].origin, origin);
  return before.seen.slurm_job != origin.seen.slurm_job || before.said.slurm_job != origin.said.slurm_job;
}

void JobTable::withdraw(const std::string& name, Rank rank) {
  if (Job* job = find(name); job != nullptr && job->claims.world().is_local(rank))
    job->claims[rank].spent = false;
  release(name, rank);
}

void JobTable::release(const std::string& name, Rank rank) {
  Job* job = find(name);
  if (job == nullptr || !job->claims.world().is_local(rank)) return;
  Job::Claim& claim = job->claims[rank];
  claim.held = false;
  claim.pid = 0;
  forget_spent(claim);
}

Result<Job*> JobTable::adopt(const control::JobSpec& spec, const std::vector<SavedJob::Token>& tokens) {
  if (find(spec.id()) != nullptr) return fail(Code::kDuplicate, "a job named {} exists already", spec.name);
  Job job{spec, Job::State::kAdopting, RankTable<Job::Claim>(spec.world)};
  for (const SavedJob::Token& token : tokens) {
    const Rank rank(token.rank);
    if (!spec.world.is_local(rank)) continue;
    job.claims[rank].token = token.text;
    job.claims[rank].token_at = token.attachments;
  }
  return enter(std::move(job));
}

Status JobTable::reconcile(const std::string& name, const std::vector<RankReport>& reports) {
  Job* job = find(name);
  if (job == nullptr) return failure(Code::kNotFound, "no job is named {}", name);
  if (reports.size() != job->claims.size())
    return failure(Code::kProtocol, "the engine of job {} speaks of {} ranks, the job has {}", name,
                   reports.size(), job->claims.size());
  for (std::uint32_t local = 0; local < reports.size(); ++local) {
    Job::Claim& claim = job->claims[LocalRank(local)];
    const RankReport& report = reports[local];
    claim.held = report.attached;
    claim.pid = report.attached ? report.pid : 0;
    claim.account = job->spec.owner.account;  // the engine does not know whose it is: the owner's, mostly
    claim.attachments = report.attachments;
    if (report.attached) claim.origin.seen = report.seen;
    if (claim.origin.said.slurm_job == claim.origin.seen.slurm_job) claim.origin.said = {};
    if (claim.token_at != claim.attachments) claim.token.clear();
  }
  if (job->state == Job::State::kAdopting) job->state = Job::State::kReady;
  return {};
}

bool is_own(const Job& job, const control::Actor& actor) {
  return actor.who == job.spec.owner || (!actor.key.empty() && control::key_in(job.spec.scope) == actor.key);
}

Status may_act(const Job& job, const control::Actor& actor) {
  if (actor.governs || is_own(job, actor)) return {};
  if (actor.key.empty()) MUSTER_RETURN_IF_ERROR(control::check_known(actor.who));
  return failure(Code::kDenied, "job {} belongs to {}, not to {}", job.spec.name,
                 control::text_of(job.spec.owner), control::text_of(actor.who));
}

std::string JobTable::own_id(const std::string& said, const control::Actor& actor) const {
  if (said.find('@') != std::string::npos) return said;
  control::JobSpec own;
  own.name = said;
  own.scope = control::scope_of(actor, places_.governor());
  return own.id();
}

Result<std::string> JobTable::id_of(const std::string& said, const control::Actor& actor) const {
  const std::string id = own_id(said, actor);
  if (find(id) != nullptr) return id;
  std::vector<std::string> ids;
  for (const auto& [other, job] : jobs_)
    if (job.spec.name == said && may_act(job, actor).ok()) ids.push_back(other);
  if (ids.size() > 1)
    return fail(Code::kBadArgument, "several jobs are named {}; say which: {}", said, fmt::join(ids, ", "));
  return ids.empty() ? id : ids.front();
}

std::string JobTable::name_for(const Job& job, const control::Actor& actor) const {
  return job.spec.scope == control::scope_of(actor, places_.governor()) ? job.spec.name : job.spec.id();
}

std::vector<std::string> jobs_of_slurm(const JobTable& table, std::string_view slurm_job,
                                       const control::Actor& actor) {
  std::vector<std::string> ids;
  for (const auto& [id, job] : table.jobs())
    if (may_act(job, actor).ok() &&
        std::any_of(job.claims.begin(), job.claims.end(),
                    [&](const Job::Claim& claim) { return claim.origin.is_of_slurm(slurm_job); }))
      ids.push_back(id);
  return ids;
}

std::uint32_t JobTable::sessions() const {
  std::uint32_t count = 0;
  for (const auto& [name, job] : jobs_) count += job.held();
  return count;
}

std::size_t JobTable::adopting() const {
  return static_cast<std::size_t>(std::count_if(jobs_.begin(), jobs_.end(), [](const auto& entry) {
    return entry.second.state == Job::State::kAdopting;
  }));
}

void count_sessions(const JobTable& table, Shares& sessions) {
  for (const auto& [name, job] : table.jobs())
    for (const Job::Claim& claim : job.claims)
      if (claim.held) sessions.enter(claim.account);
}

Job* JobTable::find(const std::string& name) {
  const auto it = jobs_.find(name);
  return it == jobs_.end() ? nullptr : &it->second;
}

const Job* JobTable::find(const std::string& name) const {
  const auto it = jobs_.find(name);
  return it == jobs_.end() ? nullptr : &it->second;
}

const Job* JobTable::find(const std::string& name, std::uint64_t epoch) const {
  const Job* job = find(name);
  return job != nullptr && job->spec.epoch == epoch ? job : nullptr;
}

}  // namespace muster::supervisor
