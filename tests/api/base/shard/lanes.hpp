// Lanes of operations over one memory. An operation starts when its lane is free and its waits are reached,
// and takes a random time. Until it ends, its input must stay in place, and no other operation may write it.
#pragma once

#include "tests/kernels/math/values.hpp"

#include <muster/muster.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace muster::shard::test {

// Cell i of a range holds base + i · kCellStep, so that each cell of each content is another number.
constexpr std::uint64_t kCellStep = 0x9E3779B97F4A7C15u;

struct Access {
  std::size_t first = 0;
  std::size_t count = 0;
  std::optional<std::uint64_t> before{};  // the base of what must lie there
  std::optional<std::uint64_t> after{};   // the base of what is written
};

// A single cell that an operation copies. If another number lies there, or comes there meanwhile, the
// operation writes rubbish: that is no fault if nobody reads it.
struct Glance {
  std::size_t cell = 0;
  std::uint64_t expected = 0;
};

class Lanes {
 public:
  explicit Lanes(std::uint64_t seed) : random_(seed) {}

  // Adds cells to the memory; returns the first.
  std::size_t add_cells(std::size_t count) {
    cells_.resize(cells_.size() + count);
    return cells_.size() - count;
  }

  muster_point submit(std::size_t lane, std::string name, std::span<const muster_point> waits,
                      std::vector<Access> accesses, std::optional<Glance> glance = std::nullopt) {
    std::vector<std::uint64_t>& ends = ends_[lane];
    std::uint64_t start = ends.empty() ? floor_ : std::max(floor_, ends.back());
    for (const muster_point point : waits) start = std::max(start, end_of(point));
    operations_.push_back({std::move(name), std::move(accesses), glance, start, start + duration()});
    ends.push_back(operations_.back().end);
    return ((lane + 1) << 48) | ends.size();
  }

  // Operations submitted from now on start after the end of all earlier ones.
  void wait_for_all() {
    for (const Operation& operation : operations_) floor_ = std::max(floor_, operation.end);
  }

  // Plays everything in the order of time. Returns the first fault; empty: there is none.
  std::string play() {
    std::vector<std::pair<std::uint64_t, std::size_t>> events;  // ends come before starts
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      events.emplace_back(2 * operations_[i].start + 1, i);
      events.emplace_back(2 * operations_[i].end, i);
    }
    std::sort(events.begin(), events.end());
    for (const auto& [time, index] : events)
      time % 2 == 1 ? start(operations_[index]) : end(operations_[index]);
    return fault_;
  }

 private:
  struct Operation {
    std::string name;
    std::vector<Access> accesses;
    std::optional<Glance> glance;
    std::uint64_t start = 0, end = 0;
    bool rubbish = false;
    std::uint64_t writes = 0;  // of the glanced cell, when it started
  };
  struct Cell {
    std::uint64_t value = 0;
    std::uint64_t writes = 0;  // that have started
    std::uint32_t readers = 0, writers = 0;
    const Operation* latest = nullptr;  // that wrote, or read
  };

  // Now and then a long one.
  std::uint64_t duration() {
    const std::uint64_t kind = random_.below(8);
    return 1 + random_.below(kind == 0 ? 1000 : kind < 4 ? 30 : 3);
  }

  std::uint64_t end_of(muster_point point) const {
    return point == MUSTER_POINT_NONE ? 0 : ends_.at((point >> 48) - 1).at((point & 0xFFFFFFFFFFFFu) - 1);
  }

  void report(const Operation& operation, const char* what, std::size_t cell) {
    if (!fault_.empty()) return;
    const Operation* other = cells_[cell].latest;
    fault_ = fmt::format(
        "{} [{}, {}) {} cell {}, last touched by {}", operation.name, operation.start, operation.end, what,
        cell,
        other == nullptr ? "nobody" : fmt::format("{} [{}, {})", other->name, other->start, other->end));
  }

  void expect(const Operation& operation, const Access& access) {
    for (std::size_t i = 0; access.before && i < access.count; ++i)
      if (cells_[access.first + i].value != *access.before + i * kCellStep)
        report(operation, "finds something else in", access.first + i);
  }

  void start(Operation& operation) {
    if (operation.glance) {
      const Cell& cell = cells_[operation.glance->cell];
      operation.rubbish = cell.writers > 0 || cell.value != operation.glance->expected;
      operation.writes = cell.writes;
    }
    for (const Access& access : operation.accesses) {
      expect(operation, access);
      for (std::size_t i = access.first; i < access.first + access.count; ++i) {
        Cell& cell = cells_[i];
        if (cell.writers > 0) report(operation, "starts while somebody writes", i);
        if (access.after && cell.readers > 0) report(operation, "writes while somebody reads", i);
        cell.latest = &operation;
        cell.readers += access.after ? 0 : 1;
        if (!access.after) continue;
        ++cell.writers;
        ++cell.writes;
        cell.value = kRubbish;
      }
    }
  }

  void end(Operation& operation) {
    if (operation.glance && cells_[operation.glance->cell].writes != operation.writes)
      operation.rubbish = true;
    for (const Access& access : operation.accesses) {
      if (!access.after) expect(operation, access);
      for (std::size_t i = 0; i < access.count; ++i) {
        Cell& cell = cells_[access.first + i];
        if (!access.after) {
          --cell.readers;
          continue;
        }
        --cell.writers;
        cell.value = operation.rubbish ? kRubbish : *access.after + i * kCellStep;
      }
    }
  }

  static constexpr std::uint64_t kRubbish = 0xBADBADBADBADBADBu;

  math::test::Random random_;
  std::vector<Cell> cells_;
  std::map<std::size_t, std::vector<std::uint64_t>> ends_;  // by lane
  std::vector<Operation> operations_;
  std::uint64_t floor_ = 0;
  std::string fault_;
};

}  // namespace muster::shard::test
