// Columns of text for people: aligned, stable, no colour.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::config {

inline constexpr std::size_t kColumnsMax = 100;

using Row = std::vector<std::string>;

// How a table becomes narrow. Columns give way in the order of `spare`, the least important first: texts in
// them are cut, and where that is not enough the column is left out, and a line says so. The other columns
// are never left out. Numbers are never cut.
struct Fit {
  std::size_t columns = kColumnsMax;    // nothing is made narrow for so many
  std::vector<std::string_view> spare;  // by their heads
};

// The head and the rows, two spaces between columns; an empty head is left out. The last column wraps at
// commas and spaces. Control characters of a cell do not come out.
std::string table(const Row& head, const std::vector<Row>& rows, const Fit& fit = {});

// The columns that tables have here: what COLUMNS says, else what the terminal at standard output has, else
// kColumnsMax. 40 to kColumnsMax.
std::size_t screen_columns();

// "0-3", "0,4", "0-6/2" (every second from 0 to 6), "0,1,5".
std::string ranks_text(std::span<const std::uint32_t> ranks);

// "1.5 GiB", "64 MiB", "0 B".
std::string bytes_text(std::uint64_t bytes);
// "3d 4h", "2h 5m", "12.3 s".
std::string duration_text(std::int64_t nanos);

}  // namespace muster::config
