// The page that --html writes: losses and a timeline of the lanes, in one file that loads no other. CMake
// puts page.html into the program, which fills in the figures and drawings of one run. The script only zooms:
// the page shows the same drawings without it.
#pragma once

#include "api/examples/train_lm/report.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace train_lm {

// One step on one lane, from the trace.
struct LaneEvent {
  std::string name = {};   // "linear_forward", "all_gather"
  std::string lane = {};   // "compute"
  std::string group = {};  // of a collective
  std::string site = {};   // of a collective: name of its unit, or where the program makes it
  std::int64_t bytes = 0;  // of a collective's data
  std::int32_t rank = 0;
  std::int64_t step = 0;  // of the set of units, from 1 on; 0: none
  double begin_us = 0.0;
  double duration_us = 0.0;
};

// The complete events of a trace from muster_trace_end(). Throws std::runtime_error for anything else.
std::vector<LaneEvent> read_trace(std::string_view json);

struct PageContent {
  std::string mesh = {};
  std::string sample = {};  // generated text
  Figures figures = {};
  std::vector<LaneEvent> events = {};
  std::int32_t world = 1;         // ranks of the run; the page draws the lanes of the first and the last
  std::int64_t steps_before = 0;  // of earlier runs, which this one has resumed
};
std::string page_html(const PageContent& content);

}  // namespace train_lm
