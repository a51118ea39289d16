// The page that --html writes: losses and a timeline of the lanes in one file, with nothing from elsewhere.
// It is page.html, which CMake puts into the program, with the figures and drawings of one run. Its script
// zooms; without it the page shows the same drawings.
#pragma once

#include "api/examples/train_lm/report.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace train_lm {

// One step on one lane, as the trace has it.
struct LaneEvent {
  std::string name = {};   // "linear_forward", "all_gather"
  std::string lane = {};   // "compute"
  std::string group = {};  // of a collective
  std::int64_t bytes = 0;  // which a collective works on
  std::int32_t rank = 0;
  double begin_us = 0.0;
  double duration_us = 0.0;
};

// The complete events of a trace that muster_trace_end() wrote. Throws std::runtime_error if it is no such
// trace.
std::vector<LaneEvent> read_trace(std::string_view json);

struct PageContent {
  std::string mesh = {};
  std::string sample = {};  // generated text
  Figures figures = {};
  std::vector<LaneEvent> events = {};
  std::int32_t world = 1;  // ranks of the run; the page draws the lanes of the first and the last
};
std::string page_html(const PageContent& content);

}  // namespace train_lm
