#include "api/base/blame/blame.hpp"

#include "api/base/words.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace muster::blame {
namespace {

using Link = Report::Link;
using Culprit = Report::Culprit;
using Confidence = Report::Confidence;
using Diagnosis = Report::Diagnosis;
using Process = RankState::Process;

template<class Enum, std::size_t N>
const char* word(const std::array<const char*, N>& words, Enum value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? words[index] : "unknown";
}

constexpr std::array kDiagnosisWords = {
    "healthy",          "slow",     "unknown", "not_joined", "not_attached",
    "mismatch_pending", "deadlock", "frozen",  "stopped",    "dead"};

std::optional<Diagnosis> diagnosis_of(Process state) {
  switch (state) {
    case Process::kDead:
      return Diagnosis::kDead;
    case Process::kStopped:
      return Diagnosis::kStopped;
    case Process::kFrozen:
      return Diagnosis::kFrozen;
    default:
      return std::nullopt;
  }
}

// Nodes number the groups that were made on their own.
bool same_group(const Wait& a, const Wait& b) {
  if (a.span && b.span) return a.span->group == b.span->group;
  return !a.span && !b.span && a.group == b.group;
}

// A depth-first search from one wait to all waits and ranks that it depends on.
//
// Owns    its findings.
// Thread  one.
// Bound   each wait is visited once.
// Fails   never.
class Search {
 public:
  explicit Search(const Snapshot& snapshot)
      : snapshot_(snapshot),
        places_(snapshot.ranks.size()),
        marks_(snapshot.waits.size(), Mark::kNew),
        goes_on_(snapshot.waits.size(), false) {
    for (std::size_t w = 0; w < snapshot.waits.size(); ++w) {
      for (const Wait::Arrived& arrived : snapshot.waits[w].arrived) add_place(arrived.rank, w);
      for (const std::uint32_t rank : snapshot.waits[w].awaiting) add_place(rank, w);
    }
  }

  Report run(std::size_t start) {
    visit(start, true);
    return conclude(start);
  }

 private:
  enum class Mark : std::uint8_t { kNew, kOnTheWay, kDone };
  struct End {  // a rank at which a path ends, because it waits for nobody
    Culprit culprit;
    std::size_t wait = 0;
    bool certain = true;
  };
  struct Step {
    std::size_t wait = 0;
    std::uint32_t missing = 0;  // the missing rank by which the path leaves the wait
    bool certain = true;
    std::string stands;  // its part
  };

  const RankState& rank(std::uint32_t number) const {
    static const RankState kNobody{};
    return number < snapshot_.ranks.size() ? snapshot_.ranks[number] : kNobody;
  }

  void add_place(std::uint32_t rank, std::size_t w) {
    if (rank < places_.size()) places_[rank].push_back(w);
  }

  void visit(std::size_t w, bool certain) {
    marks_[w] = Mark::kOnTheWay;
    const Wait& wait = snapshot_.waits[w];
    for (const std::uint32_t inside : wait.inside)
      if (const auto bad = diagnosis_of(rank(inside).process))
        ends_.push_back({{inside, *bad, ""}, w, certain});
    if (wait.missing.empty()) (is_seen(wait) ? running_ : unseen_).push_back(w);
    if (!wait.difference.empty()) differing_.push_back(w);
    for (const Wait::Missing& missing : wait.missing) follow(w, missing, certain);
    marks_[w] = Mark::kDone;
  }

  // Whether the snapshot covers all ranks that take part.
  bool is_seen(const Wait& wait) const {
    return std::all_of(wait.takes_part.begin(), wait.takes_part.end(),
                       [this](std::uint32_t number) { return rank(number).local; });
  }

  void follow(std::size_t w, const Wait::Missing& missing, bool certain) {
    if (!rank(missing.rank).unknown.empty())
      return ends_.push_back({{missing.rank, Diagnosis::kUnknown, ""}, w, certain});
    if (missing.behind && *missing.behind < snapshot_.waits.size())
      return go_on({w, missing.rank, true, missing.stands}, *missing.behind, certain);
    const RankState& state = rank(missing.rank);
    std::optional<Diagnosis> end = diagnosis_of(state.process);
    if (!end && !state.attached) end = Diagnosis::kNotAttached;
    const auto& places = missing.rank < places_.size() ? places_[missing.rank] : std::vector<std::size_t>();
    // If something other than a wait holds the part back, the path ends: the rank itself is the reason.
    if (!end && (places.empty() || !missing.reason.empty())) end = Diagnosis::kNotJoined;
    if (end) return ends_.push_back({{missing.rank, *end, missing.reason}, w, certain});
    for (const std::size_t place : places)
      go_on({w, missing.rank, snapshot_.waits[place].path == Path::kDirect, {}}, place, certain);
  }

