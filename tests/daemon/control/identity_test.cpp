#include "daemon/control/identity.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster::control {
namespace {

Identity foreign() {
  Identity who(0);
  who.pid_namespace = 4711;
  who.user_namespace = 4712;
  who.account = Account(0, 4700);
  return who;
}

TEST(Identity, IsAUserAndWhereHeIs) {
  Identity elsewhere = foreign();
  EXPECT_EQ(Identity(1000), Identity(1000));
  EXPECT_FALSE(Identity(0) == elsewhere);
  elsewhere.user_namespace = 4713;
  EXPECT_FALSE(foreign() == elsewhere);
  elsewhere = foreign();
  elsewhere.account = 7;
  EXPECT_TRUE(foreign() == elsewhere) << "his share is not who he is";
}

TEST(Identity, GovernsOnThisNodeAlone) {
  EXPECT_TRUE(is_governor(0, 7));
  EXPECT_TRUE(is_governor(7, 7));
  EXPECT_FALSE(is_governor(8, 7));
  EXPECT_FALSE(is_governor(foreign(), 7));
  EXPECT_FALSE(is_governor(foreign(), 0));
}

TEST(Identity, HasAText) {
  EXPECT_EQ(text_of(Identity(1000)), "user 1000");
  EXPECT_EQ(text_of(foreign()), "user 0 of container 4711");
  Identity unknown(5);
  unknown.pid_namespace = unknown.user_namespace = Identity::kUnknown;
  EXPECT_EQ(text_of(unknown), "user 5 of an unknown place");
  EXPECT_FALSE(unknown == unknown) << "two whose place is not known may be two";
  EXPECT_EQ(check_known(unknown).code(), Code::kDenied);
  EXPECT_THAT(check_known(unknown).message(), ::testing::HasSubstr("MUSTER_JOB_KEY"));
  EXPECT_TRUE(check_known(foreign()).ok() && check_known(Identity(5)).ok());
  EXPECT_EQ(text_of(Account(1000)), "user 1000");
  EXPECT_EQ(text_of(Account(0, 4711)), "container 4711");
  EXPECT_EQ(text_of(Account(1000, Account::kOwnContainers)), "containers of user 1000");
}

TEST(Identity, TellsJobsOfOneNameApart) {
  EXPECT_EQ(scope_of(0, 0), "");
  EXPECT_EQ(scope_of(0, 7), "0");
  EXPECT_EQ(scope_of(1000, 0), "1000");
  EXPECT_EQ(scope_of(foreign(), 0), "0.4711-4712");
}

TEST(Identity, GoesThroughAMessageUnchanged) {
  for (const Identity& who : {Identity(0), Identity(1000), foreign()}) {
    nlohmann::json json;
    write_identity(who, json);
    const auto read = read_identity(json);
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(*read, who);
    EXPECT_EQ(read->account, who.account);
  }
}

// Goal:   no message makes a container into a user of this node.
TEST(Identity, IsRefusedWhereItContradictsItself) {
  nlohmann::json whole;
  write_identity(foreign(), whole);
  const auto refused = [&](const char* field, const nlohmann::json& value) {
    nlohmann::json json = whole;
    json[field] = value;
    return !read_identity(json);
  };
  EXPECT_TRUE(refused("account_container", 0));
  EXPECT_TRUE(refused("account_container", "4700"));
  EXPECT_TRUE(refused("owner_uid", -1));
  EXPECT_TRUE(refused("owner_uid", std::uint64_t{1} << 32));
  EXPECT_TRUE(refused("account_uid", nullptr));
  nlohmann::json half = whole;
  half.erase("owner_user_namespace");
  EXPECT_FALSE(read_identity(half));
  EXPECT_FALSE(read_identity(nlohmann::json::object()));
}

}  // namespace
}  // namespace muster::control
