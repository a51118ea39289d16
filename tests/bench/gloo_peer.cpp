// One rank of Gloo, as PyTorch uses it: a full mesh of TCP connections, over the loopback device or the one
// that GLOO_SOCKET_IFNAME names. Ranks find each other through files in a folder of the run.
//
//   gloo_peer FOLDER RANKS WORDS...      starts RANKS processes and ends with the first failure's code
//   gloo_peer FOLDER RANKS@FIRST/ALL …   the same with ranks FIRST, FIRST + 1, … of ALL: those of one node
#include "tests/bench/sweep.hpp"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::bench {
namespace {

using Mesh = std::shared_ptr<gloo::rendezvous::Context>;
using Run = std::function<void()>;
using Reduction = void (*)(void*, const void*, const void*, std::size_t);

constexpr std::uint64_t kSlot = 1000;  // past those of the collectives, whose high bits name them

std::vector<std::int64_t> signed_counts(const std::vector<std::size_t>& blocks) {
  return {blocks.begin(), blocks.end()};
}

// Owns    the mesh of all ranks, two vectors, and one more mesh while it is there.
// Thread  one, beside the device's own.
// Bound   as Contender.
// Fails   by an exception of Gloo's, which ends the process.
class GlooRank final : public Contender {
 public:
  GlooRank(const std::string& folder, int rank, int ranks) : store_(folder), rank_(rank), ranks_(ranks) {
    gloo::transport::tcp::attr attributes;
    const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
    attributes.iface = interface == nullptr ? "lo" : interface;
    device_ = gloo::transport::tcp::CreateDevice(attributes);
    mesh_ = connect("world");
  }

  const char* name() const override { return "gloo"; }
  std::string version() const override {
    return std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
           std::to_string(GLOO_VERSION_PATCH);
  }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  void barrier() override {
    gloo::BarrierOptions options(mesh_);
    gloo::barrier(options);
  }

  double maximum(double mine) override {
    gloo::AllreduceOptions options(mesh_);
    options.setOutput(&mine, 1);
    options.setReduceFunction(static_cast<Reduction>(&gloo::max<double>));
    gloo::allreduce(options);
    return mine;
  }

  Prepared prepare(const Shape& shape) override {
    Prepared prepared = vectors_.of(shape);
    float* const source = prepared.source.data();
    float* const target = prepared.target.data();
    switch (shape.operation) {
      case Operation::kSendRecv:
        prepared.run = ping_pong(shape, source, target);
        break;
      case Operation::kHalo:
        prepared.run = exchange(shape, source, target);
        break;
      case Operation::kReduceScatter:
      case Operation::kReduceScatterV:
        prepared.run = reduce_scatter(shape, source);
        prepared.fetch = [=, kept = shape.target] { std::memcpy(target, source, kept * sizeof(float)); };
        break;
      case Operation::kAllGatherV:
      case Operation::kAllToAllV:
        prepared.run = uneven(shape, source, target);
        break;
      case Operation::kGatherV:
      case Operation::kScatterV:
        break;  // it has none
      case Operation::kAllReduce:
      case Operation::kBroadcast:
      case Operation::kReduce:
        prepared.run = whole(shape, source, target);
        break;
      default:
        prepared.run = even(shape, source, target);
    }
    return prepared;
  }

  bool make_group() override {
    group_ = connect("group" + std::to_string(groups_++));
    return true;
  }
  void forget_group() override { group_.reset(); }

 private:
  Mesh connect(const std::string& prefix) {
    gloo::rendezvous::PrefixStore store(prefix, store_);
    auto mesh = std::make_shared<gloo::rendezvous::Context>(rank_, ranks_);
    mesh->connectFullMesh(store, device_);
    return mesh;
  }

  static Reduction sum() { return static_cast<Reduction>(&gloo::sum<float>); }

