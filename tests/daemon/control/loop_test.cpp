#include "daemon/control/loop.hpp"

#include "api/shm/descriptor.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

namespace muster::control {
namespace {

using namespace std::chrono_literals;

// Goal:   a timer that was unwatched is not called any more, even if it was due already.
// Method: everything is due before the loop runs, so that it finds all of it in one look; the first callback
//         takes the other one out.
TEST(Loop, CallsNoTimerThatWasUnwatchedWhileItWasDue) {
  Loop loop;
  const SteadyClock clock;
  int calls = 0;
  Loop::Watch first = 0;
  Loop::Watch second = 0;
  first = loop.after(0ns, [&] {
    ++calls;
    loop.unwatch(second);
  });
  second = loop.after(0ns, [&] {
    ++calls;
    loop.unwatch(first);
  });
  for (const Instant due = clock.now() + 2ms; clock.now() < due;) {
  }
  loop.after(20ms, [&] { loop.stop(); });
  loop.run();
  EXPECT_EQ(calls, 1);
}

TEST(Loop, CallsNoDescriptorThatWasUnwatchedWhileItWasReady) {
  Loop loop;
  const shm::Descriptor one(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  const shm::Descriptor two(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  int calls = 0;
  Loop::Watch first = 0;
  Loop::Watch second = 0;
  const auto callback = [&] {
    ++calls;
    loop.unwatch(first);
    loop.unwatch(second);
  };
  first = loop.watch(one.get(), callback);
  second = loop.watch(two.get(), callback);
  loop.after(20ms, [&] { loop.stop(); });
  loop.run();
  EXPECT_EQ(calls, 1);
}

TEST(Loop, RunsWhatWasPostedOnItsThread) {
  Loop loop;
  bool ran = false;
  loop.post([&] {
    ran = true;
    loop.stop();
  });
  loop.run();
  EXPECT_TRUE(ran);
}

// Goal:   a number that is another descriptor's by now is left alone.
// Method: the callback gives its descriptor up and closes it, and the next one gets its number at once.
TEST(Loop, LeavesTheNextDescriptorOfANumberAlone) {
  Loop loop;
  shm::Descriptor first(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  const int number = first.get();
  shm::Descriptor second;
  Loop::Watch watch = 0;
  int calls = 0;
  watch = loop.watch(number, [&] {
    loop.unwatch(watch);
    first.reset();
    second.reset(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    watch = loop.watch(second.get(), [&] {
      ++calls;
      loop.unwatch(watch);
      loop.stop();
    });
  });
  loop.after(2s, [&] { loop.stop(); });
  loop.run();
  EXPECT_EQ(second.get(), number) << "else this shows nothing";
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace muster::control
