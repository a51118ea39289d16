// The page that --html writes: figures, losses and a timeline of the lanes (training/drawings.hpp). The build
// puts page.html into the program.
#pragma once

#include "api/examples/train_lm/report.hpp"
#include "api/examples/training/drawings.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace train_lm {

using training::LaneEvent;

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
