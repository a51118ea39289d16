// The environment chooses the event at a fault point:
//
//   MUSTER_FAULT_AT=POINT:HIT=kill    ends the process when it comes to the point for the HITth time
//   MUSTER_FAULT_AT=POINT:HIT=stop    stops it, as SIGSTOP does
//   MUSTER_FAULT_AT=POINT:HIT=hold    keeps it there until it gets SIGUSR1
//   MUSTER_FAULT_AT=POINT:HIT=stall   keeps it there for ever, with whatever it holds
//   MUSTER_FAULT_AT=POINT:HIT=flip    turns a bit of the memory that the point shows, then and each time
//   after
//                                     it, as a core or a cell that has gone bad does; there must be such
//                                     memory
//
// The process first prints "at POINT NANOSECONDS" to standard output, by the clock that tests use.
#include "api/base/fault_point.hpp"

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <unistd.h>

namespace muster::fault {
namespace {

struct Fault {
  std::size_t point = std::size(kPoints);
  std::uint64_t hit = 0;
  std::string_view act;
};

// Nothing that cannot be read is passed over: a test would wait for a fault that never comes.
Fault read_environment() {
  const char* text = std::getenv("MUSTER_FAULT_AT");
  if (text == nullptr) return {};
  const std::string_view all(text);
  const auto colon = all.find(':');
  const auto equals = all.find('=');
  Fault fault;
  if (colon != std::string_view::npos && equals != std::string_view::npos && colon < equals) {
    for (std::size_t i = 0; i < std::size(kPoints); ++i)
      if (kPoints[i] == all.substr(0, colon)) fault.point = i;
    std::from_chars(text + colon + 1, text + equals, fault.hit);
    fault.act = all.substr(equals + 1);
  }
  const bool known = fault.act == "kill" || fault.act == "stop" || fault.act == "hold" ||
                     fault.act == "stall" || fault.act == "flip";
  if (fault.point < std::size(kPoints) && fault.hit > 0 && known) return fault;
  std::fprintf(stderr, "MUSTER_FAULT_AT=%s is not POINT:HIT=kill|stop|hold|stall|flip\n", text);
  std::abort();
}

void announce(std::string_view name) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  char line[128];
  const int length =
      std::snprintf(line, sizeof line, "at %.*s %lld\n", static_cast<int>(name.size()), name.data(),
                    static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  if (write(STDOUT_FILENO, line, static_cast<std::size_t>(length)) != length) std::abort();
}

void flip(std::span<std::byte> memory) {
  if (memory.empty()) std::abort();
  memory[memory.size() / 2] ^= std::byte{1};
}

}  // namespace

void come_to(std::size_t point, std::span<std::byte> memory) noexcept {
  static const Fault fault = read_environment();
  static std::atomic<std::uint64_t> hits{0};
  if (point != fault.point) return;
  const std::uint64_t hit = ++hits;
  if (fault.act == "flip" && hit >= fault.hit) flip(memory);
  if (hit != fault.hit) return;
  sigset_t release;
  sigemptyset(&release);
  sigaddset(&release, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &release, nullptr);  // it may come before it is waited for
  announce(kPoints[point]);
  if (fault.act == "kill") raise(SIGKILL);
  if (fault.act == "stop") raise(SIGSTOP);
  if (fault.act == "hold") sigwaitinfo(&release, nullptr);
  while (fault.act == "stall") pause();
}

}  // namespace muster::fault
