#include "daemon/supervisor/spanning/spanning_part.hpp"

#include "api/base/log.hpp"
#include "api/shm/endpoint.hpp"
#include "daemon/supervisor/base/said.hpp"

#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;

Json end_message(const std::string& job, std::uint64_t epoch, const std::string& why, bool again) {
  return {{"job", job},
          {"epoch", epoch},
          {"step", "end"},
          {"why", why.substr(0, kWhyBytesMax)},
          {"again", again}};
}

}  // namespace

SpanningPart::SpanningPart(const Surroundings& around, control::JobSpec spec, std::string leader,
                           std::uint32_t gid, Request request)
    : around_(around),
      spec_(std::move(spec)),
      leader_(std::move(leader)),
      leads_(leader_ == around.peers.here()),
      gid_(gid),
      wish_(std::move(request)),
      links_(around.loop, around.clock, around.jobs, around.peers, spec_, [this] { on_links(); }),
      making_world_(around.loop, around.jobs, around.peers, spec_),
      making_(making_world_, leads_ ? kMakingOfLeader : kMakingOfOthers, spec_, leader_,
              {.ended = [this](const Status& how) { on_made(how); },
               .failed_here =
                   [this](const Status& why) {
                     why_ = why;  // the leader is told, and ends it on all nodes
                     told_ = true;
                   }}),
      start_(around.loop, around.clock, around.table, around.jobs, around.retries, around.options,
             around.place_may_come),
      idle_job_({around.loop, around.jobs, around.peers, around.options}, spec_,
                [this](const std::string& why) { end(why, Again::kNo); }) {
  for (const std::string& node : spec_.world.nodes())
    if (node != around_.peers.here()) others_.push_back(node);
}

void SpanningPart::adopt(std::uint64_t epoch) {
  state_ = State::kReady;
  epoch_ = epoch;
  idle_job_.begin(epoch);
  idle_job_.open();
  links_.begin_adopted(epoch);
}

// ---- reports -----------------------------------------------------------------------------------

Status SpanningPart::awaited() const {
  const std::string& job = spec_.id();
  if (state_ == State::kReady && around_.table.find(job) != nullptr) return {};
  if (state_ == State::kOver) return failure(Code::kJobEnded, "job {} has ended: {}", job, why_.message());
  if (start_.waits())
    return failure(Code::kBusy, "job {} waits for a place on this node: {}", job, start_.why().message());
  if (state_ == State::kBeginning || state_ == State::kJoining)
    return failure(Code::kBusy,
                   "job {} is made, and the engine of this node is connecting with the others; try again",
                   job);
  for (const std::string& node : others_)
    if (links_.elsewhere() == 0 && !around_.peers.is_up(node))
      return failure(Code::kBusy, "job {} waits for its nodes: {}; try again (`muster status{}`)", job,
                     around_.peers.why_not(node), shm::endpoint_option(spec_.endpoint));
  const std::string before = why_.ok() ? "" : ": " + why_.message();
  if (state_ != State::kMaking)
    return failure(Code::kBusy, "job {} is not made yet{}; try again", job, before);
  return failure(Code::kBusy, "job {} is being made on {} nodes, and {}{}; try again", job,
                 others_.size() + 1, making_.lacks(), why_.ok() ? "" : "; the last attempt failed" + before);
}

std::string SpanningPart::news() const {
  if (state_ != State::kReady || around_.table.find(spec_.id()) == nullptr) return awaited().message();
  const std::string lacks = links_.lacks();
  return lacks.empty() ? lacks : fmt::format("job {} runs without some of its nodes: {}", spec_.id(), lacks);
}

// ---- making ------------------------------------------------------------------------------------

void SpanningPart::try_begin() {
  const std::string& name = spec_.id();
  if (state_ != State::kWaiting || around_.jobs.closed() || around_.table.find(name) != nullptr) return;
  if (const std::uint64_t epoch = links_.elsewhere()) return begin(epoch, State::kBeginning);
  if (!leads_) return;
  for (const std::string& node : others_)
    if (!around_.peers.is_up(node)) return;
  begin(draw_epoch(around_.options), State::kMaking);
}

void SpanningPart::begin(std::uint64_t epoch, State state) {
  state_ = state;
  epoch_ = epoch;
  told_ = false;
  idle_job_.begin(epoch);
  around_.loop.unwatch(std::exchange(timer_, 0));
  if (state == State::kMaking) making_.begin(epoch, wish_.patience);
  const auto held = [this, epoch](const Result<RunningJobs::HeldEngine>& engine) {
    if (epoch_ != epoch) return;
    if (state_ == State::kMaking) return making_.held(engine);
    if (state_ != State::kBeginning) return;
    if (engine) {
      state_ = State::kJoining;
      return links_.begin_disconnected(epoch);
    }
    why_ = engine.error();
    told_ = true;  // nobody knows of it
    state_ = State::kWaiting;
    retry_later();
  };
  control::JobSpec spec = spec_;
  spec.interfaces = around_.peers.interfaces_for(spec_);
  start_.start(
      spec,
      {.gid = gid_, .owner = wish_.owner, .made = spec_.temporary(), .held_epoch = epoch, .on_held = held});
}

