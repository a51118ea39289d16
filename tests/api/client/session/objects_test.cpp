// Bytes of which only their giver knows how many there are.
#include <muster/muster.h>

#include "tests/api/client/running_ranks.hpp"

#include <cstdint>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <sys/resource.h>

namespace {

using muster::test::Member;
using ::testing::HasSubstr;

class Objects : public muster::test::RunningRanks {};

std::string text_of(int rank, std::size_t bytes) {
  std::string text(bytes, ' ');
  for (std::size_t i = 0; i < bytes; ++i)
    text[i] = static_cast<char>('a' + (i * 7 + static_cast<std::size_t>(rank)) % 26);
  return text;
}

TEST_F(Objects, AreBroadcastWhateverTheirLength) {
  for (const int world : {1, 3}) {
    with_ranks(world, [&](Member& member) {
      for (const std::size_t bytes :
           {std::size_t{0}, std::size_t{1}, std::size_t{65536}, std::size_t{200001}}) {
        const int root = world - 1;
        const std::string given = member.rank == root ? text_of(root, bytes) : "";
        // As others are called: with the root's length, which is not looked at.
        const void* data = member.rank == root ? given.data() : nullptr;
        const void* result = nullptr;
        std::uint64_t length = 77;
        ASSERT_EQ(muster_object_broadcast(member.session, member.group, root, data, bytes, &result, &length),
                  MUSTER_OK)
            << muster_last_error();
        EXPECT_EQ(std::string(static_cast<const char*>(result), length), text_of(root, bytes));
      }
    });
  }
}

TEST_F(Objects, AreGatheredByAllOrByOne) {
  with_ranks(3, [&](Member& member) {
    for (const int root : {-1, 1}) {
      for (const std::size_t unit : {std::size_t{0}, std::size_t{10}, std::size_t{70000}}) {
        const std::string given = text_of(member.rank, unit * static_cast<std::size_t>(member.rank));
        const void* result = nullptr;
        std::uint64_t offsets[4] = {9, 9, 9, 9};
        ASSERT_EQ(muster_object_gather(member.session, member.group, root, given.data(), given.size(),
                                       &result, offsets),
                  MUSTER_OK)
            << muster_last_error();
        if (root >= 0 && root != member.rank) {
          EXPECT_EQ(result, nullptr);
          continue;
        }
        for (int i = 0; i < 3; ++i)
          EXPECT_EQ(std::string(static_cast<const char*>(result) + offsets[i], offsets[i + 1] - offsets[i]),
                    text_of(i, unit * static_cast<std::size_t>(i)));
      }
    }
  });
}

// Goal:   a received object can be sent on from its place, although the next results are longer or shorter.
TEST_F(Objects, AreGivenOnFromWhereTheyCame) {
  with_ranks(2, [&](Member& member) {
    const std::string given = text_of(member.rank, 150'000);
    const void* all = nullptr;
    std::uint64_t offsets[3];
    ASSERT_EQ(
        muster_object_gather(member.session, member.group, -1, given.data(), given.size(), &all, offsets),
        MUSTER_OK);
    // Each gives on the other's, without its first byte.
    const auto other = static_cast<std::size_t>(1 - member.rank);
    const char* from = static_cast<const char*>(all) + offsets[other] + 1;
    ASSERT_EQ(muster_object_gather(member.session, member.group, -1, from, 149'999, &all, offsets),
              MUSTER_OK);
    for (const int rank : {0, 1})
      EXPECT_TRUE(std::string(static_cast<const char*>(all) + offsets[rank], 149'999) ==
                  text_of(1 - rank, 150'000).substr(1))
          << "from rank " << rank;
    const void* one = nullptr;
    std::uint64_t length = 0;
    from = static_cast<const char*>(all) + offsets[1];
    ASSERT_EQ(muster_object_broadcast(member.session, member.group, 0, from, 100'000, &one, &length),
              MUSTER_OK);
    EXPECT_TRUE(std::string(static_cast<const char*>(one), length) == text_of(0, 150'000).substr(1, 100'000));
  });
}

// Goal:   a rank that cannot hold what it is given does not leave the others waiting in a round that it does
//         not come to; afterwards all are in step again.
// Method: an address space into which the result does not fit.
TEST_F(Objects, ThatDoNotFitIntoOneMemberEndForAll) {
#if defined(MUSTER_SANITIZED)
  GTEST_SKIP() << "the sanitizer's own address space does not fit into a limit";
#endif
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  with_ranks(3, [&](Member& member) {
    std::uint64_t offsets[4];
    const auto gather = [&](const std::string& given) {
      const void* result = nullptr;
      const muster_status_t status =
          muster_object_gather(member.session, member.group, 0, given.data(), given.size(), &result, offsets);
      member.error = muster_last_error();
      return status;
    };
    // Plans and mappings are there; one small thing too, which is gone from the result afterwards.
    ASSERT_EQ(gather("warm"), MUSTER_OK) << member.error;
    const std::string given(member.rank == 1 ? kBytes : 0, 'x');
    ASSERT_EQ(muster_barrier(member.session, member.group), MUSTER_OK) << muster_last_error();
    if (member.rank == 0) {
      rlimit limit{};
      ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
      std::ifstream statm("/proc/self/statm");
      std::uint64_t pages = 0;
      statm >> pages;
      const rlimit little{pages * 4096 + kBytes / 2, limit.rlim_max};
      ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
      EXPECT_EQ(gather(given), MUSTER_ERR_NO_RESOURCE) << member.error;
      ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
      EXPECT_THAT(member.error, HasSubstr("the result has 67108864 bytes"));
      EXPECT_EQ(muster_barrier(member.session, member.group), MUSTER_ERR_ABORTED) << "its own abort";
    } else {
      EXPECT_EQ(gather(given), MUSTER_ERR_ABORTED) << member.error;
      EXPECT_THAT(member.error, HasSubstr("rank 0 aborted"));
    }
    EXPECT_EQ(muster_barrier(member.session, member.group), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(gather("again"), MUSTER_OK) << member.error;
  });
}

TEST_F(Objects, RefuseWhatCannotBe) {
  with_ranks(2, [&](Member& member) {
    const void* result = nullptr;
    std::uint64_t length = 0;
    EXPECT_EQ(muster_object_broadcast(member.session, member.group, 2, nullptr, 0, &result, &length),
              MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("root 2 is not a member: the group has 0..1"));
    EXPECT_EQ(
        muster_object_broadcast(member.session, member.group, member.rank, nullptr, 4, &result, &length),
        MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(muster_object_gather(member.session, member.group, -2, nullptr, 0, &result, &length),
              MUSTER_ERR_BAD_ARGUMENT);
  });
}

}  // namespace
