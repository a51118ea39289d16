// muster-bench: Muster's collectives beside those of its peers and beside what the memory allows, in one run.
//
// Ranks are programs of their own: this one again under `muster run`, and mpi_peer under mpirun. Each prints
// its rows as lines of JSON, which are put together here.
#include "tests/bench/memory_floor.hpp"
#include "tests/bench/muster_rank.hpp"
#include "tests/bench/program.hpp"
#include "tests/bench/report.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include <CLI/CLI.hpp>

namespace muster::bench {
namespace {

constexpr const char* kRankFlag = "--as-rank";  // this process is one of the ranks
constexpr Nanos kProgramLimit = std::chrono::minutes(10);
constexpr std::size_t kMiB = std::size_t{1} << 20;

struct Options {
  std::vector<int> ranks = {2, 4};
  std::vector<std::string> operations = {"submit",     "kernel",     "barrier",
                                         "all_reduce", "all_gather", "reduce_scatter"};
  std::string json;
  bool quick = false;
  bool no_peers = false;

  std::vector<std::size_t> sizes() const {
    return quick ? std::vector<std::size_t>{8, 4096} : std::vector<std::size_t>{8, 65536, kMiB, 64 * kMiB};
  }
  Effort effort() const { return quick ? Effort{0.02, 5} : Effort{0.5, 9}; }
};

// One way of running Open MPI; the table takes the best of them for each cell.
struct Transport {
  const char* path;
  std::vector<std::string> arguments;
};
const std::vector<Transport>& transports() {
  static const std::vector<Transport> all = {
      {"vader", {"--mca", "pml", "ob1", "--mca", "btl", "self,vader"}},
      {"coll-sm", {"--mca", "pml", "ob1", "--mca", "btl", "self,vader", "--mca", "coll_sm_priority", "100"}},
      {"ucx",
       {"--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices",
        "any", "-x", "UCX_TLS=self,posix,cma"}}};
  return all;
}

// Owns    the report.
// Thread  one.
// Bound   one program at a time.
// Fails   Muster's own ranks end the run; a peer that does not run leaves its rows out, and a note says so.
class Campaign {
 public:
  explicit Campaign(Options options) : options_(std::move(options)), machine_(describe_machine()) {}

  Status run() {
    if (!has_peer()) options_.no_peers = true;
    MUSTER_RETURN_IF_ERROR(run_muster(1, {"submit", "kernel"}));
    for (const int ranks : options_.ranks) {
      MUSTER_RETURN_IF_ERROR(run_muster(ranks, {"barrier", "all_reduce", "all_gather", "reduce_scatter"}));
      if (!options_.no_peers) run_peers(ranks);
    }
    measure_floor();
    std::printf("%s cores: %d, load at the start: %.1f\n\n%s", machine_["cpu"].get<std::string>().c_str(),
                machine_["cores"].get<int>(), machine_["load_average"].get<double>(),
                report_.table().c_str());
    return options_.json.empty() ? Status{} : report_.write(options_.json, machine_);
  }

 private:
  bool wants(const std::string& operation) const {
    return std::find(options_.operations.begin(), options_.operations.end(), operation) !=
           options_.operations.end();
  }

  bool has_peer() const {
    if (options_.no_peers || std::filesystem::exists(peer_)) return !options_.no_peers;
    std::fprintf(stderr,
                 "muster-bench: built where there was no Open MPI, so its rows are left out; install "
                 "openmpi-bin and libopenmpi-dev, and build again\n");
    return false;
  }

  Cells cells(const char* path, const std::vector<std::string>& among) const {
    Cells cells{path, {}, options_.sizes(), options_.effort()};
    std::copy_if(among.begin(), among.end(), std::back_inserter(cells.operations),
                 [this](const std::string& operation) { return wants(operation); });
    return cells;
  }

