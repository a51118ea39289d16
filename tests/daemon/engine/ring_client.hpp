// A client without a process: its ends of a session's segments, held beside the engine.
#pragma once

#include "daemon/engine/job/engine.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::engine::test {

// Owns    its mappings; not the session.
// Thread  the test's.
// Bound   one rank.
// Fails   the test.
class RingClient {
 public:
  explicit RingClient(Session& session)
      : session_(session),
        submission_(*shm::SubmissionView::attach(copy_of(session.submission().descriptor().get()))),
        completion_(*shm::CompletionView::attach(copy_of(session.page().descriptor().get()))),
        ring_(shm::ring_writer(submission_, completion_)) {}

  Session& session() const { return session_; }
  std::uint64_t buffer(Engine& engine, std::uint64_t bytes, const std::byte** address = nullptr) {
    shm::BufferAlloc wanted;
    wanted.bytes = bytes;
    shm::BufferGrant grant;
    int descriptor = -1;
    const auto made = engine.buffers().alloc(session_, wanted, -1, &grant, &descriptor);
    EXPECT_TRUE(made) << made.error().text();
    if (address != nullptr) *address = session_.buffers().find(*made)->grant.data;
    return made->bits;
  }
  void push(const shm::Command& command) { ASSERT_EQ(ring_.push(command), Code::kOk); }
  void start(std::uint64_t plan, muster_lane lane, std::uint64_t wait = 0) {
    shm::Command command;
    command.kind = shm::Command::Kind::kStart;
    command.lane = static_cast<std::uint16_t>(lane);
    command.plan = plan;
    command.waits[0] = wait;
    push(command);
    ++starts_[lane];
  }
  void start_at(std::uint64_t plan, muster_lane lane, std::uint64_t source, std::uint64_t target) {
    shm::Command command;
    command.kind = shm::Command::Kind::kStartAt;
    command.lane = static_cast<std::uint16_t>(lane);
    command.plan = plan;
    command.waits[shm::kSourceOffsetAt] = source;
    command.waits[shm::kTargetOffsetAt] = target;
    push(command);
    ++starts_[lane];
  }
  void reset(muster_lane lane) {
    shm::Command command;
    command.kind = shm::Command::Kind::kResetLane;
    command.lane = static_cast<std::uint16_t>(lane);
    push(command);
  }
  Code test(std::uint64_t point) {
    return shm::CompletionReader(completion_.page(), submission_.writable_header()).test(point);
  }
  // The outcome of the latest start on the lane.
  Code latest(muster_lane lane) { return test(latest_point(lane)); }
  // The point of the latest start on the lane.
  std::uint64_t latest_point(muster_lane lane) const {
    return starts_[lane] == 0 ? MUSTER_POINT_NONE : shm::make_point(lane, starts_[lane]);
  }
  std::uint32_t quarantined(muster_lane lane) {
    return shm::CompletionReader(completion_.page(), submission_.writable_header()).quarantined(lane);
  }
  std::uint64_t counter(shm::Counter which) const {
    return shm::CounterReader(completion_.page()).value(which);
  }
  // The failure that has stopped the lane.
  Result<shm::CompletionReader::LaneFailure> failure(muster_lane lane) {
    return shm::CompletionReader(completion_.page(), submission_.writable_header()).failure(lane);
  }

 private:
  static shm::Descriptor copy_of(int descriptor) { return shm::Descriptor(::dup(descriptor)); }

  Session& session_;
  shm::SubmissionView submission_;
  shm::CompletionView completion_;
  shm::RingWriter<> ring_;
  std::array<std::uint64_t, shm::kLanesMax> starts_{};
};

}  // namespace muster::engine::test
