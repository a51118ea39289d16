// train_lm: a byte-level transformer, trained on the ranks of one job. It is an example of the C API. This
// file is one rank's run, from the command line to the report. Read on in trainer.* (the step), then model.*
// (the kernels), units.* (parameters, sharded by the runtime, and the optimiser), mesh.* (which rank
// computes what), program.* (a part of a step recorded once and replayed) and runtime.* (the session, buffers
// and plans).
#include "api/examples/train_lm/generate.hpp"
#include "api/examples/train_lm/page.hpp"
#include "api/examples/train_lm/run_state.hpp"
#include "api/examples/train_lm/trainer.hpp"
#include "api/examples/training/folder_lock.hpp"
#include "api/examples/training/output.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

namespace train_lm {

using namespace training;

namespace {

constexpr std::int64_t kTracedSteps = 2;
constexpr const char* kGroups[] = {"dp_replicate", "dp_shard", "dp_shard_cp", "dp_cp", "cp", "tp"};  // in use

// One rank's run from the first step to the report.
class Run {
 public:
  Run(Runtime& runtime, const Options& options, const Text& text)
      : runtime_(runtime),
        options_(options),
        text_(text),
        mesh_(mesh_of(runtime)),
        progress_("train", options.steps, tokens_per_step()),
        exposed_before_(runtime.counter("exposed_ns")) {}

  void all() {
    bool needed = true;
    while (needed) {
      try {
        train();
        break;
      } catch (const RuntimeError& error) {
        needed = go_on_after(error);
      }
    }
    if (!needed) return;
    if (options_.verify) train_alone();
    if (first()) report();
  }

 private:
  bool first() const { return runtime_.rank() == 0; }
  bool traced() const { return !options_.trace.empty() || !options_.html.empty(); }
  std::string trace_path() const {
    return options_.trace.empty() ? options_.html + ".trace.json" : options_.trace;
  }
  std::int64_t tokens_per_step() const { return options_.batch * options_.context; }

  // Nobody trains for a folder into which another run saves. After a loss another rank may be the first.
  void hold_folder() {
    if (options_.save.empty()) return;
    std::string refusal;
    try {
      if (first() && !held_) held_.emplace(options_.save, "train_lm");
    } catch (const std::runtime_error& error) {
      refusal = error.what();
      if (has_lost_) std::cerr << "train_lm: " + refusal + "\n";  // else main() says it
    }
    refusal = runtime_.from_first(refusal);
    if (!refusal.empty()) throw UsageError(refusal);
  }

  void train() {
    hold_folder();
    Trainer trainer(runtime_, mesh_, options_, text_, true);
    const RunState state(options_, text_);
    const CheckpointOptions how{"train_lm",          options_.save, options_.resume,
                                options_.save_every, options_.keep, options_.steps};
    Checkpoint checkpoint(runtime_, trainer.units(), how, state);
    const std::int64_t start = checkpoint.resume(has_lost_);
    if (figures_.losses.empty() || start < first_) first_ = start;
    figures_.losses.resize(static_cast<std::size_t>(start - first_));
    train(trainer, checkpoint, start);
    checkpoint.finish();
    if (options_.generate > 0) sample_ = printable(generate(runtime_, mesh_, options_, text_, trainer));
    if (options_.elastic) runtime_.meet_all();  // until then the others may need this rank
  }

  void train(Trainer& trainer, Checkpoint& checkpoint, std::int64_t start) {
    for (std::int64_t step = start; step < options_.steps; ++step) {
      if (first() && traced() && !recording_ && step >= std::max(start, options_.steps - kTracedSteps))
        begin_trace();
      trainer.submit(step, [&, updated = trainer.updated()] {
        if (!checkpoint.is_due(step)) return;
        collect(trainer, step);  // so each rank has the losses of what is saved
        checkpoint.save(step, updated);
      });
      if (step == start) {
        figures_.peak_unsharded_bytes = trainer.units().peak_whole_bytes();
        figures_.least_unsharded_bytes = static_cast<std::int64_t>(trainer.units().info().least_bytes);
      }
      // Collects one step behind, so that the lanes never run dry. But a dump needs the gradients of the
      // first step before the second one changes them.
      const bool dumps = step == start && !options_.dump_gradients.empty();
      collect(trainer, dumps ? start + 1 : step);
      if (dumps) trainer.dump_gradients(options_.dump_gradients + ".rank" + std::to_string(runtime_.rank()));
    }
    collect(trainer, options_.steps);
    if (checkpoint.is_due(options_.steps)) checkpoint.save(options_.steps, trainer.updated());
    figures_.tokens_per_second = static_cast<double>(steps_done_ * tokens_per_step()) / progress_.seconds();
    if (recording_) end_trace();
  }

  std::int64_t collected() const { return first_ + static_cast<std::int64_t>(figures_.losses.size()); }

  // The losses of all steps before `end`.
  void collect(Trainer& trainer, std::int64_t end) {
    for (std::int64_t step = collected(); step < end; ++step) {
      figures_.losses.push_back(trainer.collect(step).loss);
      ++steps_done_;
      const double exposed = static_cast<double>(runtime_.counter("exposed_ns") - exposed_before_) * 1e-9;
      figures_.exposed_fraction = exposed / progress_.seconds();
      if (first()) progress_.show(step + 1, steps_done_, figures_.losses.back(), figures_);
    }
  }

