#include "tests/bench/sharding/measurements.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <muster/checkpoint.h>
#include <nlohmann/json.hpp>

namespace muster::bench::sharding {
namespace {

constexpr std::int64_t kTensors = 16;
constexpr std::int64_t kColumns = 1024;
constexpr std::uint64_t kRowBytes = kColumns * sizeof(float);

// Matrices whose rows are divided among the ranks, as a model's parameters are.
class Matrices {
 public:
  Matrices(Rank& rank, std::uint64_t mib) : rank_(rank) {
    rows_ = static_cast<std::int64_t>((mib << 20) / kRowBytes) / kTensors;
    for (std::int64_t i = 0; i < kTensors; ++i) names_.push_back("matrix" + std::to_string(i));
    for (const std::string& name : names_) add(name);
  }

  const std::vector<muster_checkpoint_tensor>& tensors() const { return tensors_; }
  double bytes() const { return static_cast<double>(rows_ * kTensors) * static_cast<double>(kRowBytes); }
  void set(float scale) {
    for (const std::span<float> values : values_)
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * value(i);
  }
  std::size_t wrong() const {
    std::size_t count = 0;
    for (const std::span<float> values : values_)
      for (std::size_t i = 0; i < values.size(); ++i) count += values[i] == value(i) ? 0 : 1;
    return count;
  }

 private:
  float value(std::size_t i) const {
    return static_cast<float>((i * 31 + static_cast<std::size_t>(rank_.rank())) % 8191 + 1);
  }
  void add(const std::string& name) {
    muster_layout_options said = MUSTER_LAYOUT_OPTIONS_INIT;
    said.dims = 2;
    said.shape[0] = rows_;
    said.shape[1] = kColumns;
    said.axis_count = 1;
    said.axes[0].ranks = rank_.ranks();
    said.axes[0].placement = MUSTER_SHARD;
    muster_layout* layout = nullptr;
    must(muster_layout_create(rank_.session(), &said, &layout), "muster_layout_create");
    layouts_.emplace_back(layout, &muster_layout_destroy);
    std::int64_t shape[MUSTER_TENSOR_DIMS_MAX];
    must(muster_layout_local_shape(layout, rank_.rank(), shape), "muster_layout_local_shape");
    const auto elements = static_cast<std::size_t>(shape[0] * shape[1]);
    const Memory memory = rank_.allocate(std::max<std::size_t>(elements, 1) * sizeof(float));
    values_.emplace_back(static_cast<float*>(memory.address), elements);
    tensors_.push_back(
        {name.c_str(), layout, muster_view2(memory.buffer, 0, MUSTER_F32, shape[0], shape[1])});
  }

  Rank& rank_;
  std::int64_t rows_ = 0;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<muster_layout, muster_status_t (*)(muster_layout*)>> layouts_;
  std::vector<std::span<float>> values_;
  std::vector<muster_checkpoint_tensor> tensors_;
};

// The slowest rank's seconds.
template<class Work>
double timed(Rank& rank, Work work) {
  rank.meet();
  const auto begin = std::chrono::steady_clock::now();
  work();
  return rank.largest(seconds_since(begin));
}

}  // namespace

void measure_checkpoint(Rank& rank, const CheckpointOptions& options) {
  Matrices matrices(rank, options.mib);
  muster_checkpoints_options said = MUSTER_CHECKPOINTS_OPTIONS_INIT;
  said.folder = options.folder.c_str();
  said.group = rank.world();
  muster_checkpoints* checkpoints = nullptr;
  must(muster_checkpoints_open(rank.session(), &said, &checkpoints), "muster_checkpoints_open");
  muster_checkpoint_save_options save = MUSTER_CHECKPOINT_SAVE_OPTIONS_INIT;
  save.tensors = matrices.tensors().data();
  save.tensor_count = matrices.tensors().size();
  muster_checkpoint_load_options load = MUSTER_CHECKPOINT_LOAD_OPTIONS_INIT;
  load.tensors = save.tensors;
  load.tensor_count = save.tensor_count;
  std::vector<double> copies, saves, loads;
  for (int turn = 0; turn < options.turns; ++turn) {
    save.step = static_cast<std::uint64_t>(turn);
    matrices.set(1.0F);
    double copied = 0.0;
    saves.push_back(timed(rank, [&] {
      const auto begin = std::chrono::steady_clock::now();
      must(muster_checkpoint_save_async(checkpoints, &save), "muster_checkpoint_save_async");
      copied = seconds_since(begin);
      must(muster_checkpoint_wait(checkpoints), "muster_checkpoint_wait");
    }));
    copies.push_back(rank.largest(copied));
    matrices.set(0.0F);
    loads.push_back(timed(
        rank, [&] { must(muster_checkpoint_load(checkpoints, &load, nullptr), "muster_checkpoint_load"); }));
    if (matrices.wrong() > 0) {
      std::fprintf(stderr, "sharding_rank: %zu elements are not those that were saved\n", matrices.wrong());
      std::exit(EXIT_FAILURE);
    }
    rank.meet();
    if (rank.rank() == 0) std::filesystem::remove_all(options.folder);
  }
  must(muster_checkpoints_close(checkpoints), "muster_checkpoints_close");
  if (rank.rank() != 0) return;
  const nlohmann::ordered_json row = {{"ranks", rank.ranks()},
                                      {"bytes", matrices.bytes()},
                                      {"save_seconds", median(saves)},
                                      {"copy_seconds", median(copies)},
                                      {"load_seconds", median(loads)}};
  std::cout << row.dump() << std::endl;
}

}  // namespace muster::bench::sharding
