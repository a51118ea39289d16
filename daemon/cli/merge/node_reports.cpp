#include "daemon/cli/merge/node_reports.hpp"

#include "api/base/words.hpp"
#include "daemon/control/fields.hpp"

#include <algorithm>

namespace muster::cli {
namespace {

constexpr std::size_t kAllBytesMax = std::size_t{1} << 30;

// Splits the texts, which lie end to end.
OrTrouble<std::vector<NodeReport>> reports_in(const DaemonAnswer& answer) {
  const auto unexpected = [](const std::string& what) {
    return tl::unexpected(Trouble{kFailed, "the daemon's answer is not as expected: " + what});
  };
  if (answer.descriptors.size() != 1) return unexpected("it has no reports");
  const auto all = control::read_descriptor(answer.descriptors.front(), kAllBytesMax);
  if (!all) return troubled(all.error());
  control::Fields fields("it");
  std::vector<NodeReport> reports;
  std::size_t at = 0;
  Code first = Code::kOk;
  for (const Json& node : fields.list(answer.result, "nodes")) {
    NodeReport& report = reports.emplace_back();
    report.node = fields.text(node, "node");
    report.ranks = fields.ranks(node, "ranks", std::numeric_limits<std::uint32_t>::max());
    if (control::Fields::has(node, "why")) {
      report.why = fields.text(node, "why", kAllBytesMax);
      const Json& status = control::Fields::at(node, "status");
      if (first == Code::kOk && status.is_number_integer() && is_known(status.get<muster_status_t>()))
        first = static_cast<Code>(status.get<muster_status_t>());
      if (report.why.empty()) fields.bad("why");
      continue;
    }
    const auto bytes = static_cast<std::size_t>(fields.number(node, "bytes", all->size() - at));
    report.text = all->substr(at, bytes);
    at += bytes;
  }
  if (reports.empty()) fields.bad("nodes");
  if (!fields.why().ok()) return unexpected(fields.why().message());
  if (std::all_of(reports.begin(), reports.end(), silent))
    return tl::unexpected(trouble_of(Status(first == Code::kOk ? Code::kInternal : first, reports[0].why)));
  return reports;
}

}  // namespace

OrTrouble<std::vector<NodeReport>> ask_reports(const DaemonAddress& address, const std::string& job,
                                               const std::string& kind, Attention* attention) {
  const Json command{
      {"command", "reports"}, {"job", job}, {"kind", kind}, {"wait_ns", (address.timeout / 2).count()}};
  const auto answer = ask(address, command, attention);
  if (!answer) return tl::unexpected(answer.error());
  return reports_in(*answer);
}

Json unanswered_json(const std::vector<NodeReport>& reports) {
  Json all = Json::array();
  for (const NodeReport& report : reports)
    if (silent(report)) all.push_back({{"node", report.node}, {"ranks", report.ranks}, {"why", report.why}});
  return all;
}

std::string unanswered_text(const std::string& job, const std::vector<NodeReport>& reports) {
  std::string lines;
  for (const NodeReport& report : reports)
    if (silent(report))
      lines += fmt::format("job {}: nothing is known of ranks {} on {}: {}\n", job, rank_list(report.ranks),
                           report.node, report.why);
  return lines;
}

}  // namespace muster::cli
