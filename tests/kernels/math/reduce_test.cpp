#include "kernels/math/reduce.hpp"

#include "api/base/assert.hpp"
#include "api/base/dtype.hpp"
#include "tests/kernels/math/scalar_reduce.hpp"
#include "tests/kernels/math/simd_targets.hpp"
#include "tests/kernels/math/values.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::math {
namespace {

constexpr std::size_t kGuard = 96;  // bytes before and after a target that must stay as they are
constexpr std::byte kFence{0xA5};

// Sources of one case, each at its own misaligned address.
class Sources {
 public:
  Sources(muster_dtype dtype, std::size_t n, std::size_t count, std::uint64_t seed)
      : bytes_(count * dtype_bytes(dtype)) {
    for (std::size_t k = 0; k < n; ++k) {
      memory_.emplace_back(bytes_ + 64 + kGuard, kFence);
      std::byte* first = memory_.back().data() + k * 7 % 64;
      test::fill(dtype, first, count, seed + k);
      addresses_.push_back(first);
    }
  }
  std::span<const std::byte* const> span() const { return addresses_; }
  std::byte* writable(std::size_t k) { return const_cast<std::byte*>(addresses_[k]); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<const std::byte*> addresses_;
};

std::string name_of(muster_dtype dtype, muster_redop redop, std::size_t n, std::size_t count) {
  return std::string(dtype_name(dtype)) + " " + test::redop_name(redop) + " of " + std::to_string(n) +
         " sources, " + std::to_string(count) + " elements";
}

// Runs reduce() into fenced memory; false (and a failure) if its bytes are not `expected` or a fence changed.
bool gives(muster_dtype dtype, muster_redop redop, const Sources& sources, std::size_t count,
           const std::vector<std::byte>& expected, std::size_t misaligned) {
  std::vector<std::byte> memory(sources.bytes() + 2 * kGuard, kFence);
  std::byte* target = memory.data() + kGuard - misaligned;
  reduce(dtype, redop, sources.span(), target, count, test::scale_for(dtype));
  const bool same = expected.empty() || std::memcmp(target, expected.data(), expected.size()) == 0;
  const auto is_fence = [](std::byte b) { return b == kFence; };
  const bool fenced = std::all_of(memory.data(), target, is_fence) &&
                      std::all_of(target + sources.bytes(), memory.data() + memory.size(), is_fence);
  EXPECT_TRUE(same) << name_of(dtype, redop, sources.span().size(), count);
  EXPECT_TRUE(fenced) << "wrote outside the target: " << name_of(dtype, redop, sources.span().size(), count);
  return same && fenced;
}

// Goal:   the bits of every result are those of the documented order, on every SIMD target.
// Method: all dtypes and operators, numbers of sources on both sides of each power of two, counts around
//         vector and tile sizes, no address aligned; compared with plain scalar loops.
TEST(Reduce, GivesTheBitsOfPlainLoopsOnEverySimdTarget) {
  constexpr std::size_t kSources[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 15, 16, 17, 23, 33, 70};
  constexpr std::size_t kCounts[] = {0, 1, 15, 16, 65, 1030, 4099};
  bool good = true;
  for (const muster_dtype dtype : test::kDtypes)
    for (const std::size_t n : kSources)
      for (const std::size_t count : kCounts) {
        if (count == 4099 && n > 9 && dtype != MUSTER_BF16 && dtype != MUSTER_U8) continue;
        const Sources sources(dtype, n, count, 1000 * n + count);
        for (const muster_redop redop : test::kRedops) {
          std::vector<std::byte> expected(sources.bytes());
          test::scalar_reduce(dtype, redop, sources.span(), expected.data(), count, test::scale_for(dtype));
          test::on_every_target([&](const std::string&) {
            good = good && gives(dtype, redop, sources, count, expected, count % 5);
          });
        }
        if (!good) return;  // one failing case is enough to read
      }
}

// One page of memory between two that nobody may touch.
//
// Owns    its mapping. Thread  one. Bound  a page. Fails  the test that makes it, without memory.
class GuardedPage {
 public:
  GuardedPage() : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    void* all = ::mmap(nullptr, 3 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUSTER_ASSERT(all != MAP_FAILED);
    begin_ = static_cast<std::byte*>(all) + page_;
    MUSTER_ASSERT(::mprotect(begin_, page_, PROT_READ | PROT_WRITE) == 0);
  }
  ~GuardedPage() { ::munmap(begin_ - page_, 3 * page_); }
  GuardedPage(const GuardedPage&) = delete;
  GuardedPage& operator=(const GuardedPage&) = delete;

  // `bytes` at the very beginning or the very end.
  std::byte* place(std::size_t bytes, bool at_end) { return at_end ? begin_ + page_ - bytes : begin_; }

