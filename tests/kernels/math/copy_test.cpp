#include "kernels/math/copy.hpp"

#include "tests/kernels/math/simd_targets.hpp"
#include "tests/kernels/math/values.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::math {
namespace {

// Goal:   ordinary and streaming copies move exactly the bytes asked for, whatever the alignment of either
//         side.
TEST(Copy, MovesExactlyItsBytesFromAnyAddressToAnyAddress) {
  constexpr std::size_t kRoom = 5000;
  std::vector<std::byte> source(kRoom + 128);
  test::fill(MUSTER_U8, source.data(), source.size(), 17);
  test::on_every_target([&](const std::string&) {
    for (const std::size_t bytes : {0, 1, 63, 64, 127, 128, 129, 1000, 4096, 5000})
      for (const std::size_t streaming_from : {std::size_t{0}, std::size_t{1000}, kNeverStream})
        for (const std::size_t to : {0, 1, 31, 63})
          for (const std::size_t from : {0, 5, 32}) {
            std::vector<std::byte> target(kRoom + 128, std::byte{0xEE});
            std::vector<std::byte> expected = target;
            std::memcpy(expected.data() + to, source.data() + from, bytes);
            copy(target.data() + to, source.data() + from, bytes, streaming_from);
            ASSERT_EQ(target, expected) << bytes << " bytes from +" << from << " to +" << to;
          }
  });
}

TEST(Copy, OntoItselfDoesNothing) {
  std::vector<std::byte> memory(4096);
  test::fill(MUSTER_U8, memory.data(), memory.size(), 3);
  const std::vector<std::byte> before = memory;
  copy(memory.data(), memory.data(), memory.size(), 0);
  EXPECT_EQ(memory, before);
}

}  // namespace
}  // namespace muster::math
