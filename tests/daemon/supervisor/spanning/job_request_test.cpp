#include "daemon/supervisor/spanning/job_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using control::Json;
using ::testing::HasSubstr;

// Two nodes of two ranks each, of which this is the second.
Options options() {
  Options options;
  options.roster.cluster = "lab";
  options.roster.here = "node02";
  for (const char* name : {"node01", "node02"}) options.roster.members.push_back({name, {}});
  return options;
}
control::JobSpec spec_of(const control::Actor& owner) {
  control::JobSpec spec = options().job_defaults;
  spec.name = "train";
  spec.world = *World::build({"node01", "node02"}, std::vector<std::uint32_t>{0, 0, 1, 1}, NodeIndex(0));
  spec.mesh = "dp_shard=4";
  spec.deadline = std::chrono::seconds(60);
  spec.owner = owner.who;
  spec.scope = control::scope_of(owner, spec.owner.uid);
  spec.asked_on = "node01";
  spec.gathered = true;
  return spec;
}

// Goal:   a request carries the digest of the job's key, and one without a key none.
TEST(JobWish, CarriesTheKey) {
  const std::string key(control::kKeyDigestChars, 'a');
  const control::JobSpec with = spec_of({1000, false, key}), without = spec_of(1000);
  EXPECT_FALSE(request_of(without).contains("key"));
  const auto read =
      job_of_request(Json::from_cbor(Json::to_cbor(request_of(with))), options());  // as it travels
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->id(), "train@key." + key);
  EXPECT_TRUE(read->gathered);
}

// Goal:   another node's key is checked: it becomes part of an id.
TEST(JobWish, RefusesWhatIsNoDigest) {
  Json request = request_of(spec_of({1000, false, std::string(control::kKeyDigestChars, 'a')}));
  for (const Json& key : {Json(""), Json(7), Json("abc"), Json(std::string(control::kKeyDigestChars, 'A')),
                          Json(std::string(control::kKeyDigestChars + 1, 'a'))}) {
    request["key"] = key;
    const auto read = job_of_request(request, options());
    ASSERT_FALSE(read) << key;
    EXPECT_THAT(read.error().message(), HasSubstr("its key must be 32 digits of a digest"));
  }
}

TEST(JobWish, SaysWhereTheHostsOfTheClusterAreListed) {
  Options elsewhere = options();
  elsewhere.job_defaults.endpoint = "/tmp/other";
  const NodeShares shares{{"node01", 2}, {"node09", 2}};
  for (const auto& [here, command] :
       {std::pair(options(), "(`muster status`)"), {elsewhere, "(`muster status --endpoint /tmp/other`)"}}) {
    const auto refused = world_of(shares, {}, here);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message(), std::string("node node09 is no host of cluster lab ") + command);
  }
}

}  // namespace
}  // namespace muster::supervisor
