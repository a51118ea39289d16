// Pages that show a run: losses and a timeline of the lanes, in one file that loads no other. The script only
// zooms: a page shows the same drawings without it. The build puts page.css, page.js and drawings.html into
// the program.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace training {

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

// All that the drawings show.
struct DrawnRun {
  std::string program = {};
  std::string loss_unit = {};      // "in nats a byte"
  std::vector<float> losses = {};  // one for each step
  std::vector<float> alone = {};   // of the same run on one rank, if there was one
  std::vector<LaneEvent> events = {};
  std::int32_t world = 1;         // ranks of the run; the lanes of the first and the last are drawn
  std::int64_t steps_before = 0;  // of earlier runs, which this one has resumed
};

using Values = std::map<std::string, std::string, std::less<>>;

std::string escaped(std::string_view text);   // for HTML
std::string number(double value);             // four digits
std::string fixed(double value, int digits);  // so many behind the point
std::string bytes_text(std::int64_t bytes);   // "1.4 MB"
std::string facts_html(const std::vector<std::pair<std::string, std::string>>& rows);  // of a table

// The page with each {{name}} replaced by its value; values are not searched for names. The run gives
// {{head}}, {{style}}, {{script}}, {{names}} and {{drawings}}. std::logic_error: nobody gives a value that it
// names.
std::string page_html(std::string_view page, const DrawnRun& run, Values values);

}  // namespace training
