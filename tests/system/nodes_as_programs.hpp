// Two nodes as programs: daemons on loopback addresses, which have a job together, and launchers that only
// choose a daemon.
#pragma once

#include "tests/daemon/cli/program.hpp"
#include "tests/support/ports.hpp"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::test {

// Job train has ranks 0 and 1 on node01, 2 and 3 on node02.
class NodesAsPrograms : public ::testing::Test {
 protected:
  NodesAsPrograms() {
    const std::string cluster = folder_.write(
        "cluster.yaml",
        fmt::format("cluster: {{name: lab-a, port: {}, network: ofi}}\n"
                    "nodes:\n"
                    "  - {{host: \"node[01-02]\", address: \"127.0.0.[1-2]\", devices: {{kind: host, count: "
                    "2}}}}\n"
                    "jobs:\n"
                    "  - {{name: train, mesh: {{dims: {{dp_replicate: 2, tp: 2}}}}}}\n",
                    free_port(2)));
    for (const int n : {1, 2}) {
      std::filesystem::create_directory(folder_of(n));
      Start start{{program("musterd"), "--directory", folder_of(n)}, {}, {}};
      for (const std::string& setting :
           {fmt::format("node.name=node0{}", n), "jobs_from=" + cluster, std::string("peers.plaintext=true")})
        start.arguments.insert(start.arguments.end(), {"--set", setting});
      daemons_.push_back(std::make_unique<Running>(start));
    }
    for (const int n : {1, 2})
      EXPECT_TRUE(until([&] { return state(n, "train") == "ready"; }))
          << muster({"status", "--endpoint", socket(n)}).out << "node01:\n"
          << daemons_[0]->err() << "node02:\n"
          << daemons_[1]->err();
  }
  std::string folder_of(int n) const { return fmt::format("{}/node0{}", folder_.path(), n); }
  std::string socket(int n) const { return folder_of(n) + "/ranks/musterd.sock"; }
  std::string choosing() const { return "env MUSTER_ENDPOINT=" + folder_.path() + "/{host}"; }
  // The state of a job on that node; empty: the node has no such job.
  std::string state(int n, const std::string& job) const {
    const Ran ran = muster({"status", "--json", "--endpoint", socket(n)});
    if (ran.code != 0) return "";
    const Json status = ran.json();
    for (const Json& each : status.at("jobs"))
      if (each.at("name") == job) return each.at("state");
    return "";
  }
  static bool until(const std::function<bool()>& done) {
    for (int waited = 0; waited < kPatienceMs; waited += 100, usleep(50000))
      if (done()) return true;
    return false;
  }

  // `muster run` on node 1 with a shell as each rank.
  Start run_line(std::vector<std::string> options, const std::string& script,
                 std::vector<std::string> environment = {}) const {
    Start start{{program("muster"), "run", "--endpoint", socket(1)}, std::move(environment), {}};
    start.arguments.insert(start.arguments.end(), options.begin(), options.end());
    start.arguments.insert(start.arguments.end(), {"--", "sh", "-c", script});
    return start;
  }
  // The same over both nodes, in the job of the cluster file.
  Start hosts_line(std::vector<std::string> options, const std::string& script,
                   std::vector<std::string> environment = {}) const {
    const std::vector<std::string> hosts{"--hosts", "node01:2,node02:2", "--job",
                                         "train",   "--launcher",        choosing()};
    options.insert(options.begin(), hosts.begin(), hosts.end());
    return run_line(options, script, std::move(environment));
  }

  const Folder folder_;
  std::vector<std::unique_ptr<Running>> daemons_;
};

}  // namespace muster::test
