#include "daemon/engine/observe/reports.hpp"

#include "api/base/log.hpp"
#include "api/base/named_path.hpp"
#include "api/shm/endpoint.hpp"
#include "daemon/control/texts/hang_report.hpp"
#include "daemon/control/texts/node_snapshot.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

namespace muster::engine {
namespace {

using control::Json;

constexpr std::size_t kCauseBytesMax = shm::kFailureTextBytes - 1;
// A look reads a few small files, and at a deadline the engine's lock is held meanwhile.
constexpr std::size_t kLooksAtDeadlineMax = 64;
constexpr std::size_t kLooksOnDemandMax = 4096;
constexpr Nanos kCircleRemembered = std::chrono::seconds(1);
constexpr std::uint32_t kExplainedInTurnMax = 16;  // a look at a process reads up to five files
// A job that fails over and over must not fill a disk.
constexpr std::uint32_t kReportsWrittenMax = 16;
constexpr Nanos kTimeoutMax = std::chrono::seconds(1);

// Cuts at a character's border.
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
  const int error = errno;
  if (const std::string fault = fault_of_new_file(path); !fault.empty())
    return failure(Code::kNoResource, "log.reports_directory: {}", fault);
  return failure(Code::kNoResource, "{} cannot be written: {}; see to log.reports_directory", path,
                 std::strerror(error));
}

void log_report(const std::string& job, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) MUSTER_LOG(kWarning, "engine", "job {}: {}", job, line);
}

}  // namespace

struct Reports::DeadlineReport {
  Instant at{0};
  Json report;
};

Reports::Reports(const control::JobSpec& spec, const Clock& clock, EngineLock& lock,
                 const ProcessProbe& probe, const scheduler::Graph& graph, const RankSlots& slots,
                 Metrics& metrics, const DirectPages* direct_pages)
    : spec_(spec),
      clock_(clock),
      lock_(lock),
      probe_(probe),
      graph_(graph),
      slots_(slots),
      metrics_(metrics),
      direct_pages_(direct_pages) {}

Reports::~Reports() = default;

RankTable<RankFacts> Reports::rank_facts() const {
  return {graph_.lanes().world(), [this](Rank rank) {
            const RankSlot& slot = slots_.of(rank);
            return RankFacts{slot.session.get(), slot.process, slot.heard_at, metrics_.finished(rank),
                             slot.attachments > 0};
          }};
}

Evidence Reports::evidence(const RankTable<RankFacts>& facts, Instant now) const {
  const Nanos patience = std::min(kTimeoutMax, spec_.deadline / 2);
  return {spec_.name,
          now,
          patience,
          graph_,
          direct_pages_,
          facts,
          &metrics_.stragglers(),
          {spec_.endpoint, spec_.reports_directory, spec_.ends_with_run}};
}

blame::Snapshot Reports::snapshot(const RankTable<RankFacts>& facts, Instant now) const {
  return snapshot_of(evidence(facts, now));
}

// Deadlines of a circle mostly pass together. The first one breaks the circle; the other ranks in it still
// get the circle as their reason.
bool Reports::is_in(const BrokenCircle& circle, const blame::Snapshot& now, std::size_t about) {
  if (now.now - circle.snapshot.now > kCircleRemembered) return false;
  const blame::Wait& wait = now.waits[about];
  return std::any_of(circle.report.circle.begin(), circle.report.circle.end(),
                     [&](const blame::Report::Link& link) {
                       const blame::Wait& then = circle.snapshot.waits[link.wait];
                       return then.group == wait.group && then.path == wait.path && then.lane == wait.lane &&
                              then.number == wait.number && then.since == wait.since;
                     });
}

void Reports::explain(scheduler::Cause& cause, blame::Snapshot snapshot, const RankTable<RankFacts>& facts,
                      std::size_t about) {
  look_at_processes(snapshot, facts, probe_, about, kLooksAtDeadlineMax);
  blame::Report report = blame::assess(snapshot, about);
  if (!report.circle.empty()) {
    broken_circle_ = BrokenCircle{snapshot, report};
  } else if (broken_circle_ && is_in(*broken_circle_, snapshot, about)) {
    snapshot = broken_circle_->snapshot;
    report = broken_circle_->report;
  }
  const std::string because = blame::because(snapshot, report);
  if (!because.empty()) cause.text += "; " + because;
  cause.text = cut(std::move(cause.text), kCauseBytesMax);
  for (const blame::Report::Culprit& culprit : report.culprits) {
    if (culprit.diagnosis != report.diagnosis) continue;
    cause.culprit = static_cast<std::int32_t>(culprit.rank);
    break;
  }
  log_report(spec_.name, cause.text + "\n" + blame::text_of(snapshot, report));
  latest_ =
      std::make_unique<DeadlineReport>(DeadlineReport{snapshot.now, control::report_json(snapshot, report)});
  ++deadlines_;
}

