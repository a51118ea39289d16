// Daemons of two nodes as programs, with files that `muster certs` has made, on two loopback addresses.
#include "tests/daemon/cli/program.hpp"
#include "tests/support/ports.hpp"

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class TwoDaemons : public ::testing::Test {
 protected:
  TwoDaemons() {
    cluster_ = write("cluster.yaml",
                     fmt::format("cluster: {{name: lab-a, port: {}}}\n"
                                 "nodes:\n"
                                 "  - {{host: \"node[01-02]\", address: \"127.0.0.[1-2]\", devices: {{kind: "
                                 "host, count: 2}}}}\n"
                                 "jobs:\n"
                                 "  - {{name: train, mesh: {{dims: {{dp_replicate: 2, tp: 2}}}}}}\n",
                                 free_port(2)));
    for (const int n : {0, 1}) std::filesystem::create_directory(folder_of(n));
    certify(certs());
  }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string file = folder_.write(name, text);
    std::filesystem::permissions(file, std::filesystem::perms(0600));
    return file;
  }
  static std::string node(int n) { return fmt::format("node0{}", n + 1); }
  std::string folder_of(int n) const { return folder_.path() + "/" + node(n); }
  std::string socket(int n) const { return folder_of(n) + "/ranks/musterd.sock"; }
  std::string certs() const { return folder_.path() + "/certs"; }
  void certify(const std::string& folder) const {
    std::filesystem::create_directory(folder);
    ASSERT_EQ(muster({"certs", "init", "--cluster", "lab-a", "--folder", folder}).code, 0);
    ASSERT_EQ(muster({"certs", "node", "node01", "node02", "--folder", folder}).code, 0);
  }
  void start(int n, const std::string& more = "") { start_with(n, certs(), more); }
  void start_with(int n, const std::string& folder, const std::string& more = "") {
    std::vector<std::string> words{program("musterd"), "--directory", folder_of(n)};
    std::vector<std::string> settings{"node.name=" + node(n), "jobs_from=" + cluster_,
                                      "peers.certificates=" + folder};
    if (!more.empty()) settings.push_back(more);
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    daemons_[static_cast<std::size_t>(n)] = std::make_unique<Running>(Start{words, {"COLUMNS=100"}, {}});
  }
  Running& daemon(int n) { return *daemons_[static_cast<std::size_t>(n)]; }
  std::string status(int n) const { return muster({"status", "--endpoint", socket(n)}, {"COLUMNS=100"}).out; }
  Ran hang(int n) const { return muster({"hang", "--job", "train", "--endpoint", socket(n)}); }
  std::string jobs(int n) const { return muster({"jobs", "--endpoint", socket(n)}).out; }
  // Until `muster status` of the node says so.
  ::testing::AssertionResult says(int n, const std::string& what) const {
    std::string last;
    for (int waited = 0; waited < kPatienceMs; waited += 50) {
      last = status(n);
      if (::testing::Value(last, ContainsRegex(what))) return ::testing::AssertionSuccess();
      usleep(50000);
    }
    return ::testing::AssertionFailure() << node(n) << " never says '" << what << "' but\n" << last;
  }

  const Folder folder_;
  std::string cluster_;
  std::array<std::unique_ptr<Running>, 2> daemons_;
};

TEST_F(TwoDaemons, KnowEachOtherByTheFilesOfTheCommandLine) {
  start(0);
  ASSERT_TRUE(says(0, "node02 +away.*Connection refused"));
  EXPECT_THAT(status(0), AllOf(HasSubstr("node node01 of cluster lab-a"), HasSubstr("by certificates"),
                               HasSubstr("job train waits for its nodes: node node02 is away")));
  start(1);
  ASSERT_TRUE(says(0, "node02 +up"));
  ASSERT_TRUE(says(1, "node01 +up"));
  for (const int n : {0, 1}) {
    ASSERT_TRUE(says(n, "train +ready +0/2"));
    EXPECT_THAT(jobs(n), HasSubstr("job train: attached 0/2 on node01, 0/2 on node02\n"));
    EXPECT_EQ(hang(n).code, 0) << hang(n).out;
  }
  // One of them is killed. The other notices, and makes the job again once it is back.
  daemon(1).signal(SIGKILL);
  daemon(1).wait();
  ASSERT_TRUE(says(0, "node02 +away"));
  EXPECT_THAT(jobs(0),
              AllOf(HasSubstr("job train: attached 0/2 on node01\n"),
                    ContainsRegex("nothing is known of ranks 2 3 on node02: node node02 is away: .")));
  EXPECT_EQ(hang(0).code, 5);
  EXPECT_THAT(hang(0).out, AllOf(HasSubstr("VERDICT  unknown"),
                                 ContainsRegex("silent +node02: node node02 is away: .*unknown: ranks 2 3")));
  start(1);
  ASSERT_TRUE(says(0, "node02 +up"));
  for (const int n : {0, 1}) ASSERT_TRUE(says(n, "train +ready"));
  for (const int n : {0, 1}) {
    daemon(n).signal(SIGTERM);
    EXPECT_EQ(daemon(n).wait().code, 0);
  }
}

TEST_F(TwoDaemons, ReadCredentialsAgainAtSighup) {
  const std::string others = folder_.path() + "/others";
  certify(others);
  start(0);
  start_with(1, others);
  ASSERT_TRUE(says(0, "node02 +refused.*certificate"));
  ASSERT_TRUE(says(1, "turned away .* ago: 127.0.0.1"));
  EXPECT_THAT(status(0), Not(HasSubstr("train  ready")));
  for (const auto& file : std::filesystem::directory_iterator(certs()))
    std::filesystem::copy(file, others, std::filesystem::copy_options::overwrite_existing);
  daemon(1).signal(SIGHUP);
  ASSERT_TRUE(says(0, "node02 +up"));
  std::filesystem::remove(others + "/node02.pem");
  daemon(1).signal(SIGHUP);
  EXPECT_TRUE(says(1, "node01 +up")) << "what stands is kept";
  daemon(1).signal(SIGTERM);
  const std::string log = daemon(1).wait().err;
  EXPECT_THAT(
      log, HasSubstr("SIGHUP: the credentials for other nodes are read again; `muster upgrade --endpoint "));
  EXPECT_THAT(log, HasSubstr("the credentials stay as they were"));
}

TEST_F(TwoDaemons, DoNotStartWithoutCredentials) {
  std::filesystem::permissions(certs() + "/node01-key.pem", std::filesystem::perms(0644));
  start(0);
  const Ran readable = daemon(0).wait();
  EXPECT_EQ(readable.code, 1);
  EXPECT_THAT(readable.err, HasSubstr("chmod 600"));
  start_with(0, folder_.path() + "/nowhere");
  const Ran none = daemon(0).wait();
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("no such file"));
}

TEST_F(TwoDaemons, TalkInPlainTextOnlyIfTheyAreToldTo) {
  start(0, "peers.plaintext=true");
  start(1, "peers.plaintext=true");
  ASSERT_TRUE(says(0, "node02 +up"));
  EXPECT_THAT(status(0), HasSubstr("by plain text"));
  EXPECT_THAT(daemon(0).err(), HasSubstr("can pose as a node"));
  daemon(1).signal(SIGKILL);
  daemon(1).wait();
  start(1);
  ASSERT_TRUE(says(0, "node02 +(refused|away)"));
  EXPECT_TRUE(says(1, "turned away .* ago"));
}

}  // namespace
}  // namespace muster::test
