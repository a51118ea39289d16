// A daemon that is killed and upgraded, with a service manager, ranks and command lines around it.
#pragma once

#include "daemon/cli/question.hpp"
#include "tests/daemon/cli/program.hpp"
#include "tests/support/holdings.hpp"
#include "tests/support/steward.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <muster/muster.h>
#include <sys/prctl.h>

namespace muster::test {

using Steady = std::chrono::steady_clock;

// Half the restarts end in this one, whose state is a version later.
inline const std::string kThis = MUSTER_PROGRAMS "/musterd";
inline const std::string kNext = MUSTER_NEXT_PROGRAM;

class RestartTest : public ::testing::Test {
 protected:
  RestartTest() {
    // Engines of a daemon that was killed become children of this process, which sees that they end.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    start_over_with(engine_);
  }
  ~RestartTest() override {
    steward_.reset();
    for (const pid_t engine : engines()) kill(engine, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }

  // Before anything is begun: another engine program.
  void start_over_with(const std::string& engine) {
    steward_.reset();
    steward_ = std::make_unique<Steward>(
        folder_.path(),
        std::vector<std::string>{"--transient", "--directory", directory(), "--engine", engine, "--set",
                                 "limits.arena_segment=4MiB", "--set", program_folders()},
        std::vector<std::string>{});
  }
  std::string directory() const { return folder_.path() + below_; }
  std::string socket() const { return directory() + "/ranks/musterd.sock"; }
  // Where the programs lie to which a test gives way.
  std::string program_folders() const {
    const auto folder = [](const std::string& path) { return path.substr(0, path.rfind('/')); };
    return "node.program_folders=" + folder(kThis) + ":" + folder(kNext) + ":/usr/bin:" + folder_.path();
  }
  cli::DaemonAddress door() const { return {socket(), std::chrono::seconds(30)}; }
  Steward& steward() { return *steward_; }

  // The first one: nobody holds its socket before it listens.
  void begin(const std::string& program) {
    steward_->start(program);
    ASSERT_TRUE(within(std::chrono::seconds(30), [this] { return steward_->heard("READY=1") > 0; }))
        << steward_->log();
  }
  Json ask(const Json& command) const {
    const auto answer = cli::ask(door(), command);
    EXPECT_TRUE(answer) << command.dump() << ": " << answer.error().text << "\n" << steward_->log();
    return answer ? answer->result : Json();
  }
  Json status() const { return ask({{"command", "status"}}); }
  // The job in a status; null if it is not there.
  static Json job_in(const Json& status, const std::string& name) {
    if (status.is_object())
      for (const Json& job : status.at("jobs"))
        if (job.at("name") == name) return job;
    return {};
  }
  Json job(const std::string& name) const { return job_in(status(), name); }
  bool has_ranks(const Json& status, const std::string& name, std::uint32_t attached) const {
    const Json found = job_in(status, name);
    return found.is_object() && found.at("state") == "ready" && found.at("attached") == attached;
  }
  static bool within(std::chrono::milliseconds time, const std::function<bool()>& good) {
    for (const auto end = Steady::now() + time; Steady::now() < end;) {
      if (good()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return good();
  }
  // The job that a `muster run` of that process has created; empty if there is none for long.
  std::string run_job_of(pid_t pid) const {
    const std::string begin = "run-" + std::to_string(pid) + "-";
    std::string name;
    within(std::chrono::seconds(30), [&] {
      const Json now = status();
      for (const Json& job : now.at("jobs"))
        if (job.at("name").get<std::string>().starts_with(begin)) name = job.at("name");
      return !name.empty();
    });
    return name;
  }
  bool await_ranks(const std::string& name, std::uint32_t attached) {
    return within(std::chrono::seconds(30), [&] { return has_ranks(status(), name, attached); });
  }
  // Empty if it gave way, else why not.
  std::string upgrade(const std::string& program) {
    const auto answer = cli::ask(door(), {{"command", "upgrade"}, {"program", program}});
    if (answer) return "an answer: " + answer->result.dump();
    return answer.error().text.find("restarted in the middle") != std::string::npos ? ""
                                                                                    : answer.error().text;
  }
  muster_status_t open(const char* job, int rank, int world, muster_session** session,
                       const std::string& token = "") const {
    muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
    const std::string endpoint = socket();
    options.endpoint = endpoint.c_str();
    options.job = job;
    options.rank = rank;
    options.world_size = world;
    options.timeout_ns = 30'000'000'000;
    if (!token.empty()) options.token = token.c_str();
    return muster_open(&options, session);
  }
  // Engines that run, whoever their parent is now.
  std::vector<pid_t> all_engines() const {
    std::vector<pid_t> found = engines();
    const Json now = status();
    for (const Json& one : now.at("jobs")) {
      const pid_t pid = one.at("engine_pid").get<pid_t>();
      if (std::find(found.begin(), found.end(), pid) == found.end()) found.push_back(pid);
    }
    return found;
  }

  Folder folder_;
  std::string below_;  // the folder: where the runtime directory is
  std::string engine_ = MUSTER_PROGRAMS "/muster-engine";
  std::unique_ptr<Steward> steward_;
};

}  // namespace muster::test
