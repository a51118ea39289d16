// Attention: waits while the user can end the command, by a signal or the key q, or type other keys.
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/descriptor.hpp"

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>

#include <termios.h>

namespace muster::cli {

// Owns    SIGINT, SIGTERM, SIGHUP and SIGQUIT, unless they are ignored. While keys are heard also SIGTSTP,
//         SIGCONT and the terminal's settings: each keystroke comes at once and is not shown. All are given
//         back at the end, and while Ctrl-Z has stopped the process. One object at a time.
// Thread  one, and the only one that takes these signals.
// Bound   one descriptor; kTypedMax keys, of which later ones are dropped.
// Fails   never: signals or a terminal that cannot be had keep their usual effect.
class Attention {
 public:
  // Whether q ends the command, and other keys are noted. That needs a terminal that this process may read.
  enum class Keys : std::uint8_t { kIgnored, kHeard };
  explicit Attention(Keys keys);
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  enum class Came : std::uint8_t { kReady, kDeadline, kUserEnds, kKey };
  // Waits until the descriptor is readable (or closed by its peer), the deadline has passed, or the user ends
  // the command. A negative descriptor is never ready.
  Came wait(int descriptor, Instant deadline, const Clock& clock);
  // As above, for no descriptor, or until a key other than q has been typed since the last kKey.
  Came wait_for_key(Instant deadline, const Clock& clock);
  // The key of the last kKey.
  char key() const { return key_; }
  // For the last kUserEnds: 0 for q, 128 + the signal.
  int exit_code() const { return exit_code_; }

 private:
  static constexpr std::size_t kTypedMax = 16;
  void take_terminal();
  void give_terminal_back();
  void stop_for_a_while();
  bool signal_ends();
  bool key_ends();
  std::optional<Came> look(int descriptor, Instant deadline, const Clock& clock);

  Keys keys_;
  sigset_t before_{};
  shm::Descriptor signals_;
  std::optional<termios> terminal_;  // as it was
  bool keyboard_ended_ = false;
  std::string typed_;  // keys that were not taken yet, at most kTypedMax
  char key_ = 0;
  int exit_code_ = 0;
};

}  // namespace muster::cli
