// A port that nodes of a test listen at.
#pragma once

#include "daemon/control/link/tcp.hpp"

#include <cstddef>
#include <cstdint>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

namespace muster::test {

// A port that nobody listens at on 127.0.0.1 … 127.0.0.`nodes`. It is below the ports that the kernel gives
// to whoever asks for any, unless these begin low: the network library of a test beside this one could get
// one of those before the nodes listen. Each process begins its search at a place of its own.
inline std::uint16_t free_port(std::size_t nodes) {
  constexpr unsigned kAtLeast = 10000, kOfProcess = 64, kTries = 4096;
  static unsigned tried = 0;
  unsigned below = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> below;
  if (below < 2 * kAtLeast) below = 32768;
  for (unsigned left = kTries; left > 0; --left) {
    const unsigned from = static_cast<unsigned>(getpid()) * kOfProcess + tried++;
    const auto port = static_cast<std::uint16_t>(kAtLeast + from % (below - kAtLeast));
    std::size_t free = 0;
    while (free < nodes && control::TcpListener::open({fmt::format("127.0.0.{}", free + 1), port})) ++free;
    if (free == nodes) return port;
  }
  return 0;  // a roster with it is refused
}

}  // namespace muster::test
