// A rank that works over its world, on both paths, until a file appears:
// steady_rank STOP_FILE [ENDPOINT JOB RANK WORLD]
//
// One operation after the other: an all-reduce in place, then in turn an all-gather, a reduce-scatter, and a
// ring of sends and receives. Every result is checked. All ranks leave after the same operation: each says
// whether it has seen the file, and the reduction tells all. Exits 0 after printing the number of operations,
// 1 for anything else. Meanwhile whoever likes sees them grow, in STOP_FILE.RANK.PID.progress
// (steady_rank.hpp).
#include "tests/system/steady_rank.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <muster/muster.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

using Steady = std::chrono::steady_clock;

constexpr int kSizes = 3;
constexpr std::uint64_t kCounts[kSizes] = {8, 1000, 60'000};
constexpr std::uint64_t kBlocks[kSizes] = {8, 500, 10'000};  // elements of a member's block, or message

int fail(const char* what, std::uint64_t operations) {
  std::fprintf(stderr, "%s after %llu operations: %s\n", what, static_cast<unsigned long long>(operations),
               muster_last_error());
  return 1;
}

struct Rank {
  muster_session* session = nullptr;
  muster_group group = 0;
  muster_buffer buffer = 0;
  float* values = nullptr;                     // reduced in place
  float *source = nullptr, *target = nullptr;  // of all else; a block for each member
  muster_plan reduce[kSizes] = {}, gather[kSizes] = {}, scatter[kSizes] = {}, send[kSizes] = {},
              receive[kSizes] = {};
  int rank = 0, world = 0;
  std::uint64_t operations = 0;
  muster::test::Progress* progress = nullptr;

  std::uint64_t byte_of(const float* at) const {
    return static_cast<std::uint64_t>(at - values) * sizeof(float);
  }
};

bool planned(const Rank& rank, muster_op op, std::uint64_t count, const float* source, const float* target,
             int peer, muster_plan* plan) {
  muster_collective what = MUSTER_COLLECTIVE_INIT;
  what.op = op;
  what.group = rank.group;
  what.dtype = MUSTER_F32;
  if (op == MUSTER_ALL_REDUCE) what.redop = MUSTER_MAX;
  if (op == MUSTER_REDUCE_SCATTER) what.redop = MUSTER_SUM;
  what.peer = peer;
  if (op != MUSTER_RECV) what.source = {rank.buffer, rank.byte_of(source)};
  if (op != MUSTER_SEND) what.target = {rank.buffer, rank.byte_of(target)};
  what.count = count;
  return muster_plan_collective(rank.session, &what, plan) == MUSTER_OK;
}

int prepare(Rank& rank) {
  const auto world = static_cast<std::uint64_t>(rank.world);
  const std::uint64_t vector = kBlocks[kSizes - 1] * world;
  void* address = nullptr;
  if (muster_mesh_group(rank.session, "world", &rank.group) != MUSTER_OK) return fail("group", 0);
  const std::uint64_t floats = kCounts[kSizes - 1] + 2 * vector;
  if (muster_buffer_alloc(rank.session, floats * sizeof(float), &rank.buffer, &address) != MUSTER_OK)
    return fail("alloc", 0);
  rank.values = static_cast<float*>(address);
  rank.source = rank.values + kCounts[kSizes - 1];
  rank.target = rank.source + vector;
  const int right = (rank.rank + 1) % rank.world;
  const int left = (rank.rank + rank.world - 1) % rank.world;
  for (int i = 0; i < kSizes; ++i) {
    const std::uint64_t n = kBlocks[i];
    bool well = planned(rank, MUSTER_ALL_REDUCE, kCounts[i], rank.values, rank.values, 0, &rank.reduce[i]) &&
                planned(rank, MUSTER_ALL_GATHER, n, rank.source, rank.target, 0, &rank.gather[i]) &&
                planned(rank, MUSTER_REDUCE_SCATTER, n, rank.source, rank.target, 0, &rank.scatter[i]);
    if (rank.world > 1)
      well = well && planned(rank, MUSTER_SEND, n, rank.source, rank.target, right, &rank.send[i]) &&
             planned(rank, MUSTER_RECV, n, rank.source, rank.target, left, &rank.receive[i]);
    if (!well) return fail("plan", 0);
  }
  return 0;
}

// The engine runs odd operations; the callers run even ones.
bool by_engine(const Rank& rank) {
  return rank.operations % 2 == 1;
}

muster_status_t begin(const Rank& rank, muster_plan plan, muster_lane lane, muster_point* point) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = lane;
  return muster_plan_start(rank.session, plan, &submit, point);
}

muster_status_t operate(const Rank& rank, muster_plan plan) {
  if (!by_engine(rank)) return muster_plan_run(rank.session, plan, 0);
  muster_point point = 0;
  const muster_status_t status = begin(rank, plan, MUSTER_LANE_ALLREDUCE, &point);
  return status == MUSTER_OK ? muster_point_wait(rank.session, point, -1) : status;
}

// Sends to the right and receives from the left. A rank that runs the two waits in each: so the first rank
// sends first, and the others receive first.
muster_status_t pass_on(const Rank& rank, int size) {
  if (!by_engine(rank)) {
    const bool first = rank.rank == 0;
    const muster_status_t one = operate(rank, first ? rank.send[size] : rank.receive[size]);
    return one == MUSTER_OK ? operate(rank, first ? rank.receive[size] : rank.send[size]) : one;
  }
  muster_point sent = 0, received = 0;
  muster_status_t status = begin(rank, rank.send[size], MUSTER_LANE_HALO, &sent);
  if (status == MUSTER_OK) status = begin(rank, rank.receive[size], MUSTER_LANE_COPY, &received);
  if (status == MUSTER_OK) status = muster_point_wait(rank.session, sent, -1);
  return status == MUSTER_OK ? muster_point_wait(rank.session, received, -1) : status;
}

int size_now(const Rank& rank) {
  return rank.operations % 64 == 63 ? 2 : rank.operations % 8 == 7 ? 1 : 0;
}
float number_now(const Rank& rank) {
  return static_cast<float>(rank.operations % 1000);
}

// Returns 0 to go on, 1 for a failure, 2 when all have seen the file.
int reduce(Rank& rank, bool last) {
  const int size = size_now(rank);
  const float number = number_now(rank);
  std::fill_n(rank.values + 1, kCounts[size] - 1, number + static_cast<float>(rank.rank));
  rank.values[0] = last ? 1 : 0;
  if (operate(rank, rank.reduce[size]) != MUSTER_OK) return fail("all_reduce", rank.operations);
  for (std::uint64_t i = 1; i < kCounts[size]; ++i)
    if (rank.values[i] != number + static_cast<float>(rank.world - 1))
      return fail("a wrong maximum", rank.operations);
  return rank.values[0] > 0 ? 2 : 0;
}

// Element `i` of what a member gives.
float given(float number, std::uint64_t member, std::uint64_t i) {
  return number + static_cast<float>(member) + static_cast<float>(i % 7);
}

// One of the others: in turn, a pair of both paths each.
int another(Rank& rank) {
  const int size = size_now(rank);
  const std::uint64_t n = kBlocks[size];
  const float number = number_now(rank);
  const auto me = static_cast<std::uint64_t>(rank.rank), world = static_cast<std::uint64_t>(rank.world);
  const std::uint64_t kind = rank.operations / 2 % (rank.world > 1 ? 3 : 2);
  for (std::uint64_t i = 0; i < n * world; ++i) rank.source[i] = given(number, me, i);
  std::fill_n(rank.target, n * world, -1.0f);
  const muster_status_t status = kind == 0   ? operate(rank, rank.gather[size])
                                 : kind == 1 ? operate(rank, rank.scatter[size])
                                             : pass_on(rank, size);
  if (status != MUSTER_OK) return fail("all_gather, reduce_scatter, send or recv", rank.operations);
  for (std::uint64_t i = 0; i < (kind == 0 ? n * world : n); ++i) {
    float sum = 0;
    for (std::uint64_t m = 0; m < world; ++m) sum += given(number, m, me * n + i);
    const float right = kind == 0   ? given(number, i / n, i % n)
                        : kind == 1 ? sum
                                    : given(number, (me + world - 1) % world, i);
    if (rank.target[i] != right) return fail("a wrong block", rank.operations);
  }
  return 0;
}

// A file that others map: they see how far this rank has come.
muster::test::Progress* publish(const std::string& path) {
  unlink(path.c_str());  // the same rank of an earlier container may have left it
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof(muster::test::Progress)) != 0) return nullptr;
  void* address = mmap(nullptr, sizeof(muster::test::Progress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return address == MAP_FAILED ? nullptr : static_cast<muster::test::Progress*>(address);
}

int work(Rank& rank, const char* stop_file) {
  for (bool last = false;; ++rank.operations) {
    const auto begin = Steady::now();
    if (rank.operations % 16 == 0) last = access(stop_file, F_OK) == 0;
    const int result = reduce(rank, last);
    if (result == 1) return 1;
    // The engine tells all of them at once; where they run it themselves, one that left could be missed.
    if (result == 2 && by_engine(rank)) return 0;
    if (another(rank) != 0) return 1;
    const auto spent = std::chrono::nanoseconds(Steady::now() - begin).count();
    muster::test::Progress& progress = *rank.progress;
    progress.longest_ns = std::max(progress.longest_ns.load(), static_cast<std::uint64_t>(spent));
    progress.operations = rank.operations + 1;
  }
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
  // By the rank too: in containers of their own several have one process number.
  rank.progress = publish(argv[1] + ("." + std::to_string(rank.rank)) + "." + std::to_string(getpid()) +
                          muster::test::kProgressSuffix);
  if (rank.progress == nullptr) return fail("progress", 0);
  if (work(rank, argv[1]) != 0) return 1;
  if (muster_close(rank.session) != MUSTER_OK) return fail("close", rank.operations);
  std::printf("%llu operations\n", static_cast<unsigned long long>(rank.operations));
  return 0;
}