// The job is made, or the leader gives up: then it ends what was begun, and tries again later.
void SpanningPart::on_made(const Status& status) {
  if (status.ok()) {
    links_.begin_connected(epoch_);
    return ready();
  }
  if (why_.text() != status.text())
    MUSTER_LOG(kWarning, "supervisor", "job {} cannot be made: {}", spec_.id(), status.message());
  why_ = start_.waits() ? failure(status.code(), "{}; {}", status.message(), start_.why().message()) : status;
  const Status why = why_;
  const auto made = std::exchange(wish_.made, nullptr);
  end(why.message(), spec_.temporary() ? Again::kNo : Again::kYes);
  retry_later();
  if (made) made(why);
}

void SpanningPart::ready() {
  state_ = State::kReady;
  why_ = {};
  around_.jobs.commit(spec_.id());
  idle_job_.open();
  if (const auto made = std::exchange(wish_.made, nullptr)) made({});
}

// A part that joins is ready once it is connected with all that it can reach.
void SpanningPart::on_links() {
  if (state_ == State::kJoining && links_.is_complete()) {
    MUSTER_LOG(kInfo, "supervisor", "this node's part of job {} has joined the others", spec_.id());
    ready();
  } else if (state_ == State::kBeginning && start_.waits() && links_.elsewhere() == 0) {
    told_ = true;
    why_ = failure(Code::kJobEnded, "no other node has a part of it any more");
    end(why_.message(), Again::kYes);
    retry_later();
  } else if (state_ == State::kWaiting) {
    try_begin();
  }
}

// A temporary job is not made twice: unless another node has it, it is over.
void SpanningPart::retry_later() {
  if (state_ != State::kWaiting) return;
  if (spec_.temporary() && links_.elsewhere() == 0) return leave(why_.message(), Again::kNo);
  around_.loop.unwatch(timer_);
  timer_ = around_.loop.after(kRetry, [this] {
    timer_ = 0;
    try_begin();
  });
}

// ---- ending ------------------------------------------------------------------------------------

void SpanningPart::tell_end(const std::string& why, Again again) {
  if (std::exchange(told_, true)) return;
  const Json message = end_message(spec_.id(), epoch_, why, again == Again::kYes);
  for (const std::string& other : others_) around_.peers.send(other, message);
}

void SpanningPart::end(const std::string& why, Again again) {
  tell_end(why, again);
  links_.end(nullptr);
  making_.stop();
  start_.stop();
  idle_job_.end();
  leave(why, again);
  if (around_.table.find(spec_.id(), epoch_) != nullptr) around_.jobs.end(spec_.id(), why);
}

// Ranks that came while the part waited for its place have no part of the table that tells them.
void SpanningPart::leave(const std::string& why, Again again) {
  state_ = again == Again::kYes ? State::kWaiting : State::kOver;
  if (start_.has_waited() && around_.table.find(spec_.id()) == nullptr)
    around_.turn_away(spec_.id(), failure(Code::kJobEnded, "{}", why));
  if (over()) around_.over(spec_.id());
}

// Reports an end that began here, by a user's request or with the daemon, to the other nodes. The daemon's
// end takes only this node away.
void SpanningPart::on_ending(const Status& why) {
  if (told_) return;
  why_ = why;
  const Status of_node(why.code(), fmt::format("node {}: {}", around_.peers.here(), why.message()));
  const bool closed = around_.jobs.closed();
  const bool leaves = closed && links_.stands();
  const Again again = closed || state_ == State::kWaiting ? Again::kYes : Again::kNo;
  if (leaves) told_ = true;
  links_.end(leaves ? &why : nullptr);
  making_.stop();
  start_.stop();
  idle_job_.end();
  tell_end(of_node.message(), again);
  leave(of_node.message(), again);
}

void SpanningPart::on_gone(const Status& why) {
  const Status of_node(why.code(), fmt::format("node {}: {}", around_.peers.here(), why.message()));
  // The engine has ended early. While it starts, its answer says so.
  if (!told_ && links_.stands()) {
    why_ = why;
    links_.end(&why);
    idle_job_.end();
    state_ = State::kWaiting;
  } else if (!told_ && making_.holds()) {
    why_ = why;
    making_.stop();
    start_.stop();
    tell_end(of_node.message(), Again::kYes);
    state_ = State::kWaiting;
  }
  if (const auto made = std::exchange(wish_.made, nullptr)) made(why);
  const std::uint64_t next = std::exchange(next_epoch_, 0);
  if (next != 0 && state_ == State::kWaiting && !around_.jobs.closed()) return begin(next, State::kMaking);
  retry_later();
}

