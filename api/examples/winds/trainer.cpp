#include "api/examples/winds/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace winds {

using namespace training;

namespace {

constexpr std::size_t kPages = 2;
constexpr double kRadius = 6.371e6;                             // of the earth, in m
constexpr double kRotation = 7.292e-5;                          // in 1/s
constexpr double kEquatorial = 8.0 * std::numbers::pi / 180.0;  // there is no geostrophic wind within
constexpr const char* kShards = "dp_shard_domain";  // all ranks that share weights, but for replicas

UnitsOptions how_to_share(const Sharing& sharing, const Options& options) {
  UnitsOptions how;
  how.name = sharing.name;
  how.prefetch = options.prefetch;
  how.divisor = static_cast<double>(sharing.dp_size);
  how.first_flags = MUSTER_UNIT_BACKWARD_WITHOUT_WHOLE;
  how.alone = sharing.all == MUSTER_GROUP_SELF;
  if (how.alone) return how;
  how.shard = kShards;
  how.shard_of_cut = "dp_shard";
  how.replicate = "dp_replicate";
  how.cut = "domain";
  how.cut_split = MUSTER_SPLIT_BALANCED;
  return how;
}

// The position can be cut as its rows are, if the field is cut by rows alone.
bool cuts_position(const Sharing& sharing) {
  return sharing.domain.size > 1 && sharing.cut.columns == 1;
}

}  // namespace

Sharing sharing_of(Runtime& runtime, const Options& options) {
  for (const char* name : {"pp", "cp", "tp"})
    if (const std::int64_t size = runtime.axis(name).size; size != 1)
      throw UsageError("mesh " + runtime.mesh_text() + " has " + name + "=" + std::to_string(size) +
                       "; winds is cut over domain, dp_replicate and dp_shard only, so set " + name +
                       " to 1");
  Sharing sharing;
  sharing.name = "winds";
  sharing.domain = runtime.axis("domain");
  const Axis replicate = runtime.axis("dp_replicate"), shard = runtime.axis("dp_shard");
  sharing.dp_size = replicate.size * shard.size;
  sharing.dp_index = replicate.coordinate * shard.size + shard.coordinate;
  sharing.all = runtime.group("world");
  sharing.cut = options.cut.value_or(RankGrid{static_cast<std::int32_t>(sharing.domain.size), 1});
  if (sharing.cut.ranks() != sharing.domain.size)
    throw UsageError("--cut " + std::to_string(sharing.cut.rows) + "x" + std::to_string(sharing.cut.columns) +
                     " is for " + std::to_string(sharing.cut.ranks()) +
                     " ranks, but the mesh has domain=" + std::to_string(sharing.domain.size));
  if (options.batch % sharing.dp_size != 0)
    throw UsageError("--batch " + std::to_string(options.batch) +
                     " is not a multiple of dp_replicate x dp_shard = " + std::to_string(sharing.dp_size));
  if (sharing.all != MUSTER_GROUP_SELF) {
    const char* const dims[] = {"dp_shard", "domain"};
    runtime.flatten(dims, kShards);
  }
  return sharing;
}

Trainer::Trainer(Runtime& runtime, const Sharing& sharing, const Options& options, const Samples& samples)
    : runtime_(runtime),
      sharing_(sharing),
      options_(options),
      samples_(samples),
      local_(options.batch / sharing.dp_size),
      units_(runtime, units_of(samples.grid(), options.width, cuts_position(sharing)),
             how_to_share(sharing, options)),
      optimiser_(runtime, units_) {
  units_.initialise(options.seed);
}

void Trainer::begin() {
  units_.begin_step(updated_);
  if (model_ == nullptr) record();
}

void Trainer::record() {
  model_ = std::make_unique<Model>(runtime_, sharing_, options_, samples_.grid(), units_, local_);
  optimiser_.record(options_.learning_rate, options_.clip);
  pages_.reserve(kPages);
  for (std::size_t i = 0; i < kPages; ++i) record_page(pages_.emplace_back(runtime_));
}

