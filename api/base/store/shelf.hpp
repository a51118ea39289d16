// A shelf: a folder that has checkpoints of one training run, each a folder of its own.
#pragma once

#include "api/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::store {

struct ShelfEntry {
  std::string name;
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;
  std::size_t tensors = 0;
};

// The checkpoints that have sound metadata, by step and then by name; the newest is the last one. Folders
// without metadata, and those that are still written, are none. A folder that is not there has none. What has
// damaged metadata is left out too: `damaged`, if not null, gets a sentence for each.
Result<std::vector<ShelfEntry>> list_shelf(const std::string& folder,
                                           std::vector<std::string>* damaged = nullptr);

// Where the newest one is. Errors: kNotFound.
Result<std::string> newest_on_shelf(const std::string& folder);

// Removes the oldest checkpoints until `keep` are left, never `newest`. Then removes what writers that have
// died left behind before `newest` was made. Whoever dies in between leaves no half of a checkpoint under its
// name.
Status prune_shelf(const std::string& folder, std::size_t keep, const std::string& newest);

}  // namespace muster::store
