#include "tests/history/allowed.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace muster::test {

std::int32_t HistoryGroup::index_of(std::uint32_t rank) const {
  const auto at = std::find(ranks.begin(), ranks.end(), rank);
  return at == ranks.end() ? -1 : static_cast<std::int32_t>(at - ranks.begin());
}

std::size_t Allowed::begun(Attempt attempt) {
  attempts_.push_back(std::move(attempt));
  return attempts_.size() - 1;
}

void Allowed::over(std::size_t attempt, bool well, Instant now, Turn turn) {
  attempts_[attempt].well = well;
  attempts_[attempt].over_at = now;
  attempts_[attempt].over = turn;
}

void Allowed::gone(std::uint32_t rank, std::uint32_t life, Turn turn) {
  for (Attempt& a : attempts_)
    if (a.rank == rank && a.life == life) a.over = std::min(a.over, turn);
}

bool Allowed::is_in_a_run(std::uint32_t rank, std::uint32_t life) const {
  return std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& a) {
    return a.rank == rank && a.life == life && a.lane == kNoLane && a.over == kNever;
  });
}

std::set<std::string> Allowed::words_for_runs(std::uint32_t rank, std::uint32_t life) const {
  std::set<std::string> words;
  for (const Attempt& a : attempts_) {
    if (a.rank != rank || a.life != life || a.lane != kNoLane || a.over != kNever) continue;
    for (const Struck& fault : faults_)
      if (reaches(fault, a)) words.insert(fault.texts.begin(), fault.texts.end());
  }
  return words;
}

std::size_t Allowed::strikes(Struck fault) {
  faults_.push_back(std::move(fault));
  return faults_.size() - 1;
}

// ---- how far a fault reaches -------------------------------------------------------------------

bool Allowed::strikes_at(const Struck& fault, const MeetingPlace& place) {
  const bool kind = place.kind == MeetingPlace::Kind::kRuns ? fault.runs : fault.starts;
  return kind && std::find(fault.groups.begin(), fault.groups.end(), place.group) != fault.groups.end();
}

Allowed::Reach Allowed::reach(const Struck& fault) const {
  Reach reach;
  for (bool more = true; more;) {
    more = false;
    for (const Attempt& a : attempts_) {
      if (a.lane == kNoLane || a.well || a.over < fault.earliest) continue;
      const bool waits = std::any_of(a.waits.begin(), a.waits.end(), [&](std::size_t id) {
        return reach.lanes.contains(lane_of(attempts_[id]));
      });
      const bool hit = waits || strikes_at(fault, a.place) || reach.places.contains(a.place) ||
                       reach.lanes.contains(lane_of(a));
      if (!hit) continue;
      more = reach.lanes.insert(lane_of(a)).second || more;
      more = reach.places.insert(a.place).second || more;
    }
  }
  return reach;
}

bool Allowed::reaches(const Struck& fault, const Attempt& heard) const {
  const Turn attached = attached_.at({heard.rank, heard.life});
  const bool is_start = heard.lane != kNoLane;
  if (fault.latest >= attached && strikes_at(fault, heard.place)) return true;
  if (!is_start) return false;
  const Reach found = reach(fault);
  if (!found.lanes.contains(lane_of(heard))) return false;
  if (fault.latest >= attached) return true;
  // Somebody's start was dropped since.
  const auto shares = [&](const Attempt& dropped) {
    return std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& own) {
      return own.rank == heard.rank && own.life == heard.life && own.place == dropped.place;
    });
  };
  return std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& a) {
    return a.lane != kNoLane && a.rank != heard.rank && !a.well && a.over >= attached &&
           found.lanes.contains(lane_of(a)) && shares(a);
  });
}

// ---- faults that nobody made -------------------------------------------------------------------

bool Allowed::was_due(std::uint32_t group, Instant now) const {
  return std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& a) {
    return a.place.group == group && std::min(now, a.over_at) - a.begun_at >= deadline_;
  });
}

bool Allowed::were_apart(std::uint32_t group) const {
  for (const Attempt& a : attempts_)
    for (const Attempt& b : attempts_)
      if (a.place.group == group && a.place == b.place && a.rank < b.rank && a.over >= b.begun &&
          b.over >= a.begun && (a.step != b.step || a.wrong != b.wrong))
        return true;
  return false;
}

// A deadline or a mismatch of which nobody has heard yet.
bool Allowed::learn(const Attempt& heard, muster_status_t code, const std::string& text, Instant now,
                    Turn turn) {
  const bool passed_on = code == MUSTER_ERR_DEPENDENCY || code == MUSTER_ERR_PEER_LOST;
  std::vector<std::uint32_t> where;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const bool named = text.find("group " + groups_[g].name) != std::string::npos;
    if (groups_[g].name.empty() || (!named && text.find("group ") != std::string::npos)) continue;
    const bool is_so = (code == MUSTER_ERR_TIMEOUT && was_due(g, now)) ||
                       (code == MUSTER_ERR_MISMATCH && were_apart(g)) ||
                       (passed_on && (was_due(g, now) || were_apart(g)));
    if (is_so) where.push_back(g);
  }
  if (where.empty()) return false;
  if (code == MUSTER_ERR_PEER_LOST) {  // who was told of it is gone
    for (Struck& fault : faults_)
      if (fault.in_a_run && reaches(fault, heard)) return fault.texts.insert(text).second;
    return false;
  }
  strikes({code, {text}, where, true, true, 0, turn});
  return true;
}

// ---- hearing -----------------------------------------------------------------------------------

std::size_t Allowed::candidates(const Attempt& heard, muster_status_t code, const std::string& text) const {
  return static_cast<std::size_t>(std::count_if(faults_.begin(), faults_.end(), [&](const Struck& fault) {
    const bool root = code == MUSTER_ERR_DEPENDENCY || code == fault.code;
    return root && fault.texts.contains(text) && reaches(fault, heard);
  }));
}

std::string Allowed::counted(const Attempt& heard, const std::string& what, std::size_t candidates) {
  if (heard.lane == kNoLane) {
    const std::size_t times = ++heard_of_runs_[{heard.rank, heard.life, heard.place.group, what}];
    if (times > candidates) return fmt::format("runs hear {} times of {} faults", times, candidates);
    return {};
  }
  auto& stops = heard_of_lanes_[{lane_of(heard), what}];
  stops.insert(heard.stops);
  const std::size_t most = candidates * (1 + kHistoryLanes);
  return stops.size() > most ? fmt::format("the lane hears {} times", stops.size()) : "";
}

std::string Allowed::hears(std::size_t attempt, muster_status_t code, const std::string& text, Instant now,
                           Turn turn) {
  over(attempt, false, now, turn);
  const Attempt& heard = attempts_[attempt];
  // The lane has failed again, or was reset: its text is gone.
  if (heard.lane != kNoLane && text == muster_status_sentence(code)) return {};
  std::size_t found = candidates(heard, code, text);
  if (found == 0 && learn(heard, code, text, now, turn)) found = candidates(heard, code, text);
  const std::string what = fmt::format("{}: {}", muster_status_name(code), text);
  if (found == 0) return "no fault that reaches it has this cause: " + what;
  const bool repeats = code == MUSTER_ERR_TIMEOUT || code == MUSTER_ERR_MISMATCH;  // equal words, new faults
  const std::string wrong = repeats ? "" : counted(heard, what, found);
  return wrong.empty() ? wrong : wrong + ": " + what;
}

}  // namespace muster::test
