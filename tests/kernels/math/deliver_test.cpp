#include "kernels/math/deliver.hpp"

#include "api/base/dtype.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/reduce.hpp"
#include "tests/kernels/math/simd_targets.hpp"
#include "tests/kernels/math/values.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::math {
namespace {

constexpr std::size_t kFenceBytes = 64;  // bytes around a vector that must stay as they are

// Vectors of `bytes`, the k-th `offsets[k]` bytes behind the begin of a line.
class Vectors {
 public:
  Vectors(std::size_t bytes, const std::vector<std::size_t>& offsets) : bytes_(bytes) {
    for (const std::size_t offset : offsets) {
      memory_.emplace_back(bytes + offset + 3 * kFenceBytes, std::byte{0xA5});
      std::byte* first = memory_.back().data() + kFenceBytes;
      first += (kFenceBytes - reinterpret_cast<std::uintptr_t>(first) % kFenceBytes) % kFenceBytes + offset;
      addresses_.push_back(first);
    }
  }
  const std::vector<std::byte*>& addresses() const { return addresses_; }
  bool holds(std::size_t k, const std::vector<std::byte>& expected) const {
    const std::byte* first = addresses_[k];
    bool good = std::equal(expected.begin(), expected.end(), first, first + bytes_);
    for (const std::byte* at = memory_[k].data(); at < memory_[k].data() + memory_[k].size(); ++at)
      if (at < first || at >= first + bytes_) good = good && *at == std::byte{0xA5};
    return good;
  }

 private:
  std::size_t bytes_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> addresses_;
};

constexpr std::array<std::size_t, 2> kStreamingFrom = {0, kNeverStream};

TEST(CopyToAll, MovesExactlyItsBytesToEachTargetButTheSource) {
  test::on_every_target([&](const std::string&) {
    for (const std::size_t bytes : {0, 1, 200, 1024, 16384, 40000})
      for (const std::size_t streaming_from : kStreamingFrom) {
        std::vector<std::byte> source(bytes);
        test::fill(MUSTER_U8, source.data(), bytes, 5);
        const std::vector<std::byte> expected = source;
        for (const std::vector<std::size_t>& offsets :
             {std::vector<std::size_t>{0}, {0, 0}, {1, 63, 0}, {8, 0, 32, 7, 0}}) {
          const Vectors targets(bytes, offsets);
          std::vector<std::byte*> to = targets.addresses();
          to.push_back(source.data());
          copy_to_all(to, source.data(), bytes, streaming_from);
          for (std::size_t k = 0; k < offsets.size(); ++k)
            ASSERT_TRUE(targets.holds(k, expected)) << bytes << " bytes, target " << k;
          ASSERT_EQ(source, expected);
        }
      }
  });
}

// Goal:   every target has the bits of reduce(), wherever it lies and however it is written.
TEST(ReduceToAll, GivesEachTargetTheBitsOfReduce) {
  test::on_every_target([&](const std::string&) {
    for (const muster_dtype dtype : test::kDtypes)
      for (const std::size_t count : {0, 1, 17, 1030, 9000})
        for (const std::size_t members : {1, 2, 5, 9}) {
          const std::size_t element = dtype_bytes(dtype);
          const Vectors sources(count * element, std::vector<std::size_t>(members, element));
          for (std::size_t k = 0; k < members; ++k) test::fill(dtype, sources.addresses()[k], count, 40 + k);
          const std::vector<const std::byte*> from(sources.addresses().begin(), sources.addresses().end());
          std::vector<std::byte> expected(count * element);
          reduce(dtype, MUSTER_SUM, from, expected.data(), count, 1.0);
          for (const std::size_t streaming_from : kStreamingFrom)
            for (const std::vector<std::size_t>& offsets :
                 {std::vector<std::size_t>{0}, {element}, {0, 0}, {3, 0, 5 * element}}) {
              const Vectors targets(count * element, offsets);
              reduce_to_all(dtype, MUSTER_SUM, from, targets.addresses(), count, 1.0, streaming_from);
              for (std::size_t k = 0; k < offsets.size(); ++k)
                ASSERT_TRUE(targets.holds(k, expected))
                    << dtype_name(dtype) << ", " << members << " sources of " << count << ", target " << k;
            }
        }
  });
}

TEST(ReduceToAll, WritesOverItsSources) {
  constexpr std::size_t kCount = 5000;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  for (const std::size_t streaming_from : kStreamingFrom) {
    const Vectors vectors(kBytes, {0, 4, 0, 0});
    const std::vector<std::byte*>& at = vectors.addresses();
    for (std::size_t k = 0; k < 3; ++k) test::fill(MUSTER_F32, at[k], kCount, k);
    const std::vector<const std::byte*> from(at.begin(), at.begin() + 3);
    std::vector<std::byte> expected(kBytes);
    reduce(MUSTER_F32, MUSTER_SUM, from, expected.data(), kCount, 1.0);
    reduce_to_all(MUSTER_F32, MUSTER_SUM, from, at, kCount, 1.0, streaming_from);
    for (std::size_t k = 0; k < at.size(); ++k) EXPECT_TRUE(vectors.holds(k, expected)) << "target " << k;
  }
}

}  // namespace
}  // namespace muster::math
