// A client without libmuster: the socket and the descriptors that a welcome brings, to do with as one likes.
#pragma once

#include "api/shm/message.hpp"
#include "api/shm/segment.hpp"
#include "api/shm/socket.hpp"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::test {

// Owns    its descriptors and mappings.
// Thread  one at a time.
// Bound   answers within kPatience.
// Fails   the constructor fails the test; `attached` says whether it was welcomed.
struct RawClient {
  static constexpr Nanos kPatience = std::chrono::seconds(20);

  RawClient(const std::string& endpoint, const shm::Hello& hello) : buffer(shm::kMessageBytesMax) {
    auto connected = shm::connect_to(endpoint, soon(), clock);
    EXPECT_TRUE(connected) << connected.error().text();
    if (!connected) return;
    socket = *std::move(connected);
    EXPECT_TRUE(shm::send_message(socket, shm::bytes_of(hello)).ok());
    auto message = shm::receive_message(socket, buffer, soon(), clock);
    if (!message) return;
    const auto answer = shm::checked_answer<shm::Welcome>(std::span(buffer).first(message->bytes),
                                                          shm::MessageKind::kWelcome, hello.header.serial);
    if (!answer) {
      refusal = answer.error();
      return;
    }
    welcome = *answer;
    for (auto& descriptor : message->descriptors) descriptors.push_back(std::move(descriptor));
    attached = descriptors.size() == 5;
    EXPECT_TRUE(attached);
    if (!attached) return;
    submission = *shm::SubmissionView::attach(copy(descriptors[0]));
    completion = *shm::CompletionView::attach(copy(descriptors[1]));
  }
  static shm::Hello hello_of(const char* job, int rank, int world) {
    auto hello = shm::make_message<shm::Hello>(shm::MessageKind::kHello, 1);
    EXPECT_TRUE(shm::set_text(hello.job, job, "job").ok());
    hello.rank = hello.local_rank = rank;
    hello.world_size = hello.local_size = world;
    return hello;
  }

  Instant soon() const { return clock.now() + kPatience; }
  static shm::Descriptor copy(const shm::Descriptor& descriptor) {
    return shm::Descriptor(::dup(descriptor.get()));
  }
  int bell() const { return descriptors[2].get(); }
  // The daemon has ended the connection.
  bool ended() {
    for (;;) {
      const auto message = shm::receive_message(socket, buffer, soon(), clock);
      if (!message) return message.error().code() == Code::kDaemonLost;
      if (message->bytes == 0) return true;
    }
  }
  // Why the daemon closed the session; kOk: it has not.
  Code closed() const {
    shm::CompletionReader reader(completion->page(), submission->writable_header());
    return reader.closed();
  }
  Code await_closed() const {
    const Instant end = soon();
    while (closed() == Code::kOk && clock.now() < end) ::usleep(1000);
    return closed();
  }

  SteadyClock clock;
  shm::Descriptor socket;
  std::vector<shm::Descriptor> descriptors;  // submission, completion, bell, direct segment, group page
  std::optional<shm::SubmissionView> submission;
  std::optional<shm::CompletionView> completion;
  shm::Welcome welcome;
  Status refusal;
  bool attached = false;
  std::vector<std::byte> buffer;
};

}  // namespace muster::test
