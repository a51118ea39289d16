// Columns of text for people: aligned, stable, no colour.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster::cli {

inline constexpr std::size_t kColumnsMax = 100;

using Row = std::vector<std::string>;

// The head and the rows, two spaces between columns. The last column wraps at commas and spaces to stay
// within kColumnsMax.
std::string table(const Row& head, const std::vector<Row>& rows);

// "0-3", "0,4", "0-6/2" (every second from 0 to 6), "0,1,5".
std::string ranks_text(std::span<const std::uint32_t> ranks);

// "1.5 GiB", "64 MiB", "0 B".
std::string bytes_text(std::uint64_t bytes);
// "3d 4h", "2h 5m", "12.3 s".
std::string duration_text(std::int64_t nanos);

}  // namespace muster::cli