  Status run_muster(int ranks, const std::vector<std::string>& among) {
    const Cells what = cells("engine", among);
    if (what.operations.empty()) return {};
    std::fprintf(stderr, "muster-bench: muster, ranks: %d\n", ranks);
    std::vector<std::string> arguments = {folder_ / "muster",    "run", "--private", "--no-prefix", "-n",
                                          std::to_string(ranks), "--",  self_,       kRankFlag};
    for (std::string& word : to_arguments(what)) arguments.push_back(std::move(word));
    MUSTER_ASSIGN_OR_RETURN(const std::string lines, output_of(arguments, kProgramLimit));
    return report_.take(lines);
  }

  void run_peers(int ranks) {
    for (const Transport& transport : transports()) {
      const Cells what = cells(transport.path, {"barrier", "all_reduce", "all_gather", "reduce_scatter"});
      if (what.operations.empty()) return;
      std::fprintf(stderr, "muster-bench: Open MPI over %s, ranks: %d\n", transport.path, ranks);
      std::vector<std::string> arguments = {"mpirun", "--allow-run-as-root", "--oversubscribe", "-n",
                                            std::to_string(ranks)};
      // Without yielding, ranks that outnumber the cores wait for whole time slices of each other.
      const bool crowded = ranks > usable_cores();
      arguments.insert(arguments.end(), {"--bind-to", crowded ? "none" : "core", "--mca",
                                         "mpi_yield_when_idle", crowded ? "1" : "0"});
      arguments.insert(arguments.end(), transport.arguments.begin(), transport.arguments.end());
      arguments.push_back(peer_);
      for (std::string& word : to_arguments(what)) arguments.push_back(std::move(word));
      const auto lines = output_of(arguments, kProgramLimit);
      const Status taken = lines ? report_.take(*lines) : lines.error();
      if (!taken.ok())
        std::fprintf(stderr, "muster-bench: rows of Open MPI over %s are left out: %s\n", transport.path,
                     taken.message().c_str());
    }
  }

  void measure_floor() {
    std::fprintf(stderr, "muster-bench: the memory's floor\n");
    MemoryFloor floor(usable_cores());
    const std::vector<Row> measured = report_.rows();
    for (const Row& row : measured)
      if (row.peer == "muster" && row.ranks > 1) report_.add(floor.of(row.operation, row.bytes, row.ranks));
  }

  Options options_;
  nlohmann::json machine_;
  const std::filesystem::path self_ = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path folder_ = self_.parent_path();
  const std::filesystem::path peer_ = folder_.parent_path() / "bench" / "peers" / "mpi_peer";
  Report report_;
};

void define(CLI::App& app, Options& options) {
  const std::vector<std::string> operations = options.operations;
  app.add_option("--ranks", options.ranks, "Numbers of ranks, with commas")
      ->delimiter(',')
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  app.add_option("--operations", options.operations, "What to measure, with commas")
      ->delimiter(',')
      ->check(CLI::IsMember(operations))
      ->capture_default_str();
  app.add_option("--json", options.json, "Write all rows into this file");
  app.add_flag("--quick", options.quick, "Small sizes and short looks: shows that it runs, not how fast");
  app.add_flag("--no-peers", options.no_peers, "Measure Muster and the floor alone");
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  using muster::bench::Campaign;
  if (argc > 1 && std::string_view(argv[1]) == muster::bench::kRankFlag) {
    const auto words = std::span<char* const>(argv, static_cast<std::size_t>(argc)).subspan(2);
    return muster::bench::run_muster_rank(muster::bench::cells_of(words));
  }
  CLI::App app("Muster's collectives beside Open MPI's and beside what the memory allows; medians.");
  muster::bench::Options options;
  muster::bench::define(app, options);
  CLI11_PARSE(app, argc, argv);
  const muster::Status status = Campaign(std::move(options)).run();
  if (!status.ok()) std::fprintf(stderr, "muster-bench: %s\n", status.message().c_str());
  return status.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}
