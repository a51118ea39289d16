// Tensor files: a checkpoint as one safetensors file, with the tensors' own names and shapes, and back from
// one or several.
#pragma once

#include "api/base/result.hpp"
#include "api/base/store/name_filter.hpp"
#include "api/base/store/saved_folder.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster::store {

// Writes a new file under another name, waits until it is on the disk, and renames it; so there is none, or a
// whole one. The user's state is left out. Needs memory for the largest tensor. Errors: kDuplicate (the file
// is there), kNotFound (a pattern fits nothing), kUnsupported (more names than a header may have), those of
// SavedFolder.
Status export_tensors(SavedFolder& saved, const std::string& file, const NameFilter& filter = {});

struct Imported {
  std::size_t tensors = 0;
  std::size_t files = 0;
  std::uint64_t bytes = 0;               // of the tensors
  std::vector<std::string> differences;  // as ModelFiles has them
};

// Makes the checkpoint FOLDER/NAME of a model's files, with one box for each tensor, and with their notes.
// Errors: those of ModelFiles, naming the file and what is wrong in it, and of StagedFolder.
Result<Imported> import_tensors(std::span<const std::string> files, const std::string& folder,
                                const std::string& name, std::uint64_t step, const NameFilter& filter = {});

}  // namespace muster::store
