// Report: all that a run has found, as a table for a person and as JSON for a program.
#pragma once

#include "api/base/result.hpp"
#include "tests/bench/row.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace muster::bench {

// cpu, cores, kernel, and the load it already carried.
nlohmann::json describe_machine();
// Three digits that say something.
std::string figure_text(double value);
std::string size_text(std::size_t bytes);

// Owns    rows, figures, floors, and what was left out.
// Thread  one.
// Bound   -
// Fails   take: kProtocol if a line is no row; write: kNoResource.
class Report {
 public:
  // Lines as rank programs print them; those that open no object are other programs' words.
  Status take(std::string_view lines);
  // One more look at what is there already: the better median counts.
  void add(Row row);
  void set_floor(const Cell& cell, double microseconds) { floors_[cell] = microseconds; }
  void leave_out(std::string what);

  // For each cell what Muster needs, by each of its paths, beside the best peer and the floor; then the
  // figures, a line on each path as a whole, and what is missing.
  std::string text() const;
  nlohmann::json to_json(nlohmann::json machine) const;
  Status write(const std::string& path, nlohmann::json machine) const;

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<Figure>& figures() const { return figures_; }
  std::vector<Cell> cells() const;  // in the order of the table, each once
  // The fastest row of the cell that is not Muster's, or null.
  const Row* best_peer(const Cell& cell) const;
  std::optional<double> floor(const Cell& cell) const;

 private:
  void take_line(const nlohmann::json& line);
  std::string table() const;
  std::string figure_lines() const;
  std::string summary() const;
  std::string summary_of(const std::string& path) const;

  std::vector<Row> rows_;
  std::vector<Figure> figures_;
  std::map<Cell, double> floors_;
  std::map<std::string, std::string> versions_;
  std::vector<std::string> left_out_;
};

}  // namespace muster::bench
