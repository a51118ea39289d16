// Loop: one thread's event loop over descriptors and timers, for the supervisor and the engine's conductor.
// It hides Asio.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/socket.h>

namespace muster::control {

// An address and port as connect(2) takes them.
struct SocketAddress {
  sockaddr_storage address{};
  socklen_t bytes = 0;
};

// Owns    its timers and watches; not the descriptors it watches.
// Thread  run() and all callbacks on one thread. post() and stop(): any thread.
// Bound   by the descriptors watched. Callbacks must not block.
// Fails   watch: std::system_error if the kernel takes no more (ENOMEM, fs.epoll.max_user_watches), or if
//         `fd` is invalid, a defect of its owner. A file that is always ready (EPERM) is reported at once;
//         its owner reads the error itself. After construction nothing else fails.
class Loop {
 public:
  using Callback = std::function<void()>;
  using Watch = std::uint64_t;  // 0 is none

  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Calls `callback` each time `fd` is readable, has hung up, or (a pidfd) its process has ended, until
  // unwatch(). The callback must take the readiness away or unwatch: level-triggered.
  Watch watch(int fd, Callback callback);
  // The same when `fd` can be written. It makes `fd` non-blocking, for all who share it.
  Watch watch_writable(int fd, Callback callback);
  void unwatch(Watch watch);
  // Calls once after `delay`. Returned id cancels through unwatch().
  Watch after(Nanos delay, Callback callback);
  // Calls `callback` for each arrival of the signal, on the loop's thread.
  Watch on_signal(int number, Callback callback);
  // Looks the host's addresses up, and calls `callback` with them once. kNotFound: it has none. The wait is
  // on a thread of the loop's own, which ends with the loop: that may take as long as the system's resolver.
  Watch resolve(const std::string& host, std::uint16_t port,
                std::function<void(Result<std::vector<SocketAddress>>)> callback);
  void post(Callback callback);
  void run();  // until stop()
  // Instead of run(): calls one callback that is due, if one is, and does not wait. False if none was.
  bool turn();
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::control
