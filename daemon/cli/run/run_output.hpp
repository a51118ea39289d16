// RunOutput: the standard output and error of a run, for its ranks and for `muster run` itself. Ranks' lines
// for standard error can be held for a moment, so that equal ones become one (same_lines.hpp).
#pragma once

#include "daemon/cli/outlet.hpp"
#include "daemon/cli/run/same_lines.hpp"
#include "daemon/control/loop.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace muster::cli {

// Owns    both outlets, the held lines, and their timer.
// Thread  the loop's.
// Bound   Outlet::kQueueBytes of each stream, and SameLines::kBytesMax.
// Fails   on_broken, as Outlet.
class RunOutput {
 public:
  // `which`: 0: standard output, 1: standard error.
  struct Events {
    std::function<void(std::size_t which)> on_taken;
    std::function<void(std::size_t which, int error)> on_broken;
  };
  RunOutput(control::Loop& loop, const Events& events);
  ~RunOutput() { loop_.unwatch(release_); }
  RunOutput(const RunOutput&) = delete;
  RunOutput& operator=(const RunOutput&) = delete;

  void put(std::size_t which, const std::string& text) { outlets_[which]->put(text); }
  // Takes whole lines of a rank for standard error. Returns the last one that is not empty.
  std::string hold(std::uint32_t rank, std::string_view lines);
  // A rank has failed: others may be about to print the same. Or the run is well again.
  void set_failed(bool failed);
  // A line of `muster run`, behind the lines that are held.
  void say(const std::string& text);
  // Prints what is held.
  void release();

  bool full(std::size_t which) const { return outlets_[which]->full(); }
  bool empty() const { return outlets_[0]->empty() && outlets_[1]->empty(); }
  // Prints what is held, and discards from now on what cannot be written at once.
  void give_up();

 private:
  void release_after(Nanos time);

  control::Loop& loop_;
  std::array<std::unique_ptr<Outlet>, 2> outlets_;
  SameLines lines_;                   // of standard error, held
  control::Loop::Watch release_ = 0;  // of lines_
  bool failed_ = false;
};

}  // namespace muster::cli
