#include "tests/bench/plot.hpp"

#include "tests/bench/operation.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>

namespace muster::bench {
namespace {

constexpr double kPanelWidth = 300.0;
constexpr double kPanelHeight = 320.0;
constexpr double kLeft = 60.0;    // of the first panel: the scale
constexpr double kGap = 48.0;     // between panels
constexpr double kTop = 56.0;     // title and heads of panels
constexpr double kBottom = 84.0;  // sizes and legend
constexpr double kLegendStep = 128.0;

struct Style {
  const char* name;
  const char* colour;
  const char* dash;
};
constexpr std::array kStyles = {
    Style{"muster direct", "#c0392b", ""}, Style{"muster engine", "#e67e22", ""},
    Style{"openmpi", "#2471a3", ""},       Style{"mpich", "#148f77", ""},
    Style{"gloo", "#7d3c98", ""},          Style{"floor", "#555555", "5 4"},
};
constexpr Style kOther = {"", "#999999", "2 3"};

Style style_of(const std::string& name) {
  const auto* found =
      std::find_if(kStyles.begin(), kStyles.end(), [&](const Style& style) { return name == style.name; });
  return found == kStyles.end() ? kOther : *found;
}
std::size_t place_of_series(const std::string& name) {
  const auto* found =
      std::find_if(kStyles.begin(), kStyles.end(), [&](const Style& style) { return name == style.name; });
  return static_cast<std::size_t>(found - kStyles.begin());
}

using Points = std::map<std::size_t, double>;  // bytes, microseconds
using Series = std::map<std::string, Points>;  // by the name of the line

std::map<int, Series> panels_of(const Report& report, const std::string& operation) {
  std::map<int, Series> panels;
  for (const Row& row : report.rows()) {
    if (row.operation != operation || row.bytes == 0) continue;
    Series& series = panels[row.ranks];
    const std::string name = row.peer == "muster" ? row.peer + " " + row.path : row.peer;
    const auto [it, is_new] = series[name].emplace(row.bytes, row.median_us);
    if (!is_new) it->second = std::min(it->second, row.median_us);
    if (const auto least = report.floor(cell_of(row))) series["floor"][row.bytes] = *least;
  }
  return panels;
}

// From sizes and times to places on the sheet; the same for all panels.
//
// Owns    nothing but numbers.
// Thread  any.
// Bound   what it was told of by widen().
// Fails   never.
class Scale {
 public:
  void widen(std::size_t bytes, double microseconds) {
    const double x = std::log2(static_cast<double>(bytes));
    const double y = std::log10(std::max(microseconds, 1e-3));
    x_min_ = std::min(x_min_, x);
    x_max_ = std::max(x_max_, x);
    y_min_ = std::min(y_min_, std::floor(y));
    y_max_ = std::max(y_max_, std::ceil(y));
  }
  double x(std::size_t bytes) const {
    return kPanelWidth * (std::log2(static_cast<double>(bytes)) - x_min_) / std::max(1.0, x_max_ - x_min_);
  }
  double y(double microseconds) const { return y_of(std::log10(std::max(microseconds, 1e-3))); }
  double y_of(double decade) const {
    return kTop + kPanelHeight * (y_max_ - decade) / std::max(1.0, y_max_ - y_min_);
  }
  int lowest() const { return static_cast<int>(y_min_); }
  int highest() const { return static_cast<int>(y_max_); }

 private:
  double x_min_ = 64.0;
  double x_max_ = 0.0;
  double y_min_ = 12.0;
  double y_max_ = -12.0;
};

std::string decade_text(int decade) {
  static constexpr std::array kUnits = {"ns", "µs", "ms", "s"};
  const int thousands = std::clamp((decade + 3) / 3, 0, 3);
  return fmt::format("{:.0f} {}", std::pow(10.0, decade + 3 - 3 * thousands),
                     kUnits[static_cast<std::size_t>(thousands)]);
}

std::string text_at(double x, double y, const char* anchor, const std::string& words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, words);
}
std::string line_between(double x1, double y1, double x2, double y2, const char* colour) {
  return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"{}\" fill=\"none\"/>\n", x1, y1, x2,
                     y2, colour);
}

