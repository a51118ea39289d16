// The actions of a member in its turns, and its data: history.hpp.
#include "tests/history/history.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace muster::test {
namespace {

constexpr std::size_t kSteps = 40;
constexpr std::size_t kShrunkSteps = 2;
constexpr std::uint32_t kShrunk = 5;  // the group of those who are left
constexpr std::uint32_t kHeader = 16;
constexpr std::uint32_t kSmallWords = 4;  // that fit an arrival's line
constexpr std::uint32_t kMore = 200;      // words of an operation that is not the program's
// The first two lanes of each session, and lanes that it makes. Neither class nor name alone tells them
// apart.
struct MadeLane {
  muster_lane lane_class;
  const char* name;
};
constexpr MadeLane kMadeLanes[] = {
    {MUSTER_LANE_HALO, "a"}, {MUSTER_LANE_SMALL, "a"}, {MUSTER_LANE_SMALL, "b"}};
constexpr std::uint32_t kFirstLanes = 2;
static_assert(kFirstLanes + std::size(kMadeLanes) == kHistoryLanes);
constexpr std::size_t kAhead = 4;  // starts of a lane in flight
constexpr std::size_t kNone = SIZE_MAX;

std::int64_t word_of(std::size_t step, std::uint32_t rank, std::size_t i) {
  return static_cast<std::int64_t>(step * 1'000'003 + rank * 10'007 + i * 31 + 1);
}

bool reduces(muster_op op) {
  return op == MUSTER_ALL_REDUCE;
}

}  // namespace

// ---- the program -------------------------------------------------------------------------------

bool History::Step::has(const HistoryGroup& members, std::uint32_t rank) const {
  const std::int32_t index = members.index_of(rank);
  return index >= 0 && (op != MUSTER_SEND || index == root || index == receiver);
}

void History::make_program() {
  program_.reserve(kSteps + kShrunkSteps);
  for (std::size_t number = 0; number < kSteps; ++number) program_.push_back(make_step(number));
}

History::Step History::make_step(std::size_t number) {
  constexpr muster_op kOps[] = {MUSTER_ALL_GATHER, MUSTER_ALL_GATHER, MUSTER_ALL_REDUCE, MUSTER_BROADCAST,
                                MUSTER_SEND};
  Step step;
  step.group = static_cast<std::uint32_t>(below(5));
  step.is_run = below(2) == 0;
  step.op = kOps[below(std::size(kOps))];
  const auto size = static_cast<std::int32_t>(allowed_.group(step.group).ranks.size());
  step.root = static_cast<std::int32_t>(below(static_cast<std::uint64_t>(size)));
  step.receiver = (step.root + 1) % size;
  step.words = kHeader + static_cast<std::uint32_t>(number);
  if (below(3) == 0) step.words += 100;                                 // more than an arrival has room for
  if (below(40) == 0) step.words += 9000;                               // read where it lies
  if (reduces(step.op) && small_ < kSmallWords) step.words = ++small_;  // no two steps have equal signatures
  step.waits.fill(-1);
  const auto lane = static_cast<std::uint32_t>(below(kHistoryLanes));
  for (std::uint32_t rank = 0; rank < kHistoryRanks; ++rank) {
    step.lanes[rank] = lane;
    if (step.op == MUSTER_SEND)
      step.lanes[rank] = (step.group + static_cast<std::uint32_t>(step.root) +
                          (allowed_.group(step.group).index_of(rank) == step.root ? 0 : 1)) %
                         kHistoryLanes;
    if (step.is_run || below(3) != 0) continue;
    for (std::size_t before = number; before-- > 0;)
      if (!program_[before].is_run && program_[before].has(allowed_.group(program_[before].group), rank) &&
          program_[before].lanes[rank] != step.lanes[rank]) {
        step.waits[rank] = static_cast<std::int32_t>(before);
        break;
      }
  }
  step.offset = words_;
  words_ += (step.words + kMore) * (1 + kHistoryRanks);
  return step;
}

// A call that has no reason to fail.
void History::must(const char* call, muster_status_t status) {
  if (status != MUSTER_OK)
    require(false, fmt::format("{}: {}: {}", call, muster_status_name(status), muster_last_error()));
}

// ---- a life ------------------------------------------------------------------------------------

void History::live(Member& m) {
  open(m);
  while (wrong_.empty() && !closing_) {
    look_at_starts(m);
    if (m.aborts >= 0) abort(m);
    if (below(64) == 0) renew_lane(m);
    if (m.leaves) {
      muster_close(m.session);
      m.session = nullptr;
      return;
    }
    const bool is_alone = victim_ != kHistoryRanks && members_[victim_].state == Member::State::kAway;
    if (is_alone && !m.shrinking) {
      shrink(m);
    } else if (!act(m)) {
      await(m);
    }
  }
}

void History::open(Member& m) {
  constexpr const char* kDims[] = {"world", "dp_shard", "dp_shard", "dp_replicate", "dp_replicate"};
  void* memory = nullptr;
  const std::uint64_t bytes = words_ * sizeof(std::int64_t);
  must("buffer_alloc", muster_buffer_alloc(m.session, bytes, &m.buffer, &memory));
  m.memory = static_cast<std::int64_t*>(memory);
  std::array<std::uint32_t, kHistoryLanes> lanes{};
  std::iota(lanes.begin(), lanes.end(), 0);
  std::shuffle(lanes.begin(), lanes.end(), random_);
  for (const std::uint32_t lane : lanes) open_lane(m, lane);
  for (std::uint32_t g = 5; g-- > 0;)
    if (allowed_.group(g).index_of(m.rank) >= 0)
      must("mesh_group", muster_mesh_group(m.session, kDims[g], &m.groups[g]));
}

// Numbers go to lanes in the order in which a member makes them, so other members have others.
void History::open_lane(Member& m, std::uint32_t lane) {
  if (lane < kFirstLanes) {
    m.lanes[lane] = lane;
    return;
  }
  const MadeLane& made = kMadeLanes[lane - kFirstLanes];
  must("lane_create", muster_lane_create(m.session, made.lane_class, made.name, &m.lanes[lane]));
  tell("rank {} has lane {} as {}", m.rank, lane, m.lanes[lane]);
}

// A lane without starts is given up and made again, whatever other members have there. That is a reset too.
void History::renew_lane(Member& m) {
  const auto lane = static_cast<std::uint32_t>(kFirstLanes + below(std::size(kMadeLanes)));
  if (m.leaves || std::any_of(m.flying.begin(), m.flying.end(), [&](const Flying& flying) {
        return allowed_.attempt(flying.attempt).lane == lane;
      }))
    return;
  must("lane_destroy", muster_lane_destroy(m.session, std::exchange(m.lanes[lane], MUSTER_LANE_NONE)));
  m.stopped[lane] = false;
  ++m.stops[lane];
  ++renewed;
  open_lane(m, lane);
}

void History::look_at_starts(Member& m) {
  for (std::size_t i = 0; i < m.flying.size();) {
    const Flying flying = m.flying[i];
    const muster_status_t status = muster_point_test(m.session, flying.point);
    if (status == MUSTER_PENDING) {
      ++i;
      continue;
    }
    m.flying.erase(m.flying.begin() + static_cast<std::ptrdiff_t>(i));
    ended(m, flying.attempt, status);
  }
}

// One operation of the program. False: there is nothing that it could do.
bool History::act(Member& m) {
  for (std::size_t s = 0; s < program_.size(); ++s) {
    const Step& step = program_[s];
    const bool mine = step.has(allowed_.group(step.group), m.rank) && m.groups[step.group] != 0;
    if (step.done || !mine || is_flying(m, s)) continue;
    if (step.is_run) {
      run_step(m, s);
      return true;
    }
    if (may_start(m, step.lanes[m.rank])) return start(m, s);
  }
  return false;
}

bool History::is_flying(const Member& m, std::size_t step) const {
  return std::any_of(m.flying.begin(), m.flying.end(),
                     [&](const Flying& flying) { return allowed_.attempt(flying.attempt).step == step; });
}

bool History::may_start(Member& m, std::uint32_t lane) {
  if (m.stopped[lane]) {
    if (m.late > 0) {
      --m.late;
      return below(4) == 0;  // it fails at once
    }
    reset(m, lane);
  }
  const auto on_lane = std::count_if(m.flying.begin(), m.flying.end(), [&](const Flying& flying) {
    return allowed_.attempt(flying.attempt).lane == lane;
  });
  return static_cast<std::size_t>(on_lane) < kAhead;
}

void History::reset(Member& m, std::uint32_t lane) {
  must("lane_reset", muster_lane_reset(m.session, m.lanes[lane]));
  tell("rank {} resets lane {}", m.rank, lane);
  m.stopped[lane] = false;
  ++m.stops[lane];
}

// Nothing is to be done but to see how its starts end.
void History::await(Member& m) {
  if (m.flying.empty() || below(2) == 0) return Fiber::pause(Fiber::Pause::kWait);
  const Flying flying = m.flying[below(m.flying.size())];
  const auto span = static_cast<std::int64_t>(below(2'000'000'000));
  const muster_status_t status = muster_point_wait(m.session, flying.point, span);
  if (status == MUSTER_ERR_WAIT_TIMEOUT) return;
  if (status == MUSTER_ERR_WAIT_INTERRUPTED) {
    require(m.interrupts > 0, "a wait is interrupted by nobody");
    --m.interrupts;
    return;
  }
  std::erase_if(m.flying, [&](const Flying& each) { return each.attempt == flying.attempt; });
  ended(m, flying.attempt, status);
}

void History::abort(Member& m) {
  const auto group = static_cast<std::uint32_t>(std::exchange(m.aborts, -1));
  if (m.groups[group] == 0) return;
  const std::string text = fmt::format("rank {} aborted group {}", m.rank, allowed_.group(group).name);
  tell("{}", text);
  m.asked = allowed_.strikes({MUSTER_ERR_ABORTED, {text}, {group}, true, false, turn_, kNever});
  allowed_.strikes({MUSTER_ERR_ABORTED, {text}, {group}, false, true, turn_, kNever});
  must("group_abort", muster_group_abort(m.session, m.groups[group]));
  const std::size_t asked = std::exchange(m.asked, kNone);
  allowed_.has_struck(asked, turn_);
  allowed_.has_struck(asked + 1, turn_);
}

// One has gone for good: the others go on without it.
void History::shrink(Member& m) {
  muster_group group = 0;
  const muster_status_t status = muster_group_shrink(m.session, m.groups[0], 0, &group);
  if (status == MUSTER_ERR_WAIT_INTERRUPTED && m.interrupts > 0) {
    --m.interrupts;
    return;
  }
  must("group_shrink", status);
  if (!wrong_.empty()) return;
  if (program_.size() == kSteps) {
    HistoryGroup left{"survivors", {0, 1, 2, 3}};
    std::erase(left.ranks, victim_);
    allowed_.set_group(kShrunk, left);
    for (std::size_t more = 0; more < kShrunkSteps; ++more) {
      Step step = program_[more];  // in its memory
      step.words = kHeader + kSteps + static_cast<std::uint32_t>(more);
      step.group = kShrunk;
      step.op = MUSTER_ALL_GATHER;
      step.is_run = more % 2 == 0;
      step.done = step.erred = false;
      step.waits.fill(-1);
      step.lanes.fill(kHistoryLanes - 1);
      program_.push_back(step);
    }
  }
  std::array<std::int32_t, kHistoryRanks> ranks{};
  std::size_t count = 0;
  must("group_ranks", muster_group_ranks(m.session, group, ranks.data(), ranks.size(), &count));
  require(count == kHistoryRanks - 1, fmt::format("{} survivors", count));
  tell("rank {} has shrunk", m.rank);
  m.groups[kShrunk] = group;
  m.shrinking = true;
  ++shrunk;
}

// ---- operations --------------------------------------------------------------------------------

// At most one member errs at a step, and once: two equal errors would match.
bool History::errs_at(Member& m, std::size_t number) {
  if (!m.errs || program_[number].erred) return false;
  m.errs = false;
  return program_[number].erred = true;
}

std::size_t History::begin(Member& m, std::size_t number, bool wrong) {
  const Step& step = program_[number];
  Attempt attempt;
  attempt.rank = m.rank;
  attempt.life = m.life;
  attempt.step = number;
  attempt.wrong = wrong;
  attempt.place.group = step.group;
  if (!step.is_run) {
    attempt.lane = step.lanes[m.rank];
    attempt.stops = m.stops[attempt.lane];
    attempt.place.kind = MeetingPlace::Kind::kLane;
    attempt.place.first = attempt.lane;
    if (step.op == MUSTER_SEND)
      attempt.place = {MeetingPlace::Kind::kPair, step.group, static_cast<std::uint32_t>(step.root),
                       static_cast<std::uint32_t>(step.receiver)};
  }
  attempt.begun_at = turns_.clock.now();
  attempt.begun = turn_;
  may_meet_.push_back(m.may_meet);
  must_meet_.push_back(m.must_meet);
  met_.push_back(false);
  const std::size_t id = allowed_.begun(std::move(attempt));
  fill(m, number, id);
  tell("rank {} begins {}: step {}{} op {} of group {} {} {}", m.rank, id, number, wrong ? " wrong" : "",
       step.op, step.group, step.is_run ? "run" : "lane", step.is_run ? 0 : step.lanes[m.rank]);
  return id;
}

bool History::start(Member& m, std::size_t number) {
  const bool wrong = errs_at(m, number);
  const muster_plan what = plan(m, number, wrong);
  const Step& step = program_[number];
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = m.lanes[step.lanes[m.rank]];
  const std::size_t attempt = begin(m, number, wrong);
  if (const std::int32_t before = step.waits[m.rank]; before >= 0)
    for (const Flying& flying : m.flying)
      if (allowed_.attempt(flying.attempt).step == static_cast<std::size_t>(before)) {
        submit.waits[0] = flying.point;
        submit.wait_count = 1;
        allowed_.waits_for(attempt, flying.attempt);
      }
  muster_point point = 0;
  must("plan_start", muster_plan_start(m.session, what, &submit, &point));
  m.flying.push_back({attempt, point});
  return true;
}

void History::run_step(Member& m, std::size_t number) {
  const bool wrong = errs_at(m, number);
  const muster_plan what = plan(m, number, wrong);
  const std::size_t attempt = begin(m, number, wrong);
  ended(m, attempt, muster_plan_run(m.session, what, 0));
}

muster_plan History::plan(Member& m, std::size_t number, bool wrong) {
  muster_plan& made = m.plans[{number, wrong}];
  if (made != 0) return made;
  const Step& step = program_[number];
  const HistoryGroup& group = allowed_.group(step.group);
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = step.op;
  c.group = m.groups[step.group];
  c.dtype = MUSTER_I64;
  c.count = step.words + (wrong ? kMore : 0);
  const auto offset = [&](const std::int64_t* words) {
    return static_cast<std::uint64_t>(words - m.memory) * sizeof(std::int64_t);
  };
  const bool sends = step.op == MUSTER_SEND && group.index_of(m.rank) == step.root;
  const bool receives = step.op == MUSTER_SEND && !sends;
  if (!receives) c.source = {m.buffer, offset(source(m, step))};
  if (!sends) c.target = {m.buffer, offset(target(m, step))};
  if (reduces(step.op)) c.redop = MUSTER_SUM;
  if (step.op == MUSTER_BROADCAST) c.peer = step.root;
  if (step.op == MUSTER_SEND) {
    c.op = sends ? MUSTER_SEND : MUSTER_RECV;
    c.peer = sends ? step.receiver : step.root;
  }
  must("plan_collective", muster_plan_collective(m.session, &c, &made));
  return made;
}

void History::ended(Member& m, std::size_t id, muster_status_t status) {
  const std::string text = status == MUSTER_OK ? "" : muster_last_error();
  const Attempt& attempt = allowed_.attempt(id);
  progress();
  tell("rank {} ends {}: {} {}", m.rank, id, muster_status_name(status), text);
  if (status == MUSTER_OK) {
    require(!attempt.wrong, fmt::format("step {} met another operation", attempt.step));
    check(m, id);
    allowed_.over(id, true, turns_.clock.now(), turn_);
    program_[attempt.step].done = true;
    ++met;
    return;
  }
  ++heard[status];
  hear(m, id, status, text);
}

void History::hear(Member& m, std::size_t id, muster_status_t status, const std::string& text) {
  const Attempt& attempt = allowed_.attempt(id);
  const bool is_start = attempt.lane != kNoLane;
  require(struck_, "a failure though nothing has happened: " + text);
  require(!(is_start && met_[id]), fmt::format("step {} was well at another member: {}", attempt.step, text));
  if (status == MUSTER_ERR_INTERRUPTED) {
    require(!is_start && m.interrupts > 0, "interrupted by nobody");
    --m.interrupts;
    m.run_texts.insert(text);
    allowed_.over(id, false, turns_.clock.now(), turn_);
    return;
  }
  if (m.was_still && status == MUSTER_ERR_ABORTED &&
      text.starts_with("what a member had given was overwritten")) {
    const HistoryGroup& group = allowed_.group(attempt.place.group);
    const std::string told = fmt::format("rank {} aborted group {}", m.rank, group.name);
    m.run_texts.insert(told);
    allowed_.strikes({MUSTER_ERR_ABORTED, {told}, {attempt.place.group}, true, true, attempt.begun, turn_});
    allowed_.over(id, false, turns_.clock.now(), turn_);
    return;
  }
  const std::string wrong = allowed_.hears(id, status, text, turns_.clock.now(), turn_);
  require(wrong.empty(), fmt::format("rank {} at step {} ({}): {}", m.rank, attempt.step,
                                     is_start ? fmt::format("lane {}", attempt.lane) : "run", wrong));
  if (!is_start) m.run_texts.insert(text);
  if (is_start && attempt.stops == m.stops[attempt.lane]) m.stopped[attempt.lane] = true;
  for (const Loss& loss : m.told_of) {
    // The text may be unknown to the others: the engine may have sent it to the lost rank alone.
    const bool unknown = loss.in_a_run && status == MUSTER_ERR_PEER_LOST;
    if (unknown || loss.texts.contains(text))
      m.may_meet[loss.rank] = std::max(m.may_meet[loss.rank], loss.life + 1);
    if (loss.own == text) m.must_meet[loss.rank] = std::max(m.must_meet[loss.rank], loss.life + 1);
  }
}

// ---- data --------------------------------------------------------------------------------------

std::int64_t* History::target(const Member& m, const Step& step) const {
  return m.memory + step.offset + step.words + kMore;
}

// The source of a step that is retried may still be read for what failed; its readers throw that away.
void History::fill(const Member& m, std::size_t number, std::size_t attempt) {
  const Step& step = program_[number];
  std::int64_t* const words = source(m, step);
  for (std::uint32_t i = 0; i < step.words; ++i) words[i] = word_of(number, m.rank, i);
  if (reduces(step.op)) return;
  words[0] = static_cast<std::int64_t>(number);
  words[1] = m.rank;
  words[2] = m.life;
  words[3] = static_cast<std::int64_t>(attempt);
}

void History::check(Member& m, std::size_t id) {
  const std::size_t number = allowed_.attempt(id).step;
  const Step& step = program_[number];
  const HistoryGroup& group = allowed_.group(step.group);
  const std::int64_t* const words = target(m, step);
  switch (step.op) {
    case MUSTER_ALL_REDUCE:
      for (std::uint32_t i = 0; i < step.words; ++i) {
        std::int64_t sum = 0;
        for (const std::uint32_t rank : group.ranks) sum += word_of(number, rank, i);
        if (words[i] != sum)
          return require(false, fmt::format("rank {} step {}: word {} of {} is {}, not {}", m.rank, number, i,
                                            step.words, words[i], sum));
      }
      return;
    case MUSTER_ALL_GATHER:
      for (std::size_t j = 0; j < group.ranks.size(); ++j)
        check_words(m, id, group.ranks[j], words + j * step.words);
      return;
    case MUSTER_BROADCAST:
      return check_words(m, id, group.ranks[static_cast<std::size_t>(step.root)], words);
    default:
      if (group.index_of(m.rank) == step.receiver)
        check_words(m, id, group.ranks[static_cast<std::size_t>(step.root)], words);
  }
}

void History::check_words(Member& m, std::size_t id, std::uint32_t giver, const std::int64_t* words) {
  const std::size_t number = allowed_.attempt(id).step;
  const Step& step = program_[number];
  const auto life = static_cast<std::uint32_t>(words[2]);
  const auto theirs = static_cast<std::size_t>(words[3]);
  bool same =
      words[0] == static_cast<std::int64_t>(number) && words[1] == giver && theirs < allowed_.attempts();
  for (std::uint32_t i = 4; i < step.words; ++i) same = same && words[i] == word_of(number, giver, i);
  if (!same)
    return require(false, fmt::format("rank {} step {}: wrong words of rank {}", m.rank, number, giver));
  const bool knows = step.group == kShrunk || life <= may_meet_[id][giver];  // a new group has no past
  require(knows, fmt::format("rank {} step {}: meets client {} of rank {} before it hears", m.rank, number,
                             life, giver));
  require(life >= must_meet_[id][giver],
          fmt::format("rank {} step {}: meets client {} of rank {}, of whose loss it has heard", m.rank,
                      number, life, giver));
  const Attempt& other = allowed_.attempt(theirs);
  require(other.rank == giver && other.life == life && other.step == number && !other.wrong,
          fmt::format("rank {} step {}: meets an attempt of another step", m.rank, number));
  const bool failed = other.over != kNever && !other.well && members_[giver].life == life;
  require(step.is_run || !failed, fmt::format("step {}: a start that failed at rank {}", number, giver));
  met_[theirs] = true;
}

}  // namespace muster::test
