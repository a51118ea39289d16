// Checkpoint: what a run must remember to go on later, on this mesh or on another: parameters, the moments of
// AdamW, and which step comes next. The step says which batch is next too, since batches depend on nothing
// else.
#pragma once

#include "api/examples/train_lm/options.hpp"
#include "api/examples/train_lm/text.hpp"
#include "api/examples/train_lm/units.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <muster/checkpoint.h>

namespace train_lm {

// The user's state of a checkpoint, as its bytes are: what a run must have in common with the one that it
// goes on from. Older checkpoints end before text_hash.
struct RunState {
  std::int64_t next_step;
  std::uint64_t seed;
  std::int64_t batch, context;
  std::uint64_t text_bytes;
  std::uint64_t text_hash;
  std::int64_t layers, width, heads, vocabulary;
  std::int64_t tied;   // 1 or 0
  std::int64_t dtype;  // of activations and gathered weights
};
static_assert(sizeof(RunState) == 96 && offsetof(RunState, text_hash) == 40);

// Owns    the folders' handles, and the layouts of what is saved.
// Thread  one. All ranks make the same calls.
// Bound   one save in flight; the one before ends before the next begins.
// Fails   with RuntimeError; resume() also with UsageError, if the checkpoint is of other options.
class Checkpoint {
 public:
  Checkpoint(Runtime& runtime, const Units& units, const Options& options, const Text& text);

  // Loads the checkpoint that --resume names, or the newest of that folder. Returns the step with which the
  // run goes on; 0 if there is none. After a loss (`again`) that of --save comes before that of --resume. The
  // folder of --save must hold no other run's: UsageError.
  std::int64_t resume(bool again);
  bool is_due(std::int64_t steps_done) const;
  // The weights of the last step may be read after `updated`. Waits for that, copies, and returns while the
  // copy is written.
  void save(std::int64_t steps_done, muster_point updated);
  void finish();  // until the last checkpoint is complete

 private:
  struct Close {
    void operator()(muster_checkpoints* folder) const { muster_checkpoints_close(folder); }
    void operator()(muster_layout* layout) const { muster_layout_destroy(layout); }
  };
  using Folder = std::unique_ptr<muster_checkpoints, Close>;
  Folder open(const std::string& path, std::uint32_t keep) const;
  void refuse_another_run() const;
  std::optional<std::int64_t> load(const std::string& path, std::int64_t most_steps) const;
  RunState load_state(muster_checkpoints* folder, const muster_checkpoint_info& info,
                      const std::string& shown) const;
  void load_tensors(muster_checkpoints* folder, const muster_checkpoint_info& info,
                    const std::string& shown) const;

  Runtime& runtime_;
  const Options& options_;
  RunState own_{};
  std::int64_t start_ = 0;  // what was resumed is there already
  std::vector<std::unique_ptr<muster_layout, Close>> layouts_;
  std::vector<std::string> names_;
  std::vector<muster_checkpoint_tensor> tensors_;
  Folder folder_;  // of --save
};

}  // namespace train_lm
