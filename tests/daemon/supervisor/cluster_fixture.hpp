// Supervisors that know each other: several nodes in one process, over the loopback addresses.
#pragma once

#include "daemon/control/packet.hpp"
#include "daemon/supervisor/base/kept_names.hpp"
#include "daemon/supervisor/program/supervisor.hpp"
#include "daemon/supervisor/takeover/state_file.hpp"
#include "tests/daemon/control/tls_pair.hpp"
#include "tests/support/all_reduce.hpp"
#include "tests/support/node.hpp"
#include "tests/support/ports.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::supervisor {

using control::Json;
using test::AllReduce;

constexpr std::uint32_t kRanksOfANode = 2;

// In place of the service manager: keeps the state that a node leaves to a successor.
//
// Owns    the memory file.
// Thread  any.
// Bound   one file, the last.
// Fails   jobs: as StateFile.
class StateKeeper {
 public:
  void take(const std::string& text, std::span<const int> descriptors) {
    if (descriptors.empty() || text.find(fmt::format("FDNAME={}", kStateName)) == std::string::npos) return;
    const std::lock_guard lock(mutex_);
    file_ = shm::Descriptor(dup(descriptors[0]));
  }
  Result<std::vector<SavedJob>> jobs() {
    const std::lock_guard lock(mutex_);
    MUSTER_ASSIGN_OR_RETURN(StateFile file, StateFile::adopt(shm::Descriptor(dup(file_.get()))));
    MUSTER_ASSIGN_OR_RETURN(Decoded read, file.read(state_format().version));
    return std::move(read.state.jobs);
  }

 private:
  std::mutex mutex_;
  shm::Descriptor file_;
};

