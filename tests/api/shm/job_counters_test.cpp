#include "api/shm/job_counters.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::shm {
namespace {

// Goal:   the layout is the contract between an engine and programs of another build.
TEST(JobCounters, HaveThisLayout) {
  static_assert(sizeof(RankTally) == 256 && sizeof(GroupTally) == 256);
  static_assert(kJobCountersTalliesOffset == 256 && sizeof(JobCountersHeader) == 40);
  EXPECT_EQ(job_counters_bytes(3, 2), 256u + 3 * 256 + 2 * 256);
}

TEST(JobCounters, AreReadAsTheyWereWritten) {
  auto writer = *JobCountersWriter::create(2, std::vector<std::string>{"dp", std::string(100, 'x')}, 7,
                                           memory_headroom());
  const auto reader = *JobCountersReader::attach(Descriptor(dup(writer.descriptor())));
  EXPECT_EQ(reader.ranks(), 2u);
  EXPECT_EQ(reader.groups(), 2u);
  EXPECT_EQ(reader.engine_pid(), getpid());
  EXPECT_EQ(reader.row(0)->name, "dp");
  EXPECT_EQ(reader.row(1)->name, std::string(kTallyNameBytes - 1, 'x'));
  writer.set(1, RankCount::kRuns, 5);
  writer.set(1, GroupCount::kBytes, 6);
  writer.beat(Instant(9));
  EXPECT_EQ(reader.value(1, RankCount::kRuns), 5u);
  EXPECT_EQ(reader.value(0, RankCount::kRuns), 0u);
  EXPECT_EQ(reader.row(1)->value(GroupCount::kBytes), 6u);
  EXPECT_EQ(reader.beat(), Instant(9));
}

// Goal:   a reader that reads a row twice can detect a new group in it, and never sees the old group's
//         counts.
TEST(JobCounters, GiveARowToAnotherGroupWithNothingOfTheFormer) {
  auto writer = *JobCountersWriter::create(1, std::vector<std::string>{"mesh", ""}, 7, memory_headroom());
  const auto reader = *JobCountersReader::attach(Descriptor(dup(writer.descriptor())));
  EXPECT_EQ(reader.row(1)->value(GroupCount::kMembers), 0u) << "nobody's";
  writer.give_row(1, "survivors");
  writer.set(1, GroupCount::kMembers, 3);
  writer.set(1, GroupCount::kRuns, 1000);
  writer.set(1, GroupCount::kFailures, 2);
  const JobCountersReader::GroupRow former = *reader.row(1);
  EXPECT_EQ(former.name, "survivors");
  writer.give_row(1, "two");
  writer.set(1, GroupCount::kMembers, 2);
  const JobCountersReader::GroupRow row = *reader.row(1);
  EXPECT_EQ(row.name, "two");
  EXPECT_NE(row.value(GroupCount::kRow), former.value(GroupCount::kRow));
  EXPECT_EQ(row.value(GroupCount::kRuns), 0u);
  EXPECT_EQ(row.value(GroupCount::kFailures), 0u);
  EXPECT_EQ(reader.row(0)->name, "mesh");
}

TEST(JobCounters, ShowNoRowWhileItChangesHands) {
  const std::uint64_t bytes = job_counters_bytes(0, 1);
  const Descriptor memory = *create_memory("counters", bytes, memory_headroom());
  const Mapping mapping = *Mapping::map(memory, bytes, Mapping::Access::kReadWrite);
  new (mapping.writable()) JobCountersHeader{kMagicJobCounters, kAbiVersion, 1, bytes, 0, 1, 1};
  auto* tally = reinterpret_cast<GroupTally*>(mapping.writable() + kJobCountersTalliesOffset);
  const auto reader = *JobCountersReader::attach(memory);
  EXPECT_TRUE(reader.row(0).has_value());
  tally->values[static_cast<std::size_t>(GroupCount::kRow)] = 3;
  EXPECT_FALSE(reader.row(0).has_value());
}

TEST(JobCounters, AreRefusedIfTheyAreSomethingElse) {
  const auto attach = [](std::uint64_t bytes, auto fill) {
    const Descriptor memory = *create_memory("other", bytes, memory_headroom());
    {
      const Mapping mapping = *Mapping::map(memory, bytes, Mapping::Access::kReadWrite);
      auto* header =
          new (mapping.writable()) JobCountersHeader{kMagicJobCounters, kAbiVersion, 1, bytes, 1, 0, 1};
      fill(*header);
    }
    return JobCountersReader::attach(memory).error().code();
  };
  const std::uint64_t sound = job_counters_bytes(1, 0);
  EXPECT_EQ(attach(sound, [](JobCountersHeader& h) { h.magic = 1; }), Code::kVersion);
  EXPECT_EQ(attach(sound, [](JobCountersHeader& h) { h.abi_version = 1; }), Code::kVersion);
  EXPECT_EQ(attach(sound, [](JobCountersHeader& h) { h.ranks = 2; }), Code::kProtocol);
  EXPECT_EQ(attach(sound, [](JobCountersHeader& h) { h.groups = UINT32_MAX; }), Code::kProtocol);
  EXPECT_EQ(attach(sound, [](JobCountersHeader& h) { h.bytes = 1; }), Code::kProtocol);
  EXPECT_EQ(attach(64, [](JobCountersHeader&) {}), Code::kProtocol);
}

}  // namespace
}  // namespace muster::shm