void Trainer::record_page(Page& page) {
  const auto like = [&](const muster_tensor& tensor, Buffer& buffer) {
    std::uint64_t elements = 1;
    for (std::int32_t dim = 0; dim < tensor.dims; ++dim)
      elements *= static_cast<std::uint64_t>(tensor.size[dim]);
    buffer = runtime_.allocate(std::max<std::uint64_t>(1, elements) * sizeof(float));
    muster_tensor copy = tensor;
    copy.buffer = buffer.handle;
    copy.offset_bytes = 0;
    return copy;
  };
  page.load.kernel(muster_copy(like(model_->inputs(), page.inputs), model_->inputs()));
  page.load.kernel(muster_copy(like(model_->truth(), page.truth), model_->truth()));
  page.load.kernel(muster_copy(like(optimiser_.schedule(), page.schedule), optimiser_.schedule()));
  page.store.kernel(muster_copy(model_->mean_loss(), like(model_->mean_loss(), page.loss)));
  page.store.kernel(muster_copy(optimiser_.gradient_norm(), like(optimiser_.gradient_norm(), page.norm)));
  if (options_.scatter && sharing_.domain.size > 1)
    page.scatter = std::make_unique<Scatter>(runtime_, sharing_.domain, model_->rows_of_ranks(), samples_,
                                             page.inputs, page.truth, local_);
}

void Trainer::fill(Page& page, const std::function<Sample(std::int64_t)>& sample) {
  const Patch& patch = model_->patch();
  for (std::int64_t i = 0; i < local_; ++i) {
    const Sample drawn = sample(sharing_.dp_index * local_ + i);
    if (page.scatter != nullptr)
      page.scatter->read(drawn, i);
    else
      samples_.read(drawn, patch, page.inputs.as<float>().data() + i * patch.points() * kInputs,
                    page.truth.as<float>().data() + i * patch.points() * kWinds);
  }
}

void Trainer::submit(std::int64_t step, const std::function<void()>& before_update) {
  begin();
  Page& page = this->page(step);
  fill(page, [&](std::int64_t index) { return samples_.draw(step, batch(), index); });
  page.schedule.as<float>()[0] =
      static_cast<float>(learning_rate_multiplier(step, options_.steps, options_.warmup));
  page.schedule.as<float>()[1] = static_cast<float>(step + 1);
  page.load.replay();
  model_->forward();
  model_->loss();
  model_->backward();
  units_.end_step(runtime_.newest(MUSTER_LANE_COMPUTE));
  if (before_update) before_update();
  updated_ = optimiser_.update(model_->loss_ready());
  page.done = page.store.replay();
}

StepResult Trainer::collect(std::int64_t step) {
  const Page& page = this->page(step);
  runtime_.wait(page.done);
  return {page.loss.as<const float>()[0], page.norm.as<const float>()[0]};
}

// ---- judgement ---------------------------------------------------------------------------------------

namespace {

// Sums of squares by area, of which the ranks' add up.
struct Squares {
  double weight = 0.0, weight_outside = 0.0;
  std::array<double, kWinds> result{}, climatology{}, result_outside{}, geostrophic{};
};
static_assert(sizeof(Squares) == (2 + 4 * kWinds) * sizeof(double));

// The winds of one row that the pressure gradient balances; between the poles.
void geostrophic_row(const Field& field, std::int64_t month, std::int64_t row,
                     std::vector<std::vector<float>>& winds) {
  const Grid grid = field.grid();
  const auto columns = static_cast<std::size_t>(grid.columns);
  const double latitude = grid.latitude(row), f = 2.0 * kRotation * std::sin(latitude);
  const double north = kRadius * (grid.latitude(row - 1) - grid.latitude(row + 1));
  const double east = kRadius * std::cos(latitude) * 2.0 * grid.column_angle();
  std::vector<float> above(columns), here(columns), below(columns);
  for (std::int64_t level = 0; level < kLevels; ++level) {
    const auto u = static_cast<std::size_t>(level), v = static_cast<std::size_t>(kLevels + level);
    field.row(month, kWinds + level, row - 1, above);
    field.row(month, kWinds + level, row, here);
    field.row(month, kWinds + level, row + 1, below);
    for (std::size_t i = 0; i < columns; ++i) {
      const double slope = static_cast<double>(here[(i + 1) % columns]) -
                           static_cast<double>(here[(i + columns - 1) % columns]);
      winds[u][i] =
          static_cast<float>(-(static_cast<double>(above[i]) - static_cast<double>(below[i])) / north / f);
      winds[v][i] = static_cast<float>(slope / east / f);
    }
  }
}

}  // namespace