  // The step is certain: the missing rank cannot arrive at its wait before `next` is over. `certain`: so are
  // all steps to that wait.
  void go_on(Step step, std::size_t next, bool certain) {
    const bool sure = step.certain;
    goes_on_[step.wait] = true;
    way_.push_back(std::move(step));
    if (marks_[next] == Mark::kOnTheWay) {
      close_circle(next);
    } else if (marks_[next] == Mark::kNew) {
      visit(next, certain && sure);
    }
    way_.pop_back();
  }

  void close_circle(std::size_t first) {
    auto from = std::find_if(way_.begin(), way_.end(), [&](const Step& s) { return s.wait == first; });
    std::vector<Link> circle;
    std::uint32_t sits = way_.back().missing;
    for (; from != way_.end(); ++from) {
      circle.push_back({sits, from->wait, from->missing, from->certain, from->stands});
      sits = from->missing;
    }
    // A certain circle is preferred to an inferred one, then a short one to a long one.
    const auto rating = [](const std::vector<Link>& links) {
      return std::pair(std::none_of(links.begin(), links.end(), [](const Link& l) { return !l.certain; }),
                       -static_cast<std::ptrdiff_t>(links.size()));
    };
    if (circle_.empty() || rating(circle) > rating(circle_)) circle_ = std::move(circle);
  }

  Instant since(std::size_t w) const { return snapshot_.waits[w].since; }

  std::size_t oldest(const std::vector<std::size_t>& waits) const {
    return *std::min_element(waits.begin(), waits.end(),
                             [&](std::size_t a, std::size_t b) { return since(a) < since(b); });
  }

  Report conclude(std::size_t start) {
    Report report;
    std::optional<Diagnosis> worst;
    for (const End& end : ends_) worst = std::max(worst.value_or(Diagnosis::kHealthy), end.culprit.diagnosis);
    const bool process = worst && *worst >= Diagnosis::kFrozen;
    // A member without a process is a fact, so it counts more than a circle that is only inferred.
    const bool inferred =
        std::any_of(circle_.begin(), circle_.end(), [](const Link& link) { return !link.certain; });
    const bool absent = std::any_of(ends_.begin(), ends_.end(), [](const End& end) {
      return end.certain && end.culprit.diagnosis == Diagnosis::kNotAttached;
    });
    if (!process && !circle_.empty() && !(inferred && absent)) {
      conclude_circle(report);
    } else if (!process && !differing_.empty()) {
      report.diagnosis = Diagnosis::kMismatchPending;
      report.wait = oldest(differing_);
    } else if (worst) {
      conclude_ends(report, *worst);
    } else if (!unseen_.empty()) {
      report.diagnosis = Diagnosis::kUnknown;
      report.confidence = Confidence::kLow;
      report.wait = oldest(unseen_);
    } else {
      report.diagnosis = Diagnosis::kSlow;
      report.confidence = Confidence::kMedium;
      report.wait = running_.empty() ? start : oldest(running_);
    }
    return report;
  }

  void conclude_circle(Report& report) {
    // The oldest wait comes first, so that the same circle always reads the same.
    const auto first = std::min_element(circle_.begin(), circle_.end(), [&](const Link& a, const Link& b) {
      return std::pair(since(a.wait), a.rank) < std::pair(since(b.wait), b.rank);
    });
    std::rotate(circle_.begin(), first, circle_.end());
    bool one_group = true;
    bool submitted = true;
    for (const Link& link : circle_) {
      if (!link.certain) report.confidence = Confidence::kMedium;
      submitted = submitted && !link.stands.empty();
      one_group = one_group && same_group(snapshot_.waits[link.wait], snapshot_.waits[circle_.front().wait]);
    }
    report.diagnosis = one_group && !submitted ? Diagnosis::kMismatchPending : Diagnosis::kDeadlock;
    report.wait = circle_.front().wait;
    report.circle = circle_;
    name_culprits(report);
  }

