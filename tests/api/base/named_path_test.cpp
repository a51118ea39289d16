#include "api/base/named_path.hpp"

#include "tests/support/folder.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

namespace fs = std::filesystem;

// A folder, a file, a link to nothing, and links to the two.
class NamedPath : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(at("folder"));
    folder_.write("file", "text");
    fs::create_symlink("nowhere", at("dangling"));
    fs::create_symlink("folder", at("to-folder"));
    fs::create_symlink("file", at("to-file"));
  }
  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }
  const test::Folder folder_;
};

TEST_F(NamedPath, OfANewFileMayBeFreeOrAFile) {
  for (const char* name : {"new", "file", "to-file", "folder/new", "to-folder/new"})
    EXPECT_EQ(fault_of_new_file(at(name)), "") << name;
  EXPECT_EQ(fault_of_new_file("/dev/null"), "");
  EXPECT_EQ(fault_of_new_file("new-file-of-nobody"), "") << "in the working folder";
}

TEST_F(NamedPath, OfANewFileSaysWhatStandsInItsWay) {
  EXPECT_EQ(fault_of_new_file(at("folder")),
            at("folder") + " is a folder; name a file, such as " + at("folder/NAME"));
  EXPECT_EQ(fault_of_new_file(at("folder/")),
            at("folder/") + " is a folder; name a file, such as " + at("folder/NAME"));
  EXPECT_EQ(fault_of_new_file(at("to-folder")),
            at("to-folder") + " is a folder; name a file, such as " + at("to-folder/NAME"));
  EXPECT_EQ(
      fault_of_new_file(at("dangling")),
      at("dangling") + " is a link to nowhere, which is not there; remove the link, or name another place");
  EXPECT_EQ(fault_of_new_file(at("dangling/x")), fault_of_new_file(at("dangling")));
  EXPECT_EQ(fault_of_new_file(at("file/x/y")),
            at("file") + " is a file, so nothing can be in it; name another place");
  EXPECT_EQ(fault_of_new_file(at("none/x")), at("none/x") + " cannot be written: there is no folder " +
                                                 at("none") + "; make it first, or name another place");
  EXPECT_EQ(fault_of_new_file(at("none/")), at("none/") + " is the name of a folder; name a file");
}

TEST_F(NamedPath, OfAPlaceSaysWhyNothingCanBeMadeThere) {
  for (const char* name : {"new", "folder", "folder/new", "to-folder/new"})
    EXPECT_EQ(fault_of_place(at(name)), "") << name;
  EXPECT_EQ(fault_of_place(at("none/x")),
            "there is no folder " + at("none") + "; make it first, or name another place");
  EXPECT_EQ(fault_of_place(at("file/x")), fault_of_new_file(at("file/x")));
  EXPECT_EQ(fault_of_place(at("dangling/x")), fault_of_new_file(at("dangling")));
}

TEST_F(NamedPath, OfANewFolderMayBeFreeOrAFolder) {
  for (const char* name : {"new", "new/below", "folder", "folder/", "to-folder", "folder/new"})
    EXPECT_EQ(fault_of_new_folder(at(name)), "") << name;
  EXPECT_EQ(fault_of_new_folder(at("file")), at("file") + " is a file; name a folder");
  EXPECT_EQ(fault_of_new_folder(at("file/")), at("file") + " is a file; name a folder");
  EXPECT_EQ(fault_of_new_folder(at("file/x")),
            at("file") + " is a file, so nothing can be in it; name another place");
  EXPECT_EQ(fault_of_new_folder(at("dangling")), fault_of_new_file(at("dangling")));
}

TEST_F(NamedPath, OfAFolderToReadSaysWhatItShouldBe) {
  EXPECT_EQ(fault_of_folder(at("folder"), "this holds"), "");
  EXPECT_EQ(fault_of_folder(at("to-folder"), "this holds"), "");
  EXPECT_EQ(fault_of_folder(at("file"), "this holds"), at("file") + " is a file; this holds");
  EXPECT_EQ(fault_of_folder(at("none"), "this holds"), "there is no folder " + at("none") + "; this holds");
  EXPECT_EQ(fault_of_folder(at("dangling"), "this holds"), fault_of_new_file(at("dangling")));
}

}  // namespace
}  // namespace muster
