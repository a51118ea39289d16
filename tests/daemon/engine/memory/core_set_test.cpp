#include "daemon/engine/memory/core_set.hpp"

#include "tests/daemon/engine/one_core.hpp"

#include <unistd.h>

#include <gtest/gtest.h>

namespace muster::engine {
namespace {

const CoreSet kFour{{0b1111}};
const CoreSet kNone{};

TEST(CoreSet, IsWrittenAsTheKernelDoes) {
  EXPECT_EQ(text_of(kNone), "");
  EXPECT_EQ(text_of(core(0)), "0");
  EXPECT_EQ(text_of(kFour), "0-3");
  EXPECT_EQ(text_of({{0b1011'0101}}), "0,2,4-5,7");
  CoreSet far = core(64);
  far |= core(63);
  far |= core(200);
  EXPECT_EQ(text_of(far), "63-64,200");
  EXPECT_EQ(far.count(), 3u);
}

TEST(CoreSet, IsTheSameWhateverItWasMadeOf) {
  CoreSet set = core(200);
  set |= core(1);
  set &= kFour;
  EXPECT_EQ(set, core(1));
  set &= core(200);
  EXPECT_EQ(set, kNone);
  EXPECT_TRUE(set.empty());
}

TEST(CoreSet, OfAThreadIsWhatTheKernelSays) {
  const auto own = cores_of_thread(0);
  ASSERT_TRUE(own);
  EXPECT_GT(own->count(), 0u);
  EXPECT_NE(own->words.back(), 0u) << "sets of the same cores are equal";
  EXPECT_EQ(cores_of_thread(gettid()), own);
  EXPECT_FALSE(cores_of_thread(1 << 30)) << "there is no such thread";
}

// engine_cores_test.cpp tests which threads stay on which cores; this test asks for cores that do not exist.
TEST(CoreSet, ThatTheMachineDoesNotHaveKeepsNoThread) {
  const auto own = cores_of_thread(0);
  const Status status = keep_threads_to(core(8000));
  EXPECT_EQ(status.code(), Code::kNoResource);
  EXPECT_NE(status.message().find("cores 8000"), std::string::npos) << status.message();
  EXPECT_EQ(cores_of_thread(0), own);
}

}  // namespace
}  // namespace muster::engine