  // Each rank at which a path ends, with its worst diagnosis.
  void name_culprits(Report& report) const {
    std::map<std::uint32_t, Culprit> culprits;
    for (const End& end : ends_) {
      Culprit& culprit = culprits.try_emplace(end.culprit.rank, end.culprit).first->second;
      if (culprit.diagnosis <= end.culprit.diagnosis) culprit = end.culprit;
    }
    for (const auto& [number, culprit] : culprits) report.culprits.push_back(culprit);
  }

  void conclude_ends(Report& report, Diagnosis worst) {
    report.diagnosis = worst;
    std::vector<std::size_t> waits;
    report.confidence = Confidence::kMedium;
    for (const End& end : ends_) {
      if (end.culprit.diagnosis != worst) continue;
      waits.push_back(end.wait);
      if (end.certain) report.confidence = Confidence::kHigh;
    }
    name_culprits(report);
    // Prefer waits whose missing ranks all wait for nobody: nothing lies deeper than such a wait.
    std::vector<std::size_t> ground;
    std::copy_if(waits.begin(), waits.end(), std::back_inserter(ground),
                 [&](std::size_t w) { return !goes_on_[w]; });
    report.wait = oldest(ground.empty() ? waits : ground);
    const auto unseen = [&](const Culprit& c) {
      return c.diagnosis == Diagnosis::kNotJoined && rank(c.rank).process == Process::kUnknown;
    };
    const auto silent = [](const Culprit& c) { return c.diagnosis == Diagnosis::kUnknown; };
    if (std::any_of(report.culprits.begin(), report.culprits.end(), unseen) ||
        std::any_of(report.culprits.begin(), report.culprits.end(), silent))
      report.confidence = Confidence::kMedium;
    if (worst == Diagnosis::kUnknown) report.confidence = Confidence::kLow;
  }

  const Snapshot& snapshot_;
  std::vector<std::vector<std::size_t>> places_;  // by rank: the waits in which it sits
  std::vector<Mark> marks_;
  std::vector<bool> goes_on_;  // a rank that is missing from the wait waits elsewhere
  std::vector<Step> way_;
  std::vector<End> ends_;
  std::vector<Link> circle_;
  std::vector<std::size_t> running_;
  std::vector<std::size_t> unseen_;  // nobody is missing as far as is known, but not all are known
  std::vector<std::size_t> differing_;
};

// Adds only what the snapshot proves. A process of unknown state rules nothing out.
void rule_out(const Snapshot& snapshot, Report& report) {
  bool seen = snapshot.silent.empty();
  bool ill = false;
  bool absent = false;
  for (const RankState& rank : snapshot.ranks) absent = absent || !rank.attached;
  const auto look = [&](std::uint32_t number) {
    if (number >= snapshot.ranks.size()) return;
    seen = seen && snapshot.ranks[number].unknown.empty();
    if (!snapshot.ranks[number].attached) return;
    const Process state = snapshot.ranks[number].process;
    seen = seen && state != Process::kUnknown;
    ill = ill || diagnosis_of(state).has_value();
  };
  for (const Wait& wait : snapshot.waits) {
    for (const Wait::Missing& missing : wait.missing) look(missing.rank);
    for (const std::uint32_t inside : wait.inside) look(inside);
  }
  for (const Culprit& culprit : report.culprits) look(culprit.rank);
  if (report.diagnosis != Diagnosis::kHealthy && report.diagnosis != Diagnosis::kUnknown && seen && !ill)
    report.ruled_out.emplace_back("a dead, stopped or frozen process");
  if (!absent) report.ruled_out.emplace_back("a rank that is not attached");
  if (report.diagnosis != Diagnosis::kHealthy && report.diagnosis != Diagnosis::kUnknown &&
      report.circle.empty() && snapshot.silent.empty())
    report.ruled_out.emplace_back("a circular wait");
  const auto differs = [](const Wait& wait) { return !wait.difference.empty(); };
  if (std::none_of(snapshot.waits.begin(), snapshot.waits.end(), differs) &&
      report.diagnosis != Diagnosis::kMismatchPending && report.diagnosis != Diagnosis::kHealthy &&
      report.diagnosis != Diagnosis::kUnknown)
    report.ruled_out.emplace_back("a difference in op, count or dtype among those who have come");
}

// No operation waits for long, but a process that cannot go on will hold up the next one.
void look_between_operations(const Snapshot& snapshot, Report& report) {
  for (std::uint32_t number = 0; number < snapshot.ranks.size(); ++number) {
    const RankState& rank = snapshot.ranks[number];
    const auto bad = rank.attached ? diagnosis_of(rank.process) : std::nullopt;
    if (!bad) continue;
    report.diagnosis = std::max(report.diagnosis, *bad);
    report.culprits.push_back({number, *bad, ""});
  }
}

void advise(const Snapshot& snapshot, Report& report) {
  constexpr std::size_t kAdviceMax = 4;
  const auto add = [&](std::string command) {
    if (report.next.size() < kAdviceMax) report.next.push_back(std::move(command));
  };
  for (const Culprit& culprit : report.culprits) {
    const RankState* rank = culprit.rank < snapshot.ranks.size() ? &snapshot.ranks[culprit.rank] : nullptr;
    if (rank == nullptr || culprit.diagnosis != report.diagnosis) continue;
    const std::string pid = std::to_string(rank->pid);
    const std::string there = rank->node.empty() ? "" : "on " + rank->node + ": ";
    if (culprit.diagnosis == Diagnosis::kStopped) add(there + "kill -CONT " + pid);
    if (culprit.diagnosis == Diagnosis::kFrozen) add(there + "thaw the cgroup " + rank->where);
    if (culprit.diagnosis == Diagnosis::kNotJoined)
      add(there + "py-spy dump -p " + pid + "   (or: gdb -p " + pid + ")");
  }
  const std::string at =
      snapshot.asked.endpoint.empty() ? "" : " --endpoint " + shell_word(snapshot.asked.endpoint);
  const std::string about = at + " --job " + snapshot.job;
  if (report.diagnosis == Diagnosis::kUnknown)
    add(snapshot.silent.empty() ? "muster hang" + about : "muster status" + at);
  if (report.diagnosis == Diagnosis::kNotAttached || report.diagnosis == Diagnosis::kDead)
    add("muster jobs" + at);
  if (report.diagnosis == Diagnosis::kSlow) add("muster top" + about);
  if (report.circle.empty() && report.diagnosis != Diagnosis::kMismatchPending) return;
  add("muster flight" + about + " -o flight.json" +
      (snapshot.asked.ends_with_run ? "   (while it runs)" : ""));
  if (!snapshot.asked.reports.empty())
    add("see the records of passed deadlines in " + snapshot.asked.reports);
  else if (snapshot.asked.ends_with_run)
    add("MUSTER_SET_log__reports_directory=FOLDER muster run …   (keeps such a record after the run)");
}

}  // namespace

