// The page that --html writes: losses and a timeline of the lanes in one file, as inline SVG, with no script
// and nothing from elsewhere.
#pragma once

#include "api/examples/train_lm/report.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace train_lm {

// One step on one lane, as the trace has it.
struct LaneEvent {
  std::string name;  // "linear_forward", "all_gather"
  std::string lane;  // "compute"
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
  std::vector<std::int32_t> ranks = {};  // whose lanes are drawn
};
std::string page_html(const PageContent& content);

}  // namespace train_lm
