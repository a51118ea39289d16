#include "tests/support/cost.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <new>

#include <dlfcn.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_OFF 0
#define PR_SYS_DISPATCH_ON 1
#endif

namespace {

constexpr char kAllow = 0;
constexpr char kBlock = 1;
static_assert(sizeof(std::atomic<char>) == 1 && std::atomic<char>::is_always_lock_free);

thread_local bool counting = false;
thread_local muster::test::Cost cost;
thread_local std::atomic<char> gate{kAllow};  // the kernel reads it before each system call of this thread
thread_local bool gated = false;

#if defined(MUSTER_SANITIZED)
bool can_gate() {
  return false;
}
#else
// The call is made after all: whoever is to be woken is woken.
void on_system_call(int, siginfo_t* info, void* context) {
  gate = kAllow;  // returning is one
  ++cost.system_calls;
  if (cost.first_system_call < 0) cost.first_system_call = info->si_syscall;
#if defined(__x86_64__)
  greg_t* const r = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const int before = errno;
  const long result =
      syscall(info->si_syscall, r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]);
  r[REG_RAX] = result == -1 ? -errno : result;
  errno = before;
#else
  static_cast<void>(context);
#endif
}

bool can_gate() {
  struct sigaction action {};
  action.sa_sigaction = on_system_call;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return false;
  const bool works = prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0L, 0L, &gate) == 0;
  if (works) prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0L, 0L, 0L);
  return works;
}

template<class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}
#endif

}  // namespace

namespace muster::test {

bool counts_system_calls() {
  static const bool works = can_gate();
  return works;
}

CostCounter::CostCounter() {
  if (counts_system_calls() && !gated)
    gated = prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0L, 0L, &gate) == 0;
  cost = Cost{};
  counting = true;
  if (gated) gate = kBlock;
}

Cost CostCounter::stop() {
  gate = kAllow;
  counting = false;
  running_ = false;
  return cost;
}

CostCounter::~CostCounter() {
  if (running_) stop();
}

}  // namespace muster::test

// ---- counted functions

#if defined(MUSTER_SANITIZED)
// The heap is the sanitizer's: only what C++ asks of it is seen.
void* operator new(std::size_t bytes) {
  if (counting) ++cost.allocations;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {  // std::stable_sort asks for it
  if (counting) ++cost.allocations;
  return std::malloc(bytes > 0 ? bytes : 1);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (counting) ++cost.allocations;
  const auto a = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(a, (bytes + a - 1) / a * a)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
#else
// glibc's own names for its heap. operator new comes by malloc.
extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* memory, std::size_t bytes);            // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)

void* malloc(std::size_t bytes) {
  if (counting) ++cost.allocations;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  if (counting) ++cost.allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  if (counting) ++cost.allocations;
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  if (counting) ++cost.allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  if (counting) ++cost.allocations;
  *memory = __libc_memalign(alignment, bytes);
  return *memory != nullptr ? 0 : ENOMEM;
}
}

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static const auto usual = next<int (*)(pthread_mutex_t*)>("pthread_mutex_lock");
  if (counting) ++cost.locks;
  return usual(mutex);
}
extern "C" int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  static const auto usual = next<int (*)(pthread_mutex_t*)>("pthread_mutex_trylock");
  if (counting) ++cost.locks;
  return usual(mutex);
}
#endif
