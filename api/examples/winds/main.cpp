// winds: a U-Net that learns the winds of an atmosphere from its geopotential, on a field that is cut over
// the ranks of one job. It is an example of the C API. This file is one rank's run. Read on in model.* (the
// layers, their halos and kernels), part.* (which part of a field a rank has), samples.* and field.* (the
// data), trainer.* (the step, and the judgement), and in ../training (the session, recorded programs,
// parameters).
#include "api/examples/training/checkpoint.hpp"
#include "api/examples/training/folder_lock.hpp"
#include "api/examples/training/output.hpp"
#include "api/examples/winds/report.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

namespace winds {

using namespace training;

namespace {

constexpr std::int64_t kTracedSteps = 2;
constexpr std::int64_t kStepsPerLine = 10;

// All that a run must have in common with the one that it goes on from.
//
// Owns    its bytes, as they are saved. Thread  a value; any.
// Bound   fixed. Fails   next_step: UsageError.
class WindsState final : public SavedState {
 public:
  WindsState(const Options& options, const Samples& samples)
      : own_{0,
             options.seed,
             options.batch,
             options.width,
             options.month,
             samples.grid().rows,
             samples.grid().columns,
             samples.digest()} {}
  std::vector<std::byte> bytes(std::int64_t next_step) const override {
    Content content = own_;
    content.next_step = next_step;
    std::vector<std::byte> bytes(sizeof content);
    std::memcpy(bytes.data(), &content, sizeof content);
    return bytes;
  }
  std::int64_t next_step(std::span<const std::byte> saved, const std::string& shown) const override {
    Content content{};
    if (saved.size() != sizeof content) throw UsageError(shown + " was not made by winds");
    std::memcpy(&content, saved.data(), saved.size());
    check_same("--seed", content.seed, own_.seed, shown);
    check_same("--batch", content.batch, own_.batch, shown);
    check_same("--width", content.width, own_.width, shown);
    check_same("--month", content.month, own_.month, shown);
    check_same("a field of latitudes", content.rows, own_.rows, shown);
    check_same("a field of longitudes", content.columns, own_.columns, shown);
    check_same("a field of the digest", content.field, own_.field, shown);
    return content.next_step;
  }

 private:
  struct Content {
    std::int64_t next_step;
    std::uint64_t seed;
    std::int64_t batch, width, month, rows, columns;
    std::uint64_t field;
  };
  Content own_;
};

class WindsRun {
 public:
  WindsRun(Runtime& runtime, const Sharing& sharing, const Options& options, const Samples& samples)
      : runtime_(runtime), sharing_(sharing), options_(options), samples_(samples) {}

  void all() {
    hold_folder();
    Trainer trainer(runtime_, sharing_, options_, samples_);
    const WindsState state(options_, samples_);
    const CheckpointOptions how{"winds",       options_.save, options_.resume, options_.save_every,
                                options_.keep, options_.steps};
    Checkpoint checkpoint(runtime_, trainer.units(), how, state);
    first_step_ = checkpoint.resume(false);
    train(trainer, checkpoint);
    checkpoint.finish();
    figures_.judgement = trainer.judge((options_.month + 1) % samples_.grid().months);
    figures_.halos = trainer.model().halos();
    figures_.activation_bytes = most_of_all(trainer.model().bytes());
    if (!options_.html.empty()) maps_ = maps_json(gather_maps(runtime_, sharing_, trainer), samples_.grid());
    if (options_.verify) train_alone();
    if (first()) report();
  }

 private:
  bool first() const { return runtime_.rank() == 0; }
  bool traced() const { return !options_.trace.empty() || !options_.html.empty(); }
  std::string trace_path() const {
    return options_.trace.empty() ? options_.html + ".trace.json" : options_.trace;
  }

  // Nobody trains for a folder into which another run saves.
  void hold_folder() {
    if (options_.save.empty()) return;
    std::string refusal;
    try {
      if (first()) held_.emplace(options_.save, "winds");
    } catch (const std::runtime_error& error) {
      refusal = error.what();
    }
    refusal = runtime_.from_first(refusal);
    if (!refusal.empty()) throw UsageError(refusal);
  }

  void train(Trainer& trainer, Checkpoint& checkpoint) {
    const auto begin = std::chrono::steady_clock::now();
    const std::uint64_t exposed_before = runtime_.counter("exposed_ns");
    const std::uint64_t halo_exposed_before = runtime_.counter("halo_exposed_ns");
    for (std::int64_t step = first_step_; step < options_.steps; ++step) {
      if (first() && traced() && !recording_ &&
          step >= std::max(first_step_, options_.steps - kTracedSteps)) {
        runtime_.trace_begin();
        recording_ = true;
      }
      trainer.submit(step, [&, updated = trainer.updated()] {
        if (!checkpoint.is_due(step)) return;
        collect(trainer, step);
        checkpoint.save(step, updated);
      });
      collect(trainer, step);  // one step behind, so that the lanes never run dry
    }
    collect(trainer, options_.steps);
    if (checkpoint.is_due(options_.steps)) checkpoint.save(options_.steps, trainer.updated());
    figures_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const auto fraction = [this](const char* counter, std::uint64_t before) {
      return static_cast<double>(runtime_.counter(counter) - before) * 1e-9 / figures_.seconds;
    };
    figures_.exposed_fraction = fraction("exposed_ns", exposed_before);
    figures_.halo_exposed_fraction = fraction("halo_exposed_ns", halo_exposed_before);
    if (recording_) runtime_.trace_end(trace_path());
  }

