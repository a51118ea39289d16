// Ranks and sizes as people read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace muster {

// "0-3", "0-6/2" (every second from 0 to 6), and with a comma between: "0,1,5". Keeps the given order, which
// is the group's.
std::string rank_list(std::span<const std::uint32_t> ranks, char between = ' ');

// "1.5 GiB", "64.0 MiB", "0 B".
std::string bytes_text(std::uint64_t bytes);

}  // namespace muster
