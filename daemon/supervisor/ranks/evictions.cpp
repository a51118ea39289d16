#include "daemon/supervisor/ranks/evictions.hpp"

#include "api/base/log.hpp"

#include <utility>

namespace muster::supervisor {
namespace {

control::Actor owner_of(const control::JobSpec& spec) {
  return {spec.owner, false, std::string(control::key_in(spec.scope))};
}

}  // namespace

bool Evictions::is_candidate(const Job& job, const control::Actor& owner) const {
  const bool own = is_own(job, owner);
  if (own && job.spec.owner.account == owner.who.account) return true;
  // The end of another account's job makes no room in a share that is used up.
  if (table_.places().share_used(owner.who.account)) return false;
  // Its container is gone, and nobody comes back to it: it has no key, or the requester has shown its key.
  return (own || control::key_in(job.spec.scope).empty()) && job.spec.owner.is_gone();
}

bool Evictions::make_room(const control::Actor& owner, const std::string& wanted) {
  const Job* oldest = nullptr;
  std::uint64_t since = 0;
  for (const auto& [id, job] : table_.jobs()) {
    if (!is_candidate(job, owner)) continue;
    const RunningJobs::Facts facts = jobs_.facts(id);
    if (facts.gives_way) return true;
    if (facts.idle_since == 0 || (oldest != nullptr && facts.idle_since >= since)) continue;
    oldest = &job;
    since = facts.idle_since;
  }
  if (oldest == nullptr) return false;
  evict(*oldest, wanted);
  return true;
}

bool Evictions::place_may_come(const control::JobSpec& wanted) {
  return table_.place_is_coming(wanted.owner.account) ||
         make_room(owner_of(wanted), fmt::format("job {}", wanted.id()));
}

bool Evictions::replace(const std::string& job, const control::Actor& owner, const std::string& wanted) {
  const Job* entry = table_.find(job);
  if (entry == nullptr || !is_own(*entry, owner) || jobs_.facts(job).idle_since == 0) return false;
  evict(*entry, wanted);
  return true;
}

void Evictions::make_memory(const std::string& job, std::uint64_t bytes) {
  const Job* wants = table_.find(job);
  if (wants == nullptr) return;
  const control::JobSpec& spec = wants->spec;
  const control::Actor owner = owner_of(spec);
  const std::uint64_t lacking = memory_.lacking(spec.owner.account, bytes);
  if (lacking == 0) return answer(job, Room::kPerhaps);
  std::uint64_t idle = 0;  // bytes of jobs that have ended soon, or could
  bool one_ends = false;
  for (const auto& [id, other] : table_.jobs()) {
    if (&other == wants || !is_candidate(other, owner)) continue;
    const RunningJobs::Facts facts = jobs_.facts(id);
    const bool ends = facts.gives_way || other.state == Job::State::kEnding;
    one_ends = one_ends || ends;
    if (ends || facts.idle_since != 0) idle += memory_.held_by(other.spec.owner.account, other.spec.epoch);
  }
  if (lacking > idle) return answer(job, Room::kNone);
  if (!one_ends && !make_room(owner, fmt::format("the memory of job {}", job)))
    return answer(job, Room::kNone);
  waiting_.insert(job);
}

void Evictions::on_change() {
  for (const std::string& job : std::exchange(waiting_, {})) answer(job, Room::kPerhaps);
}

void Evictions::answer(const std::string& job, Room room) {
  if (table_.find(job) == nullptr) return;
  jobs_.ask(job, {{"command", "memory"}, {"room", room == Room::kPerhaps}}, {},
            [](const Result<control::Packet>&) {});
}

void Evictions::evict(const Job& job, const std::string& wanted) {
  const std::string id = job.spec.id();
  MUSTER_LOG(kInfo, "supervisor", "job {} has no rank, and makes room for {}", id, wanted);
  jobs_.give_way(id, fmt::format("it had no rank, and made room for {}", wanted),
                 RunningJobs::Idle::kInHaste);
}

}  // namespace muster::supervisor
