// Campaign: one run of all contenders, one program after the other, round after round, and its report.
#pragma once

#include "api/base/result.hpp"
#include "tests/bench/cells.hpp"
#include "tests/bench/contestants.hpp"
#include "tests/bench/report.hpp"

#include <string>
#include <vector>

namespace muster::bench {

struct Choice {
  std::vector<int> ranks = {2, 4, 8};
  std::vector<std::string> operations = all_names();
  std::vector<std::size_t> sizes;  // empty: those of kSizes, or small ones where `quick`
  std::vector<std::string> contenders = contender_names();
  int rounds = 3;     // of all contenders; each cell counts a contender's best
  std::string json;   // a file; empty: none
  std::string plots;  // a folder; empty: none
  bool quick = false;
};

// Owns    the report, and the folder of the run.
// Thread  one.
// Bound   one program at a time.
// Fails   kInternal at the end if a run of Muster's own ranks failed; a peer that is not there or fails
//         leaves its rows out, and the report says so.
class Campaign {
 public:
  explicit Campaign(Choice choice);
  ~Campaign();
  Campaign(const Campaign&) = delete;
  Campaign& operator=(const Campaign&) = delete;

  Status run();

 private:
  void run_all(const std::string& contender, int ranks, int round);
  Status run_one(const Way& way, int ranks, const std::vector<std::string>& operations);
  Cells cells(const std::string& path, const std::vector<std::string>& operations) const;
  std::vector<std::string> wanted(bool alone) const;
  void note_line();
  void measure_floor();
  void print() const;

  Choice choice_;
  nlohmann::json machine_;
  Places places_;
  Report report_;
  Status muster_;
  std::vector<double> lines_us_;  // what a line of the cache cost before each program
};

}  // namespace muster::bench
