// The duties of every device backend. Each backend instantiates the suite with a Rig: a device, and the three
// functions that tests need and that the seam leaves to the layers above.
#pragma once

#include "kernels/device/device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace muster::device::test {

// One backend under test.
//
// Owns    the device. Thread  the test's.  Bound  one per test.  Fails  call() as a stream does.
class Rig {
 public:
  virtual ~Rig() = default;
  virtual Device& device() = 0;
  // Runs a host function in the stream's order. `context` lives until it has run.
  virtual Status call(Stream& stream, void (*function)(void*), void* context) = 0;
  // Synchronous access to memory of the device.
  virtual std::vector<std::byte> read(const std::byte* address, std::size_t bytes) = 0;
  virtual void write(std::byte* address, const std::vector<std::byte>& bytes) = 0;
  // Maps the descriptor a second time, as another process would, and reads the first bytes through that
  // mapping.
  virtual std::vector<std::byte> read_through(int descriptor, std::size_t granted, std::size_t bytes) = 0;
  // How many streams can hold a blocked host function at the same time while others still run.
  virtual std::uint32_t blockable() const = 0;
};

// A backend, or the reason why this machine cannot run it.
struct Backend {
  std::string name;
  std::unique_ptr<Rig> (*open)(std::string* why_not);
};

inline void PrintTo(const Backend& backend, std::ostream* out) {
  *out << backend.name;
}

// Holds a stream until the test opens it: the only way to see that something waits without timing it.
class Gate {
 public:
  ~Gate() { open(); }
  void open() { open_.store(true, std::memory_order_release); }
  static void pass(void* self) {
    auto* gate = static_cast<Gate*>(self);
    gate->reached_.store(true, std::memory_order_release);
    while (!gate->open_.load(std::memory_order_acquire)) std::this_thread::yield();
  }
  void await_reached() const {
    while (!reached_.load(std::memory_order_acquire)) std::this_thread::yield();
  }

 private:
  std::atomic<bool> open_{false};
  std::atomic<bool> reached_{false};
};

// The numbers of the tasks that ran, in order.
class Journal {
 public:
  static constexpr std::size_t kMax = 4096;
  struct Line {
    Journal* journal;
    int number;
  };
  void* line(int number) {
    lines_.push_back(std::make_unique<Line>(Line{this, number}));
    return lines_.back().get();
  }
  static void write(void* line) {
    auto* l = static_cast<Line*>(line);
    l->journal->written_[l->journal->count_.fetch_add(1)].store(l->number);
  }
  std::vector<int> read() const {
    std::vector<int> all;
    for (std::size_t i = 0; i < count_.load(); ++i) all.push_back(written_[i].load());
    return all;
  }

 private:
  std::vector<std::unique_ptr<Line>> lines_;
  std::array<std::atomic<int>, kMax> written_{};
  std::atomic<std::size_t> count_{0};
};

class DeviceConformance : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    std::string why_not;
    rig_ = GetParam().open(&why_not);
    if (rig_ == nullptr) GTEST_SKIP() << GetParam().name << " cannot run here: " << why_not;
  }
  std::unique_ptr<Stream> stream(Priority priority = Priority::kNormal) {
    auto stream = rig_->device().open_stream(priority);
    EXPECT_TRUE(stream.has_value()) << stream.error().text();
    return std::move(*stream);
  }
  std::unique_ptr<Event> event() {
    auto event = rig_->device().create_event();
    EXPECT_TRUE(event.has_value()) << event.error().text();
    return std::move(*event);
  }
  void note(Stream& stream, int number) {
    const Status status = rig_->call(stream, Journal::write, journal_.line(number));
    ASSERT_TRUE(status.ok()) << status.text();
  }
  void hold(Stream& stream, Gate& gate) {
    const Status status = rig_->call(stream, Gate::pass, &gate);
    ASSERT_TRUE(status.ok()) << status.text();
  }

  std::unique_ptr<Rig> rig_;
  Journal journal_;
};

