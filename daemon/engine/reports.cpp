// What the engine tells of those who wait: the cause at a deadline, and `muster hang`.
#include "api/base/log.hpp"
#include "daemon/engine/engine.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

namespace muster::engine {
namespace {

using control::Json;

constexpr std::size_t kVerdictBytesMax = shm::kFailureTextBytes - 1;
// A look costs a few reads of small files, and at a deadline the baton is held meanwhile.
constexpr std::size_t kLooksAtDeadlineMax = 64;
constexpr std::size_t kLooksOnDemandMax = 4096;
constexpr Nanos kCircleRemembered = std::chrono::seconds(1);
constexpr std::uint32_t kExplainedInTurnMax = 16;  // a look at a process takes three files
// A job that fails over and over must not fill a disk.
constexpr std::uint32_t kReportsWrittenMax = 16;
constexpr Nanos kPatienceMax = std::chrono::seconds(1);

// At a character's border.
std::string cut(std::string text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  while (bytes_max > 0 && (static_cast<unsigned char>(text[bytes_max]) & 0xc0u) == 0x80u) --bytes_max;
  text.resize(bytes_max);
  return text;
}

Status write_file(const std::string& path, const Json& json) {
  std::ofstream file(path + ".partial", std::ios::trunc);
  file << json.dump(1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
  const bool written = file.good();
  file.close();
  if (written && std::rename((path + ".partial").c_str(), path.c_str()) == 0) return {};
  return failure(Code::kNoResource, "{} cannot be written: {}; see to log.reports_directory", path,
                 std::strerror(errno));
}

void log_report(const std::string& job, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) MUSTER_LOG(kWarning, "engine", "job {}: {}", job, line);
}

}  // namespace

Result<shm::Descriptor> Engine::counters() const {
  return read_only(tally_->descriptor());
}

void Engine::heard(Rank rank) {
  const std::lock_guard lock(baton_);
  seats_[rank.value].heard_at = clock_.now();
}

std::vector<RankFacts> Engine::rank_facts() const {
  std::vector<RankFacts> facts;
  for (const Seat& seat : seats_) {
    RankFacts& rank = facts.emplace_back(RankFacts{seat.session.get(), seat.process, seat.heard_at, {}});
    if (const auto& last = seat.finished)
      rank.finished = blame::LastOperation{graph_->groups()[last->group.value].name, last->label,
                                           Path::kEngine, last->number, last->at};
  }
  return facts;
}

blame::Situation Engine::situation(std::span<const RankFacts> facts, Instant now) const {
  const Nanos patience = std::min(kPatienceMax, spec_.deadline / 2);
  return situation_of({spec_.name, now, patience, *graph_, board_ ? &*board_ : nullptr, facts, &lateness_});
}

void Engine::look_for_stragglers(Instant now) {
  lateness_changes_.clear();
  lateness_.look(board_ ? &*board_ : nullptr, now, lateness_changes_);
  log_lateness(now);
}

// Of the latest changes. Where ranks share cores, who comes late is who did not get one: no news for a log.
void Engine::log_lateness(Instant now) {
  for (const Lateness::Change& change : lateness_changes_) lateness_log_.changed(change.group);
  if (spec_.world > std::max(pool_->workers(), cores_)) return;
  for (const GroupId group : lateness_log_.due(now)) {
    std::vector<blame::Straggler> late = lateness_.stragglers_of(group);
    if (!lateness_log_.say(group, !late.empty(), now)) continue;
    const std::string& name = graph_->groups()[group.value].name;
    if (late.empty()) {
      MUSTER_LOG(kInfo, "engine", "job {}: group {}: nobody comes late any more", spec_.name, name);
      continue;
    }
    const auto worst = std::max_element(late.begin(), late.end(),
                                        [](const auto& a, const auto& b) { return a.median < b.median; });
    worst->group_name = name;
    MUSTER_LOG(kWarning, "engine", "job {}: {}{}", spec_.name, blame::sentence_of(*worst),
               late.size() > 1 ? fmt::format("; and {} more do (`muster hang`)", late.size() - 1) : "");
  }
}

// Deadlines of a circle mostly pass together. The first verdict takes it apart, but who is in it is in it
// still, for the same reason.
bool Engine::is_in(const BrokenCircle& circle, const blame::Situation& now, std::size_t about) {
  if (now.now - circle.situation.now > kCircleRemembered) return false;
  const blame::Wait& wait = now.waits[about];
  return std::any_of(circle.report.circle.begin(), circle.report.circle.end(), [&](const blame::Link& link) {
    const blame::Wait& then = circle.situation.waits[link.wait];
    return then.group == wait.group && then.path == wait.path && then.lane == wait.lane &&
           then.number == wait.number && then.since == wait.since;
  });
}

void Engine::explain(scheduler::Cause& verdict, blame::Situation situation, std::span<const RankFacts> facts,
                     std::size_t about) {
  look_at_processes(situation, facts, *probe_, about, kLooksAtDeadlineMax);
  blame::Report report = blame::assess(situation, about);
  if (!report.circle.empty()) {
    broken_circle_ = BrokenCircle{situation, report};
  } else if (broken_circle_ && is_in(*broken_circle_, situation, about)) {
    situation = broken_circle_->situation;
    report = broken_circle_->report;
  }
  const std::string cause = blame::because(situation, report);
  if (!cause.empty()) verdict.text += "; " + cause;
  verdict.text = cut(std::move(verdict.text), kVerdictBytesMax);
  for (const blame::Culprit& culprit : report.culprits) {
    if (culprit.verdict != report.verdict) continue;
    verdict.culprit = static_cast<std::int32_t>(culprit.rank);
    break;
  }
  log_report(spec_.name, verdict.text + "\n" + blame::text_of(situation, report));
  deadline_report_ = DeadlineReport{situation.now, report_json(situation, report)};
  ++reports_;
}

// In the turn of the conductor, under the baton: beyond a few, what the verdict says by itself has to do, for
// others wait.
void Engine::overdue(Rank rank, std::uint32_t lane, scheduler::Cause& verdict) {
  if (std::exchange(explained_turn_, turn_) != turn_) explained_in_turn_ = 0;
  if (++explained_in_turn_ > kExplainedInTurnMax) {
    verdict.text += "; one of many: `muster hang` says why";
    return;
  }
  const std::vector<RankFacts> facts = rank_facts();
  blame::Situation all = situation(facts, turn_);
  if (const auto about = wait_on_lane(all, *graph_, rank, lane))
    explain(verdict, std::move(all), facts, *about);
}

// Sessions end on the conductor's thread, this one, so the facts stay good without the baton.
Json Engine::hang() {
  std::vector<RankFacts> facts;
  blame::Situation all;
  Json last;
  {
    const std::lock_guard lock(baton_);
    const Instant now = clock_.now();
    facts = rank_facts();
    look_for_stragglers(now);
    all = situation(facts, now);
    if (deadline_report_)
      last = {{"ago_ns", (now - deadline_report_->at).count()}, {"report", deadline_report_->report}};
  }
  look_at_processes(all, facts, *probe_, std::nullopt, kLooksOnDemandMax);
  Json result = report_json(all, blame::assess(all));
  result["latest_deadline"] = std::move(last);
  return result;
}

std::vector<RankFlights> Engine::all_flights() const {
  std::vector<RankFlights> all(spec_.world);
  for (std::uint32_t rank = 0; rank < spec_.world; ++rank) {
    all[rank].started = flight_log_.entries(Rank(rank));
    std::uint64_t lost = 0;
    if (board_) all[rank].run = board_->records().flights(Rank(rank), 0, &lost);
    all[rank].lost = lost > 0 || flight_log_.overwritten(Rank(rank));
  }
  return all;
}

Json Engine::flight() {
  std::vector<RankFlights> all;
  {
    const std::lock_guard lock(baton_);
    all = all_flights();
  }
  Json ranks = Json::object();
  std::size_t rank = 0;
  for (Json& dump : flight_dump(graph_->groups(), all, clock_.now()))
    ranks[std::to_string(rank++)] = std::move(dump);
  return {{"job", spec_.name}, {"world", spec_.world}, {"ranks", std::move(ranks)}};
}

// On the conductor's thread and without the baton: a file may be long in being written.
void Engine::write_reports() {
  Json report;
  {
    const std::lock_guard lock(baton_);
    if (reports_ == reports_seen_ || !deadline_report_) return;
    reports_seen_ = reports_;  // of several since the last look, the latest is written
    report = deadline_report_->report;
  }
  if (spec_.reports_directory.empty() || reports_written_ == kReportsWrittenMax) return;
  ++reports_written_;
  const std::string path =
      fmt::format("{}/{}-{:x}-{}", spec_.reports_directory, spec_.name, spec_.epoch, reports_written_);
  for (const Status& written :
       {write_file(path + ".hang.json", report), write_file(path + ".flight.json", flight())})
    if (!written.ok()) MUSTER_LOG(kWarning, "engine", "job {}: {}", spec_.name, written.message());
}

}  // namespace muster::engine
