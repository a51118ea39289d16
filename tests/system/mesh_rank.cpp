// A rank that reduces in every group of its mesh, on both paths: mesh_rank NAME…
//
// Prints "NAME RANK RANK …" for each group that was right. Exits 0 if all were.
#include <muster/muster.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr std::uint64_t kCount = 1000;

int fail(const char* name, const char* what) {
  std::fprintf(stderr, "%s: %s: %s\n", name, what, muster_last_error());
  return 1;
}

// A sum of rank + 1 over the group, started and run.
int reduce(muster_session* session, const char* name, muster_group group,
           const std::vector<std::int32_t>& ranks, std::int32_t own) {
  muster_buffer buffer = 0;
  void* address = nullptr;
  if (muster_buffer_alloc(session, 2 * kCount * sizeof(float), &buffer, &address) != MUSTER_OK)
    return fail(name, "buffer");
  auto* const source = static_cast<float*>(address);
  float* const target = source + kCount;
  muster_collective what = MUSTER_COLLECTIVE_INIT;
  what.op = MUSTER_ALL_REDUCE;
  what.group = group;
  what.dtype = MUSTER_F32;
  what.redop = MUSTER_SUM;
  what.source = {buffer, 0};
  what.target = {buffer, kCount * sizeof(float)};
  what.count = kCount;
  muster_plan plan = 0;
  if (muster_plan_collective(session, &what, &plan) != MUSTER_OK) return fail(name, "plan");
  float sum = 0;
  for (const std::int32_t rank : ranks) sum += static_cast<float>(rank + 1);
  for (const bool started : {true, false}) {
    std::fill_n(source, kCount, static_cast<float>(own + 1));
    std::fill_n(target, kCount, -1.0f);
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = MUSTER_LANE_ALLREDUCE;
    muster_point point = 0;
    if (started ? muster_plan_start(session, plan, &submit, &point) != MUSTER_OK ||
                      muster_point_wait(session, point, -1) != MUSTER_OK
                : muster_plan_run(session, plan, 0) != MUSTER_OK)
      return fail(name, started ? "start" : "run");
    if (!std::all_of(target, target + kCount, [sum](float value) { return value == sum; })) {
      std::fprintf(stderr, "%s: rank %d has %g, and %g is right\n", name, own, static_cast<double>(target[0]),
                   static_cast<double>(sum));
      return 1;
    }
  }
  std::printf("%s", name);
  for (const std::int32_t rank : ranks) std::printf(" %d", rank);
  std::printf("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  muster_session* session = nullptr;
  muster_session_info info = MUSTER_SESSION_INFO_INIT;
  if (muster_open(nullptr, &session) != MUSTER_OK) return fail("open", "session");
  if (muster_session_query(session, &info) != MUSTER_OK) return fail("open", "query");
  for (int i = 1; i < argc; ++i) {
    muster_group group = 0;
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(info.world_size));
    std::size_t count = 0;
    if (muster_mesh_group(session, argv[i], &group) != MUSTER_OK) return fail(argv[i], "group");
    if (muster_group_ranks(session, group, ranks.data(), ranks.size(), &count) != MUSTER_OK)
      return fail(argv[i], "ranks");
    ranks.resize(count);
    if (reduce(session, argv[i], group, ranks, info.rank) != 0) return 1;
  }
  muster_group world = 0;
  if (muster_mesh_group(session, "world", &world) != MUSTER_OK) return fail("world", "group");
  if (muster_barrier(session, world) != MUSTER_OK) return fail("world", "barrier");
  return muster_close(session) == MUSTER_OK ? 0 : fail("world", "close");
}