TEST_P(DeviceConformance, SaysWhatItIs) {
  const Device::Info& info = rig_->device().info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GT(info.memory_bytes, 0u);
  EXPECT_GT(info.units, 0u);
  EXPECT_EQ(stream()->kind(), info.kind);
}

TEST_P(DeviceConformance, RunsTheWorkOfAStreamInItsOrder) {
  auto s = stream();
  std::vector<int> expected;
  for (int i = 0; i < 50; ++i) {
    note(*s, i);
    expected.push_back(i);
  }
  ASSERT_TRUE(s->synchronize().ok());
  EXPECT_EQ(journal_.read(), expected);
  EXPECT_TRUE(s->health().ok());
}

TEST_P(DeviceConformance, SaysThatAnEventNeverRecordedIsFinished) {
  auto e = event();
  EXPECT_TRUE(e->query());
  e->synchronize();
}

TEST_P(DeviceConformance, FinishesAnEventOnlyAfterTheWorkBeforeIt) {
  Gate gate;
  auto s = stream();
  auto e = event();
  hold(*s, gate);
  note(*s, 1);
  ASSERT_TRUE(s->record(*e).ok());
  gate.await_reached();
  EXPECT_FALSE(e->query());
  gate.open();
  e->synchronize();
  EXPECT_TRUE(e->query());
  EXPECT_EQ(journal_.read(), (std::vector<int>{1}));
}

TEST_P(DeviceConformance, FinishesAnEventOfAnEmptyStream) {
  auto s = stream();
  auto e = event();
  ASSERT_TRUE(s->record(*e).ok());
  e->synchronize();
  EXPECT_TRUE(e->query());
}

// Goal:   an event tells when the work before it began and ended.
// Method: two spans on one stream, the first held by a gate: they do not overlap, and neither is turned
//         round.
TEST_P(DeviceConformance, TellsWhenTheWorkBeforeAnEventBeganAndEnded) {
  const SteadyClock clock;
  Gate gate;
  auto s = stream();
  auto first = event();
  auto second = event();
  auto empty = event();
  const Instant before = clock.now();
  hold(*s, gate);
  ASSERT_TRUE(s->record(*first).ok());
  gate.await_reached();
  gate.open();
  first->synchronize();
  ASSERT_TRUE(first->query());
  note(*s, 1);
  ASSERT_TRUE(s->record(*second).ok());
  second->synchronize();
  ASSERT_TRUE(second->query());
  ASSERT_TRUE(s->record(*empty).ok());
  empty->synchronize();
  ASSERT_TRUE(empty->query());
  const Instant after = clock.now();
  EXPECT_LE(before, first->began_at());
  EXPECT_LE(first->began_at(), first->reached_at());
  EXPECT_LE(second->began_at(), second->reached_at());
  EXPECT_LE(first->reached_at(), second->reached_at());
  EXPECT_LE(second->reached_at(), after);
  EXPECT_EQ(empty->began_at(), empty->reached_at());
}

// Goal:   a record starts a new life of the event; the old one is forgotten.
// Method: record on a held stream, then on a free one: the event speaks of the second record alone.
TEST_P(DeviceConformance, SpeaksOfTheLastRecordOnly) {
  Gate gate;
  auto held = stream();
  auto free = stream();
  auto e = event();
  hold(*held, gate);
  ASSERT_TRUE(held->record(*e).ok());
  gate.await_reached();
  ASSERT_FALSE(e->query());
  ASSERT_TRUE(free->record(*e).ok());
  e->synchronize();
  EXPECT_TRUE(e->query());
  gate.open();
  ASSERT_TRUE(held->synchronize().ok());
  EXPECT_TRUE(e->query());
}

