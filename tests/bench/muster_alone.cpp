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
// Equally many ranks; the second has a group for each row and plane of a cube of five dims.
constexpr World kFewGroups = {64, "dp_shard=64"};
constexpr World kManyGroups = {64, "pp=2,dp_replicate=2,dp_shard=2,cp=2,tp=4"};

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
    if (cells_.wants("job") || cells_.wants("group")) measure_jobs();
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

  void measure_jobs() {
    std::vector<double> few;
    std::vector<double> each;
    for (int i = 0; i < kJobs; ++i) {  // in turn, so that what drifts does so for both
      const Job plain = make_job(kFewGroups);
      const Job cut = make_job(kManyGroups);
      few.push_back(plain.seconds);
      each.push_back((cut.seconds - plain.seconds) / static_cast<double>(cut.groups - plain.groups));
    }
    if (cells_.wants("job")) print_row(rank_, cells_, "job", 0, timing_of(std::move(few)));
    if (!cells_.wants("group")) return;
    const Timing timing = timing_of(std::move(each));
    if (timing.median_us > 0.0) {
      print_row(rank_, cells_, "group", 0, {timing.median_us, std::max(0.0, timing.minimum_us), kJobs});
    } else {
      print_left_out(rank_, cells_, "group", "its time is lost in that of making a job");
    }
  }

  struct Job {
    double seconds;
    std::size_t groups;
  };
  Job make_job(const World& world) {
    const std::string job = job_name("new");
    const double seconds = open_and_close(job, world);
    const std::string answer = muster_says({"groups", "--json", "--job", job});
    muster_says({"end", "--job", job});
    return {seconds, nlohmann::json::parse(answer).at("total").get<std::size_t>()};
  }

  // A job of this name is made if there is none.
  static double open_and_close(const std::string& job, const World& world) {
    muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
    options.rank = 0;
    options.world_size = world.ranks;
    options.job = job.c_str();
    options.mesh = world.mesh;
    muster_session* session = nullptr;
    const double begin = now();
    must(muster_open(&options, &session), "muster_open");
    must(muster_close(session), "muster_close");
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
