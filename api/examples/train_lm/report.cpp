#include "api/examples/train_lm/report.hpp"

#include "api/examples/training/drawings.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

namespace train_lm {

using namespace training;

namespace {

constexpr std::int64_t kStepsPerLine = 10;
constexpr std::int64_t kBarWidth = 24;

std::size_t terminal_columns() {
  constexpr std::size_t kUsual = 80;
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsual;
}

}  // namespace

float Figures::max_loss_difference() const {
  float most = 0.0F;
  for (std::size_t i = 0; i < std::min(losses.size(), alone.size()); ++i) {
    const float difference = std::fabs(losses[i] - alone[i]);
    if (!(difference <= most)) most = difference;
    if (std::isnan(most)) break;
  }
  return most;
}

std::string figures_json(const Figures& figures) {
  nlohmann::ordered_json json;
  json["steps"] = figures.losses.size();
  json["final_loss"] = figures.losses.back();
  json["losses"] = figures.losses;
  json["max_loss_difference"] = nullptr;
  if (!figures.alone.empty()) json["max_loss_difference"] = figures.max_loss_difference();
  json["tokens_per_second"] = figures.tokens_per_second;
  json["exposed_fraction"] = figures.exposed_fraction;
  json["peak_unsharded_bytes"] = figures.peak_unsharded_bytes;
  json["least_unsharded_bytes"] = figures.least_unsharded_bytes;
  return json.dump();
}

std::string printable(const std::string& bytes) {
  std::string text = bytes;
  for (char& c : text)
    if (c != '\n' && (c < ' ' || c > '~')) c = '.';
  return text;
}

std::string fitting_line(const std::string& title, const std::string& bar, const std::string& figures,
                         std::size_t columns) {
  std::string line = title + " [" + bar + "] " + figures;
  if (line.size() < columns) return line;
  line = title + "  " + figures;
  while (line.size() >= columns) {
    const std::size_t last = line.rfind("  ");
    if (last == std::string::npos) return line.substr(0, columns - std::min<std::size_t>(columns, 1));
    line.resize(last);
  }
  return line;
}

Progress::Progress(std::string title, std::int64_t steps, std::int64_t tokens_per_step)
    : title_(std::move(title)),
      steps_(steps),
      tokens_per_step_(tokens_per_step),
      terminal_(::isatty(STDERR_FILENO) == 1),
      begin_(std::chrono::steady_clock::now()) {}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void Progress::show(std::int64_t done, std::int64_t computed, float loss, const Figures& figures) {
  if (!terminal_ && done % kStepsPerLine != 0 && done != steps_ && computed != 1) return;
  const double rate = static_cast<double>(computed * tokens_per_step_) / seconds();
  char line[256];
  std::snprintf(line, sizeof line,
                "step %lld/%lld  loss %.4f  %.0f tokens/s  exposed %.1f %%  peak unsharded %s",
                static_cast<long long>(done), static_cast<long long>(steps_), static_cast<double>(loss), rate,
                100.0 * figures.exposed_fraction, bytes_text(figures.peak_unsharded_bytes).c_str());
  if (!terminal_) {
    std::fprintf(stderr, "%s  %s\n", title_.c_str(), line);
    return;
  }
  const auto filled = static_cast<std::size_t>(kBarWidth * done / steps_);
  const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '-');
  const std::string shown = fitting_line(title_, bar, line, terminal_columns());
  std::fprintf(stderr, "\r\033[K%s%s", shown.c_str(), done == steps_ ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace train_lm
