#include "api/base/checkpoint/names.hpp"

#include <gtest/gtest.h>

namespace muster::checkpoint {
namespace {

TEST(CheckpointNames, AFolderNameLeadsNowhereElse) {
  EXPECT_TRUE(check_folder_name("step-7").ok());
  EXPECT_TRUE(check_folder_name("größer").ok());
  for (const std::string& name :
       {std::string(), std::string("a/b"), std::string(".."), std::string(".x"), std::string("a\nb"),
        std::string("a\xff"), std::string(201, 'a'), std::string("a.partial-1"), std::string("metadata.json"),
        std::string("rank-0.bin")})
    EXPECT_EQ(check_folder_name(name).code(), Code::kBadArgument) << name;
}

// Goal:   a checkpoint can be exported: nothing takes the name of a safetensors file's own notes.
TEST(CheckpointNames, ATensorIsNotNamedAsTheNotesOfAFile) {
  EXPECT_EQ(check_exported_name("__metadata__").code(), Code::kBadArgument);
  for (const char* name : {"metadata", "__metadata", "__metadata__ ", "a.__metadata__"})
    EXPECT_TRUE(check_exported_name(name).ok()) << name;
}

TEST(CheckpointNames, AFileNameIsOneOfARank) {
  EXPECT_TRUE(is_rank_file_name(rank_file_name(0)));
  EXPECT_TRUE(is_rank_file_name(rank_file_name(65535)));
  for (const char* name : {"", "rank-.bin", "rank-1.bin/..", "../rank-1.bin", "rank-x.bin", "metadata.json"})
    EXPECT_FALSE(is_rank_file_name(name)) << name;
}

TEST(CheckpointNames, APartLiesBesideItsIndex) {
  for (const char* name : {"model-00001-of-00002.safetensors", "größe", "...", ".x"})
    EXPECT_TRUE(is_part_name(name)) << name;
  for (const char* name : {"", ".", "..", "a/b", "/", "../x", "a\nb", "\xff"})
    EXPECT_FALSE(is_part_name(name)) << name;
  EXPECT_TRUE(is_part_name(std::string(255, 'x')));
  EXPECT_FALSE(is_part_name(std::string(256, 'x')));
}

TEST(CheckpointNames, StepsSortAsTheyCount) {
  EXPECT_EQ(step_name(12), "step-000000000012");
  EXPECT_LT(step_name(99), step_name(100));
  EXPECT_TRUE(is_staged_name(staged_name(step_name(1), 7)));
  EXPECT_FALSE(is_staged_name(step_name(1)));
}

}  // namespace
}  // namespace muster::checkpoint
