// A rank that does what it is told, step by step:
// scripted_rank ENDPOINT JOB RANK WORLD MESH DEADLINE_MS STEP...
//
//   run:DIM      all-reduces over the group of that dim, as its caller
//   start:DIM    the same by the engine, and waits for it
//   post:DIM     the same by the engine, and does not wait
//   copy:DIM     as start, on another lane
//   near:DIM, far:DIM  as start, on lanes that this rank makes: of one name and two classes
//   reset, reset_copy, reset_near, reset_far  the lane of start, or of that, goes on after a failure
//   abort:DIM    ends what the group of that dim is at
//   await        until a line comes on standard input
//   make:R,R,…   makes a group of these ranks, which @ becomes
//   shrink       makes a group of those who are left of the one called @, which it becomes: at first the
//   world
//   hurry        the same, and waits for 200 ms only
//   whole        makes the world @ again, and meets all its members, having heard what it had to tell
//   listen       takes its next steps from standard input, a line each, until it ends
//
// A DIM of @ is that group.
//
// Prints "attached", then for each operation that it waits for "STEP STATUS MILLISECONDS TEXT". Results are
// checked: a wrong sum has the status WRONG.
#include <muster/muster.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Steady = std::chrono::steady_clock;

struct Rank {
  muster_session* session = nullptr;
  muster_group group = 0;  // @
  std::int64_t deadline_ns = 0;
  muster_buffer buffer = 0;
  float* values = nullptr;
  muster_lane near = MUSTER_LANE_NONE;  // until one of the two is used
  muster_lane far = MUSTER_LANE_NONE;
};

int fail(const char* what) {
  std::printf("%s: %s\n", what, muster_last_error());
  std::fflush(stdout);
  return 1;
}

// Odd ranks make the two lanes in the other order, so that their numbers are others.
muster_status_t make_lanes(Rank& rank) {
  muster_session_info info = MUSTER_SESSION_INFO_INIT;
  muster_status_t status = muster_session_query(rank.session, &info);
  for (int i = 0; i < 2 && status == MUSTER_OK; ++i) {
    const bool near = (info.rank + i) % 2 == 0;
    status = muster_lane_create(rank.session, near ? MUSTER_LANE_HALO : MUSTER_LANE_GATHER, "own",
                                near ? &rank.near : &rank.far);
  }
  return status;
}

muster_lane lane_of(const Rank& rank, const std::string& verb) {
  if (verb == "near") return rank.near;
  if (verb == "far") return rank.far;
  return verb == "copy" ? MUSTER_LANE_COPY : MUSTER_LANE_SMALL;
}

muster_status_t operate(Rank& rank, const std::string& verb, muster_plan plan) {
  if (verb == "run") return muster_plan_run(rank.session, plan, rank.deadline_ns);
  if ((verb == "near" || verb == "far") && rank.near == MUSTER_LANE_NONE)
    if (const muster_status_t made = make_lanes(rank); made != MUSTER_OK) return made;
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = lane_of(rank, verb);
  submit.deadline_ns = rank.deadline_ns;
  muster_point point = 0;
  const muster_status_t started = muster_plan_start(rank.session, plan, &submit, &point);
  if (started != MUSTER_OK || verb == "post") return started;
  return muster_point_wait(rank.session, point, -1);
}

// One line on standard output for one step.
int say(const std::string& step, const char* status, long long value, const char* text) {
  std::printf("%s %s %lld %s\n", step.c_str(), status, value, text);
  std::fflush(stdout);
  return 0;
}

int make(Rank& rank, const char* list) {
  std::vector<std::int32_t> ranks;
  for (const char* at = list; at != nullptr; at = std::strchr(at, ','))
    ranks.push_back(std::atoi(*at == ',' ? ++at : at));
  if (muster_group_make(rank.session, ranks.data(), ranks.size(), nullptr, &rank.group) != MUSTER_OK)
    return fail("make");
  return 0;
}

