// The messages between the head of a run over several hosts and its parts on these hosts. They need only the
// standard streams of a part, which its launcher carries.
//
// The head writes the name of a signal on a line into the part's standard input: INT, TERM, KILL, … The part
// acts as if it had received the signal. When the input ends, the head has gone, and the part ends as at
// SIGTERM. A part reports the first failure of its ranks at once, in a record on standard error, because the
// part itself ends only with its last rank.
#pragma once

#include "daemon/control/loop.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace muster::cli {

struct ToldFailure {
  int code = 1;  // with which the rank has ended, as a shell says it
  std::uint32_t rank = 0;
};

std::string signal_line(int signal);
std::string failure_line(const ToldFailure& failure);
// Takes the record out of whole lines of a part's standard error. Other lines stay.
std::optional<ToldFailure> take_failure(std::string* lines);

// The part's end of its standard input.
//
// Owns    the watch, and the unfinished line.
// Thread  the loop's.
// Bound   kLineBytesMax of a line; lines that are no signal of the list are skipped.
// Fails   never; an input that cannot be read has ended.
class HeadLink {
 public:
  static constexpr std::size_t kLineBytesMax = 16;
  struct Events {
    std::function<void(int signal)> on_signal;
    std::function<void()> on_end;  // once
  };

  HeadLink(control::Loop& loop, Events events);
  ~HeadLink() { loop_.unwatch(watch_); }
  HeadLink(const HeadLink&) = delete;
  HeadLink& operator=(const HeadLink&) = delete;

 private:
  void on_readable();

  control::Loop& loop_;
  Events events_;
  std::string line_;
  control::Loop::Watch watch_ = 0;
};

}  // namespace muster::cli
