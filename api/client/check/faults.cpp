#include "api/client/check/faults.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <map>
#include <string_view>

#include <pthread.h>
#include <sched.h>
#include <ucontext.h>
#include <unistd.h>

namespace muster::client {
namespace {

constexpr std::size_t kTextBytes = 1024;
constexpr int kTriesInHandler = 100'000;  // the thread that faults may be the holder itself

std::atomic_flag held = ATOMIC_FLAG_INIT;
struct sigaction before_ours = {};

// By their ends. Never destroyed: a fault may come while the process exits.
std::map<std::uintptr_t, WatchedRange*>& ranges() {
  static auto* const all = new std::map<std::uintptr_t, WatchedRange*>;
  return *all;
}

// A line that is put together without heap, because a signal handler may not allocate.
//
// Owns    its bytes.
// Thread  one.
// Bound   kTextBytes; the rest is cut off.
// Fails   never.
class FaultText {
 public:
  void add(std::string_view text) noexcept {
    const std::size_t room = kTextBytes - 1 - length_;
    const std::size_t count = text.size() < room ? text.size() : room;
    std::memcpy(bytes_ + length_, text.data(), count);
    length_ += count;
  }
  void add(std::uint64_t number) noexcept {
    char digits[20];
    std::size_t at = sizeof digits;
    do digits[--at] = static_cast<char>('0' + number % 10);
    while ((number /= 10) != 0);
    add(std::string_view(digits + at, sizeof digits - at));
  }
  void write() noexcept {
    bytes_[length_++] = '\n';
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, bytes_, length_);
  }

 private:
  char bytes_[kTextBytes];
  std::size_t length_ = 0;
};

std::string_view access_of([[maybe_unused]] const void* context) noexcept {
#if defined(__x86_64__)
  constexpr greg_t kWrites = 2;  // of the error code of a page fault
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return (registers[REG_ERR] & kWrites) != 0 ? "a write to" : "a read of";
#else
  return "an access to";
#endif
}

void describe(const WatchedRange& range, std::uintptr_t address, std::string_view access,
              std::size_t page_bytes) noexcept {
  FaultText text;
  text.add("muster: check mode: ");
  text.add(range.name);
  text.add(": ");
  text.add(access);
  const std::size_t page = (address - range.begin) / page_bytes;
  const std::string* const reason = page < range.reasons.size() ? range.reasons[page].get() : nullptr;
  if (address < range.data) {
    text.add(" the byte ");
    text.add(range.data - address);
    text.add(" before its start");
  } else {
    text.add(" its byte ");
    text.add(address - range.data);
    if (address >= range.data + range.bytes) text.add(", which is past its end");
  }
  if (reason != nullptr) {
    text.add(": ");
    text.add(*reason);
  }
  text.write();
}

void tell(std::uintptr_t address, std::string_view access) noexcept {
  int tries = 0;
  while (held.test_and_set(std::memory_order_acquire)) {
    if (++tries == kTriesInHandler) return;
    ::sched_yield();
  }
  const auto found = ranges().upper_bound(address);
  if (found != ranges().end() && found->second->begin <= address)
    describe(*found->second, address, access, static_cast<std::size_t>(::getpagesize()));
  held.clear(std::memory_order_release);
}

// The default action comes when the instruction runs again, or when a signal that was sent comes again.
void pass_on(int number, siginfo_t* info, void* context) noexcept {
  if ((before_ours.sa_flags & SA_SIGINFO) != 0 && before_ours.sa_sigaction != nullptr)
    return before_ours.sa_sigaction(number, info, context);
  if (before_ours.sa_handler != SIG_DFL && before_ours.sa_handler != SIG_IGN)
    return before_ours.sa_handler(number);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(number, &standard, nullptr);
  if (info->si_code <= 0) ::raise(number);
}

void on_fault(int number, siginfo_t* info, void* context) noexcept {
  const int kept = errno;
  const bool sent = info->si_code <= 0;
  if (!sent) tell(reinterpret_cast<std::uintptr_t>(info->si_addr), access_of(context));
  pass_on(number, info, context);
  errno = kept;
}

// A child of fork() has the one thread that called it, so no other may hold the ranges then.
void stay_usable_after_fork() {
  const auto take = [] {
    while (held.test_and_set(std::memory_order_acquire)) ::sched_yield();
  };
  const auto give = [] { held.clear(std::memory_order_release); };
  ::pthread_atfork(take, give, give);
}

void install() {
  stay_usable_after_fork();
  struct sigaction ours {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGSEGV, &ours, &before_ours);
}

}  // namespace

FaultLock::FaultLock() noexcept {
  while (held.test_and_set(std::memory_order_acquire)) ::sched_yield();
}

FaultLock::~FaultLock() {
  held.clear(std::memory_order_release);
}

void watch(WatchedRange& range) {
  const FaultLock lock;
  [[maybe_unused]] static const bool installed = (install(), true);
  ranges()[range.end] = &range;
}

void unwatch(WatchedRange& range) noexcept {
  const FaultLock lock;
  ranges().erase(range.end);
}

}  // namespace muster::client
