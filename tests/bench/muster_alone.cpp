#include "tests/bench/muster_alone.hpp"

#include "tests/bench/measure.hpp"
#include "tests/bench/program.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <unistd.h>

#include <nlohmann/json.hpp>

namespace muster::bench {
namespace {

constexpr int kSubmissions = 512;  // half of a session's ring: none of them waits for room
constexpr int kAttachments = 50;
constexpr int kJobs = 11;
constexpr Nanos kAnswerTime = std::chrono::seconds(20);

struct World {
  int ranks;
  const char* mesh;
};
constexpr World kOneRank = {1, "dp_shard=1"};
constexpr World kManyRanks = {kAloneRanksMax, "dp_shard=64"};
constexpr World kMeshed = {16, "dp_shard=16"};
constexpr char kMesh[] = "dp_replicate=2,dp_shard=4,tp=2";
constexpr int kMeshes = 51;

// The command line of Muster, on the daemon of this run; its answer.
std::string muster_says(std::vector<std::string> words) {
  static const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "muster";
  words.insert(words.begin(), program);
  const Output output = output_of(words, kAnswerTime);
  if (!output.status.ok()) {
    std::fprintf(stderr, "muster-bench: %s\n", output.status.message().c_str());
    std::exit(EXIT_FAILURE);
  }
  return output.text;
}

// Owns    nothing; the jobs that it makes end with it.
// Thread  one.
// Bound   one job at a time beside the one of this run.
// Fails   as Contender.
class Alone {
 public:
  Alone(MusterRank& rank, const Cells& cells) : rank_(rank), cells_(cells) {}

  void measure() {
    if (cells_.wants("submit")) measure_submit();
    if (cells_.wants("kernel")) measure_kernel();
    if (cells_.wants("attach")) measure_attach();
    if (cells_.wants("job")) measure_job();
    if (cells_.wants("mesh_group")) measure_mesh_group();
  }

 private:
  // Starts alone are timed; the engine works beside them and is waited for between the samples.
  void measure_submit() {
    const muster_plan plan = rank_.prepare_kernel();
    std::vector<double> seconds;
    const double end = now() + cells_.effort.seconds;
    while (static_cast<int>(seconds.size()) <= cells_.effort.samples || now() < end) {
      muster_point point = MUSTER_POINT_NONE;
      const double begin = now();
      for (int i = 0; i < kSubmissions; ++i) point = rank_.start(plan, MUSTER_LANE_COMPUTE);
      seconds.push_back((now() - begin) / kSubmissions);
      rank_.wait(point);
    }
    seconds.erase(seconds.begin());  // the first one meets cold memory
    print_row(rank_, cells_, "submit", 0, timing_of(std::move(seconds)));
  }

  void measure_kernel() {
    const muster_plan plan = rank_.prepare_kernel();
    Measure measure(rank_, cells_.effort);
    print_row(rank_, cells_, "kernel", 0,
              measure.timing([&] { rank_.wait(rank_.start(plan, MUSTER_LANE_COMPUTE)); }));
  }

  void measure_attach() {
    const std::string job = job_name("warm");
    open_and_close(job, kOneRank);
    std::vector<double> seconds;
    for (int i = 0; i < kAttachments; ++i) seconds.push_back(open_and_close(job, kOneRank));
    muster_says({"end", "--job", job});
    print_row(rank_, cells_, "attach", 0, timing_of(std::move(seconds)));
  }

  void measure_job() {
    std::vector<double> seconds;
    for (int i = 0; i < kJobs; ++i) {
      const std::string job = job_name("new");
      seconds.push_back(open_and_close(job, kManyRanks));
      muster_says({"end", "--job", job});
    }
    print_row(rank_, cells_, "job", 0, timing_of(std::move(seconds)));
  }

  // A mesh is made and given back over and over: all but the first time in memory that was used before.
  void measure_mesh_group() {
    const std::string job = job_name("mesh");
    muster_session* session = open(job, kMeshed);
    const std::string world = std::to_string(kMeshed.ranks);
    const std::string answer = muster_says({"mesh", "--world", world, "--mesh", kMesh, "--json"});
    const std::size_t groups = nlohmann::json::parse(answer).at("groups").size();
    muster_group all = MUSTER_GROUP_SELF;
    must(muster_mesh_group(session, "world", &all), "muster_mesh_group");
    std::vector<double> seconds;
    for (int i = 0; i < kMeshes; ++i) {
      muster_mesh mesh = MUSTER_MESH_JOB;
      const double begin = now();
      must(muster_mesh_make(session, all, kMesh, &mesh), "muster_mesh_make");
      seconds.push_back((now() - begin) / static_cast<double>(groups));
      must(muster_mesh_free(session, mesh), "muster_mesh_free");
    }
    must(muster_close(session), "muster_close");
    muster_says({"end", "--job", job});
    print_row(rank_, cells_, "mesh_group", 0, timing_of(std::move(seconds)));
  }

  // A job of this name is made if there is none.
  static muster_session* open(const std::string& job, const World& world) {
    muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
    options.rank = 0;
    options.world_size = world.ranks;
    options.job = job.c_str();
    options.mesh = world.mesh;
    muster_session* session = nullptr;
    must(muster_open(&options, &session), "muster_open");
    return session;
  }

  static double open_and_close(const std::string& job, const World& world) {
    const double begin = now();
    must(muster_close(open(job, world)), "muster_close");
    return now() - begin;
  }

  std::string job_name(const char* kind) {
    return "bench-" + std::string(kind) + "-" + std::to_string(getpid()) + "-" + std::to_string(jobs_++);
  }

  MusterRank& rank_;
  const Cells& cells_;
  int jobs_ = 0;
};

}  // namespace

void measure_alone(MusterRank& rank, const Cells& cells) {
  Alone(rank, cells).measure();
}

}  // namespace muster::bench
