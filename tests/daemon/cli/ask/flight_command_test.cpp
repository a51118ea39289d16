#include "daemon/cli/ask/flight_command.hpp"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using namespace std::string_literals;

// Goal:   the bytes are those of pickle's protocol 2, opcode by opcode (CPython, Lib/pickletools.py).
TEST(Pickle, WritesEachKindOfValue) {
  const auto body = [](const Json& value) {
    const std::string bytes = pickled(value);
    EXPECT_EQ(bytes.substr(0, 2), "\x80\x02"s);
    EXPECT_EQ(bytes.back(), '.');
    return bytes.substr(2, bytes.size() - 3);
  };
  EXPECT_EQ(body(nullptr), "N"s);
  EXPECT_EQ(body(true), "\x88"s);
  EXPECT_EQ(body(false), "\x89"s);
  EXPECT_EQ(body(258), "J\x02\x01\x00\x00"s);
  EXPECT_EQ(body(-1), "J\xff\xff\xff\xff"s);
  EXPECT_EQ(body(std::int64_t{1} << 40), "\x8a\x08\x00\x00\x00\x00\x00\x01\x00\x00"s);
  EXPECT_EQ(body(1.5), "G\x3f\xf8\x00\x00\x00\x00\x00\x00"s);
  EXPECT_EQ(body("ab"), "X\x02\x00\x00\x00"s + "ab"s);
  EXPECT_EQ(body(Json::array()), "](e"s);
  EXPECT_EQ(body(Json::array({true, nullptr})), "](\x88Ne"s);
  EXPECT_EQ(body(Json::object()), "}(u"s);
  EXPECT_EQ(body(Json{{"k", true}}), "}(X\x01\x00\x00\x00"s + "k\x88u"s);
}

}  // namespace
}  // namespace muster::cli
