#include "api/examples/winds/scatter.hpp"

#include <algorithm>

namespace winds {

using namespace training;

namespace {

// Rows of which each rank has so many.
FieldLayout rows_of(const std::vector<std::int64_t>& lengths, const muster_tensor& like, std::int64_t rows) {
  muster_layout_options options = MUSTER_LAYOUT_OPTIONS_INIT;
  options.dims = 3;
  options.shape[0] = rows;
  options.shape[1] = like.size[1];
  options.shape[2] = like.size[2];
  options.axis_count = 1;
  options.axes[0].ranks = static_cast<std::int32_t>(lengths.size());
  options.axes[0].placement = MUSTER_SHARD;
  options.axes[0].split = MUSTER_SPLIT_GIVEN;
  options.axes[0].lengths = lengths.data();
  options.axes[0].length_count = static_cast<std::uint32_t>(lengths.size());
  muster_layout* layout = nullptr;
  check(muster_layout_create(nullptr, &options, &layout));
  return FieldLayout(layout);
}

muster_tensor rows_in(const Buffer& buffer, std::int64_t first, std::int64_t rows, std::int64_t columns,
                      std::int64_t channels) {
  const auto bytes = static_cast<std::uint64_t>(first * columns * channels) * sizeof(float);
  return muster_view3(buffer.handle, rows == 0 ? 0 : bytes, MUSTER_F32, rows, columns, channels);
}

}  // namespace

Scatter::Scatter(Runtime& runtime, const Axis& domain, const std::vector<std::int64_t>& rows,
                 const Samples& samples, const Buffer& inputs, const Buffer& winds, std::int64_t count)
    : runtime_(runtime), domain_(domain), samples_(samples) {
  const Grid& grid = samples.grid();
  const auto bytes = static_cast<std::uint64_t>(kRows * grid.columns) * sizeof(float);
  const bool reads = domain.coordinate == 0;
  inputs_ = runtime.allocate(reads ? bytes * kInputs : 1);
  winds_ = runtime.allocate(reads ? bytes * kWinds : 1);
  const std::int64_t own = rows[static_cast<std::size_t>(domain.coordinate)];
  for (std::int64_t row = 0; row < grid.rows; row += kRows) {
    Chunk& chunk = chunks_.emplace_back(Chunk{row, std::min(kRows, grid.rows - row), {}});
    std::vector<std::int64_t> shares;
    std::int64_t begin = 0, first = 0;  // of a rank's rows; of this rank's share among its own
    for (std::size_t rank = 0; rank < rows.size(); begin += rows[rank++]) {
      const std::int64_t from = std::max(row, begin), to = std::min(row + chunk.rows, begin + rows[rank]);
      shares.push_back(std::max<std::int64_t>(0, to - from));
      if (static_cast<std::int64_t>(rank) == domain.coordinate) first = from - begin;
    }
    const std::int64_t share = shares[static_cast<std::size_t>(domain.coordinate)];
    for (std::int64_t sample = 0; sample < count; ++sample)
      for (const auto& [source, target, channels] :
           {std::tuple(&inputs_, &inputs, kInputs), {&winds_, &winds, kWinds}})
        chunk.plans.push_back(plan(chunk, shares,
                                   rows_in(*source, 0, reads ? chunk.rows : 0, grid.columns, channels),
                                   rows_in(*target, sample * own + first, share, grid.columns, channels)));
  }
}

muster_plan Scatter::plan(const Chunk& chunk, const std::vector<std::int64_t>& shares,
                          const muster_tensor& source, const muster_tensor& target) {
  std::vector<std::int64_t> all(shares.size());
  all.front() = chunk.rows;
  const FieldLayout from = rows_of(all, source, chunk.rows), to = rows_of(shares, source, chunk.rows);
  return runtime_.redistribution(domain_.group, from.get(), source, to.get(), target);
}

void Scatter::read(const Sample& sample, std::int64_t index) {
  for (const Chunk& chunk : chunks_) {
    if (domain_.coordinate == 0)
      samples_.read(sample, {chunk.row, 0, chunk.rows, samples_.grid().columns}, inputs_.as<float>().data(),
                    winds_.as<float>().data());
    for (std::size_t i = 0; i < 2; ++i)
      check(muster_plan_run(runtime_.session(), chunk.plans[static_cast<std::size_t>(index) * 2 + i], 0));
  }
}

}  // namespace winds
