#include "api/examples/training/folder_lock.hpp"

#include "api/examples/training/errors.hpp"
#include "api/examples/training/output.hpp"
#include "tests/support/folder.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FolderLock, IsOfOneHolderAtATime) {
  const muster::test::Folder folder;
  {
    const FolderLock first(folder.path(), "train_lm");
    try {
      const FolderLock second(folder.path(), "train_lm");
      ADD_FAILURE() << "both hold it";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("process " + std::to_string(getpid()) + " on "),
                                      HasSubstr("saves into " + folder.path())));
    }
  }
  const FolderLock next(folder.path(), "train_lm");
}

TEST(FolderLock, NamesAFolderInWhichItCannotWrite) {
  EXPECT_THROW(FolderLock("/nonexistent", "train_lm"), OutputError);
}

}  // namespace
}  // namespace training