 private:
  std::size_t page_;
  std::byte* begin_ = nullptr;
};

// Goal:   reduce() reads and writes nothing outside its vectors, however short, and short ones have the same
//         bits as long ones.
// Method: all vectors begin or end where memory does; every count up to two vectors of bytes and some more.
TEST(Reduce, TouchesNothingOutsideItsVectors) {
  constexpr std::size_t kSources = 9;
  GuardedPage pages[kSources + 1];
  bool good = true;
  for (const muster_dtype dtype : test::kDtypes)
    for (std::size_t count = 1; count * dtype_bytes(dtype) <= 130; ++count)
      for (const bool at_end : {false, true}) {
        const std::size_t bytes = count * dtype_bytes(dtype);
        std::vector<const std::byte*> all;
        for (std::size_t k = 0; k < kSources; ++k) {
          std::byte* source = pages[k].place(bytes, at_end);
          test::fill(dtype, source, count, 100 * count + k);
          all.push_back(source);
        }
        std::byte* target = pages[kSources].place(bytes, at_end);
        for (std::size_t n = 1; n <= kSources; ++n) {
          const std::span<const std::byte* const> sources(all.data(), n);
          std::vector<std::byte> expected(bytes);
          test::scalar_reduce(dtype, MUSTER_SUM, sources, expected.data(), count, 1.0);
          test::on_every_target([&](const std::string&) {
            std::memset(target, 0xEE, bytes);
            reduce(dtype, MUSTER_SUM, sources, target, count, 1.0);
            good = good && std::memcmp(target, expected.data(), bytes) == 0;
            EXPECT_TRUE(good) << name_of(dtype, MUSTER_SUM, n, count);
          });
        }
        if (!good) return;  // one failing case is enough to read
      }
}

TEST(Reduce, HasMoreThanOneSimdTargetToCompare) {
  const std::vector<std::string> names = test::on_every_target([](const std::string&) {});
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_GE(names.size(), 2u) << "AVX2 beside the scalar target";
  }
#endif
  EXPECT_THAT(names, ::testing::Contains(std::string(simd_target())));
}

// Goal:   the target may be any one of the sources.
TEST(Reduce, WorksInPlaceOnAnySource) {
  for (const muster_dtype dtype : test::kDtypes)
    for (const std::size_t n : {1, 2, 3, 4, 5, 8, 13, 21})
      for (std::size_t in_place = 0; in_place<n; in_place += n> 8 ? 5 : 1) {
        constexpr std::size_t kCount = 2500;  // tiles and a rest
        Sources sources(dtype, n, kCount, n);
        std::vector<std::byte> expected(sources.bytes());
        test::scalar_reduce(dtype, MUSTER_SUM, sources.span(), expected.data(), kCount, 1.0);
        reduce(dtype, MUSTER_SUM, sources.span(), sources.writable(in_place), kCount, 1.0);
        ASSERT_EQ(std::memcmp(sources.writable(in_place), expected.data(), expected.size()), 0)
            << name_of(dtype, MUSTER_SUM, n, kCount) << ", in place on " << in_place;
      }
}

// Goal:   many more sources than registers or tiles at once, up to the limit.
TEST(Reduce, TakesAsManySourcesAsItSays) {
  constexpr std::size_t kCount = 33;
  for (const std::size_t n : {kReduceSourcesMax - 1, kReduceSourcesMax}) {
    const Sources sources(MUSTER_BF16, n, kCount, 5);
    std::vector<std::byte> expected(sources.bytes());
    test::scalar_reduce(MUSTER_BF16, MUSTER_AVG, sources.span(), expected.data(), kCount, 1.0);
    std::vector<std::byte> actual(sources.bytes());
    reduce(MUSTER_BF16, MUSTER_AVG, sources.span(), actual.data(), kCount, 1.0);
    EXPECT_EQ(actual, expected) << n << " sources";
  }
}

// Goal:   the tests above can see order: a chain of additions gives other bits than the tree.
TEST(Reduce, AddsAsATreeAndNotAsAChain) {
  const float values[] = {1.0f, 1e8f, -1e8f, 1.0f};
  std::vector<const std::byte*> sources;
  for (const float& v : values) sources.push_back(reinterpret_cast<const std::byte*>(&v));
  float result = -1.0f;
  reduce(MUSTER_F32, MUSTER_SUM, sources, reinterpret_cast<std::byte*>(&result), 1, 1.0);
  EXPECT_EQ(result, (values[0] + values[1]) + (values[2] + values[3]));
  EXPECT_NE(result, ((values[0] + values[1]) + values[2]) + values[3]);
}

// Goal:   a product is rounded before it is added: no fused multiply-add anywhere.
// Method: a·s and b·s round to equal magnitudes, so the honest sum is zero; a fused one keeps the rounding
//         error.
TEST(Reduce, NeverFusesTheScaleWithTheSum) {
  const float third = 1.0f / 3.0f;
  const std::vector<float> a(64, third);
  const std::vector<float> b(64, -third);
  const std::byte* sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                reinterpret_cast<const std::byte*>(b.data())};
  test::on_every_target([&](const std::string&) {
    std::vector<float> result(64, -1.0f);
    reduce(MUSTER_F32, MUSTER_PREMUL_SUM, sources, reinterpret_cast<std::byte*>(result.data()), 64, 0.7);
    EXPECT_THAT(result, ::testing::Each(0.0f));
  });
}