  // Operations on vectors that are not cut.
  Run whole(const Shape& shape, float* source, float* target) {
    if (shape.operation == Operation::kAllReduce) {
      const auto options = std::make_shared<gloo::AllreduceOptions>(mesh_);
      options->setInput(source, shape.source);
      options->setOutput(target, shape.target);
      options->setReduceFunction(sum());
      return [options] { gloo::allreduce(*options); };
    }
    if (shape.operation == Operation::kBroadcast) {
      const auto options = std::make_shared<gloo::BroadcastOptions>(mesh_);
      options->setRoot(kRoot);
      options->setOutput(rank_ == kRoot ? source : target, shape.total);
      return [options] { gloo::broadcast(*options); };
    }
    const auto options = std::make_shared<gloo::ReduceOptions>(mesh_);
    // All ranks need an output: it is where Gloo keeps what it has summed so far.
    if (rank_ != kRoot) scratch_.resize(std::max(scratch_.size(), shape.total));
    options->setRoot(kRoot);
    options->setInput(source, shape.total);
    options->setOutput(rank_ == kRoot ? target : scratch_.data(), shape.total);
    options->setReduceFunction(sum());
    return [options] { gloo::reduce(*options); };
  }

  // Operations on blocks of one length.
  Run even(const Shape& shape, float* source, float* target) {
    if (shape.operation == Operation::kAllGather) {
      const auto options = std::make_shared<gloo::AllgatherOptions>(mesh_);
      options->setInput(source, shape.source);
      options->setOutput(target, shape.target);
      return [options] { gloo::allgather(*options); };
    }
    if (shape.operation == Operation::kAllToAll) {
      const auto options = std::make_shared<gloo::AlltoallOptions>(mesh_);
      options->setInput(source, shape.source);
      options->setOutput(target, shape.target);
      return [options] { gloo::alltoall(*options); };
    }
    if (shape.operation == Operation::kGather) {
      const auto options = std::make_shared<gloo::GatherOptions>(mesh_);
      options->setRoot(kRoot);
      options->setInput(source, shape.source);
      if (rank_ == kRoot) options->setOutput(target, shape.target);
      return [options] { gloo::gather(*options); };
    }
    const auto options = std::make_shared<gloo::ScatterOptions>(mesh_);
    options->setRoot(kRoot);
    std::vector<float*> blocks;
    for (const std::size_t offset : offsets_of(shape.source_blocks)) blocks.push_back(source + offset);
    if (rank_ == kRoot) options->setInputs(blocks, shape.target);
    options->setOutput(target, shape.target);
    return [options] { gloo::scatter(*options); };
  }

  Run uneven(const Shape& shape, float* source, float* target) {
    if (shape.operation == Operation::kAllGatherV) {
      const auto options = std::make_shared<gloo::AllgathervOptions>(mesh_);
      options->setInput(source, shape.source);
      options->setOutput(target, shape.target_blocks);
      return [options] { gloo::allgatherv(*options); };
    }
    const auto options = std::make_shared<gloo::AlltoallvOptions>(mesh_);
    options->setInput(source, signed_counts(shape.source_blocks));
    options->setOutput(target, signed_counts(shape.target_blocks));
    return [options] { gloo::alltoallv(*options); };
  }

  // In place, the only way in which Gloo has it: the own block comes to lie at the vector's begin.
  Run reduce_scatter(const Shape& shape, float* source) {
    const std::vector<int> blocks(shape.source_blocks.begin(), shape.source_blocks.end());
    const auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
        mesh_, std::vector<float*>{source}, static_cast<int>(shape.source), blocks);
    return [algorithm] { algorithm->run(); };
  }

