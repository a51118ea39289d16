#include "tests/bench/contestants.hpp"

#include "tests/bench/muster_alone.hpp"

#include <array>
#include <atomic>

namespace muster::bench {
namespace {

// How the peers' launchers are called here; empty where a peer was not there when this was built.
constexpr const char* kOpenMpiLauncher = MUSTER_OPENMPI_LAUNCHER;
constexpr const char* kMpichLauncher = MUSTER_MPICH_LAUNCHER;

using Words = std::vector<std::string>;

struct Peer {
  const char* name;
  const char* program;
  const char* packages;
};
constexpr std::array kPeers = {
    Peer{"openmpi", "openmpi_peer", "openmpi-bin and libopenmpi-dev"},
    Peer{"mpich", "mpich_peer", "mpich and libmpich-dev"},
    Peer{"gloo", "gloo_peer", "libgloo-dev"},
};

// With room for the jobs that a rank makes besides its own.
Words muster_command(int ranks, const Places& places) {
  return {"env",
          "MUSTER_SET_limits__sessions_max=" + std::to_string(ranks + kAloneRanksMax),
          places.programs / "muster",
          "run",
          "--private",
          "--no-prefix",
          "-n",
          std::to_string(ranks),
          "--",
          places.programs / "muster-bench",
          kRankFlag};
}

// Without yielding, ranks that outnumber the cores would wait for whole time slices of each other.
Words openmpi_command(const std::string& path, int ranks, const Places& places) {
  const bool crowded = ranks > places.cores;
  Words words = {kOpenMpiLauncher,      "--allow-run-as-root", "--oversubscribe",         "-n",
                 std::to_string(ranks), "--bind-to",           crowded ? "none" : "core", "--mca",
                 "mpi_yield_when_idle", crowded ? "1" : "0"};
  const Words vader = {"--mca", "pml", "ob1", "--mca", "btl", "self,vader"};
  const Words ucx = {"--mca",
                     "pml",
                     "ucx",
                     "--mca",
                     "opal_common_ucx_tls",
                     "any",
                     "--mca",
                     "opal_common_ucx_devices",
                     "any",
                     "-x",
                     "UCX_TLS=self,posix,cma"};
  const Words& transport = path == "ucx" ? ucx : vader;
  words.insert(words.end(), transport.begin(), transport.end());
  if (path == "coll-sm") words.insert(words.end(), {"--mca", "coll_sm_priority", "100"});
  words.push_back(places.peers / "openmpi_peer");
  return words;
}

// It has no way to yield: a rank that waits keeps its core until the time slice ends. Bound to cores,
// partners at least have slices at once, which helps where they are two.
Words mpich_command(int ranks, const Places& places) {
  Words words = {kMpichLauncher, "-n", std::to_string(ranks)};
  if (ranks > places.cores) words.insert(words.end(), {"-bind-to", "core"});
  words.push_back(places.peers / "mpich_peer");
  return words;
}

// Its ranks find each other through files, in a folder that no run before has used.
Words gloo_command(int ranks, const Places& places) {
  static std::atomic<int> runs{0};
  const std::filesystem::path store = places.run / ("gloo-" + std::to_string(runs++));
  std::filesystem::create_directories(store);
  return {places.peers / "gloo_peer", store, std::to_string(ranks)};
}

}  // namespace

const std::vector<std::string>& contender_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"muster"};
    for (const Peer& peer : kPeers) all.emplace_back(peer.name);
    return all;
  }();
  return names;
}

std::vector<Way> ways_of(const std::string& contender) {
  if (contender == "muster") return {{contender, "direct"}, {contender, "engine"}};
  if (contender == "openmpi") return {{contender, "vader"}, {contender, "coll-sm"}, {contender, "ucx"}};
  if (contender == "mpich") return {{contender, "ch4"}};
  return {{contender, "tcp"}};
}

std::string what_is_missing(const std::string& contender, const Places& places) {
  for (const Peer& peer : kPeers)
    if (contender == peer.name && !std::filesystem::exists(places.peers / peer.program))
      return contender + " was not there when this was built: install " + peer.packages +
             ", and build again (`make bench` does both)";
  return {};
}

std::vector<std::string> command_of(const Way& way, int ranks, const Places& places) {
  if (way.contender == "openmpi") return openmpi_command(way.path, ranks, places);
  if (way.contender == "mpich") return mpich_command(ranks, places);
  if (way.contender == "gloo") return gloo_command(ranks, places);
  return muster_command(ranks, places);
}

}  // namespace muster::bench
