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
constexpr std::size_t kLastColumnMin = 20;  // a narrower last column does not wrap
constexpr std::size_t kCutMin = 8;          // other columns are cut to no less

std::string padded(const std::string& text, std::size_t columns) {
  return text + std::string(columns - std::min(columns, utf8_characters(text)), ' ');
}

// Shortens the text to `columns` characters, the last of them "…". Never cuts inside a number.
std::string cut(const std::string& text, std::size_t columns) {
  if (utf8_characters(text) <= columns) return text;
  std::size_t end = utf8_offset(text, columns - 1);
  while (end > 0 && is_digit(text[end]) && is_digit(text[end - 1])) --end;
  return text.substr(0, end) + "…";
}

// A number with its unit, if any, stays whole; a list or a text may be cut.
std::size_t least_width(const std::string& cell) {
  const bool number = !cell.empty() && (is_digit(cell.front()) || (cell.front() == '-' && cell.size() > 1));
  return number && cell.find(',') == std::string::npos ? utf8_characters(cell)
                                                       : std::min(utf8_characters(cell), kCutMin);
}

// Wraps after commas and spaces; a longer piece breaks at the column's end.
std::vector<std::string> wrapped(const std::string& text, std::size_t columns) {
  std::vector<std::string> lines(1);
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find_first_of(", ", at), text.size() - 1) + 1;
    std::string piece = text.substr(at, end - at);
    at = end;
    const std::size_t last = piece.find_last_not_of(' ') + 1;  // a final space takes no room
    if (!lines.back().empty() &&
        utf8_characters(lines.back()) + utf8_characters(piece.substr(0, last)) > columns)
      lines.emplace_back();
    for (; utf8_characters(piece.substr(0, last)) > columns && utf8_characters(piece) > columns;
         lines.emplace_back()) {
      const std::size_t fits = utf8_offset(piece, columns);
      lines.back() = piece.substr(0, fits);
      piece.erase(0, fits);
    }
    lines.back() += piece;
  }
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

// The rows of a table, and the facts that make it narrow.
struct Grid {
  std::vector<Cells> rows;  // the head first
  std::vector<std::size_t> widths;
  std::size_t columns = 0;
  std::string left_out;

  // Widths of a column: as it is, and at least.
  std::size_t natural(std::size_t column) const {
    std::size_t most = 0;
    for (const Cells& row : rows) most = std::max(most, utf8_characters(row[column]));
    return most;
  }
  std::size_t least(std::size_t column) const {
    std::size_t most = std::min(utf8_characters(rows.front()[column]), kCutMin);
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
  const std::size_t taken = utf8_characters(lead);
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