  Run ping_pong(const Shape& shape, float* source, float* target) {
    const int partner = partner_of(shape.rank, shape.ranks);
    if (partner < 0) return [] {};
    using Buffer = std::shared_ptr<gloo::transport::UnboundBuffer>;
    const Buffer out = mesh_->createUnboundBuffer(source, shape.source * sizeof(float));
    const Buffer in = mesh_->createUnboundBuffer(target, shape.target * sizeof(float));
    const auto give = [=] {
      out->send(partner, kSlot);
      out->waitSend();
    };
    const auto get = [=] {
      in->recv(partner, kSlot);
      in->waitRecv();
    };
    if (shape.rank < partner) return [=] { give(), get(); };
    return [=] { get(), give(); };
  }

  // The slot is the side of the sender on which the face lies.
  Run exchange(const Shape& shape, float* source, float* target) {
    using Buffer = std::shared_ptr<gloo::transport::UnboundBuffer>;
    const std::size_t face = shape.source_blocks.front();
    const std::size_t bytes = face * sizeof(float);
    const int left = (shape.rank + shape.ranks - 1) % shape.ranks;
    const int right = (shape.rank + 1) % shape.ranks;
    const std::array<Buffer, 4> faces = {
        mesh_->createUnboundBuffer(target, bytes), mesh_->createUnboundBuffer(target + face, bytes),
        mesh_->createUnboundBuffer(source, bytes), mesh_->createUnboundBuffer(source + face, bytes)};
    return [=] {
      constexpr std::uint64_t kLeft = kSlot + 1;
      constexpr std::uint64_t kRight = kSlot + 2;
      faces[0]->recv(left, kRight);
      faces[1]->recv(right, kLeft);
      faces[2]->send(left, kLeft);
      faces[3]->send(right, kRight);
      faces[2]->waitSend();
      faces[3]->waitSend();
      faces[0]->waitRecv();
      faces[1]->waitRecv();
    };
  }

  gloo::rendezvous::FileStore store_;
  int rank_;
  int ranks_;
  std::shared_ptr<gloo::transport::Device> device_;
  Mesh mesh_;
  Vectors vectors_;
  std::vector<float> scratch_;
  Mesh group_;
  int groups_ = 0;
};

int run_rank(const std::string& folder, int rank, int ranks, const Cells& cells) {
  try {
    GlooRank contender(folder, rank, ranks);
    sweep(contender, cells);
    contender.barrier();
    return EXIT_SUCCESS;
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "gloo: rank %d: %s\n", rank, wrong.what());
    return EXIT_FAILURE;
  }
}

struct Ranks {
  int here = 0;
  int first = 0;
  int all = 0;
};

Ranks ranks_of(const char* word) {
  char* end = nullptr;
  Ranks ranks;
  ranks.here = ranks.all = static_cast<int>(std::strtol(word, &end, 10));
  if (*end == '@') ranks.first = static_cast<int>(std::strtol(end + 1, &end, 10));
  if (*end == '/') ranks.all = static_cast<int>(std::strtol(end + 1, &end, 10));
  return ranks;
}

// Starts the ranks and waits for them. The first that fails ends the others, which would wait for it.
int run_ranks(const std::string& folder, const Ranks& ranks, const Cells& cells) {
  std::vector<pid_t> processes;
  for (int rank = ranks.first; rank < ranks.first + ranks.here; ++rank) {
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(run_rank(folder, rank, ranks.all, cells));
    }
    processes.push_back(process);
  }
  bool good = true;
  for (int left = ranks.here; left > 0; --left) {
    int state = 0;
    wait(&state);
    const bool failed = !WIFEXITED(state) || WEXITSTATUS(state) != EXIT_SUCCESS;
    if (failed && good)
      for (const pid_t process : processes) kill(process, SIGKILL);
    good = good && !failed;
  }
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: gloo_peer FOLDER RANKS WORDS...; muster-bench starts it\n");
    return EXIT_FAILURE;
  }
  const auto words = std::span<char* const>(argv, static_cast<std::size_t>(argc)).subspan(3);
  return muster::bench::run_ranks(argv[1], muster::bench::ranks_of(argv[2]), muster::bench::cells_of(words));
}
