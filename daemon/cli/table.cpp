#include "daemon/cli/table.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace muster::cli {
namespace {

constexpr std::size_t kLastColumnMin = 24;

// UTF-8 characters, not bytes.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
}

std::string padded(const std::string& text, std::size_t columns) {
  return text + std::string(columns - std::min(columns, width(text)), ' ');
}

// Cuts behind commas and spaces.
std::vector<std::string> wrapped(const std::string& text, std::size_t columns) {
  std::vector<std::string> lines(1);
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find_first_of(", ", at), text.size() - 1) + 1;
    const std::string piece = text.substr(at, end - at);
    if (!lines.back().empty() && width(lines.back()) + width(piece) > columns) lines.emplace_back();
    lines.back() += piece;
    at = end;
  }
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

void add_row(const Row& row, const std::vector<std::size_t>& widths, std::string* out) {
  std::string lead;
  for (std::size_t i = 0; i + 1 < row.size(); ++i) lead += padded(row[i], widths[i]) + "  ";
  const std::size_t taken = width(lead);
  const std::size_t room = taken + kLastColumnMin < kColumnsMax ? kColumnsMax - taken : kLastColumnMin;
  for (const std::string& line : wrapped(row.back(), room)) {
    std::string whole = lead + line;
    whole.erase(whole.find_last_not_of(' ') + 1);
    *out += whole + '\n';
    lead.assign(taken, ' ');
  }
}

}  // namespace

std::string table(const Row& head, const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const std::string& cell : head) widths.push_back(width(cell));
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  std::string out;
  add_row(head, widths, &out);
  for (const Row& row : rows) add_row(row, widths, &out);
  return out;
}

std::string ranks_text(std::span<const std::uint32_t> ranks) {
  std::string text;
  std::size_t i = 0;
  while (i < ranks.size()) {
    // The longest run of one step from here; three ranks make a run worth writing so.
    std::size_t end = i + 1;
    const std::uint32_t step = end < ranks.size() ? ranks[end] - ranks[i] : 0;
    while (end < ranks.size() && ranks[end] - ranks[end - 1] == step) ++end;
    if (!text.empty()) text += ',';
    if (end - i >= 3) {
      text += fmt::format("{}-{}", ranks[i], ranks[end - 1]);
      if (step != 1) text += fmt::format("/{}", step);
      i = end;
    } else {
      text += fmt::format("{}", ranks[i]);
      ++i;
    }
  }
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 || value >= 100.0 ? 0 : 1, kUnits[unit]);
}

std::string duration_text(std::int64_t nanos) {
  const std::int64_t seconds = nanos / 1'000'000'000;
  const std::int64_t minutes = seconds / 60;
  const std::int64_t hours = minutes / 60;
  if (hours >= 24) return fmt::format("{}d {}h", hours / 24, hours % 24);
  if (hours > 0) return fmt::format("{}h {}m", hours, minutes % 60);
  if (minutes > 0) return fmt::format("{}m {}s", minutes, seconds % 60);
  return fmt::format("{:.1f} s", static_cast<double>(nanos) * 1e-9);
}

}  // namespace muster::cli
