#include "api/examples/train_lm/page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace train_lm {
namespace {

constexpr double kWidth = 1000.0;
constexpr double kMargin = 70.0;
constexpr double kLaneHeight = 26.0;
constexpr const char* kLanes[] = {"compute", "gather", "small", "reduce", "allreduce"};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string escaped(const std::string& text) {
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

std::string pixels(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string label(double x, double y, const std::string& text, const char* anchor = "start") {
  return "<text x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" text-anchor=\"" + anchor + "\">" +
         escaped(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2) {
  return "<line x1=\"" + pixels(x1) + "\" y1=\"" + pixels(y1) + "\" x2=\"" + pixels(x2) + "\" y2=\"" +
         pixels(y2) + "\"/>\n";
}

// Kernels by their part in the step, collectives by their lane.
const char* colour(const LaneEvent& event) {
  if (event.lane == "gather") return "#2a9d8f";
  if (event.lane == "reduce") return "#e76f51";
  if (event.lane == "allreduce") return "#f4a261";
  if (event.lane == "small") return "#9b5de5";
  if (event.name.find("backward") != std::string::npos || event.name.find("grad") != std::string::npos)
    return "#6c8ebf";
  if (event.name == "adamw") return "#264653";
  if (event.name == "copy" || event.name == "fill") return "#b0b7bf";
  return "#457b9d";
}

std::string polyline(const std::vector<float>& losses, double top, double height, double low, double high,
                     const char* kind) {
  std::string points;
  const double last = static_cast<double>(std::max<std::size_t>(1, losses.size() - 1));
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double loss = static_cast<double>(losses[i]);
    if (!std::isfinite(loss)) continue;
    const double x = kMargin + (kWidth - 2 * kMargin) * static_cast<double>(i) / last;
    points += pixels(x) + "," + pixels(top + height * (high - loss) / (high - low)) + " ";
  }
  return std::string("<polyline class=\"") + kind + "\" points=\"" + points + "\"/>\n";
}

std::string loss_svg(const Figures& figures) {
  constexpr double kTop = 20.0;
  constexpr double kHeight = 260.0;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const std::vector<float>* losses : {&figures.losses, &figures.alone})
    for (const float loss : *losses)
      if (std::isfinite(loss)) {
        low = std::min(low, static_cast<double>(loss));
        high = std::max(high, static_cast<double>(loss));
      }
  if (!(low < high)) low = high - 1.0;
  std::string svg = "<svg viewBox=\"0 0 1000 320\" role=\"img\" aria-label=\"loss by step\">\n";
  for (int tick = 0; tick <= 4; ++tick) {
    const double y = kTop + kHeight * tick / 4;
    svg += line(kMargin, y, kWidth - kMargin, y);
    svg += label(kMargin - 8, y + 4, number(high - (high - low) * tick / 4), "end");
  }
  svg += label(kMargin, kTop + kHeight + 20, "step 1");
  svg += label(kWidth - kMargin, kTop + kHeight + 20, "step " + std::to_string(figures.losses.size()), "end");
  if (!figures.alone.empty()) svg += polyline(figures.alone, kTop, kHeight, low, high, "alone");
  svg += polyline(figures.losses, kTop, kHeight, low, high, "sharded");
  return svg + "</svg>\n";
}

struct Window {
  double begin = std::numeric_limits<double>::infinity();
  double end = -std::numeric_limits<double>::infinity();
  double x(double us) const { return kMargin + 20 + (kWidth - kMargin - 30) * (us - begin) / (end - begin); }
};

std::string lane_svg(const PageContent& content, std::int32_t rank, const std::string& lane, double top,
                     const Window& window) {
  std::string svg = label(kMargin + 12, top + kLaneHeight / 2 + 4, lane, "end");
  for (const LaneEvent& event : content.events) {
    if (event.rank != rank || event.lane != lane) continue;
    const double x = window.x(event.begin_us);
    const double width = std::max(0.3, window.x(event.begin_us + event.duration_us) - x);
    svg += "<rect x=\"" + pixels(x) + "\" y=\"" + pixels(top + 3) + "\" width=\"" + pixels(width) +
           "\" height=\"" + pixels(kLaneHeight - 6) + "\" fill=\"" + colour(event) + "\"><title>" +
           escaped(event.name) + ", " + number(event.duration_us) + " us</title></rect>\n";
  }
  return svg;
}

std::string timeline_svg(const PageContent& content) {
  Window window;
  for (const LaneEvent& event : content.events) {
    if (std::ranges::find(content.ranks, event.rank) == content.ranks.end()) continue;
    window.begin = std::min(window.begin, event.begin_us);
    window.end = std::max(window.end, event.begin_us + event.duration_us);
  }
  if (!(window.begin < window.end)) return "<p>The trace has no events of these ranks.</p>\n";
  const double lanes = static_cast<double>(std::size(kLanes));
  const double rank_height = kLaneHeight * lanes + 34;
  const double height = rank_height * static_cast<double>(content.ranks.size()) + 24;
  std::string svg =
      "<svg viewBox=\"0 0 1000 " + pixels(height) + "\" role=\"img\" aria-label=\"lanes over time\">\n";
  double top = 0.0;
  for (const std::int32_t rank : content.ranks) {
    svg += label(8, top + 18, "rank " + std::to_string(rank));
    top += 24;
    for (const char* lane : kLanes) {
      svg += line(window.x(window.begin), top + kLaneHeight, window.x(window.end), top + kLaneHeight);
      svg += lane_svg(content, rank, lane, top, window);
      top += kLaneHeight;
    }
    top += 10;
  }
  svg += label(window.x(window.begin), top + 14, "0 ms");
  svg += label(kWidth - 10, top + 14, number((window.end - window.begin) / 1000.0) + " ms", "end");
  return svg + "</svg>\n";
}

std::string facts(const PageContent& content) {
  const Figures& f = content.figures;
  std::vector<std::pair<std::string, std::string>> rows{
      {"mesh", content.mesh},
      {"steps", std::to_string(f.losses.size())},
      {"final loss", number(static_cast<double>(f.losses.back())) + " nats a byte"},
      {"tokens a second", std::to_string(std::llround(f.tokens_per_second))},
      {"exposed communication", number(100.0 * f.exposed_fraction) + " %"},
      {"peak unsharded parameters of a rank", bytes_text(f.peak_unsharded_bytes)}};
  if (!f.alone.empty())
    rows.emplace_back("largest difference of the losses from one rank alone",
                      number(static_cast<double>(f.max_loss_difference())));
  std::string html = "<table>\n";
  for (const auto& [name, value] : rows)
    html += "<tr><th>" + escaped(name) + "</th><td>" + escaped(value) + "</td></tr>\n";
  return html + "</table>\n";
}

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1040px;margin:2em auto;padding:0 1em;color:#1d2733}"
    "svg{width:100%;height:auto}svg text{font-size:12px;fill:#44505c}svg line{stroke:#dfe4e8}"
    "polyline{fill:none;stroke-width:1.6}.sharded{stroke:#e76f51}.alone{stroke:#457b9d;stroke-width:4;"
    "opacity:.45}"
    "th{text-align:left;font-weight:normal;padding-right:2em;color:#44505c}pre{background:#f4f6f8;padding:"
    "1em;"
    "white-space:pre-wrap}";

}  // namespace

std::vector<LaneEvent> read_trace(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("traceEvents"))
    throw std::runtime_error("the trace is not the JSON that muster_trace_end writes");
  std::vector<LaneEvent> events;
  for (const auto& event : json["traceEvents"]) {
    if (event.value("ph", "") != "X") continue;
    events.push_back({event.value("name", ""), event.value("cat", ""), event.value("pid", 0),
                      event.value("ts", 0.0), event.value("dur", 0.0)});
  }
  return events;
}

std::string page_html(const PageContent& content) {
  std::string html =
      "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>train_lm on "
      "Muster</title>\n";
  html += std::string("<style>") + kStyle + "</style></head>\n<body>\n<h1>train_lm on Muster</h1>\n";
  html += facts(content);
  html += "<h2>Loss</h2>\n" + loss_svg(content.figures);
  if (!content.figures.alone.empty()) html += "<p>Thin: this mesh. Broad: the same run on one rank.</p>\n";
  html += "<h2>Lanes in the last steps</h2>\n" + timeline_svg(content);
  if (!content.sample.empty()) html += "<h2>A sample</h2>\n<pre>" + escaped(content.sample) + "</pre>\n";
  return html + "</body>\n</html>\n";
}

}  // namespace train_lm
