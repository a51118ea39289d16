#include "daemon/supervisor/takeover/saved_state.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

shm::Descriptor copy_of(const shm::Descriptor& descriptor) {
  return shm::Descriptor(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 3));
}

SavedJob job_named(const std::string& name) {
  SavedJob job;
  job.spec.name = name;
  job.spec.mesh = "dp_shard=1";
  job.spec.epoch = 0x1f;
  return job;
}

TEST(SavedState, IsFoundByItsSuccessor) {
  auto first = SavedState::create(4711, Instant(5));
  ASSERT_TRUE(first);
  first->begin_instance();
  first->save({job_named("train")}, true);
  auto second = SavedState::create(1, Instant(9));
  ASSERT_TRUE(second);
  const auto found = second->adopt(copy_of(first->file()));
  second->begin_instance();
  EXPECT_TRUE(found.understood);
  ASSERT_EQ(found.jobs.size(), 1u);
  EXPECT_EQ(found.jobs.front().spec.name, "train");
  EXPECT_EQ(second->state().epoch, 4711u) << "of the first at this place";
  EXPECT_EQ(second->state().started_ns, 5);
  EXPECT_EQ(second->state().instance, 2u);
  EXPECT_TRUE(second->state().managers_socket_stood);
  EXPECT_EQ(second->read_version(), state_format().version);
}

TEST(SavedState, BeginsAnewWhereNoneWasKept) {
  auto state = SavedState::create(1, Instant(9));
  ASSERT_TRUE(state);
  const auto found = state->adopt({});
  EXPECT_FALSE(found.understood);
  EXPECT_TRUE(found.speaks_alike) << "as far as is known";
  EXPECT_NE(found.why_lost.find("no state of its predecessor"), std::string::npos) << found.why_lost;
  EXPECT_EQ(state->state().epoch, 1u);
  EXPECT_EQ(state->read_version(), 0u);
}

// Goal:   engines that speak otherwise are not spoken to, and their state is not gone on with.
TEST(SavedState, DoesNotGoOnWithOneWhoseEnginesSpeakOtherwise) {
  // 8: that of version 0.1.
  for (const std::uint32_t protocol : {8u, shm::kAbiVersion + 1}) {
    auto file = StateFile::create();
    ASSERT_TRUE(file);
    State other;
    other.epoch = 4711;
    other.protocol = protocol;
    ASSERT_TRUE(file->write(other, state_format()).ok());
    auto state = SavedState::create(1, Instant(9));
    ASSERT_TRUE(state);
    const auto found = state->adopt(copy_of(file->descriptor()));
    EXPECT_FALSE(found.understood);
    EXPECT_FALSE(found.speaks_alike);
    const std::string words = fmt::format(
        "cannot take its predecessor's jobs over: its engines speak version {} of messages, and this program "
        "version {}; end the jobs, then restart the daemon",
        protocol, shm::kAbiVersion);
    EXPECT_NE(found.why_lost.find(words), std::string::npos) << found.why_lost;
    EXPECT_EQ(state->state().epoch, 1u);
  }
}

}  // namespace
}  // namespace muster::supervisor
