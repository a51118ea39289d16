#include "api/shm/endpoint.hpp"

#include "api/base/bootstrap.hpp"
#include "tests/support/folder.hpp"

#include <filesystem>

#include <gtest/gtest.h>

namespace muster::shm {
namespace {

// Goal:   each way to name a daemon leads to its sockets: the directory, the ranks' socket, and the place
//         where former releases listened.
TEST(Endpoint, NamesADaemonInThreeWays) {
  const test::Folder folder;
  std::filesystem::create_directory(folder.path() + "/ranks");
  const std::string ranks = folder.write("ranks/musterd.sock", "");
  for (const std::string& endpoint : {folder.path(), ranks, folder.path() + "/musterd.sock"}) {
    EXPECT_EQ(ranks_socket_at(endpoint), ranks) << endpoint;
    EXPECT_EQ(control_socket(directory_of(endpoint)), folder.path() + "/control.sock") << endpoint;
  }
  EXPECT_EQ(ranks_socket(folder.path()), ranks);
}

// Goal:   a container may have mounted the folder of the ranks' socket anywhere.
TEST(Endpoint, IsTheSocketItselfWhereOneIs) {
  const test::Folder folder;
  const std::string mounted = folder.write("musterd.sock", "");
  EXPECT_EQ(ranks_socket_at(mounted), mounted);
  const std::string units = folder.write("unit.sock", "");
  EXPECT_EQ(ranks_socket_at(units), units);
  EXPECT_EQ(directory_of(units), folder.path());
}

TEST(Endpoint, IsNamedInAnErrorAsItWasGiven) {
  for (const char* nothing : {"/nonexistent/musterd.sock", "/nonexistent/other", "musterd.sock", ""})
    EXPECT_EQ(ranks_socket_at(nothing), nothing);
  EXPECT_EQ(directory_of("musterd.sock"), ".");
  EXPECT_EQ(directory_of("/musterd.sock"), "/");
  EXPECT_EQ(directory_of("ranks/musterd.sock"), ".");
}

// Goal:   a command that a message names reaches the daemon that the message is about.
TEST(Endpoint, IsAnOptionUnlessItIsTheUsualOne) {
  for (const char* usual : {"", bootstrap::kDefaultEndpoint, "/run/muster/musterd.sock"})
    EXPECT_EQ(endpoint_option(usual), "") << usual;
  const test::Folder folder;
  for (const std::string& other : {folder.path(), ranks_socket(folder.path()), folder.path() + "/x.sock"})
    EXPECT_EQ(endpoint_option(other), " --endpoint " + other);
}

}  // namespace
}  // namespace muster::shm
