#include "daemon/config/table.hpp"

#include "api/base/utf8.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace muster::config {
namespace {

constexpr std::size_t kScreenColumnsMin = 40;
constexpr std::size_t kLastColumnMin = 20;  // from here on the last column wraps
constexpr std::size_t kCutMin = 8;          // and others are cut

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// UTF-8 characters, not bytes.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

std::string padded(const std::string& text, std::size_t columns) {
  return text + std::string(columns - std::min(columns, width(text)), ' ');
}

// The first `columns` characters, in bytes.
std::size_t bytes_of(std::string_view text, std::size_t columns) {
  std::size_t at = 0;
  for (; at < text.size(); ++at)
    if (!continues(text[at]) && columns-- == 0) break;
  return at;
}

// Shortened to so many characters, the last of them "…", and no number in two.
std::string cut(const std::string& text, std::size_t columns) {
  if (width(text) <= columns) return text;
  std::size_t end = bytes_of(text, columns - 1);
  while (end > 0 && is_digit(text[end]) && is_digit(text[end - 1])) --end;
  return text.substr(0, end) + "…";
}

// A number, perhaps with its unit, stays whole; of a list or a text some is enough.
std::size_t least_width(const std::string& cell) {
  const bool number = !cell.empty() && (is_digit(cell.front()) || (cell.front() == '-' && cell.size() > 1));
  return number && cell.find(',') == std::string::npos ? width(cell) : std::min(width(cell), kCutMin);
}

// Cuts behind commas and spaces, and where there are none wherever the column ends.
std::vector<std::string> wrapped(const std::string& text, std::size_t columns) {
  std::vector<std::string> lines(1);
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find_first_of(", ", at), text.size() - 1) + 1;
    std::string piece = text.substr(at, end - at);
    at = end;
    const std::size_t last = piece.find_last_not_of(' ') + 1;  // a blank at the end of a line takes no room
    if (!lines.back().empty() && width(lines.back()) + width(piece.substr(0, last)) > columns)
      lines.emplace_back();
    for (; width(piece.substr(0, last)) > columns && width(piece) > columns; lines.emplace_back()) {
      const std::size_t fits = bytes_of(piece, columns);
      lines.back() = piece.substr(0, fits);
      piece.erase(0, fits);
    }
    lines.back() += piece;
  }
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

// Rows of one width, with what has to be known to make them narrow.
struct Grid {
  std::vector<Cells> rows;  // the head first
  std::vector<std::size_t> widths;
  std::size_t columns = 0;
  std::string left_out;

  // Of a column: as it is, and as narrow as it may become.
  std::size_t natural(std::size_t column) const {
    std::size_t most = 0;
    for (const Cells& row : rows) most = std::max(most, width(row[column]));
    return most;
  }
  std::size_t least(std::size_t column) const {
    std::size_t most = std::min(width(rows.front()[column]), kCutMin);
    for (std::size_t row = 1; row < rows.size(); ++row) most = std::max(most, least_width(rows[row][column]));
    return most;
  }
  std::size_t taken() const {
    std::size_t all = std::min(widths.back(), kLastColumnMin);
    for (std::size_t column = 0; column + 1 < widths.size(); ++column) all += widths[column] + 2;
    return all;
  }
  std::size_t excess() const { return taken() > columns ? taken() - columns : 0; }
  void shrink(std::size_t column) {
    const std::size_t room = widths[column] - std::min(widths[column], least(column));
    widths[column] -= std::min(room, excess());
  }
  void leave_out(std::size_t column) {
    left_out += (left_out.empty() ? "" : ", ") + rows.front()[column];
    for (Cells& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
    widths.erase(widths.begin() + static_cast<std::ptrdiff_t>(column));
  }
};

void fit(const Fit& how, Grid* grid) {
  for (const std::string_view name : how.spare) {
    const Cells& head = grid->rows.front();
    const auto found = std::find(head.begin(), head.end() - 1, name);
    if (found == head.end() - 1) continue;
    const auto column = static_cast<std::size_t>(found - head.begin());
    grid->shrink(column);
    if (grid->excess() > 0) grid->leave_out(column);
  }
  for (std::size_t column = grid->widths.size() - 1; column-- > 0;) grid->shrink(column);
}

void add_row(const Cells& row, const Grid& grid, std::string* out) {
  std::string lead;
  for (std::size_t i = 0; i + 1 < row.size(); ++i)
    lead += padded(cut(row[i], grid.widths[i]), grid.widths[i]) + "  ";
  const std::size_t taken = width(lead);
  const std::size_t room = taken + kLastColumnMin < grid.columns ? grid.columns - taken : kLastColumnMin;
  for (const std::string& line : wrapped(row.back(), room)) {
    std::string whole = lead + line;
    whole.erase(whole.find_last_not_of(' ') + 1);
    *out += whole + '\n';
    lead.assign(taken, ' ');
  }
}

}  // namespace

std::string table(const Cells& head, const std::vector<Cells>& rows, const Fit& how) {
  Grid grid;
  grid.columns = how.columns;
  grid.rows.push_back(head.empty() && !rows.empty() ? Cells(rows.front().size()) : head);
  grid.rows.insert(grid.rows.end(), rows.begin(), rows.end());
  for (Cells& row : grid.rows)
    for (std::string& cell : row) cell = printable(cell, Lines::kOne);
  for (std::size_t column = 0; column < grid.rows.front().size(); ++column)
    grid.widths.push_back(grid.natural(column));
  if (how.columns < kColumnsMax && !grid.widths.empty()) fit(how, &grid);
  std::string out;
  for (std::size_t row = head.empty() ? 1 : 0; row < grid.rows.size(); ++row)
    add_row(grid.rows[row], grid, &out);
  if (!grid.left_out.empty())
    out += fmt::format("({} columns are too few for {})\n", how.columns, grid.left_out);
  return out;
}

std::size_t screen_columns() {
  std::size_t columns = 0;
  const char* said = std::getenv("COLUMNS");
  const std::string_view text = said == nullptr ? "" : said;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
  if (error != std::errc() || end != text.data() + text.size()) columns = 0;
  winsize size{};
  if (columns == 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return columns == 0 ? kColumnsMax : std::clamp(columns, kScreenColumnsMin, kColumnsMax);
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

}  // namespace muster::config
