#include "daemon/supervisor/takeover/trusted_program.hpp"

#include "tests/support/folder.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using ::testing::HasSubstr;

class TrustedPrograms : public ::testing::Test {
 protected:
  TrustedPrograms() {
    std::filesystem::create_directories(folder());
    folder_.write("a/b/program", "#!/bin/sh\nexit 7\n");
    chmod(program().c_str(), 0755);
  }
  std::string folder() const { return folder_.path() + "/a/b"; }
  std::string program() const { return folder() + "/program"; }
  Status open() const { return open(program()); }
  Status open(const std::string& path) const {
    const auto opened = TrustedProgram::open(path, {"/nonexistent", folder()});
    return opened ? Status() : opened.error();
  }

  test::Folder folder_;  // in /tmp, which is sticky
};

TEST_F(TrustedPrograms, AreThoseThatNobodyElseCanChange) {
  EXPECT_TRUE(open().ok()) << open().message();
}

// Goal:   a user that may write the program, or a folder above it, could run any code as the daemon.
TEST_F(TrustedPrograms, AreNoneThatOthersCanChange) {
  for (const std::string& part : {program(), folder(), folder_.path() + "/a"}) {
    for (const mode_t mode : {0775, 0757}) {
      SCOPED_TRACE(part);
      ASSERT_EQ(chmod(part.c_str(), mode), 0);
      EXPECT_EQ(open().code(), Code::kDenied);
      EXPECT_THAT(open().message(), HasSubstr(part + " can be changed by others"));
      ASSERT_EQ(chmod(part.c_str(), 0755), 0);
    }
    if (geteuid() != 0) continue;
    ASSERT_EQ(chown(part.c_str(), 65534, 65534), 0);
    EXPECT_THAT(open().message(), HasSubstr(part + " can be changed by user 65534, to whom it belongs"));
    ASSERT_EQ(chown(part.c_str(), 0, 0), 0);
  }
  ASSERT_EQ(chmod((folder_.path() + "/a").c_str(), 01777), 0);
  EXPECT_TRUE(open().ok()) << "others can rename nothing of ours in a sticky folder";
}

TEST_F(TrustedPrograms, LieInAFolderThatTheSettingsName) {
  const std::string other = folder_.write("a/other", "#!/bin/sh\n");
  chmod(other.c_str(), 0755);
  EXPECT_EQ(open(other).code(), Code::kBadArgument);
  EXPECT_THAT(open(other).message(), HasSubstr("node.program_folders"));
  EXPECT_EQ(open(folder() + "/../other").code(), Code::kBadArgument) << "however it is written";
  std::filesystem::create_symlink(other, folder() + "/link");
  EXPECT_EQ(open(folder() + "/link").code(), Code::kBadArgument) << "a link leads elsewhere";
  std::filesystem::create_symlink(program(), folder_.path() + "/into");
  EXPECT_TRUE(open(folder_.path() + "/into").ok());
  EXPECT_EQ(open(folder() + "/nothing").code(), Code::kBadArgument);
  EXPECT_EQ(open("").code(), Code::kBadArgument);
}

TEST_F(TrustedPrograms, CanBeRun) {
  std::filesystem::create_directory(folder() + "/folder");
  EXPECT_EQ(open(folder() + "/folder").code(), Code::kDenied);
  ASSERT_EQ(chmod(program().c_str(), 0644), 0);
  EXPECT_EQ(open().code(), Code::kDenied);
}

// Goal:   the file that was checked is the one that runs, not another file in its place.
TEST_F(TrustedPrograms, RunByTheFileThatWasOpened) {
  const auto opened = TrustedProgram::open(program(), {folder()});
  ASSERT_TRUE(opened) << opened.error().text();
  std::filesystem::rename(program(), folder_.path() + "/moved");
  folder_.write("a/b/program", "#!/bin/sh\nexit 1\n");
  chmod(program().c_str(), 0755);
  const shm::Descriptor file = opened->copy_above(10);
  const pid_t child = fork();
  if (child == 0) {
    char name[] = "program";
    char* const arguments[] = {name, nullptr};
    TrustedProgram::execute(file.get(), arguments, environ);
    _exit(2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(ProgramFolders, AreAbsolute) {
  EXPECT_TRUE(program_folders("")->empty());
  EXPECT_EQ(*program_folders("/a:/b/c"), (std::vector<std::string>{"/a", "/b/c"}));
  for (const char* bad : {"a", "/a:", ":/a", "/a:b"})
    EXPECT_EQ(program_folders(bad).has_value() && std::string(bad) != "/a:", false) << bad;
}

}  // namespace
}  // namespace muster::supervisor
