// An engine in the test's process, with sessions attached by hand: no supervisor, no socket.
#pragma once

#include "daemon/engine/job/conductor.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace muster::engine::test {

// A job of `world` ranks, small enough to be made for each test.
inline control::JobSpec small_job(std::uint32_t world) {
  control::JobSpec spec;
  spec.name = "job";
  spec.world = world;
  spec.mesh = fmt::format("dp_shard={}", world);
  spec.epoch = 77;
  spec.workers = world;
  spec.arena_bytes_max = std::uint64_t{16} << 20;
  spec.segment_bytes = std::uint64_t{2} << 20;
  spec.buffers_max = 64;
  spec.plans_max = 64;
  return spec;
}

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto engine = Engine::create(small_job(2), clock_);
    ASSERT_TRUE(engine) << engine.error().text();
    engine_ = *std::move(engine);
  }
  Session& attach(std::uint32_t rank) {
    auto attached = engine_->attach(Rank(rank), 1);
    EXPECT_TRUE(attached) << attached.error().text();
    return *attached->session;
  }

  // One request and the kind of its answer; kNone if the session would end.
  template<class T>
  shm::MessageKind ask(Session& session, T message, shm::MessageKind kind) {
    message.header = shm::MessageHeader{};
    message.header.kind = kind;
    message.header.bytes = sizeof message;
    message.header.serial = 5;
    return ask_bytes(session, std::as_bytes(std::span(&message, 1)));
  }
  shm::MessageKind ask_bytes(Session& session, std::span<const std::byte> bytes) {
    auto answer = serve(*engine_, session, bytes);
    if (!answer) {
      EXPECT_EQ(answer.error().code(), Code::kProtocol);
      return shm::MessageKind::kNone;
    }
    shm::MessageHeader header;
    EXPECT_GE(answer->bytes.size(), sizeof header);
    std::memcpy(&header, answer->bytes.data(), sizeof header);
    EXPECT_EQ(header.bytes, answer->bytes.size());
    answer_ = answer->bytes;
    return header.kind;
  }
  template<class T>
  T answered() const {
    T message;
    EXPECT_GE(answer_.size(), sizeof message);
    std::memcpy(&message, answer_.data(), sizeof message);
    return message;
  }

  SteadyClock clock_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::byte> answer_;
};

}  // namespace muster::engine::test
