// A shelf: a folder that has checkpoints of one training run, each a folder of its own.
#pragma once

#include "api/base/checkpoint/saved.hpp"
#include "api/base/result.hpp"
#include "api/base/store/disk_file.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::store {

struct CheckpointEntry {
  std::string name;
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;       // of all files
  std::uint64_t user_bytes = 0;  // of the user's state
  std::size_t tensors = 0;       // without the user's state
};
CheckpointEntry entry_of(std::string name, const checkpoint::CheckpointRecord& record);

// The checkpoints whose metadata were read, by step and then by name; the newest is the last one. Folders
// without metadata, and unfinished checkpoints, do not count. A missing folder has none. Refused checkpoints
// are left out, and `refused`, if not null, gets each reason: kCorrupt, kVersion, kDenied, kNoResource.
// Errors, of the folder: kDenied, kNoResource.
Result<std::vector<CheckpointEntry>> list_checkpoints(const std::string& folder,
                                                      std::vector<Status>* refused = nullptr,
                                                      const Pause& pause = Pause());

struct Newest {
  CheckpointEntry entry;
  std::vector<Status> damaged;  // that were passed over, because their metadata are damaged
};
// Errors: kNotFound; kCorrupt (all are damaged). If a checkpoint could not be read for another reason, its
// error: it may be the newest.
Result<Newest> newest_checkpoint(const std::string& folder, const Pause& pause = Pause());

// Removes the oldest checkpoints until `keep` are left, never `newest`. If the process dies meanwhile, no
// half of a checkpoint is left under its name.
Status remove_oldest(const std::string& folder, std::size_t keep, const std::string& newest,
                     const Pause& pause = Pause());
// Removes the leftovers of dead writers from before `newest` was made.
Status remove_leftovers(const std::string& folder, const std::string& newest, const Pause& pause = Pause());

}  // namespace muster::store
