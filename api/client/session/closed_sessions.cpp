#include "api/client/session/closed_sessions.hpp"

#include <deque>
#include <mutex>
#include <new>

#include <pthread.h>
#include <unistd.h>

namespace muster::client {
namespace {

// Never destroyed: a program may close a session while it exits.
struct Kept {
  std::mutex lock;
  std::deque<void*> memories;  // the one that was closed first is at the front
};

Kept& kept() {
  static Kept* const all = [] {
    // A child of fork() finds the list whole, and its lock free. Without the handlers it may not.
    (void)pthread_atfork([] { kept().lock.lock(); }, [] { kept().lock.unlock(); },
                         [] { kept().lock.unlock(); });
    return new Kept;
  }();
  return *all;
}

}  // namespace

Status SessionMark::why_not() const {
  if (is_checked()) return {};
  if (forks == kClosed)
    return failure(Code::kStale, "the session is closed: no call can use it; open another with muster_open");
  // A child has one fork more than its parent at least. Anything else is a pointer to something else.
  const bool inherited = (forks & ~kChecked) < muster::client::forks() && pid > 0 && pid != getpid();
  if (!inherited)
    return failure(Code::kStale, "there is no session at this address: it was closed, or never opened here");
  return failure(Code::kStale, "the session belongs to process {}; a child of fork() opens its own", pid);
}

void* take_session_memory(std::size_t bytes) {
  {
    const std::lock_guard guard(kept().lock);
    if (kept().memories.size() > kKeptSessions) {
      void* const memory = kept().memories.front();
      kept().memories.pop_front();
      return memory;
    }
  }
  return ::operator new(bytes);
}

void keep_session_memory(void* memory) noexcept {
  new (memory) SessionMark;
  try {
    const std::lock_guard guard(kept().lock);
    kept().memories.push_back(memory);
  } catch (const std::bad_alloc&) {  // then it stays as it is, for ever
  }
}

}  // namespace muster::client
