#include "daemon/config/load.hpp"

#include "daemon/config/document.hpp"
#include "tests/support/folder.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::config {
namespace {

using testing::HasSubstr;

class Load : public testing::Test {
 protected:
  std::string file(const std::string& text, mode_t mode = 0644) {
    const std::string path = own_.write("musterd.yaml", text);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }

  const test::Folder own_;
  const std::string folder_ = own_.path();
};

TEST_F(Load, ReadsAFileOfItsOwnUser) {
  const std::string path = file("log: {level: info}\n", 0600);
  const auto source = load_file(path, Ownership::kTrusted);
  ASSERT_TRUE(source) << source.error().text();
  EXPECT_EQ(source->name(), path);
  EXPECT_EQ(source->text(), "log: {level: info}\n");
}

TEST_F(Load, SaysWhyAFileIsNoConfiguration) {
  const auto missing = load_file(folder_ + "/absent.yaml", Ownership::kTrusted);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("absent.yaml: error: no such file"));

  const auto below_file = load_file(file("a: 1") + "/x", Ownership::kTrusted);
  EXPECT_EQ(below_file.error().code(), Code::kNotFound);

  const auto directory = load_file(folder_, Ownership::kTrusted);
  EXPECT_EQ(directory.error().code(), Code::kConfig);
  EXPECT_THAT(directory.error().message(), HasSubstr("is a directory"));

  for (const char* blank : {"", " \n\n"}) {
    const auto empty = load_file(file(blank), Ownership::kTrusted);
    EXPECT_EQ(empty.error().code(), Code::kConfig);
    EXPECT_THAT(empty.error().message(), HasSubstr("is empty"));
  }

  const auto large = load_file(file(std::string(kTextBytesMax + 1, '#')), Ownership::kTrusted);
  EXPECT_EQ(large.error().code(), Code::kConfig);
  EXPECT_THAT(large.error().message(), HasSubstr("larger than 1048576 bytes"));
  EXPECT_TRUE(load_file(file(std::string(kTextBytesMax, '#')), Ownership::kTrusted));
}

// Goal: a pipe in place of a file is refused at once; opening it must not wait for a writer.
TEST_F(Load, DoesNotWaitOnAPipe) {
  const std::string path = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(load_file(path, Ownership::kTrusted).error().message(), HasSubstr("not a regular file"));
  EXPECT_THAT(load_file("/dev/null", Ownership::kTrusted).error().message(), HasSubstr("not a regular file"));
}

TEST_F(Load, RefusesAFileThatOthersMayWrite) {
  const std::string path = file("a: 1\n", 0664);
  const auto group = load_file(path, Ownership::kTrusted);
  EXPECT_EQ(group.error().code(), Code::kDenied);
  EXPECT_THAT(group.error().message(), HasSubstr("mode 0664 lets its group write it; run: chmod go-w"));
  const auto everyone = load_file(file("a: 1\n", 0646), Ownership::kTrusted);
  EXPECT_THAT(everyone.error().message(), HasSubstr("lets everyone write it"));
  EXPECT_TRUE(load_file(path, Ownership::kAny));
}

// Goal:   a file of a third user is refused; one of root or of the reader is not.
// Method: as root the file is given away; otherwise the reader claims to be someone else.
TEST_F(Load, RefusesAFileOfAnotherUser) {
  const std::string path = file("a: 1\n");
  constexpr uid_t kStranger = 12345;
  uid_t reader = ::geteuid();
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), kStranger, static_cast<gid_t>(-1)), 0);
  } else {
    ++reader;
  }
  const auto refused = load_file(path, Ownership::kTrusted, reader);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kDenied);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("who could change what the daemon does; chown it to root"));
  EXPECT_TRUE(load_file(path, Ownership::kAny, reader));
}

// Root reads every file, so it is somebody else while it tries.
TEST_F(Load, RefusesAFileItMayNotRead) {
  const std::string path = file("a: 1\n", 0000);
  const uid_t reader = ::geteuid();
  ::chmod(folder_.c_str(), 0755);
  const bool root = ::geteuid() == 0;
  ASSERT_EQ(root ? ::seteuid(65534) : 0, 0);
  const auto refused = load_file(path, Ownership::kTrusted, reader);
  ASSERT_EQ(root ? ::seteuid(0) : 0, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kDenied);
}

}  // namespace
}  // namespace muster::config
