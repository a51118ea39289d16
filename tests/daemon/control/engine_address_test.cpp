#include "daemon/control/engine_address.hpp"

#include "daemon/control/packet.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::control {
namespace {

using ::testing::HasSubstr;

// As a message comes: through bytes.
Json carried(const Json& message) {
  const auto cbor = Json::to_cbor(message);
  const auto back = parse_body(std::as_bytes(std::span(cbor)), kOfEngines);
  EXPECT_TRUE(back) << back.error().text();
  return *back;
}

EngineAddress address_of(std::size_t bytes) {
  EngineAddress address(bytes);
  for (std::size_t i = 0; i < bytes; ++i) address[i] = std::byte(i * 7 & 0xff);
  return address;
}

TEST(EngineAddress, SurvivesTheWay) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{300}, kAddressBytesMax}) {
    Json message{{"step", "prepared"}};
    write_address(address_of(bytes), message);
    EXPECT_EQ(message.contains("address"), bytes > 0);
    EXPECT_EQ(address_in(carried(message)), address_of(bytes));
  }
  const std::vector<EngineAddress> all{address_of(5), {}, address_of(kAddressBytesMax)};
  Json message = Json::object();
  ASSERT_TRUE(write_addresses(all, message).ok());
  EXPECT_EQ(addresses_in(carried(message), 3), all);
}

TEST(EngineAddress, SaysWhatIsWrong) {
  const auto one = [](const Json& value) { return address_in({{"address", value}}).error(); };
  EXPECT_THAT(one("10.0.0.1").text(), HasSubstr("must be bytes"));
  EXPECT_THAT(one(nullptr).text(), HasSubstr("must be bytes"));
  EXPECT_EQ(one(Json::array({1, 2})).code(), Code::kProtocol);
  Json large = Json::object();
  write_address(address_of(kAddressBytesMax + 1), large);
  EXPECT_THAT(address_in(large).error().text(), HasSubstr("65537 bytes"));
  EXPECT_EQ(addresses_in({{"addresses", Json::object()}}, 0).error().code(), Code::kProtocol);
  EXPECT_EQ(addresses_in(Json::object(), 0).error().code(), Code::kProtocol);
  EXPECT_TRUE(addresses_in({{"addresses", Json::array()}}, 0));
  EXPECT_THAT(addresses_in({{"addresses", Json::array()}}, 2).error().text(), HasSubstr("0 addresses"));
}

// Goal:   a node that the job does not have is not called.
TEST(EngineAddress, CallsNodesOfTheJob) {
  const auto calls = [](std::uint64_t node, std::uint64_t generation) {
    Json message = Json::object();
    const EngineCall call{NodeIndex(static_cast<std::uint32_t>(node)), address_of(3),
                          static_cast<std::uint32_t>(generation)};
    write_calls(std::span(&call, 1), message);
    return calls_in(carried(message), 3);
  };
  const auto last = calls(2, 7);
  ASSERT_TRUE(last) << last.error().text();
  ASSERT_EQ(last->size(), 1u);
  EXPECT_EQ(last->front().node, NodeIndex(2));
  EXPECT_EQ(last->front().generation, 7u);
  EXPECT_EQ(last->front().address, address_of(3));
  EXPECT_EQ(calls(3, 7).error().code(), Code::kProtocol) << "just behind the last one";
  EXPECT_EQ(calls_in(Json::object(), 3).error().code(), Code::kProtocol);
}

// Goal:   the addresses of a job fit into one message between nodes, or the job hears why not.
TEST(EngineAddress, BoundsAllTogether) {
  std::vector<EngineAddress> all(kAddressesBytesMax / kAddressBytesMax, address_of(kAddressBytesMax));
  Json message = Json::object();
  ASSERT_TRUE(write_addresses(all, message).ok());
  ASSERT_TRUE(addresses_in(message, all.size()));
  Json more = message;
  more["addresses"].push_back(message["addresses"][0]);
  EXPECT_THAT(addresses_in(more, all.size() + 1).error().text(), HasSubstr("bytes together"));
  all.push_back(address_of(1));
  const Status refused = write_addresses(all, message);
  EXPECT_EQ(refused.code(), Code::kNoResource);
  EXPECT_THAT(refused.message(), HasSubstr("13 engines"));
}

}  // namespace
}  // namespace muster::control
