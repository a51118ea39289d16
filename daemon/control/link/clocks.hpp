// Clocks of two nodes: by how much a certificate lies outside its dates, and by how much clocks differ.
#pragma once

#include "daemon/control/link/certificate.hpp"
#include "daemon/control/packet.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace muster::control {

// Clocks that differ by less agree: a message takes time, and so does a handshake.
constexpr std::chrono::minutes kClocksAgree{1};
// The latest time that is believed to be one: in the year 2255.
constexpr WallTime kTimeMax{std::chrono::seconds(9'000'000'000)};

// "the certificate of node node01 is valid from 2026-11-26 00:00:00 UTC on, which is in 1h 54m by the clock
// of node node02". Empty: `now` lies inside. `whose`: "the certificate of node node01"; `clock`: "the clock
// of node node02".
std::string outside_dates(std::string_view whose, const Validity& validity, WallTime now,
                          std::string_view clock);

// The field "time" of a frame: the time of its sender, in seconds.
Json said(WallTime now);
// The sender's time in a frame. Nothing: the frame has none, or one that is not from 1970 to kTimeMax. The
// time is a claim, without proof.
std::optional<WallTime> time_said(const Json& frame);

// "its clock, as it says, is 2h 0m behind ours". Empty: they agree.
std::string clocks_apart(WallTime ours, WallTime said);
// The remedy if one node refuses the other's certificate for its dates: set a clock, or write a new
// certificate.
std::string cure_of_dates(WallTime ours, WallTime said);

}  // namespace muster::control
