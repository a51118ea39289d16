#include "daemon/supervisor/takeover/program_check.hpp"

#include "tests/support/folder.hpp"

#include <filesystem>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kState = 7;
constexpr std::uint32_t kProtocol = 11;
const std::string kNonce = "0123abcd";

class ProgramCheckTest : public ::testing::Test {
 protected:
  std::string script(const std::string& text) {
    const std::string path = folder_.write("program", "#!/bin/sh\n" + text + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  Status check(const std::string& program, const std::string& nonce = kNonce) {
    control::Loop loop;
    const shm::Descriptor state(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    Status verdict = failure(Code::kState, "no verdict");
    const auto trusted = TrustedProgram::open(program, {folder_.path(), "/usr/bin", "/bin"});
    if (!trusted) return trusted.error();
    auto started = ProgramCheck::start(loop, *trusted, {{"musterd"}, kState, nonce, kProtocol, "/run/muster"},
                                       state, [&](const Status& status) {
                                         verdict = status;
                                         loop.stop();
                                       });
    if (!started) return started.error();
    loop.run();
    return verdict;
  }

  test::Folder folder_;
};

TEST(CheckAnswer, IsOneLineOfItsOwn) {
  const std::string answer = check_answer(kNonce, 12, kState, kProtocol);
  EXPECT_TRUE(holds_check_answer(answer, kNonce, kState, kProtocol));
  EXPECT_TRUE(holds_check_answer("a warning\n" + answer + "\nmore\n", kNonce, kState, kProtocol));
  EXPECT_FALSE(holds_check_answer("", kNonce, kState, kProtocol));
  EXPECT_FALSE(holds_check_answer("so: " + answer, kNonce, kState, kProtocol));
  EXPECT_FALSE(holds_check_answer(answer + " or so", kNonce, kState, kProtocol));
  EXPECT_FALSE(holds_check_answer(answer, "0123abce", kState, kProtocol)) << "an answer to another question";
  EXPECT_FALSE(holds_check_answer(answer, kNonce, kState + 1, kProtocol)) << "an answer about another state";
  EXPECT_FALSE(holds_check_answer(answer, kNonce, kState, kProtocol + 1)) << "engines would not be heard";
}

TEST_F(ProgramCheckTest, BelievesTheAnswerOfAMusterd) {
  const Status good =
      check(script("[ \"$1 $2\" = '--check-state 3' ] || exit 1\n"
                   "echo 'a warning' >&2\n"
                   "echo \"$4: this program reads state of version 9 and speaks messages of version 11, "
                   "and this state is of version 7\""));
  EXPECT_TRUE(good.ok()) << good.message();
}

// Goal:   the daemon is not replaced by a program that merely ends well.
TEST_F(ProgramCheckTest, AsksForMoreThanAnExitCode) {
  for (const std::string program : {"/bin/true", "/bin/echo"}) {
    const Status refused = check(program);
    EXPECT_EQ(refused.code(), Code::kVersion) << program;
    EXPECT_THAT(refused.message(), HasSubstr("it is no musterd")) << program;
  }
  const std::string by_heart = script(
      "echo 'old: this program reads state of version 9 and speaks messages of version 11, and "
      "this state is of version 7'");
  EXPECT_THAT(check(by_heart).message(), HasSubstr("it says 'old: this program"));
}

TEST_F(ProgramCheckTest, GoesByTheExitCodeToo) {
  const std::string program = script(
      "echo \"$4: this program reads state of version 9 and speaks messages of version 11, and "
      "this state is of version 7\"; exit 3");
  EXPECT_EQ(check(program).code(), Code::kVersion);
  EXPECT_THAT(check("/bin/false").message(), HasSubstr("exited with code 1"));
}

TEST_F(ProgramCheckTest, AsksNothingWithoutChance) {
  EXPECT_EQ(check("/bin/true", "").code(), Code::kNoResource);
}

}  // namespace
}  // namespace muster::supervisor
