#include "tests/bench/contract.hpp"

#include "tests/bench/operation.hpp"

#include <algorithm>
#include <functional>
#include <optional>

#include <fmt/format.h>

namespace muster::bench {
namespace {

constexpr std::size_t kSmallMax = std::size_t{1} << 10;
constexpr std::size_t kLargeMin = std::size_t{64} << 10;
constexpr double kBarrierTimes = 1.25;  // what counts as the time of a barrier

using Names = std::vector<std::string>;

bool holds(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string cell_text(const Cell& cell) {
  const std::string size = cell.bytes == 0 ? "" : " " + size_text(cell.bytes);
  return fmt::format("{}{}, {} rank{}", cell.operation, size, cell.ranks, cell.ranks == 1 ? "" : "s");
}

const Row* row_of(const Report& report, const Cell& cell, const char* path) {
  for (const Row& row : report.rows())
    if (row.peer == "muster" && row.path == path && cell_of(row) == cell) return &row;
  return nullptr;
}

// Takes what was found in a cell; `high` is good or bad.
class Tally {
 public:
  Tally(std::string what, std::string bound, double limit, bool high)
      : promise_{std::move(what), std::move(bound), 0, 0, 0.0, 0.0, {}}, limit_(limit), high_(high) {}
  void take(double value, const std::string& where) {
    const bool worse = high_ ? value < promise_.worst : value > promise_.worst;
    const bool better = high_ ? value > promise_.best : value < promise_.best;
    if (promise_.cells == 0 || worse) {
      promise_.worst = value;
      promise_.worst_cell = where;
    }
    if (promise_.cells == 0 || better) promise_.best = value;
    ++promise_.cells;
    promise_.kept += (high_ ? value >= limit_ : value <= limit_) ? 1 : 0;
  }
  Promise promise() && { return std::move(promise_); }

 private:
  Promise promise_;
  double limit_;
  bool high_;
};

using Wanted = std::function<bool(const Cell&)>;
using Found = std::function<std::optional<double>(const Row&)>;

Promise over(const Report& report, Tally tally, const char* path, const Wanted& wanted, const Found& found) {
  for (const Row& row : report.rows()) {
    if (row.peer != "muster" || row.path != path || !wanted(cell_of(row))) continue;
    if (const auto value = found(row)) tally.take(*value, cell_text(cell_of(row)));
  }
  return std::move(tally).promise();
}

// Where 8 ranks hold as much each as 4 do: a vector that is cut is twice as long for them.
Cell half_of(const Cell& eight) {
  static const Names kWhole = {"barrier", "all_reduce", "broadcast", "reduce", "send_recv", "halo"};
  const bool whole = holds(kWhole, eight.operation) || eight.bytes == 0;
  // The smallest of a cut vector is one element for each rank.
  return {eight.operation, whole ? eight.bytes : eight.bytes / 2, 4};
}

}  // namespace

std::vector<Promise> promises_of(const Report& report) {
  static const Names kReducing = {"all_reduce", "reduce_scatter"};
  static const Names kSmall = {"all_reduce", "all_gather", "reduce_scatter", "barrier"};
  const Found time_us = [](const Row& row) { return row.median_us; };
  const Found ratio = [&](const Row& row) -> std::optional<double> {
    const Row* peer = report.best_peer(cell_of(row));
    return peer == nullptr ? std::nullopt : std::optional(peer->median_us / row.median_us);
  };
  const Found share = [&](const Row& row) -> std::optional<double> {
    const auto floor = report.floor(cell_of(row));
    return floor ? std::optional(100.0 * *floor / row.median_us) : std::nullopt;
  };
  const auto named = [](const char* name) { return [name](const Cell& c) { return c.operation == name; }; };
  const auto small = [&](int ranks) {
    return [ranks](const Cell& c) {
      return c.ranks == ranks && c.bytes <= kSmallMax && holds(kSmall, c.operation);
    };
  };
  const Wanted reducing = [](const Cell& c) {
    return c.ranks <= 4 && c.bytes >= kLargeMin && holds(kReducing, c.operation);
  };
  const Wanted gathering = [](const Cell& c) {
    return c.ranks <= 4 && c.bytes >= kLargeMin && c.operation == "all_gather";
  };
  const Found of_barrier = [&](const Row& row) -> std::optional<double> {
    const Row* barrier = row_of(report, {"barrier", 0, row.ranks}, "direct");
    return barrier == nullptr ? std::nullopt : std::optional(row.median_us / barrier->median_us);
  };
  const Found of_four = [&](const Row& row) -> std::optional<double> {
    const Row* four = row_of(report, half_of(cell_of(row)), "direct");
    return four == nullptr ? std::nullopt : std::optional(row.median_us / four->median_us);
  };
  const Wanted at_eight = [](const Cell& c) { return c.ranks == 8 && operation_named(c.operation); };
  const auto tally = [](const char* what, const char* bound, double limit, bool high) {
    return Tally(what, bound, limit, high);
  };
  std::vector<Promise> promises = {
      over(report, tally("submit", "< 0.1 µs", 0.1, false), "engine", named("submit"), time_us),
      over(report, tally("<= 1 KiB, 2 ranks", ">= 2 x peer", 2.0, true), "direct", small(2), ratio),
      over(report, tally("<= 1 KiB, 4 ranks", ">= 1.3 x peer", 1.3, true), "direct", small(4), ratio),
      over(report, tally("reducing, >= 64 KiB", ">= 4 x peer", 4.0, true), "direct", reducing, ratio),
      over(report, tally("reducing, >= 64 KiB", ">= 70 % of floor", 70.0, true), "direct", reducing, share),
      over(report, tally("all_gather, >= 64 KiB", ">= 1.3 x peer", 1.3, true), "direct", gathering, ratio),
      over(report, tally("all_gather, >= 64 KiB", ">= 70 % of floor", 70.0, true), "direct", gathering,
           share),
      over(report, tally("all_gather_shared", "<= 1.25 x barrier", kBarrierTimes, false), "direct",
           named("all_gather_shared"), of_barrier),
      over(report, tally("8 ranks, same bytes each", "<= 2.5 x 4 ranks", 2.5, false), "direct", at_eight,
           of_four),
  };
  Tally overlap("overlap, a core free", ">= 95 %", 95.0, true);
  for (const Figure& figure : report.figures())
    if (figure.peer == "muster" && figure.name == "overlap_free")
      overlap.take(figure.value, fmt::format("{} ranks", figure.ranks));
  promises.push_back(std::move(overlap).promise());
  promises.push_back(
      over(report, tally("a group of a mesh", "< 5 µs", 5.0, false), "engine", named("mesh_group"), time_us));
  promises.push_back(
      over(report, tally("attach", "< 1000 µs", 1000.0, false), "engine", named("attach"), time_us));
  return promises;
}

std::string contract_text(const Report& report) {
  std::string text;
  for (const Promise& p : promises_of(report)) {
    if (p.cells == 0) continue;
    text += fmt::format("{:<25} {:<18} {:>3} of {:>3}  {:>6} to {:>6}, worst: {}\n", p.what, p.bound, p.kept,
                        p.cells, figure_text(std::min(p.worst, p.best)),
                        figure_text(std::max(p.worst, p.best)), p.worst_cell);
  }
  return text.empty() ? text
                      : fmt::format("\n{:<25} {:<18} {:>10}  found\n", "target", "bound", "kept") + text;
}

}  // namespace muster::bench
