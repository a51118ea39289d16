// `muster run`: runs ranks on this machine, with the daemon that runs here or with a private one; or, as the
// head of several such runs, on the nodes of a cluster.
#pragma once

#include "daemon/cli/question.hpp"
#include "daemon/cli/run/head.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

enum class Lifetime : std::uint8_t { kRun, kKeep };
// kAny: the daemon at the default socket, else a private one. kOption, kVariable: the daemon at the endpoint
// that --endpoint or MUSTER_ENDPOINT names, and no other.
enum class Home : std::uint8_t { kAny, kOption, kVariable, kPrivate };

struct RunOptions {
  std::int64_t ranks = 0;  // 0: as many as the existing job has
  std::string mesh;        // empty: dp_shard=-1
  std::vector<std::string> flattens;
  std::string config;  // musterd.yaml of a private daemon
  std::string job;     // empty: run-<pid>-<chance>
  Lifetime lifetime = Lifetime::kRun;
  Home home = Home::kAny;
  std::string trace;  // a file
  Prefix prefix = Prefix::kRank;
  Nanos grace = std::chrono::seconds(10);
  bool elastic = false;
  bool check = false;  // the ranks' sessions are in check mode
  HeadRequest head;    // with hosts: the run is the head of its parts there
  PartFolder part;     // with a host: the run is a part of another
  DaemonAddress address;
  std::vector<std::string> command;
  std::vector<std::string> environment;
};

// Returns 0, the first failure's code, 128 + a signal, or a code of outcome.hpp. Elastic: 0 if the last rank
// to end succeeded, else the code of the first failure after the last success.
int run_ranks(const RunOptions& options);

}  // namespace muster::cli
