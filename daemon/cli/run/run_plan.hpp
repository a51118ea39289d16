// RunPlan: the options of a run, checked as far as that needs no daemon.
#pragma once

#include "daemon/cli/question.hpp"
#include "daemon/cli/run/head.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::cli {

// Options that fit together: the ranks are those of the hosts, and the mesh is canonical if their number is
// known.
struct RunPlan {
  enum class Lifetime : std::uint8_t { kRun, kKeep };
  // kAny: the daemon at the default socket, else a private one. kOption, kVariable: the daemon at the
  // endpoint that --endpoint or MUSTER_ENDPOINT names, and no other.
  enum class Home : std::uint8_t { kAny, kOption, kVariable, kPrivate };
  struct Options {
    std::int64_t ranks = 0;  // 0: as many as the existing job has
    std::string mesh;        // empty: dp_shard=-1
    std::vector<std::string> flattens;
    std::string config;  // musterd.yaml of a private daemon
    std::string job;     // empty: run-<pid>-<chance>
    Lifetime lifetime = Lifetime::kRun;
    Home home = Home::kAny;
    std::string trace;  // a file
    Ranks::Prefix prefix = Ranks::Prefix::kRank;
    Nanos grace = std::chrono::seconds(10);
    bool elastic = false;
    bool check = false;     // the ranks' sessions are in check mode
    RunHead::Request head;  // with hosts: the run is the head of its parts there
    PartFolder part;        // with a host: the run is a part of another
    DaemonAddress address;
    std::vector<std::string> command;
    std::vector<std::string> environment;
  };
  Options options;
  std::optional<RunHead> head;  // the run is a head
  bool mesh_given = false;      // with --mesh
  bool is_head() const { return head.has_value(); }
  bool is_part() const { return !options.part.host.empty(); }
};

// A part enters its folder. Fails with what is wrong about the options by themselves.
OrTrouble<RunPlan> plan_run(RunPlan::Options options);

Trouble too_many_ranks(std::int64_t ranks);

}  // namespace muster::cli
