#include "api/examples/train_lm/trainer.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

namespace train_lm {

using namespace training;

namespace {

constexpr std::size_t kPages = 2;

muster_tensor floats(const Buffer& buffer, std::int64_t first, std::int64_t count) {
  return muster_view1(buffer.handle, static_cast<std::uint64_t>(first) * sizeof(float), MUSTER_F32, count);
}

UnitsOptions how_to_share(const Options& options, bool sharded) {
  UnitsOptions how;
  how.name = sharded ? "model" : "model alone";
  how.whole_dtype = options.dtype;
  how.prefetch = options.prefetch;
  how.alone = !sharded;
  // Tied, the first unit is in use from the embedding to the head. Else its backward reads no parameter.
  how.first_flags = options.tied ? MUSTER_UNIT_ROOT : MUSTER_UNIT_BACKWARD_WITHOUT_WHOLE;
  if (!sharded) return how;
  how.shard = how.shard_of_cut = "dp_shard_cp";
  how.replicate = "dp_replicate";
  how.cut = "tp";
  how.budget = options.budget;
  how.share = options.share;
  how.reshard = options.reshard;
  return how;
}

}  // namespace

Trainer::Trainer(Runtime& runtime, const Mesh& mesh, const Options& options, const Text& text, bool sharded)
    : runtime_(runtime),
      mesh_(mesh),
      options_(options),
      text_(text),
      units_(runtime, model_units(options), how_to_share(options, sharded)),
      optimiser_(runtime, units_) {
  units_.initialise(options.seed);
}

void Trainer::record() {
  model_ = std::make_unique<Model>(runtime_, mesh_, options_, units_, mesh_.batch_rows(options_.batch).count);
  optimiser_.record(options_.learning_rate, options_.clip);
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
  page.load.kernel(muster_copy(floats(page.schedule, 0, 2), optimiser_.schedule()));
  page.store.kernel(muster_copy(model_->mean_loss(), floats(page.results, 0, 1)));
  page.store.kernel(muster_copy(optimiser_.gradient_norm(), floats(page.results, 1, 1)));
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
  page.schedule.as<float>()[0] =
      static_cast<float>(learning_rate_multiplier(step, options_.steps, options_.warmup));
  page.schedule.as<float>()[1] = static_cast<float>(step + 1);
  page.load.replay();
  model_->forward();
  model_->loss();
  model_->backward();
  units_.end_step(runtime_.newest(MUSTER_LANE_COMPUTE));  // the sum of squares waits for all gradients
  if (before_update) before_update();
  updated_ = optimiser_.update(model_->loss_ready());
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
             << (parameter.is_vector() ? 1 : box.length[1]);
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

Mesh mesh_of(Runtime& runtime) {
  for (const char* name : {"pp", "domain"}) {
    if (const std::int64_t size = runtime.axis(name).size; size != 1)
      throw UsageError("mesh " + runtime.mesh_text() + " has " + name + "=" + std::to_string(size) +
                       "; train_lm shards over dp_replicate, dp_shard, cp and tp only, so set " + name +
                       " to 1");
  }
  return {runtime.axis("dp_replicate"), runtime.axis("dp_shard"), runtime.axis("cp"), runtime.axis("tp"),
          runtime.group("dp_cp")};
}

}  // namespace train_lm
