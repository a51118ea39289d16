// The SIGSEGV handler of check mode, without a session.
#include "api/client/check/faults.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::client {
namespace {

// A page that nobody may touch, and what is told of it.
class WatchedPage {
 public:
  WatchedPage() : bytes_(static_cast<std::size_t>(::getpagesize())) {
    page_ = static_cast<char*>(::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    range_.begin = range_.data = reinterpret_cast<std::uintptr_t>(page_);
    range_.end = range_.begin + bytes_;
    range_.bytes = bytes_;
    range_.name = "rank 0: buffer 0x1 of a page";
    range_.reasons.push_back(std::make_shared<const std::string>("it is closed"));
    watch(range_);
  }
  ~WatchedPage() {
    unwatch(range_);
    ::munmap(page_, bytes_);
  }
  WatchedPage(const WatchedPage&) = delete;
  WatchedPage& operator=(const WatchedPage&) = delete;

  void touch() { std::atomic_ref<char>(*page_).store(1, std::memory_order_relaxed); }

 private:
  std::size_t bytes_;
  char* page_ = nullptr;
  WatchedRange range_;
};

// A sanitizer ends the process by its own handler, to which ours passes the signal on.
bool ended_by_a_fault(int status) {
  return (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) ||
         (WIFEXITED(status) && WEXITSTATUS(status) != 0);
}

TEST(Faults, AreToldInWords) {
  WatchedPage page;
  EXPECT_EXIT(page.touch(), ended_by_a_fault,
              "muster: check mode: rank 0: buffer 0x1 of a page: .* its byte 0: it is closed");
}

// Only the thread that forks goes on in the child, so what another holds there would be held for ever.
TEST(Faults, AreToldInAChildThatWasForkedWhileAnotherThreadHeldTheRanges) {
  WatchedPage page;
  std::promise<void> holds;
  std::thread holder([&] {
    const FaultLock lock;
    holds.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  holds.get_future().wait();
  EXPECT_EXIT(page.touch(), ended_by_a_fault, "rank 0: buffer 0x1 of a page");
  holder.join();
}

}  // namespace
}  // namespace muster::client