template<class T>
T reduced(muster_dtype dtype, muster_redop redop, const std::vector<T>& values, double scale = 1.0) {
  std::vector<const std::byte*> sources;
  for (const T& v : values) sources.push_back(reinterpret_cast<const std::byte*>(&v));
  T result{};
  reduce(dtype, redop, sources, reinterpret_cast<std::byte*>(&result), 1, scale);
  return result;
}

TEST(Reduce, WrapsIntegersAndAveragesThemTowardsZero) {
  constexpr std::int32_t kMax32 = std::numeric_limits<std::int32_t>::max();
  constexpr std::int64_t kMin64 = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(reduced<std::int32_t>(MUSTER_I32, MUSTER_SUM, {kMax32, 1}),
            std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(reduced<std::int32_t>(MUSTER_I32, MUSTER_AVG, {kMax32, kMax32, kMax32}), kMax32) << "64-bit sum";
  EXPECT_EQ(reduced<std::int32_t>(MUSTER_I32, MUSTER_AVG, {-3, -4}), -3) << "-3.5 towards zero";
  EXPECT_EQ(reduced<std::int32_t>(MUSTER_I32, MUSTER_AVG, {3, 4}), 3);
  EXPECT_EQ(reduced<std::int64_t>(MUSTER_I64, MUSTER_AVG, {kMin64, kMin64}), 0) << "the sum of i64 wraps";
  EXPECT_EQ(reduced<std::uint8_t>(MUSTER_U8, MUSTER_SUM, {200, 100}), 44);
  EXPECT_EQ(reduced<std::uint8_t>(MUSTER_U8, MUSTER_AVG, {200, 101}), 150);
  EXPECT_EQ(reduced<std::uint8_t>(MUSTER_U8, MUSTER_MAX, {200, 100}), 200) << "bytes have no sign";
  EXPECT_EQ(reduced<std::uint8_t>(MUSTER_U8, MUSTER_PROD, {20, 13}), 4);
  EXPECT_EQ(reduced<std::uint8_t>(MUSTER_U8, MUSTER_PREMUL_SUM, {1, 2}, -1.0), 253);
  EXPECT_EQ(reduced<std::int8_t>(MUSTER_I8, MUSTER_SUM, {100, 100}), -56);
  EXPECT_EQ(reduced<std::int8_t>(MUSTER_I8, MUSTER_AVG, {100, 101}), 100);
  EXPECT_EQ(reduced<std::int8_t>(MUSTER_I8, MUSTER_AVG, {-3, -4}), -3) << "-3.5 towards zero";
  EXPECT_EQ(reduced<std::int8_t>(MUSTER_I8, MUSTER_AVG, {-128, -128, -128}), -128);
  EXPECT_EQ(reduced<std::int8_t>(MUSTER_I8, MUSTER_MAX, {-1, 1}), 1) << "these bytes have a sign";
  EXPECT_EQ(reduced<std::int8_t>(MUSTER_I8, MUSTER_MIN, {-1, 1}), -1);
  EXPECT_EQ(reduced<std::int8_t>(MUSTER_I8, MUSTER_PROD, {-20, 13}), -4);
  EXPECT_EQ(reduced<std::int8_t>(MUSTER_I8, MUSTER_PREMUL_SUM, {1, 2}, 100.0), 44);
  EXPECT_EQ(reduced<std::int32_t>(MUSTER_I32, MUSTER_MIN, {5, -7, 3}), -7);
  EXPECT_EQ(reduced<std::int64_t>(MUSTER_I64, MUSTER_PROD, {std::int64_t{1} << 62, 4}), 0);
  EXPECT_EQ(reduced<std::int64_t>(MUSTER_I64, MUSTER_PREMUL_SUM, {5, 6}, 1e12), 11'000'000'000'000);
}

// Goal:   a mean that misses an integer by the least possible is cut below it, as in integers of 64 bits.
// Method: up to as many sources as there may be, all at a limit of the type, but for one next to it.
template<class T>
void expect_exact_means(muster_dtype dtype) {
  for (const std::size_t n : {std::size_t{3}, kReduceSourcesMax - 1, kReduceSourcesMax})
    for (const T limit : {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()}) {
      if (limit == 0) continue;
      const T nearer = static_cast<T>(limit < 0 ? limit + 1 : limit - 1);
      std::vector<T> values(n, limit);
      EXPECT_EQ(reduced<T>(dtype, MUSTER_AVG, values), limit) << dtype_name(dtype) << ", " << n << " sources";
      values[n / 2] = nearer;
      EXPECT_EQ(reduced<T>(dtype, MUSTER_AVG, values), nearer)
          << dtype_name(dtype) << ", " << n << " sources";
    }
}

TEST(Reduce, AveragesIntegersExactlyWithAsManySourcesAsItTakes) {
  test::on_every_target([](const std::string&) {
    expect_exact_means<std::uint8_t>(MUSTER_U8);
    expect_exact_means<std::int8_t>(MUSTER_I8);
    expect_exact_means<std::int32_t>(MUSTER_I32);
  });
}

}  // namespace
}  // namespace muster::math
