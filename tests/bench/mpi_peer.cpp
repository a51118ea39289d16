// One rank of the peer's side: the same cells through MPI. Memory is what a program gets from its allocator.
#include "tests/bench/contender.hpp"

#include <cstdio>
#include <cstdlib>

#include <mpi.h>

namespace muster::bench {
namespace {

// Owns    MPI from start to end, and two vectors.
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
  ~MpiRank() override { MPI_Finalize(); }

  const char* name() const override {
#ifdef OPEN_MPI
    return "openmpi";
#else
    return "mpi";
#endif
  }
  int rank() const override {
    return rank_;
  }
  int ranks() const override {
    return ranks_;
  }
  void barrier() override {
    MPI_Barrier(MPI_COMM_WORLD);
  }

  double maximum(double mine) override {
    double greatest = 0.0;
    MPI_Allreduce(&mine, &greatest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return greatest;
  }

  Prepared prepare(const std::string& operation, Extent extent) override {
    source_.assign(extent.source, 0.0f);
    target_.assign(extent.target, 0.0f);
    Prepared prepared{source_, target_, {}};
    const int own = static_cast<int>(extent.source);
    const int kept = static_cast<int>(extent.target);
    if (operation == "all_gather") {
      prepared.run = [this, own] {
        MPI_Allgather(source_.data(), own, MPI_FLOAT, target_.data(), own, MPI_FLOAT, MPI_COMM_WORLD);
      };
    } else if (operation == "reduce_scatter") {
      prepared.run = [this, kept] {
        MPI_Reduce_scatter_block(source_.data(), target_.data(), kept, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      };
    } else {
      prepared.run = [this, own] {
        MPI_Allreduce(source_.data(), target_.data(), own, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      };
    }
    return prepared;
  }

 private:
  int rank_ = 0;
  int ranks_ = 1;
  std::vector<float> source_;
  std::vector<float> target_;
};

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  muster::bench::MpiRank rank(&argc, &argv);
  const auto words = std::span<char* const>(argv, static_cast<std::size_t>(argc)).subspan(1);
  muster::bench::sweep(rank, muster::bench::cells_of(words));
  return EXIT_SUCCESS;
}
