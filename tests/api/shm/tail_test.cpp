#include "api/shm/tail.hpp"

#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <muster/kernels.h>

namespace muster::shm {
namespace {

using ::testing::HasSubstr;

muster_tensor tensor_of(std::mt19937_64& random, std::int32_t dims) {
  muster_tensor t = muster_none();
  t.buffer = random();
  t.offset_bytes = random();
  t.dtype = static_cast<muster_dtype>(random() % 11);
  t.dims = dims;
  for (std::int32_t d = 0; d < dims; ++d) {
    t.size[d] = static_cast<std::int64_t>(random());
    t.stride[d] = static_cast<std::int64_t>(random());
  }
  return t;
}

// Goal:   written tails are read back equal, whatever the dims, and take no more room than the dims need.
TEST(Tail, GivesFacesBackWithTheirDims) {
  std::mt19937_64 random(1);
  std::vector<muster_face> faces;
  std::vector<std::byte> bytes;
  std::size_t expected = 0;
  for (std::int32_t dims = 0; dims <= MUSTER_TENSOR_DIMS_MAX; ++dims) {
    faces.push_back({dims, static_cast<std::uint32_t>(random()), tensor_of(random, dims)});
    append(bytes, faces.back());
    expected += 32 + 16 * static_cast<std::size_t>(dims);
    EXPECT_EQ(bytes.size(), expected) << dims;
  }
  TailReader reader(bytes);
  std::vector<muster_face> read;
  ASSERT_TRUE(reader.take(static_cast<std::uint32_t>(faces.size()), "sends", &read).ok());
  EXPECT_TRUE(reader.end().ok());
  ASSERT_EQ(read.size(), faces.size());
  for (std::size_t i = 0; i < faces.size(); ++i)
    EXPECT_EQ(std::memcmp(&read[i], &faces[i], sizeof faces[i]), 0) << i;
}

TEST(Tail, GivesAKernelBack) {
  std::mt19937_64 random(2);
  muster_kernel kernel = muster_kernel_of(77);
  for (std::int32_t dims = 0; dims < 4; ++dims) muster_kernel_operand(&kernel, tensor_of(random, 2 * dims));
  for (int i = 0; i < 5; ++i) muster_kernel_int(&kernel, static_cast<std::int64_t>(random()));
  muster_kernel_real(&kernel, 0.25);
  const std::vector<std::byte> tail = tail_for(kernel);
  EXPECT_EQ(tail.size(), 4u * 24 + 12u * 16 + 5u * 8 + 8);
  const auto read = kernel_in(message_of(kernel), tail);
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(std::memcmp(&*read, &kernel, sizeof kernel), 0);
}

// Goal:   a kernel with more than there is room for is carried as far as there is room, with its true counts,
//         so that its refusal can name them.
TEST(Tail, CarriesCountsThatAreTooLarge) {
  muster_kernel kernel = muster_kernel_of(1);
  for (int i = 0; i < 40; ++i) {
    muster_kernel_operand(&kernel, muster_none());
    muster_kernel_int(&kernel, i);
    muster_kernel_real(&kernel, i);
  }
  const auto read = kernel_in(message_of(kernel), tail_for(kernel));
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->tensor_count, 40u);
  EXPECT_EQ(read->int_count, 40u);
  EXPECT_EQ(read->real_count, 40u);
  EXPECT_EQ(read->ints[31], 31);
  EXPECT_EQ(read->reals[7], 7.0);
}

// Goal:   a list that is longer than its message is refused by its name, before memory is taken for it.
TEST(Tail, RefusesListsThatAreLongerThanTheirMessage) {
  std::vector<std::byte> bytes;
  append(bytes, muster_face{1, 2, muster_view1(3, 0, MUSTER_F32, 4)});
  std::vector<muster_face> faces;
  const auto why = [&](std::uint32_t entries) {
    return TailReader(bytes).take(entries, "sends", &faces).message();
  };
  EXPECT_EQ(why(UINT32_MAX), "a message says 4294967295 entries of sends, but only 48 bytes follow");
  EXPECT_EQ(faces.capacity(), 0u);
  EXPECT_EQ(why(2), "a message says 2 entries of sends, but only 48 bytes follow");
  bytes.resize(bytes.size() + 24);
  EXPECT_EQ(why(2), "sends[1] is longer than the 16 bytes that are left of its message");
  bytes.resize(40);
  EXPECT_EQ(why(1), "sends[0] is longer than the 32 bytes that are left of its message");
  std::vector<std::uint64_t> numbers;
  EXPECT_EQ(TailReader(bytes).take(6, "source_counts", &numbers).message(),
            "a message says 6 entries of source_counts, but only 40 bytes follow");
  EXPECT_TRUE(numbers.empty());
  TailReader reader(bytes);
  EXPECT_TRUE(reader.take(4, "source_counts", &numbers).ok());
  EXPECT_EQ(reader.end().message(), "8 bytes follow behind all that a message says");
}

}  // namespace
}  // namespace muster::shm