std::string curve(const std::string& name, const Points& points, const Scale& scale, double left) {
  const Style style = style_of(name);
  std::string path;
  std::string dots;
  for (const auto& [bytes, microseconds] : points) {
    const double x = left + scale.x(bytes);
    const double y = scale.y(microseconds);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
    dots += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"><title>{}, {}: {} µs</title>"
        "</circle>\n",
        x, y, style.colour, name, size_text(bytes), figure_text(microseconds));
  }
  return fmt::format(
             "<path d=\"{}\" stroke=\"{}\" stroke-dasharray=\"{}\" stroke-width=\"1.6\" fill=\"none\"/>\n",
             path, style.colour, style.dash) +
         dots;
}

std::string panel(int ranks, const Series& series, const Scale& scale, double left, bool is_first) {
  std::string text = text_at(left + kPanelWidth / 2, kTop - 10, "middle", fmt::format("{} ranks", ranks));
  for (int decade = scale.lowest(); decade <= scale.highest(); ++decade) {
    const double y = scale.y_of(decade);
    text += line_between(left, y, left + kPanelWidth, y, "#dddddd");
    if (is_first) text += text_at(left - 6, y + 4, "end", decade_text(decade));
  }
  std::set<std::size_t> sizes;
  for (const auto& [name, points] : series)
    for (const auto& [bytes, microseconds] : points) sizes.insert(bytes);
  double free_from = 0.0;  // labels that would overlap are left out
  for (const std::size_t bytes : sizes) {
    const double x = left + scale.x(bytes);
    text += line_between(x, kTop, x, kTop + kPanelHeight, "#eeeeee");
    if (x < free_from) continue;
    text += text_at(x, kTop + kPanelHeight + 16, "middle", size_text(bytes));
    free_from = x + 44.0;
  }
  for (const auto& [name, points] : series) text += curve(name, points, scale, left);
  return text;
}

std::string legend(const std::map<int, Series>& panels) {
  std::set<std::string> unordered;
  for (const auto& [ranks, series] : panels)
    for (const auto& [name, points] : series) unordered.insert(name);
  std::vector<std::string> names(unordered.begin(), unordered.end());
  std::stable_sort(names.begin(), names.end(),
                   [](const auto& a, const auto& b) { return place_of_series(a) < place_of_series(b); });
  std::string text;
  const double y = kTop + kPanelHeight + kBottom - 30;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double x = kLeft + static_cast<double>(i) * kLegendStep;
    text += fmt::format(
        "<path d=\"M{:.1f} {:.1f}h22\" stroke=\"{}\" stroke-dasharray=\"{}\" stroke-width=\"2\"/>\n", x,
        y - 4, style_of(names[i]).colour, style_of(names[i]).dash);
    text += text_at(x + 28, y, "start", names[i]);
  }
  return text;
}

}  // namespace

std::string plot_of(const Report& report, const std::string& operation) {
  const std::map<int, Series> panels = panels_of(report, operation);
  if (panels.empty()) return {};
  Scale scale;
  for (const auto& [ranks, series] : panels)
    for (const auto& [name, points] : series)
      for (const auto& [bytes, microseconds] : points) scale.widen(bytes, microseconds);
  const auto count = static_cast<double>(panels.size());
  const double width = std::max(kLeft + count * (kPanelWidth + kGap),
                                kLeft + kLegendStep * static_cast<double>(kStyles.size()));
  const double height = kTop + kPanelHeight + kBottom;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height);
  text += text_at(kLeft, 20, "start", operation + ": time of one over the bytes of the full vector");
  double left = kLeft;
  for (const auto& [ranks, series] : panels) {
    text += panel(ranks, series, scale, left, left == kLeft);
    left += kPanelWidth + kGap;
  }
  return text + legend(panels) + "</svg>\n";
}

Status write_plots(const Report& report, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const Operation operation : all_operations()) {
    const std::string picture = plot_of(report, name_of(operation));
    if (picture.empty()) continue;
    const std::string path = folder + "/" + name_of(operation) + ".svg";
    std::ofstream file(path);
    file << picture;
    file.close();
    if (!file) return failure(Code::kNoResource, "{} cannot be written: {}", path, std::strerror(errno));
  }
  return {};
}

}  // namespace muster::bench
