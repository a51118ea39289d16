// Report: all rows of a run, as a table for a person and as JSON for a program.
#pragma once

#include "api/base/result.hpp"
#include "tests/bench/row.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace muster::bench {

// cpu, cores, kernel, and the load it already carried.
nlohmann::json describe_machine();
// Cores that this process may use.
int usable_cores();

// Owns    the rows.
// Thread  one.
// Bound   -
// Fails   take: kProtocol if a line is no row; write: kNoResource.
class Report {
 public:
  void add(Row row) { rows_.push_back(std::move(row)); }
  // Rows as rank programs print them, one a line; lines that open no object are other programs' words.
  Status take(std::string_view lines);
  // A line for each operation, size and number of ranks that Muster has run, beside the best peer and the
  // floor.
  std::string table() const;
  nlohmann::json to_json(nlohmann::json machine) const;
  Status write(const std::string& path, nlohmann::json machine) const;

  const std::vector<Row>& rows() const { return rows_; }

 private:
  const Row* best(const Row& like, bool floor) const;

  std::vector<Row> rows_;
};

}  // namespace muster::bench
