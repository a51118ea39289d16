// One rank of an MPI: the same cells through Open MPI or MPICH, whichever this is built with.
#include "tests/bench/sweep.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <mpi.h>

namespace muster::bench {
namespace {

#ifdef OPEN_MPI
constexpr const char* kName = "openmpi";
#else
constexpr const char* kName = "mpich";
#endif
constexpr std::size_t kWorkElements = 4096;
constexpr int kWorkPasses = 400;  // of a unit: about a tenth of a millisecond

// A list of elements as MPI takes it.
struct Cut {
  std::vector<int> counts;
  std::vector<int> offsets;

  explicit Cut(const std::vector<std::size_t>& blocks) {
    for (const std::size_t block : blocks) counts.push_back(static_cast<int>(block));
    for (const std::size_t offset : offsets_of(blocks)) offsets.push_back(static_cast<int>(offset));
  }
  int first() const { return counts.empty() ? 0 : counts.front(); }
};

// Owns    MPI from start to end, two vectors, and one group and one window while they are there.
// Thread  one.
// Bound   as Contender.
// Fails   MPI ends the program, with its own words.
class MpiRank final : public Contender {
 public:
  MpiRank(int* argc, char*** argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }
  ~MpiRank() override {
    forget_window();
    MPI_Finalize();
  }

  const char* name() const override { return kName; }
  // The first number in what the library says of itself.
  std::string version() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const char* number = std::strpbrk(text.data(), "0123456789");
    return number == nullptr ? "" : std::string(number, std::strspn(number, "0123456789."));
  }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

