// Ranks, sizes and deadlines as people read them.
#pragma once

#include "api/base/clock.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace muster {

// "0-3", "0-6/2" (every second from 0 to 6), and with a comma between: "0,1,5". Keeps the given order, which
// is the group's.
std::string rank_list(std::span<const std::uint32_t> ranks, char between = ' ');

// "1.5 GiB", "64.0 MiB", "0 B".
std::string bytes_text(std::uint64_t bytes);

// "buffer 0x3039 is none of this session: it was freed, or never made here"; `ended` is the "freed". No
// handle is 0, so that was not set.
std::string unknown_handle(std::string_view what, std::uint64_t handle, std::string_view ended);

// The word as a shell reads it back: in quotes if it has a character that means something to the shell.
std::string shell_word(std::string_view word);

// "passed its deadline of 2 s (deadline_ns, muster_mesh_deadline or defaults.deadline gives more)"; without
// the length if that is not known: 0 or less.
std::string passed_deadline(Nanos deadline);

}  // namespace muster
