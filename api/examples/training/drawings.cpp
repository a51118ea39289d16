#include "api/examples/training/drawings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

namespace training {

// head.html, page.css, page.js and drawings.html; the build makes the source that defines them.
extern const std::string_view kPageHead, kPageStyle, kPageScript, kDrawingsTemplate;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string bytes_text(std::int64_t bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000.0 && unit + 1 < std::size(units); ++unit) value /= 1000.0;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

namespace {

constexpr double kWidth = 1000.0;        // width and height of the drawing of losses
constexpr std::size_t kLaneHeight = 24;  // in pixels

// The colour of a bar: a class of the page's style, and its line in the legend.
struct Kind {
  const char* style;
  const char* meaning;
};
constexpr std::array kKinds{
    Kind{"forward", "kernels of the forward pass"},
    Kind{"backward", "kernels of the backward pass"},
    Kind{"update", "norm of the gradient, and the optimizer"},
    Kind{"other", "anything else: copies, sums, rotary embedding, loss"},
    Kind{"gather", "all-gather of parameters over dp_shard"},
    Kind{"small", "small collectives: partial results over tp, norm, loss, what ranks agree on"},
    Kind{"reduce", "reduce-scatter of gradients over dp_shard"},
    Kind{"allreduce", "all-reduce of gradients over dp_replicate"},
};
// The order in which lanes are drawn, by their classes; other lanes follow.
constexpr std::array<std::string_view, 5> kLanes{"compute", "gather", "small", "reduce", "allreduce"};
constexpr std::size_t kNameMax = 24;  // characters of a lane's name that have room beside its bars

// "gather" of "gather/model": units have lanes of their own, which have the name of their set.
std::string_view class_of(std::string_view lane) {
  return lane.substr(0, lane.find('/'));
}

std::size_t place_of(std::string_view lane) {
  return static_cast<std::size_t>(std::ranges::find(kLanes, class_of(lane)) - kLanes.begin());
}

const char* style_of_kernel(const LaneEvent& event) {
  const auto says = [&](const char* word) { return event.name.find(word) != std::string::npos; };
  if (says("adamw") || says("sum_squares") || says("clip")) return "update";
  if (class_of(event.lane) != "compute") return "other";
  if (says("forward")) return "forward";
  return says("backward") || says("grad") ? "backward" : "other";
}

// The norm of the gradient is summed on the lane of reductions. A collective that ranks run directly has no
// lane of its own; an example is the comparison of their batches.
const char* style_of(const LaneEvent& event) {
  if (event.group.empty()) return style_of_kernel(event);
  const std::string_view lane = class_of(event.lane);
  if (lane == "gather" && event.name == "all_gather") return "gather";
  if (lane == "reduce" && event.name == "reduce_scatter") return "reduce";
  if (lane == "allreduce" && event.name == "all_reduce") return "allreduce";
  return lane == "small" || lane == "reduce" || lane == "direct" ? "small" : "other";
}

std::string time_text(double us) {
  return us < 1000.0 ? fixed(us, 1) + " \u00b5s" : fixed(us / 1000.0, 2) + " ms";
}

std::string legend_line(const std::string& mark, const std::string& meaning) {
  return "<li><svg class=\"swatch\" viewBox=\"0 0 16 14\" aria-hidden=\"true\">" + mark + "</svg>" +
         escaped(meaning) + "</li>\n";
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double length() const { return high - low; }
};

Range losses_range(const DrawnRun& run) {
  Range range;
  for (const std::vector<float>* losses : {&run.losses, &run.alone})
    for (const float loss : *losses) range.take(static_cast<double>(loss));
  if (!std::isfinite(range.length())) range = {0.0, 1.0};
  if (range.low == range.high) range.low -= 1.0;
  return range;
}

std::string polyline(const std::vector<float>& losses, const Range& range, const char* style) {
  std::string points;
  const double last = static_cast<double>(std::max<std::size_t>(1, losses.size() - 1));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double loss = static_cast<double>(losses[i]);
    if (!std::isfinite(loss)) continue;
    const double x = kWidth * static_cast<double>(i) / last;
    points += fixed(x, 1) + "," + fixed(kWidth * (range.high - loss) / range.length(), 1) + " ";
  }
  return std::string("<polyline class=\"") + style + "\" points=\"" + points + "\"/>\n";
}

std::int64_t last_step(const DrawnRun& run) {
  return run.steps_before + static_cast<std::int64_t>(run.losses.size());
}

void add_losses(const DrawnRun& run, Values& values) {
  const Range range = losses_range(run);
  const auto mark = [](const char* style) {
    return std::string("<polyline class=\"") + style + "\" points=\"0,7 16,7\"/>";
  };
  std::string& legend = values["loss_legend"];
  std::string& lines = values["loss_lines"];
  legend = legend_line(mark("sharded"), "loss of this run, " + run.loss_unit);
  if (!run.alone.empty()) {
    legend += legend_line(mark("alone"), "the same run on one rank alone (broad)");
    lines = polyline(run.alone, range, "alone");
  }
  lines += polyline(run.losses, range, "sharded");
  for (int tick = 0; tick <= 4; ++tick)
    values["loss_values"] += "<span>" + number(range.high - range.length() * tick / 4) + "</span>";
  values["loss_label"] = "loss by step, from " + number(static_cast<double>(run.losses.front())) + " to " +
                         number(static_cast<double>(run.losses.back()));
  values["first_step"] = std::to_string(run.steps_before + 1);
  values["last_step"] = std::to_string(last_step(run));
}

std::vector<std::int32_t> drawn_ranks(const DrawnRun& run) {
  if (run.world == 1) return {0};
  return {0, run.world - 1};
}

std::string why_these_ranks(const DrawnRun& run) {
  if (run.world == 1) return "The run has one rank.";
  if (run.world == 2) return "Both ranks of the run are shown.";
  const std::string last = std::to_string(run.world - 1);
  return "Two of the " + std::to_string(run.world) +
         " ranks are shown, so that the picture stays small; the others do the same work on other parts. "
         "Rank "
         "0 is shown because the figures above are its own. Rank " +
         last +
         ", the last, is shown because its place differs from that of rank 0 in every dimension of the mesh "
         "that has more than one place. With --trace FILE, " +
         run.program + " writes the lanes of all ranks for ui.perfetto.dev.";
}

// The runs of the timeline.
struct Drawn {
  std::vector<LaneEvent> events;   // of the ranks that are drawn; their steps are those of the training
  std::vector<std::string> lanes;  // from top to bottom
  Range time;
};

// A set of units counts its steps from 1 on; the last one of the trace is the last of the run.
void number_steps(std::int64_t last, std::vector<LaneEvent>& events) {
  std::int64_t highest = 0;
  for (const LaneEvent& event : events) highest = std::max(highest, event.step);
  for (LaneEvent& event : events)
    if (event.step != 0) event.step += last - highest;
}

Drawn drawn(const DrawnRun& run) {
  const std::vector<std::int32_t> ranks = drawn_ranks(run);
  Drawn drawn;
  for (const LaneEvent& event : run.events) {
    if (std::ranges::find(ranks, event.rank) == ranks.end()) continue;
    drawn.events.push_back(event);
    if (std::ranges::find(drawn.lanes, event.lane) == drawn.lanes.end()) drawn.lanes.push_back(event.lane);
    drawn.time.take(event.begin_us);
    drawn.time.take(event.begin_us + event.duration_us);
  }
  std::ranges::stable_sort(drawn.lanes, {}, place_of);
  number_steps(last_step(run), drawn.events);
  return drawn;
}

// Where each step of the rank begins: with its first kernel, or what else is there.
std::map<std::int64_t, double> steps_of(const Drawn& drawn, std::int32_t rank) {
  std::map<std::int64_t, double> kernels;
  std::map<std::int64_t, double> all;
  for (const LaneEvent& event : drawn.events) {
    if (event.rank != rank || event.step == 0) continue;
    for (auto* begins : {&kernels, &all}) {
      if (begins == &kernels && event.lane != kLanes.front()) continue;
      const auto [begin, is_new] = begins->try_emplace(event.step, event.begin_us);
      begin->second = std::min(begin->second, event.begin_us);
    }
  }
  return kernels.empty() ? all : kernels;
}

// The row of names of steps, which stands above the lanes.
std::string marks_html(const std::map<std::int64_t, double>& steps, const Range& time) {
  std::string html = "<div class=\"below marks\">";
  for (const auto& [step, begin] : steps)
    html += "<span data-at=\"" + fixed(begin - time.low, 2) +
            "\" style=\"left:" + fixed(100.0 * (begin - time.low) / time.length(), 3) + "%\">step " +
            std::to_string(step) + "</span>";
  return html + "</div>\n";
}

std::string bar(const LaneEvent& event, double begin_us, std::size_t top) {
  std::string title = event.name + ", " + time_text(event.duration_us) + ", from " +
                      fixed(begin_us / 1000.0, 3) + " ms\nrank " + std::to_string(event.rank) + ", lane " +
                      event.lane;
  if (event.step != 0) title += ", step " + std::to_string(event.step);
  if (!event.site.empty()) title += "\n" + event.site;
  if (!event.group.empty()) title += "\ngroup " + event.group + ", " + bytes_text(event.bytes);
  return std::string("<rect class=\"") + style_of(event) + "\" x=\"" + fixed(begin_us, 2) + "\" y=\"" +
         std::to_string(top + 3) + "\" width=\"" + fixed(event.duration_us, 2) + "\" height=\"" +
         std::to_string(kLaneHeight - 6) + "\"><title>" + escaped(title) + "</title></rect>\n";
}

std::string rank_html(const Drawn& drawn, std::int32_t rank) {
  const std::string name = "rank " + std::to_string(rank);
  const std::string height = std::to_string(kLaneHeight * drawn.lanes.size());
  const std::map<std::int64_t, double> steps = steps_of(drawn, rank);
  std::string html = "<h3>" + name + "</h3>\n<div class=\"plot\">\n" + marks_html(steps, drawn.time) +
                     "<div class=\"names\">";
  for (const std::string& lane : drawn.lanes)
    html += "<span title=\"" + escaped(lane) + "\">" + escaped(lane) + "</span>";
  html += "</div>\n<svg class=\"lanes\" viewBox=\"0 0 " + fixed(drawn.time.length(), 2) + " " + height +
          "\" height=\"" + height + "\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"lanes of " +
          name + " over time\">\n<path class=\"grid\"/>\n<path class=\"step\" d=\"";
  for (const auto& [step, begin] : steps) html += "M" + fixed(begin - drawn.time.low, 2) + " 0V" + height;
  html += "\"/>\n";
  for (std::size_t i = 0; i < drawn.lanes.size(); ++i)
    for (const LaneEvent& event : drawn.events)
      if (event.rank == rank && event.lane == drawn.lanes[i])
        html += bar(event, event.begin_us - drawn.time.low, i * kLaneHeight);
  return html + "</svg>\n</div>\n";
}

void add_timeline(const DrawnRun& run, Values& values) {
  const Drawn what = drawn(run);
  values["legend"] = values["why_these_ranks"] = "";
  values["names"] = "8";
  if (!(what.time.length() > 0.0)) {
    values["span"] = "0";
    values["timeline"] = "<p>The trace has no events of these ranks.</p>\n";
    return;
  }
  values["span"] = fixed(what.time.length(), 2);
  std::size_t longest = 8;
  for (const std::string& lane : what.lanes) longest = std::max(longest, std::min(lane.size(), kNameMax));
  values["names"] = std::to_string(longest);
  std::set<std::string> styles;
  for (const LaneEvent& event : what.events) styles.insert(style_of(event));
  for (const Kind& kind : kKinds)
    if (styles.contains(kind.style))
      values["legend"] += legend_line(
          std::string("<rect class=\"") + kind.style + "\" x=\"1\" y=\"1\" width=\"14\" height=\"12\"/>",
          kind.meaning);
  values["legend"] +=
      "<li><svg class=\"swatch empty\" aria-hidden=\"true\"></svg>empty: the lane runs nothing. In the "
      "compute "
      "lane the next kernel then waits for a collective (exposed), waits for a free core, or is not yet "
      "submitted.</li>\n";
  values["why_these_ranks"] = "<p id=\"why-these\">" + escaped(why_these_ranks(run)) + "</p>";
  std::string& html = values["timeline"];
  for (const std::int32_t rank : drawn_ranks(run)) html += rank_html(what, rank);
  html += "<div class=\"plot\"><div class=\"below axis\"><span>0 ms</span><span class=\"end\">" +
          fixed(what.time.length() / 1000.0, 1) + " ms</span></div></div>\n";
}

// The page with each {{name}} replaced by its value. Values are not searched for names.
std::string filled(std::string_view page, const Values& values) {
  std::string html;
  for (std::size_t at = page.find("{{"); at != std::string_view::npos; at = page.find("{{")) {
    const std::size_t end = page.find("}}", at);
    const auto value = values.find(page.substr(at + 2, end - at - 2));
    if (value == values.end()) throw std::logic_error("a page names a value that nobody gives");
    html.append(page.substr(0, at)).append(value->second);
    page.remove_prefix(end + 2);
  }
  return html.append(page);
}

}  // namespace

