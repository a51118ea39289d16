#include "daemon/engine/observe/recorder.hpp"

#include "api/client/direct/flight.hpp"
#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/support/manual_clock.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

namespace muster::engine {
namespace {

using control::Json;

// An engine that moves when the test says, and one rank's own record of its direct operations.
class RecorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto engine = Engine::create(test::small_job(2), clock_, nullptr, Engine::Pooling::kByHand);
    ASSERT_TRUE(engine) << engine.error().text();
    engine_ = *std::move(engine);
    const auto attached = engine_->attach(Rank(0), 1);
    ASSERT_TRUE(attached) << attached.error().text();
    segment_ = *shm::Mapping::map(shm::Descriptor(dup(attached->direct_segment)),
                                  attached->welcome.direct_bytes, shm::Mapping::Access::kReadWrite);
    page_ = *shm::Mapping::map(shm::Descriptor(dup(attached->group_page)), attached->welcome.group_bytes,
                               shm::Mapping::Access::kRead);
    ring_.emplace(segment_.writable(),
                  &reinterpret_cast<const shm::GroupPageHeader*>(page_.data())->recording);
  }
  void run(std::uint64_t operations) {
    const std::uint64_t what = shm::pack_what({0, MUSTER_BARRIER, 0, 0});
    for (std::uint64_t i = 0; i < operations; ++i) {
      clock_.advance(std::chrono::microseconds(1));
      ring_->began({what, 0, 0}, 0, 1, ++number_, clock_.now());
      clock_.advance(std::chrono::microseconds(1));
      ring_->ended(shm::DirectRecord::State::kWell, ring_->wants_end() ? clock_.now() : Instant(0));
    }
  }
  void begin() { ASSERT_TRUE(engine_->recorder().begin("a test").ok()); }
  // The recording, which ends.
  Json taken() {
    const auto text = engine_->recorder().end("a test");
    EXPECT_TRUE(text) << text.error().text();
    return text ? Json::parse(*text) : Json();
  }
  static std::ptrdiff_t operations(const Json& trace) {
    const Json& events = trace.at("traceEvents");
    return std::count_if(events.begin(), events.end(), [](const Json& event) {
      return event.at("ph") == "X" && event.at("cat") == "direct";
    });
  }
  static std::uint64_t dropped(const Json& trace) { return trace.at("otherData").at("dropped_events"); }

  muster::test::ManualClock clock_;
  std::unique_ptr<Engine> engine_;
  shm::Mapping segment_, page_;
  std::optional<client::FlightRing> ring_;
  std::uint64_t number_ = 0;
};

// Goal:   what ran before a recording is neither in it nor missed in it, however much that was.
TEST_F(RecorderTest, LeavesOutWhatRanBefore) {
  run(shm::kDirectRecords + 100);
  for (int round = 0; round < 2; ++round) {
    begin();
    run(3);
    engine_->run_once();
    run(4);
    const Json trace = taken();
    EXPECT_EQ(operations(trace), 7);
    EXPECT_EQ(dropped(trace), 0u);
    run(5);  // before the next recording
  }
}

// Goal:   a recording says how much it has missed of a rank that was faster than the engine.
TEST_F(RecorderTest, CountsWhatWasOverwrittenBeforeItWasTaken) {
  run(2);
  begin();
  run(shm::kDirectRecords + 100);
  const Json trace = taken();
  EXPECT_EQ(operations(trace), shm::kDirectRecords);
  EXPECT_EQ(dropped(trace), 100u);
}

}  // namespace
}  // namespace muster::engine
