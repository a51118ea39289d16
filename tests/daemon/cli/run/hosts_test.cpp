#include "daemon/cli/run/hosts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Words = std::vector<std::string>;

TEST(Hosts, AreReadInTheirOrder) {
  const auto hosts = parse_hosts("node[01-02,07]:4,login1,big:1024");
  ASSERT_TRUE(hosts) << hosts.error().text;
  EXPECT_THAT(*hosts, ElementsAre(HostShare{"node01", 4}, HostShare{"node02", 4}, HostShare{"node07", 4},
                                  HostShare{"login1", 1}, HostShare{"big", 1024}));
  EXPECT_EQ(hosts_text(*hosts), "node01:4,node02:4,node07:4,login1:1,big:1024");
}

TEST(Hosts, AreRefusedWithWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases{{"a,a:2", "host a is named twice"},
                                                               {"n[1-3]:2,n2", "host n2 is named twice"},
                                                               {"a:0", "0 is not in the range 1 to 1024"},
                                                               {"a:1025", "1025 is not in the range"},
                                                               {"a:x", "'x' is not a whole number"},
                                                               {"a:", "ranks of 'a:'"},
                                                               {"a:02", "begins with 0"},
                                                               {"a,,b", "names at least one host"},
                                                               {"n[1-2", "not closed"},
                                                               {"n[1-2:4", "not closed"},
                                                               {"a b", "no spaces"},
                                                               {"n[1-5000]", "too many hosts"},
                                                               {"n[1-3000],m[1-3000]", "6000 hosts"},
                                                               {"n[1-100]:1024", "102400 ranks"}};
  for (const auto& [text, why] : cases) {
    const auto hosts = parse_hosts(text);
    ASSERT_FALSE(hosts) << text;
    EXPECT_EQ(hosts.error().exit_code, kUsage);
    EXPECT_THAT(hosts.error().text, HasSubstr(why)) << text;
  }
}

TEST(Hosts, ALaunchersWordsAreThoseOfAShell) {
  EXPECT_THAT(*parse_launcher("ssh -o  'User=a b' \"{host}\" {command}"),
              ElementsAre("ssh", "-o", "User=a b", "{host}", "{command}"));
  EXPECT_THAT(*parse_launcher("a'b'\"c\\\"\" d\\ e '' 'f\\'"), ElementsAre("abc\"", "d e", "", "f\\"));
  EXPECT_THAT(parse_launcher("ssh 'x").error().text, HasSubstr("' is not closed"));
  EXPECT_THAT(parse_launcher("  ").error().text, HasSubstr("names no program"));
}

// Goal:   a launcher that hands its words to a shell runs the same command as one that executes them.
TEST(Hosts, TheCommandIsOneWordForAShellOrFollowsAsWords) {
  const Words command{"/opt/muster", "run", "--", "sh", "-c", "echo it's $x", ""};
  EXPECT_THAT(launcher_words({"ssh", "{host}", "{command}"}, "n1", command),
              ElementsAre("ssh", "n1", "/opt/muster run -- sh -c 'echo it'\\''s $x' ''"));
  EXPECT_THAT(launcher_words({"env", "S=/x/{host}/s{host}"}, "n1", {"a", "b c"}),
              ElementsAre("env", "S=/x/n1/sn1", "a", "b c"));
  EXPECT_THAT(launcher_words({"sh", "-c", "cd /tmp && exec {command}"}, "n1", {"a", "{host}"}),
              ElementsAre("sh", "-c", "cd /tmp && exec a '{host}'"));
  EXPECT_EQ(launcher_text({"ssh", "{host}", "{command}"}, "n1"), "ssh n1 …");
  EXPECT_EQ(launcher_text({"env", "A=b c"}, "n1"), "env 'A=b c' …");
}

TEST(Hosts, GetTheVariablesThatAreNamedAndSettings) {
  const Words environment{"HOME=/h", "MUSTER_SET_log__level=debug", "DATA=/d", "DATABASE=x"};
  EXPECT_THAT(*passed_on(environment, {"DATA", "DATA"}),
              ElementsAre("MUSTER_SET_log__level=debug", "DATA=/d"));
  for (const char* unset : {"DAT", "DATA=/d", ""})
    EXPECT_EQ(passed_on(environment, {unset}).error().exit_code, kUsage) << unset;
}

}  // namespace
}  // namespace muster::cli
