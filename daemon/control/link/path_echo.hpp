// The path between two nodes, tried with a small and with a large message. PathEcho is the far end, in a
// daemon; try_path() is the near end, in `muster doctor`.
//
// The near end sends kPathHead. The far end sends it back, which small packets can do. The near end then
// sends kPathBytes more, and the far end answers with the head and as many bytes. The path may take smaller
// packets than both interfaces. Full packets are then lost, and a message of more than one packet never
// arrives.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/network/ip_address.hpp"
#include "api/base/result.hpp"
#include "daemon/control/link/tcp.hpp"
#include "daemon/control/loop.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

namespace muster::control {

inline constexpr std::string_view kPathHead = "muster path 1\r\n\n";
inline constexpr std::size_t kPathBytes = std::size_t{256} << 10;  // many packets of any size

// Answers clients that try the path to this node. The answers are in plain text, and reveal nothing.
//
// Owns    its listener, and connections.
// Thread  the loop's.
// Bound   kGuestsMax connections, of which the oldest makes room; kGuestTime and twice kPathBytes for each.
// Fails   open: as TcpListener::open. A client that sends anything else is dropped.
class PathEcho {
 public:
  static constexpr std::size_t kClientsMax = 16;
  static constexpr Nanos kGuestTime = std::chrono::seconds(5);

  // At a port that the system chooses.
  static Result<std::unique_ptr<PathEcho>> open(Loop& loop, const IpAddress& address);
  ~PathEcho();
  PathEcho(const PathEcho&) = delete;
  PathEcho& operator=(const PathEcho&) = delete;

  std::uint16_t port() const { return listener_.port(); }

 private:
  struct PendingClient {
    shm::Descriptor socket;
    shm::Descriptor for_writing;  // a second number of the socket: a loop watches each for one thing
    std::size_t heard = 0;
    std::size_t sent = 0;
    Loop::Watch reads = 0;
    Loop::Watch writes = 0;
    Loop::Watch timer = 0;
  };
  using Id = std::uint64_t;

  PathEcho(Loop& loop, TcpListener listener);
  void on_client();
  void on_readable(Id id);
  void answer(Id id);
  void drop(Id id);

  Loop& loop_;
  const TcpListener listener_;
  std::map<Id, PendingClient> clients_;  // the oldest first
  Loop::Watch arrivals_ = 0;
  Id next_ = 1;
};

struct PathTrial {
  // How far a trial has come.
  enum class Stage : std::uint8_t {
    kConnect,  // nobody answers there
    kSmall,    // a connection stands, and nothing comes by it
    kThere,    // small messages pass, and a large one to the other node does not
    kBack,     // one to the other node does, and one from it does not
    kGood,
  };
  Stage stage = Stage::kConnect;  // the first that failed, or kGood
  Status why;                     // kOk: kGood
  Nanos took{0};
  std::uint32_t segment_bytes = 0;  // that one packet carries at most, as both ends agreed; 0: not known
};

// Waits, for `time` at most. `from`: by which address of this node.
PathTrial try_path(const IpAddress& from, const IpAddress& to, std::uint16_t port, Nanos time,
                   const Clock& clock);

}  // namespace muster::control
