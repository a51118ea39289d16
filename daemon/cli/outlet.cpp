#include "daemon/cli/outlet.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::cli {
namespace {

constexpr Nanos kLookAgain = std::chrono::milliseconds(10);
constexpr std::size_t kForgetBytes = 65536;  // written bytes that are kept before the rest moves up

}  // namespace

Outlet::Outlet(control::Loop& loop, int target, Events events)
    : loop_(loop), target_(target), events_(std::move(events)) {
  struct stat facts {};
  if (fstat(target_, &facts) != 0) return;
  if (S_ISSOCK(facts.st_mode)) {
    way_ = Way::kSocket;
  } else if (S_ISFIFO(facts.st_mode) || S_ISCHR(facts.st_mode)) {
    const std::string path = fmt::format("/proc/self/fd/{}", target_);
    own_.reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (own_.valid()) way_ = Way::kOwn;  // else another user's, or its reader has left
  } else {
    way_ = Way::kDirect;
  }
}

void Outlet::put(std::string_view text) {
  if (broken_ || text.empty()) return;
  text_ += text;
  if (watch_ == 0) flush();
  if (impatient_) give_up();
}

void Outlet::give_up() {
  impatient_ = true;
  loop_.unwatch(std::exchange(watch_, 0));
  text_.clear();
  taken_ = 0;
}

// True if anything was written.
bool Outlet::flush() {
  bool some = false;
  while (waiting() > 0) {
    const long n = write_some(std::string_view(text_).substr(taken_));
    if (n >= 0) {
      taken_ += static_cast<std::size_t>(n);
      some = true;
    } else if (errno == EAGAIN) {
      wait_for_reader();
      break;
    } else if (errno != EINTR) {
      const int error = errno;
      broken_ = true;
      give_up();
      events_.on_broken(error);
      return true;
    }
  }
  if (waiting() == 0 || taken_ >= kForgetBytes) text_.erase(0, std::exchange(taken_, 0));
  return some;
}

// As write(), but EAGAIN if that would block.
long Outlet::write_some(std::string_view text) const {
  if (way_ == Way::kOwn) return ::write(own_.get(), text.data(), text.size());
  if (way_ == Way::kSocket) return ::send(target_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (way_ == Way::kDirect) return ::write(target_, text.data(), text.size());
  pollfd entry{target_, POLLOUT, 0};
  if (poll(&entry, 1, 0) == 0) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(target_, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
}

// A watch makes its file non-blocking for all programs that share it, so only own_ gets one.
void Outlet::wait_for_reader() {
  if (watch_ != 0 || impatient_) return;
  watch_ = way_ == Way::kOwn ? loop_.watch_writable(own_.get(), [this] { on_ready(); })
                             : loop_.after(kLookAgain, [this] {
                                 watch_ = 0;
                                 on_ready();
                               });
}

void Outlet::on_ready() {
  const bool some = flush();
  if (waiting() == 0) loop_.unwatch(std::exchange(watch_, 0));
  if (some) events_.on_taken();
}

}  // namespace muster::cli
