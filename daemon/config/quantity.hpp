// Quantities with units: "2GiB", "60s". A value without a unit is refused; nothing is rounded.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/config/diagnostic.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace muster::config {

// B; KiB MiB GiB TiB (powers of 1024); KB MB GB TB (powers of 1000). At most 2^63 - 1 bytes.
tl::expected<std::int64_t, Complaint> parse_bytes(std::string_view text);
// ns us ms s min h. At most 2^63 - 1 ns, about 292 years.
tl::expected<Nanos, Complaint> parse_duration(std::string_view text);

// In the largest unit that leaves a whole number: parsing gives the same value back. Values must not be
// negative.
std::string format_bytes(std::int64_t bytes);
std::string format_duration(Nanos duration);

// Regular expressions for the inputs that the parsers accept, for editors.
std::string bytes_pattern();
std::string duration_pattern();

}  // namespace muster::config
