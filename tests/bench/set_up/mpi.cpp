// One rank of an MPI: `openmpi_set_up`. It starts, reduces once, and makes the groups of a mesh.
//
// Rank 0 prints {"first_step_s": of MPI_Init and one all-reduce, "split_ms": [of all groups, each time]}. The
// mesh is pp=2, dp_replicate=2, dp_shard=4, cp=2, tp=2: 64 ranks, and eleven groups of each, the world among
// them. MPI_Comm_split makes all groups of one kind in one call.
#include <array>
#include <chrono>
#include <cstdio>
#include <vector>

#include <mpi.h>

namespace {

using Time = std::chrono::steady_clock;

constexpr int kRounds = 5;
constexpr std::array<int, 5> kDegrees{2, 2, 4, 2, 2};  // the first varies slowest
enum Dim : unsigned { kPp = 1, kReplicate = 2, kShard = 4, kCp = 8, kTp = 16 };
// Which dims the members of a kind of group differ in.
constexpr std::array<unsigned, 10> kKinds{kPp,
                                          kReplicate,
                                          kShard,
                                          kCp,
                                          kTp,
                                          kReplicate | kShard,
                                          kShard | kCp,
                                          kReplicate | kShard | kCp,
                                          kShard | kCp | kTp,
                                          kReplicate | kShard | kCp | kTp};

double seconds_since(Time::time_point begin) {
  return std::chrono::duration<double>(Time::now() - begin).count();
}

// Which group of that kind the rank is in: its coordinates along all other dims.
int color_of(int rank, unsigned kind) {
  int color = 0;
  int left = rank;
  int scale = 1;
  for (std::size_t i = kDegrees.size(); i-- > 0;) {
    const int coordinate = left % kDegrees[i];
    left /= kDegrees[i];
    if ((kind & 1U << i) != 0) continue;
    color += coordinate * scale;
    scale *= kDegrees[i];
  }
  return color;
}

double split_all(int rank) {
  std::vector<MPI_Comm> made;
  MPI_Barrier(MPI_COMM_WORLD);
  const auto begin = Time::now();
  for (const unsigned kind : kKinds)
    MPI_Comm_split(MPI_COMM_WORLD, color_of(rank, kind), rank, &made.emplace_back());
  double own = seconds_since(begin) * 1e3;
  double slowest = 0;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  for (MPI_Comm& each : made) MPI_Comm_free(&each);
  return slowest;
}

}  // namespace

int main(int argc, char** argv) {
  const auto begin = Time::now();
  MPI_Init(&argc, &argv);
  int rank = 0;
  float one = 1, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&one, &sum, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  const double first = seconds_since(begin);
  std::vector<double> splits;
  for (int i = 0; i < kRounds; ++i) splits.push_back(split_all(rank));
  if (rank == 0) {
    std::printf("{\"ranks\": %d, \"first_step_s\": %.3f, \"split_ms\": [", static_cast<int>(sum), first);
    for (std::size_t i = 0; i < splits.size(); ++i) std::printf("%s%.3f", i == 0 ? "" : ", ", splits[i]);
    std::printf("]}\n");
  }
  MPI_Finalize();
  return 0;
}
