// Attention: waiting in which the user is heard: signals that end a command, and the key q.
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/descriptor.hpp"

#include <csignal>
#include <cstdint>
#include <optional>

#include <termios.h>

namespace muster::cli {

// Whether q is listened to, which needs a terminal that this process may read.
enum class Keys : std::uint8_t { kIgnored, kHeard };

// Owns    SIGINT, SIGTERM, SIGHUP and SIGQUIT, unless they are ignored, SIGTSTP and SIGCONT while keys are
//         heard, and then the terminal's settings: each keystroke comes at once and is not shown. All is
//         given back at the end, and while Ctrl-Z has stopped the process. One object at a time.
// Thread  one, and the only one that takes these signals.
// Bound   one descriptor.
// Fails   never: where signals or terminal cannot be had, they do what they do without it.
class Attention {
 public:
  explicit Attention(Keys keys);
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  enum class Came : std::uint8_t { kReady, kDeadline, kUserEnds };
  // Until the descriptor is readable (or has been closed by its peer), the deadline is past, or the user has
  // had enough. A negative descriptor is never ready.
  Came wait(int descriptor, Instant deadline, const Clock& clock);
  // Of the last kUserEnds: 0 for q, 128 + the signal.
  int exit_code() const { return exit_code_; }

 private:
  void take_terminal();
  void give_terminal_back();
  void stop_for_a_while();
  bool signal_ends();
  bool key_ends();

  Keys keys_;
  sigset_t before_{};
  shm::Descriptor signals_;
  std::optional<termios> terminal_;  // as it was
  bool keyboard_ended_ = false;
  int exit_code_ = 0;
};

}  // namespace muster::cli
