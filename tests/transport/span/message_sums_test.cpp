#include "transport/span/message_sums.hpp"

#include <gtest/gtest.h>

namespace muster::transport::span {
namespace {

TEST(MessageSums, MeetTheirMessagesInAnyOrder) {
  MessageSums sums(std::pmr::get_default_resource());
  Flow flow;
  EXPECT_FALSE(sums.said(5, 50));
  EXPECT_EQ(sums.came(5, 50, flow), std::optional(true));
  EXPECT_FALSE(sums.came(6, 60, flow));
  const auto waited = sums.said(6, 61);
  ASSERT_TRUE(waited);
  EXPECT_EQ(waited->first, &flow);
  EXPECT_FALSE(waited->second);
  EXPECT_FALSE(sums.any_waits());
}

// Goal:   each flow that waits comes back, also where a peer has given one tag to two messages.
TEST(MessageSums, LoseNoFlowForATagThatComesTwice) {
  MessageSums sums(std::pmr::get_default_resource());
  Flow first, second;
  EXPECT_FALSE(sums.came(7, 70, first));
  EXPECT_EQ(sums.came(7, 70, second), std::optional(false));
  EXPECT_EQ(sums.give_up_one(), &first);
  EXPECT_FALSE(sums.any_waits());
}

}  // namespace
}  // namespace muster::transport::span
