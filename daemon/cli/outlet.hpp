// Outlet: writes to one of this program's standard streams, and never waits for its reader.
#pragma once

#include "api/shm/descriptor.hpp"
#include "daemon/control/loop.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace muster::cli {

// Owns    what the reader has not taken yet, and its own open file of a pipe or terminal. The given file is
//         shared with other programs, so its blocking mode must not change.
// Thread  the loop's.
// Bound   kQueueBytes, and what is put while it is full(): its writer has to stop then.
// Fails   on_broken, once, with the errno; from then on everything is discarded.
class Outlet {
 public:
  static constexpr std::size_t kQueueBytes = std::size_t{1} << 20;
  struct Events {
    std::function<void()> on_taken;      // some of the waiting text was written
    std::function<void(int)> on_broken;  // from put() or the loop
  };

  Outlet(control::Loop& loop, int target, Events events);
  ~Outlet() { loop_.unwatch(watch_); }
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  void put(std::string_view text);
  bool full() const { return waiting() >= kQueueBytes; }
  bool empty() const { return waiting() == 0; }
  // From now on, discards what cannot be written at once.
  void give_up();

 private:
  // kOwn: own_ does not block. kSocket: each call has a flag for it. kDirect: a file, which never blocks for
  // long. kShared: it may block, so it is polled before each short write.
  enum class Way : std::uint8_t { kOwn, kSocket, kDirect, kShared };

  std::size_t waiting() const { return text_.size() - taken_; }
  bool flush();
  long write_some(std::string_view text) const;
  void wait_for_reader();
  void on_ready();

  control::Loop& loop_;
  int target_;
  Events events_;
  Way way_ = Way::kShared;
  shm::Descriptor own_;
  std::string text_;
  std::size_t taken_ = 0;  // of text_
  bool broken_ = false;
  bool impatient_ = false;
  control::Loop::Watch watch_ = 0;
};

}  // namespace muster::cli
