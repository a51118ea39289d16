// `muster certs`, through the program.
#include "tests/daemon/cli/program.hpp"
#include "tests/daemon/control/tls_pair.hpp"
#include "tests/support/folder.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace muster::test {
namespace {

using ::testing::HasSubstr;

class CertsCommand : public ::testing::Test {
 protected:
  std::string text(const std::string& name) const {
    std::ifstream file(folder_.path() + "/" + name);
    std::ostringstream all;
    all << file.rdbuf();
    return all.str();
  }
  mode_t mode(const std::string& name) const {
    struct stat facts {};
    EXPECT_EQ(::stat((folder_.path() + "/" + name).c_str(), &facts), 0) << name;
    return facts.st_mode & 0777;
  }
  Ran certs(std::vector<std::string> words) const {
    words.insert(words.begin(), "certs");
    words.insert(words.end(), {"--folder", folder_.path()});
    return muster(words);
  }
  control::Credentials credentials_of(const std::string& node) const {
    auto made = control::Credentials::of_certificates("lab-a", text("authority.pem"),
                                                      {text(node + ".pem"), text(node + "-key.pem")});
    EXPECT_TRUE(made) << made.error().text();
    return *std::move(made);
  }
  const Folder folder_;
};

// Goal:   two nodes of a lab know each other by what two commands have written.
TEST_F(CertsCommand, MakesAWorkingAuthorityAndItsNodes) {
  const Ran init = certs({"init", "--cluster", "lab-a"});
  ASSERT_EQ(init.code, 0) << init.err;
  const Ran nodes = certs({"node", "node01", "node02", "--json"});
  ASSERT_EQ(nodes.code, 0) << nodes.err;
  EXPECT_EQ(nodes.json().at("cluster"), "lab-a");
  EXPECT_EQ(nodes.json().at("nodes").size(), 2U);
  EXPECT_EQ(mode("authority-key.pem"), 0600U);
  EXPECT_EQ(mode("node01-key.pem"), 0600U);
  EXPECT_EQ(mode("node01.pem"), 0644U);
  const Ran checked = certs({"check", "node01", "node02"});
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("node node02: known to node node01; good for"));
  const control::Credentials one = credentials_of("node01");
  const control::Credentials two = credentials_of("node02");
  control::test::TlsPair pair(one, two, "node02", control::wall_time());
  pair.run();
  EXPECT_TRUE(pair.client.established()) << pair.client_says.text();
  EXPECT_EQ(pair.server.peer(), "node01") << pair.server_says.text();
}

TEST_F(CertsCommand, KeepsAnAuthorityThatIsThere) {
  ASSERT_EQ(certs({"init"}).code, 0);
  const std::string before = text("authority-key.pem");
  const Ran again = certs({"init"});
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.err, HasSubstr("is there already"));
  EXPECT_EQ(text("authority-key.pem"), before);
}

TEST_F(CertsCommand, FindsFilesByWhichANodeWouldBeRefused) {
  ASSERT_EQ(certs({"init", "--cluster", "lab-a"}).code, 0);
  ASSERT_EQ(certs({"node", "node01", "node02"}).code, 0);
  const std::string at = folder_.path() + "/";
  std::filesystem::rename(at + "node02.pem", at + "node03.pem");
  std::filesystem::rename(at + "node02-key.pem", at + "node03-key.pem");
  const Ran renamed = certs({"check", "node01", "node03"});
  EXPECT_EQ(renamed.code, 1);
  EXPECT_THAT(renamed.err, HasSubstr("it is node node02, and node node03 was expected"));
  ASSERT_EQ(certs({"node", "node02"}).code, 0);
  std::filesystem::copy_file(at + "node01-key.pem", at + "node02-key.pem",
                             std::filesystem::copy_options::overwrite_existing);
  const Ran mixed = certs({"check", "node01", "node02"});
  EXPECT_NE(mixed.code, 0);
  EXPECT_THAT(mixed.err, HasSubstr("node02: the node's key does not belong to its certificate"));
}

// Goal:   files that are good at another time are told from files that are wrong, by this machine's clock.
TEST_F(CertsCommand, SaysByHowMuchFilesLieOutsideTheirDates) {
  using std::chrono::hours;
  const control::WallTime now = control::wall_time();
  const auto write_all = [&](control::WallTime of_authority, control::WallTime of_node) {
    const control::CertifiedKey authority =
        *control::make_authority("lab-a", of_authority, control::kAuthorityLife);
    const control::CertifiedKey node =
        *control::certify_node(authority, "lab-a", "node01", of_node, control::kNodeLife);
    folder_.write("authority.pem", authority.certificate);
    folder_.write("node01.pem", node.certificate);
    folder_.write("node01-key.pem", node.key);
  };
  const struct {
    control::WallTime of_authority, of_node;
    const char* said;
  } cases[] = {{now, now - control::kNodeLife - hours(25), "node node01: its certificate was valid until "},
               {now, now + hours(30), "node node01: its certificate is valid from "},
               {now + hours(30), now + hours(30), "the certificate of the authority is valid from "}};
  for (const auto& each : cases) {
    write_all(each.of_authority, each.of_node);
    const Ran checked = certs({"check", "node01"});
    EXPECT_EQ(checked.code, 1);
    EXPECT_THAT(checked.err,
                ::testing::AllOf(HasSubstr(each.said), HasSubstr("by the clock of this machine")));
  }
}

TEST_F(CertsCommand, SaysWhatIsMissingOrWrong) {
  const Ran without = certs({"node", "node01"});
  EXPECT_EQ(without.code, 4);
  EXPECT_THAT(without.err, HasSubstr("muster certs init"));
  EXPECT_EQ(certs({"init", "--cluster", "lab a"}).code, 2);
  ASSERT_EQ(certs({"init"}).code, 0);
  EXPECT_EQ(certs({"node", "node/01"}).code, 2);
  EXPECT_THAT(certs({"node", "authority"}).err, HasSubstr("cannot be called authority"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/node"));
  EXPECT_EQ(certs({"node"}).code, 2);
}

// Goal:   nodes are named as in a cluster file and in --hosts.
TEST_F(CertsCommand, TakesRangesOfNodes) {
  ASSERT_EQ(certs({"init"}).code, 0);
  const Ran made = certs({"node", "node[01-03]", "login", "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.json().at("nodes").size(), 4U);
  EXPECT_EQ(made.json().at("nodes").at(2).at("node"), "node03");
  EXPECT_EQ(certs({"check", "node[01-03],login"}).code, 0);
  const Ran open = certs({"node", "node[01-16"});
  EXPECT_EQ(open.code, 2);
  EXPECT_EQ(open.err, "muster: node 'node[01-16': '[' is not closed; write ']' after the last number\n");
  EXPECT_EQ(certs({"node", "authority,node01"}).code, 2);
}

TEST_F(CertsCommand, SaysWhatStandsInThePlaceOfItsFolder) {
  const std::string file = folder_.write("file", "");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"init"}, {"node", "node01"}, {"check", "node01"}}) {
    std::vector<std::string> line{"certs"};
    line.insert(line.end(), words.begin(), words.end());
    line.insert(line.end(), {"--folder", file});
    const Ran ran = muster(line);
    EXPECT_NE(ran.code, 0);
    EXPECT_THAT(ran.err, HasSubstr("--folder: " + file + " is a file; ")) << words.front();
  }
}

}  // namespace
}  // namespace muster::test
