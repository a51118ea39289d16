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

muster_tensor floats(const Buffer& buffer, std::int64_t first, std::int64_t count) {
  return muster_view1(buffer.handle, static_cast<std::uint64_t>(first) * sizeof(float), MUSTER_F32, count);
}

}  // namespace

Trainer::Trainer(Runtime& runtime, const Mesh& mesh, const Options& options, const Text& text, bool sharded)
    : runtime_(runtime),
      mesh_(mesh),
      options_(options),
      text_(text),
      units_(runtime, options, sharded),
      optimiser_(runtime) {
  units_.initialise(options.seed);
  state_ = runtime.allocate(4 * sizeof(float));
  square_sum_ = runtime.allocate(sizeof(double));
}

void Trainer::record() {
  model_ = std::make_unique<Model>(runtime_, mesh_, options_, units_, mesh_.batch_rows(options_.batch).count);
  optimiser_.kernel(muster_clip_coefficient(square_sum(), floats(state_, 2, 2), options_.clip));
  units_.update(optimiser_, floats(state_, 0, 3), options_.learning_rate);
  pages_.reserve(kPages);
  for (std::size_t i = 0; i < kPages; ++i) record_page(pages_.emplace_back(runtime_));
}

void Trainer::record_page(Page& page) {
  page.ids = runtime_.allocate(static_cast<std::uint64_t>(model_->ids().size[0]) * sizeof(std::int32_t));
  page.targets = runtime_.allocate(page.ids.bytes);
  page.schedule = runtime_.allocate(2 * sizeof(float));
  page.results = runtime_.allocate(2 * sizeof(float));

  if (options_.broadcast_batch)
    for (const Buffer& buffer : {page.ids, page.targets})
      page.load.join(page.load.collective(MUSTER_LANE_SMALL, broadcast(mesh_.tp.group, 0, tokens(buffer))));
  page.load.kernel(muster_copy(tokens(page.ids), model_->ids()));
  page.load.kernel(muster_copy(tokens(page.targets), model_->targets()));
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

void Trainer::draw_batch(Page& page, std::int64_t step) const {
  if (options_.broadcast_batch && mesh_.tp.coordinate != 0) return;
  const Chunk rows = mesh_.batch_rows(options_.batch);
  const Chunk positions = mesh_.positions(options_.context);
  std::int32_t* ids = page.ids.as<std::int32_t>().data();
  std::int32_t* targets = page.targets.as<std::int32_t>().data();
  for (std::int64_t row = rows.begin; row < rows.begin + rows.count; ++row) {
    const auto sequence = text_.sequence(options_.seed, step, options_.batch, row);
    for (std::int64_t i = positions.begin; i < positions.begin + positions.count; ++i) {
      *ids++ = static_cast<unsigned char>(sequence[static_cast<std::size_t>(i)]);
      *targets++ = static_cast<unsigned char>(sequence[static_cast<std::size_t>(i + 1)]);
    }
  }
}

// Ranks along tp share each layer's work on one batch. With different batches they would learn nothing, and
// no other check would notice.
void Trainer::compare_batches(const Page& page, std::int64_t step) {
  if (mesh_.tp.size == 1 || options_.broadcast_batch) return;
  if (std::exchange(has_compared_, true) && !options_.check_batches) return;
  const std::array views{tokens(page.ids), tokens(page.targets)};
  const muster_status_t status =
      muster_compare(runtime_.session(), mesh_.tp.group, views.data(), views.size(), 0);
  if (status == MUSTER_ERR_CORRUPT)
    throw RuntimeError(status, "ranks along tp have different batches in step " + std::to_string(step + 1) +
                                   "; start them with one --text and one --seed: " + muster_last_error());
  check(status);
}

void Trainer::submit(std::int64_t step, const std::function<void()>& before_update) {
  units_.begin_step(updated_);
  if (model_ == nullptr) record();
  Page& page = this->page(step);
  draw_batch(page, step);
  compare_batches(page, step);
  page.schedule.as<float>()[0] = static_cast<float>(learning_rate_multiplier(step));
  page.schedule.as<float>()[1] = static_cast<float>(step + 1);
  page.load.replay();
  model_->forward();
  model_->loss();
  model_->backward();
  units_.end_step(runtime_.newest(MUSTER_LANE_COMPUTE));  // the sum of squares waits for all gradients
  if (before_update) before_update();
  updated_ = optimiser_.replay(std::array{units_.square_sum(square_sum()), model_->loss_ready()});
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
  for (std::size_t unit = 0; unit < units_.count(); ++unit)
    for (std::size_t i = 0; i < units_.parameters(unit).size(); ++i) {
      const Parameter& parameter = units_.parameters(unit)[i];
      for (const muster_box& box : units_.boxes(unit, i, MUSTER_UNIT_SHARD))
        file << parameter.name << ' ' << box.offset[0] << ' ' << box.length[0] << ' ' << box.offset[1] << ' '
             << (parameter.is_norm() ? 1 : box.length[1]);
      units_.each(unit, i, MUSTER_UNIT_GRADIENT_SHARD, [&](float value, std::int64_t, std::int64_t) {
        char text[32];
        std::snprintf(text, sizeof text, " %.9g", static_cast<double>(value));
        file << text;
      });
      file << '\n';
    }
  errno = 0;
  if (!file.flush())
    throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno != 0 ? errno : EIO));
}

}  // namespace train_lm