  // The losses of all steps before `end`.
  void collect(Trainer& trainer, std::int64_t end) {
    for (std::int64_t step = first_step_ + static_cast<std::int64_t>(figures_.losses.size()); step < end;
         ++step) {
      const StepResult result = trainer.collect(step);
      figures_.losses.push_back(result.loss);
      figures_.gradient_norms.push_back(result.gradient_norm);
      show("train", step, figures_.losses.back());
    }
  }

  void show(const char* what, std::int64_t step, float loss) const {
    if (first() && ((step + 1) % kStepsPerLine == 0 || step + 1 == options_.steps))
      std::fprintf(stderr, "%s %lld/%lld  loss %.5f\n", what, static_cast<long long>(step + 1),
                   static_cast<long long>(options_.steps), static_cast<double>(loss));
  }

  std::uint64_t most_of_all(std::uint64_t own) {
    if (sharing_.all == MUSTER_GROUP_SELF) return own;
    const Buffer buffer = runtime_.allocate(sizeof own);
    buffer.as<std::uint64_t>()[0] = own;
    const muster_collective most =
        all_reduce(sharing_.all, MUSTER_MAX, muster_view1(buffer.handle, 0, MUSTER_I64, 1));
    check(muster_run(runtime_.session(), &most, 0));
    return buffer.as<std::uint64_t>()[0];
  }

  // Trains the same model with the same samples on rank 0, with the whole field. The other ranks meet it
  // after each step, so that no barrier waits longer than a step.
  void train_alone() {
    const Sharing whole;
    std::unique_ptr<Trainer> trainer;
    if (first()) trainer = std::make_unique<Trainer>(runtime_, whole, options_, samples_);
    for (std::int64_t step = 0; step < options_.steps; ++step) {
      if (first()) {
        trainer->submit(step);
        const StepResult result = trainer->collect(step);
        figures_.alone.push_back(result.loss);
        figures_.alone_gradient_norms.push_back(result.gradient_norm);
        show("alone", step, figures_.alone.back());
      }
      runtime_.meet_all();
    }
    if (first()) figures_.alone_activation_bytes = trainer->model().bytes();
  }

  void report() {
    std::cout << judgement_text(figures_.judgement);
    if (options_.verify)
      std::cout << "largest difference of the losses from one rank alone: " << figures_.max_loss_difference()
                << "\nactivations: " << bytes_text(static_cast<std::int64_t>(figures_.activation_bytes))
                << " on a rank, " << bytes_text(static_cast<std::int64_t>(figures_.alone_activation_bytes))
                << " on one alone\n";
    if (!options_.html.empty()) write_page();
    if (options_.json) std::cout << figures_json(figures_) << '\n';
    finish_output();
  }

  void write_page() {
    std::ifstream trace(trace_path(), std::ios::binary);
    const std::string json{std::istreambuf_iterator<char>(trace), {}};
    const std::string field = options_.field.empty() ? "vortices" : options_.field;
    std::ofstream page(options_.html, std::ios::binary);
    page << page_of(
        {runtime_.mesh_text(), field, figures_, maps_, read_trace(json), runtime_.ranks(), first_step_});
    errno = 0;
    if (!page.flush()) throw OutputError(options_.html, std::strerror(errno != 0 ? errno : EIO));
    if (options_.trace.empty()) std::filesystem::remove(trace_path());
  }

  Runtime& runtime_;
  Sharing sharing_;
  const Options& options_;
  const Samples& samples_;
  Figures figures_;
  std::int64_t first_step_ = 0;
  std::optional<FolderLock> held_;
  std::string maps_;
  bool recording_ = false;
};

// All ranks check, so that all end alike before any of them waits for another.
void run(Options options) {
  for (const std::string& path : {options.trace, options.html})
    if (!path.empty()) check_writable(path);
  if (!options.save.empty()) check_folder(options.save);
  const std::unique_ptr<Field> field =
      options.field.empty() ? make_vortices(options.seed) : open_field(options.field);
  if (options.month >= field->grid().months)
    throw UsageError("--month " + std::to_string(options.month) + ", but the field has the months 0 to " +
                     std::to_string(field->grid().months - 1));
  const Samples samples(*field, options.month, options.seed);
  Runtime runtime = Runtime::open(options.delay_ranks);
  const Sharing sharing = sharing_of(runtime, options);
  if (options.batch == 0) options.batch = std::max(kBatchMin, sharing.dp_size);
  WindsRun(runtime, sharing, options, samples).all();
}

}  // namespace
}  // namespace winds

int main(int argc, char** argv) {
  using namespace winds;
  // The field may be missing at some ranks alone. muster run shows a line that several ranks say once.
  return training::run_main("winds", true, [&] {
    if (const auto options = parse_options(argc, argv)) run(*options);
  });
}