TEST_P(DeviceConformance, HoldsAStreamBackUntilTheEventOfAnother) {
  Gate gate;
  auto first = stream();
  auto second = stream();
  auto e = event();
  auto done = event();
  hold(*first, gate);
  note(*first, 1);
  ASSERT_TRUE(first->record(*e).ok());
  ASSERT_TRUE(second->wait(*e).ok());
  note(*second, 2);
  ASSERT_TRUE(second->record(*done).ok());
  gate.await_reached();
  EXPECT_FALSE(done->query());
  gate.open();
  ASSERT_TRUE(second->synchronize().ok());
  EXPECT_EQ(journal_.read(), (std::vector<int>{1, 2}));
}

TEST_P(DeviceConformance, DoesNotWaitForAnEventNeverRecorded) {
  auto s = stream();
  auto e = event();
  ASSERT_TRUE(s->wait(*e).ok());
  note(*s, 1);
  ASSERT_TRUE(s->synchronize().ok());
  EXPECT_EQ(journal_.read(), (std::vector<int>{1}));
}

// Goal:   a wait means the record that was the last when wait() was called.
// Method: wait, then record the event again behind a gate that stays shut until the waiting stream is
//         through.
TEST_P(DeviceConformance, WaitsForTheRecordBeforeTheWaitNotForALaterOne) {
  if (rig_->blockable() < 2) GTEST_SKIP() << "this backend cannot hold two streams at a time";
  Gate first_gate, second_gate;
  auto source = stream();
  auto waiter = stream();
  auto e = event();
  hold(*source, first_gate);
  ASSERT_TRUE(source->record(*e).ok());
  ASSERT_TRUE(waiter->wait(*e).ok());
  note(*waiter, 1);
  hold(*source, second_gate);
  ASSERT_TRUE(source->record(*e).ok());
  first_gate.open();
  ASSERT_TRUE(waiter->synchronize().ok());
  EXPECT_EQ(journal_.read(), (std::vector<int>{1}));
  EXPECT_FALSE(e->query());
  second_gate.open();
  e->synchronize();
}

TEST_P(DeviceConformance, PassesAChainOfWaitsThroughManyStreams) {
  constexpr int kLinks = 12;
  Gate gate;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Event>> events;
  std::vector<int> expected;
  for (int i = 0; i < kLinks; ++i) {
    streams.push_back(stream());
    events.push_back(event());
    if (i == 0) {
      hold(*streams[0], gate);
    } else {
      ASSERT_TRUE(streams.back()->wait(*events[events.size() - 2]).ok());
    }
    note(*streams.back(), i);
    ASSERT_TRUE(streams.back()->record(*events.back()).ok());
    expected.push_back(i);
  }
  gate.await_reached();
  EXPECT_FALSE(events.back()->query());
  gate.open();
  events.back()->synchronize();
  EXPECT_EQ(journal_.read(), expected);
}

TEST_P(DeviceConformance, LetsAnEventGoWhileItsRecordAndAWaitAreQueued) {
  Gate gate;
  auto first = stream();
  auto second = stream();
  {
    auto e = event();
    hold(*first, gate);
    note(*first, 1);
    ASSERT_TRUE(first->record(*e).ok());
    ASSERT_TRUE(second->wait(*e).ok());
    note(*second, 2);
  }
  auto next = event();  // may live where the first one did
  EXPECT_TRUE(next->query());
  gate.open();
  ASSERT_TRUE(second->synchronize().ok());
  EXPECT_EQ(journal_.read(), (std::vector<int>{1, 2}));
}

TEST_P(DeviceConformance, RefusesWorkOnAFullStreamAndTakesItLater) {
  Gate gate;
  auto s = stream();
  auto e = event();
  hold(*s, gate);
  Status status;
  std::size_t taken = 0;
  for (; taken < 100'000; ++taken) {
    status = s->record(*e);
    if (!status.ok()) break;
  }
  EXPECT_EQ(status.code(), Code::kBusy) << status.text() << " after " << taken;
  EXPECT_GT(taken, 0u);
  gate.open();
  ASSERT_TRUE(s->synchronize().ok());
  EXPECT_TRUE(s->record(*e).ok());
  EXPECT_TRUE(s->health().ok()) << "a refusal is not a failure";
}

