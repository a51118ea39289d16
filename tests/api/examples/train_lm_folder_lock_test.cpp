#include "api/examples/train_lm/folder_lock.hpp"

#include "api/examples/train_lm/options.hpp"
#include "api/examples/train_lm/output.hpp"
#include "tests/support/folder.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace train_lm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FolderLock, IsOfOneHolderAtATime) {
  const muster::test::Folder folder;
  {
    const FolderLock first(folder.path());
    try {
      const FolderLock second(folder.path());
      ADD_FAILURE() << "both hold it";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("process " + std::to_string(getpid()) + " on "),
                                      HasSubstr("saves into " + folder.path())));
    }
  }
  const FolderLock next(folder.path());
}

TEST(FolderLock, NamesAFolderInWhichItCannotWrite) {
  EXPECT_THROW(FolderLock("/nonexistent"), OutputError);
}

}  // namespace
}  // namespace train_lm
