// Turns and trouble: history.hpp.
#include "tests/history/history.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace muster::test {
namespace {

constexpr Turn kTurnsMax = 400000;
constexpr std::uint32_t kFutileMax = 20;  // a waiting member looks about itself every 16 turns
constexpr std::uint64_t kFaultsMax = 6;
constexpr int kEngineTurns = 50;

std::vector<HistoryGroup> groups_of_mesh() {
  return {{"world", {0, 1, 2, 3}},  {"dp_shard", {0, 1}},     {"dp_shard", {2, 3}},
          {"dp_replicate", {0, 2}}, {"dp_replicate", {1, 3}}, {}};
}

}  // namespace

History::History(JobByHand& job, Turns& turns, std::uint64_t seed)
    : job_(job), turns_(turns), random_(seed), allowed_(groups_of_mesh(), kHistoryDeadline) {
  for (std::uint32_t rank = 0; rank < kHistoryRanks; ++rank) members_[rank].rank = rank;
  faults_left_ = below(16) == 0 ? 0 : static_cast<std::uint32_t>(1 + below(kFaultsMax));
  shrinks_ = below(4) == 0;
  make_program();
}

History::~History() = default;

std::string History::run(std::FILE* story) {
  story_ = story;
  for (Member& m : members_) attach(m);
  while (wrong_.empty() && !closing_) {
    take_turn();
    if (over()) closing_ = true;
    require(turn_ < kTurnsMax, "somebody waits for ever");
  }
  const auto at_work = [](const Member& m) { return m.state == Member::State::kAlive; };
  while (wrong_.empty() && std::any_of(members_.begin(), members_.end(), at_work)) {
    take_turn();
    require(turn_ < 2 * kTurnsMax, "somebody does not come back from its last call");
  }
  end_all();
  return wrong_;
}

bool History::program_is_done() const {
  return std::all_of(program_.begin(), program_.end(), [](const Step& step) { return step.done; });
}

bool History::over() const {
  return program_is_done() && (!shrinks_ || shrunk == kHistoryRanks - 1);
}

// One dies for good, once the program is over and all are there to shrink its group.
void History::choose_victim() {
  const auto stays = [](const Member& m) {
    return m.state == Member::State::kAlive && m.session != nullptr && m.groups[0] != 0;
  };
  if (!std::all_of(members_.begin(), members_.end(), stays)) return;
  for (Member& m : members_) m.leaves = false, m.aborts = -1;
  victim_ = static_cast<std::uint32_t>(below(kHistoryRanks));
  struck_ = true;
  kill(members_[victim_]);
}

// Everybody leaves, and nothing of them stays in the engine.
void History::end_all() {
  for (Member& m : members_)
    if (m.state != Member::State::kAway) kill(m), detach(m, "died");
  for (int i = 0; i < kEngineTurns && job_.unreclaimed() > 0; ++i) job_.take_turn();
  require(job_.unreclaimed() == 0, "starts of gone clients have not ended");
}

void History::require(bool so, const std::string& what) {
  if (so || !wrong_.empty()) return;
  wrong_ = fmt::format("turn {}: {}", turn_, what);
  tell("WRONG: {}", what);
}

// ---- turns -------------------------------------------------------------------------------------

void History::take_turn() {
  ++turn_;
  turns_.clock.advance(Nanos(500));
  if (faults_left_ > 0 && below(400) == 0) cause_trouble();
  if (shrinks_ && victim_ == kHistoryRanks && turn_ % 16 == 0 && program_is_done()) choose_victim();
  const std::uint64_t roll = below(16);
  Member& m = members_[below(kHistoryRanks)];
  if (roll < 4) {
    if (job_.take_turn() > 0) progress();
  } else if (roll < 5) {
    serve(m);
  } else if (roll < 6) {
    if (m.state == Member::State::kDying && below(10) == 0) detach(m, "died");
    if (m.state == Member::State::kAway && m.rank != victim_ && !closing_ && below(10) == 0) attach(m);
  } else {
    let_go_on(m);
  }
  const Instant now = turns_.clock.now();
  const auto waits = [&](const Member& each) {
    return each.state != Member::State::kAlive || each.futile >= kFutileMax || now < each.still_until;
  };
  if (std::all_of(members_.begin(), members_.end(), waits) && !stir()) move_time();
}

void History::let_go_on(Member& m) {
  if (m.state != Member::State::kAlive || m.futile >= kFutileMax) return;
  if (turns_.clock.now() < m.still_until) return;
  switch (m.fiber.go_on()) {
    case Fiber::Pause::kPoint:
      return progress();
    case Fiber::Pause::kAsk:
      m.asks = true;
      ++m.futile;
      return;
    case Fiber::Pause::kSleep:
      m.still_until = std::max(m.still_until, turns_.clock.now() + turns_.sleep);
      return;
    case Fiber::Pause::kWait:
      ++m.futile;
      return;
    case Fiber::Pause::kOver:
      m.state = m.session == nullptr ? Member::State::kDying : Member::State::kFinished;
      return progress();
  }
}

void History::progress() {
  for (Member& m : members_) m.futile = 0;
}

// Whatever can happen without time. False: nothing can.
bool History::stir() {
  bool any = false;
  for (int i = 0; i < kEngineTurns && job_.take_turn() > 0; ++i) any = true;
  for (Member& m : members_) {
    while (serve(m)) any = true;
    if (m.state == Member::State::kDying && below(2) == 0) detach(m, "died"), any = true;
    if (m.state == Member::State::kAway && m.rank != victim_ && !closing_ && below(2) == 0)
      attach(m), any = true;
  }
  if (any) progress();
  return any;
}

