// Daemons of two nodes, as programs, whose clocks are wrong: each says by how much they differ.
#include "tests/daemon/cli/program.hpp"
#include "tests/support/ports.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ClocksOfPrograms : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(MUSTER_SANITIZED)
    GTEST_SKIP() << "a sanitizer does not let another library replace the clock";
#endif
  }
  // Certificates are made by this machine's clock.
  void start_nodes(const std::vector<long>& skews) {
    const std::string certificates = folder_.path() + "/certs";
    const Ran init = muster({"certs", "init", "--cluster", "lab", "--folder", certificates});
    const Ran nodes = muster({"certs", "node", "node01", "node02", "--folder", certificates});
    ASSERT_EQ(init.code + nodes.code, 0) << init.err << nodes.err;
    const std::string cluster =
        folder_.write("cluster.yaml",
                      fmt::format("cluster: {{name: lab, port: {}}}\n"
                                  "nodes:\n"
                                  "  - {{host: \"node[01-02]\", address: \"127.0.0.[1-2]\", devices: {{kind: "
                                  "host, count: 1}}}}\n",
                                  free_port(2)));
    for (const int n : {1, 2}) {
      std::filesystem::create_directory(folder_of(n));
      Start start{
          {program("musterd"), "--directory", folder_of(n)},
          {"LD_PRELOAD=" SKEWED_CLOCK, fmt::format("SKEW={}", skews.at(static_cast<std::size_t>(n - 1)))},
          {}};
      for (const std::string& setting : {fmt::format("node.name=node0{}", n), "jobs_from=" + cluster,
                                         "peers.certificates=" + certificates})
        start.arguments.insert(start.arguments.end(), {"--set", setting});
      daemons_.push_back(std::make_unique<Running>(start));
    }
  }
  std::string folder_of(int n) const {
    return fmt::format("{}/node0{}", folder_.path(), n);
  }
  // Why that node does not have the other, once it is refused.
  std::string said(int n) const {
    std::string all;
    for (int waited = 0; waited < kPatienceMs; waited += 100, usleep(50'000)) {
      const Ran status = muster({"status", "--json", "--endpoint", folder_of(n) + "/ranks/musterd.sock"});
      if (status.code != 0) continue;
      all = status.json().at("cluster").at("peers").at(0).at("why");
      if (all.find("its clock") != std::string::npos) return all;
    }
    return all + daemons_.at(static_cast<std::size_t>(n - 1))->err();
  }

  const Folder folder_;
  std::vector<std::unique_ptr<Running>> daemons_;
};

constexpr long kHour = 3600;
constexpr long kDay = 24 * kHour;

TEST_F(ClocksOfPrograms, AreComparedWhereOneIsBehind) {
  start_nodes({0, -2 * kHour});
  EXPECT_THAT(said(1),
              AllOf(HasSubstr("it refuses node node01: the certificate of the authority is valid from"),
                    HasSubstr("its clock, as it says, is 2h 0m behind ours")));
  EXPECT_THAT(said(2), HasSubstr("its clock, as it says, is 2h 0m ahead of ours"));
}

TEST_F(ClocksOfPrograms, AreComparedWhereTheOneThatDialsIsBehind) {
  start_nodes({-2 * kHour, 0});
  EXPECT_THAT(said(1), HasSubstr("its clock, as it says, is 2h 0m ahead of ours"));
  EXPECT_THAT(said(2),
              AllOf(HasSubstr("it refuses node node02: the certificate of the authority is valid from"),
                    HasSubstr("its clock, as it says, is 2h 0m behind ours")));
}

TEST_F(ClocksOfPrograms, AreComparedWhereOneIsFarAhead) {
  start_nodes({0, 58 * kDay});
  EXPECT_THAT(said(1),
              AllOf(HasSubstr("it refuses node node01: the certificate of node node01 was valid until"),
                    HasSubstr("its clock, as it says, is 58d 0h ahead of ours")));
  EXPECT_THAT(said(2), HasSubstr("its clock, as it says, is 58d 0h behind ours"));
}

TEST_F(ClocksOfPrograms, AreComparedWhereBothAreWrong) {
  start_nodes({-2 * kHour, 58 * kDay});
  EXPECT_THAT(said(1), HasSubstr("its clock, as it says, is 58d 2h ahead of ours"));
  EXPECT_THAT(said(2), HasSubstr("its clock, as it says, is 58d 2h behind ours"));
}

// Both are wrong alike: then only the certificates can be at fault, as far as the nodes know.
TEST_F(ClocksOfPrograms, AgreeWhereBothAreWrongAlike) {
  start_nodes({58 * kDay, 58 * kDay});
  for (const int n : {1, 2})
    EXPECT_THAT(said(n), AllOf(HasSubstr("was valid until"), HasSubstr("by the clock of node node"),
                               HasSubstr("its clock agrees with ours: write a new certificate")));
}

}  // namespace
}  // namespace muster::test
