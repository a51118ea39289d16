#include "daemon/control/link/frame.hpp"

#include <algorithm>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::control {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> raw(std::initializer_list<int> bytes) {
  std::vector<std::byte> all;
  for (const int byte : bytes) all.push_back(std::byte(byte));
  return all;
}

TEST(Frames, ComeOutAsTheyWentInWhateverThePieces) {
  std::mt19937_64 random(5);
  std::vector<Json> sent;
  std::vector<std::byte> stream;
  for (int i = 0; i < 200; ++i) {
    sent.push_back({{"number", i}, {"text", std::string(random() % 300, 'x')}});
    const auto frame = *frame_of(sent.back());
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  FrameReader reader;
  std::vector<Json> got;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t piece = std::min<std::size_t>(1 + random() % 700, stream.size() - at);
    reader.add(std::span(stream).subspan(at, piece));
    at += piece;
    while (true) {
      auto next = reader.next();
      ASSERT_TRUE(next) << next.error().text();
      if (!*next) break;
      got.push_back(**std::move(next));
    }
  }
  EXPECT_EQ(got, sent);
}

TEST(Frames, AreRefusedByTheirLengthBeforeTheirBytesCome) {
  FrameReader reader;
  reader.add(raw({0x7f, 0xff, 0xff, 0xff}));
  const auto next = reader.next();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code(), Code::kProtocol);
  EXPECT_THAT(next.error().message(), HasSubstr("2147483647 bytes"));
  reader.add(*frame_of({{"good", true}}));
  EXPECT_FALSE(reader.next()) << "nobody knows where the next one begins";
}

TEST(Frames, MayBeLargerOnceThePeerIsKnown) {
  const auto large = *frame_of({{"text", std::string(kGreetingBytesMax, 'x')}});
  FrameReader stranger;
  stranger.add(large);
  EXPECT_FALSE(stranger.next());
  FrameReader known;
  known.set_limit(kFrameBytesMax);
  known.add(large);
  const auto next = known.next();
  ASSERT_TRUE(next) << next.error().text();
  EXPECT_TRUE(next->has_value());
  EXPECT_EQ(frame_of({{"text", std::string(kFrameBytesMax, 'x')}}).error().code(), Code::kBadArgument);
}

TEST(Frames, AreMapsOfBoundedDepth) {
  const std::vector<std::vector<std::byte>> bad{
      raw({0, 0, 0, 0}),              // empty
      raw({0, 0, 0, 1, 0x01}),        // a number
      raw({0, 0, 0, 2, 0xbf, 0xff}),  // of unknown length
      raw({0, 0, 0, 1, 0xa1}),        // cut off
      raw({0, 0, 0, 3, 0xa0, 0xa0, 0xa0}),
  };
  for (const auto& bytes : bad) {
    FrameReader reader;
    reader.add(bytes);
    EXPECT_EQ(reader.next().error().code(), Code::kProtocol);
  }
  std::vector<std::byte> deep(2000, std::byte{0x81});
  auto frame = raw({0, 0, 0x07, 0xd0});
  frame.insert(frame.end(), deep.begin(), deep.end());
  FrameReader reader;
  reader.add(frame);
  EXPECT_EQ(reader.next().error().code(), Code::kProtocol);
}

}  // namespace
}  // namespace muster::control