TEST_P(DeviceConformance, TouchesNothingOfAStreamAfterItWasClosed) {
  auto work = std::make_unique<std::vector<std::atomic<int>>>(64);
  {
    auto s = stream();
    for (auto& counter : *work) {
      const Status status = rig_->call(
          *s, [](void* c) { static_cast<std::atomic<int>*>(c)->fetch_add(1); }, &counter);
      if (status.code() == Code::kBusy) break;
      ASSERT_TRUE(status.ok()) << status.text();
    }
  }
  work.reset();  // a late write is found by the address sanitizer
  auto s = stream();
  note(*s, 1);
  ASSERT_TRUE(s->synchronize().ok());
}

TEST_P(DeviceConformance, GivesZeroedAlignedMemoryOfAtLeastTheSizeAskedFor) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4097}, std::size_t{3} << 20}) {
    auto memory = rig_->device().allocate(bytes);
    ASSERT_TRUE(memory.has_value()) << memory.error().text();
    EXPECT_GE((*memory)->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*memory)->data()) % 64, 0u);
    const std::size_t granted = (*memory)->bytes();
    EXPECT_EQ(rig_->read((*memory)->data(), granted), std::vector<std::byte>(granted));
  }
}

TEST_P(DeviceConformance, ZeroesMemoryThatWasUsedBefore) {
  constexpr std::size_t kBytes = 1 << 16;
  for (int round = 0; round < 3; ++round) {
    auto memory = rig_->device().allocate(kBytes);
    ASSERT_TRUE(memory.has_value()) << memory.error().text();
    EXPECT_EQ(rig_->read((*memory)->data(), kBytes), std::vector<std::byte>(kBytes));
    rig_->write((*memory)->data(), std::vector<std::byte>(kBytes, std::byte{0xa5}));
  }
}

TEST_P(DeviceConformance, ShowsTheSameBytesThroughTheDescriptor) {
  constexpr std::size_t kBytes = 10'000;
  auto memory = rig_->device().allocate(kBytes);
  ASSERT_TRUE(memory.has_value()) << memory.error().text();
  if ((*memory)->descriptor() < 0) GTEST_SKIP() << "this device cannot export memory";
  std::vector<std::byte> pattern(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) pattern[i] = static_cast<std::byte>(i * 7 + 3);
  rig_->write((*memory)->data(), pattern);
  EXPECT_EQ(rig_->read_through((*memory)->descriptor(), (*memory)->bytes(), kBytes), pattern);
}

TEST_P(DeviceConformance, RefusesAnAllocationThatNoDeviceCouldHold) {
  for (const std::size_t bytes : {std::numeric_limits<std::size_t>::max(), std::size_t{1} << 46}) {
    auto memory = rig_->device().allocate(bytes);
    ASSERT_FALSE(memory.has_value());
    EXPECT_EQ(memory.error().code(), Code::kNoResource) << memory.error().text();
    EXPECT_NE(memory.error().message().find("needed"), std::string::npos) << memory.error().message();
  }
}

TEST_P(DeviceConformance, RefusesAnAllocationOfNothing) {
  auto memory = rig_->device().allocate(0);
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code(), Code::kBadArgument);
}

// An event of another kind of device.
class ForeignEvent final : public Event {
 public:
  bool query() const noexcept override { return true; }
  void synchronize() const override {}
  Instant began_at() const noexcept override { return Instant{0}; }
  Instant reached_at() const noexcept override { return Instant{0}; }
};

TEST_P(DeviceConformance, RefusesAnEventOfAnotherKindOfDevice) {
  auto s = stream();
  ForeignEvent foreign;
  EXPECT_EQ(s->record(foreign).code(), Code::kBadArgument);
  EXPECT_EQ(s->wait(foreign).code(), Code::kBadArgument);
  EXPECT_TRUE(s->health().ok());
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceConformance);

}  // namespace muster::device::test
