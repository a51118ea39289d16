// A report in words.
#include "api/base/blame/blame.hpp"
#include "api/base/words.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

namespace muster::blame {
namespace {

using Link = Report::Link;
using Diagnosis = Report::Diagnosis;

constexpr std::size_t kListedMax = 16;  // ranks, or waits, that get a line of their own

std::string seconds(Nanos span) {
  const double value = std::chrono::duration<double>(span).count();
  return value < 1 ? fmt::format("{:.0f} ms", value * 1000) : fmt::format("{:.1f} s", value);
}

const RankState& state_of(const Snapshot& snapshot, std::uint32_t rank) {
  static const RankState kNobody{};
  return rank < snapshot.ranks.size() ? snapshot.ranks[rank] : kNobody;
}

std::vector<std::uint32_t> missing_of(const Wait& wait) {
  std::vector<std::uint32_t> ranks;
  for (const Wait::Missing& missing : wait.missing) ranks.push_back(missing.rank);
  return ranks;
}

// The ranks in the operation. If no arrivals are recorded, `inside` lists them.
std::vector<std::uint32_t> here_of(const Wait& wait) {
  if (wait.arrived.empty()) return wait.inside;
  std::vector<std::uint32_t> ranks;
  for (const Wait::Arrived& arrived : wait.arrived) ranks.push_back(arrived.rank);
  return ranks;
}

// The ranks that take part, and of which the snapshot knows nothing.
std::vector<std::uint32_t> unseen_in(const Snapshot& snapshot, const Wait& wait) {
  std::vector<std::uint32_t> ranks;
  for (const std::uint32_t rank : wait.takes_part)
    if (!state_of(snapshot, rank).local) ranks.push_back(rank);
  return ranks;
}

std::string plural(const std::vector<std::uint32_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", rank_list(ranks));
}

std::string where_of(const Wait& wait) {
  return wait.path == Path::kDirect ? "run directly" : "lane " + wait.lane;
}

std::string operation_of(const Wait& wait) {
  std::string text = fmt::format("{} #{} ({})", wait.operation.name(), wait.number, where_of(wait));
  if (wait.operation.bytes > 0) text += "  " + bytes_text(wait.operation.bytes);
  if (!wait.operation.dtype.empty()) text += " " + wait.operation.dtype;
  if (!wait.operation.site.empty()) text += "  at " + wait.operation.site;
  return text;
}

const char* clause_of(Diagnosis diagnosis) {
  switch (diagnosis) {
    case Diagnosis::kDead:
      return "dead";
    case Diagnosis::kStopped:
      return "stopped by a signal";
    case Diagnosis::kFrozen:
      return "frozen with its cgroup";
    case Diagnosis::kNotAttached:
      return "not attached";
    case Diagnosis::kUnknown:
      return "on a node that does not answer";
    default:
      return "running, but not there";
  }
}

// Whether some members run an operation that others have started.
bool mixes_paths(const Snapshot& snapshot, const Report& report) {
  const auto path_of = [&](const Link& link) { return snapshot.waits[link.wait].path; };
  return std::any_of(report.circle.begin(), report.circle.end(),
                     [&](const Link& link) { return path_of(link) != path_of(report.circle.front()); });
}

std::vector<const Wait*> waits_in(const Snapshot& snapshot, const Report& report) {
  std::vector<const Wait*> waits;
  for (const Link& link : report.circle) waits.push_back(&snapshot.waits[link.wait]);
  return waits;
}

bool mixes_lanes(const std::vector<const Wait*>& waits) {
  return std::any_of(waits.begin(), waits.end(),
                     [&](const Wait* wait) { return wait->lane != waits.front()->lane; });
}

std::string circle_of(const Snapshot& snapshot, const Report& report) {
  const bool mixed = mixes_paths(snapshot, report);
  const bool lanes = mixes_lanes(waits_in(snapshot, report));
  std::string text;
  for (const Link& link : report.circle) {
    const Wait& wait = snapshot.waits[link.wait];
    const std::string how = mixed   ? wait.path == Path::kDirect ? ", run" : ", started"
                            : lanes ? ", lane " + wait.lane
                                    : "";
    text += fmt::format("rank {} ({}: {}{}) -> ", link.rank, wait.group_name, wait.operation.name(), how);
  }
  return text + fmt::format("rank {}", report.circle.front().rank);
}

// Members of one group that wait for each other in what is one operation but for its lane: "lane small at
// rank 0, lane allreduce at rank 1". Empty: the circle is another. Messages meet whatever their lanes are.
std::string lanes_of_one_operation(const Snapshot& snapshot, const Report& report) {
  std::vector<const Wait*> waits = waits_in(snapshot, report);
  std::sort(waits.begin(), waits.end(),
            [](const Wait* a, const Wait* b) { return here_of(*a) < here_of(*b); });
  const Wait::Operation& first = waits.front()->operation;
  if (first.tag) return {};
  std::string text;
  for (const Wait* wait : waits) {
    const Wait::Operation& operation = wait->operation;
    const bool same =
        wait->path == Path::kEngine && !first.common.empty() && operation.common == first.common;
    const bool again = std::any_of(waits.begin(), waits.end(), [&](const Wait* other) {
      return other != wait && other->lane == wait->lane;
    });
    if (!same || again) return {};
    text += fmt::format("{}lane {} at {}", text.empty() ? "" : ", ", wait->lane, plural(here_of(*wait)));
  }
  return text;
}

// Whether all parts that the circle waits for are submitted: then it is their order that is wrong.
bool is_order(const Report& report) {
  return std::none_of(report.circle.begin(), report.circle.end(),
                      [](const Link& link) { return link.stands.empty(); });
}

constexpr char kOfOrder[] = "start them in one order at all ranks, or each on a lane of its own";

void add_rank(const Snapshot& snapshot, std::uint32_t number, const std::string& reason, std::string* out) {
  const RankState& rank = state_of(snapshot, number);
  std::string line = rank.node.empty() ? "" : fmt::format("on {}: ", rank.node);
  if (!rank.unknown.empty())
    line += "unknown, because " + rank.unknown;
  else if (rank.attached)
    line += fmt::format("pid {}, process {}", rank.pid, process_state_name(rank.process));
  else
    line += rank.was_attached ? "not attached any more" : "not attached";
  if (!rank.where.empty()) line += " in " + rank.where;
  if (rank.heard) line += fmt::format("; last heard {} ago", seconds(snapshot.now - *rank.heard));
  if (rank.finished)
    line += fmt::format("; last op: {} #{} in {} done {} ago", rank.finished->label, rank.finished->number,
                        rank.finished->group, seconds(snapshot.now - rank.finished->at));
  if (!reason.empty()) line += "; its part waits for " + reason;
  *out += fmt::format("{:<9}{}\n", fmt::format("rank {}", number), line);
}

void add_wait(const Snapshot& snapshot, const Wait& wait, std::string* out) {
  *out += fmt::format("group    {} (id {}, {} ranks)   op {}\n", wait.group_name, wait.group, wait.members,
                      operation_of(wait));
  *out += fmt::format("waiting  {} for {}", plural(here_of(wait)), seconds(snapshot.now - wait.since));
  const std::vector<std::uint32_t> unseen = unseen_in(snapshot, wait);
  if (!wait.missing.empty())
    *out += "   missing  " + plural(missing_of(wait)) + "\n";
  else if (unseen.empty())
    *out += "   all have come\n";
  else
    *out += fmt::format("   all of this node have come; {} on other nodes\n",
                        plural(unseen) + (unseen.size() == 1 ? " is" : " are"));
  if (!wait.awaiting.empty())
    *out += fmt::format("done     {}, waiting until {} read what {} gave\n", plural(wait.awaiting),
                        plural(wait.inside) + (wait.inside.size() == 1 ? " has" : " have"),
                        wait.awaiting.size() == 1 ? "it" : "they");
  if (!wait.difference.empty()) *out += "differ   on " + wait.difference + "\n";
}

void add_circle(const Snapshot& snapshot, const Report& report, std::string* out) {
  const char* head = "circle";
  for (const Link& link : report.circle) {
    const Wait& wait = snapshot.waits[link.wait];
    const std::string part = !link.stands.empty() ? ", whose part is submitted, at " + link.stands
                             : link.certain       ? ""
                                                  : ", which has not submitted its part";
    *out += fmt::format("{:<9}rank {} is in group {}: {}, and waits for rank {}{}\n", head, link.rank,
                        wait.group_name, operation_of(wait), link.waits_for, part);
    head = "";
  }
  if (report.circle.empty()) return;
  if (report.diagnosis == Diagnosis::kDeadlock && is_order(report))
    *out += fmt::format("         these operations fit each other: {}\n", kOfOrder);
  if (report.diagnosis != Diagnosis::kMismatchPending) return;
  if (const std::string lanes = lanes_of_one_operation(snapshot, report); !lanes.empty())
    *out += fmt::format("         one operation is on several lanes: {}\n", lanes);
}

void add_others(const Snapshot& snapshot, const Report& report, std::string* out) {
  std::size_t listed = 0;
  for (std::size_t w = 0; w < snapshot.waits.size(); ++w) {
    const bool in_circle = std::any_of(report.circle.begin(), report.circle.end(),
                                       [&](const Link& link) { return link.wait == w; });
    if (report.wait == w || in_circle) continue;
    const Wait& wait = snapshot.waits[w];
    if (++listed > kListedMax) continue;
    *out += fmt::format("also     {} in {}: {} for {}{}\n", operation_of(wait), wait.group_name,
                        plural(here_of(wait)), seconds(snapshot.now - wait.since),
                        wait.missing.empty() ? ", running" : ", missing " + plural(missing_of(wait)));
  }
  if (listed > kListedMax) *out += fmt::format("also     {} more operations\n", listed - kListedMax);
}

// Stragglers are listed apart from the diagnosis, because nothing fails because of them.
void add_stragglers(const Snapshot& snapshot, std::string* out) {
  const std::size_t listed = std::min(snapshot.stragglers.size(), kListedMax);
  for (std::size_t i = 0; i < listed; ++i)
    *out += fmt::format("late     {}\n", sentence_of(snapshot.stragglers[i]));
  if (snapshot.stragglers.size() > listed)
    *out += fmt::format("late     {} more\n", snapshot.stragglers.size() - listed);
}

void add_silent(const Snapshot& snapshot, std::string* out) {
  for (const Snapshot::SilentNode& silent : snapshot.silent)
    *out += fmt::format("silent   {}: {}; unknown: {}\n", silent.node, silent.why, plural(silent.ranks));
}

void add_lines(const char* head, const std::vector<std::string>& lines, std::string* out) {
  for (const std::string& line : lines) {
    *out += fmt::format("{:<9}{}\n", head, line);
    head = "";
  }
}

}  // namespace

std::string Wait::Operation::name() const {
  return tag ? fmt::format("{} of tag {}", label, *tag) : label;
}

std::string because(const Snapshot& snapshot, const Report& report) {
  if (report.diagnosis == Diagnosis::kDeadlock)
    return fmt::format("circular wait: {}{}{}", circle_of(snapshot, report), is_order(report) ? "; " : "",
                       is_order(report) ? kOfOrder : "");
  const bool mismatched = report.diagnosis == Diagnosis::kMismatchPending && !report.circle.empty();
  if (const std::string lanes = mismatched ? lanes_of_one_operation(snapshot, report) : ""; !lanes.empty())
    return fmt::format("one operation is on several lanes: {}; start it on the same lane at all ranks",
                       lanes);
  if (mismatched)
    return (mixes_paths(snapshot, report) ? "what is run and what is started do not meet: "
                                          : "its members are in different operations: ") +
           circle_of(snapshot, report);
  if (report.diagnosis == Diagnosis::kMismatchPending)
    return "those who have come differ on " + snapshot.waits[*report.wait].difference;
  std::string text;
  // One clause for each state, the worst first.
  for (const Diagnosis diagnosis : {Diagnosis::kDead, Diagnosis::kStopped, Diagnosis::kFrozen,
                                    Diagnosis::kNotAttached, Diagnosis::kNotJoined, Diagnosis::kUnknown}) {
    std::vector<std::uint32_t> ranks;
    std::string reason;
    for (const Report::Culprit& culprit : report.culprits) {
      if (culprit.diagnosis != diagnosis) continue;
      ranks.push_back(culprit.rank);
      if (reason.empty()) reason = culprit.reason;
    }
    if (ranks.empty()) continue;
    if (!text.empty()) text += "; ";
    text += fmt::format("{} {} {}", plural(ranks), ranks.size() == 1 ? "is" : "are", clause_of(diagnosis));
    if (diagnosis == Diagnosis::kNotJoined && !reason.empty()) text += " (waits for " + reason + ")";
    const RankState& first = state_of(snapshot, ranks.front());
    if (ranks.size() == 1 && first.pid > 0 && first.attached)
      text += fmt::format(" (pid {}{})", first.pid, first.node.empty() ? std::string() : " on " + first.node);
  }
  return text;
}

std::string text_of(const Snapshot& snapshot, const Report& report) {
  std::string out = fmt::format("VERDICT  {}   confidence {}\n", diagnosis_name(report.diagnosis),
                                confidence_name(report.confidence));
  if (report.diagnosis == Diagnosis::kHealthy) {
    out += snapshot.waits.empty()
               ? std::string("         no operation waits for anybody\n")
               : fmt::format("         operations in flight: {}, none for longer than {}\n",
                             snapshot.waits.size(), seconds(snapshot.patience));
  }
  if (report.diagnosis >= Diagnosis::kFrozen && !report.wait)
    out += fmt::format("         {}; no operation has waited for that long\n", because(snapshot, report));
  if (report.diagnosis == Diagnosis::kUnknown && !report.wait)
    out += "         of what is known, no operation waits for long\n";
  if (report.wait) add_wait(snapshot, snapshot.waits[*report.wait], &out);
  add_circle(snapshot, report, &out);
  for (std::size_t i = 0; i < report.culprits.size() && i < kListedMax; ++i)
    add_rank(snapshot, report.culprits[i].rank, report.culprits[i].reason, &out);
  if (report.culprits.size() > kListedMax)
    out += fmt::format("         and {} more ranks\n", report.culprits.size() - kListedMax);
  for (std::size_t i = 0; i < report.circle.size() && i < kListedMax; ++i)
    add_rank(snapshot, report.circle[i].rank, "", &out);
  add_others(snapshot, report, &out);
  add_stragglers(snapshot, &out);
  add_silent(snapshot, &out);
  std::string ruled_out;
  for (const std::string& fact : report.ruled_out) ruled_out += (ruled_out.empty() ? "" : " · ") + fact;
  if (!ruled_out.empty()) out += "ruled out  " + ruled_out + "\n";
  add_lines("next", report.next, &out);
  return out;
}

}  // namespace muster::blame