class ClusterTest : public ::testing::Test {
 protected:
  // Nodes node0, node1, … with `count` members, of which each has two ranks of job "train". They do not start
  // yet.
  void prepare(std::size_t count) {
    const std::uint16_t port = test::free_port(count);
    roster_.cluster = lab_.cluster;
    for (std::size_t n = 0; n < count; ++n)
      roster_.members.push_back({name(n), {fmt::format("127.0.0.{}", n + 1), port}});
    roster_.configuration = {"job train"};
    for (std::size_t n = 0; n < count; ++n) {
      nodes_.push_back(std::make_unique<test::Node>());
      configure(n);
    }
  }
  void configure(std::size_t n) {
    Options& options = nodes_[n]->options;
    options.roster = roster_;
    options.roster.here = name(n);
    options.wall_time = [] { return control::test::kToday; };
    trust(n, lab_.certified(name(n)));
    control::JobSpec job = options.job_defaults;
    job.name = "train";
    job.owner = getuid();
    job.mesh = fmt::format("dp_replicate={},tp=2", roster_.members.size());
    std::vector<std::string> names;
    std::vector<std::uint32_t> node_of;
    for (std::uint32_t m = 0; m < roster_.members.size(); ++m) {
      names.push_back(name(m));
      node_of.insert(node_of.end(), kRanksOfANode, m);
    }
    job.world = *World::build(names, node_of, NodeIndex(static_cast<std::uint32_t>(n)));
    options.jobs = {job};
  }
  void trust(std::size_t n, const control::CertifiedKey& own) {
    Roster& roster = nodes_[n]->options.roster;
    roster.load_credentials = [this, own, cluster = roster.cluster]() -> Result<Roster::OwnCredentials> {
      MUSTER_ASSIGN_OR_RETURN(
          auto made, control::Credentials::of_certificates(cluster, lab_.authority.certificate, own));
      return Roster::OwnCredentials{std::make_shared<const control::Credentials>(std::move(made)),
                                    control::validity_of(own.certificate).value()};
    };
  }
  // Sets the cluster's tie breaker, and keeps each node's state. To be called before the nodes start.
  void have_tie_breaker(const std::string& node) {
    for (const auto& each : nodes_) {
      const auto& keeper = keepers_.emplace_back(std::make_shared<StateKeeper>());
      each->options.roster.tie_breaker = node;
      each->options.notify = [keeper](const std::string& text, std::span<const int> descriptors) {
        keeper->take(text, descriptors);
        return true;
      };
    }
  }
  // Checks the tie breaker of job "train" in each node's saved state, from which a new engine gets it.
  void expect_tie_breaker(const std::string& node) const {
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const auto jobs = keepers_.at(n)->jobs();
      ASSERT_TRUE(jobs) << name(n) << ": " << jobs.error().text();
      ASSERT_EQ(jobs->size(), 1u) << name(n);
      EXPECT_EQ(jobs->front().spec.tie_breaker, node) << name(n);
    }
  }
  void start_all() {
    for (const auto& node : nodes_) node->start();
  }
  // The node dies without notice, and comes back with nothing.
  void lose(std::size_t n) {
    nodes_[n] = nullptr;
    nodes_[n] = std::make_unique<test::Node>();
    configure(n);
  }
  static std::string name(std::size_t n) { return fmt::format("node{}", n); }

  Result<Json> ask(std::size_t n, const Json& command) const {
    const Instant soon = clock_.now() + std::chrono::seconds(20);
    MUSTER_ASSIGN_OR_RETURN(const auto socket, shm::connect_to(nodes_[n]->door(), soon, clock_));
    MUSTER_RETURN_IF_ERROR(control::send_packet(socket, shm::MessageKind::kCommand, 1, command));
    MUSTER_ASSIGN_OR_RETURN(const auto answer, control::receive_packet(socket, soon, clock_));
    return control::result_of(answer);
  }
  Json status(std::size_t n) const {
    auto answer = ask(n, {{"command", "status"}});
    EXPECT_TRUE(answer) << answer.error().text();
    return answer ? *std::move(answer) : Json::object();
  }
  // Node `n`'s entry for node `peer`.
  Json peer(std::size_t n, std::size_t peer) const {
    const Json all = status(n);
    for (const Json& entry : all.at("cluster").at("peers"))
      if (entry.at("node") == name(peer)) return entry;
    return {};
  }
  // Job train at that node; null: it is not there.
  Json job(std::size_t n) const {
    const Json all = status(n);
    for (const Json& entry : all.at("jobs"))
      if (entry.at("name") == "train") return entry;
    return {};
  }
  std::string job_at(std::size_t n) const {
    const Json there = job(n);
    return there.is_null() ? std::string() : there.at("state").get<std::string>();
  }
  std::uint64_t epoch_at(std::size_t n) const {
    const Json there = job(n);
    return there.is_null() ? 0 : there.at("epoch").get<std::uint64_t>();
  }
  // The node's reasons why jobs are not there.
  std::string waiting(std::size_t n) const {
    const Json said = status(n);
    std::string all;
    for (const Json& entry : said.at("cluster").at("waiting")) all += entry.at("why").get<std::string>();
    return all;
  }
  bool until(const std::function<bool()>& done) const {
    for (const Instant end = clock_.now() + std::chrono::seconds(30); clock_.now() < end;) {
      if (done()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  bool until_ready() const {
    return until([this] {
      for (std::size_t n = 0; n < nodes_.size(); ++n)
        if (job_at(n) != "ready" || epoch_at(n) != epoch_at(0)) return false;
      return true;
    });
  }
  int open(std::size_t n, int rank, muster_session** session) const {
    const auto options = nodes_[n]->rank("train", rank, static_cast<int>(kRanksOfANode * nodes_.size()));
    return muster_open(&options, session);
  }
  // Ranks of all nodes attach, and those of one node add what they have.
  void expect_works() const {
    std::vector<std::thread> ranks;
    for (std::size_t n = 0; n < nodes_.size(); ++n)
      for (std::uint32_t i = 0; i < kRanksOfANode; ++i)
        ranks.emplace_back([this, n, i] {
          muster_session* session = nullptr;
          ASSERT_EQ(open(n, static_cast<int>(n * kRanksOfANode + i), &session), MUSTER_OK)
              << muster_last_error();
          muster_group group = 0;
          ASSERT_EQ(muster_mesh_group(session, "tp", &group), MUSTER_OK);
          {
            const AllReduce reduce(session, 100, group, AllReduce::Place::kApart);
            std::fill_n(reduce.source, 100, static_cast<float>(n + 1));
            EXPECT_EQ(reduce.start_and_wait(MUSTER_LANE_ALLREDUCE), MUSTER_OK) << muster_last_error();
            EXPECT_EQ(reduce.target[99], static_cast<float>(2 * (n + 1)));
          }
          EXPECT_EQ(muster_close(session), MUSTER_OK);
        });
    for (std::thread& rank : ranks) rank.join();
  }

  SteadyClock clock_;
  const control::test::Lab lab_{"lab-a"};
  Roster roster_;
  std::vector<std::unique_ptr<test::Node>> nodes_;
  std::vector<std::shared_ptr<StateKeeper>> keepers_;
};

}  // namespace muster::supervisor
