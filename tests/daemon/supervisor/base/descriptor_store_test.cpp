#include "daemon/supervisor/base/descriptor_store.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

shm::Descriptor some_descriptor() {
  return shm::Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

struct Told {
  std::string text;
  std::vector<int> descriptors;
};

class Store : public ::testing::Test {
 protected:
  DescriptorStore store(std::size_t room = 0) {
    return {[this](const std::string& text, std::span<const int> descriptors) {
              told_.push_back({text, {descriptors.begin(), descriptors.end()}});
              return true;
            },
            room};
  }
  std::vector<Told> told_;
};

TEST_F(Store, SendsWhatItKeepsAndTakesBackWhatIsForgotten) {
  auto kept = store();
  const auto descriptor = some_descriptor();
  kept.keep("channel-1", descriptor);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].text, "FDSTORE=1\nFDPOLL=0\nFDNAME=channel-1");
  EXPECT_THAT(told_[0].descriptors, ElementsAre(descriptor.get()));
  EXPECT_EQ(kept.kept().at("channel-1"), descriptor.get());
  kept.forget("channel-1");
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[1].text, "FDSTOREREMOVE=1\nFDNAME=channel-1");
  EXPECT_THAT(kept.kept(), IsEmpty());
  kept.forget("channel-1");
  EXPECT_EQ(told_.size(), 2u) << "once is enough";
}

TEST_F(Store, DoesNotSendAgainWhatTheManagerHas) {
  auto kept = store();
  const auto descriptor = some_descriptor();
  kept.know("state", descriptor);
  EXPECT_THAT(told_, IsEmpty());
  EXPECT_EQ(kept.kept().size(), 1u) << "but hands it on";
  kept.forget_all();
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].text, "FDSTOREREMOVE=1\nFDNAME=state");
}

TEST_F(Store, KeepsForAnUpgradeWhatTheManagerHasNoRoomFor) {
  auto kept = store(1);
  const auto first = some_descriptor(), second = some_descriptor();
  kept.keep("a", first);
  kept.keep("b", second);
  EXPECT_EQ(told_.size(), 1u);
  EXPECT_EQ(kept.kept().size(), 2u);
}

TEST(DescriptorStore, WorksWithoutAManager) {
  DescriptorStore kept({}, 0);
  const auto descriptor = some_descriptor();
  kept.keep("a", descriptor);
  EXPECT_EQ(kept.kept().size(), 1u);
  kept.forget("a");
  EXPECT_THAT(kept.kept(), IsEmpty());
}

TEST(InheritedNames, AreThoseOfThisProcessAlone) {
  EXPECT_THAT(inherited_names("7", "2", "state:channel-1", 7), ElementsAre("state", "channel-1"));
  EXPECT_THAT(inherited_names("8", "2", "state:channel-1", 7), IsEmpty());
  EXPECT_THAT(inherited_names(nullptr, "2", "state:channel-1", 7), IsEmpty());
  EXPECT_THAT(inherited_names("7", nullptr, nullptr, 7), IsEmpty());
  for (const char* count : {"0", "-1", "x", "2x", "", "99999999999999999999", "70000"})
    EXPECT_THAT(inherited_names("7", count, "a:b", 7), IsEmpty()) << count;
}

TEST(InheritedNames, AreAsManyAsDescriptors) {
  EXPECT_THAT(inherited_names("7", "3", "a", 7), ElementsAre("a", "", ""));
  EXPECT_THAT(inherited_names("7", "1", "a:b", 7), ElementsAre("a"));
  EXPECT_THAT(inherited_names("7", "2", nullptr, 7), ElementsAre("", ""));
}

}  // namespace
}  // namespace muster::supervisor