  // The ranks that are left take a smaller mesh. Returns whether this one is needed there. Throws the failure
  // if no rank was lost.
  bool go_on_after(const RuntimeError& error) {
    if (!options_.elastic || error.status() > -200 || error.status() <= -300) throw error;
    if (!runtime_.gather_survivors(kGroups)) throw error;
    has_lost_ = true;
    const Mesh smaller = smaller_mesh(mesh_, runtime_.ranks(),
                                      [&](const Mesh& mesh) { return mesh_fault(options_, mesh).empty(); });
    if (first())
      std::cerr << "train_lm: " + std::string(error.what()) + "; goes on with " + smaller.text() + ", " +
                       std::to_string(smaller.size()) + " of " + std::to_string(runtime_.ranks()) +
                       " that are left\n";
    if (!runtime_.go_on(smaller.size(), smaller.text())) return false;
    mesh_ = mesh_of(runtime_);
    return true;
  }

  // If another program records the job already, this run has no trace, and says so at the end.
  void begin_trace() {
    try {
      runtime_.trace_begin();
      recording_ = true;
    } catch (const RuntimeError& error) {
      if (error.status() != MUSTER_ERR_BUSY) throw;
      lost_trace_ = error.what();
    }
  }

  // A failure to write is reported at the end, when no other rank waits for this one any more.
  void end_trace() {
    recording_ = false;
    try {
      runtime_.trace_end(trace_path());
    } catch (const RuntimeError& error) {
      if (error.status() != MUSTER_ERR_NO_RESOURCE) throw;
      const std::string text = error.what();
      const std::size_t colon = text.rfind(": ");
      lost_trace_ = colon == std::string::npos ? text : text.substr(colon + 2);
    }
  }

  // Trains the same model, data and seed on rank 0 with whole tensors and no collective. The other ranks meet
  // it after each step, so that no barrier waits longer than a step.
  void train_alone() {
    const Mesh whole;
    std::unique_ptr<Trainer> trainer;
    if (first()) trainer = std::make_unique<Trainer>(runtime_, whole, options_, text_, false);
    Progress progress("alone", options_.steps, tokens_per_step());
    Figures alone;
    for (std::int64_t step = 0; step < options_.steps; ++step) {
      if (first()) {
        trainer->submit(step);
        alone.peak_unsharded_bytes = trainer->units().peak_whole_bytes();
        figures_.alone.push_back(trainer->collect(step).loss);
        progress.show(step + 1, step + 1, figures_.alone.back(), alone);
      }
      runtime_.meet_all();
    }
  }

  void report() {
    if (!sample_.empty())
      std::cout << "Text that the model has made, " << options_.generate << " bytes:\n" << sample_ << '\n';
    if (options_.verify)
      std::cout << "largest difference of the losses from one rank alone: " << figures_.max_loss_difference()
                << '\n';
    if (!options_.html.empty()) write_page();
    if (options_.json) std::cout << figures_json(figures_) << '\n';
    finish_output();
    if (!options_.trace.empty() && !lost_trace_.empty()) throw OutputError(options_.trace, lost_trace_);
  }

  void write_page() {
    if (options_.trace.empty() && !lost_trace_.empty()) throw OutputError(options_.html, lost_trace_);
    std::ifstream trace(trace_path(), std::ios::binary);
    const std::string json{std::istreambuf_iterator<char>(trace), {}};
    PageContent content{runtime_.mesh_text(), sample_, figures_, {}, runtime_.ranks(), first_};
    if (lost_trace_.empty()) content.events = read_trace(json);
    std::ofstream page(options_.html, std::ios::binary);
    page << page_html(content);
    errno = 0;
    if (!page.flush()) throw OutputError(options_.html, std::strerror(errno != 0 ? errno : EIO));
    if (options_.trace.empty()) std::filesystem::remove(trace_path());
  }

  Runtime& runtime_;
  const Options& options_;
  const Text& text_;
  Mesh mesh_;
  Progress progress_;
  std::uint64_t exposed_before_;
  Figures figures_;
  std::int64_t first_ = 0;       // step of this run
  std::int64_t steps_done_ = 0;  // also those that were done again
  bool has_lost_ = false;        // ranks
  std::optional<FolderLock> held_;
  std::string sample_;
  bool recording_ = false;
  std::string lost_trace_;  // why the trace could not be written
};

// All ranks check, so that all end alike before any of them waits for another.
void check_outputs(const Options& options) {
  for (const std::string& path : {options.trace, options.html})
    if (!path.empty()) check_writable(path);
  if (!options.html.empty() && options.trace.empty()) check_writable(options.html + ".trace.json");
  if (!options.dump_gradients.empty()) check_writable(options.dump_gradients + ".rank" + rank_name());
  if (!options.save.empty()) check_folder(options.save);
}

void run(const Options& options) {
  check_outputs(options);
  const Text text = Text::load(options.text, options.context);
  Runtime runtime = Runtime::open(options.delay_ranks);
  if (const std::string fault = mesh_fault(options, mesh_of(runtime)); !fault.empty())
    throw UsageError(fault);
  Run(runtime, options, text).all();
}

}  // namespace
}  // namespace train_lm

int main(int argc, char** argv) {
  using namespace train_lm;
  // All ranks find the same mistake; one of them reports it.
  return training::run_main("train_lm", training::rank_name() == "0", [&] {
    if (const auto options = parse_options(argc, argv)) run(*options);
  });
}