void SpanningPart::on_left(Connections::Id owner) {
  if (wish_.owner == 0 || wish_.owner != owner) return;
  wish_.owner = 0;
  if (state_ != State::kWaiting && !start_.waits()) return;
  told_ = false;
  end(RunningJobs::kOwnerLeft, Again::kNo);
}

// ---- peers -------------------------------------------------------------------------------------

void SpanningPart::on_up(const std::string& peer, std::uint64_t its_epoch) {
  links_.on_up(peer, its_epoch);
  idle_job_.on_up(peer);
  // It was away when the job was ended.
  if (state_ == State::kOver && its_epoch != 0 && !idle_job_.without_maker())
    around_.peers.send(peer, end_message(spec_.id(), its_epoch, why_.message(), false));
  look_at(peer);
}

// Acts on news of the peer's part. If a node before this one has another life of the job, this node joins
// that.
void SpanningPart::look_at(const std::string& peer) {
  if (links_.yields_to(peer)) {
    told_ = true;
    end(fmt::format("node {} has the job with another epoch", peer), Again::kYes);
  }
  on_links();
}

void SpanningPart::on_down(const std::string& peer, const Status& why) {
  links_.on_down(peer);
  idle_job_.on_down(peer);
  if (peer == leader_) next_epoch_ = 0;
  if (state_ != State::kMaking) return;
  const Status lost =
      failure(Code::kPeerLost, "node {} was lost while the job was being made: {}", peer, why.message());
  if (leads_) {
    making_.stop();
    start_.stop();
    return on_made(lost);
  }
  if (peer != leader_) return;
  why_ = lost;
  told_ = true;
  end(lost.message(), Again::kYes);
  if (around_.table.find(spec_.id()) == nullptr) retry_later();
}

void SpanningPart::hear(const std::string& peer, const std::string& step, std::uint64_t epoch,
                        const Json& message) {
  if (step == "join" || step == "here" || step == "apart" || step == "gone") {
    if (state_ == State::kOver) {  // it was away when the job was ended
      if (step != "gone" && !idle_job_.without_maker())
        around_.peers.send(peer, end_message(spec_.id(), epoch, why_.message(), false));
      return;
    }
    links_.heard(peer, step, message);
    return look_at(peer);
  }
  if (step == "prepare") {
    if (peer == leader_) hear_prepare(peer, epoch);
    return;
  }
  if (step == "end" && epoch == next_epoch_) next_epoch_ = 0;
  if (epoch != epoch_) return;  // of an earlier attempt
  if (step == "end") {
    if (state_ != State::kOver) hear_end(message);
  } else if (IdleJob::is_step(step)) {
    idle_job_.hear(peer, step, message);
  } else if (state_ == State::kMaking) {
    making_.hear(peer, step, message);
  }
}

void SpanningPart::on_word(const RunningJobs::EngineEvent& word) {
  if (links_.stands()) return links_.on_word(word);
  const bool present = around_.table.find(spec_.id(), epoch_) != nullptr;
  if (state_ == State::kMaking && present) making_.on_word(word);
}

void SpanningPart::give_way(const std::string& leader) {
  told_ = true;
  end(fmt::format("node {} makes it anew", leader), spec_.temporary() ? Again::kNo : Again::kYes);
}

void SpanningPart::hear_end(const Json& message) {
  const std::string why = said_text(message, "why");
  told_ = !leads_;  // the leader passes it on, because two others may not see each other
  why_ = failure(Code::kJobEnded, "{}", why);
  end(why, said_flag(message, "again") ? Again::kYes : Again::kNo);
  retry_later();
}

void SpanningPart::hear_prepare(const std::string& peer, std::uint64_t epoch) {
  const Job* job = around_.table.find(spec_.id());
  if (job == nullptr && !around_.jobs.closed()) return begin(epoch, State::kMaking);
  if (job != nullptr && job->state != Job::State::kEnding) give_way(peer);
  // Once the earlier part is gone this node takes part, unless the leader has ended the attempt before.
  if (!around_.jobs.closed()) {
    next_epoch_ = epoch;
    return;
  }
  Json answer{{"job", spec_.id()}, {"epoch", epoch}, {"step", "prepared"}};
  answer.update(control::failed(failure(Code::kState, RunningJobs::kShuttingDown)));
  around_.peers.send(peer, answer);
}

}  // namespace muster::supervisor
