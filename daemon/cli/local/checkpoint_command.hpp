// `muster checkpoint`: looks into checkpoints, and carries them to and from safetensors. Needs no daemon.
#pragma once

#include "daemon/cli/outcome.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

struct CheckpointQuestion {
  std::string path;                // a checkpoint, or the folder of a run: then all of it, or its newest
  std::string file;                // export: safetensors
  std::vector<std::string> files;  // import: those of a model, or its index, or the folder of that
  std::string name;                // import: of the checkpoint; empty: by its step
  std::uint64_t step = 0;
  std::vector<std::string> only, exclude;  // patterns of tensors' names
};

int run_checkpoint_inspect(const CheckpointQuestion& question, Output output);
// Reads every byte. kFailed if something is damaged, with all that is.
int run_checkpoint_verify(const CheckpointQuestion& question, Output output);
int run_checkpoint_export(const CheckpointQuestion& question, Output output);
int run_checkpoint_import(const CheckpointQuestion& question, Output output);

}  // namespace muster::cli