const char* process_state_name(Process state) noexcept {
  return word(std::array{"unknown", "running", "stopped", "frozen", "dead"}, state);
}

const char* diagnosis_name(Diagnosis diagnosis) noexcept {
  return word(kDiagnosisWords, diagnosis);
}

const char* confidence_name(Confidence confidence) noexcept {
  return word(std::array{"low", "medium", "high"}, confidence);
}

// If the oldest operation is only slow, a younger one may still hang. So the search goes on to the next.
Report assess(const Snapshot& snapshot, std::optional<std::size_t> about) {
  std::vector<std::size_t> starts;
  if (about) {
    if (*about < snapshot.waits.size()) starts.push_back(*about);
  } else {
    for (std::size_t w = 0; w < snapshot.waits.size(); ++w)
      if (snapshot.now - snapshot.waits[w].since >= snapshot.patience) starts.push_back(w);
    std::stable_sort(starts.begin(), starts.end(), [&](std::size_t a, std::size_t b) {
      return snapshot.waits[a].since < snapshot.waits[b].since;
    });
  }
  Report report;
  for (const std::size_t start : starts) {
    Report found = Search(snapshot).run(start);
    if (report.diagnosis == Diagnosis::kHealthy || found.diagnosis != Diagnosis::kSlow)
      report = std::move(found);
    if (report.diagnosis != Diagnosis::kSlow) break;
  }
  if (!about && report.diagnosis == Diagnosis::kHealthy) look_between_operations(snapshot, report);
  if (!about && report.diagnosis == Diagnosis::kHealthy && !snapshot.silent.empty()) {
    report.diagnosis = Diagnosis::kUnknown;
    report.confidence = Confidence::kLow;
  }
  rule_out(snapshot, report);
  advise(snapshot, report);
  return report;
}

}  // namespace muster::blame
