// The descriptors and variables of the program that takes over from a supervisor.
#include "daemon/supervisor/takeover/replacement.hpp"

#include "api/shm/descriptor.hpp"
#include "daemon/supervisor/base/descriptor_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using ::testing::ElementsAre;

// The value of a variable in what env(1) printed.
std::string value_of(const std::string& environment, const std::string& name) {
  const std::size_t at = ("\n" + environment).find("\n" + name + "=");
  if (at == std::string::npos) return "none";
  const std::size_t begin = at + name.size() + 1;
  return environment.substr(begin, environment.find('\n', begin) - begin);
}

// Goal:   each descriptor is found again under its own name.
// Method: a child becomes env(1), with one that has no name: a socket as a manager may give it.
TEST(Replacement, TellsEachNameAlsoBesideOneThatIsEmpty) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  shm::Descriptor output(ends[0]), input(ends[1]);
  const shm::Descriptor kept(eventfd(0, EFD_CLOEXEC));
  const pid_t child = fork();
  if (child == 0) {
    dup2(input.get(), STDOUT_FILENO);
    const int fd = kept.get();
    static_cast<void>(replace_program(*TrustedProgram::open("/usr/bin/env", {"/usr/bin"}), {"env"},
                                      {{"", fd}, {"channel-1", fd}, {"state", fd}}));
    _exit(1);
  }
  input.reset();
  std::string text;
  char bytes[4096];
  for (ssize_t n = 0; (n = read(output.get(), bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<std::size_t>(n));
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(value_of(text, "LISTEN_PID"), std::to_string(child));
  EXPECT_THAT(inherited_names(value_of(text, "LISTEN_PID").c_str(), value_of(text, "LISTEN_FDS").c_str(),
                              value_of(text, "LISTEN_FDNAMES").c_str(), child),
              ElementsAre("", "channel-1", "state"));
}

}  // namespace
}  // namespace muster::supervisor