bool History::serve(Member& m) {
  if (!m.asks && !m.leaves) return false;
  m.asks = false;
  switch (job_.serve(m.rank)) {
    case JobByHand::Served::kNothing:
      return false;
    case JobByHand::Served::kGoodbye:
      detach(m, "left");
      break;
    case JobByHand::Served::kAnswer:
      break;
  }
  progress();
  return true;
}

void History::move_time() {
  constexpr Nanos kSpans[] = {std::chrono::milliseconds(1), std::chrono::milliseconds(20),
                              std::chrono::milliseconds(60), std::chrono::milliseconds(99)};
  turns_.clock.advance(kSpans[below(std::size(kSpans))]);
  job_.take_turn();
  progress();
}

// ---- trouble -----------------------------------------------------------------------------------

void History::cause_trouble() {
  --faults_left_;
  Member& m = members_[below(kHistoryRanks)];
  const std::uint64_t kind = below(troubles.size());
  if (m.state != Member::State::kAlive || closing_ || victim_ != kHistoryRanks) return;
  ++troubles[kind];
  tell("trouble {} of rank {}", kind, m.rank);
  struck_ = true;
  switch (static_cast<Trouble>(kind)) {
    case Trouble::kKill:
      return kill(m);
    case Trouble::kLeave:
      m.leaves = true;
      return;
    case Trouble::kStop:
      m.was_still = true;
      m.still_until = turns_.clock.now() + Nanos(below(3 * kHistoryDeadline.count()));
      return;
    case Trouble::kAbort:
      m.aborts = static_cast<std::int32_t>(below(5));
      return;
    case Trouble::kMismatch:
      m.errs = true;
      return;
    case Trouble::kInterrupt:
      return interrupt(m);
    default:
      m.late = static_cast<std::uint32_t>(5 + below(60));
  }
}

void History::interrupt(Member& m) {
  if (m.groups[0] == 0 || m.leaves) return;
  muster_interrupt(m.session);
  ++m.interrupts;
  for (std::uint32_t g = 0; g < 5; ++g) {
    const HistoryGroup& group = allowed_.group(g);
    if (group.index_of(m.rank) < 0) continue;
    const std::string text = fmt::format(
        "rank {} was interrupted (muster_interrupt) in an operation of group {}", m.rank, group.name);
    allowed_.strikes({MUSTER_ERR_ABORTED, {text}, {g}, true, false, turn_, kNever});
  }
  progress();
}

// In the middle of whatever it does.
void History::kill(Member& m) {
  if (m.state == Member::State::kAway || m.state == Member::State::kDying) return;
  m.state = Member::State::kDying;
}

void History::detach(Member& m, const std::string& how) {
  const std::string own = fmt::format("rank {} (pid {}) {}", m.rank, m.pid, how);
  std::set<std::string> texts;
  for (const muster_lane lane : m.lanes) {
    if (lane == MUSTER_LANE_NONE) continue;
    if (std::string text = job_.stopped_by(m.rank, lane); !text.empty()) texts.insert(text);
  }
  const bool told = texts.empty() && allowed_.is_in_a_run(m.rank, m.life);
  if (texts.empty()) {
    texts = allowed_.words_for_runs(m.rank, m.life);
    texts.insert(m.run_texts.begin(), m.run_texts.end());
    texts.insert(own);
  }
  tell("detached: {}; told as one of: {}", own, fmt::join(texts, " | "));
  Struck loss{MUSTER_ERR_PEER_LOST, texts, {}, true, true, turn_, turn_, told};
  for (std::uint32_t g = 0; g < 6; ++g)
    if (allowed_.group(g).index_of(m.rank) >= 0) loss.groups.push_back(g);
  allowed_.strikes(std::move(loss));
  if (m.asked != SIZE_MAX) allowed_.has_struck(m.asked, turn_), allowed_.has_struck(m.asked + 1, turn_);
  allowed_.gone(m.rank, m.life, turn_);
  for (Member& other : members_) other.told_of.push_back({m.rank, m.life, texts, own, told});
  job_.detach(m.rank, own);
  if (m.session != nullptr) JobByHand::forget(m.session);  // dropped in the middle of a call, perhaps
  m.session = nullptr;
  m.state = Member::State::kAway;
  ++m.life;
  progress();
}

void History::attach(Member& m) {
  ++turn_;
  m.pid = static_cast<std::int32_t>(1000 * (m.life + 1) + m.rank);
  m.state = Member::State::kAlive;
  tell("rank {} attaches as {}", m.rank, m.pid);
  m.session = job_.attach(m.rank, m.pid);
  m.groups = {};
  m.plans.clear();
  m.flying.clear();
  m.lanes.fill(MUSTER_LANE_NONE);
  m.stopped = {};
  m.stops = {};
  m.run_texts.clear();
  m.told_of.clear();
  m.asked = SIZE_MAX;
  m.aborts = -1;
  m.asks = m.leaves = m.errs = m.was_still = m.shrinking = false;
  m.late = m.interrupts = 0;
  m.still_until = Instant{0};
  for (const Member& other : members_) m.may_meet[other.rank] = m.must_meet[other.rank] = other.life;
  allowed_.attached(m.rank, m.life, turn_);
  m.fiber.begin([this, &m] { live(m); });
  progress();
}

}  // namespace muster::test
