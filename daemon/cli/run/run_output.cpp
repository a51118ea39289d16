#include "daemon/cli/run/run_output.hpp"

#include "api/base/utf8.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace muster::cli {
namespace {

// How long lines are held. A failure reaches all ranks at once, and so do the ranks' lines about it.
constexpr Nanos kHeld = std::chrono::milliseconds(100);
constexpr Nanos kHeldAtFailure = std::chrono::seconds(2);
constexpr std::size_t kLastWordsMax = 1024;

}  // namespace

RunOutput::RunOutput(control::Loop& loop, const Events& events) : loop_(loop) {
  for (const std::size_t which : {std::size_t{0}, std::size_t{1}})
    outlets_[which] = std::make_unique<Outlet>(
        loop_, which == 0 ? STDOUT_FILENO : STDERR_FILENO,
        Outlet::Events{[taken = events.on_taken, which] { taken(which); },
                       [broken = events.on_broken, which](int error) { broken(which, error); }});
}

// Lines that end in a carriage return draw over each other and cannot wait.
std::string RunOutput::hold(std::uint32_t rank, std::string_view lines) {
  std::string last_words;
  while (!lines.empty()) {
    const std::size_t end = lines.find_first_of("\n\r");
    const std::string_view line = lines.substr(0, end);
    const bool drawn = end != std::string_view::npos && lines[end] == '\r';
    lines.remove_prefix(std::min(lines.size(), end == std::string_view::npos ? end : end + 1));
    if (drawn) {
      release();
      put(1, fmt::format("[{}] {}\r", rank, line));
      continue;
    }
    lines_.add(rank, line);
    if (!line.empty()) last_words = line.substr(0, kLastWordsMax);
    if (lines_.full()) release();
  }
  if (!lines_.empty() && release_ == 0) release_after(failed_ ? kHeldAtFailure : kHeld);
  return last_words;
}

void RunOutput::set_failed(bool failed) {
  failed_ = failed;
  if (failed && !lines_.empty()) release_after(kHeldAtFailure);
}

void RunOutput::release_after(Nanos time) {
  loop_.unwatch(release_);
  release_ = loop_.after(time, [this] {
    release_ = 0;
    release();
  });
}

// Before anything has failed, each rank's lines are its own matter.
void RunOutput::release() {
  loop_.unwatch(std::exchange(release_, 0));
  if (!lines_.empty()) put(1, lines_.take(failed_ ? SameLines::Say::kOnce : SameLines::Say::kEach));
}

void RunOutput::say(const std::string& text) {
  const std::string line = printable(fmt::format("muster run: {}\n", text), Lines::kSeveral);
  lines_.empty() ? put(1, line) : lines_.add_own(line);
}

void RunOutput::give_up() {
  release();
  for (const auto& outlet : outlets_) outlet->give_up();
}

}  // namespace muster::cli
