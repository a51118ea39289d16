// Checkpoint: what a run must remember to go on later, on this mesh or on another: parameters, the moments of
// AdamW, and which step comes next. The step says which batch is next too, since batches depend on nothing
// else.
#pragma once

#include "api/examples/training/units.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <muster/checkpoint.h>

namespace training {

// The state that a program keeps beside its parameters, with the step that comes next.
//
// Owns    nothing that changes. Thread  one.
// Bound   4096 bytes. Fails   next_step, as it says.
class SavedState {
 public:
  virtual ~SavedState() = default;
  virtual std::vector<std::byte> bytes(std::int64_t next_step) const = 0;
  // The next step of a state that was saved. UsageError: another run made it. `shown` names the checkpoint.
  virtual std::int64_t next_step(std::span<const std::byte> saved, const std::string& shown) const = 0;
};

struct CheckpointOptions {
  std::string program;          // for messages
  std::string save, resume;     // folders, or one checkpoint; empty: none
  std::int64_t save_every = 0;  // steps; 0: at the end alone
  std::uint32_t keep = 2;       // how many of the newest stay; 0: all
  std::int64_t steps = 0;       // of the whole run
};

// The refusal of a checkpoint that was made with something else.
[[noreturn]] void refuse_made_otherwise(const std::string& shown, const std::string& what,
                                        const std::string& saved, const std::string& said);
template<class Number>
void check_same(const char* what, Number saved, Number said, const std::string& shown) {
  if (saved != said) refuse_made_otherwise(shown, what, std::to_string(saved), std::to_string(said));
}

// Owns    the folders' handles, and the layouts of what is saved.
// Thread  one. All ranks make the same calls.
// Bound   one save in flight; the one before ends before the next begins.
// Fails   with RuntimeError; resume() also with UsageError, if the checkpoint is of other options.
class Checkpoint {
 public:
  // All outlive it.
  Checkpoint(Runtime& runtime, const Units& units, const CheckpointOptions& options, const SavedState& state);

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
  std::int64_t load_state(muster_checkpoints* folder, const muster_checkpoint_info& info,
                          const std::string& shown) const;
  void load_tensors(muster_checkpoints* folder, const muster_checkpoint_info& info,
                    const std::string& shown) const;

  Runtime& runtime_;
  const CheckpointOptions options_;
  const SavedState& state_;
  std::int64_t start_ = 0;  // what was resumed is there already
  std::vector<std::unique_ptr<muster_layout, Close>> layouts_;
  std::vector<std::string> names_;
  std::vector<muster_checkpoint_tensor> tensors_;
  Folder folder_;  // of --save
};

}  // namespace training