std::vector<LaneEvent> read_trace(std::string_view text) {
  std::vector<LaneEvent> events;
  try {
    const nlohmann::json trace = nlohmann::json::parse(text);
    for (const auto& event : trace.at("traceEvents")) {
      if (event.value("ph", "") != "X") continue;
      const auto args = event.value("args", nlohmann::json::object());
      events.push_back({.name = event.value("name", ""),
                        .lane = event.value("cat", ""),
                        .group = args.value("group", ""),
                        .site = args.value("site", ""),
                        .bytes = args.value("bytes", std::int64_t{0}),
                        .rank = event.value("pid", 0),
                        .step = args.value("step", std::int64_t{0}),
                        .begin_us = event.value("ts", 0.0),
                        .duration_us = event.value("dur", 0.0)});
    }
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(std::string("the trace is not the JSON that muster_trace_end writes: ") +
                             error.what());
  }
  return events;
}

std::string facts_html(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string html;
  for (const auto& [name, value] : rows) {
    html += "<tr><th scope=\"row\">" + escaped(name) + "</th><td>";
    for (const char c : value) html += escaped({&c, 1}) + (c == ',' ? "<wbr>" : "");
    html += "</td></tr>\n";
  }
  return html;
}

std::string page_html(std::string_view page, const DrawnRun& run, Values values) {
  add_losses(run, values);
  add_timeline(run, values);
  values["head"] = kPageHead;
  values["style"] = kPageStyle;
  values["script"] = kPageScript;
  values["drawings"] = filled(kDrawingsTemplate, values);
  return filled(page, values);
}

}  // namespace training
