// A rank that reduces over its world until somebody ends it:
// reducing_rank ENDPOINT JOB RANK WORLD start|run COUNT
//
// Exits 0 after SIGTERM, 42 when a peer is lost (after printing who), 1 for anything else. Every result is
// checked.
#include <muster/muster.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<bool> g_end{false};  // lock-free, so a signal handler may set it

int fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, muster_last_error());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const bool runs = std::strcmp(argv[5], "run") == 0;
  const std::uint64_t count = std::strtoull(argv[6], nullptr, 10);
  std::signal(SIGTERM, [](int) { g_end = true; });
  muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
  options.endpoint = argv[1];
  options.job = argv[2];
  options.rank = std::atoi(argv[3]);
  options.world_size = std::atoi(argv[4]);
  muster_session* session = nullptr;
  if (muster_open(&options, &session) != MUSTER_OK) return fail("open");
  muster_group world = 0;
  muster_buffer buffer = 0;
  void* address = nullptr;
  if (muster_mesh_group(session, "world", &world) != MUSTER_OK) return fail("group");
  if (muster_buffer_alloc(session, count * sizeof(float), &buffer, &address) != MUSTER_OK)
    return fail("alloc");
  auto* values = static_cast<float*>(address);
  muster_collective what = MUSTER_COLLECTIVE_INIT;
  what.op = MUSTER_ALL_REDUCE;
  what.group = world;
  what.dtype = MUSTER_F32;
  what.redop = MUSTER_MAX;
  what.source = what.target = {buffer, 0};
  what.count = count;
  muster_plan plan = 0;
  if (muster_plan_collective(session, &what, &plan) != MUSTER_OK) return fail("plan");
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = MUSTER_LANE_ALLREDUCE;
  std::printf("ready\n");
  std::fflush(stdout);
  while (!g_end) {
    for (std::uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(options.rank + 1);
    muster_point point = 0;
    muster_status_t status =
        runs ? muster_plan_run(session, plan, 0) : muster_plan_start(session, plan, &submit, &point);
    if (!runs && status == MUSTER_OK) status = muster_point_wait(session, point, -1);
    if (status == MUSTER_ERR_PEER_LOST) {
      std::printf("lost: %s\n", muster_last_error());
      muster_close(session);
      return 42;
    }
    if (status != MUSTER_OK) return fail("all_reduce");
    for (std::uint64_t i = 0; i < count; ++i)
      if (values[i] != static_cast<float>(options.world_size)) return fail("a wrong sum");
  }
  return muster_close(session) == MUSTER_OK ? 0 : 1;
}
