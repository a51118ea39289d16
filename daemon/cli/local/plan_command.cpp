#include "daemon/cli/local/plan_command.hpp"

#include "api/base/collective/path.hpp"
#include "api/base/dtype.hpp"
#include "api/base/nodes/choice.hpp"
#include "api/base/spelling.hpp"
#include "api/shm/endpoint.hpp"
#include "daemon/cli/local/numbered.hpp"
#include "daemon/config/cluster.hpp"
#include "daemon/config/load.hpp"
#include "daemon/config/table.hpp"
#include "daemon/control/job.hpp"
#include "daemon/control/node_costs.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace muster::cli {
namespace {

constexpr std::uint64_t kTableBytes[] = {8,        1 << 10, 8 << 10,  16 << 10,
                                         64 << 10, 1 << 20, 16 << 20, 256 << 20};

// "all_reduce, all_gather and broadcast"
std::string those_that_share() {
  std::vector<std::string_view> names;
  for (const OperationRow& row : kOperationRows)
    if (row.same_for_all) names.emplace_back(row.name);
  const std::string_view last = names.back();
  names.pop_back();
  return fmt::format("{} and {}", fmt::join(names, ", "), last);
}

OrTrouble<Collective> collective_of(const PlanQuestion& question) {
  const auto op =
      numbered(question.op, kOperations, op_name, fmt::format("'{}' is no collective", question.op));
  if (!op) return tl::unexpected(op.error());
  const auto dtype = dtype_named(question.dtype);
  if (!dtype) return tl::unexpected(dtype.error());
  if (!has_data(*op) && question.sized)
    return usage(fmt::format("a {} has no data; leave --count and --dtype out", question.op));
  if (question.shared && !may_share_target(*op))
    return usage(fmt::format("the target of {} cannot be node-shared; those of {} can", question.op,
                             those_that_share()));
  Collective c;
  c.shared_memory = question.shared ? 1 : 0;
  c.op = *op;
  c.dtype = *dtype;
  c.redop = has_reduction(*op) ? MUSTER_SUM : 0;
  c.count = question.count < 0 ? 0 : static_cast<std::uint64_t>(question.count);
  return c;
}

Json choice_of(const Collective& collective, std::int64_t ranks, const Machine& machine) {
  const Choice choice = choose(collective, static_cast<std::int32_t>(ranks), machine);
  return {{"count", collective.count},
          {"bytes", collective.count * dtype_bytes(collective.dtype)},
          {"path", path_name(choice.path)},
          {"algorithm", row_of(choice.algorithm).name},
          {"predicted_us", choice.predicted_ns / 1000.0},
          {"why", choice.why}};
}

// Between nodes the engine carries it out, in chunks; this is the choice for all of them together.
Json choice_between_nodes(const Collective& c, const PlanQuestion& question, const LinkCosts& link) {
  using namespace transport::span;
  const auto nodes = static_cast<std::uint32_t>(question.nodes);
  const auto ranks = static_cast<std::uint32_t>(question.ranks);
  const std::size_t element = dtype_bytes(c.dtype);
  Json choice{{"count", c.count}, {"bytes", c.count * element}, {"path", "nodes"}};
  if (is_pairwise(c.op) || is_transfer(c.op) || !has_data(c.op)) {
    choice["algorithm"] = has_data(c.op) ? "streams" : "match requests";
    choice["predicted_us"] = nullptr;
    choice["why"] = has_data(c.op) ? "one stream for each pair of nodes" : "each node hears of each other";
    return choice;
  }
  transport::Span span;
  span.nodes.clear();
  for (std::uint32_t node = 0; node < nodes; ++node) span.nodes.emplace_back(node);
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    span.node_of.push_back(static_cast<std::uint32_t>(std::uint64_t{rank} * nodes / ranks));
  const NodeRow::Chunk all = NodeRow(c, span).chunk(0, 1);
  const std::uint32_t rows = has_reduction(c.op) && !combines(c, false) ? (ranks + nodes - 1) / nodes : 0;
  const NodeAlgorithm algorithm = choose_algorithm(c.op, all, rows, element, 0, link);
  const Schedule schedule = schedule_of(c.op, algorithm, nodes, 0, 0);
  choice["algorithm"] = name_of(algorithm);
  choice["predicted_us"] = transport::span::estimate(schedule, all, std::max(rows, 1u), element, link) / 1000;
  choice["why"] = fmt::format("{} bytes sent by node 0 in {} round{}{}",
                              bytes_sent(schedule, all, std::max(rows, 1u), element), schedule.size(),
                              schedule.size() == 1 ? "" : "s", rows > 1 ? ", contributions apart" : "");
  return choice;
}

// The placements of the ranks on nodes that give a sum equal bits (decision D14): "every" or "one"; ""
// without a reduction. Integers are exact, but for a mean; the order of f32 and f64 sums decides their last
// bits.
std::string_view equal_bits(const Collective& c, std::int64_t nodes) {
  if (!has_reduction(c.op)) return "";
  const bool inexact = c.dtype == MUSTER_F32 || c.dtype == MUSTER_F64;
  const bool by_order = inexact && c.redop != MUSTER_MIN && c.redop != MUSTER_MAX;
  return nodes > 1 && by_order && transport::span::combines(c, false) ? "one" : "every";
}

std::string bits_text(const std::string& equal_bits) {
  if (equal_bits.empty()) return "";
  if (equal_bits == "every")
    return "equal inputs give equal bits at every rank, on every path, wherever the ranks are\n";
  return "equal inputs give equal bits at every rank and in every run, as long as the ranks stay on their "
         "nodes; "
         "wherever they are in a job with `reproducible: true`\n";
}

std::string plan_text(const Json& plan, std::size_t columns) {
  std::string out = fmt::format(
      "{} of {} over {} ranks{}{}; {} ranks of the job on {} cores; costs of the node: {}\n",
      plan.at("op").get<std::string>(), plan.at("dtype").get<std::string>(),
      plan.at("ranks").get<std::int64_t>(), plan.at("shared").get<bool>() ? " into a node-shared buffer" : "",
      plan.at("nodes").get<std::int64_t>() > 1
          ? fmt::format(" on {} nodes", plan.at("nodes").get<std::int64_t>())
          : "",
      plan.at("local_ranks").get<std::int64_t>(), plan.at("cores").get<std::int64_t>(),
      plan.at("costs_from").get<std::string>());
  out += bits_text(plan.at("equal_bits").get<std::string>()) + "\n";
  std::vector<config::Cells> rows;
  for (const Json& c : plan.at("choices"))
    rows.push_back(
        {fmt::format("{}", c.at("bytes").get<std::uint64_t>()), c.at("path").get<std::string>(),
         c.at("algorithm").get<std::string>(),
         c.at("predicted_us").is_null() ? "-" : fmt::format("{:.2f}", c.at("predicted_us").get<double>()),
         c.at("why").get<std::string>()});
  return out + config::table({"BYTES", "PATH", "ALGORITHM", "PREDICTED US", "WHY"}, rows, {columns, {}});
}

OrTrouble<LinkCosts> link_of(const PlanQuestion& question) {
  if (question.config.empty()) return LinkCosts{};
  if (question.nodes < 2) return usage("--config says what links between nodes cost; give --nodes too");
  auto source = config::load_file(question.config, config::Ownership::kAny);
  if (!source) return usage("--config " + source.error().message());
  const auto cluster = config::parse_cluster(*std::move(source));
  if (!cluster) return usage(cluster.error().text());
  return cluster->link;
}

// The daemon's costs, as it has measured them or as they were set; nothing if there is no daemon.
OrTrouble<std::optional<NodeCosts>> costs_of(const DaemonAddress& daemon) {
  const auto answer = ask(daemon, {{"command", "costs"}});
  if (!answer && answer.error().exit_code == kUnreachable) return std::nullopt;
  if (!answer) return tl::unexpected(answer.error());
  const auto costs = control::costs_from_json(answer->result.value("costs", Json()));
  if (!costs) return troubled(costs.error());
  return *costs;
}

OrTrouble<Json> explained(const PlanQuestion& question, const DaemonAddress& daemon) {
  auto collective = collective_of(question);
  if (!collective) return tl::unexpected(collective.error());
  const std::int64_t world = question.world == 0 ? question.ranks : question.world;
  if (world < question.ranks)
    return usage(fmt::format("--world {} is less than the {} ranks of the group", world, question.ranks));
  if (question.nodes > question.ranks)
    return usage(
        fmt::format("--nodes {} is more than the {} ranks of the group", question.nodes, question.ranks));
  const auto link = link_of(question);
  if (!link) return tl::unexpected(link.error());
  const auto own_cores = static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  const std::int64_t cores = question.cores == 0 ? own_cores : question.cores;
  const auto known = costs_of(daemon);
  if (!known) return tl::unexpected(known.error());
  const NodeCosts costs = known->value_or(NodeCosts{});
  const Machine machine{static_cast<std::uint32_t>(cores), static_cast<std::uint32_t>(world), true, costs};
  Json choices = Json::array();
  for (const std::uint64_t bytes : kTableBytes) {
    if (question.count < 0 && has_data(collective->op))
      collective->count = std::max<std::uint64_t>(1, bytes / dtype_bytes(collective->dtype));
    choices.push_back(question.nodes > 1 ? choice_between_nodes(*collective, question, *link)
                                         : choice_of(*collective, question.ranks, machine));
    if (question.count >= 0 || !has_data(collective->op)) break;
  }
  return Json{{"op", op_name(collective->op)},
              {"dtype", dtype_name(collective->dtype)},
              {"ranks", question.ranks},
              {"shared", question.shared},
              {"nodes", question.nodes},
              {"equal_bits", equal_bits(*collective, question.nodes)},
              {"local_ranks", world},
              {"cores", cores},
              {"costs", control::to_json(costs)},
              {"costs_from", *known ? shm::directory_of(daemon.endpoint) : "defaults"},
              {"link", {{"trip_ns", link->trip_ns}, {"bytes_per_us", link->bytes_per_us}}},
              {"choices", choices}};
}

}  // namespace

int run_plan_explain(const PlanQuestion& question, const DaemonAddress& daemon, Output output) {
  const auto plan = explained(question, daemon);
  if (!plan) return complain(plan.error());
  return output == Output::kJson ? print_json(*plan) : print_text(plan_text(*plan, config::screen_columns()));
}

int run_plan_costs(Output output) {
  const NodeCosts costs = control::NodeCostBook(NodeCosts{0, 0, 0, 0}, "").get();
  if (output == Output::kJson) return print_json({{"costs", control::to_json(costs)}});
  constexpr std::uint64_t kPerSecond = 1'000'000;  // microseconds
  return print_text(fmt::format(
      "costs:\n  meeting: {}ns\n  turn: {}ns\n  cached_rate: {}B\n  memory_rate: {}B\n", costs.meeting_ns,
      costs.turn_ns, costs.cached_bytes_per_us * kPerSecond, costs.memory_bytes_per_us * kPerSecond));
}

}  // namespace muster::cli