int shrink(Rank& rank, std::int64_t timeout_ns) {
  const muster_status_t status = muster_group_shrink(rank.session, rank.group, timeout_ns, &rank.group);
  muster_group_info info = MUSTER_GROUP_INFO_INIT;
  if (status == MUSTER_OK && muster_group_query(rank.session, rank.group, &info) != MUSTER_OK)
    return fail("group");
  return say("shrink", muster_status_name(status), info.ranks, muster_last_error());
}

int whole(Rank& rank) {
  constexpr int kLossesMax = 8;
  const muster_group left = rank.group;
  muster_status_t status = muster_mesh_group(rank.session, "world", &rank.group);
  if (left != rank.group && muster_group_free(rank.session, left) != MUSTER_OK) return fail("free");
  int attempts = 0;
  do {
    status = muster_barrier(rank.session, rank.group);
  } while (status == MUSTER_ERR_PEER_LOST && ++attempts < kLossesMax);
  return say("whole", muster_status_name(status), attempts, status == MUSTER_OK ? "" : muster_last_error());
}

int collective(Rank& rank, const std::string& step, const std::string& verb, const char* dim) {
  muster_group group = rank.group;
  muster_group_info info = MUSTER_GROUP_INFO_INIT;
  muster_collective what = MUSTER_COLLECTIVE_INIT;
  const bool current = std::strcmp(dim, "@") == 0;
  if (!current && muster_mesh_group(rank.session, dim, &group) != MUSTER_OK) return fail("group");
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
  const std::string error = status == MUSTER_OK ? "" : muster_last_error();
  if (verb != "post") static_cast<void>(muster_plan_destroy(rank.session, plan));
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Steady::now() - begin);
  const bool wrong =
      status == MUSTER_OK && verb != "post" && rank.values[1] != static_cast<float>(info.ranks);
  return say(step, wrong ? "WRONG" : muster_status_name(status), elapsed.count(), error.c_str());
}

int abort(const Rank& rank, const std::string& step, const char* dim) {
  muster_group group = 0;
  if (muster_mesh_group(rank.session, dim, &group) != MUSTER_OK) return fail("group");
  return say(step, muster_status_name(muster_group_abort(rank.session, group)), 0, "");
}

int reset(const Rank& rank, const std::string& step, muster_lane lane) {
  return say(step, muster_status_name(muster_lane_reset(rank.session, lane)), 0, "");
}

int take(Rank& rank, const std::string& step) {
  if (step == "reset") return reset(rank, step, MUSTER_LANE_SMALL);
  if (step.starts_with("reset_")) return reset(rank, step, lane_of(rank, step.substr(6)));
  if (step == "shrink") return shrink(rank, rank.deadline_ns);
  if (step == "hurry") return shrink(rank, 200'000'000);
  if (step == "whole") return whole(rank);
  const auto colon = step.find(':');
  if (colon == std::string::npos) return 2;
  if (step.starts_with("make:")) return make(rank, step.c_str() + colon + 1);
  if (step.starts_with("abort:")) return abort(rank, step, step.c_str() + colon + 1);
  return collective(rank, step, step.substr(0, colon), step.c_str() + colon + 1);
}

int listen(Rank& rank) {
  char line[64];
  int code = 0;
  while (code == 0 && std::fgets(line, sizeof line, stdin) != nullptr)
    code = take(rank, std::string(line, std::strcspn(line, "\n")));
  return code;
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
  if (muster_mesh_group(rank.session, "world", &rank.group) != MUSTER_OK) return fail("group");
  std::printf("attached\n");
  std::fflush(stdout);
  for (int i = 7; i < argc; ++i) {
    const std::string step = argv[i];
    if (step == "await") {
      char line[16];
      if (std::fgets(line, sizeof line, stdin) == nullptr) break;
    } else if (const int code = step == "listen" ? listen(rank) : take(rank, step)) {
      return code;
    }
  }
  return muster_close(rank.session) == MUSTER_OK ? 0 : 1;
}
