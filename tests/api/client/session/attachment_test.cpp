// A daemon that sends its reason and hangs up before the rank has asked: the rank gets the reason.
#include "api/client/session/attachment.hpp"

#include "api/base/fault_point.hpp"
#include "api/shm/endpoint.hpp"
#include "api/shm/message.hpp"
#include "tests/support/folder.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

// Runs between the rank's connection and its Hello.
std::function<void()> g_on_connected;

}  // namespace

void fault::come_to(std::size_t point, std::span<std::byte> /*memory*/) noexcept {
  if (point == index_of("attach.connected")) g_on_connected();
}

namespace client {
namespace {

// Goal:   a daemon without room may close before it reads; the rank hears its reason, and not that it is
// gone.
TEST(Attachment, HearsWhyTheDaemonHasHungUpBeforeItsHello) {
  const test::Folder folder;
  bootstrap::LaunchedRank identity;
  identity.rank = 0;
  identity.world_size = 1;
  identity.job = "job";
  identity.endpoint = folder.path() + "/full.sock";
  const auto daemon = shm::Listener::open(shm::ranks_socket_at(identity.endpoint), {});
  ASSERT_TRUE(daemon) << daemon.error().text();
  int knocks = 0;
  g_on_connected = [&] {
    ++knocks;
    const auto rank = daemon->accept();
    ASSERT_TRUE(rank) << rank.error().text();
    const Status full = failure(Code::kNoResource, "the daemon has no room for another rank");
    EXPECT_TRUE(shm::send_message(*rank, shm::bytes_of(shm::make_failure(full, 0))).ok());
  };
  const auto attached = attach(identity, std::chrono::seconds(30));
  ASSERT_FALSE(attached);
  EXPECT_EQ(attached.error().code(), Code::kNoResource);
  EXPECT_EQ(attached.error().message(), "the daemon has no room for another rank");
  EXPECT_EQ(knocks, 1);
}

}  // namespace
}  // namespace client
}  // namespace muster
