#include "daemon/supervisor/spanning/idle_job.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;

constexpr std::array<std::string_view, 5> kSteps{"vacant", "hurry", "closing", "closed", "reopen"};

bool says_idle(const Json& message) {
  const auto idle = message.find("vacant");
  return idle != message.end() && idle->is_boolean() && idle->get<bool>();
}

}  // namespace

IdleJob::IdleJob(const Surroundings& around, const control::JobSpec& spec,
                 std::function<void(const std::string& why)> reaped)
    : around_(around), spec_(spec), reaped_(std::move(reaped)) {
  for (const std::string& node : spec_.world.nodes())
    if (node != around_.peers.here()) others_.push_back(node);
}

bool IdleJob::is_step(const std::string& step) {
  return std::find(kSteps.begin(), kSteps.end(), step) != kSteps.end();
}

void IdleJob::say(const std::string& peer, const char* step) const {
  around_.peers.send(peer,
                     {{"job", spec_.id()}, {"epoch", epoch_}, {"step", step}, {"vacant", is_open_ && idle_}});
}

void IdleJob::tell_all(const char* step) const {
  for (const std::string& other : others_) say(other, step);
}

void IdleJob::begin(std::uint64_t epoch) {
  end();
  epoch_ = epoch;
  without_maker_ = false;
  if (std::exchange(idle_, false)) tell_all("vacant");
}

void IdleJob::open() {
  is_open_ = true;
  if (idle_) tell_all("vacant");
  look();
}

void IdleJob::end() {
  is_open_ = false;
  hurries_ = false;
  unanswered_.reset();
  asked_by_.clear();
}

void IdleJob::set(RunningJobs::Idle idle) {
  idle_ = idle != RunningJobs::Idle::kNo;
  const bool tells = idle == RunningJobs::Idle::kInHaste && !std::exchange(hurries_, true);
  tell_all(tells ? "hurry" : "vacant");
  look();
}

// Checks whether no node has ranks of the job, as far as can be known. A node that is away may only have been
// upgraded.
void IdleJob::look() {
  const bool is_makers = spec_.asked_on == around_.peers.here();
  const bool has_maker = !spec_.gathered && (is_makers || around_.peers.is_up(spec_.asked_on));
  if (!idle_ || !is_open_ || has_maker || unanswered_ || !asked_by_.empty()) return;
  std::vector<std::string> unsure;
  for (const std::string& other : others_) {
    if (idle_others_.contains(other) || away_.contains(other)) continue;
    if (around_.peers.is_up(other)) return;
    unsure.push_back(other);
  }
  if (unsure.empty()) return close();
  around_.jobs.put_off(spec_.id());
  if (away_timer_ != 0) return;
  away_timer_ = around_.loop.after(around_.options.made_job_linger, [this, unsure] {
    away_timer_ = 0;
    for (const std::string& other : unsure)
      if (!around_.peers.is_up(other)) away_.insert(other);
    look();
  });
}

// The first node that is there asks. All nodes receive the same `vacant` messages.
void IdleJob::close() {
  const auto nodes = spec_.world.nodes();
  const auto first = std::find_if(nodes.begin(), nodes.end(), [this](const std::string& node) {
    return node == around_.peers.here() || around_.peers.is_up(node);
  });
  if (*first != around_.peers.here()) return;
  unanswered_.emplace();
  for (const std::string& other : others_)
    if (around_.peers.is_up(other)) unanswered_->insert(other);
  around_.jobs.hold_ranks(spec_.id(), true);
  tell_all("closing");
  if (unanswered_->empty()) finish();
}

void IdleJob::finish() {
  end();
  without_maker_ = !spec_.gathered;
  const std::string gone =
      without_maker_ ? fmt::format(", and node {}, which has made it, is away", spec_.asked_on) : "";
  reaped_(fmt::format("the last rank of job {} has left{}", spec_.id(), gone));
}

void IdleJob::reopen() {
  unanswered_.reset();
  asked_by_.clear();
  hurries_ = false;
  around_.jobs.hold_ranks(spec_.id(), false);
}

void IdleJob::on_up(const std::string& peer) {
  away_.erase(peer);
  if (idle_) say(peer, "vacant");
}

void IdleJob::on_down(const std::string& peer) {
  idle_others_.erase(peer);
  if (unanswered_) {
    tell_all("reopen");
    reopen();
  } else if (asked_by_ == peer) {
    reopen();
  }
  look();
}

void IdleJob::hear(const std::string& peer, const std::string& step, const Json& message) {
  const bool idle = says_idle(message);
  idle ? void(idle_others_.insert(peer)) : void(idle_others_.erase(peer));
  if (step == "hurry" && is_open_) {
    hurries_ = true;
    around_.jobs.give_way(spec_.id(), "", RunningJobs::Idle::kInHaste);  // it ends once all nodes are idle
  }
  if (step == "hurry" && !(is_open_ && idle_)) say(peer, "vacant");
  if (step == "vacant" && !idle && idle_) around_.jobs.put_off(spec_.id());
  if (step == "closing") {
    if (is_open_ && idle_ && !unanswered_) {
      asked_by_ = peer;
      around_.jobs.hold_ranks(spec_.id(), true);
    }
    return say(peer, "closed");
  }
  if (step == "reopen" && asked_by_ == peer) reopen();
  if (step == "closed" && unanswered_ && unanswered_->erase(peer) > 0) {
    if (!idle) {
      tell_all("reopen");
      reopen();
    } else if (unanswered_->empty()) {
      return finish();
    }
  }
  look();
}

}  // namespace muster::supervisor
