#include "api/examples/train_lm/trainer.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numbers>
#include <utility>

namespace train_lm {
namespace {

constexpr std::size_t kPages = 2;
constexpr double kFinalMultiplier = 0.1;

std::vector<UnitLayout> layouts_of(const std::vector<std::vector<Parameter>>& units, const Layout& layout) {
  std::vector<UnitLayout> layouts;
  for (const auto& parameters : units) layouts.emplace_back(parameters, layout);
  return layouts;
}

muster_tensor floats(const Buffer& buffer, std::int64_t first, std::int64_t count) {
  return muster_view1(buffer.handle, static_cast<std::uint64_t>(first) * sizeof(float), MUSTER_F32, count);
}

}  // namespace

Trainer::Trainer(Runtime& runtime, const Layout& layout, const Options& options, const Text& text)
    : runtime_(runtime), layout_(layout), options_(options), text_(text), step_(runtime) {
  const auto units = model_units(options);
  workspace_ = std::make_unique<Workspace>(runtime, layouts_of(units, layout), options.dtype);
  for (std::size_t i = 0; i < units.size(); ++i)
    units_.emplace_back(runtime, layout, units[i], i, *workspace_, options.dtype);
  for (Unit& unit : units_) unit.initialise(options.seed);

  const std::int64_t rows = layout.batch_rows(options.batch).count;
  model_ = std::make_unique<Model>(runtime, layout, options, units_, *workspace_, rows);
  state_ = runtime.allocate(4 * sizeof(float));
  square_sum_ = runtime.allocate(sizeof(double));
  record_step();
  pages_.reserve(kPages);
  for (std::size_t i = 0; i < kPages; ++i) record_page(pages_.emplace_back(runtime));
  Program round(runtime);
  for (Unit& unit : units_) unit.round_weights(round);
  if (round.size() > 0) runtime.wait(round.replay());
}

void Trainer::record_step() {
  model_->forward(step_);
  model_->loss(step_);
  model_->backward(step_);

  for (Unit& unit : units_) unit.join_reduced(step_);
  const muster_tensor sum = muster_view1(square_sum_.handle, 0, MUSTER_F64, 1);
  for (std::size_t i = 0; i < units_.size(); ++i) units_[i].square_sum(step_, sum, i == 0);
  step_.join(step_.collective(MUSTER_LANE_SMALL, all_reduce(layout_.weight, MUSTER_SUM, sum)));
  step_.join(model_->loss_ready());
  step_.kernel(muster_clip_coefficient(sum, floats(state_, 2, 2), options_.clip));
  for (Unit& unit : units_) unit.update(step_, floats(state_, 0, 3), options_.learning_rate);
}

void Trainer::record_page(Page& page) {
  page.ids = runtime_.allocate(static_cast<std::uint64_t>(model_->ids().size[0]) * sizeof(std::int32_t));
  page.targets = runtime_.allocate(page.ids.bytes);
  page.schedule = runtime_.allocate(2 * sizeof(float));
  page.results = runtime_.allocate(2 * sizeof(float));

  const auto ints = [&](const Buffer& buffer) {
    return muster_view1(buffer.handle, 0, MUSTER_I32, model_->ids().size[0]);
  };
  page.load.kernel(muster_copy(ints(page.ids), model_->ids()));
  page.load.kernel(muster_copy(ints(page.targets), model_->targets()));
  page.load.kernel(muster_copy(floats(page.schedule, 0, 2), floats(state_, 0, 2)));
  page.store.kernel(muster_copy(model_->mean_loss(), floats(page.results, 0, 1)));
  page.store.kernel(muster_copy(floats(state_, 3, 1), floats(page.results, 1, 1)));
}

double Trainer::learning_rate_multiplier(std::int64_t step) const {
  if (step < options_.warmup) return static_cast<double>(step + 1) / static_cast<double>(options_.warmup);
  const double total = static_cast<double>(std::max<std::int64_t>(1, options_.steps - options_.warmup));
  const double progress = static_cast<double>(step - options_.warmup) / total;
  return kFinalMultiplier + (1.0 - kFinalMultiplier) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

void Trainer::submit(std::int64_t step) {
  Page& page = this->page(step);
  const Chunk rows = layout_.batch_rows(options_.batch);
  std::int32_t* ids = page.ids.as<std::int32_t>().data();
  std::int32_t* targets = page.targets.as<std::int32_t>().data();
  for (std::int64_t row = rows.begin; row < rows.begin + rows.count; ++row) {
    const auto sequence = text_.sequence(options_.seed, step, options_.batch, row);
    for (std::size_t i = 0; i + 1 < sequence.size(); ++i) {
      *ids++ = static_cast<unsigned char>(sequence[i]);
      *targets++ = static_cast<unsigned char>(sequence[i + 1]);
    }
  }
  page.schedule.as<float>()[0] = static_cast<float>(learning_rate_multiplier(step));
  page.schedule.as<float>()[1] = static_cast<float>(step + 1);
  page.load.replay();
  step_.replay();
  page.done = page.store.replay();
}

StepResult Trainer::collect(std::int64_t step) {
  const Page& page = this->page(step);
  runtime_.wait(page.done);
  const auto results = page.results.as<const float>();
  return {results[0], results[1]};
}

void Trainer::dump_gradients(const std::string& path) const {
  std::ofstream file(path);
  for (const Unit& unit : units_) {
    const std::span<const float> gradient = unit.gradient_shard();
    for (std::size_t i = 0; i < unit.parameters().size(); ++i) {
      const Place& place = unit.layout().places[i];
      const Box& box = place.owned;
      file << unit.parameters()[i].name << ' ' << box.rows.begin << ' ' << box.rows.count << ' '
           << box.columns.begin << ' ' << box.columns.count;
      const auto begin = static_cast<std::size_t>(place.shard_offset);
      for (const float value : gradient.subspan(begin, static_cast<std::size_t>(box.elements()))) {
        char text[32];
        std::snprintf(text, sizeof text, " %.9g", static_cast<double>(value));
        file << text;
      }
      file << '\n';
    }
  }
  errno = 0;
  if (!file.flush())
    throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno != 0 ? errno : EIO));
}

}  // namespace train_lm