  double maximum(double mine) override {
    double greatest = 0.0;
    MPI_Allreduce(&mine, &greatest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return greatest;
  }

  Prepared prepare(const Shape& shape) override {
    Prepared prepared = vectors_.of(shape);
    prepared.run = run_of(shape, prepared.source.data(), prepared.target.data());
    return prepared;
  }

  // A window that all ranks map, in which each one's shard lies where it belongs. To gather is to meet.
  std::optional<Prepared> prepare_shared(const Shape& shape) override {
    forget_window();
    float* own = nullptr;
    MPI_Win_allocate_shared(static_cast<MPI_Aint>(shape.source * sizeof(float)), sizeof(float), MPI_INFO_NULL,
                            MPI_COMM_WORLD, &own, &window_);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
    MPI_Aint bytes = 0;
    int unit = 0;
    float* whole = nullptr;  // the shards of all ranks, end to end
    MPI_Win_shared_query(window_, 0, &bytes, &unit, &whole);
    const auto run = [this] {
      MPI_Win_sync(window_);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Win_sync(window_);
    };
    return Prepared{{own, shape.source}, {whole, shape.target}, run, {}, true};
  }

  std::optional<Overlap> prepare_overlap(std::size_t bytes) override {
    const Prepared prepared = prepare(shape_of(Operation::kAllReduce, bytes, rank_, ranks_));
    const auto compute = [this](int units) { work(units); };
    const auto both = [this, source = prepared.source, target = prepared.target](int units) {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Iallreduce(source.data(), target.data(), static_cast<int>(source.size()), MPI_FLOAT, MPI_SUM,
                     MPI_COMM_WORLD, &request);
      work(units);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    };
    return Overlap{prepared.run, compute, both};
  }

  bool make_group() override { return MPI_Comm_split(MPI_COMM_WORLD, 0, rank_, &group_) == MPI_SUCCESS; }
  void forget_group() override { MPI_Comm_free(&group_); }

 private:
  using Run = std::function<void()>;

  static Run run_of(const Shape& shape, float* source, float* target) {
    const Cut sends(shape.source_blocks);
    const Cut receives(shape.target_blocks);
    const int given = static_cast<int>(shape.source);
    const int kept = static_cast<int>(shape.target);
    const MPI_Comm all = MPI_COMM_WORLD;
    switch (shape.operation) {
      case Operation::kBarrier:
      case Operation::kAllGatherShared:
        break;
      case Operation::kAllReduce:
        return [=] { MPI_Allreduce(source, target, given, MPI_FLOAT, MPI_SUM, all); };
      case Operation::kAllGather:
        return [=] { MPI_Allgather(source, given, MPI_FLOAT, target, given, MPI_FLOAT, all); };
      case Operation::kReduceScatter:
        return [=] { MPI_Reduce_scatter_block(source, target, kept, MPI_FLOAT, MPI_SUM, all); };
      case Operation::kBroadcast:
        return [=, vector = shape.rank == kRoot ? source : target, count = given + kept] {
          MPI_Bcast(vector, count, MPI_FLOAT, kRoot, all);
        };
      case Operation::kReduce:
        return [=] { MPI_Reduce(source, target, given, MPI_FLOAT, MPI_SUM, kRoot, all); };
      case Operation::kGather:
        return [=] { MPI_Gather(source, given, MPI_FLOAT, target, given, MPI_FLOAT, kRoot, all); };
      case Operation::kScatter:
        return [=] { MPI_Scatter(source, kept, MPI_FLOAT, target, kept, MPI_FLOAT, kRoot, all); };
      case Operation::kAllToAll:
        return [=, block = sends.first()] {
          MPI_Alltoall(source, block, MPI_FLOAT, target, block, MPI_FLOAT, all);
        };
      case Operation::kAllGatherV:
        return [=] {
          MPI_Allgatherv(source, given, MPI_FLOAT, target, receives.counts.data(), receives.offsets.data(),
                         MPI_FLOAT, all);
        };
      case Operation::kReduceScatterV:
        return [=] { MPI_Reduce_scatter(source, target, sends.counts.data(), MPI_FLOAT, MPI_SUM, all); };
      case Operation::kGatherV:
        return [=] {
          MPI_Gatherv(source, given, MPI_FLOAT, target, receives.counts.data(), receives.offsets.data(),
                      MPI_FLOAT, kRoot, all);
        };
      case Operation::kScatterV:
        return [=] {
          MPI_Scatterv(source, sends.counts.data(), sends.offsets.data(), MPI_FLOAT, target, kept, MPI_FLOAT,
                       kRoot, all);
        };
      case Operation::kAllToAllV:
        return [=] {
          MPI_Alltoallv(source, sends.counts.data(), sends.offsets.data(), MPI_FLOAT, target,
                        receives.counts.data(), receives.offsets.data(), MPI_FLOAT, all);
        };
      case Operation::kSendRecv:
        return ping_pong(shape, source, target);
      case Operation::kHalo:
        return exchange(shape, source, target);
    }
    return [] {};
  }

  void forget_window() {
    if (window_ == MPI_WIN_NULL) return;
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }

  static Run ping_pong(const Shape& shape, float* source, float* target) {
    const int count = static_cast<int>(shape.total);
    const int partner = partner_of(shape.rank, shape.ranks);
    if (partner < 0) return [] {};
    const auto give = [=] { MPI_Send(source, count, MPI_FLOAT, partner, 0, MPI_COMM_WORLD); };
    const auto get = [=] {
      MPI_Recv(target, count, MPI_FLOAT, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    };
    if (shape.rank < partner) return [=] { give(), get(); };
    return [=] { get(), give(); };
  }

  // Persistent requests: MPI's counterpart of a plan that is started many times.
  struct Persistent {
    Persistent() = default;
    Persistent(const Persistent&) = delete;
    Persistent& operator=(const Persistent&) = delete;
    ~Persistent() {
      for (MPI_Request& request : all) MPI_Request_free(&request);
    }
    std::array<MPI_Request, 4> all{};
  };

  // The tag is the side of the sender on which the face lies.
  static Run exchange(const Shape& shape, float* source, float* target) {
    const int face = static_cast<int>(shape.source_blocks.front());
    const int left = (shape.rank + shape.ranks - 1) % shape.ranks;
    const int right = (shape.rank + 1) % shape.ranks;
    constexpr int kLeft = 1;
    constexpr int kRight = 2;
    auto requests = std::make_shared<Persistent>();
    MPI_Request* const all = requests->all.data();
    MPI_Recv_init(target, face, MPI_FLOAT, left, kRight, MPI_COMM_WORLD, &all[0]);
    MPI_Recv_init(target + face, face, MPI_FLOAT, right, kLeft, MPI_COMM_WORLD, &all[1]);
    MPI_Send_init(source, face, MPI_FLOAT, left, kLeft, MPI_COMM_WORLD, &all[2]);
    MPI_Send_init(source + face, face, MPI_FLOAT, right, kRight, MPI_COMM_WORLD, &all[3]);
    return [requests] {
      const int count = static_cast<int>(requests->all.size());
      MPI_Startall(count, requests->all.data());
      MPI_Waitall(count, requests->all.data(), MPI_STATUSES_IGNORE);
    };
  }

  // Arithmetic in the nearest cache: it asks the memory for nothing that the all-reduce needs.
  void work(int units) {
    for (int pass = 0; pass < units * kWorkPasses; ++pass)
      for (float& element : work_) element = element * 0.999f + 0.001f;
  }

  int rank_ = 0;
  int ranks_ = 1;
  Vectors vectors_;
  std::vector<float> work_ = std::vector<float>(kWorkElements, 1.0f);
  MPI_Comm group_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  muster::bench::MpiRank rank(&argc, &argv);
  const auto words = std::span<char* const>(argv, static_cast<std::size_t>(argc)).subspan(1);
  muster::bench::sweep(rank, muster::bench::cells_of(words));
  return EXIT_SUCCESS;
}
