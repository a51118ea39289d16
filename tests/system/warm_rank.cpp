// A rank that leaves memory behind, and one that finds it:
// warm_rank fill|find GENERATION
//
// fill  writes what the generation says into a named buffer and into its part of one that all ranks share,
//       works over the world on both paths, prints "filled PID", and goes on working until it is killed
// find  both memories hold that, every rank's part of the shared one too; then it works as above, prints
//       "found" and leaves
//
// Every result is checked. Exits 1 for anything that is not as it should be, and says what.
#include <muster/muster.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <unistd.h>

namespace {

constexpr std::uint64_t kOwn = 100'000;   // words of the named buffer
constexpr std::uint64_t kPart = 100'000;  // words of each rank's part of the shared one
constexpr std::uint64_t kSum = 1000;      // floats that are reduced
constexpr int kRounds = 50;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, muster_last_error());
  std::exit(1);
}
void expect(bool well, const char* what) {
  if (!well) fail(what);
}

struct Memory {
  std::uint64_t* words = nullptr;
  bool found = false;
};
Memory memory_of(muster_session* session, const char* name, std::uint64_t words, muster_group shared_by) {
  muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
  options.name = name;
  options.bytes = words * sizeof(std::uint64_t);
  options.shared_by = shared_by;
  muster_buffer buffer = 0;
  void* address = nullptr;
  expect(muster_buffer_create(session, &options, &buffer, &address) == MUSTER_OK, name);
  muster_buffer_info info = MUSTER_BUFFER_INFO_INIT;
  expect(muster_buffer_query(session, buffer, &info) == MUSTER_OK, name);
  return {static_cast<std::uint64_t*>(address), info.found != 0};
}

// Word `i` of what a rank leaves in a generation; no two ranks, generations or buffers have the same.
std::uint64_t word(std::uint64_t generation, int rank, std::uint64_t buffer, std::uint64_t i) {
  return ((generation * 64 + static_cast<std::uint64_t>(rank)) * 2 + buffer) << 32 | i;
}

struct Sum {
  muster_session* session = nullptr;
  muster_plan plan = 0;
  float* values = nullptr;
  int rank = 0, world = 0;

  void work(int rounds) const {
    const auto members = static_cast<float>(world);
    for (int round = 0; round < rounds; ++round) {
      for (std::uint64_t i = 0; i < kSum; ++i) values[i] = static_cast<float>(round % 100 + rank);
      muster_submit submit = MUSTER_SUBMIT_INIT;
      submit.lane = MUSTER_LANE_ALLREDUCE;
      muster_point point = 0;
      muster_status_t status = round % 2 == 0 ? muster_plan_run(session, plan, 0)
                                              : muster_plan_start(session, plan, &submit, &point);
      if (round % 2 == 1 && status == MUSTER_OK) status = muster_point_wait(session, point, -1);
      expect(status == MUSTER_OK, "all_reduce");
      const float right = members * static_cast<float>(round % 100) + members * (members - 1) / 2;
      for (std::uint64_t i = 0; i < kSum; ++i) expect(values[i] == right, "a wrong sum");
    }
  }
};
Sum sum_of(muster_session* session, muster_group group, const muster_session_info& info) {
  Sum sum{session, 0, nullptr, info.rank, info.world_size};
  muster_collective what = MUSTER_COLLECTIVE_INIT;
  void* address = nullptr;
  expect(muster_buffer_alloc(session, kSum * sizeof(float), &what.source.buffer, &address) == MUSTER_OK,
         "alloc");
  sum.values = static_cast<float*>(address);
  what.op = MUSTER_ALL_REDUCE;
  what.group = group;
  what.dtype = MUSTER_F32;
  what.redop = MUSTER_SUM;
  what.target = what.source;
  what.count = kSum;
  expect(muster_plan_collective(session, &what, &sum.plan) == MUSTER_OK, "plan");
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool fills = std::string(argv[1]) == "fill";
  const std::uint64_t generation = std::strtoull(argv[2], nullptr, 10);
  muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
  muster_session* session = nullptr;
  muster_session_info info = MUSTER_SESSION_INFO_INIT;
  muster_group world = 0;
  expect(muster_open(&options, &session) == MUSTER_OK, "open");
  expect(muster_session_query(session, &info) == MUSTER_OK, "info");
  expect(muster_mesh_group(session, "world", &world) == MUSTER_OK, "world");
  const Memory own = memory_of(session, "own", kOwn, 0);
  const Memory shared =
      memory_of(session, "shared", kPart * static_cast<std::uint64_t>(info.world_size), world);
  const Sum sum = sum_of(session, world, info);
  if (fills) {
    std::uint64_t* part = shared.words + kPart * static_cast<std::uint64_t>(info.rank);
    for (std::uint64_t i = 0; i < kOwn; ++i) own.words[i] = word(generation, info.rank, 0, i);
    for (std::uint64_t i = 0; i < kPart; ++i) part[i] = word(generation, info.rank, 1, i);
    sum.work(kRounds);
    std::printf("filled %d\n", getpid());
    std::fflush(stdout);
    for (;;) sum.work(kRounds);
  }
  expect(own.found && shared.found, "memory that was not there before");
  for (std::uint64_t i = 0; i < kOwn; ++i)
    expect(own.words[i] == word(generation, info.rank, 0, i), "wrong contents of the own memory");
  for (int rank = 0; rank < info.world_size; ++rank)
    for (std::uint64_t i = 0; i < kPart; ++i)
      expect(shared.words[kPart * static_cast<std::uint64_t>(rank) + i] == word(generation, rank, 1, i),
             "wrong contents of the shared memory");
  sum.work(kRounds);
  expect(muster_close(session) == MUSTER_OK, "close");
  std::printf("found\n");
  return 0;
}
