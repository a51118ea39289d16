// A rank that reduces over its world, on both paths, until a file appears:
// steady_rank STOP_FILE [ENDPOINT JOB RANK WORLD]
//
// All ranks leave after the same operation: each says whether it has seen the file, and the reduction tells
// all. Every result is checked. Exits 0 after printing the number of operations, 1 for anything else.
#include <muster/muster.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

namespace {

constexpr std::uint64_t kCounts[] = {8, 1000, 60'000};

int fail(const char* what, std::uint64_t operations) {
  std::fprintf(stderr, "%s after %llu operations: %s\n", what, static_cast<unsigned long long>(operations),
               muster_last_error());
  return 1;
}

struct Rank {
  muster_session* session = nullptr;
  float* values = nullptr;
  muster_plan plans[3] = {};
  int rank = 0, world = 0;
};

int prepare(Rank& rank) {
  muster_group world = 0;
  muster_buffer buffer = 0;
  void* address = nullptr;
  if (muster_mesh_group(rank.session, "world", &world) != MUSTER_OK) return fail("group", 0);
  if (muster_buffer_alloc(rank.session, kCounts[2] * sizeof(float), &buffer, &address) != MUSTER_OK)
    return fail("alloc", 0);
  rank.values = static_cast<float*>(address);
  for (int i = 0; i < 3; ++i) {
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    what.op = MUSTER_ALL_REDUCE;
    what.group = world;
    what.dtype = MUSTER_F32;
    what.redop = MUSTER_MAX;
    what.source = what.target = {buffer, 0};
    what.count = kCounts[i];
    if (muster_plan_collective(rank.session, &what, &rank.plans[i]) != MUSTER_OK) return fail("plan", 0);
  }
  return 0;
}

// Returns 0 to go on, 1 for a failure, 2 when all have seen the file.
int step(Rank& rank, std::uint64_t operation, bool last) {
  const std::uint64_t size = operation % 64 == 63 ? 2 : operation % 8 == 7 ? 1 : 0;
  const auto number = static_cast<float>(operation % 1000);
  for (std::uint64_t i = 1; i < kCounts[size]; ++i) rank.values[i] = number + static_cast<float>(rank.rank);
  rank.values[0] = last ? 1 : 0;
  muster_status_t status = MUSTER_OK;
  if (operation % 2 == 0) {
    status = muster_plan_run(rank.session, rank.plans[size], 0);
  } else {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_ALLREDUCE;
    muster_point point = 0;
    status = muster_plan_start(rank.session, rank.plans[size], &submit, &point);
    if (status == MUSTER_OK) status = muster_point_wait(rank.session, point, -1);
  }
  if (status != MUSTER_OK) return fail("all_reduce", operation);
  for (std::uint64_t i = 1; i < kCounts[size]; ++i)
    if (rank.values[i] != number + static_cast<float>(rank.world - 1))
      return fail("a wrong result", operation);
  return rank.values[0] > 0 ? 2 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 6) return 2;
  Rank rank;
  muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
  if (argc == 6) {
    options.endpoint = argv[2];
    options.job = argv[3];
    options.rank = std::atoi(argv[4]);
    options.world_size = std::atoi(argv[5]);
  }
  if (muster_open(&options, &rank.session) != MUSTER_OK) return fail("open", 0);
  muster_session_info info = MUSTER_SESSION_INFO_INIT;
  if (muster_session_query(rank.session, &info) != MUSTER_OK) return fail("info", 0);
  rank.rank = info.rank;
  rank.world = info.world_size;
  if (prepare(rank) != 0) return 1;
  std::uint64_t operations = 0;
  for (bool last = false;; ++operations) {
    if (operations % 16 == 0) last = access(argv[1], F_OK) == 0;
    const int result = step(rank, operations, last);
    if (result == 1) return 1;
    // The engine tells all of them at once; where they run it themselves, one that left could be missed.
    if (result == 2 && operations % 2 == 1) break;
  }
  if (muster_close(rank.session) != MUSTER_OK) return fail("close", operations);
  std::printf("%llu operations\n", static_cast<unsigned long long>(operations));
  return 0;
}
