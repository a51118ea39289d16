#include "daemon/supervisor/jobs/job_key.hpp"

#include "daemon/control/identity.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Goal:   a key becomes the first half of its SHA-256 (FIPS 180-4), which can be part of an id.
TEST(JobKey, IsKnownByItsDigest) {
  // printf %s 0123456789abcdef | sha256sum
  EXPECT_EQ(*digest_of_key("0123456789abcdef"), "9f9f5111f7b27a781f1f1ddde5ebc2dd");
  EXPECT_EQ(*digest_of_key(""), "") << "no key at all";
  const control::Actor actor(1000, false, *digest_of_key("0123456789abcdef"));
  EXPECT_EQ(control::key_in(control::scope_of(actor, 0)), actor.key);
}

// Goal:   a key that could be guessed is refused with what to do, and is not repeated.
TEST(JobKey, MustBeLong) {
  EXPECT_THAT(digest_of_key("secret").error().message(),
              AllOf(HasSubstr("has 6 bytes, and must have 16 to 255; `openssl rand -hex 32` prints one"),
                    Not(HasSubstr("secret"))));
  EXPECT_TRUE(digest_of_key(std::string(255, 'k')));
  EXPECT_FALSE(digest_of_key(std::string(256, 'k')));
  EXPECT_THAT(digest_of_key("0123456789abcde\n").error().message(), HasSubstr("a control character"));
}

}  // namespace
}  // namespace muster::supervisor
