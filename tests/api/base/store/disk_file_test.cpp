#include "api/base/store/disk_file.hpp"

#include "tests/support/folder.hpp"

#include <csignal>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::store {
namespace {

using ::testing::HasSubstr;

TEST(DiskFile, ReadsWhatItHasWritten) {
  const test::Folder folder;
  const std::string path = folder.path() + "/x";
  ASSERT_TRUE(write_text(path, "some bytes").ok());
  EXPECT_EQ(*read_text(path, 10), "some bytes");
  EXPECT_EQ(read_text(path, 9).error().code(), Code::kCorrupt);
  const auto file = DiskFile::read(path);
  std::byte late[4];
  EXPECT_EQ(file->read_at(8, late).code(), Code::kCorrupt);
}

TEST(DiskFile, SaysWhichFileAndWhy) {
  const test::Folder folder;
  const std::string path = folder.path() + "/x";
  const auto missing = DiskFile::read(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_EQ(missing.error().message(), "cannot open " + path + ": No such file or directory");
  ASSERT_TRUE(write_text(path, "").ok());
  EXPECT_THAT(write_text(path, "").message(), HasSubstr("cannot create " + path + ": File exists"));
  EXPECT_FALSE(DiskFile::read(folder.path()));
}

// Goal:   a file that takes only some of the bytes is no file that has them all.
// Method: the system takes what the process may write yet, and refuses the rest.
TEST(DiskFile, SaysThatTheRestWasRefused) {
  const test::Folder folder;
  const std::string path = folder.path() + "/x";
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    _exit(write_text(path, std::string(150, 'x')).ok() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(std::filesystem::file_size(path), 100u) << "the case that is meant";
}

// Goal: a path that is no regular file cannot make a reader wait, or lead it elsewhere.
TEST(DiskFile, OpensNoPipeAndNoLink) {
  const test::Folder folder;
  ASSERT_EQ(mkfifo((folder.path() + "/pipe").c_str(), 0600), 0);
  EXPECT_FALSE(DiskFile::read(folder.path() + "/pipe"));
  folder.write("x", "text");
  std::filesystem::create_symlink(folder.path() + "/x", folder.path() + "/link");
  EXPECT_FALSE(DiskFile::read(folder.path() + "/link"));
}

}  // namespace
}  // namespace muster::store
