// Tensor files: a checkpoint as one safetensors file, with the tensors' own names and shapes, and back.
#pragma once

#include "api/base/result.hpp"
#include "api/base/store/saved_folder.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace muster::store {

// Which tensors: those that fit one of `only` (all, if it is empty) and none of `exclude`.
struct NameFilter {
  std::span<const std::string> only{};
  std::span<const std::string> exclude{};
  bool takes(std::string_view name) const;
};

// Writes a new file under another name, waits until it is on the disk, and renames it; so there is none, or a
// whole one. The user's state is left out. Needs memory for the largest tensor. Errors: kDuplicate (the file
// is there), kNotFound (the filter takes nothing), kUnsupported (more names than a header may have), those of
// SavedFolder.
Status export_tensors(SavedFolder& saved, const std::string& file, const NameFilter& filter = {});

// Makes the checkpoint FOLDER/NAME, with one box for each tensor. Errors: kCorrupt naming the file and what
// is wrong in it, kUnsupported (a dtype), those of StagedFolder.
Status import_tensors(const std::string& file, const std::string& folder, const std::string& name,
                      std::uint64_t step);

}  // namespace muster::store
