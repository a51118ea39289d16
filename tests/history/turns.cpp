#include "tests/history/turns.hpp"

#include "api/base/assert.hpp"
#include "api/base/fault_point.hpp"

#include <cerrno>
#include <cstdarg>
#include <ctime>
#include <utility>

#include <dlfcn.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

namespace muster::test {
namespace {

Turns* the_turns = nullptr;

}  // namespace

#if defined(__x86_64__)
// Saves the registers that a call preserves on the old stack. swapcontext() would also call the kernel for
// signal masks.
asm(R"(
.pushsection .text
.type muster_test_switch, @function
muster_test_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size muster_test_switch, .-muster_test_switch
.popsection
)");
extern "C" void muster_test_switch(void** left, void* next);

struct Stacks {
  void* own = nullptr;
  void* caller = nullptr;
  void begin(void* stack, std::size_t bytes, void (*enter)()) {
    auto** top = reinterpret_cast<void**>(static_cast<std::byte*>(stack) + bytes);
    *--top = nullptr;  // where enter() would return to: a call leaves the stack so aligned
    *--top = reinterpret_cast<void*>(enter);
    own = top - 6;  // the registers, which mean nothing yet
  }
  void go_on() { muster_test_switch(&caller, own); }
  void pause() { muster_test_switch(&own, caller); }
};
#else
struct Stacks {
  ucontext_t own{};
  ucontext_t caller{};
  void begin(void* stack, std::size_t bytes, void (*enter)()) {
    ::getcontext(&own);
    own.uc_stack.ss_sp = stack;
    own.uc_stack.ss_size = bytes;
    own.uc_link = nullptr;
    ::makecontext(&own, enter, 0);
  }
  void go_on() { ::swapcontext(&caller, &own); }
  void pause() { ::swapcontext(&own, &caller); }
};
#endif

struct Fiber::Context {
  void* stack = nullptr;
  Stacks stacks;
  std::function<void()> body;
  Pause why = Pause::kOver;
};

namespace {

void* going = nullptr;  // the context of the fiber whose turn it is

}  // namespace

Fiber::Fiber() : context_(std::make_unique<Context>()) {
  context_->stack =
      ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  MUSTER_ASSERT(context_->stack != MAP_FAILED);
}

Fiber::~Fiber() {
  ::munmap(context_->stack, kStackBytes);
}

void Fiber::begin(std::function<void()> body) {
  context_->body = std::move(body);
  context_->stacks.begin(context_->stack, kStackBytes, &Fiber::enter);
}

void Fiber::enter() {
  static_cast<Context*>(going)->body();
  pause(Pause::kOver);
}

Fiber::Pause Fiber::go_on() {
  MUSTER_ASSERT(going == nullptr);
  going = context_.get();
  context_->stacks.go_on();
  going = nullptr;
  return context_->why;
}

void Fiber::pause(Pause why) {
  auto* const context = static_cast<Context*>(going);
  context->why = why;
  context->stacks.pause();
}

bool Fiber::inside() {
  return going != nullptr;
}

Turns::Turns(std::uint64_t seed) : random_(seed), one_in_(0) {
  constexpr std::uint64_t kOften[] = {2, 8, 40, 0};
  one_in_ = kOften[random_() % std::size(kOften)];
  clock.advance(std::chrono::seconds(1000));
  the_turns = this;
}

Turns::~Turns() {
  the_turns = nullptr;
}

Turns* Turns::now() {
  return the_turns;
}

bool Turns::by_chance() {
  return one_in_ != 0 && random_() % one_in_ == 0;
}

}  // namespace muster::test

// ---- replacements of waits and of the clock ------------------------------------------------------

namespace muster {

Instant SteadyClock::now() const noexcept {
  if (const test::Turns* turns = test::Turns::now()) return turns->clock.now();
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec);
}

namespace fault {

// Points of a wait stand beside the call in which it gives its turn up.
void come_to(std::size_t point, std::span<std::byte>) noexcept {
  const bool waits = kPoints[point].starts_with("meet.") || kPoints[point].starts_with("point.");
  if (!waits && test::Fiber::inside() && test::Turns::now()->by_chance())
    test::Fiber::pause(test::Fiber::Pause::kPoint);
}

}  // namespace fault
}  // namespace muster

namespace {

using muster::test::Fiber;

template<class Call>
Call* next(const char* name) {
  return reinterpret_cast<Call*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int sched_yield() noexcept {
  if (Fiber::inside()) Fiber::pause(Fiber::Pause::kWait);
  return 0;
}

int nanosleep(const timespec* span, timespec* left) {
  static auto* const real = next<int(const timespec*, timespec*)>("nanosleep");
  if (!Fiber::inside()) return real(span, left);
  muster::test::Turns::now()->sleep = std::chrono::seconds(span->tv_sec) + muster::Nanos(span->tv_nsec);
  Fiber::pause(Fiber::Pause::kSleep);
  return 0;
}

int poll(pollfd* entries, nfds_t count, int ms) {
  static auto* const real = next<int(pollfd*, nfds_t, int)>("poll");
  if (!Fiber::inside() || ms == 0) return real(entries, count, ms);
  Fiber::pause(Fiber::Pause::kAsk);
  return 1;  // its caller looks
}

// All is one thread: nobody sleeps on a futex, and no other core needs a fence.
long syscall(long number, ...) noexcept {
  long given[6];
  va_list list;
  va_start(list, number);
  for (long& each : given) each = va_arg(list, long);
  va_end(list);
  if (muster::test::Turns::now() != nullptr) {
    if (number == SYS_membarrier) return 0;
    if (number == SYS_futex && (given[1] & FUTEX_CMD_MASK) == FUTEX_WAKE) return 0;
    if (number == SYS_futex && Fiber::inside()) {
      Fiber::pause(Fiber::Pause::kWait);
      return 0;
    }
  }
  static auto* const real = next<long(long, long, long, long, long, long, long)>("syscall");
  return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

}  // extern "C"
