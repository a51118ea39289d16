// Columns of text for people: aligned, stable, no colour.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::config {

inline constexpr std::size_t kColumnsMax = 100;

using Cells = std::vector<std::string>;

// How a table becomes narrow. Columns shrink in the order of `spare`, the least important first: their texts
// are cut, then the column is left out, and a line says so. Other columns are never left out. Numbers are
// never cut.
struct Fit {
  std::size_t columns = kColumnsMax;    // a table of so many columns or fewer is not made narrow
  std::vector<std::string_view> spare;  // by their heads
};

// The head and the rows, with two spaces between columns; an empty head is left out. The last column wraps at
// commas and spaces. Control characters in a cell are not printed.
std::string table(const Cells& head, const std::vector<Cells>& rows, const Fit& fit = {});

// The width of tables: from COLUMNS, else of the terminal at standard output, else kColumnsMax. Always 40 to
// kColumnsMax.
std::size_t screen_columns();

// "3d 4h", "2h 5m", "12.3 s".
std::string duration_text(std::int64_t nanos);

}  // namespace muster::config
