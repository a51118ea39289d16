#include "daemon/supervisor/spanning/rendezvous_service.hpp"

#include "api/base/log.hpp"
#include "daemon/supervisor/jobs/job_table.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {

using control::Json;

namespace {

constexpr std::size_t kAwayNamed = 4;

}  // namespace

RendezvousService::RendezvousService(control::Loop& loop, const Clock& clock, SpanningJobs& spanning,
                                     Peers& peers, const Options& options, Events events)
    : loop_(loop),
      clock_(clock),
      spanning_(spanning),
      peers_(peers),
      options_(options),
      events_(std::move(events)),
      rendezvous_(options.roster) {}

RendezvousService::~RendezvousService() {
  loop_.unwatch(soon_);
  loop_.unwatch(deadline_);
}

Result<std::uint64_t> RendezvousService::come(Rendezvous::Rank rank, Nanos patience) {
  rank.until = later(clock_.now(), patience - std::min(patience / 10, kToldBefore));
  const std::uint64_t ticket = rank.ticket = next_++;
  MUSTER_RETURN_IF_ERROR(rendezvous_.come(std::move(rank)));
  soon();
  return ticket;
}

void RendezvousService::leave(std::uint64_t ticket) {
  rendezvous_.leave(ticket);
  soon();
}

void RendezvousService::heard(const std::string& peer, const Json& message) {
  if (const Status heard = rendezvous_.heard(peer, message); !heard.ok())
    MUSTER_LOG(kWarning, "supervisor", "node {}: {}", peer, heard.message());
  soon();
}

void RendezvousService::on_up(const std::string& peer) {
  rendezvous_.on_up(peer);
  soon();
}

void RendezvousService::on_down(const std::string& peer) {
  rendezvous_.on_down(peer);
  soon();
}

Json RendezvousService::report(const control::Actor& actor) const {
  Json waiting = Json::array();
  for (const auto& job : rendezvous_.jobs())
    if (actor.governs || job.of == control::scope_of(actor, control::kNoUid))
      waiting.push_back({{"job", job.name}, {"why", rendezvous_.text_of(job)}});
  return waiting;
}

void RendezvousService::soon() {
  if (soon_ == 0) soon_ = loop_.after(kPause, [this] { carry_out(); });
}

void RendezvousService::carry_out() {
  soon_ = 0;
  const Instant now = clock_.now();
  if (const auto next = rendezvous_.next_deadline(); next && *next <= now) rendezvous_.expire(now, away());
  const Rendezvous::Orders orders = rendezvous_.take();
  for (const Status& error : orders.errors) MUSTER_LOG(kError, "supervisor", "{}", error.message());
  for (const auto& [peer, message] : orders.outgoing) peers_.send(peer, message);
  for (const Rendezvous::Placement& placement : orders.jobs) make(placement);
  for (const auto& [ticket, why] : orders.refusals) events_.refuse(ticket, why);
  loop_.unwatch(std::exchange(deadline_, 0));
  if (const auto next = rendezvous_.next_deadline())
    deadline_ = loop_.after(std::max(Nanos(0), *next - clock_.now()), [this] {
      deadline_ = 0;
      soon();
    });
}

void RendezvousService::make(const Rendezvous::Placement& placement) {
  if (placement.nodes.size() == 1) return events_.all_here(placement.job, placement.mesh);
  const auto made = [this, job = placement.job, round = placement.round](const Status& status) {
    if (status.ok()) return;
    rendezvous_.failed(job, round, status);
    soon();
  };
  auto spec = spec_of(placement);
  if (!spec) return made(spec.error());
  MUSTER_LOG(kInfo, "supervisor", "all ranks of job {} have come, to {} nodes", placement.job.name,
             placement.nodes.size());
  made(spanning_.make(*std::move(spec), placement.owner.gid, {0, made}));
}

// As a user asks for it: limits and times are the administrator's.
Result<control::JobSpec> RendezvousService::spec_of(const Rendezvous::Placement& placement) const {
  const auto here = std::find(placement.nodes.begin(), placement.nodes.end(), options_.roster.here);
  MUSTER_ASSIGN_OR_RETURN(
      const World world, World::build(placement.nodes, placement.node_of,
                                      NodeIndex(static_cast<std::uint32_t>(here - placement.nodes.begin()))));
  MUSTER_ASSIGN_OR_RETURN(const std::string mesh, canonical_mesh(placement.mesh, world.size()));
  const control::Actor owner(placement.owner.who, false, std::string(control::key_in(placement.job.of)));
  const Json asked{{"name", placement.job.name}, {"world", world.size()}, {"mesh", mesh}, {"claim", "owner"}};
  MUSTER_ASSIGN_OR_RETURN(control::JobSpec spec,
                          control::job_asked_for(asked, options_.job_defaults, owner, &world));
  spec.network = options_.roster.network;
  spec.tie_breaker = options_.roster.tie_breaker;
  spec.asked_on = options_.roster.here;
  spec.gathered = true;
  return spec;
}

// The nodes that are away, for a message; not all, if there are many.
std::string RendezvousService::away() const {
  std::string all;
  std::size_t count = 0;
  for (const Roster::Member& member : options_.roster.members) {
    if (member.name == options_.roster.here || peers_.is_up(member.name)) continue;
    if (++count <= kAwayNamed) all += (all.empty() ? "" : "; ") + peers_.why_not(member.name);
  }
  if (count > kAwayNamed) all += fmt::format("; {} more are away", count - kAwayNamed);
  return all;
}

}  // namespace muster::supervisor