Judgement Trainer::judge(std::int64_t month) {
  begin();
  Page& page = pages_.front();
  fill(page, [&](std::int64_t) { return Sample{.month = month}; });
  page.load.replay();
  model_->forward();
  units_.end_step(runtime_.newest(MUSTER_LANE_COMPUTE));
  runtime_.wait(runtime_.newest(MUSTER_LANE_COMPUTE));
  const Patch& patch = model_->patch();
  const Grid& grid = samples_.grid();
  const auto* result = static_cast<const float*>(runtime_.address(model_->result()));
  const float* truth = page.truth.as<const float>().data();
  std::vector<float> learned(static_cast<std::size_t>(patch.columns * kWinds));
  std::vector<std::vector<float>> geostrophic(kWinds,
                                              std::vector<float>(static_cast<std::size_t>(grid.columns)));
  const Buffer sums = runtime_.allocate(sizeof(Squares));
  Squares& squares = *new (sums.address) Squares();
  for (std::int64_t row = patch.row; row < patch.row + patch.rows; ++row) {
    const double weight = grid.weight(row);
    const bool outside = std::abs(grid.latitude(row)) >= kEquatorial && row > 0 && row + 1 < grid.rows;
    samples_.read({.month = samples_.month()}, {row, patch.column, 1, patch.columns}, nullptr,
                  learned.data());
    if (outside) geostrophic_row(samples_.field(), month, row, geostrophic);
    for (std::int64_t column = 0; column < patch.columns; ++column) {
      squares.weight += weight;
      squares.weight_outside += outside ? weight : 0.0;
      for (std::size_t wind = 0; wind < kWinds; ++wind) {
        const double scale = samples_.wind_scale(static_cast<std::int64_t>(wind));
        const auto at =
            static_cast<std::size_t>(((row - patch.row) * patch.columns + column) * kWinds) + wind;
        const double right = scale * static_cast<double>(truth[at]);
        const double error = scale * static_cast<double>(result[at]) - right;
        const double climatology_error =
            scale * static_cast<double>(learned[static_cast<std::size_t>(column * kWinds) + wind]) - right;
        squares.result[wind] += weight * error * error;
        squares.climatology[wind] += weight * climatology_error * climatology_error;
        if (!outside) continue;
        const double geostrophic_error =
            static_cast<double>(geostrophic[wind][static_cast<std::size_t>(patch.column + column)]) - right;
        squares.result_outside[wind] += weight * error * error;
        squares.geostrophic[wind] += weight * geostrophic_error * geostrophic_error;
      }
    }
  }
  const muster_tensor all = muster_view1(sums.handle, 0, MUSTER_F64, sizeof(Squares) / sizeof(double));
  if (sharing_.domain.size > 1) {
    const muster_collective sum = all_reduce(sharing_.domain.group, MUSTER_SUM, all);
    check(muster_run(runtime_.session(), &sum, 0));
  }
  Judgement judgement;
  for (std::size_t wind = 0; wind < kWinds; ++wind) {
    judgement.result[wind] = std::sqrt(squares.result[wind] / squares.weight);
    judgement.climatology[wind] = std::sqrt(squares.climatology[wind] / squares.weight);
    judgement.result_outside[wind] = std::sqrt(squares.result_outside[wind] / squares.weight_outside);
    judgement.geostrophic[wind] = std::sqrt(squares.geostrophic[wind] / squares.weight_outside);
  }
  return judgement;
}

float Trainer::truth(std::int64_t point, std::int64_t wind) const {
  const auto scaled = pages_.front().truth.as<const float>()[static_cast<std::size_t>(point * kWinds + wind)];
  return scaled * static_cast<float>(samples_.wind_scale(wind));
}
float Trainer::result(std::int64_t point, std::int64_t wind) const {
  const auto* scaled = static_cast<const float*>(runtime_.address(model_->result()));
  return scaled[point * kWinds + wind] * static_cast<float>(samples_.wind_scale(wind));
}

}  // namespace winds
