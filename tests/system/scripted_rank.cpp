// A rank that does what it is told, step by step:
// scripted_rank ENDPOINT JOB RANK WORLD MESH DEADLINE_MS STEP...
//
//   run:DIM      all-reduces over the group of that dim, as its caller
//   start:DIM    the same by the engine, and waits for it
//   post:DIM     the same by the engine, and does not wait
//   await        until a line comes on standard input
//
// Prints "attached", then for each operation that it waits for "STEP STATUS MILLISECONDS TEXT". Results are
// checked: a wrong sum has the status WRONG.
#include <muster/muster.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using Steady = std::chrono::steady_clock;

struct Rank {
  muster_session* session = nullptr;
  std::int64_t deadline_ns = 0;
  muster_buffer buffer = 0;
  float* values = nullptr;
};

int fail(const char* what) {
  std::printf("%s: %s\n", what, muster_last_error());
  std::fflush(stdout);
  return 1;
}

muster_status_t operate(const Rank& rank, const std::string& verb, muster_plan plan) {
  if (verb == "run") return muster_plan_run(rank.session, plan, rank.deadline_ns);
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = MUSTER_LANE_SMALL;
  submit.deadline_ns = rank.deadline_ns;
  muster_point point = 0;
  const muster_status_t started = muster_plan_start(rank.session, plan, &submit, &point);
  if (started != MUSTER_OK || verb == "post") return started;
  return muster_point_wait(rank.session, point, -1);
}

int collective(const Rank& rank, const std::string& step, const std::string& verb, const char* dim) {
  muster_group group = 0;
  muster_group_info info = MUSTER_GROUP_INFO_INIT;
  muster_collective what = MUSTER_COLLECTIVE_INIT;
  if (muster_mesh_group(rank.session, dim, &group) != MUSTER_OK) return fail("group");
  if (muster_group_query(rank.session, group, &info) != MUSTER_OK) return fail("group");
  what.op = MUSTER_ALL_REDUCE;
  what.group = group;
  what.dtype = MUSTER_F32;
  what.redop = MUSTER_SUM;
  what.source = what.target = {rank.buffer, 0};
  what.count = 2;
  what.site = "script:1";
  muster_plan plan = 0;
  if (muster_plan_collective(rank.session, &what, &plan) != MUSTER_OK) return fail("plan");
  rank.values[0] = rank.values[1] = 1.0f;
  const auto begin = Steady::now();
  const muster_status_t status = operate(rank, verb, plan);
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Steady::now() - begin);
  const bool wrong =
      status == MUSTER_OK && verb != "post" && rank.values[1] != static_cast<float>(info.ranks);
  std::printf("%s %s %lld %s\n", step.c_str(), wrong ? "WRONG" : muster_status_name(status),
              static_cast<long long>(elapsed.count()), status == MUSTER_OK ? "" : muster_last_error());
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
  options.endpoint = argv[1];
  options.job = argv[2];
  options.rank = std::atoi(argv[3]);
  options.world_size = std::atoi(argv[4]);
  options.mesh = argv[5];
  Rank rank;
  rank.deadline_ns = std::atoll(argv[6]) * 1'000'000;
  if (muster_open(&options, &rank.session) != MUSTER_OK) return fail("open");
  void* address = nullptr;
  if (muster_buffer_alloc(rank.session, 64, &rank.buffer, &address) != MUSTER_OK) return fail("alloc");
  rank.values = static_cast<float*>(address);
  std::printf("attached\n");
  std::fflush(stdout);
  for (int i = 7; i < argc; ++i) {
    const std::string step = argv[i];
    const auto colon = step.find(':');
    if (step == "await") {
      char line[16];
      if (std::fgets(line, sizeof line, stdin) == nullptr) break;
    } else if (const int code = collective(rank, step, step.substr(0, colon), step.c_str() + colon + 1)) {
      return code;
    }
  }
  return muster_close(rank.session) == MUSTER_OK ? 0 : 1;
}