// Other nodes pass the text on, and they may have the daemon at another place.
std::string Reports::one_of_many() const {
  const bool alone = spec_.world.nodes().size() < 2;
  return fmt::format("; many deadlines have passed at once: `muster hang{} --job {}` says who waits for whom",
                     alone ? shm::endpoint_option(spec_.endpoint) : "", spec_.name);
}

// Under the engine's lock, while others wait: beyond kExplainedInTurnMax the cause gets no explanation.
void Reports::overdue(Rank rank, std::uint32_t lane, Instant turn, scheduler::Cause& cause) {
  if (std::exchange(explained_turn_, turn) != turn) explained_in_turn_ = 0;
  if (++explained_in_turn_ > kExplainedInTurnMax) {
    const std::string who = one_of_many();
    cause.text = cut(std::move(cause.text), kCauseBytesMax - who.size()) + who;
    return;
  }
  const RankTable<RankFacts> facts = rank_facts();
  blame::Snapshot all = snapshot(facts, turn);
  if (const auto about = wait_on_lane(all, graph_, rank, lane)) explain(cause, std::move(all), facts, *about);
}

void Reports::overdue(Rank rank, GroupId group, scheduler::Cause& cause) {
  const RankTable<RankFacts> facts = rank_facts();
  blame::Snapshot all = snapshot(facts, clock_.now());
  if (const auto about = wait_run_by(all, group, rank.value)) explain(cause, std::move(all), facts, *about);
}

// Sessions end on the conductor's thread, which is this one, so the facts stay valid without the lock.
blame::Snapshot Reports::look(Reader reader, Json* latest_deadline) {
  RankTable<RankFacts> facts(graph_.lanes().world());
  blame::Snapshot all;
  {
    const std::lock_guard lock(lock_);
    const Instant now = clock_.now();
    facts = rank_facts();
    metrics_.look_for_stragglers(now);
    all = snapshot(facts, now);
    if (reader == Reader::kSupervisor) add_for_merge(evidence(facts, now), all);
    if (latest_) *latest_deadline = {{"ago_ns", (now - latest_->at).count()}, {"report", latest_->report}};
  }
  look_at_processes(all, facts, probe_, std::nullopt, kLooksOnDemandMax);
  return all;
}

Json Reports::hang() {
  Json last;
  const blame::Snapshot all = look(Reader::kPeople, &last);
  Json result = control::report_json(all, blame::assess(all));
  result["latest_deadline"] = std::move(last);
  return result;
}

Json Reports::snapshot() {
  Json last;
  Json result = control::snapshot_json(look(Reader::kSupervisor, &last));
  result["latest_deadline"] = std::move(last);
  return result;
}

RankTable<RankFlights> Reports::all_flights() const {
  return {graph_.lanes().world(), [this](Rank rank) {
            RankFlights flights;
            flights.started = metrics_.flights().entries(rank);
            std::uint64_t lost = 0;
            if (direct_pages_ != nullptr) flights.run = direct_pages_->records().flights(rank, 0, &lost);
            flights.lost = lost > 0 || metrics_.flights().overwritten(rank);
            return flights;
          }};
}

Json Reports::flight() const {
  RankTable<RankFlights> all(graph_.lanes().world());
  {
    const std::lock_guard lock(lock_);
    all = all_flights();
  }
  Json ranks = Json::object();
  std::uint32_t local = 0;
  for (Json& dump : flight_dump(graph_.groups(), graph_.lane_names(), all, clock_.now()))
    ranks[std::to_string(all.world().rank_of(LocalRank(local++)).value)] = std::move(dump);
  return {{"job", spec_.name}, {"world", spec_.world.size()}, {"ranks", std::move(ranks)}};
}

// On the conductor's thread and without the lock, because writing a file may take long.
void Reports::write() {
  Json report;
  {
    const std::lock_guard lock(lock_);
    if (deadlines_ == deadlines_seen_ || !latest_) return;
    deadlines_seen_ = deadlines_;  // of several since the last look, the latest is written
    report = latest_->report;
  }
  if (spec_.reports_directory.empty() || written_ == kReportsWrittenMax) return;
  const std::string path =
      fmt::format("{}/{}-{:x}-{}", spec_.reports_directory, spec_.name, spec_.epoch, written_ + 1);
  Status written = write_file(path + ".hang.json", report);
  if (written.ok()) written = write_file(path + ".flight.json", flight());
  if (written.ok())
    ++written_;
  else
    MUSTER_LOG(kWarning, "engine", "job {}: {}", spec_.name, written.message());
}

}  // namespace muster::engine
